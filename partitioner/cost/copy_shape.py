"""Shape of the copies that bring a box from one dense array to another: how many there are, each with how many rows.

    box, array that is dense for each copy, array whose rows may lie apart --> copies, rows of each

Lowering makes these copies (`isched.lowering.strided_copies.packed_copies`); each is an instruction with a start-up of
its own.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from partitioner.ir.regions import Box, box_shape


class CopyShape(NamedTuple):
    """Number of copies, and of rows at one pitch that each has where they lie apart."""

    copies: int
    rows: int


def copy_shape(packed: Box, strided: Box, part: Box) -> CopyShape:
    """The copies of a `part` that is not empty between an array over `packed`, where each copy is one run, and one over
    `strided`."""
    axis = len(part) - 1
    while axis > 0 and part[axis] == packed[axis]:
        axis -= 1
    runs = prod(high - low for low, high in part[: max(axis, 0)])
    dims: list[tuple[int, int]] = []  # (count, stride in elements), outer first
    stride = 1
    counts = [1 if number < axis else high - low for number, (low, high) in enumerate(part)]
    for count, extent in zip(reversed(counts), reversed(box_shape(strided)), strict=True):
        if dims and dims[0][0] * dims[0][1] == stride:
            dims[0] = (dims[0][0] * count, dims[0][1])
        elif count > 1 or not dims:
            dims.insert(0, (count, stride))
        stride *= extent
    if dims and dims[-1][1] == 1:
        dims.pop()
    rows = dims.pop()[0] if dims else 1
    return CopyShape(runs * prod(count for count, _ in dims), rows)
