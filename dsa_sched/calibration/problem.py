"""Measured cycles and what the cycle model says of them, as residuals of values of the chip's numbers.

    values --Predictor--> cycles by benchmark and counter --relative to measured ones and their scatter--> residuals

Bandwidths enter as cycles per byte, in which predictions are nearly linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from codegen.target import Benchmark
from dsa_sched.calibration.counters import Key, MeasuredCycles
from dsa_sched.calibration.prediction import Predictor

Vector = npt.NDArray[np.float64]
Values = tuple[float, ...]

LEAST_SCATTER = 1e-3
"""Least relative scatter of a counter: closer agreement is not asked for."""

USUAL_SCATTER = 0.02
"""Relative scatter that is assumed where nothing was measured three times."""

NORMAL = 1.4826
"""Standard deviation of a normal distribution over the median of its absolute deviations."""

RELATIVE_STEP, LEAST_STEP_CYCLES = 0.02, 1.0
"""Steps of derivatives. They are not small, because predictions are whole cycles."""


def is_bandwidth(path: str) -> bool:
    """Whether a number is a bandwidth, which is fitted as its inverse."""
    return path.endswith("bandwidth_bytes_per_cycle")


@dataclass(frozen=True)
class FitProblem:
    """Benchmarks and their measured cycles."""

    predictor: Predictor
    benchmarks: tuple[Benchmark, ...]
    counts: MeasuredCycles

    @property
    def paths(self) -> tuple[str, ...]:
        return self.predictor.paths

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """What was measured, in the order of the benchmarks and of their counters."""
        asked = ((each.name, counter) for each in self.benchmarks for counter in each.counters)
        return tuple(key for key in asked if key in self.counts.cycles)

    @cached_property
    def isolated(self) -> frozenset[str]:
        """Paths of the numbers that a benchmark with measured cycles isolates."""
        measured = {name for name, _ in self.keys}
        return frozenset(path for each in self.benchmarks if each.name in measured for path in each.isolates)

    @cached_property
    def medians(self) -> Vector:
        """Median of the measured cycles by key."""
        return np.array([float(np.median(self.counts.cycles[key])) for key in self.keys])

    @cached_property
    def scatter(self) -> float:
        """Relative standard deviation of one repetition: the median of all counters, each by its absolute deviations,
        which outliers hardly change."""
        found = [
            NORMAL * float(np.median(np.abs(np.array(cycles) / np.median(cycles) - 1.0)))
            for cycles in self.counts.cycles.values()
            if len(cycles) > 2
        ]
        return max(LEAST_SCATTER, float(np.median(found)) if found else USUAL_SCATTER)

    @cached_property
    def _rows(self) -> npt.NDArray[np.int64]:
        """Position of the key of each residual."""
        return np.repeat(np.arange(len(self.keys)), [len(self.counts.cycles[key]) for key in self.keys])

    @cached_property
    def _cycles(self) -> Vector:
        return np.array([cycles for key in self.keys for cycles in self.counts.cycles[key]])

    def predicted(self, values: Values) -> Vector:
        """Predicted cycles by key."""
        named = {each.name: each for each in self.benchmarks}
        found = {name: self.predictor.cycles(named[name], values) for name in dict.fromkeys(k[0] for k in self.keys)}
        return np.array([found[name][counter] for name, counter in self.keys])

    def residuals(self, values: Values) -> Vector:
        """A residual for each repetition, with a standard deviation of 1 where the model is right."""
        rows = self._rows
        differences: Vector = (self.predicted(values)[rows] - self._cycles) / (self.medians[rows] * self.scatter)
        return differences

    def jacobian(self, values: Values, numbers: tuple[int, ...]) -> Vector:
        """Derivatives [residuals, numbers] by the coordinates of these numbers, each toward a slower chip."""
        here, rows = self.predicted(values), self._rows
        columns = []
        for number in numbers:
            start = self.coordinate(number, values[number])
            step = (
                RELATIVE_STEP * start
                if is_bandwidth(self.paths[number])
                else max(LEAST_STEP_CYCLES, RELATIVE_STEP * start)
            )
            there = (*values[:number], self.value(number, start + step), *values[number + 1 :])
            columns.append((self.predicted(there) - here) / step)
        slopes = np.array(columns).T.reshape(len(self.keys), len(numbers))
        scaled: Vector = slopes[rows] / (self.medians[rows] * self.scatter)[:, None]
        return scaled

    def coordinate(self, number: int, value: float) -> float:
        """The coordinate of a number's value."""
        return 1.0 / value if is_bandwidth(self.paths[number]) else value

    def value(self, number: int, coordinate: float) -> float:
        """The converse of `coordinate`."""
        return self.coordinate(number, coordinate)


def cost(residuals: Vector, scale: float = 1.0) -> float:
    """The robust cost: squares of residuals below the scale, magnitudes of those above it (soft L1)."""
    return float(np.sum(2.0 * scale**2 * (np.sqrt(1.0 + (residuals / scale) ** 2) - 1.0)))
