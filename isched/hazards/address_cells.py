"""The memories of a table of accesses one behind the other, in cells: one array then has a place for each of them.

ends of what is touched, bytes of a cell in each memory --Cells.of--> numbers of bytes and of cells
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isched.hazards.access_table import END, MEMORY, Table, Vector


def ends_of(table: Table) -> Vector:
    """For each memory one past the last byte that is touched. The table has rows."""
    ends = np.zeros(int(table[:, MEMORY].max()) + 1, np.int64)
    np.maximum.at(ends, table[:, MEMORY], table[:, END])
    return ends


@dataclass(frozen=True, slots=True)
class Cells:
    """Memory m in whole cells of `unit_bytes[m]` bytes: the first of them is number `cells[m]`, its first byte number
    `places[m]`. Both end with how many there are in all."""

    unit_bytes: Vector
    cells: Vector
    places: Vector

    @staticmethod
    def of(ends: Vector, unit_bytes: Vector) -> Cells:
        """Memories up to their `ends`, as `ends_of` has them."""
        counts = -(-ends // unit_bytes)
        return Cells(unit_bytes, _sums(counts), _sums(counts * unit_bytes))


def _sums(counts: Vector) -> Vector:
    return np.concatenate(([0], np.cumsum(counts)))
