"""The sysDMA engines of a cluster: two engines, two channels each, programmed through 32-bit registers.

    start bit --descriptor chain--> Transfer in flight --a core sees "not busy" or "done"--> data land

The model is hostile on purpose: data land only when a core reads the busy or the done register after a few reads that
still report busy; their number is drawn from the run's seed. Descriptors are read when the channel starts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from codegen.neuralscale.simulator.memory.faults import SimulationFault
from codegen.neuralscale.simulator.memory.memory import (
    DDR,
    LLB,
    LLB_ALIAS,
    SRAM,
    Bank,
    SimulatedMemory,
    high_place,
)
from codegen.neuralscale.simulator.memory.transfer import MemoryTransfer, MovedPiece

ENGINE_BASES: Final = (
    (0xC9F0_0000, 0xD1F0_0000),
    (0xCFF0_0000, 0xD7F0_0000),
    (0xD9F0_0000, 0xE1F0_0000),
    (0xDFF0_0000, 0xE7F0_0000),
)
WINDOW_BYTES: Final = 0x2000
CHANNELS: Final = 2
DESCRIPTOR_STORE: Final = 0x1000
DESCRIPTOR_BYTES: Final = 24
_LONGEST_CHAIN: Final = 4096
_MOST_BUSY_READS: Final = 4

_START, _BUSY, _DONE, _INTERRUPTS, _HIGH = 0x004, 0x010, 0x014, 0x018, 0x01C
_CONTROL, _FIRST = 0x100, 0x114
_DESCRIPTOR_MODE: Final = 0x8000_0000


@dataclass(slots=True)
class Channel:
    """One channel: the start of its chain, its transfer in flight, and the number of reads that still see it busy."""

    first: int = 0
    transfer: MemoryTransfer | None = None
    busy_reads: int = 0
    done: bool = False


@dataclass(frozen=True, slots=True)
class DmaBus:
    """Functions of the machine that an engine needs."""

    memory: SimulatedMemory
    random: random.Random
    depart: Callable[[MemoryTransfer], None]
    land: Callable[[MemoryTransfer], None]


class SysDmaEngine:
    """One sysDMA engine at `base`."""

    def __init__(self, base: int, line: DmaBus) -> None:
        self.base = base
        self._line = line
        self._registers: dict[int, int] = {}
        self._store = bytearray(0x1000)
        self._channels = [Channel() for _ in range(CHANNELS)]

    def load(self, offset: int) -> int:
        """Value of the 32-bit register at `offset` (a multiple of 4)."""
        if offset >= DESCRIPTOR_STORE:
            place = offset - DESCRIPTOR_STORE
            return int.from_bytes(self._store[place : place + 4], "little")
        if offset in (_BUSY, _DONE):
            self._observe()
        if offset == _BUSY:
            return sum(1 << number for number, channel in enumerate(self._channels) if channel.transfer)
        if offset == _DONE:
            return sum(1 << 2 * number for number, channel in enumerate(self._channels) if channel.done)
        return self._registers.get(offset, 0) if offset == _HIGH else 0

    def store(self, offset: int, value: int) -> None:
        """Write the 32-bit register at `offset`. Raises SimulationFault for a start that the engine cannot carry
        out."""
        if offset >= DESCRIPTOR_STORE:
            place = offset - DESCRIPTOR_STORE
            self._store[place : place + 4] = value.to_bytes(4, "little")
        elif offset == _START:
            for number in range(CHANNELS):
                if value >> number & 1:
                    self._start(number)
        elif offset == _DONE:
            for number, channel in enumerate(self._channels):
                channel.done = channel.done and not value >> 2 * number & 1
        elif offset == _INTERRUPTS and value:
            raise SimulationFault("unsupported", f"sysDMA {self.base:#x}: interrupts are not modelled, poll the flags")
        elif offset in (_CONTROL, _CONTROL + 0x100) and value != _DESCRIPTOR_MODE:
            raise SimulationFault("unsupported", f"sysDMA {self.base:#x}: channel control {value:#x}, only 0x80000000")
        elif offset in (_FIRST, _FIRST + 0x100):
            self._channels[offset >> 9].first = value
        else:
            self._registers[offset] = value

    def _observe(self) -> None:
        for channel in self._channels:
            if channel.transfer is None:
                continue
            channel.busy_reads -= 1
            if channel.busy_reads < 0:
                self._line.land(channel.transfer)
                channel.transfer, channel.done = None, True

    def finish(self) -> None:
        """Let everything in flight land at the end of the run."""
        for channel in self._channels:
            if channel.transfer is not None:
                self._line.land(channel.transfer)
                channel.transfer = None

    def _start(self, number: int) -> None:
        channel = self._channels[number]
        if channel.transfer is not None:
            raise SimulationFault("race", f"sysDMA {self.base:#x}: channel {number} started while it is busy")
        pieces = self._chain(number)
        channel.first = 0  # a start without a new descriptor copies nothing
        transfer = MemoryTransfer(f"sysDMA {self.base:#x} channel {number}", pieces)
        self._line.depart(transfer)
        channel.transfer = transfer
        channel.busy_reads = self._line.random.randrange(_MOST_BUSY_READS)

    def _chain(self, number: int) -> tuple[MovedPiece, ...]:
        at, pieces, seen = self._channels[number].first, [], 0
        while at:
            place = at - self.base - DESCRIPTOR_STORE
            seen += 1
            if not 0 <= place <= 0x1000 - DESCRIPTOR_BYTES or seen > _LONGEST_CHAIN:
                why = "the chain never ends" if seen > _LONGEST_CHAIN else f"{at:#x} is outside the descriptor store"
                raise SimulationFault("range", f"sysDMA {self.base:#x} channel {number}: {why}")
            words = [int.from_bytes(self._store[place + 4 * i : place + 4 * i + 4], "little") for i in range(6)]
            at = words[5]
            if words[0] >> 31:
                pieces.append(self._piece(number, words))
        return tuple(pieces)

    def _piece(self, number: int, words: list[int]) -> MovedPiece:
        if words[0] >> 29 & 1:
            row_bytes = (words[4] >> 24 & 0x3F) << 16 | words[3] & 0xFFFF or 1 << 22
            rows, stride = words[3] >> 16 or 1 << 16, words[4] & 0xFF_FFFF or row_bytes
            if stride < row_bytes:
                raise SimulationFault(
                    "range", f"sysDMA {self.base:#x} channel {number}: stride {stride} is less than width {row_bytes}"
                )
        else:
            rows, row_bytes = 1, words[0] & 0x3F_FFFF or 1 << 22
            stride = row_bytes
        span = stride * (rows - 1) + row_bytes
        source, source_start = self._place(number, 0, words[1], span)
        destination, destination_start = self._place(number, 1, words[2], rows * row_bytes)
        return MovedPiece(source, source_start, destination, destination_start, rows, row_bytes, stride)

    def _place(self, number: int, side: int, address: int, size_bytes: int) -> tuple[Bank, int]:
        high_byte = self._registers.get(_HIGH, 0) >> 8 * (2 * number + side) & 0xFF
        high = high_place(high_byte << 32 | address, size_bytes)
        if high is not None:
            return self._line.memory.high(high[0]), high[1]
        if any(window.holds(address, size_bytes) for window in (DDR, LLB, LLB_ALIAS, SRAM)):
            return self._line.memory.arena(), self._line.memory.offset(0, address)
        raise SimulationFault(
            "range",
            f"sysDMA {self.base:#x} channel {number}: {'destination' if side else 'source'} "
            f"{address:#x}+{size_bytes:#x} does not lie in DDR, LLB or SRAM",
        )
