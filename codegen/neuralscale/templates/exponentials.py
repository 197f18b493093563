"""Functions of one operand by the vector engine's exponential, as lists of passes (`steps.py`).

    exp       max(E(x - 2^-12), E(x - 2^-11)), E the chip's own
    sigmoid   K / (K + exp(-5/16 - x)), K = exp(-5/16)
    swish     max(x, 0) - w * z / (z + K), w = |x|, z = exp(s - alpha * w), K = exp(s), s = 5/2 for alpha of 1 and
              more; of a negative alpha min(x, 0) + the same
    tanh      c + c * (s * P(s) + A - 2 / (1 + exp(2 w))), c = x between -1 and 1, s = c^2, w = max(|x|, 1)
    softplus  c / 2 + s * Q(s) - A + max(x, 1) + z + z * z * P(z), c and s as for tanh, z = exp(-max(|x|, 1))
    elu       max(x, 0) + alpha * (c + c * c * P(c) + exp(min(x, -3/4)) - exp(-3/4)), c = x between -3/4 and 0

The chip's exponential is right to 0.23 %, but steps down at three places between 0.21 and 0.25, is 1 + 2^-10 for small
positive operands, and is wrong where its result is no normal number. So sigmoid keeps its argument off those places,
and swish keeps its exponential in the range. Parts that cancel are separated: where one part of tanh, softplus or elu
acts, the other is a constant, bit for bit, so that small results keep their precision and the functions are monotone.
Reciprocals that decide small results are refined. Coefficients minimise the largest error; they were found in float64,
rounded to fp16, and measured over all operands (benchmarks/results/functions.md). NaN stays NaN, and infinities become
the limits.
"""

from __future__ import annotations

from math import e, floor, log, log2

from codegen.neuralscale.templates.steps import VectorStep, polynomial, refined_reciprocal
from partitioner.ir.graph import Op

EXP_SHIFT = 2.0**-12

SIGMOID_SHIFT, SIGMOID_POWER = -0.3125, 0.73193359375
SWISH_SHIFTS = (
    (0.0, 1.0),
    (2.5, 12.1875),
    (3.25, 25.796875),
    (4.0, 54.59375),
    (5.0, 148.375),
    (6.0, 403.5),
    (7.0, 1098.0),
)
"""Arguments, and the chip's exponential of each."""

SMALLEST_UNIT = 2.0**-7
EIGHTHS = 192.0
"""Number whose addition and subtraction rounds numbers below 64 to eighths."""

TANH = (-0.3310546875, 0.11944580078125, -0.0267486572265625)
TANH_END = 0.2384033203125
"""Values at 1 of the terms of s and of the exponential, so that their sum there is 0."""

SOFTPLUS = (-0.489990234375, 0.237060546875)
SOFTPLUS_BEND = (0.1241455078125, -0.004001617431640625)
SOFTPLUS_END = -0.6201171875
"""Constants that take softplus of 1, without the logarithm that belongs to -1, to 0, and that of -1 to -1, both
exactly."""

ELU = (0.491455078125, 0.12890625)
ELU_END, ELU_POWER = -0.75, 0.472412109375
"""Operand from which down elu is an exponential, and the exponential's value there."""


def exp(op: Op) -> tuple[VectorStep, ...]:
    del op
    return (
        VectorStep("t", "veadd", "x", -EXP_SHIFT),
        VectorStep("y", "veadd", "t", -EXP_SHIFT),
        VectorStep("t", "veexp.m", "t"),
        VectorStep("y", "veexp.m", "y"),
        VectorStep("y", "vemax", "t", "y"),
    )


def sigmoid(op: Op) -> tuple[VectorStep, ...]:
    del op
    return (
        VectorStep("d", "veemul", "x", -1.0),
        VectorStep("d", "veadd", "d", SIGMOID_SHIFT),
        VectorStep("d", "veexp.m", "d"),
        VectorStep("d", "veadd", "d", SIGMOID_POWER),
        *refined_reciprocal("y", "d"),
        VectorStep("y", "veemul", "y", SIGMOID_POWER),
    )


