"""Scalar loads and stores in full: misaligned and unmapped addresses, device registers, unwritten and contested bytes.

The compiled loop does the plain cases itself and leaves the others to this module. A misaligned access is done byte by
byte. A store to `tohost` ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from codegen.neuralscale.simulator.core.hart import MASK, Hart
from codegen.neuralscale.simulator.devices.devices import Devices, Unmapped
from codegen.neuralscale.simulator.memory import shadow
from codegen.neuralscale.simulator.memory.faults import SimulationFault, Trap
from codegen.neuralscale.simulator.memory.memory import SimulatedMemory
from codegen.neuralscale.simulator.memory.transfer import complaint

LOAD_FAULT: Final = 5
STORE_FAULT: Final = 7


class Finished(Exception):
    """The guest stored its exit code to `tohost`."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Bus:
    """The reach of a core's loads and stores. `tohost` is an address in DDR."""

    memory: SimulatedMemory
    devices: Devices
    tohost: int

    def is_memory(self, hart: Hart, address: int) -> bool:
        """Whether `address` lies in a memory, not in a register or a hole."""
        return self.memory.offset(hart.index, address) >= 0

    def load(self, hart: Hart, address: int, size: int) -> int:
        """Load `size` bytes, unsigned. Raises `Trap` or `SimulationFault`."""
        if address & (size - 1):
            return sum(self.load(hart, address + i & MASK, 1) << 8 * i for i in range(size))
        start = self.memory.offset(hart.index, address)
        if start < 0:
            try:
                return self.devices.load(hart, address, size)
            except Unmapped:
                raise Trap(LOAD_FAULT, address) from None
        if self.memory.tracked:
            self._check(start, size, shadow.READ_MASK, shadow.WRITTEN, "reads")
        return int.from_bytes(self.memory.bytes[start : start + size].tobytes(), "little")

    def store(self, hart: Hart, address: int, size: int, value: int) -> None:
        """Store the low `size` bytes. Raises `Trap`, `SimulationFault` or `Finished`."""
        if address & (size - 1):
            for i in range(size):
                self.store(hart, address + i & MASK, 1, value >> 8 * i)
            return
        value &= (1 << 8 * size) - 1
        start = self.memory.offset(hart.index, address)
        if start < 0:
            try:
                self.devices.store(hart, address, size, value)
            except Unmapped:
                raise Trap(STORE_FAULT, address) from None
            return
        if self.memory.tracked:
            self._check(start, size, shadow.WRITE_MASK, shadow.NOTHING, "writes")
            self.memory.shadow[start : start + size] |= shadow.WRITTEN
        for i in range(size):
            self.memory.bytes[start + i] = value >> 8 * i & 0xFF
        if address & ~7 == self.tohost:
            self._told()

    def _check(self, start: int, size: int, mask: np.uint8, expected: np.uint8, action: str) -> None:
        at = shadow.scan(self.memory.shadow, start, 1, size, size, mask, expected)
        if at >= 0:
            raise complaint(self.memory, self.memory.arena(), at, action)

    def _told(self) -> None:
        start = self.memory.offset(0, self.tohost)
        value = int.from_bytes(self.memory.bytes[start : start + 8].tobytes(), "little")
        if value & 1 and value >> 48 == 0:
            raise Finished(value >> 1)
        if value:
            raise SimulationFault("unsupported", f"stores {value:#x} to tohost: only (code << 1) | 1 is understood")
