"""The numbers of a chip file fitted to measured cycles.

    Chip, benchmarks, counts --robust least squares over the cycle model--> ChipFit: numbers, residuals

Whole numbers (queues, bursts, the array) are tried one by one, in turn with the least squares of the others. Where the
measurements tell only the sum of several numbers, the documented ones stay. A number also stays where it agrees with
its measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, log10

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from codegen.target import Benchmark
from dsa_sched.calibration.counters import MeasuredCycles
from dsa_sched.calibration.determination import Determination, determine
from dsa_sched.calibration.prediction import Predictor
from dsa_sched.calibration.problem import FitProblem, Values, Vector, cost, is_bandwidth
from hw_models.chip import Chip
from hw_models.chip_numbers import NumberSource, number_at
from isched.program.target import Timeable

Say = Callable[[str], None]

ROUNDS = 5
"""Most rounds of whole numbers and least squares."""

LARGEST_ERROR, LARGEST_ERROR_CYCLES = 0.15, 1.0
"""Largest standard error of a determined number: a share of it, or cycles if these are more."""

AGREES = 2.5
"""Standard errors within which a number agrees with its measurement and stays."""

WHOLE_EVIDENCE = 8.0
"""Least rise of the cost at every other whole number, for one to be determined: odds of more than 50 to 1."""

LEAST_CYCLES_PER_BYTE = 1e-7

FAR_SCALES, NEAR_SCALES = (30.0, 30.0, 10.0, 3.0), (1.0,) * 6
"""Scatters beyond which residuals count as outliers, step by step: far from the solution, every residual looks like
one."""

STEPS = (1.0, 0.5, 0.25, 0.1)
"""Shares of the way to the solution of the linear problem that are tried."""

LEAP_SCALE = 3.0
"""The same where another whole number is tried with all others following."""

LEAST_GAIN = 1e-3
"""Share of the cost by which a step must lower it, for another one to follow."""

WHOLE_NUMBERS = (*range(1, 17), *range(24, 129, 8), *(1 << bits for bits in range(8, 13)))
"""Whole numbers that are tried, in addition to that of the file."""


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """A number of the chip file. `value` is what the fitted file has. `measured`, with its standard error, is None
    where the measurements do not determine it; then `partners` are the numbers together with which it was measured,
    none where it was not."""

    path: str
    source: NumberSource
    before: float
    value: float
    measured: float | None
    error: float = 0.0
    partners: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.value != self.before


@dataclass(frozen=True, slots=True)
class Residual:
    """A counter of a benchmark: measured cycles at the 10th, 50th and 90th percentile of the repetitions, and what the
    cycle model says with the fitted numbers, and with those of the file."""

    benchmark: str
    counter: str
    repetitions: int
    low: float
    median: float
    high: float
    fitted: float
    before: float

    @property
    def error(self) -> float:
        """Share by which the fitted cycles differ from the median of the measured ones."""
        return self.fitted / self.median - 1.0

    @property
    def error_before(self) -> float:
        """The same of the cycles before the fit."""
        return self.before / self.median - 1.0


@dataclass(frozen=True, slots=True)
class ChipFit:
    """Result of a fit. `scatter` is the relative standard deviation of one repetition, `condition` that of the
    determined numbers' Jacobian with columns of equal length."""

    chip: Chip
    numbers: tuple[FittedNumber, ...]
    residuals: tuple[Residual, ...]
    scatter: float
    condition: float

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Paths of numbers that the measurements do not determine."""
        return tuple(n.path for n in self.numbers if n.measured is None)

    @property
    def values(self) -> dict[str, float]:
        """Numbers of the fitted file that differ from those of the chip, by their paths."""
        return {number.path: number.value for number in self.numbers if number.changed}


def fit_numbers(
    chip: Chip,
    target: Timeable,
    benchmarks: tuple[Benchmark, ...],
    counts: MeasuredCycles,
    sources: Mapping[str, NumberSource],
    say: Say = lambda _: None,
) -> ChipFit:
    """Fit the numbers at the paths of `sources`, which says where they come from, to the counts of these benchmarks."""
    problem = FitProblem(Predictor(chip, target, tuple(sources)), benchmarks, counts)
    fitting = _Fitting(problem, tuple(number_at(chip, path) for path in sources), tuple(sources.values()), say)
    return fitting.fit()


@dataclass(frozen=True)
class _Fitting:
    """One fit. Numbers are known by their positions among the paths of the problem."""

    problem: FitProblem
    before: Values
    sources: tuple[NumberSource, ...]
    say: Say

    def fit(self) -> ChipFit:
        smooth = tuple(n for n, value in enumerate(self.before) if isinstance(value, float))
        isolated = {n for n, path in enumerate(self.problem.paths) if path in self.problem.isolated}
        whole = tuple(n for n, value in enumerate(self.before) if isinstance(value, int) and n in isolated)
        values, found = self.before, self._determined(self.before, smooth)
        free: tuple[int, ...] = ()
        for number in range(1, ROUNDS + 1):
            more = tuple(sorted({*free, *found.errors}))
            self.say(f"round {number}: least squares of {len(more)} numbers")
            values = self._least_squares(values, more, FAR_SCALES if number == 1 else ())
            self.say(f"round {number}: whole numbers")
            leapt = self._leaps(values, whole, more) if number == 1 else values
            tried = self._whole(leapt, whole)
            found = self._determined(tried, smooth)
            if tried == values and {*found.errors} <= {*more}:
                break
            values, free = tried, more
        return self._told(values, found, whole)

    def _determined(self, values: Values, smooth: tuple[int, ...]) -> Determination:
        """Which of the numbers are determined: those of which a measured benchmark isolates each, and where they only
        give a sum, undocumented ones."""
        isolated = [at for at, n in enumerate(smooth) if self.problem.paths[n] in self.problem.isolated]
        order = sorted(isolated, key=lambda at: self.sources[smooth[at]].documented)
        largest = [self._largest_error(number, values[number]) for number in smooth]
        found = determine(self.problem.jacobian(values, smooth), order, largest)
        errors = {smooth[at]: error for at, error in found.errors.items()}
        partners = {smooth[at]: tuple(smooth[other] for other in others) for at, others in found.partners.items()}
        return Determination(errors, partners, found.condition)

    def _largest_error(self, number: int, value: float) -> float:
        share = LARGEST_ERROR * self.problem.coordinate(number, value)
        return share if is_bandwidth(self.problem.paths[number]) else max(share, LARGEST_ERROR_CYCLES)

    def _least_squares(self, values: Values, free: tuple[int, ...], scales: tuple[float, ...]) -> Values:
        """The values with better ones of the free numbers: robust least squares of the predictions as they are near
        here, a step in that direction as far as the cycle model agrees, and again. Residuals beyond these scales count
        as outliers, step by step, and then those beyond 1, until a step gains little."""
        if not free:
            return values
        problem = self.problem
        for step, scale in enumerate((*scales, *NEAR_SCALES)):
            before = cost(problem.residuals(values), scale)
            here = np.array([problem.coordinate(n, values[n]) for n in free])
            there = self._best_near(values, free, scale)
            tried = [self._at(values, free, here + share * (there - here)) for share in STEPS]
            costs = [cost(problem.residuals(each), scale) for each in tried]
            best = min(range(len(STEPS)), key=costs.__getitem__)
            if costs[best] < before:
                values = tried[best]
            self.say(f"step {step + 1}: cost {min(before, costs[best]):,.1f}")
            if step >= len(scales) and costs[best] > before * (1 - LEAST_GAIN):
                break
        return values

    def _best_near(self, values: Values, free: tuple[int, ...], scale: float) -> Vector:
        """Coordinates of the free numbers with the least cost, if predictions were linear in them. Residuals beyond
        the `scale` count as outliers."""
        problem = self.problem
        here = np.array([problem.coordinate(n, values[n]) for n in free])
        residuals, jacobian = problem.residuals(values), problem.jacobian(values, free)
        smallest = np.array([LEAST_CYCLES_PER_BYTE if is_bandwidth(problem.paths[n]) else 0.0 for n in free])
        lengths = np.linalg.norm(jacobian, axis=0)
        moves = lengths > 0.0  # a number on which nothing depends near here stays
        if not moves.any():
            return here
        scaled, start, least = jacobian[:, moves] / lengths[moves], (here * lengths)[moves], (smallest * lengths)[moves]
        found = least_squares(
            lambda x: residuals + scaled @ (x - start),
            np.maximum(start, least + 1.0),
            jac=lambda _: scaled,
            bounds=(least, np.inf),
            loss="soft_l1",
            f_scale=scale,
            max_nfev=500,
        )
        here[moves] = found.x / lengths[moves]
        return here

    def _at(self, values: Values, free: tuple[int, ...], coordinates: Vector) -> Values:
        """The values with these coordinates of the free numbers."""
        changed = dict(zip(free, map(float, coordinates), strict=True))
        return tuple(self.problem.value(n, changed[n]) if n in changed else value for n, value in enumerate(values))

    def _leaps(self, values: Values, whole: tuple[int, ...], free: tuple[int, ...]) -> Values:
        """The values with whole numbers half or twice as large where that is better, once the free numbers have
        followed: an array of half the size looks like one that is slow."""
        for number in whole:
            here = cost(self.problem.residuals(values))
            for other in (int(values[number]) // 2, int(values[number]) * 2):
                leapt = _with(values, number, max(1, other))
                leapt = self._at(leapt, free, self._best_near(leapt, free, LEAP_SCALE))
                if cost(self.problem.residuals(leapt)) < here - WHOLE_EVIDENCE:
                    values = leapt
                    break
        return values

    def _whole(self, values: Values, whole: tuple[int, ...]) -> Values:
        """The values with better whole numbers, each by going up or down as long as the cost falls."""
        for number in whole:
            tried = self._tried(values, number)
            at = tried.index(int(values[number]))
            costs = {at: self._cost(values, number, tried[at])}
            for step in (1, -1):
                while 0 <= at + step < len(tried):
                    costs[at + step] = self._cost(values, number, tried[at + step])
                    if costs[at + step] >= costs[at] - WHOLE_EVIDENCE:
                        break
                    at += step
            values = _with(values, number, tried[at])
        return values

    def _tried(self, values: Values, number: int) -> list[int]:
        return sorted({*WHOLE_NUMBERS, int(self.before[number]), int(values[number])})

    def _cost(self, values: Values, number: int, value: float) -> float:
        """The cost with another value of a number."""
        return cost(self.problem.residuals(_with(values, number, value)))

    def _told(self, values: Values, found: Determination, whole: tuple[int, ...]) -> ChipFit:
        """The result, with the numbers of the file where these agree with the measurements."""
        numbers = []
        for n in range(len(self.before)):
            if n in whole:
                numbers.append(self._whole_number(values, n))
            elif n in found.errors:
                numbers.append(self._smooth_number(values, n, found.errors[n]))
            else:
                partners = tuple(self.problem.paths[other] for other in found.partners.get(n, ()))
                numbers.append(self._number(n, self.before[n], None, 0.0, partners))
        final = tuple(number.value for number in numbers)
        return ChipFit(
            self.problem.predictor.chip, tuple(numbers), self._residuals(final), self.problem.scatter, found.condition
        )

    def _number(
        self, n: int, value: float, measured: float | None, error: float = 0.0, partners: tuple[str, ...] = ()
    ) -> FittedNumber:
        return FittedNumber(self.problem.paths[n], self.sources[n], self.before[n], value, measured, error, partners)

    def _whole_number(self, values: Values, n: int) -> FittedNumber:
        tried = self._tried(values, n)
        at, here = tried.index(int(values[n])), self._cost(values, n, values[n])
        others = [self._cost(values, n, tried[other]) for other in (at - 1, at + 1) if 0 <= other < len(tried)]
        if min(others) - here < WHOLE_EVIDENCE:
            return self._number(n, self.before[n], None)
        return self._number(n, values[n], values[n])

    def _smooth_number(self, values: Values, n: int, error: float) -> FittedNumber:
        value, before = values[n], self.before[n]
        if is_bandwidth(self.problem.paths[n]):
            error *= value * value  # of the inverse
        if abs(value - before) <= AGREES * error:
            return self._number(n, before, value, error)
        digits = 1 - floor(log10(error)) if error else 6
        return self._number(n, round(value, digits), value, error)

    def _residuals(self, values: Values) -> tuple[Residual, ...]:
        fitted, before = self.problem.predicted(values), self.problem.predicted(self.before)
        rows = []
        for key, now, then in zip(self.problem.keys, fitted, before, strict=True):
            cycles = self.problem.counts.cycles[key]
            low, median, high = (float(each) for each in np.percentile(cycles, (10, 50, 90)))
            rows.append(Residual(*key, len(cycles), low, median, high, float(now), float(then)))
        return tuple(rows)


def _with(values: Values, number: int, value: float) -> Values:
    return (*values[:number], value, *values[number + 1 :])
