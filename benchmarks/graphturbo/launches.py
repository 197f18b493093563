"""What a launch takes by the published TVM plans, and those plans at any launch cost.

    rows `tvm` --own kernels, or as many as were published--> items a second at a launch cost --fit--> one cost for all

A kernel of the TVM plan stores one tensor, so table 3 of the paper says how many it has. Ours are fewer where what TVM
launches one by one is one operator here: attention, norms, the look-ups of many tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import fsum, log, sqrt

from benchmarks.graphturbo.figures import Configuration
from benchmarks.graphturbo.readings import Readings, error_of
from benchmarks.graphturbo.rows import FAVOURABLE, Json

__all__ = ["MOST_ERROR", "TvmPlans"]

MOST_ERROR = 0.35
"""Within which a TVM plan counts as predicted."""
STEP_CYCLES = 1_000
MOST_STEPS = 60
"""Launch costs that the fit tries: whole microseconds up to the most that one published row alone asks for."""


@dataclass(frozen=True)
class TvmPlans:
    """The TVM plans among the rows, with favourable numbers."""

    readings: Readings

    @cached_property
    def rows(self) -> tuple[tuple[Configuration, Json], ...]:
        """At their published batches."""
        shown = ((one, self.readings.row(one, "tvm")) for one in self.readings.configurations if "tvm" in one.variants)
        return tuple((configuration, row) for configuration, row in shown if row is not None)

    def per_second(self, row: Json, launch_cycles: float, kernels: float | None = None) -> float:
        """Items a second with so many launches, the row's own where none are said."""
        own = row["launches"] * self.readings.chip.assumed.launch_cycles
        launches = row["launches"] if kernels is None else kernels
        return self.readings.rate(row, row["runs"][FAVOURABLE]["cycles"] - own + launches * launch_cycles)

    @cached_property
    def launch_cycles(self) -> int | None:
        """With the published number of kernels: the launch cost with the least mean square of ln(predicted /
        published) over all TVM plans that a model can explain. None where there are no such rows."""
        if not self._fitted:
            return None
        return min((STEP_CYCLES * step for step in range(1, MOST_STEPS + 1)), key=self.error)

    def error(self, launch_cycles: float) -> float:
        """Root of the mean square of ln(predicted / published)."""
        logs = (log(one / published) for one, published in self._pairs(launch_cycles))
        return sqrt(fsum(each * each for each in logs) / len(self._fitted))

    def within(self) -> list[str]:
        """Labels of configurations that are predicted within `MOST_ERROR` at that cost."""
        if self.launch_cycles is None:
            return []
        errors = (error_of(*pair) for pair in self._pairs(self.launch_cycles))
        return [
            configuration.label
            for (configuration, _), error in zip(self._fitted, errors, strict=True)
            if error is not None and abs(error) <= MOST_ERROR
        ]

    @cached_property
    def _fitted(self) -> tuple[tuple[Configuration, Json], ...]:
        return tuple(
            (configuration, row)
            for configuration, row in self.rows
            if configuration.tvm_kernels is not None and "tvm" not in configuration.not_explained
        )

    def _pairs(self, launch_cycles: float) -> Iterator[tuple[float, float]]:
        for configuration, row in self._fitted:
            yield self.per_second(row, launch_cycles, configuration.tvm_kernels), configuration.tvm_per_second
