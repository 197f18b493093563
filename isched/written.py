"""Reads of bytes that nothing wrote before.

accesses in their order --compiled--> the first that reads such bytes
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from isched.touches import END, FIRST, MEMORY, ROW, ROWS, STRIDE, WRITE, Table

__all__ = ["first_unwritten"]


def first_unwritten(table: Table) -> int:
    """The first row that reads bytes which no row before it wrote; -1 where there is none."""
    if not len(table):
        return -1
    # What all places and sizes are multiples of is written as a whole or not at all.
    units = np.array([_unit(table[table[:, MEMORY] == memory]) for memory in range(int(table[:, MEMORY].max()) + 1)])
    unit = units[table[:, MEMORY]]
    scaled = table.copy()
    for column in (FIRST, END, ROW, STRIDE):
        scaled[:, column] //= unit
    ends = np.zeros(len(units), np.int64)
    np.maximum.at(ends, scaled[:, MEMORY], scaled[:, END])
    begins = np.concatenate(([0], np.cumsum(ends)))
    scaled[:, FIRST] += begins[scaled[:, MEMORY]]
    return int(_first_unwritten(scaled, np.zeros(begins[-1], np.bool_)))


def _unit(table: Table) -> int:
    return max(1, int(np.gcd.reduce(table[:, (FIRST, ROW, STRIDE)], axis=None)))


@njit(cache=True, nogil=True)
def _first_unwritten(table: Table, written: npt.NDArray[np.bool_]) -> int:  # pragma: no cover - compiled
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
