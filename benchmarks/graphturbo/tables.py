"""The tables of the benchmark for a reader: its JSON figures --markdown--> text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.graphturbo.fit import CLOSE, TOLERANCE
from benchmarks.output import table

__all__ = ["markdown"]

Json = dict[str, Any]

PARAMETERS = ("documented", "fitted")


def markdown(figures: Json) -> str:
    """All tables; those of fitted numbers only where there are some."""
    parts = [
        "# The published evaluation, predicted",
        "Made by `python benchmarks/graphturbo_paper.py`; [docs/fidelity.md](../../docs/fidelity.md) says what the "
        "rows are. Published figures: GraphTurbo, OSDI 2023. Items a second are those of four clusters. Nothing was "
        "measured on silicon.",
    ]
    for parameters in PARAMETERS:
        rows = [row for row in figures["rows"] if row["parameters"] == parameters]
        if rows:
            parts += [f"## Throughput, {parameters} numbers", _throughput(rows)]
            parts += _beside(figures, parameters)
    if figures["fit"]:
        parts += ["## The fit", _fit(figures)]
    parts += ["## The vendor's profiler example", _example(figures)]
    parts += ["## Batch and method apart", _batches(figures)]
    if figures["tensors"]:
        parts += ["## Tensors in DDR / LLB / L1", _tensors(figures)]
    parts += ["## Other launch costs and memories, documented numbers else", _sensitivity(figures)]
    return "\n\n".join(parts) + "\n"


def _error(predicted: float, published: float | None) -> str:
    return f"{predicted / published - 1:+.1%}" if published else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _throughput(rows: Sequence[Json]) -> str:
    headings = (
        "network", "variant", "batch", "predicted", "published", "error", "range", "ms", "bound ms", "over bound",
        "over engines", "launches", "compile s", "published s", "",
    )  # fmt: skip
    return table(headings, (_throughput_cells(row) for row in rows))


def _throughput_cells(row: Json) -> list[str]:
    seconds, bound = row["predicted_seconds"], row["lower_bound_seconds"]
    within = row["range_per_second"]
    note = f"not explained: {row['not_explained']}" if row["not_explained"] else "fitted to" if row["fitted_to"] else ""
    compile_seconds = row["compile_seconds"]
    return [
        row["configuration"],
        row["variant"],
        str(row["batch_per_cluster"]),
        _number(row["predicted_per_second"]),
        _number(row["published_per_second"]),
        _error(row["predicted_per_second"], row["published_per_second"]),
        f"{within[0]:,.0f} to {within[1]:,.0f}" if within else "",
        f"{1e3 * seconds:.2f}",
        f"{1e3 * bound:.2f}",
        f"{seconds / bound:.2f}",
        f"{seconds / row['engine_bound_seconds']:.2f}",
        str(row["launches"]),
        "" if compile_seconds is None else f"{compile_seconds:.0f}",
        _number(row["published_compile_seconds"]),
        note,
    ]


def _beside(figures: Json, parameters: str) -> list[str]:
    gains = [gain for gain in figures["gains"] if gain["parameters"] == parameters and "gain" in gain]
    stages = [stage for stage in figures["stages"] if stage["parameters"] == parameters]
    parts = []
    if gains:
        headings = ("network", "serial ms", "asynchronous ms", "full ms", "gain", "published", "over asynchronous")
        cells = (
            [
                gain["configuration"],
                *(f"{1e3 * gain[key]:.2f}" for key in ("serial_seconds", "asynchronous_seconds", "full_seconds")),
                f"{gain['gain']:.2f}",
                f"{gain['published_gain']:.2f}" if gain["published_gain"] else "",
                f"{gain['gain_over_asynchronous']:.2f}",
            ]
            for gain in gains
        )
        parts += [
            f"### Gain of instruction scheduling, {parameters} numbers",
            "One lowering, the same addresses. Serial: every step awaited. Asynchronous: program order, with what the "
            "hardware overlaps by itself.",
            table(headings, cells),
        ]
    if stages:
        columns = ("network", "stage", "matrix engines at work", "published", "difference")
        shown = (
            [
                stage["configuration"],
                stage["stage"],
                f"{stage['percent']:.1f} %",
                f"{stage['published_percent']:.1f} %",
                f"{stage['percent'] - stage['published_percent']:+.1f}",
            ]
            for stage in stages
        )
        parts += [f"### Matrix engines by stage, {parameters} numbers", table(columns, shown)]
    return parts


def _fit(figures: Json) -> str:
    fit = figures["fit"]
    headings = ("number", "documented", "fitted", "range", "limits", "why these limits")
    cells = (
        [
            number["what"],
            f"{number['documented']:g}",
            f"{number['fitted']:g}",
            "{:g} to {:g}".format(*number["range"]),
            "{:g} to {:g}".format(*number["limits"]),
            number["reason"],
        ]
        for number in fit["numbers"]
    )
    worst = max((abs(check["sum_cycles"] / check["clock_cycles"] - 1) for check in figures["checks"]), default=0.0)
    return "\n\n".join(
        (
            "Fitted to the vendor's profiler example, which holds exactly, and the rows marked above. Error: root of "
            "the mean square of ln(predicted / published) over these rows, "
            f"{fit['error']:.3f} for the chosen setting, {fit['best_error']:.3f} for the best of {fit['settings']:,}. "
            f"Chosen: the nearest to the documented one of those within {CLOSE:g} of the best. Range: the "
            f"{fit['within']:,} within {TOLERANCE:g} of it, which these rows cannot tell apart.",
            table(headings, cells),
            f"The sums behind the range differ from the clock by at most {worst:.2%} at the chosen setting.",
        )
    )


def _example(figures: Json) -> str:
    headings = ("what", "parameters", "cycles", "published")
    cells = (
        [row["what"], row["parameters"], f"{row['cycles']:g}", f"{row['published_cycles']:g}"]
        for row in figures["example"]
    )
    return table(headings, cells)


def _batches(figures: Json) -> str:
    headings = ("network", "batches", "small", "large", "gain of the batch alone")
    cells = (
        [
            row["configuration"],
            " and ".join(map(str, row["batches"])),
            *map(_number, row["per_second"]),
            f"{row['gain']:.2f}",
        ]
        for row in figures["batches"]
    )
    return "The TVM plan, documented numbers.\n\n" + table(headings, cells)


def _tensors(figures: Json) -> str:
    cells = (
        [
            row["configuration"],
            row["variant"],
            " / ".join(map(str, row["tensors"])),
            " / ".join(map(str, row["published"])),
        ]
        for row in figures["tensors"]
    )
    return table(("network", "variant", "here", "published"), cells)


def _sensitivity(figures: Json) -> str:
    headings = ("network", "variant", "change", "predicted", "published", "error")
    cells = (
        [
            row["configuration"],
            row["variant"],
            row["change"],
            _number(row["per_second"]),
            _number(row["published_per_second"]),
            _error(row["per_second"], row["published_per_second"]),
        ]
        for row in figures["sensitivity"]
    )
    return table(headings, cells)
