"""The verdicts of `verify`, as plain arithmetic on arrays: errors, logits, samples, bytes.

Bounds. A layer fed with the reference's inputs: relative L2 error at most 1.5e-2. Logits of the whole network: error at
most a tenth of the distance between the reference's outputs for two different inputs, so that a network whose output
hardly depends on its input is held to a hard bound. Samples of each layer: bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "LAYER_BOUND",
    "LOGITS_SHARE_BOUND",
    "LogitsResult",
    "first_difference",
    "judge_logits",
    "relative_error",
    "sample_points",
]

LAYER_BOUND = 1.5e-2
LOGITS_SHARE_BOUND = 0.1

Array = npt.NDArray[np.generic]
Points = npt.NDArray[np.intp]


def relative_error(ours: Array, reference: Array) -> float:
    """L2 norm of the difference over that of the reference, among the values that are finite in the reference.

    Infinite where ours should be zero, where ours is not finite and the reference is, and where the reference is NaN or
    an infinity and ours is not the same there."""
    mine, theirs = ours.astype(np.float64).reshape(-1), reference.astype(np.float64).reshape(-1)
    finite = np.isfinite(theirs)
    if not np.isfinite(mine[finite]).all() or not np.array_equal(mine[~finite], theirs[~finite], equal_nan=True):
        return float("inf")
    mine, theirs = mine[finite], theirs[finite]
    difference, norm = float(np.linalg.norm(mine - theirs)), float(np.linalg.norm(theirs))
    if difference == 0:
        return 0.0
    return difference / norm if norm else float("inf")


@dataclass(frozen=True, slots=True)
class LogitsResult:
    """One tensor for one input. `top1_active` of `rows` rows have a margin in the reference above our error there."""

    tensor: str
    input: int
    error: float
    distance: float
    rows: int
    top1_active: int
    top1_wrong: int

    @property
    def share(self) -> float:
        """Error over distance; the bound is LOGITS_SHARE_BOUND."""
        if self.error == 0:
            return 0.0
        return self.error / self.distance if self.distance else float("inf")

    @property
    def passed(self) -> bool:
        return self.share <= LOGITS_SHARE_BOUND and self.top1_wrong == 0


def judge_logits(tensor: str, ours: tuple[Array, ...], reference: tuple[Array, ...]) -> tuple[LogitsResult, ...]:
    """One result for each input; the distance is that to the nearest other input's reference."""
    theirs = [array.astype(np.float64) for array in reference]
    results = []
    for position, (mine, exact) in enumerate(zip(ours, theirs, strict=True)):
        others = [float(np.linalg.norm(exact - other)) for k, other in enumerate(theirs) if k != position]
        error = float(np.linalg.norm(mine.astype(np.float64) - exact))
        rows, active, wrong = _top1(mine.astype(np.float64), exact)
        error = error if np.isfinite(error) else float("inf")
        results.append(LogitsResult(tensor, position, error, min(others, default=0.0), rows, active, wrong))
    return tuple(results)


def _top1(ours: npt.NDArray[np.float64], reference: npt.NDArray[np.float64]) -> tuple[int, int, int]:
    """Rows (one a picture), rows whose margin exceeds the largest error, and those of them with another winner."""
    if ours.ndim < 2 or ours[0].size < 2:
        return 0, 0, 0
    mine, exact = ours.reshape(len(ours), -1), reference.reshape(len(reference), -1)
    top = np.sort(exact, axis=1)
    error = np.abs(mine - exact).max(axis=1)
    active = top[:, -1] - top[:, -2] > error
    wrong = active & (mine.argmax(axis=1) != exact.argmax(axis=1))
    return len(ours), int(active.sum()), int(wrong.sum())


def sample_points(shape: tuple[int, ...], count: int, random: np.random.Generator) -> Points:
    """Positions in a tensor [S, rank]: all of a small one, else `count` that hit every channel and favour borders.

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
    """How many bytes differ, and where the first of them is (-1 for none). Equal lengths."""
    if ours == expected:
        return 0, -1
    different = np.flatnonzero(np.frombuffer(ours, np.uint8) != np.frombuffer(expected, np.uint8))
    return len(different), int(different[0])
