"""Decode machine code to the packed form that the compiled loop runs, one 16 KiB page at a time.

    page of memory --table of (match, mask)--> one int64 for each halfword (instructions may start at any of them)

A word is compared only with the rows of its major opcode: most of a page is data or padding that no row matches.

Bit patterns come from the instruction table of `codegen.neuralscale.isa.table`; the layout of the packed word is
documented in `scalar`. Instructions that the loop does not run are packed with operation 0 and left to Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from codegen.neuralscale.isa.row import InstructionRow
from codegen.neuralscale.simulator.core import scalar
from codegen.neuralscale.simulator.core.compressed import expand

_KIND_R, _KIND_I, _KIND_S, _KIND_B, _KIND_U, _KIND_J = range(6)
_KIND_OF_OPCODE: Final = {
    0x03: _KIND_I, 0x07: _KIND_I, 0x13: _KIND_I, 0x67: _KIND_I, 0x73: _KIND_I, 0x0F: _KIND_I,
    0x23: _KIND_S, 0x27: _KIND_S, 0x63: _KIND_B, 0x37: _KIND_U, 0x17: _KIND_U, 0x6F: _KIND_J,
}  # fmt: skip
_FPR_DESTINATION: Final = frozenset({"flw", "fmv.w.x"})


@dataclass(frozen=True, slots=True)
class DecodeTable:
    """The instruction table as arrays; row numbers index `rows` and a core's instruction counts."""

    rows: tuple[InstructionRow, ...]
    number: dict[str, int]  # by mnemonic
    match: NDArray[np.uint32]
    mask: NDArray[np.uint32]
    operation: NDArray[np.uint8]
    to_fpr: NDArray[np.uint8]
    kind: NDArray[np.uint8]  # immediate layout, indexed by major opcode
    compressed: NDArray[np.uint32]  # 32-bit equivalent of each halfword, 0 where there is none
    candidates: NDArray[np.uint16]  # row numbers, those of major opcode 0 first, ascending within each
    first: NDArray[np.int64]  # start of each major opcode's candidates; entry 128 is the end of the last ones


def make_table(rows: tuple[InstructionRow, ...]) -> DecodeTable:
    """The arrays for these rows, whose bit patterns exclude each other."""
    kind = np.zeros(128, np.uint8)
    for opcode, layout in _KIND_OF_OPCODE.items():
        kind[opcode] = layout
    of_opcode = [[n for n, row in enumerate(rows) if opcode & row.mask == row.match & 0x7F] for opcode in range(128)]
    return DecodeTable(
        rows=rows,
        number={row.mnemonic: number for number, row in enumerate(rows)},
        match=np.array([row.match for row in rows], np.uint32),
        mask=np.array([row.mask for row in rows], np.uint32),
        operation=np.array([scalar.OPERATIONS.get(row.mnemonic, scalar.SLOW) for row in rows], np.uint8),
        to_fpr=np.array([row.mnemonic in _FPR_DESTINATION for row in rows], np.uint8),
        kind=kind,
        compressed=np.array([(expand(half) or 0) if half & 3 != 3 else 0 for half in range(1 << 16)], np.uint32),
        candidates=np.array([number for numbers in of_opcode for number in numbers], np.uint16),
        first=np.cumsum([0, *map(len, of_opcode)], dtype=np.int64),
    )


def decode_page(table: DecodeTable, halfwords: NDArray[np.uint16], packed: NDArray[np.int64]) -> None:
    """Decode a page: `halfwords` has one halfword more than `packed` (the next page's first)."""
    _decode(
        halfwords, table.compressed, table.match, table.mask, table.operation, table.to_fpr, table.kind,
        table.candidates, table.first, packed,
    )  # fmt: skip


_SIGNATURE = (
    "void(uint16[::1], uint32[::1], uint32[::1], uint32[::1], uint8[::1], uint8[::1], uint8[::1], uint16[::1], "
    "int64[::1], int64[::1])"
)


@njit(_SIGNATURE, cache=True, nogil=True)
def _decode(
    halfwords: NDArray[np.uint16],
    compressed: NDArray[np.uint32],
    match: NDArray[np.uint32],
    mask: NDArray[np.uint32],
    operation: NDArray[np.uint8],
    to_fpr: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    candidates: NDArray[np.uint16],
    first: NDArray[np.int64],
    packed: NDArray[np.int64],
) -> None:
    unknown = np.int64(len(match)) << 25
    for place in range(len(packed)):
        half = np.int64(halfwords[place])
        short = half & 3 != 3
        word = np.int64(compressed[half]) if short else half | np.int64(halfwords[place + 1]) << 16
        packed[place] = unknown | (np.int64(256) if short else np.int64(0))
        for at in range(first[word & 0x7F], first[(word & 0x7F) + 1]):
            row = candidates[at]
            if word & np.int64(mask[row]) == np.int64(match[row]):
                signed = np.int64(np.int32(word))
                immediate = np.int64(0)
                layout = kind[word & 0x7F]
                if layout == 1:
                    immediate = signed >> 20
                elif layout == 2:
                    immediate = (signed >> 25 << 5) | (word >> 7 & 0x1F)
                elif layout == 3:
                    immediate = (
                        (signed >> 31 << 12) | (word >> 7 & 1) << 11 | (word >> 25 & 0x3F) << 5 | (word >> 8 & 0xF) << 1
                    )
                elif layout == 4:
                    immediate = signed >> 12
                elif layout == 5:
                    immediate = (
                        (signed >> 31 << 20)
                        | (word >> 12 & 0xFF) << 12
                        | (word >> 20 & 1) << 11
                        | (word >> 21 & 0x3FF) << 1
                    )
                rd = word >> 7 & 0x1F
                if rd == 0 and to_fpr[row] == 0:
                    rd = np.int64(32)
                op = np.int64(operation[row])
                if word == 0x6F:  # a jump to itself: the core stops there, and Python must know
                    op = np.int64(0)
                packed[place] = (
                    op
                    | (np.int64(256) if short else np.int64(0))
                    | rd << 9
                    | (word >> 15 & 0x1F) << 15
                    | (word >> 20 & 0x1F) << 20
                    | np.int64(row) << 25
                    | immediate << 43
                )
                break
