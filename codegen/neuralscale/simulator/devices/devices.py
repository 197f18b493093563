"""Devices at addresses that are not memory: sync masks, sysDMA, the per-core page, UART, CLINT, boot ROM.

Loads and stores come as (hart, address, size in bytes); an address without a device raises `Unmapped`, which the caller
turns into the load or store access fault of the instruction.
"""

from __future__ import annotations

from typing import Final

from codegen.neuralscale.simulator.core.hart import Hart
from codegen.neuralscale.simulator.devices.dma import WINDOW_BYTES, SysDmaEngine
from codegen.neuralscale.simulator.devices.sync import GROUPS, Barriers

_SYNC_BASE: Final = 0xD008_0000
# Software interrupts, timer compare registers and time: (address, bytes for each core).
_CLINT: Final = ((0xC044_0000, 4), (0xC044_4000, 8))
_TIME_BASE, _TIME_BYTES = 0xC044_BFF8, 8
_MAILBOX_QUEUES: Final = (0x0C, 0x10)  # empty, so loads from them fault
_BOOT_BASE, _BOOT_BYTES = 0xC060_1000, 0x1000
_MISC_BASE, _MAILBOX_BASE, _PAGE = 0xC07F_3000, 0xC07F_4000, 0x1000
_UART_BASE, _UART_STORE_BYTES, _UART_LOAD_END = 0xD801_A000, 0x30, 0xF800_0000
_MISC_UART: Final = 0x100
_MISC_FILL: Final = 0x5A
_UART_FILL: Final = 0x20


class Unmapped(Exception):
    """No device answers at this address."""


class Console:
    """Bytes stored to the UARTs, collected line by line as `core N: text`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._open: dict[str, bytearray] = {}

    def put(self, who: str, value: int) -> None:
        """Put one byte; newline ends the line, NUL is dropped."""
        if value == ord("\n"):
            self.lines.append(f"{who}: {self._open.pop(who, bytearray()).decode('utf-8', 'replace')}")
        elif value:
            self._open.setdefault(who, bytearray()).append(value)

    def close(self) -> None:
        """End the lines that have no newline."""
        for who in tuple(self._open):
            self.put(who, ord("\n"))


class Devices:
    """The register space of one cluster."""

    def __init__(self, barriers: Barriers, engines: tuple[SysDmaEngine, ...], console: Console) -> None:
        self._barriers = barriers
        self._engines = engines
        self._console = console
        self._cores = bin(barriers.masks[0] ^ 0xFFFF_FFFF).count("1")
        self._storage: dict[tuple[int, int], int] = {}

    def load(self, hart: Hart, address: int, size: int) -> int:
        """Value of `size` bytes at `address`."""
        engine = self._engine(address)
        if engine is not None:
            value = engine.load(address - engine.base & ~3)
            return value >> 8 * (address & 3) & (1 << 8 * size) - 1
        if _SYNC_BASE <= address < _SYNC_BASE + 4 * GROUPS:
            return self._barriers.masks[(address - _SYNC_BASE) >> 2] & (1 << 8 * size) - 1
        if _MISC_BASE <= address < _MISC_BASE + _PAGE:
            return int.from_bytes(bytes([_MISC_FILL]) * size, "little")
        if _UART_BASE <= address <= _UART_LOAD_END - size:
            return int.from_bytes(bytes([_UART_FILL]) * size, "little")
        if _BOOT_BASE <= address < _BOOT_BASE + _BOOT_BYTES:
            return 0
        if _MAILBOX_BASE <= address < _MAILBOX_BASE + _PAGE and address - _MAILBOX_BASE & ~3 not in _MAILBOX_QUEUES:
            return 0
        if self._stored(address):
            return sum(self._storage.get((hart.index, address + i), 0) << 8 * i for i in range(size))
        raise Unmapped

    def store(self, hart: Hart, address: int, size: int, value: int) -> None:
        """Store the low `size` bytes of `value`."""
        engine = self._engine(address)
        if engine is not None:
            engine.store(address - engine.base & ~3, value)
        elif _SYNC_BASE <= address < _SYNC_BASE + 4 * GROUPS:
            self._barriers.masks[(address - _SYNC_BASE) >> 2] = value
        elif _MISC_BASE <= address < _MISC_BASE + _PAGE:
            if address == _MISC_BASE + _MISC_UART:
                self._print(f"core {hart.hart_id}", value, size)
        elif _UART_BASE <= address < _UART_BASE + _UART_STORE_BYTES:
            if address == _UART_BASE:
                self._print("uart", value, size)
        elif _MAILBOX_BASE <= address < _MAILBOX_BASE + _PAGE:
            pass
        elif self._stored(address):
            for i in range(size):
                self._storage[hart.index, address + i] = value >> 8 * i & 0xFF
        else:
            raise Unmapped

    def _print(self, who: str, value: int, size: int) -> None:
        for i in range(size):
            self._console.put(who, value >> 8 * i & 0xFF)

    def _engine(self, address: int) -> SysDmaEngine | None:
        return next((e for e in self._engines if e.base <= address < e.base + WINDOW_BYTES), None)

    def _stored(self, address: int) -> bool:
        """Whether a register only holds the stored value, without effect here: interrupts are not modelled."""
        places = ((base, width * self._cores) for base, width in _CLINT)
        return any(base <= address < base + length for base, length in (*places, (_TIME_BASE, _TIME_BYTES)))
