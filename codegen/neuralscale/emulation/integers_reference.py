"""Results that prepared operators must have left in memory, in plain numpy: int32 values that wrap around.

    operator + operands as stored  -->  its result as stored

What is the same for all targets is `codegen/integers_reference.py`; here are conversions to fp16 and back.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from codegen.integers_reference import Array, Conversions, Wide, made
from codegen.neuralscale.emulation.arithmetic import bits_of, from_bits, stored
from partitioner.ir.graph import Graph, Op

LARGEST_FP16 = 65504
FINITE_FP16 = 31 << 10
"""Number of finite fp16 bit patterns without sign."""


def emulate_prepared(graph: Graph, op: Op, read: Callable[[str], Array]) -> Array:
    """The result of a prepared operator from its operands as `read(name)` gives them, in its shape and type."""
    tensor = graph.by_name[op.outputs[0]]
    operands = [read(name) for name in op.inputs]
    return made(op, operands, prod(tensor.shape), CONVERSIONS).astype(tensor.dtype).reshape(tensor.shape)


def _to_fp16(words: Wide) -> Array:
    """int32 values as fp16, truncated toward zero after the conversion to 24 bits; never infinite."""
    single = np.abs(words).astype(np.float32).astype(np.float64)
    exponent = np.floor(np.log2(np.maximum(single, 1.0)))
    step = np.exp2(np.maximum(exponent - 10, 0))
    cut = np.minimum(np.floor(single / step) * step, LARGEST_FP16)
    return stored(np.where(words < 0, -cut, cut))


def _ordered(values: Array) -> Array:
    """Twice the rank of an fp16 number among all fp16 numbers, counted from zero; NaN lies beyond infinity."""
    sizes = from_bits(np.arange(FINITE_FP16 + 1))
    wide = values.astype(np.float64)
    places = np.searchsorted(sizes, np.abs(np.nan_to_num(wide, nan=0.0, posinf=np.inf, neginf=-np.inf)))
    places = np.where(np.isnan(wide), bits_of(values) & 0x7FFF, places)
    return np.asarray(2 * np.where(np.signbit(wide), -places, places))


def _whole(values: Array) -> Array:
    """fp16 numbers as int32 values, truncated toward zero; numbers out of range become the nearest int32."""
    limits = np.iinfo(np.int32)
    wide = np.nan_to_num(values.astype(np.float64), nan=limits.max, posinf=limits.max, neginf=limits.min)
    return np.asarray(np.clip(np.trunc(wide), limits.min, limits.max).astype(np.int64))


CONVERSIONS: Conversions = {"number": _to_fp16, "ordered": _ordered, "whole": _whole}