def swish(op: Op) -> tuple[VectorStep, ...]:
    """Swish. The reciprocal r of d becomes r * (d * r - 2), which is -1 / d: one step less than for +1 / d."""
    alpha = op.number("alpha")
    if alpha == 0:
        return (VectorStep("y", "veemul", "x", 0.5),)
    shift, power = _swish_shift(abs(alpha))
    return (
        VectorStep("w", "velkrelu", "x", -1.0),
        VectorStep("w", "vemin", "w", min(64 / _power_of_two(abs(alpha)), 65504.0)),
        *_swish_power(abs(alpha), shift),
        VectorStep("d", "veadd", "z", power),
        VectorStep("w", "veemul", "w", "z"),
        VectorStep("z", "verecip.m", "d"),
        VectorStep("d", "veemul", "d", "z"),
        VectorStep("d", "veadd", "d", -2.0),
        VectorStep("d", "veemul", "d", "z"),
        VectorStep("w", "veemul", "w", "d"),
        VectorStep("y", "vemax" if alpha >= 0 else "vemin", "x", 0.0),
        VectorStep("y", "veadd" if alpha >= 0 else "vesub", "y", "w"),
    )


def _swish_shift(alpha: float) -> tuple[float, float]:
    """The least shift that keeps the exponential a normal number wherever w times it, over the power, is one; never
    more than keeps that product, which is at most power / (e * alpha), in the range."""
    most = max(65504 * e * alpha, 1.0)
    possible = [pair for pair in SWISH_SHIFTS if pair[1] <= most]
    return next((pair for pair in possible if pair[0] >= log(14 / alpha)), possible[-1])


def _power_of_two(alpha: float) -> float:
    """The power of two at or below alpha."""
    return 2.0 ** floor(log2(alpha))


def _swish_power(alpha: float, shift: float) -> tuple[VectorStep, ...]:
    """z = exp(shift - alpha * w). fp16 holds a product near 10 only to 1/256, so where alpha is no power of two the
    product is taken in two parts: v, which is w in steps of an eighth (of one over alpha's power of two), times alpha's
    first four bits, which is exact, and the rest, which is small. An alpha so small that w cannot be rounded is not
    split."""
    unit = _power_of_two(alpha)
    first = floor(alpha / unit * 8) / 8 * unit
    if alpha == unit or unit < SMALLEST_UNIT:
        return (
            VectorStep("z", "veemul", "w", -alpha),
            VectorStep("z", "veadd", "z", shift),
            VectorStep("z", "veexp.m", "z"),
        )
    return (
        VectorStep("z", "veadd", "w", EIGHTHS / unit),
        VectorStep("z", "veadd", "z", -EIGHTHS / unit),
        VectorStep("d", "vesub", "w", "z"),
        VectorStep("d", "veemul", "d", -first),
        VectorStep("u", "veemul", "w", first - alpha),
        VectorStep("d", "veadd", "d", "u"),
        VectorStep("d", "veexp.m", "d"),
        VectorStep("z", "veemul", "z", -first),
        VectorStep("z", "veadd", "z", shift),
        VectorStep("z", "veexp.m", "z"),
        VectorStep("z", "veemul", "z", "d"),
    )


def tanh(op: Op) -> tuple[VectorStep, ...]:
    del op
    return (
        VectorStep("c", "vemax", "x", -1.0),
        VectorStep("c", "vemin", "c", 1.0),
        VectorStep("y", "velkrelu", "x", -1.0),
        VectorStep("y", "vemax", "y", 1.0),
        VectorStep("y", "veemul", "y", 2.0),
        VectorStep("y", "veexp.m", "y"),
        VectorStep("y", "veadd", "y", 1.0),
        VectorStep("y", "verecip.m", "y"),
        VectorStep("y", "veemul", "y", -2.0),
        VectorStep("y", "veadd", "y", TANH_END),
        VectorStep("s", "veemul", "c", "c"),
        *polynomial("t", "s", TANH),
        VectorStep("t", "veemul", "t", "s"),
        VectorStep("y", "veadd", "y", "t"),
        VectorStep("y", "veemul", "y", "c"),
        VectorStep("y", "veadd", "y", "c"),
    )


