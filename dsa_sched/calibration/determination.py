"""Which numbers a set of measurements determines, by the Jacobian of its residuals.

    Jacobian [residuals, numbers], numbers in order of preference --determine--> standard errors, reasons for the others

A number whose column is zero was not measured. One whose column follows from others was measured only together with
them. Columns are taken in order, so that numbers that may give way come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

SMALLEST = 1e-9
"""Share of the largest singular value below which one counts as zero."""

APART = 0.5
"""Share of a column's length that is left of it where it does not follow from others."""

PART = 0.2
"""Least share of a column that a number named as its partner explains."""


@dataclass(frozen=True, slots=True)
class Determination:
    """`errors` are standard errors of the determined numbers, in their own units, by position; `partners` of each other
    number are the positions of those with which it was measured together, none where it was not measured.
    `condition` is the ratio of the largest and the smallest singular value of the scaled columns of the determined
    ones."""

    errors: dict[int, float]
    partners: dict[int, tuple[int, ...]]
    condition: float


def determine(jacobian: Matrix, order: Sequence[int], largest_errors: Sequence[float]) -> Determination:
    """Take the columns in this order, which need not have all; residuals have a standard deviation of 1. A number with
    which an error would be larger than `largest_errors` says is not determined."""
    lengths = np.linalg.norm(jacobian, axis=0)
    taken: list[int] = []
    for number in order:
        if lengths[number] > 0.0:
            errors = _errors(jacobian, lengths, [*taken, number])
            if all(error <= largest_errors[each] for each, error in errors.items()):
                taken.append(number)
    others = [number for number in range(len(lengths)) if number not in taken]
    partners = {number: _partners(jacobian, lengths, number, taken) for number in others}
    if not taken:
        return Determination({}, partners, 1.0)
    values = np.linalg.svd(jacobian[:, taken] / lengths[taken], compute_uv=False)
    return Determination(_errors(jacobian, lengths, taken), partners, float(values[0] / values[-1]))


def _partners(jacobian: Matrix, lengths: Matrix, number: int, taken: list[int]) -> tuple[int, ...]:
    """Those of the taken numbers from whose columns that of another number follows for the most part."""
    if not lengths[number] or not taken:
        return ()
    column, scaled = jacobian[:, number] / lengths[number], jacobian[:, taken] / lengths[taken]
    shares = np.linalg.lstsq(scaled, column, rcond=None)[0]
    if np.linalg.norm(column - scaled @ shares) > APART:
        return ()
    return tuple(each for each, share in zip(taken, shares, strict=True) if abs(share) > PART)


def _errors(jacobian: Matrix, lengths: Matrix, numbers: list[int]) -> dict[int, float]:
    """Standard errors of these numbers, if all others are known; infinite where columns follow from each other."""
    scaled = jacobian[:, numbers] / lengths[numbers]
    _, values, directions = np.linalg.svd(scaled, full_matrices=False)
    known = values > SMALLEST * values[0]
    spread = np.sqrt(np.sum((directions[known] / values[known, None]) ** 2, axis=0)) / lengths[numbers]
    free = np.any(np.abs(directions[~known]) > SMALLEST, axis=0)
    return {n: inf if loose else float(error) for n, error, loose in zip(numbers, spread, free, strict=True)}
