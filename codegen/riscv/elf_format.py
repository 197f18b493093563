"""Common parts of the reader and the writer of ELF files: record layouts, numbers, symbols, the address check.

Source: System V ABI (ELF32, ELF64) and the RISC-V ELF psABI.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from struct import Struct

Buffer = bytes | bytearray | memoryview

MAGIC = b"\x7fELF"
ET_EXEC = 2
EM_RISCV = 243
FLOAT_ABI_SINGLE = 2
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_NOTE, SHT_NOBITS = 1, 2, 3, 7, 8
SHF_WRITE, SHF_ALLOC, SHF_EXECUTE = 1, 2, 4
SHN_ABSOLUTE = 0xFFF1

MAX_SEGMENTS = 4096
MAX_NAME_BYTES = 4096


class ElfError(ValueError):
    """A file that is not a loadable executable for this chip, or a request to write one that cannot exist."""


class OtherElfClass(ElfError):
    """An ELF file of 32 bits where one of 64 is needed, or the other way round: another target's, perhaps."""


@dataclass(frozen=True, slots=True)
class ElfForm:
    """Record layouts of files of one class, 32 or 64 bit. A program header is read and written in the order (type,
    offset, virtual and physical address, bytes in the file, bytes in memory, flags, alignment), a symbol as (name,
    address, bytes, info, other, section); `program_order` and `symbol_order` say where each of these stands in a
    record."""

    bits: int
    header: Struct
    program: Struct
    section: Struct
    symbol: Struct
    program_order: tuple[int, ...]
    symbol_order: tuple[int, ...]

    @property
    def ident(self) -> bytes:
        return MAGIC + bytes((self.bits // 32, 1, 1)) + bytes(9)

    @property
    def address_space_bytes(self) -> int:
        return 1 << self.bits

    def program_header(self, *values: int) -> bytes:
        return self.program.pack(*_ordered(values, self.program_order))

    def symbol_record(self, *values: int) -> bytes:
        return self.symbol.pack(*_ordered(values, self.symbol_order))

    def programs(self, table: memoryview) -> Iterator[tuple[int, ...]]:
        """The program headers of a table."""
        return (tuple([record[place] for place in self.program_order]) for record in self.program.iter_unpack(table))

    def symbols(self, table: memoryview) -> Iterator[tuple[int, ...]]:
        """The symbols of a table."""
        return (tuple([record[place] for place in self.symbol_order]) for record in self.symbol.iter_unpack(table))


def _ordered(values: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """The values as they stand in a record, in which value k stands at `order[k]`."""
    return tuple([value for _, value in sorted(zip(order, values, strict=True))])


ELF32 = ElfForm(
    32,
    Struct("<16sHHIIIIIHHHHHH"),
    Struct("<IIIIIIII"),
    Struct("<IIIIIIIIII"),
    Struct("<IIIBBH"),
    (0, 1, 2, 3, 4, 5, 6, 7),
    (0, 1, 2, 3, 4, 5),
)
ELF64 = ElfForm(
    64,
    Struct("<16sHHIQQQIHHHHHH"),
    Struct("<IIQQQQQQ"),
    Struct("<IIQQQQIIQQ"),
    Struct("<IBBHQQ"),
    (0, 2, 3, 4, 5, 6, 1, 7),
    (0, 4, 5, 1, 2, 3),
)


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


def check_ranges(ranges: list[tuple[int, int, str]], form: ElfForm = ELF32) -> None:
    """Check that each (address, size in bytes, name) lies inside the address space and that none overlap. Raises
    ElfError."""
    for address, size_bytes, name in ranges:
        if not 0 <= address <= form.address_space_bytes - size_bytes or size_bytes < 0:
            raise ElfError(f"{name}: {size_bytes} bytes at {address:#x} leave the {form.bits}-bit address space")
    occupied = sorted(item for item in ranges if item[1])
    for (address, size_bytes, name), (following, _, other) in pairwise(occupied):
        if address + size_bytes > following:
            raise ElfError(f"{other} at {following:#x} overlaps {name}, which ends at {address + size_bytes:#x}")
