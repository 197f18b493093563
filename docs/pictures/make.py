"""Draw the pictures of the documentation. The files are committed; a test draws them again and compares.

    python docs/pictures/make.py            writes docs/pictures/*.svg

samples/tutorial --compile, timeline--> layout text, trace --pictures--> {file name: SVG text}
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

HERE = Path(__file__).resolve().parent
CHIP = ROOT / "samples" / "tutorial" / "two_cores.yaml"
NETWORK = ROOT / "samples" / "tutorial" / "network.py"

INK, GREY, PALE, PAPER = "#1f2933", "#7b8794", "#e4e7eb", "#ffffff"
BLUE, ORANGE, GREEN, PURPLE = "#2b6cb0", "#c05621", "#2f855a", "#6b46c1"
ENGINES = {"matrix": BLUE, "vector": GREEN, "transfer": ORANGE, "dma": PURPLE}
CYCLES_PER_TICK = 4000
ROWS = 32
"""Rows of the feature maps of the tutorial's network."""


@dataclass(frozen=True)
class Slice:
    """One piece of work of an engine; times are cycles after the launch."""

    row: str
    kind: str
    first: float
    last: float


@dataclass(frozen=True)
class Run:
    """The machine code of the tutorial's network at one level, under the clock."""

    title: str
    cycles: float
    slices: tuple[Slice, ...]
    live: dict[str, tuple[tuple[float, int], ...]]
    """Memory -> (cycle, live bytes) at each change; memories of cores are those of core 0."""


# Elements of an SVG file.


def _text(x: float, y: float, words: str, size: int = 13, anchor: str = "middle", fill: str = INK) -> str:
    escaped = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escaped}</text>'


def _box(x: float, y: float, width: float, height: float, fill: str = PAPER, stroke: str = INK, round_: int = 4) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_}" fill="{fill}" '
        f'stroke="{stroke}"/>'
    )


