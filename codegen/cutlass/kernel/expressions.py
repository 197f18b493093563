"""Element-wise operators as C++ expressions on floats, for the ends of all kernels.

    relu(v)  -->  "larger(v, 0.f)"           at most one operand in addition to the running value, except in scale_shift

A NaN stays one, as ONNX says; nothing is rounded between two operators. Where a quotient's divisor is at least 1 it is
`__fdividef`, and powers of e are `__expf`: within the bound (docs/gpu.md), in a few instructions and without a branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from partitioner.ir.formula import steps_of
from partitioner.ir.graph import Op


def literal(value: float) -> str:
    """C++ literal of a number as a float."""
    if math.isnan(value):
        return "__int_as_float(0x7fffffff)"
    if math.isinf(value):
        return "__int_as_float(0x7f800000)" if value > 0 else "__int_as_float(0xff800000)"
    text = repr(float(value))
    return f"{text}f"


def unary(op: Op, v: str) -> str:
    """The expression for an operator of one operand. Raises KeyError for another."""
    return UNARY[op.kind](op, v)


def binary(kind: str, a: str, b: str) -> str:
    """a op b. Raises KeyError for a kind that is not binary."""
    return BINARY[kind].format(a=a, b=b)


def ternary(v: str, scale: str, shift: str) -> str:
    """v * scale + shift (scale_shift)."""
    return f"fmaf({v}, {scale}, {shift})"


def _leaky(op: Op, v: str) -> str:
    return f"({v} < 0.f ? {literal(op.number('alpha'))} * {v} : {v})"


def _clip(op: Op, v: str) -> str:
    """clip(v); where the bounds are swapped, the upper one is the result."""
    high = op.number("max")
    return f"held({v}, {literal(min(op.number('min'), high))}, {literal(high)})"


def _hard_sigmoid(op: Op, v: str) -> str:
    ramp = f"fmaf({v}, {literal(op.number('alpha'))}, {literal(op.number('beta'))})"
    return f"held({ramp}, 0.f, 1.f)"


def _elu(op: Op, v: str) -> str:
    return f"({v} < 0.f ? {literal(op.number('alpha'))} * expm1f({v}) : {v})"


def _celu(op: Op, v: str) -> str:
    alpha = literal(op.number("alpha"))
    return f"({v} < 0.f ? {alpha} * expm1f({v} / {alpha}) : {v})"


def _selu(op: Op, v: str) -> str:
    alpha, gamma = literal(op.number("alpha")), literal(op.number("gamma"))
    return f"({gamma} * ({v} < 0.f ? {alpha} * expm1f({v}) : {v}))"


def _gelu(op: Op, v: str) -> str:
    if op.attribute("approximate") == "tanh":
        inner = f"0.7978845608f * fmaf(0.044715f * {v} * {v}, {v}, {v})"
        return f"(0.5f * {v} * (1.f + tanhf({inner})))"
    return f"(0.5f * {v} * (1.f + erff({v} * 0.7071067812f)))"


def _shrink(op: Op, v: str) -> str:
    lambd, bias = op.number("lambd"), literal(op.number("bias"))
    inside = f"({v} == {v} ? 0.f : {v})"
    return f"({v} < {literal(-lambd)} ? {v} + {bias} : {v} > {literal(lambd)} ? {v} - {bias} : {inside})"


def _swish(op: Op, v: str) -> str:
    return f"__fdividef({v}, 1.f + __expf({literal(-op.number('alpha'))} * {v}))"


STEPS: Mapping[str, str] = {
    "square": "({v} * {v})",
    "abs": "fabsf({v})",
    "neg": "(-{v})",
    "sqrt": "sqrtf({v})",
    "reciprocal": "(1.f / {v})",
    "log": "logf({v})",
    "power": "expf({number} * logf({v}))",
    "add": "({v} + {number})",
    "mul": "({v} * {number})",
    "max": "larger({v}, {number})",
    "min": "smaller({v}, {number})",
}
"""C++ expressions for the steps of a formula."""


def _formula(op: Op, v: str) -> str:
    for name, number in steps_of(str(op.attribute("steps"))):
        v = STEPS[name].format(v=v, number=literal(number))
    return v


UNARY: Mapping[str, Callable[[Op, str], str]] = {
    "relu": lambda _op, v: f"larger({v}, 0.f)",
    "leaky_relu": _leaky,
    "clip": _clip,
    "sigmoid": lambda _op, v: f"__fdividef(1.f, 1.f + __expf(-{v}))",
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda _op, v: f"({v} * held(fmaf({v}, {literal(1 / 6)}, 0.5f), 0.f, 1.f))",
    "tanh": lambda _op, v: f"tanhf({v})",
    "exp": lambda _op, v: f"__expf({v})",
    "log": lambda _op, v: f"logf({v})",
    "erf": lambda _op, v: f"erff({v})",
    "softplus": lambda _op, v: f"softplus({v})",
    "mish": lambda _op, v: f"({v} * tanhf(softplus({v})))",
    "sqrt": lambda _op, v: f"sqrtf({v})",
    "reciprocal": lambda _op, v: f"(1.f / {v})",
    "neg": lambda _op, v: f"(-{v})",
    "abs": lambda _op, v: f"fabsf({v})",
    "elu": _elu,
    "selu": _selu,
    "celu": _celu,
    "gelu": _gelu,
    "swish": _swish,
    "shrink": _shrink,
    "formula": _formula,
    "softsign": lambda _op, v: f"__fdividef({v}, 1.f + fabsf({v}))",
}

BINARY: Mapping[str, str] = {
    "add": "({a} + {b})",
    "sub": "({a} - {b})",
    "mul": "({a} * {b})",
    "div": "({a} / {b})",
    "max": "larger({a}, {b})",
    "min": "smaller({a}, {b})",
}
