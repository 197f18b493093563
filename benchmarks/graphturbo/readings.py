"""What rows say, read off them: items a second, errors, bounds, ranges, gains, means. The tables and goals ask this.

rows of the results --> Readings --tables, goals--> text
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, fsum, log

from benchmarks.graphturbo.figures import CONFIGURATIONS, Configuration
from benchmarks.graphturbo.fit import Fit
from benchmarks.graphturbo.published import FIGURE_16, TABLE_1
from benchmarks.graphturbo.rows import FAVOURABLE, FIT_ENDS, FITTED, MID_RANGE, Json, Key, fit_of, key_of
from benchmarks.graphturbo.settings import PIN_DDR_BYTES
from benchmarks.graphturbo.sums import read_sums
from hw_models.chip import Chip

__all__ = ["HELD_OUT", "HeldOut", "Readings", "error_of", "geometric_mean", "mean"]

HELD_OUT = (FAVOURABLE, MID_RANGE, FITTED)
"""Columns that are held beside figures 16 and 17, which no fit sees."""


def error_of(predicted: float, published: float | None) -> float | None:
    """Signed, as a share of what was published."""
    return predicted / published - 1 if published else None


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One bar of a figure: percent of the time in which engines of a kind work, by column of numbers."""

    figure: int
    configuration: str
    what: str
    published: float
    percent: Mapping[str, float]


@dataclass(frozen=True)
class Readings:
    """Of rows; `first` is the configuration that the fit sees."""

    rows: Sequence[Json]
    chip: Chip
    configurations: Sequence[Configuration] = CONFIGURATIONS
    first: Configuration = CONFIGURATIONS[0]

    @cached_property
    def by_key(self) -> Mapping[Key, Json]:
        """Those that have a program."""
        return {key_of(row): row for row in self.rows if not row["refusal"]}

    @cached_property
    def fit(self) -> Fit | None:
        """None where a row that it sees is missing."""
        return fit_of(self.rows, self.chip, self.first)

    def row(self, configuration: Configuration, variant: str, batch: int | None = None) -> Json | None:
        """At its published batch where none is said."""
        return self.by_key.get((configuration.label, variant, batch or configuration.batch_of(variant)))

    def per_second(self, row: Json, column: str = FAVOURABLE) -> float | None:
        """Items a second on all clusters; None where the row lacks the column."""
        found = row["runs"].get(column)
        return self.rate(row, found["cycles"]) if found else None

    def predicted(self, row: Json) -> float:
        """With the most favourable numbers."""
        return self.rate(row, row["runs"][FAVOURABLE]["cycles"])

    def bound(self, row: Json, ddr_bytes: float | None = None) -> float:
        """Items a second that no plan goes beyond."""
        rate = next(iter(row["floor_cycles"])) if ddr_bytes is None else str(ddr_bytes)
        return self.rate(row, row["floor_cycles"][rate])

    def rate(self, row: Json, cycles: float) -> float:
        """Items a second on all clusters of a run of so many cycles."""
        return float(row["batch"] * self.chip.clusters * self.chip.clock_hz / cycles)

    def published(self, row: Json) -> float | None:
        """Of the configuration with this network, variant and batch."""
        label, variant, batch = key_of(row)
        for configuration in self.configurations:
            if configuration.label == label and configuration.batch_of(variant) == batch:
                found = configuration.per_second("full" if variant == "auto" else variant)
                if found is not None:
                    return found
        return None

    def range_of_fit(self, row: Json) -> tuple[float, float] | None:
        """Fewest and most items a second over the range of the fit: of awaited runs by their sums, of others by the
        clock at the settings under which the awaited run of the same program is slowest and fastest."""
        if self.fit is None:
            return None
        if all(name in row["runs"] for name in FIT_ENDS):
            ends = [self.rate(row, row["runs"][name]["cycles"]) for name in FIT_ENDS]
            return min(ends), max(ends)
        sums = read_sums(row["sums"])
        return self.fit.interval(sums) if sums and row["variant"] not in ("full", "beyond", "auto") else None

    def above_bound(self, row: Json) -> str:
        """A mark where what was published is more than any plan does on this chip, else nothing."""
        published = self.published(row)
        if published is None or published <= self.bound(row):
            return ""
        if published > self.bound(row, max(PIN_DDR_BYTES)):
            return "published figure above the bound of the chip, at every rate of the DDR"
        return f"published figure above the bound of the chip, not with {max(PIN_DDR_BYTES)} bytes a cycle of DDR"

    def gain(self, configuration: Configuration, column: str = FAVOURABLE) -> float | None:
        """Of scheduling: every step awaited over the full method, launches included."""
        found = [self.row(configuration, variant) for variant in ("ordering", "full")]
        if any(row is None or column not in row["runs"] for row in found):
            return None
        serial, full = (float(row["runs"][column]["cycles"]) for row in found if row)
        return serial / full

    def ratios(self, of: str, over: str) -> list[float]:
        """Throughput of one variant over another, for each network of the paper that has both; of ViT at 224."""
        rates = []
        for configuration in self.configurations:
            pair = [self.row(configuration, variant) for variant in (of, over)]
            if configuration.network == "vit_b16_384" or not {of, over} <= set(configuration.variants):
                continue
            if pair[0] is not None and pair[1] is not None:
                rates.append(self.predicted(pair[0]) / self.predicted(pair[1]))
        return rates

    def held_out(self) -> Iterator[HeldOut]:
        """Bars of figures 16 and 17 beside ours."""
        for label, batches in FIGURE_16.items():
            for batch, (vector, matrix) in batches.items():
                row = self.by_key.get((label, "full", batch))
                if row is not None:
                    for kind, published in (("vector", vector), ("matrix", matrix)):
                        yield HeldOut(16, label, f"{kind}, {batch} a cluster", published, _busy(row, kind))
        for configuration in self.configurations:
            row = self.row(configuration, "full")
            for stage, published in configuration.matrix_percent.items() if row else ():
                assert row is not None
                percent = {
                    column: run["matrix_percent"][stage]
                    for column, run in row["runs"].items()
                    if column in HELD_OUT and stage in run["matrix_percent"]
                }
                yield HeldOut(17, configuration.label, f"matrix, {stage}", published, percent)

    def verdicts(self) -> Iterator[tuple[int, Mapping[str, float], str]]:
        """Of each held-out figure: mean distance from its bars in points by column, over those that have all columns,
        and whether it speaks for the fit or against it."""
        found = [one for one in self.held_out() if set(one.percent) == set(HELD_OUT)]
        for figure in (16, 17):
            bars = [one for one in found if one.figure == figure]
            if bars:
                means = {
                    column: fsum(abs(one.percent[column] - one.published) for one in bars) / len(bars)
                    for column in HELD_OUT
                }
                yield figure, means, "for" if means[FITTED] < means[FAVOURABLE] else "against"

    def table_1(self, batch: int, method: str) -> tuple[float | None, float | None]:
        """BERT-base at 128: predicted and published items a second."""
        row = self.by_key.get(("bert_base 128", method, batch))
        return self.predicted(row) if row else None, TABLE_1[batch].get("full" if method == "auto" else method)


def _busy(row: Json, kind: str) -> dict[str, float]:
    shown = {}
    for column in HELD_OUT:
        run = row["runs"].get(column)
        if run:
            busy = run["busy_core_cycles"]
            shown[column] = 100 * busy[kind] / busy["all"]
    return shown


def mean(values: Sequence[float]) -> float:
    """Arithmetic."""
    return fsum(values) / len(values)


def geometric_mean(values: Sequence[float]) -> float:
    return exp(fsum(map(log, values)) / len(values))
