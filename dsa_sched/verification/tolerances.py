"""Verdicts of `verify`, as plain arithmetic on arrays: errors, logits, samples, bytes.

Bounds. A layer fed with the reference's inputs: relative L2 error at most 1.5e-2, for the whole and for each channel.
Logits of the whole network: error at most a tenth of the distance between the reference's outputs for two different
inputs. No bound is below what rounding to the chip's dtype makes of the reference itself (`rounding.py`), times an
`allowance`, which is larger where rows of a product are so alike that their errors are one. Where that bound cannot
tell two inputs apart, nothing is said about the logits. Samples: bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import numpy.typing as npt

LAYER_BOUND = 1.5e-2
LOGITS_SHARE_BOUND = 0.1
CANDIDATE_DEVIATIONS = 4.0
"""Distance in deviations beyond which two normally distributed errors exchange two entries once in 30,000 times."""

WAY_SQUARE, WAY_CHANCE, WAY_RATE = 1.168, 1e-3, 4.935
"""Mean square of a random walk between fixed ends that is exceeded with the second number as chance, and the rate at
which this chance falls with the mean square x: as exp(-pi^2 / 2 x).
"""

STEPS_OFF = 2.0
"""Steps, in the root mean square, by which integers at the end of a quantised network may be off: each layer by itself
is off by one here and there."""

FUNCTION_ERROR = 2.0**-8
"""Relative error that a correct function may have, even for outputs that are nearer to each other than that."""

MOST_DRAWS = 64
"""Largest number of independent errors that is distinguished: more change an allowance by little."""

Array = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]
Points = npt.NDArray[np.intp]


def relative_error(ours: Array, reference: Array) -> float:
    """L2 norm of the difference over that of the reference's finite values; infinite where only one of both is finite
    or ours should be zero."""
    apart = float(np.linalg.norm(difference(ours, reference)))
    if apart == 0:
        return 0.0
    finite = reference.astype(np.float64)[np.isfinite(reference)]
    norm = float(np.linalg.norm(finite))
    return apart / norm if norm else float("inf")


def difference(ours: Array, reference: Array) -> Doubles:
    """Ours less the reference; 0 where both are the same infinity or both NaN, infinite where only one is finite."""
    with np.errstate(invalid="ignore"):
        mine, theirs = ours.astype(np.float64), reference.astype(np.float64)
        apart = np.asarray(mine - theirs)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def _rounding(rounded: Array, reference: Array) -> Doubles:
    """Change that rounding makes; overflow is no rounding."""
    return _where_finite(difference(rounded, reference))


def _where_finite(apart: Doubles) -> Doubles:
    """Differences, 0 where only one of both values is finite."""
    return np.where(np.isfinite(apart), apart, 0.0)


def allowance(draws: int) -> float:
    """Factor by which the norm of rounding errors may exceed the expected one: twice, and four deviations of the norm
    of `draws` independent errors. It is 6 for one and 2 for many.
    """
    return 2 + 4 / sqrt(max(draws, 1))


def way_allowance(channels: int) -> float:
    """Factor by which the norm of a channel's rounding errors may exceed the expected one, for the worst of this many
    channels, where each channel sums products with its own weights.

    The partial sums are what is rounded. The squares of a random walk between fixed ends have the mean 1/6, and each
    channel has one walk, not one for each element: activations are positive and alike, so the weights decide it. Their
    sum is distributed as Cramer's and von Mises' statistic (Anderson and Darling, 1952); the bound is the one that the
    largest of ten times as many channels exceeds once. It is never less than twice what is expected.
    """
    chance = 1 / (10 * max(channels, 1))
    square = WAY_SQUARE + log(WAY_CHANCE / chance) / WAY_RATE
    return max(2.0, sqrt(6 * max(square, 0.0)))


def independent_rows(rows: Array, eps: float) -> int:
    """Number of the rows [R, K] that are rounded independently where they are multiplied by the same weights: at most
    R, and R beyond MOST_DRAWS. A running sum of K terms is about as large as sqrt(K) of them, so terms that differ by
    less than its last bit, eps * sqrt(K) of themselves, are rounded alike at every step.
    """
    left = rows.astype(np.float64)
    within = eps * sqrt(rows.shape[-1])
    for count in range(MOST_DRAWS):
        if not len(left):
            return count
        first = left[0]
        with np.errstate(invalid="ignore"):
            apart = np.linalg.norm(left - first, axis=1) > within * np.linalg.norm(first)
        apart[0] = False
        left = left[apart]
    return len(rows)


@dataclass(frozen=True, slots=True)
class Share:
    """A relative L2 error, what rounding alone is expected to make of it, and the bound; `channel` is -1 for all."""

    error: float
    floor: float
    bound: float
    channel: int = -1

    @property
    def share(self) -> float:
        if self.error == 0:
            return 0.0
        return self.error / self.bound if np.isfinite(self.error) else float("inf")

    @property
    def passed(self) -> bool:
        return self.share <= 1


def judge_layer(
    ours: Array,
    reference: Array,
    rounded: Array | None,
    axis: int,
    most_draws: int | None = None,
    ways: bool = False,
) -> tuple[Share, Share]:
    """(the whole value, its worst channel along `axis`). `rounded` is what rounding makes of the reference: where that
    costs more than LAYER_BOUND, it is the bound, times its `allowance`.

    The rounding of a channel never counts for less than the mean of all channels: in a channel of few elements, some
    may be exact by chance. The elements of a channel count as `most_draws` independent ones at most. With `ways` each
    channel is a sum of products with its own weights (`way_allowance`).
    """
    rank = max(1, reference.ndim)
    shape = reference.shape or (1,)
    flat = tuple(number for number in range(rank) if number != axis)
    error, exact = (
        difference(ours, reference).reshape(shape),
        np.nan_to_num(reference.astype(np.float64), False, 0, 0, 0),
    )
    floor = np.zeros(shape) if rounded is None else _rounding(rounded, reference).reshape(shape)
    squares = [np.sum(np.square(part.reshape(shape)), axis=flat) for part in (error, floor, exact)]
    errors, floors, norms = (np.sqrt(part) for part in squares)
    floors = np.maximum(floors, sqrt(squares[1].mean()))
    whole = _share(_root(squares[0]), _root(squares[1]), _root(squares[2]), allowance(error.size))
    draws = min(error.size // len(errors), error.size if most_draws is None else most_draws)
    times = allowance(draws) + (way_allowance(len(errors)) - 2 if ways else 0)
    allowed = np.maximum(LAYER_BOUND * norms, times * floors)
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = int(np.argmax(np.where(errors == 0, 0.0, errors / allowed)))
    return whole, _share(float(errors[worst]), float(floors[worst]), float(norms[worst]), times, worst)


def _root(squares: Doubles) -> float:
    return float(np.sqrt(squares.sum()))


def _share(error: float, floor: float, norm: float, times: float, channel: int = -1) -> Share:
    """Share relative to the norm, or for zeros, which have none, to what rounding may do: `times` its floor."""
    scale = norm or times * floor
    if not scale:
        return Share(0.0 if error == 0 else float("inf"), 0.0, LAYER_BOUND, channel)
    bound = max(LAYER_BOUND, times * floor / scale)
    return Share(error / scale, floor / scale, bound, channel)


@dataclass(frozen=True, slots=True)
class LogitsResult:
    """Judgement of one tensor for one input. `apart` and `together` are L2 errors that rounding alone makes of the
    reference: where the errors of its values are independent, and where all have one sign. Of `rows`, `top1_same` have
    the reference's winner, and `top1_wrong` one that rounding does not explain; up to `top1_candidates` of
    `top1_entries` entries are so near the winner that rounding explains them.
    """

    tensor: str
    input: int
    error: float
    distance: float
    apart: float
    together: float
    rows: int
    top1_same: int
    top1_wrong: int
    top1_candidates: int
    top1_entries: int
    norm: float = 0.0
    """L2 norm of the reference's finite elements."""
    steps: float = 0.0
    """L2 error of quantised elements of which each is `STEPS_OFF` steps off."""

    @property
    def doubtful(self) -> bool:
        """Whether rounding may have made it wrong: no statement, and more off than a tenth of the distance and than
        a function may be; where inputs change nothing, than a layer may be."""
        if self.statement:
            return False
        near = max(LOGITS_SHARE_BOUND * self.distance, FUNCTION_ERROR * self.norm, self.steps)
        return not self.error <= (near if self.distance else max(LAYER_BOUND * self.norm, self.floor))

    @property
    def share(self) -> float:
        """Error over distance."""
        if self.error == 0:
            return 0.0
        return self.error / self.distance if self.distance else float("inf")

    @property
    def floor(self) -> float:
        """Largest error that rounding may make of the reference: independent errors with the `allowance` of a single
        draw, or errors of one sign, whichever is larger.
        """
        return max(allowance(1) * self.apart, self.together)

    @property
    def bound(self) -> float:
        """A tenth of the distance, but never less than rounding may make."""
        return max(LOGITS_SHARE_BOUND * self.distance, self.floor)

    @property
    def statement(self) -> bool:
        """Whether the bound tells the outputs of two inputs apart; if not, nothing is said end to end."""
        return self.distance > 0 and self.bound <= self.distance / 2

    @property
    def passed(self) -> bool:
        return not self.statement or (self.error <= self.bound and self.top1_wrong == 0)


