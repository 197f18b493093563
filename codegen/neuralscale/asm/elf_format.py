"""Common parts of the reader and the writer of ELF files: record layouts, numbers, symbols, the address check.

Source: System V ABI (ELF32) and the RISC-V ELF psABI.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from struct import Struct

Buffer = bytes | bytearray | memoryview

HEADER = Struct("<16sHHIIIIIHHHHHH")
PROGRAM = Struct("<IIIIIIII")
SECTION = Struct("<IIIIIIIIII")
SYMBOL = Struct("<IIIBBH")

IDENT = b"\x7fELF\x01\x01\x01" + bytes(9)
ET_EXEC = 2
EM_RISCV = 243
FLOAT_ABI_SINGLE = 2
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_NOTE, SHT_NOBITS = 1, 2, 3, 7, 8
SHF_WRITE, SHF_ALLOC, SHF_EXECUTE = 1, 2, 4
SHN_ABSOLUTE = 0xFFF1

ADDRESS_SPACE_BYTES = 1 << 32
MAX_SEGMENTS = 4096
MAX_NAME_BYTES = 4096


class ElfError(ValueError):
    """A file that is not a loadable executable for this chip, or a request to write one that cannot exist."""


class SymbolKind(Enum):
    """Kind of a symbol, by its ELF number."""

    UNTYPED = 0
    OBJECT = 1
    FUNCTION = 2


@dataclass(frozen=True, slots=True)
class ElfSymbol:
    """A named address."""

    name: str
    address: int
    size_bytes: int = 0
    kind: SymbolKind = SymbolKind.UNTYPED


def check_ranges(ranges: list[tuple[int, int, str]]) -> None:
    """Check that each (address, size in bytes, name) lies inside the address space and that none overlap. Raises
    ElfError."""
    for address, size_bytes, name in ranges:
        if not 0 <= address <= ADDRESS_SPACE_BYTES - size_bytes or size_bytes < 0:
            raise ElfError(f"{name}: {size_bytes} bytes at {address:#x} leave the 32-bit address space")
    occupied = sorted(item for item in ranges if item[1])
    for (address, size_bytes, name), (following, _, other) in pairwise(occupied):
        if address + size_bytes > following:
            raise ElfError(f"{other} at {following:#x} overlaps {name}, which ends at {address + size_bytes:#x}")
