"""Functions of one operand as tables: the value for each of the 65,536 fp16 numbers, correctly rounded, for `velut.m`.

    op log --table_of--> 65,536 fp16 values, by the bits of x     chip --no_table--> None, or why it has no room for one

Values are worked out in float64 and rounded once, to nearest even; no fp16 operand of any function gives a result so
near the middle of two fp16 numbers that the last bits of float64 decide (tests/codegen/neuralscale/test_tables.py). A
NaN is the chip's own. A table lies in the part of L1 that weights have. Functions for which the vector engine has a
formula keep it: after products its passes are hidden, and a table costs room and a transfer (measurements are in
docs/fidelity.md). So only the kind and the chip decide what is looked up, never level, tiling or batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from codegen.neuralscale.emit.memory_names import LOCAL, MAIN, STAGING
from codegen.neuralscale.instructions.arithmetic import FP16
from codegen.neuralscale.templates.curves import curve
from codegen.neuralscale.templates.elementwise import LOOKUP_BYTES
from codegen.neuralscale.templates.tile import WEIGHTS
from hw_models.chip import Chip
from hw_models.cost import dma_cycles, transfer_cycles
from hw_models.errors import size_text
from hw_models.memory_parts import part_bytes, place_of
from partitioner.ir.formula import steps_of
from partitioner.ir.graph import Op

Doubles = npt.NDArray[np.float64]
Fp16Values = npt.NDArray[np.float16]
Function = Callable[[Op, Doubles], Doubles]

NAN_BITS = 0x7C01


def _plain(function: Callable[[Doubles], Doubles]) -> Function:
    return lambda _op, x: function(x)


def _sign(x: Doubles) -> Doubles:
    return np.where(np.isnan(x), np.nan, np.sign(x))


def _shrink(x: Doubles, lambd: float, bias: float) -> Doubles:
    return np.select([x < -lambd, x > lambd, np.isnan(x)], [x + bias, x - bias, x], 0.0)


STEPS: Mapping[str, Callable[[Doubles, float], Doubles]] = {
    "square": lambda x, _: x * x,
    "abs": lambda x, _: np.abs(x),
    "neg": lambda x, _: -x,
    "sqrt": lambda x, _: np.sqrt(x),
    "reciprocal": lambda x, _: 1 / x,
    "log": lambda x, _: np.log(x),
    "power": lambda x, number: np.power(x, number),
    "add": lambda x, number: x + number,
    "mul": lambda x, number: x * number,
    "max": lambda x, number: np.maximum(x, number),
    "min": lambda x, number: np.minimum(x, number),
}
"""Steps of a formula, in float64."""


def _formula(op: Op, x: Doubles) -> Doubles:
    for name, number in steps_of(str(op.attribute("steps"))):
        x = STEPS[name](x, number)
    return x


def _sigmoid(x: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-x)))


def _shared(x: Doubles, share: Doubles) -> Doubles:
    """A share of x, where a share of 0 of infinity is 0."""
    return np.where(np.isinf(x) & (share == 0), 0.0, x * share)


def _softplus(x: Doubles) -> Doubles:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _elu(x: Doubles, alpha: float, gamma: float, rate: float) -> Doubles:
    return gamma * np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0) / rate))


def _normal(x: Doubles) -> Doubles:
    """The share of the normal distribution below x."""
    return np.asarray(0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2)))


def _near_gelu(x: Doubles) -> Doubles:
    return _shared(x, _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS: Mapping[str, Function] = {
    "log": _plain(np.log),
    "sin": _plain(np.sin),
    "cos": _plain(np.cos),
    "tan": _plain(np.tan),
    "asin": _plain(np.arcsin),
    "acos": _plain(np.arccos),
    "atan": _plain(np.arctan),
    "sinh": _plain(np.sinh),
    "cosh": _plain(np.cosh),
    "asinh": _plain(np.arcsinh),
    "acosh": _plain(np.arccosh),
    "atanh": _plain(np.arctanh),
    "floor": _plain(np.floor),
    "ceil": _plain(np.ceil),
    "round": _plain(np.rint),
    "sign": _plain(_sign),
    "shrink": lambda op, x: _shrink(x, op.number("lambd"), op.number("bias")),
    "power": lambda op, x: np.power(x, op.number("exponent")),
    "formula": _formula,
}
"""Functions without a formula of the vector engine, by kind, in float64."""

CURVED: Mapping[str, Function] = {
    "exp": _plain(np.exp),
    "sigmoid": _plain(_sigmoid),
    "swish": lambda op, x: _shared(x, _sigmoid(op.number("alpha") * x)),
    "tanh": _plain(np.tanh),
    "softplus": _plain(_softplus),
    "elu": lambda op, x: _elu(x, op.number("alpha"), 1.0, 1.0),
    "selu": lambda op, x: _elu(x, op.number("alpha"), op.number("gamma"), 1.0),
    "celu": lambda op, x: _elu(x, op.number("alpha"), 1.0, op.number("alpha")),
    "gelu": lambda op, x: _near_gelu(x) if op.attribute("approximate") == "tanh" else _shared(x, _normal(x)),
    "erf": _plain(np.vectorize(math.erf)),
    "mish": _plain(lambda x: _shared(x, np.tanh(_softplus(x)))),
    "sqrt": _plain(np.sqrt),
    "reciprocal": _plain(np.reciprocal),
}
"""Functions that have a formula, too, by kind, in float64."""

TABLED = tuple(FUNCTIONS)
"""Kinds that are looked up, whatever the cost."""


def table_of(op: Op) -> Fp16Values:
    """The table of an operator's function, entries in the order of the bits of x."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = np.where((bits & 0x7FFF) > 0x7C00, np.nan, _values(bits))
    with np.errstate(all="ignore"):
        values = (FUNCTIONS.get(op.kind) or CURVED[op.kind])(op, x)
        rounded = values.astype(np.float16)
    return np.where(np.isnan(values), np.uint16(NAN_BITS), rounded.view(np.uint16)).view(np.float16)


def _values(bits: npt.NDArray[np.uint16]) -> Doubles:
    with np.errstate(invalid="ignore"):  # NaNs whose highest fraction bit is not set
        return bits.view(np.float16).astype(np.float64)


def pays(op: Op, elements: int, chip: Chip) -> bool:
    """Whether a table takes fewer cycles than the formula for an item of `elements` elements over a cluster's cores:
    one lookup and the table's transfer from the main memory into L1, against all passes."""
    if op.kind not in CURVED:
        return op.kind in FUNCTIONS
    share = -(-elements // chip.cores_per_cluster)
    way = dma_cycles(chip, MAIN, STAGING, LOOKUP_BYTES) + transfer_cycles(chip, STAGING, LOCAL, LOOKUP_BYTES)
    return FP16.lookup_cycles(chip, share) + way < FP16.vector_cycles(chip, share, len(curve(op)))


def no_table(chip: Chip) -> str | None:
    """Why a chip has no room for tables; None where it has. Weights must keep half of their part of L1."""
    memory, part = place_of(chip, "L1", WEIGHTS)
    if (room := part_bytes(chip, memory, part)) < 2 * LOOKUP_BYTES:
        named = f"the {part} part of {memory}" if part else memory
        least = size_text(2 * LOOKUP_BYTES)
        return f"a table of {size_text(LOOKUP_BYTES)}, for which {named} must have {least} and has {size_text(room)}"
    return None
