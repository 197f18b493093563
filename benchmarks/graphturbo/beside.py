"""Tables of what was published beside the configurations: means, table 1, figures 16 and 17, the vendor's figures."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.graphturbo.published import MEANS, TABLE_1, VENDOR, Mean, VendorFigure
from benchmarks.graphturbo.readings import HELD_OUT, Readings, error_of, geometric_mean, mean
from benchmarks.output import table

__all__ = ["batches", "means", "table_1", "utilisation", "vendor"]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _error(predicted: float | None, published: float | None) -> str:
    found = None if predicted is None else error_of(predicted, published)
    return "" if found is None else f"{found:+.0%}"


def means(readings: Readings) -> str:
    """Those of the paper's abstract and text beside what its own bars give, and ours, favourable numbers."""
    headings = ("mean of", "over", "stated", "by the bars", "geometric", "here", "geometric", "networks here", "")
    return table(headings, (_mean_cells(readings, one) for one in MEANS))


def _mean_cells(readings: Readings, one: Mean) -> list[str]:
    ours = readings.ratios(one.of, one.over)
    return [
        one.of,
        one.over,
        f"{one.stated:.2f}",
        f"{one.by_bars:.2f}",
        f"{one.by_bars_geometric:.2f}" if one.by_bars_geometric else "",
        f"{mean(ours):.2f}" if ours else "",
        f"{geometric_mean(ours):.2f}" if ours else "",
        str(len(ours)),
        one.fault,
    ]


def table_1(readings: Readings) -> str:
    """BERT-base at 128 by batch."""
    cells = []
    for batch in TABLE_1:
        for method in ("tvm", "full", "auto"):
            predicted, published = readings.table_1(batch, method)
            row = readings.by_key.get(("bert_base 128", method, batch))
            if predicted is not None or (published is not None and method != "auto"):
                note = f"from {row['compiled_layers']} layers" if row and row["compiled_layers"] else ""
                told = (_number(predicted), _number(published), _error(predicted, published))
                cells.append([method, str(batch), *told, note if row else "not run"])
        if vendor_code := TABLE_1[batch].get("vendor"):
            cells.append(["the vendor's code", str(batch), "", _number(vendor_code), "", ""])
    return table(("method", "batch a cluster", "predicted", "published", "error", ""), cells)


def utilisation(readings: Readings) -> str:
    """Percent of the time in which engines work, by column of numbers."""
    headings = ("figure", "network", "engines", "published", *HELD_OUT)
    cells = (
        [
            str(one.figure),
            one.configuration,
            one.what,
            f"{one.published:.1f}",
            *(
                f"{one.percent[column]:.1f} ({one.percent[column] - one.published:+.1f})"
                if column in one.percent
                else ""
                for column in HELD_OUT
            ),
        ]
        for one in readings.held_out()
    )
    return "\n\n".join((table(headings, cells), *_verdicts(readings)))


def _verdicts(readings: Readings) -> Iterator[str]:
    for figure, by_column, verdict in readings.verdicts():
        told = ", ".join(f"{points:.1f} points {column}" for column, points in by_column.items())
        yield f"Figure {figure} speaks {verdict} the fit. Mean distance from its bars: {told}."


def vendor(readings: Readings) -> str:
    """The vendor's own code beside ours."""
    headings = ("what", "batch a cluster", "vendor", "source", "full", "error", "auto", "error")
    return table(headings, (_vendor_cells(readings, one) for one in VENDOR))


def _vendor_cells(readings: Readings, one: VendorFigure) -> list[str]:
    cells = [one.what, str(one.batch), _number(one.per_second), one.source]
    for variant in ("full", "auto"):
        row = readings.by_key.get((one.label, variant, one.batch)) if one.label else None
        predicted = readings.predicted(row) if row else None
        cells += [_number(predicted), _error(predicted, one.per_second)]
    return cells


def batches(readings: Readings) -> str:
    """What the larger batch alone gives the TVM plan."""
    cells = []
    for configuration in readings.configurations:
        if "tvm" not in configuration.variants or configuration.tvm_batch == configuration.batch:
            continue
        small, large = (
            readings.row(configuration, "tvm", batch) for batch in (configuration.tvm_batch, configuration.batch)
        )
        if small and large:
            rates = readings.predicted(small), readings.predicted(large)
            told = f"{configuration.tvm_batch} and {configuration.batch}"
            cells.append([configuration.label, told, *map(_number, rates), f"{rates[1] / rates[0]:.2f}"])
    headings = ("network", "batches", "small", "large", "gain of the batch alone")
    return "The TVM plan, favourable numbers.\n\n" + table(headings, cells)
