"""Results of operators on integers, in plain numpy: conversions of fp16, all else as for any target."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from codegen.integers_reference import Array, Conversions, made
from partitioner.ir.graph import Graph, Op

LARGEST = 65504
"""Largest number of fp16."""


def _number(integers: Array) -> Array:
    """The nearest fp16; the largest for what is beyond it."""
    return np.clip(integers.astype(np.int64), -LARGEST, LARGEST).astype(np.float16)


def _ordered(numbers: Array) -> Array:
    """Twice the rank of an fp16 number among all, counted from zero; NaN lies beyond infinity."""
    bits = numbers.astype(np.float16).view(np.uint16).astype(np.int64)
    size = 2 * (bits % (1 << 15))
    return np.asarray(np.where(bits >= 1 << 15, -size, size))


def _whole(numbers: Array) -> Array:
    """Cut off; infinities become the nearest int32, NaN is 0."""
    limits = np.iinfo(np.int32)
    wide = np.nan_to_num(numbers.astype(np.float64), nan=0.0, posinf=limits.max, neginf=limits.min)
    return np.asarray(np.trunc(wide).astype(np.int64))


CONVERSIONS: Conversions = {"number": _number, "ordered": _ordered, "whole": _whole}


def emulate_prepared(graph: Graph, op: Op, read: Callable[[str], Array]) -> Array:
    """The result of a prepared operator from its operands as `read(name)` gives them, in its shape and type."""
    tensor = graph.by_name[op.outputs[0]]
    operands = [read(name) for name in op.inputs]
    return made(op, operands, prod(tensor.shape), CONVERSIONS).astype(tensor.dtype).reshape(tensor.shape)
