"""Address map of one cluster, and the bytes of its memories.

All directly addressable memories of a cluster lie in one lazily mapped arena, so that one page table per core turns an
address into an arena offset for scalar code, NPU operands and DMA alike:

    core, address --page table (256 KiB pages)--> arena offset --> bytes and, with poison, one shadow byte each

L1 and IM are private: the same address leads to another part of the arena for every core. Memory that only sysDMA
reaches (888 MiB per bank) is allocated separately when it is first used. Addresses and sizes are those of NeuralScale
NPU v1.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.simulator.memory import shadow
from codegen.neuralscale.simulator.memory.faults import SimulationError

DDR_BASE: Final = 0x0000_0000
DDR_BYTES: Final = 0xC000_0000
L1_BASE: Final = 0xC000_0000
L1_BYTES: Final = 0x14_0000
IM_BASE: Final = 0xC040_0000
IM_BYTES: Final = 0x4_0000
SRAM_BASE: Final = 0xC100_0000
SRAM_BYTES: Final = 0x8_0000
LLB_BASE: Final = 0xF800_0000
LLB_BYTES: Final = 0x200_0000
LLB_ALIAS_BASE: Final = 0xFA00_0000
HIGH_BASE: Final = 0x8_C080_0000
HIGH_BYTES: Final = 888 << 20
HIGH_BANK_STRIDE: Final = 0x1_0000_0000
BANKS: Final = 4

PAGE_BITS: Final = 18
PAGE_BYTES: Final = 1 << PAGE_BITS
# A dump shows unwritten bytes as this: an fp16 NaN with a pattern that no program stores by accident.
POISON_BYTE: Final = 0x7E

# Bytes beyond L1 and IM: for one-byte elements the vendor's range check admits one byte too many.
_GUARD_BYTES: Final = 64

MAP_NORESERVE: Final = 0x4000  # Linux: reserve addresses, not memory


@dataclass(frozen=True, slots=True)
class MemoryWindow:
    """One memory in the address space of programs: `name`, first address and size in bytes."""

    name: str
    base: int
    size_bytes: int

    def holds(self, address: int, size_bytes: int = 1) -> bool:
        """Whether all of [address, address + size_bytes) lies in this memory."""
        return self.base <= address and address + size_bytes <= self.base + self.size_bytes


DDR: Final = MemoryWindow("DDR", DDR_BASE, DDR_BYTES)
L1: Final = MemoryWindow("L1", L1_BASE, L1_BYTES)
IM: Final = MemoryWindow("IM", IM_BASE, IM_BYTES)
SRAM: Final = MemoryWindow("SRAM", SRAM_BASE, SRAM_BYTES)
LLB: Final = MemoryWindow("LLB", LLB_BASE, LLB_BYTES)
LLB_ALIAS: Final = MemoryWindow("LLB", LLB_ALIAS_BASE, LLB_BYTES)
WINDOWS: Final = (DDR, L1, IM, SRAM, LLB, LLB_ALIAS)


def window_of(address: int) -> MemoryWindow | None:
    """The memory that holds `address`, or None for registers and holes."""
    return next((window for window in WINDOWS if window.holds(address)), None)


def _reserve(size_bytes: int, what: str) -> mmap.mmap:
    """Zero bytes that take no memory until they are used."""
    try:
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    except (OSError, ValueError) as error:
        raise SimulationError(f"cannot reserve {size_bytes >> 20} MiB of address space for {what}: {error}") from None


@dataclass(slots=True)
class Bank:
    """Bytes with their shadow; `shadow` is a single byte when nothing is tracked."""

    data: NDArray[np.uint8]
    shadow: NDArray[np.uint8]


class SimulatedMemory:
    """The memories of one cluster with `cores` cores. With `tracked`, every byte has a shadow byte (see `shadow`)."""

    def __init__(self, cores: int, *, tracked: bool) -> None:
        self.cores = cores
        self.tracked = tracked
        self._high: dict[int, Bank] = {}
        offset = DDR_BYTES
        placed: list[tuple[MemoryWindow, int | None, int]] = [
            (DDR, None, 0),
            (LLB, None, offset),
            (LLB_ALIAS, None, offset),
        ]
        offset += LLB_BYTES
        placed.append((SRAM, None, offset))
        offset += SRAM_BYTES
        for core in range(cores):
            for window in (L1, IM):
                placed.append((window, core, offset))
                offset += window.size_bytes + _GUARD_BYTES
        self._placed = tuple(placed)
        self.bytes = np.frombuffer(_reserve(offset, "the memories"), np.uint8)
        self.words = self.bytes.view(np.uint32)
        marks = _reserve(offset, "the written-byte marks") if tracked else bytearray(8)
        self.shadow = np.frombuffer(marks, np.uint8)
        self.shadow_words = self.shadow.view(np.uint32)
        self.pages = np.full((cores, 1 << (32 - PAGE_BITS)), -1, np.int64)
        for window, owner, start in placed:
            first, count = window.base >> PAGE_BITS, window.size_bytes >> PAGE_BITS
            rows = slice(None) if owner is None else slice(owner, owner + 1)
            self.pages[rows, first : first + count] = start + PAGE_BYTES * np.arange(count, dtype=np.int64)

    def offset(self, core: int, address: int) -> int:
        """Arena offset of `address` as `core` sees it, -1 where there is no memory."""
        page = int(self.pages[core, address >> PAGE_BITS])
        return page if page < 0 else page + (address & (PAGE_BYTES - 1))

    def describe(self, offset: int) -> tuple[str, int, int | None]:
        """(memory name, address, owning core or None) of an arena offset."""
        for window, core, start in self._placed:
            if start <= offset < start + window.size_bytes:
                return window.name, window.base + offset - start, core
        return "memory", offset, None

    def high(self, bank: int) -> Bank:
        """The DMA-only memory of a bank, allocated at the first request."""
        if bank not in self._high:
            data = np.frombuffer(_reserve(HIGH_BYTES, "high memory"), np.uint8)
            marks = (
                np.frombuffer(_reserve(HIGH_BYTES, "marks of high memory"), np.uint8) if self.tracked else self.shadow
            )
            self._high[bank] = Bank(data, marks)
        return self._high[bank]

    def arena(self) -> Bank:
        """The arena as a bank."""
        return Bank(self.bytes, self.shadow)

    def write(self, core: int, address: int, data: bytes | memoryview, what: str) -> None:
        """Store of the loader, which marks the bytes as written. Raises `SimulationError` when the range is not
        memory."""
        target, start = self._bank_place(core, address, len(data), what)
        target.data[start : start + len(data)] = np.frombuffer(data, np.uint8)
        if self.tracked:
            target.shadow[start : start + len(data)] |= shadow.WRITTEN

    def zero(self, core: int, address: int, size_bytes: int, what: str) -> None:
        """Zero fill of the loader."""
        target, start = self._bank_place(core, address, size_bytes, what)
        target.data[start : start + size_bytes] = 0
        if self.tracked:
            target.shadow[start : start + size_bytes] |= shadow.WRITTEN

    def read(self, core: int, address: int, size_bytes: int) -> bytes:
        """Bytes as a dump shows them; with tracking, unwritten bytes read as `POISON_BYTE`."""
        target, start = self._bank_place(core, address, size_bytes, "dump")
        data = target.data[start : start + size_bytes]
        if not self.tracked:
            return data.tobytes()
        marks = target.shadow[start : start + size_bytes]
        return np.where(marks & shadow.WRITTEN, data, np.uint8(POISON_BYTE)).tobytes()

    def _bank_place(self, core: int, address: int, size_bytes: int, what: str) -> tuple[Bank, int]:
        check_range(address, size_bytes, what)
        high = high_place(address, size_bytes)
        if high is not None:
            return self.high(high[0]), high[1]
        return self.arena(), self.offset(core, address)


def high_place(address: int, size_bytes: int) -> tuple[int, int] | None:
    """(bank, offset) of a range in the DMA-only memories, or None."""
    bank, offset = divmod(address - HIGH_BASE, HIGH_BANK_STRIDE)
    if 0 <= bank < BANKS and offset + size_bytes <= HIGH_BYTES:
        return bank, offset
    return None


def check_range(address: int, size_bytes: int, what: str) -> None:
    """Raises `SimulationError` unless the range lies in one memory."""
    if any(window.holds(address, size_bytes) for window in WINDOWS) or high_place(address, size_bytes) is not None:
        return
    places = ", ".join(f"{window.name} {window.base:#x}+{window.size_bytes:#x}" for window in WINDOWS)
    raise SimulationError(f"{what}: {size_bytes} bytes at {address:#x} do not lie in one memory ({places})")
