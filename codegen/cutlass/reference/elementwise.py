"""Element-wise operators, by the steps that kernels take in fp32.

CUDA functions that can be composed of others are computed here by those others, in the way that loses most precision:
tanh(x) as 1 - 2 / (1 + exp(2 x)), exp(x) - 1 by its two steps. So a kernel may do the same, and one that calls the
function itself is more precise. A result that is a difference of numbers near one may be off by about 2^-20;
`tanh.approx`, which is off by 2^-11, is not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sqrt

import numpy as np

from codegen.cutlass.reference import evaluated as single
from codegen.cutlass.reference.evaluated import Evaluated, add, divide, immediate, maximum, minimum, mul, sub
from codegen.cutlass.reference.operands import Rule, RuleInputs
from partitioner.ir.formula import steps_of
from partitioner.ir.graph import Op

ZERO, HALF, ONE, TWO = (immediate(number) for number in (0.0, 0.5, 1.0, 2.0))


def magnitude(x: Evaluated) -> Evaluated:
    return Evaluated(np.abs(x.numbers), x.error)


def leaky_relu(op: Op, x: Evaluated) -> Evaluated:
    """x above zero, else alpha times x; nowhere steeper than the steeper of both."""
    alpha = op.number("alpha")
    numbers = np.where(x.numbers > 0, x.numbers, alpha * x.numbers)
    return single.rounded(Evaluated(numbers, max(1.0, abs(alpha)) * x.error))


def clip(x: Evaluated, low: float, high: float) -> Evaluated:
    return minimum(maximum(x, immediate(low)), immediate(high))


def ramp(x: Evaluated, slope: float, offset: float) -> Evaluated:
    """slope * x + offset, clamped to [0, 1]."""
    return clip(add(mul(immediate(slope), x), immediate(offset)), 0.0, 1.0)


def sigmoid(x: Evaluated) -> Evaluated:
    return divide(ONE, add(ONE, single.exp(single.negate(x))))


def tanh(x: Evaluated) -> Evaluated:
    return sub(ONE, divide(TWO, add(ONE, single.exp(mul(TWO, x)))))


def softplus(x: Evaluated) -> Evaluated:
    """ln(1 + e^x) in the form that does not overflow."""
    return add(maximum(x, ZERO), single.log(add(ONE, single.exp(single.negate(magnitude(x))))))


def swish(op: Op, x: Evaluated) -> Evaluated:
    return mul(x, sigmoid(mul(immediate(op.number("alpha")), x)))


def gelu(op: Op, x: Evaluated) -> Evaluated:
    if op.attribute("approximate") == "tanh":
        cube = mul(immediate(0.044715), mul(x, mul(x, x)))
        inner = tanh(mul(immediate(sqrt(2 / pi)), add(x, cube)))
    else:
        inner = single.erf(mul(immediate(sqrt(0.5)), x))
    return mul(mul(HALF, x), add(ONE, inner))


def elu(op: Op, x: Evaluated) -> Evaluated:
    """gamma * (max(x, 0) + alpha * (exp(min(x, 0) / rate) - 1)): Elu, Selu and Celu."""
    alpha, below = immediate(op.number("alpha")), minimum(x, ZERO)
    rate = divide(below, alpha) if op.kind == "celu" else below
    result = add(maximum(x, ZERO), mul(alpha, sub(single.exp(rate), ONE)))
    return mul(immediate(op.number("gamma")), result) if op.kind == "selu" else result


def shrink(op: Op, x: Evaluated) -> Evaluated:
    """x moved towards zero by the bias, and zero between -lambd and lambd. An x that may lie on either side of a jump
    may be off by the jump, too."""
    lambd, bias = op.number("lambd"), op.number("bias")
    numbers = np.select([x.numbers < -lambd, x.numbers > lambd, np.isnan(x.numbers)],
                        [x.numbers + bias, x.numbers - bias, x.numbers], 0.0)  # fmt: skip
    either = (x.error > 0) & (np.abs(np.abs(x.numbers) - abs(lambd)) <= x.error)
    return single.rounded(Evaluated(numbers, x.error + np.where(either, 2 * abs(lambd - bias), 0.0)))


def softsign(x: Evaluated) -> Evaluated:
    return divide(x, add(ONE, magnitude(x)))


STEPS: Mapping[str, Callable[[Evaluated, float], Evaluated]] = {
    "square": lambda x, _: mul(x, x),
    "abs": lambda x, _: magnitude(x),
    "neg": lambda x, _: single.negate(x),
    "sqrt": lambda x, _: single.sqrt(x),
    "reciprocal": lambda x, _: divide(ONE, x),
    "log": lambda x, _: single.log(x),
    "power": lambda x, number: single.exp(mul(immediate(number), single.log(x))),
    "add": lambda x, number: add(x, immediate(number)),
    "mul": lambda x, number: mul(x, immediate(number)),
    "max": lambda x, number: maximum(x, immediate(number)),
    "min": lambda x, number: minimum(x, immediate(number)),
}


def formula(op: Op, x: Evaluated) -> Evaluated:
    for name, number in steps_of(str(op.attribute("steps"))):
        x = STEPS[name](x, number)
    return x


UNARY: Mapping[str, Callable[[Op, Evaluated], Evaluated]] = {
    "relu": lambda _, x: maximum(x, ZERO),
    "leaky_relu": leaky_relu,
    "clip": lambda op, x: clip(x, op.number("min"), op.number("max")),
    "sigmoid": lambda _, x: sigmoid(x),
    "hard_sigmoid": lambda op, x: ramp(x, op.number("alpha"), op.number("beta")),
    "hard_swish": lambda _, x: mul(x, ramp(x, 1 / 6, 0.5)),
    "tanh": lambda _, x: tanh(x),
    "exp": lambda _, x: single.exp(x),
    "log": lambda _, x: single.log(x),
    "erf": lambda _, x: single.erf(x),
    "softplus": lambda _, x: softplus(x),
    "mish": lambda _, x: mul(x, tanh(softplus(x))),
    "sqrt": lambda _, x: single.sqrt(x),
    "reciprocal": lambda _, x: divide(ONE, x),
    "neg": lambda _, x: single.negate(x),
    "abs": lambda _, x: magnitude(x),
    "elu": elu,
    "selu": elu,
    "celu": elu,
    "gelu": gelu,
    "swish": swish,
    "shrink": shrink,
    "formula": formula,
    "softsign": lambda _, x: softsign(x),
}

BINARY: Mapping[str, Callable[[Evaluated, Evaluated], Evaluated]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": divide,
    "max": maximum,
    "min": minimum,
}


def _unary(compute: Callable[[Op, Evaluated], Evaluated]) -> Rule:
    return lambda asked: compute(asked.op, asked.operand())


def _binary(compute: Callable[[Evaluated, Evaluated], Evaluated]) -> Rule:
    return lambda asked: compute(asked.operand(0), asked.operand(1))


def _scale_shift(asked: RuleInputs) -> Evaluated:
    """x * scale + shift, each with one element per channel."""
    return add(mul(asked.operand(0), asked.vector(1)), asked.vector(2))


ELEMENTWISE: Mapping[str, Rule] = {
    **{kind: _unary(compute) for kind, compute in UNARY.items()},
    **{kind: _binary(compute) for kind, compute in BINARY.items()},
    "scale_shift": _scale_shift,
}
