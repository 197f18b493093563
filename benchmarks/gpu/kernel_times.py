"""Step `kernels`: what each group's launches take, warm and cold, beside the group's floor.

Warm: fifty in a row, so that starting them hides behind their work and the L2 holds what it can. Cold: once, after
other memory was written that fills the L2. Milliseconds by events; medians over repeats, added over a group's launches.

A floor is the larger of what memories and units need. That with cold caches is held against the cold time: a time below
0.9 of it says that the floor, or the chip file, is wrong, and fails. A kernel is named as slow whose warm time, in
which launches are, is more than 2.5 times that of its floor where it runs and its launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.gpu.bench import Bench, Item, Row
from benchmarks.gpu.store import Program
from benchmarks.gpu.unfolded import unfolded
from codegen.cutlass.emission.launch_list import whole_name
from codegen.cutlass.runner.runner import GpuNetwork

__all__ = ["items", "lines", "wrong"]

IN_A_ROW = 50
FLUSHED_BYTES = 256 << 20
SLOW = 2.5
"""Times its floor that a kernel may take before it is named."""
LEAST = 0.9
"""Of its floor with cold caches that a kernel takes at least, if the floor is right."""
MOST_NAMED = 40


def items(bench: Bench) -> Iterator[Item]:
    for program in bench.programs():
        yield Item(program.key, lambda program=program: _row(bench, program))  # type: ignore[misc]


def _row(bench: Bench, program: Program) -> Row:
    repeats, in_a_row = (1, 1) if bench.rehearse else (20, IN_A_ROW)
    with unfolded(bench.pack, program) as made, bench.driver() as driver, GpuNetwork(made.folder, driver) as network:
        network.time(1, warm_up=bench.warm_up)  # values that a run leaves, and clocks that are up
        warm = network.time_launches(repeats, inner=in_a_row)
        cold = network.time_launches(repeats, flush_bytes=1 << 16 if bench.rehearse else FLUSHED_BYTES)
        groups = [whole_name(launch.layer) for launch in network.launches]
    found: dict[str, Row] = {}
    for group, hot, cool in zip(groups, warm, cold, strict=True):
        if group not in program.kernels:
            continue  # of integers: no kernel of the plan
        row = found.setdefault(group, {"warm_ms": 0.0, "cold_ms": 0.0, "spread_ms": 0.0, "launches": 0})
        row["warm_ms"] += median(hot)
        row["cold_ms"] += median(cool)
        row["spread_ms"] += max(hot) - min(hot)
        row["launches"] += 1
    for group, kernel in program.kernels.items():
        # a kernel of no launch is no kernel of this list: the pack would be wrong
        row = found[group]
        row |= {name: kernel[name] for name in ("kernel", "floor_ms", "cold_floor_ms", "launch_ms", "binds")}
        row["over_floor"] = row["warm_ms"] / (kernel["floor_ms"] + kernel["launch_ms"])
        row["over_cold_floor"] = row["cold_ms"] / kernel["cold_floor_ms"] if kernel["cold_floor_ms"] else None
    if bench.rehearse:
        for row in found.values():
            for name in ("warm_ms", "cold_ms", "spread_ms", "over_floor", "over_cold_floor"):
                del row[name]  # no times of a GPU
    return {"groups": found}


def _impossible(group: Row) -> bool:
    return group.get("over_cold_floor") is not None and group["over_cold_floor"] < LEAST


def _slow(group: Row) -> bool:
    return bool(group.get("over_floor", 0.0) > SLOW)


def wrong(row: Row) -> str:
    """Kernels that take less than they can, in words."""
    if "error" in row:
        return str(row["error"])
    names = [name for name, group in row["groups"].items() if _impossible(group)]
    if not names:
        return ""
    share = min(row["groups"][name]["over_cold_floor"] for name in names)
    return f"{len(names)} groups take less than {LEAST} of their floor, {names[0]} among them, down to {share:.2f}"


def lines(rows: Sequence[Row]) -> list[str]:
    """Networks in all, then the groups far from their floors, the farthest first, and those below."""
    found = ["| program | groups | warm ms | cold ms | floor ms | above 2.5 floors | below 0.9 |",
             "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    named: list[tuple[float, str]] = []
    for row in rows:
        if "error" in row:
            found.append(f"| {row['key']} | {row['error']} | | | | | |")
            continue
        groups = list(row["groups"].values())
        floor = sum(group["floor_ms"] for group in groups)
        if not groups or "warm_ms" not in groups[0]:
            found.append(f"| {row['key']} | {len(groups)} | not measured | not measured | {floor:.4f} | | |")
            continue
        found.append(
            f"| {row['key']} | {len(groups)} | {sum(group['warm_ms'] for group in groups):.4f} | "
            f"{sum(group['cold_ms'] for group in groups):.4f} | {floor:.4f} | "
            f"{sum(map(_slow, groups))} | {sum(map(_impossible, groups))} |"
        )
        named += [(group["over_floor"], _named(row["key"], name, group)) for name, group in row["groups"].items()
                  if _slow(group) or _impossible(group)]  # fmt: skip
    told = [line for _, line in sorted(named, reverse=True)]
    more = [f"and {len(told) - MOST_NAMED} more"] if len(told) > MOST_NAMED else []
    return [*found, "", *told[:MOST_NAMED], *more]


def _named(key: str, name: str, group: Row) -> str:
    return (
        f"{key}, {name}: {group['over_floor']:.2f} times its floor with launches warm, cold "
        f"{group['over_cold_floor'] or 0.0:.2f} times that with cold caches; {group['binds']} binds, {group['kernel']}"
    )
