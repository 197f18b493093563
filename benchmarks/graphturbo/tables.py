"""The tables of the benchmark for a reader: rows of the results --markdown--> text.

Every prediction has three columns: favourable, mid-range, and the range of the fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.graphturbo.beside import batches, means, table_1, utilisation, vendor
from benchmarks.graphturbo.figures import CONFIGURATIONS, Configuration
from benchmarks.graphturbo.fit_tables import alone, example, fit_text, inferred
from benchmarks.graphturbo.goals import complaints
from benchmarks.graphturbo.launches import MOST_ERROR, TvmPlans
from benchmarks.graphturbo.readings import Readings, error_of
from benchmarks.graphturbo.rows import FAVOURABLE, FITTED_TO, MID_RANGE, Json, ddr_column, wanted
from benchmarks.graphturbo.settings import LAUNCHES, PIN_DDR_BYTES
from benchmarks.output import table
from hw_models.chip import Chip

__all__ = ["markdown"]

LEAST_GAIN, MOST_GAIN = 1.1, 2.5
"""Of scheduling; the published ones are 1.22 to 2.3. Outside, a reason stands beside it."""


def markdown(
    rows: Sequence[Json],
    chip: Chip,
    sources: str,
    configurations: Sequence[Configuration] = CONFIGURATIONS,
    first: Configuration = CONFIGURATIONS[0],
) -> str:
    """All tables; those of the fit only where there is one."""
    readings = Readings(rows, chip, configurations, first)
    parts = [
        "# The published evaluation, predicted",
        "Made by `python benchmarks/graphturbo_paper.py`; [docs/fidelity.md](../../docs/fidelity.md) says what the "
        "rows are. Published figures: GraphTurbo, OSDI 2023. Items a second are those of four clusters. Nothing was "
        "measured on silicon.",
        "Favourable: every number has the most favourable value that documents allow. Mid-range: every unpublished "
        "number has the middle of its limits. Range of the fit: fewest to most over what three rows of ResNet-50 "
        "cannot tell apart. Bound: the largest of matrix products in whole tiles of the array, results of vector "
        "engines each once, inputs, weights, outputs once over the DDR, with favourable numbers and without launches.",
        _state(rows, sources, configurations),
    ]
    parts += ["## Throughput", _throughput(readings)]
    parts += _refusals(rows)
    parts += ["## Level auto and its goals", _goals(readings)]
    parts += ["## Gain of instruction scheduling", GAINS, _gains(readings)]
    parts += ["## Means over networks", means(readings)]
    parts += ["## BERT-base at 128 by batch (table 1)", table_1(readings)]
    parts += ["## Engines at work, held out (figures 16 and 17)", utilisation(readings)]
    parts += ["## The vendor's own figures", vendor(readings)]
    if readings.fit is not None:
        parts += ["## The fit", fit_text(readings.fit, readings)]
    parts += ["## What one number alone moves", alone(readings)]
    parts += ["## What is inferred from published results", inferred()]
    parts += ["## The vendor's profiler example", example(chip, readings.fit)]
    parts += ["## Batch and method apart", batches(readings)]
    parts += ["## Tensors in DDR / LLB / L1", _tensors(readings)]
    parts += ["## Other memories and launch costs, favourable numbers else", _memories(readings), _launches(readings)]
    return "\n\n".join(parts) + "\n"


def _state(rows: Sequence[Json], sources: str, configurations: Sequence[Configuration]) -> str:
    """What there is, and what was not run."""
    keys = {(row["configuration"], row["variant"], row["batch"]) for row in rows}
    missing = [one for one in wanted(configurations) if one.key not in keys]
    few = sum(bool(row.get("compiled_layers")) for row in rows)
    older = sum(row["sources"] != sources for row in rows)
    text = (
        f"{len(rows)} rows. {few} follow from networks of one and two layers: each more layer takes what the second "
        f"took. {older} are of older sources of the compiler than `{sources[:16]}`."
    )
    if all("row_seconds" in row for row in rows if not row["refusal"]):
        minutes = sum(row["row_seconds"] for row in rows if not row["refusal"]) / 60
        text += f" Making them took {minutes:.0f} min of the processor."
    if missing:
        by_label: dict[str, list[str]] = {}
        for one in missing:
            by_label.setdefault(one.configuration.label, []).append(f"{one.variant} {one.batch}")
        names = "; ".join(f"{label} ({', '.join(each)})" for label, each in by_label.items())
        text += f" {len(missing)} rows were not run: {names}."
    return text


def number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def error(predicted: float | None, published: float | None) -> str:
    found = None if predicted is None else error_of(predicted, published)
    return "" if found is None else f"{found:+.0%}"


def _pair(predicted: float | None, published: float | None) -> str:
    told = error(predicted, published)
    return number(predicted) + (f" ({told})" if told else "")


def _shown(readings: Readings) -> Iterator[tuple[Configuration, Json]]:
    for configuration in readings.configurations:
        for variant in configuration.variants:
            row = readings.row(configuration, variant)
            if row is not None:
                yield configuration, row


def _throughput(readings: Readings) -> str:
    headings = (
        "network", "variant", "batch", "published", "favourable (error)", "mid-range (error)", "range of the fit",
        "bound", "share of bound", "published share", "over its program's bound", "over engines", "launches",
        "compile s", "published s", "",
    )  # fmt: skip
    return table(headings, (_cells(readings, *pair) for pair in _shown(readings)))


def _cells(readings: Readings, configuration: Configuration, row: Json) -> list[str]:
    published, predicted, bound = readings.published(row), readings.predicted(row), readings.bound(row)
    within, run = readings.range_of_fit(row), row["runs"][FAVOURABLE]
    seconds = configuration.compile_seconds.get(row["variant"])
    own = published if row["variant"] != "auto" else None  # auto was not published: errors are those of the method
    return [
        row["configuration"],
        row["variant"],
        str(row["batch"]),
        number(published) if own else f"({number(published)})" if published else "",
        _pair(predicted, published),
        _pair(readings.per_second(row, MID_RANGE), published),
        f"{within[0]:,.0f} to {within[1]:,.0f}" if within else "",
        number(bound),
        f"{predicted / bound:.0%}",
        f"{published / bound:.0%}" if published else "",
        f"{run['cycles'] / run['bound_cycles']:.2f}",
        f"{run['cycles'] / run['engine_cycles']:.2f}",
        number(row["launches"]),
        number(row["seconds"]) if seconds or row["variant"] == "auto" else "",
        number(seconds),
        "; ".join(_notes(readings, configuration, row)),
    ]


def _notes(readings: Readings, configuration: Configuration, row: Json) -> Iterator[str]:
    if row["compiled_layers"]:
        yield f"from {row['compiled_layers']} layers"
    if why := configuration.not_explained.get(row["variant"]):
        yield f"not explained: {why}"
    if configuration is readings.first and row["variant"] in FITTED_TO:
        yield "fitted to"
    if row["variant"] in ("full", "auto") and (mark := readings.above_bound(row)):
        yield mark
    if row["variant"] == "auto":
        yield row["level"] + (f", {row['passes']} passes" if row["passes"] > 1 else "")


def _refusals(rows: Sequence[Json]) -> list[str]:
    cells = [
        (row["configuration"], row["variant"], str(row["batch"]), row["refusal"]) for row in rows if row["refusal"]
    ]
    return ["## Refused", table(("network", "variant", "batch", "why"), cells)] if cells else []


def _goals(readings: Readings) -> str:
    wrong = list(complaints(readings.rows, readings.configurations, readings.chip))
    plans = TvmPlans(readings)
    within = plans.within()
    launch = "no such plan" if plans.launch_cycles is None else _microseconds(plans.launch_cycles)
    lines = [f"* {text}" for text in wrong] or ["Every goal is reached."]
    return "\n".join(
        (
            "Items a second by the clock with favourable numbers. With the published number of kernels and the launch "
            f"cost that fits all TVM plans best ({launch}) they are within {MOST_ERROR:.0%} of what was published for "
            f"{len(within)}: {', '.join(within) or 'none'}. Not reached:",
            "",
            *lines,
        )
    )


GAINS = (
    "One lowering, the same addresses. Serial: every step awaited. Asynchronous: program order, with what the hardware "
    "overlaps by itself. Most: serial over what no order of the instructions goes below."
)


def _gains(readings: Readings) -> str:
    headings = (
        "network", "serial ms", "asynchronous ms", "full ms", "gain", "mid-range", "published", "over asynchronous",
        "most", "",
    )  # fmt: skip
    return table(headings, filter(None, (_gain_cells(readings, one) for one in readings.configurations)))


def _gain_cells(readings: Readings, configuration: Configuration) -> list[str] | None:
    gain = readings.gain(configuration)
    serial, full = readings.row(configuration, "ordering"), readings.row(configuration, "full")
    if gain is None or serial is None or full is None:
        return None
    ms = 1e3 / readings.chip.clock_hz
    one, other = serial["runs"][FAVOURABLE], full["runs"][FAVOURABLE]
    speedups = configuration.speedups
    published = speedups["full"] / speedups["ordering"] if "ordering" in speedups else None
    middle = readings.gain(configuration, MID_RANGE)
    most = one["cycles"] / other["bound_cycles"]
    return [
        configuration.label,
        *(f"{ms * cycles:.2f}" for cycles in (one["cycles"], one["asynchronous_cycles"], other["cycles"])),
        f"{gain:.2f}",
        f"{middle:.2f}" if middle else "",
        f"{published:.2f}" if published else "",
        f"{one['asynchronous_cycles'] / other['cycles']:.2f}",
        f"{most:.2f}",
        _gain_reason(gain, most, one["engine_cycles"] / one["cycles"]),
    ]


def _gain_reason(gain: float, most: float, busiest: float) -> str:
    """Why a gain is out of the ordinary, as far as bounds say it."""
    if LEAST_GAIN <= gain <= MOST_GAIN:
        return ""
    share = f"what is busiest works {busiest:.0%} of the serial time"
    if gain > MOST_GAIN:
        return f"above {MOST_GAIN}: {share}, the rest can hide behind it"
    if most < LEAST_GAIN:
        return f"below {LEAST_GAIN}: no order of these instructions gains more; {share}"
    return f"below {LEAST_GAIN}: an order could gain up to {most:.2f}; {share}"


def _tensors(readings: Readings) -> str:
    cells = []
    for configuration, row in _shown(readings):
        published = configuration.tensors.get("TVM" if row["variant"] == "tvm" else "GraphTurbo")
        if row["variant"] in ("tvm", "full") and published:
            told = (" / ".join(f"{count:.0f}" for count in counts) for counts in (row["tensors"], published))
            cells.append([row["configuration"], row["variant"], *told])
    return table(("network", "variant", "here", "published"), cells)


def _memories(readings: Readings) -> str:
    """Every row at the rates that the DDR may have."""
    columns = [ddr_column(rate) for rate in PIN_DDR_BYTES]
    headings = ("network", "variant", "batch", "DDR 27.0 bytes a cycle (error)", *(f"{one} (error)" for one in columns))
    cells = []
    for _, row in _shown(readings):
        published = readings.published(row)
        rates = (readings.per_second(row, column) for column in (FAVOURABLE, *columns))
        cells.append([row["configuration"], row["variant"], str(row["batch"]), *(_pair(r, published) for r in rates)])
    return table(headings, cells)


def _launches(readings: Readings) -> str:
    """The TVM plans by launch cost: with our kernels, and with as many as were published."""
    plans = TvmPlans(readings)
    own = table(
        ("network, TVM plan", "launches", *(f"{_microseconds(launch)} (error)" for launch in LAUNCHES)),
        (
            [one.label, number(row["launches"]), *_at_launches(plans, one, row, LAUNCHES, None)]
            for one, row in plans.rows
        ),
    )
    if plans.launch_cycles is None:
        return own
    costs = sorted({*LAUNCHES, plans.launch_cycles})
    published = table(
        ("network, TVM plan", "published kernels", *(f"{_microseconds(launch)} (error)" for launch in costs)),
        (
            [one.label, number(one.tvm_kernels), *_at_launches(plans, one, row, costs, one.tvm_kernels)]
            for one, row in plans.rows
            if one.tvm_kernels is not None
        ),
    )
    text = (
        "With as many launches as the published plan has kernels. Of all costs in whole microseconds "
        f"{_microseconds(plans.launch_cycles)} has the least error (root of the mean square of ln(predicted / "
        f"published), {plans.error(plans.launch_cycles):.3f}, over all rows but those that are not explained; "
        f"{plans.error(readings.chip.assumed.launch_cycles):.3f} at the chip file's "
        f"{_microseconds(readings.chip.assumed.launch_cycles)})."
    )
    return "\n\n".join((own, text, published))


def _at_launches(
    plans: TvmPlans, configuration: Configuration, row: Json, costs: Iterable[float], kernels: int | None
) -> list[str]:
    rates = (plans.per_second(row, cost, kernels) for cost in costs)
    return [_pair(rate, configuration.tvm_per_second) for rate in rates]


def _microseconds(cycles: float) -> str:
    return f"{cycles / 1000:g} us"
