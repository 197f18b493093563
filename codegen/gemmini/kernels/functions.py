"""Functions of one number on the core, as steps in float32.

    erf    x P(x * x) / Q(x * x) of x between -4 and 4, at last between -1 and 1
    tanh   the same of x between -8.5 and 8.5, with other coefficients
    exp    2^n p(r): n the nearest integer to x / ln 2, p a polynomial of degree 6 in the rest r

Polynomials begin with the coefficient of the highest power: times x, plus the next one. Coefficients of the quotients
are a fit to least relative error, which is 3.6e-7 with all roundings for erf and 3.5e-7 for tanh. The emulation does
the same steps in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import factorial
from typing import Protocol

from partitioner.ir.graph import Op


class StepMaker(Protocol):
    """A chain of steps that is being made."""

    def number(self, value: float) -> object:
        """A constant."""

    def step(self, kind: str, left: object, right: object) -> object:
        """What a step makes of two values."""

    def operand(self, name: str) -> object:
        """The element of a tensor."""


LOG2_E = 1.44269504
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
"""ln 2 in two parts, of which products by whole numbers below 2^15 of the first are exact."""

EXP_TERMS = tuple(1.0 / factorial(n) for n in range(6, -1, -1))

LEAST, MOST = -104.0, 89.0
"""Operands of exp outside of these give 0 and infinity, as these do."""

ERF = (
    4.0,
    (1.98676231e-06, 0.000284567546, 0.00388343305, 0.0531020234, 0.193547194, 1.12837914),
    (3.74200508e-05, 0.00118559197, 0.0152074312, 0.115350877, 0.504859289, 1.0),
)
TANH = (
    8.5,
    (1.42691915e-08, 2.12510172e-05, 0.00353402517, 0.134132455, 0.999999988),
    (8.14510827e-07, 0.000334886207, 0.0260227449, 0.467465682, 1.0),
)
"""Where the quotient ends, then the coefficients of P and of Q, of the highest power first."""


def polynomial(chain: StepMaker, x: object, coefficients: Sequence[float]) -> object:
    """StepMaker of a polynomial, of the highest power's coefficient first."""
    made = chain.number(coefficients[0])
    for coefficient in coefficients[1:]:
        made = chain.step("add", chain.step("multiply", made, x), chain.number(coefficient))
    return made


def reduced(chain: StepMaker, t: object) -> tuple[object, object]:
    """The nearest integer n to t / ln 2, and the polynomial of the rest: exp(t) is 2^n times that."""
    n = chain.step("nearest", (scaled := chain.step("multiply", t, chain.number(LOG2_E))), scaled)
    for part in (LN2_HIGH, LN2_LOW):
        t = chain.step("subtract", t, chain.step("multiply", n, chain.number(part)))
    return n, polynomial(chain, t, EXP_TERMS)


def _exp(chain: StepMaker, x: object, op: Op) -> object:
    """By two powers of two, since n may lie outside of those of one float32."""
    del op
    t = _between(chain, x, LEAST, MOST)
    n, p = reduced(chain, t)
    half = chain.step("nearest", (part := chain.step("multiply", n, chain.number(0.5))), part)
    rest = chain.step("subtract", n, half)
    return chain.step("multiply", chain.step("multiply", p, chain.step("power", half, half)),
                      chain.step("power", rest, rest))  # fmt: skip


def _between(chain: StepMaker, x: object, low: float, high: float) -> object:
    return chain.step("smaller", chain.step("larger", x, chain.number(low)), chain.number(high))


def _quotient(chain: StepMaker, x: object, fitted: tuple[float, Sequence[float], Sequence[float]]) -> object:
    """x P(x * x) / Q(x * x)."""
    end, above, below = fitted
    x = _between(chain, x, -end, end)
    square = chain.step("multiply", x, x)
    top = chain.step("multiply", x, polynomial(chain, square, above))
    return _between(chain, chain.step("divide", top, polynomial(chain, square, below)), -1.0, 1.0)


def _sigmoid(chain: StepMaker, x: object, op: Op) -> object:
    """1 / (1 + exp(-x))."""
    made = _exp(chain, chain.step("multiply", x, chain.number(-1.0)), op)
    return chain.step("divide", chain.number(1.0), chain.step("add", made, chain.number(1.0)))


def _leaky(chain: StepMaker, x: object, op: Op) -> object:
    below = chain.step("multiply", chain.step("smaller", x, chain.number(0.0)), chain.number(op.number("alpha")))
    return chain.step("add", chain.step("larger", x, chain.number(0.0)), below)


def _hard_sigmoid(chain: StepMaker, x: object, op: Op) -> object:
    line = chain.step("multiply", x, chain.number(op.number("alpha")))
    return _between(chain, chain.step("add", line, chain.number(op.number("beta"))), 0.0, 1.0)


def _hard_swish(chain: StepMaker, x: object, op: Op) -> object:
    """x times x / 6 + 0.5 between 0 and 1."""
    del op
    line = chain.step("add", chain.step("multiply", x, chain.number(1.0 / 6.0)), chain.number(0.5))
    return chain.step("multiply", x, _between(chain, line, 0.0, 1.0))


def _scale_shift(chain: StepMaker, x: object, op: Op) -> object:
    return chain.step("add", chain.step("multiply", x, chain.operand(op.inputs[1])), chain.operand(op.inputs[2]))


FUNCTIONS: Mapping[str, Callable[[StepMaker, object, Op], object]] = {
    "neg": lambda chain, x, _: chain.step("multiply", x, chain.number(-1.0)),
    "abs": lambda chain, x, _: chain.step("larger", x, chain.step("multiply", x, chain.number(-1.0))),
    "sqrt": lambda chain, x, _: chain.step("root", x, x),
    "reciprocal": lambda chain, x, _: chain.step("divide", chain.number(1.0), x),
    "exp": _exp,
    "erf": lambda chain, x, _: _quotient(chain, x, ERF),
    "tanh": lambda chain, x, _: _quotient(chain, x, TANH),
    "sigmoid": _sigmoid,
    "leaky_relu": _leaky,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "scale_shift": _scale_shift,
}
"""StepMaker of each kind of operator, from the element of its first operand."""
