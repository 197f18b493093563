"""Every level beside `auto`, by the clock: `python benchmarks/levels.py [--network NAME]... [--batch N]...`.

    --results FILE    rows are kept in it and added to it; a run that was stopped goes on where it was
    --markdown FILE   the tables
    --level NAME      compiled by itself; where none is named, one search of level auto gives the rows of all levels:
                      it times them anyway
    --renew           takes rows of older sources again, what took least to compile first
    --check           compiles a seeded twentieth of the rows again, each level by itself: exits with 1 where one takes
                      more cycles than it did or fewer than a bound of the same sources allows, or where `auto` is
                      slower than a level or a batch takes longer than a larger one. Of those that take fewer, the file
                      gets the new row with --renew, else it is said

Each row is one network, batch a cluster and level, scheduled, on one cluster of the stcp920: cycles of the cycle model
for the whole batch, launches included. Without `--schedule` no program is faster (tests/dsa_sched/test_levels.py).

Keys of the JSON object: `rows`, each of them

    sources               the hash of the compiler's sources that it was made with: rows of older ones stay
    network, batch, level
    refusal               why there is no program, else empty; then the rest is null
    least_cycles          where `cycles` are null: no program of the level takes fewer, and auto takes no more
    chosen, per_pass, passes     the level of the program, items of a pass, how often it runs
    cycles                of all passes
    bound_cycles          below which no order of the program's instructions is, times passes; of `auto` alone
    network_cycles        below which no plan is: the largest of matrix products in whole tiles of the array, results of
                          the vector engines each once, inputs, weights and outputs once over the main memory's links;
                          launch included
    seconds               of the processor, to compile; for all rows of one search its own
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

from benchmarks.output import at_least_one, output_file, table
from codegen.neuralscale.target import TARGET
from dsa_sched.devices.chip_device import COMPILER
from dsa_sched.frontend import load_model
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.io.source_hash import source_hash
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.search.floors import memory_floor_cycles
from dsa_sched.stages.compilation import Compilation, CompileOptions, LevelTime, Lowered
from dsa_sched.stages.targets import judge_of
from dsa_sched.stages.tile_stages import lower_below, plan_tiles
from hw_models.errors import UserError
from hw_models.loading import load_chip
from isched.bounds.lower_bounds import program_bounds
from partitioner.cost.roofline import network_floors
from partitioner.planners.levels import AUTO, LEVEL_CHOICES, LEVELS, Auto, planner_of, planner_or_auto

Row = dict[str, Any]
Key = tuple[str, int, str]

CHIP = load_chip("stcp920")
NETWORKS = ("squeezenet", "unet", "shufflenet", "inception_v1", "resnet50", "densenet121", "mobilenet_v2")
BATCHES = (1, 2, 4, 8, 12, 16, 24, 32)
RESULTS = Path(__file__).parent / "results" / "levels.json"
CHECKED_SHARE = 20
SEED = 16
FIGURES = ("chosen", "per_pass", "passes", "cycles", "least_cycles", "bound_cycles", "network_cycles", "seconds")


def measure(network: str, batch: int, level: str) -> Row:
    """Compile once and ask the clock."""
    began = time.process_time()
    row = _empty(network, batch, level)
    try:
        (made,) = compile_clusters(network, CHIP, CompileOptions(planner_or_auto(level), batch, schedule=True))
    except UserError as error:
        return row | {"refusal": " ".join(str(error).split())}
    return row | _figures(network, batch, level, made, time.process_time() - began)


def measure_all(network: str, batch: int) -> list[Row]:
    """A row for each level and for auto of one search; what it leaves open is compiled as far as that is needed."""
    began = time.process_time()
    try:
        (made,) = compile_clusters(network, CHIP, CompileOptions(Auto(), batch, schedule=True))
    except UserError:
        return [measure(network, batch, level) for level in LEVEL_CHOICES]
    seconds = round(time.process_time() - began, 1)
    auto = _empty(network, batch, AUTO) | _figures(network, batch, AUTO, made, seconds)
    rows = []
    times = {learned.level: learned for learned in made.level_times}
    for level in LEVELS:
        learned = times.get(level) or least_of(network, batch, level, auto["cycles"])
        if learned is None:
            rows.append(measure(network, batch, level))
            continue
        row = _empty(network, batch, level) | {"chosen": level, "per_pass": batch, "passes": 1}
        row |= {"cycles" if learned.timed else "least_cycles": learned.cycles, "seconds": seconds}
        rows.append(row | {"network_cycles": auto["network_cycles"]})
    return [*rows, auto]


def least_of(network: str, batch: int, level: str, enough_cycles: float) -> LevelTime | None:
    """What no program of a level is below, if that is not less than `enough_cycles`; None where the level must be
    compiled to know its cycles, or has no plan."""
    options = CompileOptions(planner_or_auto(level), batch, schedule=True)
    try:
        planned = plan_tiles(load_model(network, {}, batch, judge_of(CHIP, TARGET)), CHIP, TARGET, planner_of(level))
        floor = memory_floor_cycles(planned.plan, planned.context, options, enough_cycles)
        if floor < enough_cycles and lower_below(planned, options, lambda _step: None, enough_cycles) is not None:
            return None
    except UserError:
        return None
    return LevelTime(level, max(floor, enough_cycles), timed=False)


def _figures(network: str, batch: int, level: str, made: Compilation, seconds: float) -> Row:
    assert isinstance(made.made, Lowered)
    assert made.made.cycles is not None
    return {
        "chosen": made.plan.level,
        "per_pass": made.plan.batch_per_cluster,
        "passes": made.passes,
        "cycles": made.passes * made.made.cycles,
        "bound_cycles": made.passes * program_bounds(made.program, CHIP, TARGET).cycles if level == AUTO else None,
        "network_cycles": _network_cycles(network, batch, made),
        "seconds": round(seconds, 1),
    }


def _empty(network: str, batch: int, level: str) -> Row:
    row: Row = {"sources": source_hash(COMPILER), "network": Path(network).stem, "batch": batch, "level": level}
    return row | {"refusal": ""} | dict.fromkeys(FIGURES)


def _network_cycles(network: str, batch: int, made: Compilation) -> float:
    model = made.model
    if made.plan.batch_per_cluster != batch:
        model = load_model(network, {}, batch, judge_of(CHIP, TARGET))
    floors = network_floors(model.graph, CHIP)
    return CHIP.assumed.launch_cycles + max(floor.cycles for floor in floors)


def key_of(row: Row) -> Key:
    return row["network"], row["batch"], row["level"]


def complaints(rows: Sequence[Row]) -> Iterator[str]:
    """Where `auto` is slower than a level, and where a batch takes longer than a larger one."""
    cycles = {key_of(row): row["cycles"] for row in rows if row["cycles"] is not None}
    for (network, batch, level), spent in cycles.items():
        auto = cycles.get((network, batch, AUTO))
        if auto is not None and auto > spent:
            yield f"{network}, {batch}: auto takes {auto:,.0f} cycles, {level} {spent:,.0f}"
        larger = [n for (other, n, name) in cycles if (other, name) == (network, AUTO) and n > batch]
        if level == AUTO and any(spent > cycles[network, n, AUTO] for n in larger):
            yield f"{network}: auto takes longer for {batch} than for a larger batch"


def check(rows: list[Row], networks: Sequence[str], renew: bool) -> list[str]:
    """A twentieth of the rows again, and what holds for all of them; what got faster takes its row's place with
    `renew`. `networks` are names or files by which to find the rows' networks."""
    named = {Path(network).stem: network for network in networks}
    chosen = random.Random(SEED).sample(range(len(rows)), max(1, len(rows) // CHECKED_SHARE))
    wrong = []
    for number in chosen:
        row = rows[number]
        again = measure(named[row["network"]], row["batch"], row["level"])
        print("again:", *key_of(row), again["cycles"], flush=True)
        least = row.get("least_cycles")
        if least is not None and again["sources"] == row["sources"] and spent(again) < least:
            wrong.append(f"{', '.join(map(str, key_of(row)))}: at least {least} cycles, but {again['cycles']}")
        elif least is None and spent(again) > spent(row):
            wrong.append(f"{', '.join(map(str, key_of(row)))}: {row['cycles']} cycles, now {again['cycles']}")
        elif spent(again) < (spent(row) if least is None else least):
            print(f"{', '.join(map(str, key_of(row)))}: {least or row['cycles']} cycles, now only {again['cycles']}")
            if renew:
                rows[number] = again
    return [*wrong, *complaints(rows)]


def spent(row: Row) -> float:
    """Cycles, without end for a row that was refused."""
    return inf if row["cycles"] is None else float(row["cycles"])


def to_measure(
    rows: Sequence[Row], networks: Sequence[str], batches: Sequence[int], levels: Sequence[str], sources: str | None
) -> list[tuple[str, int, str]]:
    """What there is no row for, in the order of the table; where `sources` are given, before them rows of others, what
    took least first."""
    known = {key_of(row): row for row in rows}
    wanted = [(network, batch, level) for network in networks for batch in batches for level in levels]
    row_of = {key: known.get((Path(key[0]).stem, *key[1:])) for key in wanted}
    older = [key for key, row in row_of.items() if row is not None and sources not in (None, row["sources"])]
    missing = [key for key, row in row_of.items() if row is None]
    return [*sorted(older, key=lambda key: (row_of[key] or {}).get("seconds") or 0.0), *missing]


def markdown(figures: Row, sources: str) -> str:
    rows = {key_of(row): row for row in figures["rows"]}
    older = sum(row["sources"] != sources for row in figures["rows"])
    parts = [
        "# Levels by the clock",
        "",
        "`python benchmarks/levels.py`: thousand cycles an item, one cluster of the stcp920, all scheduled, launches "
        "included. `auto` in bold where it is faster than every level; behind it what it chose. The last two columns "
        "set auto beside the bound of its program's instructions in any order, and beside the network's own, which no "
        "plan beats. After `≥` stands what every program of the level takes at least, not less than auto: none was "
        "followed to its end.",
        f"{len(rows)} rows, {older} of them of older sources of the compiler than `{sources[:16]}`.",
    ]
    for network in dict.fromkeys(name for name, _, _ in rows):
        parts += ["", f"## {network}", "", _table(network, rows)]
    found = list(complaints(figures["rows"]))
    parts += ["", "## Where auto is not the best", "", *([f"* {text}" for text in found] or ["Nowhere."]), ""]
    return "\n".join(parts)


def _table(network: str, rows: dict[Key, Row]) -> str:
    lines = []
    for batch in sorted({batch for name, batch, _ in rows if name == network}):
        each = {level: rows.get((network, batch, level)) for level in LEVEL_CHOICES}
        cells = [_cell(each[level]) for level in LEVELS]
        auto = each[AUTO]
        if auto is None or auto["cycles"] is None:
            lines.append((str(batch), *cells, _cell(auto), "", "", ""))
            continue
        others = [row["cycles"] for level, row in each.items() if level != AUTO and row and row["cycles"] is not None]
        best = all(auto["cycles"] < other for other in others)
        chosen = (
            auto["chosen"] if auto["per_pass"] == batch else f"{auto['chosen']}, {auto['passes']} x {auto['per_pass']}"
        )
        ratios = (f"{auto['cycles'] / auto[name]:.2f}" for name in ("bound_cycles", "network_cycles"))
        lines.append((str(batch), *cells, f"**{_cell(auto)}**" if best else _cell(auto), chosen, *ratios))
    return table(("batch", *LEVELS, AUTO, "chosen", "over its bound", "over the network's"), lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row.get("least_cycles") is not None:
        return f"≥ {row['least_cycles'] / row['batch'] / 1000:,.1f}"
    return "refused" if row["cycles"] is None else f"{row['cycles'] / row['batch'] / 1000:,.1f}"


def read(path: Path) -> Row:
    """The rows of earlier runs, with the sources that each was made with."""
    if not path.is_file():
        return {"rows": []}
    found: Row = json.loads(path.read_text(encoding="utf-8"))
    return {"rows": [{"sources": found.get("sources", ""), **row} for row in found["rows"]]}


def write(path: Path, text: str) -> None:
    write_whole(path, lambda stream: stream.write(text.encode()))


def main(words: Sequence[str] | None = None) -> int:
    """Runs the benchmark; 1 where a row complains, 2 where there is nothing to check."""
    parser = argparse.ArgumentParser(description="Every level beside auto, by the clock.")
    parser.add_argument("--network", action="append", metavar="NAME", help="of the zoo, or an ONNX file")
    parser.add_argument("--batch", action="append", type=at_least_one, metavar="N")
    parser.add_argument("--results", type=output_file, default=RESULTS, metavar="FILE")
    parser.add_argument("--markdown", type=output_file, metavar="FILE")
    parser.add_argument("--level", action="append", choices=LEVEL_CHOICES)
    parser.add_argument("--renew", action="store_true", help="take rows of older sources again")
    parser.add_argument("--check", action="store_true", help="take a twentieth of the rows again")
    options = parser.parse_args(words)
    networks = options.network or NETWORKS
    figures, sources = read(options.results), source_hash(COMPILER)
    if options.check:
        if not figures["rows"]:
            print(f"{options.results}: no rows; run without --check first", file=sys.stderr)
            return 2
        wrong = check(figures["rows"], (*NETWORKS, *networks), options.renew)
        if options.renew:
            write(options.results, json.dumps(figures, indent=1) + "\n")
        print("\n".join(wrong) or "no row takes longer than it did, and auto is slower than nothing")
        return int(bool(wrong))
    places = {key_of(row): number for number, row in enumerate(figures["rows"])}
    asked = networks, options.batch or BATCHES, options.level or LEVEL_CHOICES
    done: set[tuple[str, int]] = set()
    for network, batch, level in to_measure(figures["rows"], *asked, sources if options.renew else None):
        if (network, batch) in done:
            continue
        found = [measure(network, batch, level)] if options.level else measure_all(network, batch)
        if not options.level:
            done.add((network, batch))
        for row in found:
            number = places.setdefault(key_of(row), len(figures["rows"]))
            figures["rows"][number : number + 1] = [row]
            print(
                *key_of(row), row["cycles"] if row["least_cycles"] is None else f">={row['least_cycles']}", flush=True
            )
        write(options.results, json.dumps(figures, indent=1) + "\n")
    if options.markdown:
        write(options.markdown, markdown(figures, sources))
    return 0


if __name__ == "__main__":
    sys.exit(main())