def judge_logits(
    tensor: str,
    ours: tuple[Array, ...],
    reference: tuple[Array, ...],
    rounded: tuple[tuple[Array, Array], ...] = (),
    neighbours: tuple[Array, ...] = (),
    step: float = 0.0,
) -> tuple[LogitsResult, ...]:
    """One result per input. The distance is the distance to the nearest other input's reference over elements that are
    finite for both: an infinite one would allow every error. `rounded` holds, for each input, the effect of rounding on
    the reference: errors apart, and together. `neighbours` are the reference for other inputs, which are not judged.
    `step` is the distance of neighbouring numbers of a quantised tensor.
    """
    pairs = rounded or tuple((exact, exact) for exact in reference)
    moved = [tuple(_rounding(draw, exact) for draw in draws) for draws, exact in zip(pairs, reference, strict=True)]
    apart, together = (_mean_norm([draws[way] for draws in moved]) for way in (0, 1))
    results = []
    for position, (mine, exact) in enumerate(zip(ours, reference, strict=True)):
        rest = (*reference[:position], *reference[position + 1 :], *neighbours)
        others = [_norm(_where_finite(difference(other, exact))) for other in rest]
        error = _norm(difference(mine, exact))
        top1 = _top1(mine, exact.astype(np.float64), moved[position][0], apart)
        norm = _norm(_where_finite(np.asarray(exact, np.float64)))
        distance, steps = min(others, default=0.0), STEPS_OFF * step * sqrt(exact.size)
        results.append(LogitsResult(tensor, position, error, distance, apart, together, *top1, norm, steps))
    return tuple(results)


