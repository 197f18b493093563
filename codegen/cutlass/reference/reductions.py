"""Reductions along axes, which stay with one element: sums, means, maxima, and two of norms that are taken apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from codegen.cutlass.reference.evaluated import Evaluated, monotone, off, rounded
from codegen.cutlass.reference.lines import along_lines, as_column, mean_of
from codegen.cutlass.reference.operands import RuleInputs
from codegen.cutlass.reference.sums import plain_sum
from codegen.judgement import Doubles
from partitioner.ir.graph import Op

LEAST_SIZE, LARGEST_SIZE, WANTED_SIZE = 2.0**-9, 65504.0, 64.0
"""Of a line: it is held between the first two; the power of two is what takes it to the third."""


def reduction(asked: RuleInputs) -> Evaluated:
    rule = RULES[asked.op.kind]
    return along_lines(asked.tensor(), asked.op.ints("axes"), asked.points, lambda lines: rule(asked.op, lines))


def _nearest(lines: Doubles) -> Doubles:
    """Of the span of a line the number nearest to zero: it rises with every element."""
    low, high = lines.min(1, keepdims=True), lines.max(1, keepdims=True)
    return np.asarray(np.maximum(low, 0) + np.minimum(high, 0))


def _power_of_line(op: Op, lines: Evaluated) -> Evaluated:
    """64 over the power of two at or above the largest |x|, or |x - nearest|, of a line. It is a step: just above and
    just below a power of two it may be either, unless the difference is a number of fp32."""
    if op.number("centred"):
        exact = monotone(np.subtract, lines, monotone(_nearest, lines))
        whole = (exact.error == 0) & (off(exact.numbers.astype(np.float32).astype(np.float64), exact.numbers) == 0)
        near = rounded(exact)
        lines = Evaluated(near.numbers, np.where(whole, 0.0, near.error))
    sizes = Evaluated(np.abs(lines.numbers), lines.error)
    return monotone(lambda x: _step(x.max(1, keepdims=True)), sizes)


def _step(size: Doubles) -> Doubles:
    fraction, exponent = np.frexp(np.clip(size, LEAST_SIZE, LARGEST_SIZE))
    power = WANTED_SIZE / np.ldexp(1.0, np.where(fraction == 0.5, exponent - 1, exponent))
    return np.where(np.isnan(size), np.nan, power)


RULES: Mapping[str, Callable[[Op, Evaluated], Evaluated]] = {
    "reduce_sum": lambda _, x: as_column(plain_sum(x)),
    "reduce_mean": lambda _, x: mean_of(x),
    "reduce_max": lambda _, x: monotone(lambda lines: lines.max(1, keepdims=True), x),
    "reduce_nearest": lambda _, x: monotone(_nearest, x),
    "reduce_power": _power_of_line,
}
"""Lines [U, L] to one number each, [U, 1]."""
