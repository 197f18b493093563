"""Compiled test whether the rows of two regions meet, which is slow to import and rarely needed."""

from __future__ import annotations

from numba import njit


@njit(cache=True)
def rows_meet(
    a_first: int, a_row: int, a_rows: int, a_stride: int, b_first: int, b_row: int, b_rows: int, b_stride: int
) -> bool:  # pragma: no cover - compiled
    """Whether one of the rows of `a` meets one of `b`, where rows do not touch each other. Compiled, as rows are
    many."""
    for run in range(a_rows):
        start = a_first + run * a_stride
        first = max(0, (start - b_first - b_row) // b_stride + 1)
        if first < b_rows and b_first + first * b_stride < start + a_row:
            return True
    return False
