"""Reads of bytes that were not written before.

accesses in their order --compiled--> the first that reads such bytes
"""

from __future__ import annotations

import numpy as np
from numba import njit

from isched.hazards.access_table import FIRST, MEMORY, ROW, ROWS, STRIDE, WRITE, Flags, Table
from isched.hazards.address_cells import Cells, ends_of


def first_unwritten(table: Table) -> int:
    """The first row that reads bytes which no row before it wrote; -1 where there is none."""
    if not len(table):
        return -1
    memory, ends = table[:, MEMORY], ends_of(table)
    # A cell that divides all places and sizes is written as a whole or not at all.
    cells = Cells.of(ends, np.array([_unit(table[memory == number]) for number in range(len(ends))]))
    scaled = table.copy()
    for column in (FIRST, ROW, STRIDE):
        scaled[:, column] //= cells.unit_bytes[memory]
    scaled[:, FIRST] += cells.cells[memory]
    return int(_first_unwritten(scaled, np.zeros(cells.cells[-1], np.bool_)))


def _unit(table: Table) -> int:
    """The largest cell, in bytes, of which all accesses are multiples."""
    return max(1, int(np.gcd.reduce(table[:, (FIRST, ROW, STRIDE)], axis=None)))


@njit(cache=True, nogil=True)
def _first_unwritten(table: Table, written: Flags) -> int:  # pragma: no cover - compiled
    """First row that reads unwritten bytes, as in `first_unwritten`, with places in cells of all memories; `written`
    has a flag for each cell, and is changed."""
    for number in range(len(table)):
        for run in range(table[number, ROWS]):
            start = table[number, FIRST] + run * table[number, STRIDE]
            cells = written[start : start + table[number, ROW]]
            if table[number, WRITE]:
                for place in range(len(cells)):
                    cells[place] = True
                continue
            whole = True
            for cell in cells:
                whole &= cell  # not left early, so that many are asked at once
            if not whole:
                return number
    return -1
