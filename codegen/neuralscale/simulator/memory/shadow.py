"""One shadow byte per memory byte: whether it was written, and whether a transfer in flight still reads or will
overwrite it.

A read is sound when the byte is WRITTEN and not ARRIVING; a write is sound when it is neither ARRIVING nor LEAVING. The
kernels go over a strided box (rows of `row_bytes`, `stride` apart) so that one call covers a whole operand.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

WRITTEN: Final = np.uint8(1)
ARRIVING: Final = np.uint8(2)  # destination of a transfer that has not landed
LEAVING: Final = np.uint8(4)  # source of a transfer that has not landed
NOTHING: Final = np.uint8(0)
READ_MASK: Final = np.uint8(3)
WRITE_MASK: Final = np.uint8(6)

_SCAN = "int64(uint8[::1], int64, int64, int64, int64, uint8, uint8)"
_MARK = "void(uint8[::1], int64, int64, int64, int64, uint8, uint8)"


@njit(_SCAN, cache=True, nogil=True)
def scan(
    shadow: NDArray[np.uint8], start: int, rows: int, row_bytes: int, stride: int, mask: np.uint8, expected: np.uint8
) -> int:
    """Offset of the first byte of the box whose masked shadow is not `expected`, -1 when all are."""
    for row in range(rows):
        first = start + row * stride
        line = shadow[first : first + row_bytes]
        wrong = np.uint8(0)
        for at in range(line.size):  # one byte wide throughout, so that it runs on vectors
            wrong = np.uint8(wrong | np.uint8((line[at] & mask) ^ expected))
        if wrong != 0:
            for at in range(line.size):
                if (line[at] & mask) != expected:
                    return first + at
    return -1


@njit(_MARK, cache=True, nogil=True)
def mark(
    shadow: NDArray[np.uint8], start: int, rows: int, row_bytes: int, stride: int, clear: np.uint8, put: np.uint8
) -> None:
    """Clear the bits of `clear` and set those of `put` over the box."""
    keep = np.uint8(~clear & 0xFF)
    for row in range(rows):
        first = start + row * stride
        line = shadow[first : first + row_bytes]
        for at in range(line.size):
            line[at] = np.uint8((line[at] & keep) | put)
