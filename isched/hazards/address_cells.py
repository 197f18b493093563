"""The memories of a table of accesses one after the other, in cells: one array then has an entry for each cell.

ends of the touched bytes, bytes per cell of each memory --Cells.of--> numbers of bytes and of cells
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isched.hazards.access_table import END, MEMORY, Table, Vector


def ends_of(table: Table) -> Vector:
    """One past the last touched byte of each memory. The table must have rows."""
    ends = np.zeros(int(table[:, MEMORY].max()) + 1, np.int64)
    np.maximum.at(ends, table[:, MEMORY], table[:, END])
    return ends


@dataclass(frozen=True, slots=True)
class Cells:
    """Memory m in whole cells of `unit_bytes[m]` bytes: its first cell is number `cells[m]`, its first byte number
    `places[m]`. Both arrays end with the total."""

    unit_bytes: Vector
    cells: Vector
    places: Vector

    @staticmethod
    def of(ends: Vector, unit_bytes: Vector) -> Cells:
        """Cells of memories up to their `ends`, as `ends_of` gives them."""
        counts = -(-ends // unit_bytes)
        return Cells(unit_bytes, _sums(counts), _sums(counts * unit_bytes))


def _sums(counts: Vector) -> Vector:
    return np.concatenate(([0], np.cumsum(counts)))
