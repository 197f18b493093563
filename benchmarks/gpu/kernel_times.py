"""Step `kernels`: what each group's launches take, warm and cold, beside the group's floor.

Warm: ten in a row, so that starting them hides behind their work and the L2 holds what it can. Cold: once, after other
memory was written that fills the L2. Milliseconds by events; medians over repeats, added over a group's launches. A
floor is the larger of what memories and units need; a time below it says that the floor, or the chip file, is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.gpu.bench import Bench, Item, Row
from benchmarks.gpu.store import Program
from benchmarks.gpu.unfolded import unfolded
from codegen.cutlass.runner.runner import Network

__all__ = ["items", "lines"]

IN_A_ROW = 10
FLUSHED_BYTES = 256 << 20
SLOW = 2.5
"""Times its floor that a kernel may take before it is named."""


def items(bench: Bench) -> Iterator[Item]:
    for program in bench.programs():
        yield Item(program.key, lambda program=program: _row(bench, program))  # type: ignore[misc]


def _row(bench: Bench, program: Program) -> Row:
    repeats, in_a_row = (1, 1) if bench.rehearse else (20, IN_A_ROW)
    with unfolded(bench.pack, program) as made, bench.driver() as driver, Network(made.folder, driver) as network:
        network.time(1, warm_up=bench.warm_up)  # values that a run leaves, and clocks that are up
        warm = network.time_launches(repeats, inner=in_a_row)
        cold = network.time_launches(repeats, flush_bytes=1 << 16 if bench.rehearse else FLUSHED_BYTES)
        groups = [launch.layer for launch in network.launches]
    found: dict[str, Row] = {}
    for group, hot, cool in zip(groups, warm, cold, strict=True):
        row = found.setdefault(group, {"warm_ms": 0.0, "cold_ms": 0.0, "spread_ms": 0.0, "launches": 0})
        row["warm_ms"] += median(hot)
        row["cold_ms"] += median(cool)
        row["spread_ms"] += max(hot) - min(hot)
        row["launches"] += 1
    for group, kernel in program.kernels.items():
        # a kernel of no launch is no kernel of this list: the pack would be wrong
        row = found[group]
        row |= {"kernel": kernel["kernel"], "floor_ms": kernel["floor_ms"], "binds": kernel["binds"]}
        row["over_floor"] = row["warm_ms"] / kernel["floor_ms"] if kernel["floor_ms"] else None
    if bench.rehearse:
        for row in found.values():
            del row["warm_ms"], row["cold_ms"], row["spread_ms"], row["over_floor"]  # no times of a GPU
    return {"groups": found}


def lines(rows: Sequence[Row]) -> list[str]:
    """Networks in all, and the groups farthest from their floors."""
    found = ["| program | groups | warm ms | cold ms | floor ms | above 2.5 floors | below 0.9 |",
             "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in rows:
        if "error" in row:
            found.append(f"| {row['key']} | {row['error']} | | | | | |")
            continue
        groups = list(row["groups"].values())
        floor = sum(group["floor_ms"] for group in groups)
        if not groups or "warm_ms" not in groups[0]:
            found.append(f"| {row['key']} | {len(groups)} | not measured | not measured | {floor:.4f} | | |")
            continue
        over = [group["over_floor"] for group in groups if group["over_floor"] is not None]
        found.append(
            f"| {row['key']} | {len(groups)} | {sum(group['warm_ms'] for group in groups):.4f} | "
            f"{sum(group['cold_ms'] for group in groups):.4f} | {floor:.4f} | "
            f"{sum(each > SLOW for each in over)} | {sum(each < 0.9 for each in over)} |"
        )
    return found