def softplus(op: Op) -> tuple[VectorStep, ...]:
    """Softplus. Beyond 1 and -1 the first terms are exactly x or 0; between, the last one is a constant."""
    del op
    return (
        VectorStep("c", "vemax", "x", -1.0),
        VectorStep("c", "vemin", "c", 1.0),
        VectorStep("s", "veemul", "c", "c"),
        VectorStep("t", "veemul", "s", SOFTPLUS_BEND[1]),
        VectorStep("t", "veadd", "t", SOFTPLUS_BEND[0]),
        VectorStep("t", "veemul", "t", "s"),
        VectorStep("c", "veemul", "c", 0.5),
        VectorStep("c", "veadd", "c", "t"),
        VectorStep("c", "veadd", "c", SOFTPLUS_END),
        VectorStep("s", "velkrelu", "x", -1.0),
        VectorStep("s", "vemax", "s", 1.0),
        VectorStep("s", "veemul", "s", -1.0),
        VectorStep("s", "veexp.m", "s"),
        *polynomial("t", "s", SOFTPLUS),
        VectorStep("t", "veemul", "t", "s"),
        VectorStep("t", "veemul", "t", "s"),
        VectorStep("t", "veadd", "t", "s"),
        VectorStep("y", "vemax", "x", 1.0),
        VectorStep("y", "veadd", "y", "c"),
        VectorStep("y", "veadd", "y", "t"),
    )


def elu(op: Op) -> tuple[VectorStep, ...]:
    """Elu, Selu and Celu, as gamma * elu(x, alpha) or alpha * elu(x / alpha)."""
    alpha = op.number("alpha")
    gamma = op.number("gamma") if op.kind == "selu" else 1.0
    if op.kind == "celu" and alpha <= 0:
        return _rising_celu(alpha)
    rate = (VectorStep("s", "veemul", "x", 1 / alpha),) if op.kind == "celu" and alpha != 1.0 else ()
    x = "s" if rate else "x"
    return (
        *rate,
        VectorStep("t", "vemin", x, ELU_END),
        VectorStep("t", "veexp.m", "t"),
        VectorStep("t", "veadd", "t", -ELU_POWER),
        VectorStep("c", "vemax", x, ELU_END),
        VectorStep("c", "vemin", "c", 0.0),
        *polynomial("q", "c", ELU),
        VectorStep("q", "veemul", "q", "c"),
        VectorStep("q", "veemul", "q", "c"),
        VectorStep("c", "veadd", "c", "q"),
        VectorStep("c", "veadd", "c", "t"),
        *((VectorStep("c", "veemul", "c", alpha * gamma),) if alpha * gamma != 1.0 else ()),
        VectorStep("y", "vemax", "x", 0.0),
        *((VectorStep("y", "veemul", "y", gamma),) if gamma != 1.0 else ()),
        VectorStep("y", "veadd", "y", "c"),
    )


def _rising_celu(alpha: float) -> tuple[VectorStep, ...]:
    """Celu of a negative alpha, which grows exponentially to the left: max(x, 0) + alpha * (exp(x / alpha) - 1) with x
    at most 0 in the second term."""
    return (
        VectorStep("t", "vemin", "x", 0.0),
        VectorStep("t", "veemul", "t", 1 / alpha),
        VectorStep("t", "veexp.m", "t"),
        VectorStep("t", "veadd", "t", -1.0),
        VectorStep("t", "veemul", "t", alpha),
        VectorStep("y", "vemax", "x", 0.0),
        VectorStep("y", "veadd", "y", "t"),
    )
