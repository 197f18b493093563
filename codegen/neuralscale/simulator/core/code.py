"""The program as the cores fetch it: instructions by address, and decoded pages for the compiled loop.

Pages are decoded when a core first runs into them and shared by all cores that see the same memory. Like the chip, the
decoder does not notice stores to code before fence.i.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import numpy as np

from codegen.neuralscale.isa.row import InstructionRow
from codegen.neuralscale.isa.syntax import format_instruction
from codegen.neuralscale.isa.table import ROWS, decode
from codegen.neuralscale.simulator.core import scalar
from codegen.neuralscale.simulator.core.compressed import expand
from codegen.neuralscale.simulator.core.decode import DecodeTable, decode_page, make_table
from codegen.neuralscale.simulator.core.hart import Hart
from codegen.neuralscale.simulator.core.vector_rows import VECTOR_ROWS
from codegen.neuralscale.simulator.memory.faults import SimulationFault, Trap
from codegen.neuralscale.simulator.memory.memory import SimulatedMemory

FETCH_FAULT: Final = 1
_FIRST_PAGES: Final = 8


@cache
def table() -> DecodeTable:
    """The rows of all simulated instructions: the instruction table and the vector unit."""
    return make_table((*ROWS, *VECTOR_ROWS))


@dataclass(frozen=True, slots=True)
class Fetched:
    """An instruction: its 32-bit word, its length in bytes, and its row, None when illegal."""

    word: int
    length: int
    row: InstructionRow | None

    @property
    def text(self) -> str:
        """Assembly text, or the word where there is none."""
        instruction = decode(self.word)
        return f"word {self.word:#010x}" if instruction is None else format_instruction(instruction)


@lru_cache(1 << 16)
def _fetched(word: int, length: int) -> Fetched:
    instruction = decode(word)
    if instruction is None:
        return Fetched(word, length, next((row for row in VECTOR_ROWS if word & row.mask == row.match), None))
    return Fetched(word, length, table().rows[table().number[instruction.mnemonic]])


class DecodedCode:
    """Decoded code of all cores. `pool` holds the decoded pages, and is replaced by a larger one when it is full."""

    def __init__(self, memory: SimulatedMemory) -> None:
        self._memory = memory
        self._halves = memory.bytes.view(np.uint16)
        self._slots: dict[int, int] = {}  # arena offset of a page -> its index in the pool
        self.pool = np.zeros(_FIRST_PAGES * scalar.CODE_PAGE_HALFWORDS, np.int64)
        self.pages = [np.zeros(1 << (32 - scalar.CODE_PAGE_BITS), np.int32) for _ in range(memory.cores)]

    def provide(self, hart: Hart) -> None:
        """Decode the page at pc. Raises `Trap` when there is no memory."""
        page = hart.pc >> scalar.CODE_PAGE_BITS
        start = self._memory.offset(hart.index, page << scalar.CODE_PAGE_BITS)
        if start < 0:
            raise Trap(FETCH_FAULT, hart.pc)
        slot = self._slots.setdefault(start, len(self._slots))
        halfwords = scalar.CODE_PAGE_HALFWORDS
        if (slot + 1) * halfwords > len(self.pool):
            self.pool = np.concatenate([self.pool, np.zeros_like(self.pool)])
        source = self._halves[start >> 1 : (start >> 1) + halfwords + 1]
        decode_page(table(), source, self.pool[slot * halfwords : (slot + 1) * halfwords])
        self.pages[hart.index][page] = slot + 1

    def forget(self) -> None:
        """Forget all decoded code, for fence.i or code that changed under the decoder."""
        self._slots.clear()
        for pages in self.pages:
            pages.fill(0)

    def fetch(self, hart: Hart) -> Fetched:
        """The instruction at pc in the current memory. Raises `Trap` when there is no memory."""
        start = self._memory.offset(hart.index, hart.pc)
        if start < 0:
            raise Trap(FETCH_FAULT, hart.pc)
        half = int(self._halves[start >> 1])
        if half & 3 != 3:
            return _fetched(expand(half) or 0, 2)
        return _fetched(int(self._halves[(start >> 1) + 1]) << 16 | half, 4)

    def check_written(self, hart: Hart, length: int) -> None:
        """With shadow bytes, raises `SimulationFault` when nothing has written the instruction at pc."""
        if self._memory.tracked:
            start = self._memory.offset(hart.index, hart.pc)
            if not all(int(self._memory.shadow[at]) & 1 for at in (start, start + length - 1)):
                raise SimulationFault("poison", "executes bytes that nothing has written")

    def trace_line(self, hart: Hart) -> str:
        """Core, pc, word and text of the next instruction; empty where there is none."""
        try:
            fetched = self.fetch(hart)
        except Trap:
            return ""
        word = self.word(hart, fetched.length)
        return f"core {hart.hart_id} {hart.pc:#010x} {word:#0{2 * fetched.length + 2}x} {fetched.text}"

    def word(self, hart: Hart, length: int) -> int:
        """The 2 or 4 bytes of the instruction at pc as they lie in memory, which must have them."""
        start = self._memory.offset(hart.index, hart.pc) >> 1
        half = int(self._halves[start])
        return half if length == 2 else int(self._halves[start + 1]) << 16 | half
