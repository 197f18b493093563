"""Functions of one number as the core must have computed them: numpy in float32, each step rounded to the nearest.

    kind, elements of the operand, attributes  -->  elements of the result

Formulas and coefficients are written here once more, so that they can disagree with those of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Op

Floats = npt.NDArray[np.float32]
F = np.float32
ONE, ZERO = F(1), F(0)

_ERF = (
    (1.12837914, 0.193547194, 0.0531020234, 0.00388343305, 0.000284567546, 1.98676231e-06),
    (1.0, 0.504859289, 0.115350877, 0.0152074312, 0.00118559197, 3.74200508e-05),
)
_TANH = (
    (0.999999988, 0.134132455, 0.00353402517, 2.12510172e-05, 1.42691915e-08),
    (1.0, 0.467465682, 0.0260227449, 0.000334886207, 8.14510827e-07),
)
"""Coefficients of P and Q, the constant one first."""


def exponential_parts(t: Floats) -> tuple[Floats, Floats]:
    """n, the nearest whole number to t / ln 2, and the polynomial of what is left: exp(t) is 2^n times that."""
    per_ln2, high, low = (F(number) for number in (1.44269504, 0.693359375, -2.12194440e-4))
    n = np.rint(t * per_ln2)
    t = (t - n * high) - n * low
    factors = [F(1.0 / each) for each in (720, 120, 24, 6, 2, 1, 1)]
    p = np.full_like(t, factors[0])
    for factor in factors[1:]:
        p = p * t + factor
    return n, p


def power_of_two(n: Floats) -> Floats:
    return np.asarray(np.ldexp(ONE, n.astype(np.int32)), np.float32)


def _exp(x: Floats) -> Floats:
    n, p = exponential_parts(np.minimum(np.maximum(x, F(-104)), F(89)))
    half = np.rint(n * F(0.5))
    with np.errstate(over="ignore", under="ignore"):  # infinite, or no normal number
        return np.asarray(p * power_of_two(half) * power_of_two(n - half), np.float32)


def _quotient(x: Floats, end: float, both: tuple[tuple[float, ...], tuple[float, ...]]) -> Floats:
    x = np.minimum(np.maximum(x, F(-end)), F(end))
    square = x * x
    above, below = (np.full_like(x, F(coefficients[-1])) for coefficients in both)
    for coefficient in both[0][-2::-1]:
        above = above * square + F(coefficient)
    for coefficient in both[1][-2::-1]:
        below = below * square + F(coefficient)
    return np.asarray(np.minimum(np.maximum(x * above / below, -ONE), ONE))


def _between(x: Floats) -> Floats:
    return np.minimum(np.maximum(x, ZERO), ONE)


def _leaky(x: Floats, op: Op) -> Floats:
    return np.maximum(x, ZERO) + np.minimum(x, ZERO) * F(op.number("alpha"))


FUNCTIONS: Mapping[str, Callable[[Floats, Op], Floats]] = {
    "neg": lambda x, _: -x,
    "abs": lambda x, _: np.abs(x),
    "sqrt": lambda x, _: np.sqrt(x),
    "reciprocal": lambda x, _: np.asarray(ONE / x),
    "exp": lambda x, _: _exp(x),
    "erf": lambda x, _: _quotient(x, 4.0, _ERF),
    "tanh": lambda x, _: _quotient(x, 8.5, _TANH),
    "sigmoid": lambda x, _: np.asarray(ONE / (_exp(-x) + ONE)),
    "leaky_relu": _leaky,
    "hard_sigmoid": lambda x, op: _between(x * F(op.number("alpha")) + F(op.number("beta"))),
    "hard_swish": lambda x, _: x * _between(x * F(1.0 / 6.0) + F(0.5)),
}
"""What each kind of operator makes of elements of its operand."""
