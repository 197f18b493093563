"""Operators along whole lines: softmax and norms, and the lines through given points.

    points [S, rank]  -->  the lines through them, each once: [U, L]  -->  results [U, L or 1]  -->  [S]

A softmax subtracts the largest of its line before the exponential; a variance is the mean of squared differences from
the mean, not a difference of means. Kernels that do otherwise lose digits, for which the error here leaves no room.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codegen.cutlass.reference.evaluated import (
    ARGUMENT_UNITS,
    ELEMENTARY_UNITS,
    LEAST,
    UNIT,
    Evaluated,
    Stored,
    add,
    divide,
    immediate,
    monotone,
    mul,
    off,
    rounded,
)
from codegen.cutlass.reference.operands import RuleInputs
from codegen.cutlass.reference.sums import pieces, plain_sum
from codegen.judgement import Points

LineRule = Callable[[Evaluated], Evaluated]
"""Rule for lines [U, L]: results for each element, or one per line, [U, 1]."""


def along_lines(x: Stored, axes: tuple[int, ...], points: Points, rule: LineRule) -> Evaluated:
    """Results of a rule on the lines of x along `axes`, at points of a result that has all axes of x."""
    shape = x.values.shape
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    number, line_extents = _number(points, kept, shape), tuple(shape[axis] for axis in kept)
    place = _number(points, axes, shape)
    moved = x.moved((*kept, *axes))
    lines, line = np.unique(number, return_inverse=True)
    length = int(np.prod([shape[axis] for axis in axes]))
    numbers, errors = np.empty((2, len(points)))
    for piece in pieces(len(lines), length):
        some = lines[piece]
        rows = moved.at(*(np.unravel_index(some, line_extents) if kept else ()))
        here = (line >= piece.start) & (line < piece.stop)
        found = rule(Evaluated(rows.numbers.reshape(len(some), length), rows.error.reshape(len(some), length)))
        where = (line[here] - piece.start, place[here] if found.numbers.shape[1] > 1 else 0)
        numbers[here], errors[here] = found.numbers[where], found.error[where]
    return Evaluated(numbers, errors)


def _number(points: Points, axes: tuple[int, ...], shape: tuple[int, ...]) -> Points:
    """The linear position along some of the axes."""
    number = np.zeros(len(points), np.int64)
    for axis in axes:
        number = number * shape[axis] + points[:, axis]
    return number


def mean_of(lines: Evaluated) -> Evaluated:
    """Mean of each line, [U, 1]: its sum over its length."""
    total = divide(plain_sum(lines), immediate(float(lines.numbers.shape[1])))
    return as_column(total)


def softmax(asked: RuleInputs) -> Evaluated:
    axis = int(asked.op.number("axis")) % len(asked.shape)
    return along_lines(asked.tensor(), (axis,), asked.points, _softmax)


def softmax_interval(x: Evaluated) -> Evaluated:
    """Shares of lines, and how far they may be off for the errors of x alone: a share grows with its own element and
    falls with all others."""
    largest = x.numbers.max(1, keepdims=True)
    powers = np.exp(x.numbers - largest)
    total = powers.sum(1, keepdims=True)
    numbers = powers / total
    error = np.zeros(numbers.shape)
    if x.error.any():
        high, low = np.exp(x.numbers + x.error - largest), np.exp(x.numbers - x.error - largest)
        most = high / (high + (low.sum(1, keepdims=True) - low))
        least = low / (low + (high.sum(1, keepdims=True) - high))
        error = np.maximum(off(most, numbers), off(least, numbers))
    return Evaluated(numbers, error)


def _softmax(x: Evaluated) -> Evaluated:
    """Softmax. The errors of its powers are their rounding and that of their arguments: x and the largest of the line
    may each be multiplied by log2(e) before the subtraction. The sum adds one unit per term."""
    shares = softmax_interval(x)
    numbers, error, largest = shares.numbers, shares.error, x.numbers.max(1, keepdims=True)
    powers = np.exp(x.numbers - largest)
    arguments = np.where(np.isfinite(x.numbers), x.sizes + np.abs(largest), 0.0)
    each = ELEMENTARY_UNITS + ARGUMENT_UNITS * arguments
    summed = (powers * each).sum(1, keepdims=True) / powers.sum(1, keepdims=True) + numbers.shape[1]
    rounding = UNIT * (each + summed + ELEMENTARY_UNITS) * (numbers + error) + LEAST
    return _certain(Evaluated(numbers, error + rounding), x)


def _certain(found: Evaluated, lines: Evaluated) -> Evaluated:
    """Mark infinities and NaN as certain in lines without any error; otherwise any value may take their place."""
    known = np.where(lines.error.any(1, keepdims=True), np.inf, 0.0)
    error = np.where(np.isfinite(found.numbers), found.error, known)
    return Evaluated(found.numbers, np.where(np.isnan(error), np.inf, error))


def layer_norm(asked: RuleInputs) -> Evaluated:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias."""
    return _affine(asked, lambda x, epsilon: _over_root(*_centred(x), epsilon))


def rms_norm(asked: RuleInputs) -> Evaluated:
    """x / sqrt(mean of squares + epsilon) * scale."""
    return _affine(asked, lambda x, epsilon: _over_root(x, mean_of(mul(x, x)), epsilon))


def _affine(asked: RuleInputs, normalised: Callable[[Evaluated, float], Evaluated]) -> Evaluated:
    epsilon = asked.op.number("epsilon")

    def rule(lines: Evaluated) -> Evaluated:
        return _certain(normalised(lines, epsilon), lines)

    result = along_lines(asked.tensor(), asked.op.ints("axes"), asked.points, rule)
    for position, combine in ((1, mul), (2, add)):
        if position < len(asked.op.inputs):
            result = combine(result, asked.operand(position))
    return result


def _centred(x: Evaluated) -> tuple[Evaluated, Evaluated]:
    """x minus its mean, and the variance. An error of the mean moves all elements alike: it adds only its square to the
    mean of squares, because the differences from the true mean sum to zero."""
    mean = mean_of(x)
    difference = x.numbers - mean.numbers
    own = x.error + UNIT * (np.abs(difference) + x.error + mean.error)
    centred = Evaluated(difference, own + mean.error)
    squares = np.square(difference)
    error = (2 * np.abs(difference) * own + np.square(own + mean.error)).mean(1)
    terms = x.numbers.shape[1] + ELEMENTARY_UNITS  # a square, and the division by the length
    variance = Evaluated(squares.mean(1), error + terms * UNIT * np.square(centred.sizes).mean(1))
    return centred, as_column(variance)


def _over_root(x: Evaluated, power: Evaluated, epsilon: float) -> Evaluated:
    """x over the root of power + epsilon. No mean of squares is negative, whatever its error."""
    least = epsilon * (1 - 2 * UNIT)
    root = monotone(lambda v: np.sqrt(np.maximum(v, least)), add(power, immediate(epsilon)))
    return divide(x, rounded(root, ELEMENTARY_UNITS))


def as_column(x: Evaluated) -> Evaluated:
    """Reshape [U] to [U, 1]."""
    return Evaluated(x.numbers[:, None], x.error[:, None])
