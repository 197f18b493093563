"""Maxima and means of windows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codegen.cutlass.reference.evaluated import Evaluated, divide, monotone
from codegen.cutlass.reference.operands import RuleInputs
from codegen.cutlass.reference.sums import pieces, plain_sum
from codegen.cutlass.reference.windows import WindowAttributes, window_of
from codegen.judgement import Doubles, Points


def max_pool(asked: RuleInputs) -> Evaluated:
    """Of what there is; NaN if any is."""
    return _windowed(asked, -np.inf, lambda taps, _window, _points: monotone(_largest, taps))


def _largest(taps: Doubles) -> Doubles:
    return np.asarray(taps.max(-1))


def average_pool(asked: RuleInputs) -> Evaluated:
    """The sum over the number of taps in the map, with `count_include_pad` of those in the padding too. Windows where
    nothing counts are 0."""
    padding = bool(asked.op.number("count_include_pad"))
    extents = asked.sampled.graph.by_name[asked.op.inputs[0]].shape[1:-1]

    def mean(taps: Evaluated, window: WindowAttributes, points: Points) -> Evaluated:
        counted = np.maximum(window.inside(points, extents, padding).sum(1), 1).astype(np.float64)
        return divide(plain_sum(taps), Evaluated(counted, np.zeros(len(counted))))

    return _windowed(asked, 0.0, mean)


def _windowed(
    asked: RuleInputs, outside: float, reduce: Callable[[Evaluated, WindowAttributes, Points], Evaluated]
) -> Evaluated:
    """`reduce` of the taps [P, taps] of each point, some points at a time."""
    x, window = asked.tensor(0), window_of(asked.op)
    numbers, errors = np.empty((2, len(asked.points)))
    for piece in pieces(len(asked.points), window.taps):
        points = asked.points[piece]
        taps = window.gather(x, points, points[:, -1:], outside).at(..., 0)
        found = reduce(taps, window, points)
        numbers[piece], errors[piece] = found.numbers, found.error
    return Evaluated(numbers, errors)
