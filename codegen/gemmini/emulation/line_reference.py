"""Lines as the core must have computed them: sums, means and maxima along axes, and norms, in numpy's float32.

    whole operand [..] + positions [S, rank] of the result  -->  elements there [S]

Sums go through a line one element after the other, from zero on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from codegen.judgement import Points
from partitioner.ir.graph import Op

Floats = npt.NDArray[np.float32]


def summed(terms: Floats) -> Floats:
    """Sums [S] of rows [S, k], from the first element to the last."""
    total = np.zeros(len(terms), np.float32)
    for column in terms.T:
        total = total + column
    return total


def lines_of(x: Floats, axes: Sequence[int], points: Points) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The lines along some axes that the positions meet, as rows [S, k], and the place of each position in its line."""
    others = [axis for axis in range(x.ndim) if axis not in axes]
    rows = x.transpose([*others, *axes])[tuple(points[:, others].T)]
    place = np.zeros(len(points), np.int64)
    for axis in axes:
        place = place * x.shape[axis] + points[:, axis]
    return rows.reshape(len(points), -1), place


def reduced(op: Op, x: Floats, points: Points) -> Floats:
    """Elements of a sum, a mean or a maximum; the axes stay, with one element."""
    rows, _ = lines_of(x, op.ints("axes"), points)
    if op.kind == "reduce_max":
        return np.asarray(rows.max(axis=1))
    total = summed(rows)
    return total * np.float32(1.0 / rows.shape[1]) if op.kind == "reduce_mean" else total


def normalised(op: Op, x: Floats, points: Points) -> Floats:
    """Elements of a norm of lines."""
    rows, place = lines_of(x, op.ints("axes"), points)
    rate = np.float32(1.0 / rows.shape[1])
    if op.number("centred"):
        rows = rows - (summed(rows) * rate)[:, None]
    power = summed(rows * rows) * rate + np.float32(op.number("epsilon"))
    return np.asarray(rows[np.arange(len(rows)), place] * (np.float32(1) / np.sqrt(power)))