def _norm(array: Doubles) -> float:
    return float(np.linalg.norm(array.reshape(-1)))


def _mean_norm(arrays: list[Doubles]) -> float:
    """Root mean square of norms."""
    return float(np.sqrt(np.mean([np.square(_norm(array)) for array in arrays])))


def _top1(ours: Array, reference: Doubles, moved: Doubles, floor: float) -> tuple[int, int, int, int, int]:
    """Rows (one per picture), rows with the reference's winner, rows with a winner that is no candidate, the most
    candidates of a row, and the entries of a row.

    A candidate is an entry that differs from the winner by at most CANDIDATE_DEVIATIONS of their difference. An entry
    deviates by the effect of rounding on it, and at least by the mean of all; where the measured error of the row is
    larger than rounding explains, by proportionally more.
    """
    if ours.ndim < 2 or ours[0].size < 2 or not np.isfinite(reference).all():
        return 0, 0, 0, 0, 0
    rows, mean = len(ours), floor / reference.size**0.5
    exact = reference.reshape(rows, -1)
    mine = exact + difference(ours.reshape(rows, -1), exact)
    size = exact.shape[1] ** 0.5
    measured = np.linalg.norm(difference(mine, exact), axis=1, keepdims=True) / size
    moves = np.abs(moved.reshape(rows, -1))
    scale = np.maximum(1.0, measured / mean) if mean else np.zeros((rows, 1))
    deviation = np.maximum(np.maximum(moves, mean) * scale, 0 if mean else measured)
    every, winner = np.arange(rows), exact.argmax(axis=1)
    of_both = np.sqrt(np.square(deviation) + np.square(deviation[every, winner])[:, None])
    candidates = exact[every, winner][:, None] - exact <= CANDIDATE_DEVIATIONS * of_both
    candidates[every, winner] = True
    found = mine.argmax(axis=1)
    same, wrong = exact[every, found] == exact[every, winner], ~candidates[every, found]
    return rows, int(same.sum()), int(wrong.sum()), int(candidates.sum(axis=1).max()), exact.shape[1]


def sample_points(shape: tuple[int, ...], count: int, random: np.random.Generator) -> Points:
    """Positions in a tensor [S, rank]: all of a small one, otherwise `count` that hit every channel and favour borders.

    The last axis is walked in order (at least once in full); the others are drawn, a quarter of the time at one of
    their ends, where padding acts.
    """
    size = int(np.prod(shape, dtype=np.int64))
    if size <= count:
        return np.stack(np.unravel_index(np.arange(size), shape), axis=1) if shape else np.zeros((1, 0), np.intp)
    samples = max(count, shape[-1])
    columns = [_drawn(extent, samples, random) for extent in shape[:-1]]
    return np.stack([*columns, np.arange(samples, dtype=np.intp) % shape[-1]], axis=1)


def _drawn(extent: int, samples: int, random: np.random.Generator) -> Points:
    inside = random.integers(0, extent, samples)
    ends = random.integers(0, 2, samples) * (extent - 1)
    return np.where(random.integers(0, 4, samples) == 0, ends, inside).astype(np.intp)


def first_difference(ours: bytes, expected: bytes) -> tuple[int, int]:
    """Number of bytes that differ, and the position of the first of them (-1 for none). Both have the same length."""
    if ours == expected:
        return 0, -1
    different = np.flatnonzero(np.frombuffer(ours, np.uint8) != np.frombuffer(expected, np.uint8))
    return len(different), int(different[0])
