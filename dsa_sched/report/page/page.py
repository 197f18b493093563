"""The page about an artifact: graph, timeline, memories, roofline, what binds, accuracy, another artifact, decisions.

PageContent --figures, details, tables--> JSON in the page <-- page.js draws it, by Plotly
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

from dsa_sched.analysis.difference import Difference
from dsa_sched.analysis.explanation_data import Explanation, GroupFacts
from dsa_sched.analysis.kernel_explanation import KernelExplanation
from dsa_sched.analysis.layer_instances import MOST_INSTANCES
from dsa_sched.analysis.overview import DrawnLayer, Overview
from dsa_sched.report.page.accuracy_tab import accuracy_facts, accuracy_html, layer_errors
from dsa_sched.report.page.charts import Figure, figures
from dsa_sched.report.page.difference_tab import difference_html, part_changes
from dsa_sched.report.page.shell import Head, whole_page, write_text
from dsa_sched.report.timed_run import cause_text, time_text
from dsa_sched.verification.kept_report import Accuracy, LayerAccuracy
from hw_models.chip import Chip
from hw_models.errors import size_text
from partitioner.ir.regions import box_text

TABS = {
    "summary": "Summary",
    "graph": "Graph",
    "timeline": "Timeline",
    "memory": "Memory",
    "roofline": "Roofline",
    "binds": "What binds",
    "bytes": "Bytes",
    "accuracy": "Accuracy",
    "difference": "Difference",
    "decisions": "Decisions",
}
"""Tabs by name; those without content are left out."""

ROOFLINE_NOTE = (
    "<p>The time of a group is what it adds to the critical path. What is loaded for it while others compute adds "
    "nothing, so a group may lie above the roof; the network as a whole cannot.</p>"
)
"""What stands below the roofline."""


@dataclass(frozen=True, slots=True)
class PageContent:
    """All that a page shows: an artifact, what verifying it found, and its difference from another one, where these are
    given."""

    found: Overview
    accuracy: Accuracy | None = None
    difference: Difference | None = None


def write_page(content: PageContent, path: Path) -> int:
    """Write the page, whole or not at all; its size in bytes. Raises UserError."""
    return write_text(page(content), path)


def drawn_figures(content: PageContent) -> dict[str, Figure]:
    """The charts of the page by their tabs, in the order of the tabs."""
    drawn = figures(content.found)
    if content.accuracy is not None:
        drawn["accuracy"] = layer_errors(content.accuracy)
    if content.difference is not None:
        drawn["difference"] = part_changes(content.difference)
    return drawn


def page(content: PageContent) -> str:
    """The page as text. Equal artifacts give equal pages."""
    found, drawn = content.found, drawn_figures(content)
    errors = {} if content.accuracy is None else {layer.name: layer for layer in content.accuracy.layers}
    data = {
        "figures": drawn,
        "layers": [_layer(found.explanation, layer, errors.get(layer.name)) for layer in found.layers],
        "decisions": [asdict(each) for each in found.explanation.decisions],
    }
    shown = {name: title for name, title in TABS.items() if name in ("summary", "decisions") or name in drawn}
    around = {
        "roofline": ("", ROOFLINE_NOTE),
        "accuracy": ("", "") if content.accuracy is None else accuracy_html(content.accuracy),
        "difference": ("", "") if content.difference is None else difference_html(content.difference),
    }
    sections = "".join(_section(name, *around.get(name, ("", ""))) for name in drawn)
    sections = (
        f'<section id="summary">{_summary(content)}</section>{sections}'
        '<section id="decisions"><table><thead><tr><th>about</th><th>decision</th><th>reason</th></tr></thead>'
        "<tbody></tbody></table></section>"
    )
    head = Head(_title(found), "layer, operator or group", shown)
    return whole_page(head, sections, data, "page.js")


def _section(name: str, above: str, below: str) -> str:
    return f'<section id="{name}">{above}<div class="chart"></div>{below}</section>'


def _title(found: Overview) -> str:
    said = found.explanation
    return f"{said.model} on {said.chip}, {said.level}, batch {said.batch_per_cluster} per cluster"


def _summary(content: PageContent) -> str:
    found, accuracy = content.found, content.accuracy
    rows = _kernel_rows(found.explanation) if isinstance(found.explanation, KernelExplanation) else _tile_rows(found)
    if accuracy is not None:
        rows = chain(rows, [("verified", f"{accuracy.verdict}: {accuracy.reason}")])
    return (
        "<table>"
        + "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
        + "</table>"
    )


def _tile_rows(found: Overview) -> Iterator[tuple[str, str]]:
    said = found.explanation
    assert isinstance(said, Explanation)  # as the caller asks
    run, chip = said.measured, found.artifact.chip
    if run is not None:
        yield "time", f"{time_text(run.seconds)}, {run.items_per_second:,.1f} items/s by the cycle model"
        yield "one pass", f"{run.cycles:,.0f} cycles, {run.launch_cycles:,.0f} of them the launch"
        shares = (f"{cause_text(name)} {n / max(1.0, run.work_cycles):.1%}" for name, n in run.causes.items())
        yield "binds", ", ".join(shares)
    floor = max(said.network_floors, key=lambda each: each.cycles)
    yield "floor of the network", f"{floor.cycles:,.0f} cycles for {floor.name}: {floor.reason}"
    yield "plan", f"{said.operators} operators in {len(said.groups)} groups, {said.instances} instances"
    times = said.main_bytes / said.compulsory_bytes if said.compulsory_bytes else 0.0
    yield "main memory", f"{size_text(said.main_bytes)}, {times:.2f} times what is needed once"
    for memory, peak in said.peak_bytes.items():
        yield memory, f"values that stay take {size_text(peak)} of {size_text(said.capacity_bytes[memory])} at most"
    yield "computed again", f"{said.recompute_share:.2%} of all multiply-accumulates"
    yield "chip", f"{chip.name}, {_cores(chip)} at {chip.clock_hz / 1e6:,.0f} MHz: {chip.description}"
    yield from _options(found)


def _cores(chip: Chip) -> str:
    clusters = "1 cluster" if chip.clusters == 1 else f"{chip.clusters} clusters"
    return f"{clusters} of {chip.cores_per_cluster} {'core' if chip.cores_per_cluster == 1 else 'cores'}"


def _kernel_rows(said: KernelExplanation) -> Iterator[tuple[str, str]]:
    how = "expected, by rates that were measured" if said.measured else "at least, by floors"
    yield "time", f"{time_text(said.seconds)} {how}; not timed"
    yield "plan", f"{said.operators} operators in {len(said.groups)} kernels, {said.launches} launches"


def _options(found: Overview) -> Iterator[tuple[str, str]]:
    options = found.artifact.origin.options.model_dump(mode="json")
    yield (
        "options",
        ", ".join(f"{name} {value}" for name, value in options.items() if value not in (None, False, [], {})),
    )


def _layer(said: Explanation | KernelExplanation, layer: DrawnLayer, accuracy: LayerAccuracy | None) -> dict[str, Any]:
    """What the page tells of a layer."""
    facts = {
        "operators": " + ".join(layer.operators),
        "output": f"{'x'.join(map(str, layer.shape))} {layer.dtype}",
        "multiply-accumulates": f"{layer.macs:,}",
        "constants": size_text(layer.constant_bytes),
        "reads": ", ".join(layer.reads) or "inputs",
    }
    if layer.seconds is not None:
        where = " on the critical path" if isinstance(said, Explanation) else ""
        facts["time"] = f"{layer.seconds * 1e6:,.2f} us{where}"
    if layer.bound_by:
        facts["bound by"] = cause_text(layer.bound_by)
    if accuracy is not None:
        facts |= accuracy_facts(accuracy)
    return {
        "name": layer.name,
        "group": layer.group,
        "facts": facts,
        "group facts": _group(said, layer.group),
        "instances": _instances(said, layer),
        "code": list(layer.code),
    }


def _instances(said: Explanation | KernelExplanation, layer: DrawnLayer) -> dict[str, Any]:
    """The instances of a layer as a table, and what each core computes in the first of them."""
    group = next((each for each in said.groups if each.name == layer.group), None)
    if not layer.instances or not isinstance(group, GroupFacts):
        return {}
    first = layer.instances[0]
    shown = len(layer.instances)
    title = f"{group.instances} instances" if group.instances > 1 else "1 instance"
    return {
        "title": title + (f", the first {shown}" if group.instances > shown == MOST_INSTANCES else ""),
        "headings": ["instance", "runs as", "part of the output", "lies in", "cores"],
        "rows": [
            [str(each.number), f"{each.place + 1}.", box_text(each.box), each.lies_in, str(len(each.boxes))]
            for each in layer.instances
        ],
        "cores": f"instance {first.number} by cores",
        "boxes": [f"core {core}: {box_text(box)}" for core, box in first.boxes],
    }


def _group(said: Explanation | KernelExplanation, name: str) -> dict[str, str]:
    if isinstance(said, KernelExplanation):
        kernel = next((each for each in said.groups if each.name == name), None)
        if kernel is None:
            return {}
        return {
            "layers": ", ".join(kernel.layers),
            "kernel": kernel.kernel,
            "grid": "x".join(map(str, kernel.grid)),
            "occupies": ", ".join(f"{size:,} {what}" for what, size in kernel.resources),
            "time": f"{kernel.seconds * 1e6:,.2f} us {'expected' if kernel.measured else 'at least'}",
            "floors": ", ".join(f"{floor.name} {floor.seconds * 1e6:,.2f} us" for floor in kernel.floors),
        }
    group = next((each for each in said.groups if each.name == name), None)
    if group is None:
        return {}
    facts = {
        "layers": ", ".join(group.layers),
        "instances": str(group.instances),
        "divided among cores": " or ".join("x".join(map(str, pieces)) for pieces in group.pieces),
        "outputs in": ", ".join(group.scopes),
        "moved": ", ".join(f"{way} {size_text(size)}" for way, size in group.moved_bytes.items() if size),
        "fullest core": f"{size_text(group.local.total_bytes)} in layer {group.local.layer}",
        "computed again": f"{group.recompute_share:.1%}",
        "floors": ", ".join(f"{floor.name} {floor.cycles:,.0f} cycles" for floor in group.floors),
    }
    if said.measured is not None:
        part = said.measured.group(name)
        facts["time"] = f"{part.cycles:,.0f} cycles on the critical path"
        facts["binds"] = ", ".join(f"{cause_text(cause)} {cycles:,.0f}" for cause, cycles in part.causes.items())
    return facts
