"""Deterministic writer of static ELF executables for RISC-V.

    entry, segments, symbols, more sections  -- write_elf -->  a file with program headers, sections, symbols, names

Weights make these files large, so the writer takes lists of buffers and streams them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO

from codegen.riscv import elf_format as fmt
from codegen.riscv.elf_format import ELF32, Buffer, ElfError, ElfForm, ElfSymbol, check_ranges
from codegen.riscv.elf_note import NOTE_SECTION

_GLOBAL = 1 << 4


class SegmentFlags(Enum):
    """Access rights of a segment, by their ELF bits."""

    READ = 4
    READ_WRITE = 6
    READ_EXECUTE = 5
    READ_WRITE_EXECUTE = 7


@dataclass(frozen=True, slots=True)
class ElfSegment:
    """Memory of an executable: `buffers` one after the other, then `zero_bytes` that take no file space."""

    name: str
    address: int
    buffers: tuple[Buffer, ...]
    flags: SegmentFlags
    zero_bytes: int = 0

    @property
    def file_bytes(self) -> int:
        return sum(memoryview(buffer).nbytes for buffer in self.buffers)

    @property
    def memory_bytes(self) -> int:
        return self.file_bytes + self.zero_bytes


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A part of a file for other tools than loaders: it takes no memory."""

    name: str
    data: bytes


def write_elf(
    stream: BinaryIO,
    entry: int,
    segments: Sequence[ElfSegment],
    symbols: Sequence[ElfSymbol] = (),
    note: bytes = b"",
    form: ElfForm = ELF32,
    unloaded: Sequence[ElfSection] = (),
) -> None:
    """Write an executable. Equal arguments give equal bytes; buffers are streamed, never joined. `note` is the content
    of the section that `elf_note` describes; an empty one is left out. `unloaded` are further sections.

    Raises ElfError if segments overlap or leave the address space, if a name occurs twice, or if nothing
    executable holds `entry`.
    """
    for chunk in _chunks(entry, segments, symbols, note, form, unloaded):
        stream.write(chunk)


def elf_bytes(
    entry: int,
    segments: Sequence[ElfSegment],
    symbols: Sequence[ElfSymbol] = (),
    note: bytes = b"",
    form: ElfForm = ELF32,
    unloaded: Sequence[ElfSection] = (),
) -> bytes:
    """The executable as one object, for small programs; see `write_elf`."""
    return b"".join(_chunks(entry, segments, symbols, note, form, unloaded))


def _chunks(
    entry: int,
    segments: Sequence[ElfSegment],
    symbols: Sequence[ElfSymbol],
    note: bytes,
    form: ElfForm,
    unloaded: Sequence[ElfSection],
) -> Iterator[Buffer]:
    """The file from front to back: header, program headers, data, note, symbols, other sections, names, section
    headers."""
    _check_output(entry, segments, symbols, form)
    noted = (NOTE_SECTION,) if note else ()
    others = [section.name for section in unloaded]
    section_names = ("", *(segment.name for segment in segments), *noted, ".symtab", ".strtab", *others, ".shstrtab")
    shstrtab, name_offsets = _string_table(section_names)
    strtab, symbol_offsets = _string_table(("", *(symbol.name for symbol in symbols)))

    data_start = form.header.size + form.program.size * len(segments)
    programs: list[bytes] = []
    sections: list[bytes] = [bytes(form.section.size)]
    gaps: list[int] = []
    offset = data_start
    for number, segment in enumerate(segments, start=1):
        alignment = next(size for size in (16, 4, 2, 1) if segment.address % size == 0)
        file_bytes, memory_bytes = segment.file_bytes, segment.memory_bytes
        gaps.append(-offset % alignment)
        offset += gaps[-1]
        address = segment.address
        programs.append(
            form.program_header(
                fmt.PT_LOAD, offset, address, address, file_bytes, memory_bytes, segment.flags.value, alignment
            )
        )
        # One section describes the whole segment; only a segment of zeros alone is NOBITS for other tools.
        kind, size = (fmt.SHT_PROGBITS, file_bytes) if file_bytes else (fmt.SHT_NOBITS, memory_bytes)
        flags = _section_flags(segment.flags)
        sections.append(form.section.pack(name_offsets[number], kind, flags, address, offset, size, 0, 0, alignment, 0))
        offset += file_bytes

    symtab = _symbol_table(segments, symbols, symbol_offsets, form)
    tables_gap = -offset % 4
    offset += tables_gap
    count = len(segments) + len(noted)
    notes = ((count, fmt.SHT_NOTE, note, 0, 0, 4, 0),) if note else ()
    tables = (
        *notes,
        (count + 1, fmt.SHT_SYMTAB, symtab, count + 2, 1, 4, form.symbol.size),
        (count + 2, fmt.SHT_STRTAB, strtab, 0, 0, 1, 0),
        *((n, fmt.SHT_PROGBITS, section.data, 0, 0, 1, 0) for n, section in enumerate(unloaded, count + 3)),
        (count + 3 + len(unloaded), fmt.SHT_STRTAB, shstrtab, 0, 0, 1, 0),
    )
    for number, kind, table, link, info, alignment, entry_bytes in tables:
        sections.append(
            form.section.pack(name_offsets[number], kind, 0, 0, offset, len(table), link, info, alignment, entry_bytes)
        )
        offset += len(table)
    sections_gap = -offset % 4
    offset += sections_gap
    if offset + form.section.size * len(sections) > form.address_space_bytes:
        raise ElfError(
            f"the file would have {offset} bytes, an ELF{form.bits} file can have {form.address_space_bytes}"
        )

    yield form.header.pack(
        form.ident,
        fmt.ET_EXEC,
        fmt.EM_RISCV,
        1,
        entry,
        form.header.size if segments else 0,
        offset,
        fmt.FLOAT_ABI_SINGLE,
        form.header.size,
        form.program.size,
        len(segments),
        form.section.size,
        len(sections),
        len(sections) - 1,
    )
    yield b"".join(programs)
    for gap, segment in zip(gaps, segments, strict=True):
        yield bytes(gap)
        yield from segment.buffers
    yield bytes(tables_gap)
    yield from (table for _, _, table, *_ in tables)
    yield bytes(sections_gap)
    yield b"".join(sections)


