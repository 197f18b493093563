"""The type in which kernels store and compute, and what its instructions cost: the one place that says float16.

extents of an instruction --> cycles of the matrix or vector engine over halves
"""

from __future__ import annotations

from hw_models import cost
from hw_models.chip import Chip

__all__ = ["DTYPE", "ITEM_BYTES", "lookup_cycles", "matrix_cycles", "vector_cycles"]

DTYPE = "float16"
ITEM_BYTES = 2


def matrix_cycles(chip: Chip, pixels: int, channels: int, reduction: int) -> float:
    """`hw_models.cost.matrix_cycles` of halves."""
    return cost.matrix_cycles(chip, pixels, channels, reduction, DTYPE)


def vector_cycles(chip: Chip, elements: int, passes: int = 1) -> float:
    """`hw_models.cost.vector_cycles` of halves."""
    return cost.vector_cycles(chip, elements, DTYPE, passes)


def lookup_cycles(chip: Chip, elements: int) -> float:
    """`hw_models.cost.lookup_cycles` of halves."""
    return cost.lookup_cycles(chip, elements, DTYPE)
