"""Step `order`: do the model and this GPU agree on which of two candidates of a group is faster?

    candidates of a group, each forced into a program --cold caches--> milliseconds beside floor and launches

Pairs of the same group count whose times differ by more than `APART`. The model agrees where the one that took less has
the smaller floor with launches; equal ones are no agreement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

from benchmarks.gpu.bench import Bench, Item, Row
from benchmarks.gpu.store import Program
from benchmarks.gpu.unfolded import unfolded
from codegen.cutlass.runner.runner import GpuNetwork

__all__ = ["APART", "WANTED", "agreement", "items", "lines"]

APART = 0.15
WANTED = 0.8
FLUSHED_BYTES = 256 << 20
IN_A_ROW = 50


def items(bench: Bench) -> Iterator[Item]:
    for program in bench.here(bench.pack.candidates):
        yield Item(program.key, lambda program=program: _row(bench, program))  # type: ignore[misc]


def _row(bench: Bench, program: Program) -> Row:
    kernel = program.kernels[program.group]
    row: Row = {
        "network": program.network,
        "batch": program.batch,
        "chip": program.chip,
        "layers": program.level.partition(":")[0],
        "kernel": kernel["kernel"],
        "floor_ms": kernel["cold_floor_ms"] + kernel["launch_ms"],
        "warm_floor_ms": kernel["floor_ms"],
    }
    with unfolded(bench.pack, program) as made, bench.driver() as driver, GpuNetwork(made.folder, driver) as network:
        network.time(1, warm_up=bench.warm_up)
        own = [number for number, launch in enumerate(network.launches) if launch.layer == program.group]
        flushed, repeats = (1 << 16, 1) if bench.rehearse else (FLUSHED_BYTES, 10)
        cold = network.time_launches(repeats, flush_bytes=flushed, numbers=own)
        warm = network.time_launches(repeats, inner=1 if bench.rehearse else IN_A_ROW, numbers=own)
    row["launches"] = len(own)
    return row if bench.rehearse else {**row, "cold_ms": sum(map(median, cold)), "warm_ms": sum(map(median, warm))}


def agreement(rows: Sequence[Row]) -> tuple[int, int]:
    """Pairs on which both agree, of all that count."""
    groups: dict[tuple[str, int, str, str], list[Row]] = {}
    for row in rows:
        if "cold_ms" in row:
            groups.setdefault((row["network"], row["batch"], row["chip"], row["layers"]), []).append(row)
    agreed = counted = 0
    for candidates in groups.values():
        for one, other in combinations(candidates, 2):
            fast, slow = sorted((one, other), key=lambda row: float(row["cold_ms"]))
            if slow["cold_ms"] > (1 + APART) * fast["cold_ms"]:
                counted += 1
                agreed += fast["floor_ms"] < slow["floor_ms"]
    return agreed, counted


def lines(rows: Sequence[Row]) -> list[str]:
    """By network, and all in all."""
    found = ["| network | candidates | pairs | agreed |", "| --- | --- | --- | --- |"]
    names = dict.fromkeys(str(row["network"]) for row in rows if "network" in row)
    for name in names:
        own = [row for row in rows if row.get("network") == name]
        agreed, counted = agreement(own)
        found.append(f"| {name} | {len(own)} | {counted} | {_share(agreed, counted)} |")
    agreed, counted = agreement(rows)
    met = "" if not counted else ", and reached" if agreed >= WANTED * counted else ", and not reached"
    apart = f"of {counted} pairs that differ by more than {APART:.0%}"
    found += ["", f"{_share(agreed, counted)} {apart}: {WANTED:.0%} is wanted{met}"]
    return [*found, *(f"{row['key']}: {row['error']}" for row in rows if "error" in row)]


def _share(agreed: int, counted: int) -> str:
    return f"{agreed / counted:.0%}" if counted else "not measured"
