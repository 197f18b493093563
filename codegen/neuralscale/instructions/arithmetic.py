"""The types in which kernels compute, with the sizes of their elements and the costs of instructions on them.

operator + graph --arithmetic_of--> Arithmetic: bytes of an element and of a sum, cycles of the engines

    FP16   fp16 x fp16 --matrix engine--> fp16 sums --vector engine--> fp16
    INT8   int8 x int8 --matrix engine--> int32 sums --times an fp16 scale per column--> fp16 --vector engine--> fp16
           int8 x int8 --matrix engine, times one fp16 number--> fp16 --vector engine--> fp16 (INT8_BY_NUMBER)

This is the one place of the code generator that names a type. Templates, instructions and their costs take what they
need from the `Arithmetic` of a tile, or from the type of the tensor that they load or store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
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

    @property
    def exact(self) -> bool:
        """Whether integers are multiplied, so that sums are exact."""
        return self.operands != self.dtype

    @property
    def scaled(self) -> bool:
        """Whether the matrix engine leaves integers, which the vector engine multiplies by a scale."""
        return self.accumulate != self.dtype

    def matrix_cycles(self, chip: Chip, pixels: int, channels: int, reduction: int) -> float:
        """`hw_models.cost.matrix_cycles` of these operands."""
        return cost.matrix_cycles(chip, pixels, channels, reduction, self.operands)

    def vector_cycles(self, chip: Chip, elements: int, passes: int = 1) -> float:
        """`hw_models.cost.vector_cycles` of elements of this type."""
        return cost.vector_cycles(chip, elements, self.dtype, passes)

    def scaling_cycles(self, chip: Chip, elements: int, passes: int = 1) -> float:
        """`hw_models.cost.vector_cycles` of the products of sums with scales: sums of another type set the rate."""
        return cost.vector_cycles(chip, elements, self.accumulate, passes)

    def lookup_cycles(self, chip: Chip, elements: int) -> float:
        """`hw_models.cost.lookup_cycles` of elements of this type."""
        return cost.lookup_cycles(chip, elements, self.dtype)


FP16 = Arithmetic("float16", operands="float16", accumulate="float16")
INT8 = Arithmetic("float16", operands="int8", accumulate="int32")
INT8_BY_NUMBER = Arithmetic("float16", operands="int8", accumulate="float16")

ARITHMETICS: Mapping[str, Arithmetic] = MappingProxyType({each.operands: each for each in (FP16, INT8)})
"""Arithmetic by the type of an operator's first operand."""


def arithmetic_of(graph: Graph, op: Op) -> Arithmetic:
    """The arithmetic of an operator. Raises KeyError for a type that no template computes in."""
    found = ARITHMETICS[graph.by_name[op.inputs[0]].dtype]
    by_number = found.exact and len(op.inputs) > 2 and is_immediate(graph, op.inputs[2])
    return INT8_BY_NUMBER if by_number else found


def is_immediate(graph: Graph, operand: str) -> bool:
    """Whether the operand is a constant of one element, which goes into the instruction."""
    tensor = graph.by_name[operand]
    return bool(tensor.constant) and prod(tensor.shape) == 1


def conversion_cycles(chip: Chip, elements: int, passes: int = 1) -> float:
    """`hw_models.cost.vector_cycles` of conversions between fp16 and int8, whose rate is that of int8. No conversions
    need no rate."""
    return cost.vector_cycles(chip, elements, INT8.operands, passes) if passes else 0.0


def immediate(value: float) -> int:
    """The fp32 pattern of a scalar operand: that of the nearest fp16 number, because the chip itself would truncate it
    toward zero to fp16, whatever the type of the other operand is."""
    with np.errstate(over="ignore"):
        return int(np.float32(np.float16(value)).view(np.uint32))
