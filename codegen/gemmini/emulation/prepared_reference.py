"""Results of prepared operators, in plain numpy: conversions of this target's numbers, all else as for any target."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from codegen.integers_reference import Array, Conversions, made
from partitioner.ir.graph import Graph, Op


def _ordered(numbers: Array) -> Array:
    """The rank of a float32 among all, counted from zero; NaN lies beyond infinity."""
    bits = numbers.astype(np.float32).view(np.uint32).astype(np.int64)
    size = bits % (1 << 31)
    return np.asarray(np.where(bits >= 1 << 31, -size, size))


def _whole(numbers: Array) -> Array:
    """Truncated toward zero; what is out of range becomes the nearest int32."""
    limits = np.iinfo(np.int32)
    wide = np.nan_to_num(numbers.astype(np.float64), nan=limits.max, posinf=limits.max, neginf=limits.min)
    return np.asarray(np.clip(np.trunc(wide), limits.min, limits.max).astype(np.int64))


CONVERSIONS: Conversions = {
    "number": lambda integers: integers.astype(np.float32),
    "ordered": _ordered,
    "whole": _whole,
}
"""An int32 becomes the nearest float32."""


def emulate_prepared(graph: Graph, op: Op, read: Callable[[str], Array]) -> Array:
    """The result of a prepared operator from its operands as `read(name)` gives them, in its shape and type."""
    tensor = graph.by_name[op.outputs[0]]
    operands = [read(name) for name in op.inputs]
    return made(op, operands, prod(tensor.shape), CONVERSIONS).astype(tensor.dtype).reshape(tensor.shape)
