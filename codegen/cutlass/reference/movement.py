"""Operators that compute nothing: each point of the result is an element of an input, or a constant number.

Bits are moved, so nothing is rounded; the error of an element moves with it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codegen.cutlass.reference.evaluated import Evaluated
from codegen.cutlass.reference.operands import RuleInputs
from codegen.judgement import Points


def moved(places: Callable[[RuleInputs], Points]) -> Callable[[RuleInputs], Evaluated]:
    """The rule that reads the first input at the positions [S, rank] that `places` returns."""
    return lambda asked: asked.tensor().at(*places(asked).T)


def transpose(asked: RuleInputs) -> Points:
    """Transpose: axis i of the result is axis perm[i] of the input."""
    places = np.empty_like(asked.points)
    places[:, list(asked.op.ints("perm"))] = asked.points
    return places


def slice_(asked: RuleInputs) -> Points:
    """Slice: position p reads the input at starts + steps * p."""
    return np.asarray(np.array(asked.op.ints("starts")) + asked.points * np.array(asked.op.ints("steps")))


def take(asked: RuleInputs) -> Points:
    """Take: position p of the axis reads the input at indices[p]."""
    axis, places = int(asked.op.number("axis")), asked.points.copy()
    places[:, axis] = np.array(asked.op.ints("indices"))[asked.points[:, axis]]
    return places


def gather(asked: RuleInputs) -> Points:
    """Gather: like `take`, but by an input of indices, whose axes replace the axis; negative indices count from the
    end."""
    axis, points = int(asked.op.number("axis")), asked.points
    indices, extents = asked.tensor(1).values, asked.tensor(0).values.shape
    after = axis + indices.ndim
    chosen = indices[tuple(points[:, axis:after].T)].astype(np.int64) % extents[axis]
    return np.asarray(np.concatenate([points[:, :axis], chosen[:, None], points[:, after:]], 1))


def view(asked: RuleInputs) -> Evaluated:
    """View: the input's elements in unchanged linear order."""
    linear = np.zeros(len(asked.points), np.int64)
    for axis, extent in enumerate(asked.shape):
        linear = linear * extent + asked.points[:, axis]
    return asked.tensor().each(lambda array: array.reshape(-1)).at(linear)


def pad(asked: RuleInputs) -> Evaluated:
    """Pad: position p reads the input at p - begins, and gives the value outside of it."""
    x = asked.tensor()
    places = asked.points - np.array(asked.op.ints("begins"))
    extents = np.array(x.values.shape)
    inside = np.all((places >= 0) & (places < extents), 1)
    found = x.at(*np.clip(places, 0, extents - 1).T)
    numbers = np.where(inside, found.numbers, asked.op.number("value"))
    return Evaluated(numbers, np.where(inside, found.error, 0.0))


def concat(asked: RuleInputs) -> Evaluated:
    """Concat: the inputs one after the other along an axis."""
    axis = int(asked.op.number("axis")) % len(asked.shape)
    numbers, errors = np.zeros((2, len(asked.points)))
    start = 0
    for position in range(len(asked.op.inputs)):
        piece = asked.tensor(position)
        end = start + piece.values.shape[axis]
        here = (asked.points[:, axis] >= start) & (asked.points[:, axis] < end)
        places = asked.points[here].copy()
        places[:, axis] -= start
        found = piece.at(*places.T)
        numbers[here], errors[here] = found.numbers, found.error
        start = end
    return Evaluated(numbers, errors)
