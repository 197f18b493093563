"""Step `fit`: what the chip file's floors of whole networks become with the rates that step `rates` has measured.

    floors of each kernel by memory and unit, x file's rate / measured rate --largest, launches--> network --> error

The error is what the network took over that, less one. Memories and units that nobody measured keep the file's rate.
Under the table stand rates of kinds of kernels (`kernel_rates.py`), as the chip file takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.bench import Bench, Item, Row
from benchmarks.gpu.kernel_rates import beyond_us, lines_of, row_of, samples_of
from benchmarks.gpu.store import Program, expected_ms

__all__ = ["Rates", "fitted_ms", "items", "lines", "measured_rates"]

KINDS = "kinds of kernels"
Rates = Mapping[str, float]
"""By experiment: how many times as long the same takes as the chip file says."""


def items(bench: Bench) -> Iterator[Item]:
    for program in bench.programs():
        yield Item(program.key, lambda program=program: _row(bench, program))  # type: ignore[misc]
    yield Item(KINDS, lambda: _samples(bench))


def _samples(bench: Bench) -> Row:
    """Of the kernels that steps kernels and order have timed, with the launch that step rates has."""
    rates = [row for row in bench.rows("rates") if "per_second" in row and row["what"] == "launch"]
    launches = [1e6 / row["per_second"] for row in rates]
    kernels, pack = bench.rows("kernels"), bench.pack
    programs = bench.here((*pack.programs, *pack.candidates))
    roles: dict[str, str] = next((pack.manifest["rates"][program.chip]["roles"] for program in programs), {})
    samples = samples_of(programs, kernels, bench.rows("order"), roles)
    return row_of(samples, launches[0] if launches else 0.0, beyond_us(kernels, bench.rows("networks")))


def _row(bench: Bench, program: Program) -> Row:
    rates = measured_rates(bench.rows("rates"), program.chip)
    places = dict(bench.pack.manifest["rates"][program.chip]["places"])
    row: Row = {
        "network": program.network,
        "batch": program.batch,
        "chip": program.chip,
        "level": program.level,
        "floor_ms": fitted_ms(program.kernels, places, {}),
        **dict(zip(("expected_ms", "error_ms"), expected_ms(program.kernels), strict=True)),
        "rates": dict(rates),
    }
    if not rates:
        return {**row, "skipped": "step rates has measured nothing"}
    row["fitted_floor_ms"] = fitted_ms(program.kernels, places, rates)
    times = [each["median_ms"] for each in bench.rows("networks") if each["key"] == program.key and "median_ms" in each]
    return {**row, "network_ms": times[0], "error_share": times[0] / row["fitted_floor_ms"] - 1} if times else row


def measured_rates(rows: Sequence[Row], chip: str) -> Rates:
    """Of the rows of step `rates`; launches are microseconds, all others are a second."""
    found = {}
    for row in rows:
        if row.get("chip") != chip or "per_second" not in row:
            continue
        if row["what"] == "launch":
            found["launch"] = 1e6 / row["per_second"] / row["file"]
        else:
            found[row["what"]] = row["file"] * row["clock_hz"] / row["per_second"]
    return found


def fitted_ms(kernels: Mapping[str, Any], places: Mapping[str, str], rates: Rates) -> float:
    """All kernels one after the other, with their launches. `places` has the memory or unit of each experiment."""
    return sum(_kernel_ms(kernel, places, rates) for kernel in kernels.values())


def _kernel_ms(kernel: Mapping[str, Any], places: Mapping[str, str], rates: Rates) -> float:
    other = "wgmma" if "wgmma" not in kernel["kernel"] else "mma"
    scales = {place: rates[what] for what, place in places.items() if what in rates and what != other}
    floors = [ms * scales.get(name, 1.0) for name, ms in kernel["floors_ms"].items()]
    return float(kernel["launch_ms"]) * rates.get("launch", 1.0) + max(floors, default=0.0)


def lines(rows: Sequence[Row]) -> list[str]:
    found = [
        "| program | floor by the chip file ms | by measured rates | expected | took | over floor | over expected |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if row["key"] == KINDS:
            continue
        if "floor_ms" not in row:
            found.append(f"| {row['key']} | {row.get('error', '')} | | | | | |")
            continue
        fitted = f"{row['fitted_floor_ms']:.4f}" if "fitted_floor_ms" in row else "not measured"
        expected = f"{row['expected_ms']:.4f} ± {row['error_ms']:.4f}"
        took = "not measured | |"
        if "network_ms" in row:
            over = row["network_ms"] / row["expected_ms"] - 1
            took = f"{row['network_ms']:.4f} | {row['error_share']:+.0%} | {over:+.0%}"
        found.append(f"| {row['key']} | {row['floor_ms']:.4f} | {fitted} | {expected} | {took} |")
    kinds = lines_of(rows)
    return [*found, "", "simt.kernels of the chip file would be", "", *kinds] if kinds else found
