"""The types in which kernels compute, with the sizes of their elements and the costs of instructions on them.

operator + graph --arithmetic_of--> Arithmetic: bytes of an element and of a sum, cycles of the engines

This is the one place of the code generator that names a type. Templates, instructions and their costs take what they
need from the `Arithmetic` of a tile, or from the type of the tensor that they load or store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from hw_models import cost
from hw_models.chip import Chip
from partitioner.ir.graph import DTYPE_BYTES, Graph, Op

TRANSFER_UNIT_BYTES = 2
"""Bytes of the unit in which the transfer engine and `mov.m` count, whatever a tensor's elements are."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The types of a computation. `dtype` is the type in which the vector engine works and in which a tile keeps values
    between instructions; `operands` is the type that the matrix engine multiplies, `accumulate` that of the sums that
    it leaves in IM."""

    dtype: str
    operands: str
    accumulate: str

    @property
    def item_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def operand_bytes(self) -> int:
        """Bytes of an element that the matrix engine multiplies."""
        return DTYPE_BYTES[self.operands]

    @property
    def sum_bytes(self) -> int:
        """Bytes of one sum of the matrix engine."""
        return DTYPE_BYTES[self.accumulate]

    def matrix_cycles(self, chip: Chip, pixels: int, channels: int, reduction: int) -> float:
        """`hw_models.cost.matrix_cycles` of these operands."""
        return cost.matrix_cycles(chip, pixels, channels, reduction, self.operands)

    def vector_cycles(self, chip: Chip, elements: int, passes: int = 1) -> float:
        """`hw_models.cost.vector_cycles` of elements of this type."""
        return cost.vector_cycles(chip, elements, self.dtype, passes)

    def lookup_cycles(self, chip: Chip, elements: int) -> float:
        """`hw_models.cost.lookup_cycles` of elements of this type."""
        return cost.lookup_cycles(chip, elements, self.dtype)


FP16 = Arithmetic("float16", operands="float16", accumulate="float16")

ARITHMETICS: Mapping[str, Arithmetic] = MappingProxyType({"float16": FP16})
"""Arithmetic by the type of an operator's first operand."""


def arithmetic_of(graph: Graph, op: Op) -> Arithmetic:
    """The arithmetic of an operator. Raises KeyError for a type that no template computes in."""
    return ARITHMETICS[graph.by_name[op.inputs[0]].dtype]


def immediate(value: float) -> int:
    """The fp32 pattern of a scalar operand: that of the nearest fp16 number, because the chip itself would truncate it
    toward zero to fp16, whatever the type of the other operand is."""
    with np.errstate(over="ignore"):
        return int(np.float32(np.float16(value)).view(np.uint32))
