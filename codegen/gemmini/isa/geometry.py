"""Extents of the array and of its memories, and where the main memory lies.

Two builds of the generator have chip files: the default one with an array of 16 by 16, and one of 32 by 32. An
executable names the geometry that it was made for in a symbol. Local memories are counted in rows of the array's width,
of int8 in the scratchpad and of int32 in the accumulator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hw_models.chip import Chip

BASE = 0x8000_0000
"""Address at which the main memory begins: where programs without an operating system lie."""

MAIN_BYTES = 1 << 30
"""Bytes of the main memory that programs may use."""

CODE_BYTES = 32 << 20
"""Bytes of the main memory, from its start, for code."""

SUMS_BYTES = 1 << 20
"""Bytes after the code in which sums wait for what the core does with them."""

IDENTITY_OFFSET = CODE_BYTES - 8192
"""Where the identity matrix of the array's width lies in the room of the code, in programs that pass values through
the array."""

DATA_BASE = CODE_BYTES + SUMS_BYTES
"""Offset from which tensors may lie."""

SCRATCHPAD, ACCUMULATOR, MAIN = "scratchpad", "accumulator", "DRAM"
"""Names of the memories in chip files."""


@dataclass(frozen=True, slots=True)
class ArrayGeometry:
    """An array of `dim` by `dim`, with this many rows in its local memories."""

    dim: int
    local_rows: int
    accumulator_rows: int


DEFAULT = ArrayGeometry(16, 16_384, 1_024)
WIDEST, MOST_ROWS = 64, 1 << 20
"""Largest array, and most rows of a local memory, that are simulated."""

_SYMBOL = "geometry"


def geometry_symbol(geometry: ArrayGeometry) -> str:
    """The name of a symbol by which an executable says for which geometry it was made: geometry.16.16384.1024."""
    return f"{_SYMBOL}.{geometry.dim}.{geometry.local_rows}.{geometry.accumulator_rows}"


def named_geometry(symbols: Iterable[str]) -> ArrayGeometry:
    """The geometry that one of the symbols names, the default one where none does. Raises ValueError."""
    for name in symbols:
        kind, *numbers = name.split(".")
        if kind == _SYMBOL and len(numbers) == 3 and all(map(str.isdecimal, numbers)):
            found = ArrayGeometry(*map(int, numbers))
            rows = found.local_rows, found.accumulator_rows
            if not 1 <= found.dim <= WIDEST or not all(1 <= count <= MOST_ROWS for count in rows):
                raise ValueError(f"an array of {found.dim} with {rows[0]} and {rows[1]} rows is not simulated")
            return found
    return DEFAULT


def geometry_of(chip: Chip) -> ArrayGeometry:
    """The geometry that a chip file describes."""
    dim, scratchpad, sums = chip.matrix.array_channels, chip.memory(SCRATCHPAD), chip.memory(ACCUMULATOR)
    return ArrayGeometry(dim, scratchpad.size_bytes // dim, sums.size_bytes // (4 * dim))