def _arrow(x: float, y: float, to_x: float, to_y: float, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    line = f'x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"'
    return f'<line {line} stroke="{INK}" marker-end="url(#head)"{dash}/>'


def _svg(width: int, height: int, title: str, elements: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" role="img">\n'
        f"<title>{title}</title>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>\n'
    )
    return head + "\n".join(elements) + "\n</svg>\n"


# Pictures that are the same for every network.


def data_flow() -> str:
    """The nouns of the compiler in a row, and the stage that makes each from the one before."""
    nouns = ("model.onnx", "Graph", "Plan", "Layout", "Program", "Artifact", "results")
    stages = ("frontend", "partitioner", "partitioner", "isched", "codegen", "simulator")
    step, width, y = 134, 84, 70

    def elements() -> Iterator[str]:
        for number, noun in enumerate(nouns):
            x = 16 + number * step
            yield _box(x, y, width, 34, PALE if number in (0, 6) else PAPER)
            yield _text(x + width / 2, y + 22, noun)
        for number, stage in enumerate(stages):
            x = 16 + number * step + width
            yield _arrow(x, y + 17, x + step - width, y + 17)
            yield _text(x + (step - width) / 2, y + 50, stage, 11, fill=BLUE)
        yield _box(16 + 2.5 * step, 6, width + 40, 30, PALE)
        yield _text(16 + 2.5 * step + (width + 40) / 2, 26, "chip file (YAML)")
        for number in (2, 3, 4):
            yield _arrow(16 + 2.5 * step + 62, 36, 16 + number * step + width / 2, y - 2, dashed=True)
        yield _box(16 + 4.6 * step, 148, 130, 30, PALE)
        yield _text(16 + 4.6 * step + 65, 168, "onnxruntime")
        yield _box(16 + 6 * step, 148, width, 30)
        yield _text(16 + 6 * step + width / 2, 168, "verify")
        yield _arrow(16 + 4.6 * step + 130, 163, 16 + 6 * step, 163)
        yield _arrow(16 + 6 * step + width / 2, y + 34, 16 + 6 * step + width / 2, 148)
        yield f'<path d="M40 104V163H{16 + 4.6 * step:g}" fill="none" stroke="{INK}" marker-end="url(#head)"/>'
        yield _text(330, 157, "the user's own file, in float32", 11, fill=GREY)

    return _svg(920, 190, "Data flow: from an ONNX file to judged results", elements())


def search() -> str:
    """What level auto does: candidates in the order of their promise, each stopped as early as it can be."""
    steps = (
        ("candidates", "levels x pass sizes", "x constants ahead"),
        ("floor", "bytes over bandwidth:", "can it still win?"),
        ("order", "cheapest by the", "cost model first"),
        ("lower, schedule", "a program in each", "of its layouts"),
        ("time", "cycle model, up to", "the best so far"),
    )
    width, gap, y = 142, 38, 46

    def elements() -> Iterator[str]:
        for number, (name, first, second) in enumerate(steps):
            x = 14 + number * (width + gap)
            yield _box(x, y, width, 74)
            yield _text(x + width / 2, y + 22, name, 14, fill=BLUE)
            yield _text(x + width / 2, y + 43, first, 12)
            yield _text(x + width / 2, y + 60, second, 12)
            if number < len(steps) - 1:
                yield _arrow(x + width, y + 37, x + width + gap, y + 37)
        last = 14 + 4 * (width + gap) + width / 2
        third = 14 + 3 * (width + gap) + width / 2
        yield f'<path d="M{last:g} {y}V22H{third:g}V{y}" fill="none" stroke="{INK}" marker-end="url(#head)"/>'
        yield _text((last + third) / 2, 17, "next candidate, with the best as limit", 11, fill=GREY)
        yield _arrow(14 + width + gap + width / 2, y + 74, 14 + width + gap + width / 2, 168)
        yield _text(14 + width + gap + width / 2, 184, "no: not made", 11, fill=GREY)
        yield _box(14 + 2 * (width + gap), 160, width + 60, 40, PALE)
        middle = 14 + 2 * (width + gap) + (width + 60) / 2
        yield _text(middle, 177, "segments: for each part of the", 11)
        yield _text(middle, 192, "network the level that is best there", 11)
        yield f'<path d="M{last - 46:g} {y + 74}V180H{middle + (width + 60) / 2:g}" fill="none" stroke="{INK}" '
        yield 'marker-end="url(#head)"/>'
        yield _arrow(middle - 30, 160, middle - 30, y + 74)
        yield _box(last - 26, 160, 96, 40, PALE)
        yield _text(last + 22, 185, "the fastest")
        yield _arrow(last + 22, y + 74, last + 22, 160)

    return _svg(920, 214, "Search of level auto", elements())


# Pictures of the tutorial's network.


def plan(layout: str) -> str:
    """Which rows of each layer's output each core computes, instance by instance, from the text of a layout."""
    found = re.findall(
        r'^  step number=\d+ group="(\w+)" instance=(\d+)\n|^    layer name="(\w+)" .*? boxes=\[(.*?)\] ', layout, re.M
    )
    cells: list[tuple[str, int, str, list[tuple[int, int]]]] = []
    group, instance = "", 0
    for step_group, step_instance, layer, boxes in found:
        if step_group:
            group, instance = step_group, int(step_instance)
        else:
            rows = [tuple(map(int, box.split(", ")[1].split(":"))) for box in re.findall(r"\[(.*?)\]", boxes)]
            cells.append((group, instance, layer, [(first, last) for first, last in rows]))
    top, scale, wide = 74, 5, 118
    layers = list(dict.fromkeys(layer for _, _, layer, _ in cells))
    shades = ("#bee3f8", "#fbd38d")

    def elements() -> Iterator[str]:
        for column, layer in enumerate(layers):
            x = 70 + column * (wide + 30)
            yield _text(x + wide / 2, 40, layer, 14)
            shown = [(number, rows) for _, number, name, rows in cells if name == layer]
            rows_of = max(last for _, rows in shown for _, last in rows)
            if rows_of == ROWS:
                yield _box(x, top, wide, ROWS * scale, PALE, GREY, 0)
                for number, rows in shown:
                    for core, (first, last) in enumerate(rows):
                        left = x + 4 + (2 * number + core) * 28
                        yield _box(left, top + first * scale, 26, (last - first) * scale, shades[core], INK, 0)
                        yield _text(left + 13, top + (first + last) * scale / 2 + 4, f"a{number}", 11)
            else:
                yield _box(x, top, wide, 40, PALE, GREY, 0)
                yield _text(x + wide / 2, top + 25, f"{len(shown[0][1])} cores", 12)
            if column:
                yield _arrow(x - 28, top + 20, x - 3, top + 20)
        grouped = {layer: group for group, _, layer, _ in cells}
        right = 70 + sum(group == cells[0][0] for group in grouped.values()) * (wide + 30) - 30
        yield f'<rect x="58" y="16" width="{right - 46:g}" height="{top + ROWS * scale - 4:g}" rx="6" fill="none" '
        yield f'stroke="{BLUE}" stroke-dasharray="6 4"/>'
        yield f'<rect x="{right + 18:g}" y="16" width="{len(layers) * (wide + 30) + 46 - right:g}" height="110" rx="6" '
        yield f'fill="none" stroke="{BLUE}" stroke-dasharray="6 4"/>'
        yield _text(66, 12 + top + ROWS * scale + 16, f"group a, {cells[0][0]}: 2 instances", 12, "start", BLUE)
        yield _text(right + 26, 146, f"group b, {cells[-1][0]}: 1 instance", 12, "start", BLUE)
        yield _text(54, top + 10, "row 0", 11, "end", GREY)
        yield _text(54, top + ROWS * scale, f"row {ROWS - 1}", 11, "end", GREY)
        note = "a0, a1: instances of group a. Blue: core 0. Orange: core 1. Rows where two overlap are computed twice."
        yield _text(58, top + ROWS * scale + 50, note, 12, "start", GREY)

    return _svg(
        70 + len(layers) * (wide + 30), top + ROWS * scale + 64, "The plan of the tutorial at level O3", elements()
    )


def timeline(runs: Sequence[Run]) -> str:
    """What core 0's engines and the DMA do when, the runs above each other on one scale."""
    longest = max(run.cycles for run in runs)
    left, width, height = 90, 800, 18

    def elements() -> Iterator[str]:
        y = 10
        for run in runs:
            y += 20
            yield _text(left, y, f"{run.title}: {run.cycles:,.0f} cycles after the launch", 13, "start")
            y += 8
            for row in sorted({each.row for each in run.slices}, key=_row_order):
                yield _text(left - 8, y + 13, row, 11, "end")
                yield _box(left, y, width * run.cycles / longest, height - 3, PALE, PALE, 0)
                for each in (each for each in run.slices if each.row == row):
                    x, wide = left + width * each.first / longest, width * (each.last - each.first) / longest
                    shape = f'x="{x:.1f}" y="{y}" width="{max(wide, 0.5):.1f}" height="{height - 3}"'
                    yield f'<rect {shape} fill="{ENGINES[each.kind]}"/>'
                y += height
            y += 10
        for tick in range(0, int(longest) + 1, CYCLES_PER_TICK):
            yield _text(left + width * tick / longest, y + 6, f"{tick:,}", 11, fill=GREY)

    count = sum(len({each.row for each in run.slices}) for run in runs)
    return _svg(920, 30 + 38 * len(runs) + count * height, "Timeline of the tutorial's network", elements())


def memory(run: Run, capacities: dict[str, int]) -> str:
    """Live bytes of a core's memories and of the shared one, over the time of a run."""
    left, width, height = 90, 800, 84

    def elements() -> Iterator[str]:
        y = 16
        for name, capacity in capacities.items():
            changes = run.live[name]
            top = 1.1 * max(size for _, size in changes)
            points = [(0.0, 0), *changes, (run.cycles, changes[-1][1])]
            path = [f"M{left} {y + height}"]
            for cycle, size in points:
                path.append(f"H{left + width * min(cycle, run.cycles) / run.cycles:.1f}")
                path.append(f"V{y + height - height * size / top:.1f}")
            yield f'<path d="{"".join(path)}V{y + height}z" fill="#bee3f8" stroke="{BLUE}"/>'
            most = max(size for _, size in changes)
            yield _text(left - 8, y + 14, name, 13, "end")
            yield _text(left - 8, y + 30, f"{capacity // 1024} KiB", 11, "end", GREY)
            yield _text(left + width, y + 2, f"at most {most / 1024:.0f} KiB", 11, "end", GREY)
            y += height + 24
        for tick in range(0, int(run.cycles) + 1, CYCLES_PER_TICK // 2):
            yield _text(left + width * tick / run.cycles, y - 6, f"{tick:,}", 11, fill=GREY)

    tall = 30 + len(capacities) * (height + 24)
    return _svg(920, tall, "Live bytes of core 0 and of the shared memory", elements())


def _row_order(row: str) -> tuple[int, str]:
    names = list(ENGINES)
    return (next((names.index(name) for name in names if row.startswith(name)), len(names)), row)


# Data of the tutorial's network.


def _called(arguments: Sequence[str | Path]) -> str:
    """Run a command of dsa-sched in this process; its standard output."""
    from dsa_sched.cli import cli

    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    if done.exit_code:
        raise SystemExit(f"dsa-sched {' '.join(map(str, arguments))}: {done.output}")
    return done.stdout


def read_run(title: str, events: Iterable[dict[str, Any]], cycles_per_us: float) -> Run:
    """A run from the trace events that `dsa-sched timeline -o` writes."""
    events = list(events)
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    others = {e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"].endswith("core 1")}
    slices, live = [], dict[str, list[tuple[float, int]]]()
    for event in (event for event in events if event["pid"] not in others):
        at = event.get("ts", 0.0) * cycles_per_us
        if event["ph"] == "X" and event["cat"] in ENGINES:
            row = rows[event["pid"], event["tid"]]
            slices.append(Slice(row, event["cat"], at, at + event["dur"] * cycles_per_us))
        elif event["ph"] == "C":
            live.setdefault(event["name"].split()[0], []).append((at, event["args"]["bytes"]))
    last = max(each.last for each in slices)
    return Run(title, last, tuple(slices), {name: tuple(changes) for name, changes in live.items()})


def pictures() -> dict[str, str]:
    """File name -> SVG text of every picture."""
    from hw_models.loading import load_chip

    chip = load_chip(CHIP)
    with TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "blocks.onnx"
        model.write_bytes(runpy.run_path(str(NETWORK))["network"]())
        runs = []
        for level, schedule in (("O0", "--no-schedule"), ("O3", "--schedule")):
            out, trace = folder / level, folder / f"{level}.json"
            _called(["compile", model, "--chip", CHIP, "--level", level, schedule, "-o", out])
            _called(["timeline", out, "--chip", CHIP, "-o", trace])
            events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
            title = f"level {level}, in program order" if level == "O0" else f"level {level}, scheduled"
            runs.append(read_run(title, events, chip.clock_hz / 1e6))
        layout = _called(["compile", model, "--chip", CHIP, "--level", "O3", "--print", "layout"])
        _called(["chip", "show", CHIP, "--svg", folder / "chip.svg"])
        drawn_chip = (folder / "chip.svg").read_text(encoding="utf-8")
    return {
        "data-flow.svg": data_flow(),
        "chip.svg": drawn_chip,
        "search.svg": search(),
        "plan.svg": plan(layout),
        "timeline.svg": timeline(runs),
        "memory.svg": memory(runs[1], {name: chip.memory(name).size_bytes for name in ("LLB", "L1", "IM")}),
    }


def main() -> None:
    for name, text in pictures().items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