def _check_output(entry: int, segments: Sequence[ElfSegment], symbols: Sequence[ElfSymbol], form: ElfForm) -> None:
    if len(segments) > fmt.MAX_SEGMENTS:
        raise ElfError(f"{len(segments)} segments, at most {fmt.MAX_SEGMENTS} can be written")
    check_ranges([(segment.address, segment.memory_bytes, f"segment {segment.name}") for segment in segments], form)
    executable = (SegmentFlags.READ_EXECUTE, SegmentFlags.READ_WRITE_EXECUTE)
    if not any(
        segment.flags in executable and segment.address <= entry < segment.address + segment.memory_bytes
        for segment in segments
    ):
        raise ElfError(f"the entry {entry:#x} lies in no executable segment")
    seen: set[str] = set()
    for symbol in symbols:
        if symbol.name in seen or not symbol.name or "\0" in symbol.name:
            raise ElfError(f"symbol name {symbol.name!r} is empty, has a zero byte, or occurs twice")
        if len(symbol.name.encode()) >= fmt.MAX_NAME_BYTES:
            raise ElfError(f"symbol name {symbol.name[:40]!r}... has {fmt.MAX_NAME_BYTES} bytes or more")
        if not 0 <= symbol.address < form.address_space_bytes or not 0 <= symbol.size_bytes < form.address_space_bytes:
            raise ElfError(f"symbol {symbol.name}: address {symbol.address:#x} or size is not a {form.bits}-bit number")
        seen.add(symbol.name)


def _string_table(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """The names, each ended by a zero byte, and the offset of each. The first is the empty one."""
    encoded = [name.encode() + b"\0" for name in names]
    offsets, offset = [], 0
    for item in encoded:
        offsets.append(offset)
        offset += len(item)
    return b"".join(encoded), offsets


def _section_flags(flags: SegmentFlags) -> int:
    return fmt.SHF_ALLOC | (fmt.SHF_WRITE if flags.value & 2 else 0) | (fmt.SHF_EXECUTE if flags.value & 1 else 0)


def _symbol_table(
    segments: Sequence[ElfSegment], symbols: Sequence[ElfSymbol], name_offsets: Sequence[int], form: ElfForm
) -> bytes:
    """The symbol table; every symbol is global and refers to the section that holds its address, if any does."""
    spans = [(segment.address, segment.address + segment.memory_bytes) for segment in segments]
    table = bytearray(form.symbol.size)
    for symbol, name in zip(symbols, name_offsets[1:], strict=True):
        inside = (number for number, (start, end) in enumerate(spans, start=1) if start <= symbol.address < end)
        section = next(inside, fmt.SHN_ABSOLUTE)
        table += form.symbol_record(name, symbol.address, symbol.size_bytes, _GLOBAL | symbol.kind.value, 0, section)
    return bytes(table)
