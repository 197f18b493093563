"""Functions that the chip looks up, one number at a time by the C library, rounded once to nearest even.

    looked_up(op, values)  --> the entries of a correct table

The other side of the bit-for-bit comparison: it reads neither the table nor the code that made it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping

import numpy as np

from codegen.neuralscale.emulation.arithmetic import Fp16
from partitioner.ir.graph import Op


def looked_up(op: Op, values: Fp16) -> Fp16:
    """The function of a lookup at each of the values, which are fp16 numbers in float64."""
    function = FUNCTIONS[str(op.attribute("function"))]
    found = [_half(_value(function, op, x)) for x in values.reshape(-1).tolist()]
    return np.array(found, np.float64).reshape(values.shape)


def _value(function: Callable[[Op, float], float], op: Op, x: float) -> float:
    """The function at x; NaN where it is not defined."""
    if math.isnan(x):
        return math.nan
    try:
        return function(op, x)
    except ValueError:
        return math.nan


def _half(x: float) -> float:
    try:
        return float(struct.unpack("<e", struct.pack("<e", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def _log(_op: Op, x: float) -> float:
    return -math.inf if x == 0 else math.log(x)


def _hyperbolic(function: Callable[[float], float]) -> Callable[[Op, float], float]:
    """sinh and cosh, which leave the range of fp16 long before that of float64."""
    return lambda _op, x: function(x) if abs(x) < 100 else function(math.copysign(100, x)) * math.inf


def _atanh(_op: Op, x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


def _whole(function: Callable[[float], int]) -> Callable[[Op, float], float]:
    """A rounding that keeps the sign of zero."""
    return lambda _op, x: math.copysign(function(x), x) if math.isfinite(x) else x


def _sign(_op: Op, x: float) -> float:
    return float((x > 0) - (x < 0))


def _shrink(op: Op, x: float) -> float:
    lambd, bias = op.number("lambd"), op.number("bias")
    return x + bias if x < -lambd else x - bias if x > lambd else 0.0


def _power(x: float, exponent: float) -> float:
    if x == 0 and exponent < 0:
        odd = exponent == math.floor(exponent) and exponent % 2 == 1
        return math.copysign(math.inf, x) if odd else math.inf
    try:
        return math.pow(x, exponent)
    except OverflowError:
        return -math.inf if x < 0 and exponent % 2 == 1 else math.inf


def _formula(op: Op, x: float) -> float:
    """The formula of an operator's steps, parsed independently from the text of its attribute."""
    for step in str(op.attribute("steps")).split(", "):
        name, _, text = step.partition(" ")
        x = _step(op, name, x, float(text or 0))
    return x


def _step(op: Op, name: str, x: float, number: float) -> float:
    match name:
        case "square":
            return x * x
        case "abs":
            return abs(x)
        case "neg":
            return -x
        case "sqrt":
            return math.sqrt(x)
        case "reciprocal":
            return math.copysign(math.inf, x) if x == 0 else 1 / x
        case "log":
            return _log(op, x)
        case "power":
            return _power(x, number)
        case "add":
            return x + number
        case "mul":
            return x * number
        case "max":
            return max(x, number)
        case "min":
            return min(x, number)
    raise AssertionError(name)


def _beyond(function: Callable[[float], float]) -> Callable[[Op, float], float]:
    """A function that may exceed the range of float64 upwards."""

    def value(_op: Op, x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf

    return value


def _gate(x: float) -> float:
    """The logistic function; float64 holds e^-x for x of -700 and more."""
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _shared(x: float, share: float) -> float:
    """A share of x, also where x is infinite."""
    return 0.0 if math.isinf(x) and share == 0 else x * share


def _swish(op: Op, x: float) -> float:
    return _shared(x, _gate(op.number("alpha") * x))


def _gelu(op: Op, x: float) -> float:
    if op.attribute("approximate") == "none":
        return _shared(x, 0.5 * math.erfc(-x / math.sqrt(2)))
    return _shared(x, _gate(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softplus(_op: Op, x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _elu(op: Op, x: float) -> float:
    alpha, function = op.number("alpha"), op.attribute("function")
    gamma, rate = (op.number("gamma") if function == "selu" else 1.0), (alpha if function == "celu" else 1.0)
    return gamma * (x if x >= 0 else alpha * math.expm1(x / rate))


FUNCTIONS: Mapping[str, Callable[[Op, float], float]] = {
    "exp": _beyond(math.exp),
    "sigmoid": lambda _op, x: _gate(x),
    "swish": _swish,
    "tanh": lambda _op, x: math.tanh(x),
    "softplus": _softplus,
    "elu": _elu,
    "selu": _elu,
    "celu": _elu,
    "gelu": _gelu,
    "erf": lambda _op, x: math.erf(x),
    "mish": lambda op, x: _shared(x, math.tanh(_softplus(op, x))),
    "sqrt": lambda _op, x: math.sqrt(x),
    "reciprocal": lambda _op, x: 1 / x if x else math.copysign(math.inf, x),
    "log": _log,
    "sin": lambda _op, x: math.sin(x),
    "cos": lambda _op, x: math.cos(x),
    "tan": lambda _op, x: math.tan(x),
    "asin": lambda _op, x: math.asin(x),
    "acos": lambda _op, x: math.acos(x),
    "atan": lambda _op, x: math.atan(x),
    "sinh": _hyperbolic(math.sinh),
    "cosh": _hyperbolic(math.cosh),
    "asinh": lambda _op, x: math.asinh(x),
    "acosh": lambda _op, x: math.acosh(x),
    "atanh": _atanh,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "round": _whole(round),
    "sign": _sign,
    "shrink": _shrink,
    "power": lambda op, x: _power(x, op.number("exponent")),
    "formula": _formula,
}
