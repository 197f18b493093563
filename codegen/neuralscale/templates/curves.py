"""Functions of one operand that the vector engine computes in several passes: the list of steps (`steps.py`) of each
kind.

    gelu        max(x, 0) - w * exp(P(w) + (v - w) * (v + w) / 2) * exp(-v * v / 2), w = |x|, v = w rounded to eighths
    erf         c + c * (s * P(s) + A - exp(Q(w))), c = x between -1 and 1, s = c^2, w = max(|x|, 1)
    mish        c * E * r / K + x - c, c = min(x, 9/2), E = exp(c + 5/2), K = exp(5/2), e = E / K,
                r = (e + 2) / (e * (e + 2) + 2)
    sqrt        G(max(x, 1)) * G(min(x, 1) * 2^10) / 32, G(v) = s - (s * s - v) / (2 * s), s the chip's own
    reciprocal  R(max(|x|, 2^-14)) * R(x * 2^14 between -1 and 1), R(v) = r - r * (v * r - 1), r the chip's own
    hard_swish  x * (min(max(x + 3, 0), 6) / 6)

Functions that need only an exponential are in `exponentials.py`, which says how small results stay precise and
functions monotone. The exponent of gelu is taken in two parts, of which the larger is exact: fp16 holds numbers near 10
only to 1/256. For operands that are not normal numbers the chip's root is wrong and its reciprocal infinite, and
neither is monotone. So each operand is split into two normal factors, one of which is 1; the result is the product of
the factors' roots or reciprocals, each refined by one Newton step. 1 / 0 is infinite because a number is added first
that changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from codegen.neuralscale.templates import exponentials
from codegen.neuralscale.templates.exponentials import EIGHTHS
from codegen.neuralscale.templates.steps import VectorStep, polynomial, refined_reciprocal
from partitioner.ir.graph import Op
from partitioner.ir.operators import OPERATOR_TABLE

GELU = {
    "none": (-0.69384765625, -0.7900390625, 0.165771484375, -0.024993896484375, 0.0017223358154296875),
    "tanh": (-0.69482421875, -0.78173828125, 0.1417236328125, -0.0014734268188476562, -0.00507354736328125),
}
"""Coefficients of P by the value of ONNX's attribute `approximate`: the logarithm of the normal distribution's tail at
w, plus w^2 / 2."""

GELU_END = 6.0
"""Magnitude from which the result is x or 0."""

ERF = (-0.37548828125, 0.1082763671875, -0.0186309814453125)
ERF_END = 0.28564453125
ERF_TAIL = (-0.0958251953125, -0.875, -0.87939453125)
"""P, A and Q; the last is the logarithm of 1 - erf beyond 1."""

MISH_END = 4.5
"""Operand from which x itself is as near as the formula; the square of a larger e^x would leave the range."""
MISH_SHIFT, MISH_POWER = 2.5, 12.1875

LEAST, NORMAL, LARGEST = 2.0**-24, 2.0**-14, 65504.0
LARGEST_ROOT = 255.875


def _gelu(op: Op) -> tuple[VectorStep, ...]:
    return (
        VectorStep("w", "velkrelu", "x", -1.0),
        VectorStep("w", "vemin", "w", GELU_END),
        VectorStep("v", "veadd", "w", EIGHTHS),
        VectorStep("v", "veadd", "v", -EIGHTHS),
        VectorStep("d", "vesub", "v", "w"),
        VectorStep("t", "veadd", "w", "v"),
        VectorStep("d", "veemul", "d", "t"),
        VectorStep("d", "veemul", "d", 0.5),
        *polynomial("t", "w", GELU[str(op.attribute("approximate"))]),
        VectorStep("d", "veadd", "t", "d"),
        VectorStep("d", "veexp.m", "d"),
        VectorStep("v", "veemul", "v", "v"),
        VectorStep("v", "veemul", "v", -0.5),
        VectorStep("v", "veexp.m", "v"),
        VectorStep("w", "veemul", "w", "d"),
        VectorStep("w", "veemul", "w", "v"),
        VectorStep("y", "vemax", "x", 0.0),
        VectorStep("y", "vesub", "y", "w"),
    )


def _erf(op: Op) -> tuple[VectorStep, ...]:
    del op
    return (
        VectorStep("c", "vemax", "x", -1.0),
        VectorStep("c", "vemin", "c", 1.0),
        VectorStep("y", "velkrelu", "x", -1.0),
        VectorStep("y", "vemax", "y", 1.0),
        *polynomial("t", "y", ERF_TAIL),
        VectorStep("t", "veexp.m", "t"),
        VectorStep("s", "veemul", "c", "c"),
        *polynomial("y", "s", ERF),
        VectorStep("y", "veemul", "y", "s"),
        VectorStep("y", "vesub", "y", "t"),
        VectorStep("y", "veadd", "y", ERF_END),
        VectorStep("y", "veemul", "y", "c"),
        VectorStep("y", "veadd", "y", "c"),
    )


def _mish(op: Op) -> tuple[VectorStep, ...]:
    del op
    return (
        VectorStep("c", "vemin", "x", MISH_END),
        VectorStep("y", "vesub", "x", "c"),
        VectorStep("e", "veadd", "c", MISH_SHIFT),
        VectorStep("e", "veexp.m", "e"),
        VectorStep("c", "veemul", "c", "e"),
        VectorStep("e", "veemul", "e", 1 / MISH_POWER),
        VectorStep("u", "veadd", "e", 2.0),
        VectorStep("e", "veemul", "e", "u"),
        VectorStep("e", "veadd", "e", 2.0),
        VectorStep("r", "verecip.m", "e"),
        VectorStep("e", "veemul", "e", "r"),
        VectorStep("e", "veadd", "e", -2.0),
        VectorStep("e", "veemul", "e", "r"),
        VectorStep("e", "veemul", "e", "u"),
        VectorStep("c", "veemul", "c", "e"),
        VectorStep("c", "veemul", "c", -1 / MISH_POWER),
        VectorStep("y", "veadd", "y", "c"),
    )


def _sqrt(op: Op) -> tuple[VectorStep, ...]:
    """Compute the roots of both factors, one after the other; infinity keeps its root."""
    del op
    return (
        VectorStep("y", "veadd", "x", 0.0),  # -0 has a root, too
        VectorStep("b", "vemin", "y", 1.0),
        VectorStep("b", "veemul", "b", 1024.0),
        VectorStep("s", "vesqrt.m", "b"),
        VectorStep("r", "vemax", "s", 2.0**-8),
        VectorStep("r", "verecip.m", "r"),
        *_root_error("t", "s", "b", "r"),
        VectorStep("s", "vesub", "s", "t"),
        VectorStep("s", "veemul", "s", 1 / 32),
        VectorStep("y", "vemax", "y", 1.0),
        VectorStep("b", "vesqrt.m", "y"),
        VectorStep("r", "verecip.m", "b"),
        VectorStep("y", "vemin", "y", LARGEST),
        VectorStep("u", "vemin", "b", LARGEST_ROOT),
        *_root_error("t", "u", "y", "r"),
        VectorStep("y", "vesub", "b", "t"),
        VectorStep("y", "veemul", "y", "s"),
    )


def _root_error(off: str, root: str, value: str, reciprocal: str) -> tuple[VectorStep, ...]:
    """Compute off = (root * root - value) * reciprocal / 2, a Newton step; `reciprocal`, that of the root, is
    overwritten."""
    return (
        VectorStep(reciprocal, "veemul", reciprocal, 0.5),
        VectorStep(off, "veemul", root, root),
        VectorStep(off, "vesub", off, value),
        VectorStep(off, "veemul", off, reciprocal),
    )


DIVISOR = (
    VectorStep("d", "veadd", "x", LEAST),
    VectorStep("y", "verecip.m", "d"),
    VectorStep("r", "vemax", "y", -LARGEST),
    VectorStep("r", "vemin", "r", LARGEST),
    VectorStep("d", "vemax", "d", -LARGEST),
    VectorStep("d", "vemin", "d", LARGEST),
    VectorStep("d", "veemul", "d", "r"),
    VectorStep("d", "veadd", "d", -1.0),
    VectorStep("d", "veemul", "d", "r"),
    VectorStep("y", "vesub", "y", "d"),
)
"""Steps of the reciprocal of a divisor: one Newton step on values held between finite numbers, so that zero and
infinity keep their reciprocals. It is infinite for divisors that are not normal numbers."""


def _reciprocal(op: Op) -> tuple[VectorStep, ...]:
    del op
    return (
        VectorStep("b", "veemul", "x", 1 / NORMAL),
        VectorStep("b", "veadd", "b", NORMAL),
        VectorStep("b", "vemax", "b", -1.0),
        VectorStep("b", "vemin", "b", 1.0),
        VectorStep("y", "velkrelu", "x", -1.0),
        VectorStep("y", "vemax", "y", NORMAL),
        *refined_reciprocal("a", "y"),
        VectorStep("r", "verecip.m", "b"),
        VectorStep("b", "veemul", "b", "r"),
        VectorStep("b", "veadd", "b", -1.0),
        VectorStep("b", "veemul", "b", "r"),
        VectorStep("r", "vesub", "r", "b"),
        VectorStep("y", "veemul", "a", "r"),
    )


def _hard_swish(op: Op) -> tuple[VectorStep, ...]:
    del op
    return (
        VectorStep("t", "veadd", "x", 3.0),
        VectorStep("t", "vemax", "t", 0.0),
        VectorStep("t", "vemin", "t", 6.0),
        VectorStep("t", "veemul", "t", 1 / 6),
        VectorStep("y", "veemul", "x", "t"),
    )


CURVES: Mapping[str, Callable[[Op], tuple[VectorStep, ...]]] = {
    "exp": exponentials.exp,
    "sigmoid": exponentials.sigmoid,
    "swish": exponentials.swish,
    "tanh": exponentials.tanh,
    "softplus": exponentials.softplus,
    "elu": exponentials.elu,
    "selu": exponentials.elu,
    "celu": exponentials.elu,
    "gelu": _gelu,
    "erf": _erf,
    "mish": _mish,
    "sqrt": _sqrt,
    "reciprocal": _reciprocal,
    "hard_swish": _hard_swish,
}
"""Functions that return the steps of an operator, by its kind."""


FIXED: Mapping[str, tuple[VectorStep, ...]] = {
    row.kind: CURVES[row.kind](Op(row.kind, row.kind, (), ()))
    for row in OPERATOR_TABLE
    if row.kind in CURVES and not row.settings
}
"""Steps of the kinds without attributes, built once because planning asks for them for every box."""


def curve(op: Op) -> tuple[VectorStep, ...]:
    """The steps of an operator. Raises KeyError where its kind has none."""
    return FIXED.get(op.kind) or CURVES[op.kind](op)
