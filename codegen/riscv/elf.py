"""Reader of static ELF executables for RISC-V that trusts nothing.

    bytes of a file  -- read_elf -->  Elf(entry, segments, symbols, note), or one ElfError with the reason

Weights make these files large, so segments are views into the given bytes. Loading follows the physical address.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from struct import Struct

from codegen.riscv import elf_format as fmt
from codegen.riscv.elf_format import (
    ELF32,
    Buffer,
    ElfError,
    ElfForm,
    ElfSymbol,
    OtherElfClass,
    SymbolKind,
    check_ranges,
)
from codegen.riscv.elf_note import MOST_NOTE_BYTES, MOST_NOTE_SECTIONS, find_note

_MAX_ALL_NAMES_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LoadedSegment:
    """A loadable segment of a file: `data` goes to `address`, zeros follow up to `memory_bytes`."""

    address: int
    data: memoryview
    memory_bytes: int
    writable: bool
    executable: bool


@dataclass(frozen=True, slots=True)
class Elf:
    """The parts of an executable that a loader needs: segments by address, symbols in the file's order. `note` is the
    content of the note that names the chip it was made for (`elf_note`), empty where there is none."""

    entry: int
    segments: tuple[LoadedSegment, ...]
    symbols: tuple[ElfSymbol, ...]
    note: bytes = b""

    def symbol(self, name: str) -> ElfSymbol | None:
        """The first symbol of that name, or None."""
        return next((symbol for symbol in self.symbols if symbol.name == name), None)


def read_elf(data: Buffer, form: ElfForm = ELF32) -> Elf:
    """The executable in `data`; its segments are views of these bytes.

    Raises OtherElfClass for a file of another class, and ElfError, which says what is wrong, for anything but a static
    little-endian RISC-V executable of this form whose tables, names and segments lie inside the file and whose segments
    lie inside the address space without overlap.
    """
    view = memoryview(data).cast("B").toreadonly()
    if len(view) < ELF32.header.size:
        raise ElfError(f"not an ELF file: {len(view)} bytes, the header alone has {ELF32.header.size}")
    if view[:4] != fmt.MAGIC:
        raise ElfError("not an ELF file: it does not start with 7f 45 4c 46")
    if view[4] != form.ident[4]:
        raise OtherElfClass(f"ELF class {view[4]}, needed is {form.ident[4]} ({form.bits} bit)")
    if len(view) < form.header.size:
        raise ElfError(f"{len(view)} bytes, the header alone has {form.header.size}")
    header = form.header.unpack_from(view)
    _check_header(header)
    _, _, _, _, entry, program_offset, section_offset, _, _, program_bytes, programs, section_bytes, sections, _ = (
        header
    )
    segments = _read_segments(view, program_offset, program_bytes, programs, form)
    if not section_offset or not sections:
        return Elf(entry, segments, ())
    table = _table(view, "section headers", section_offset, section_bytes, sections, form.section)
    headers = list(form.section.iter_unpack(table))
    return Elf(entry, segments, _read_symbols(view, headers, form), _read_note(view, headers))


def _check_header(header: tuple[bytes, int, int]) -> None:
    identity, file_type, machine = header[:3]
    for wrong, message in (
        (identity[5] != 1, f"ELF data encoding {identity[5]}, needed is 1 (little-endian)"),
        (identity[6] != 1, f"ELF version {identity[6]}, needed is 1"),
        (machine != fmt.EM_RISCV, f"ELF machine {machine}, needed is {fmt.EM_RISCV} (RISC-V)"),
        (file_type != fmt.ET_EXEC, f"ELF type {file_type}, needed is {fmt.ET_EXEC} (static executable; link it first)"),
    ):
        if wrong:
            raise ElfError(message)


def _table(view: memoryview, what: str, offset: int, entry_bytes: int, count: int, layout: Struct) -> memoryview:
    """The bytes of a table of `count` entries, which must be of the known size and inside the file."""
    if entry_bytes != layout.size:
        raise ElfError(f"{what}: entries have {entry_bytes} bytes, {layout.size} are needed")
    return _slice(view, what, offset, entry_bytes * count)


def _slice(view: memoryview, what: str, offset: int, size_bytes: int) -> memoryview:
    if offset + size_bytes > len(view):
        raise ElfError(
            f"{what}: bytes {offset} to {offset + size_bytes} lie past the end of the file ({len(view)} bytes)"
        )
    return view[offset : offset + size_bytes]


def _read_segments(
    view: memoryview, offset: int, entry_bytes: int, count: int, form: ElfForm
) -> tuple[LoadedSegment, ...]:
    if count == 0:
        raise ElfError("the file has no program headers, so nothing can be loaded")
    if count > fmt.MAX_SEGMENTS:
        raise ElfError(f"{count} program headers, at most {fmt.MAX_SEGMENTS} are read")
    segments = []
    table = _table(view, "program headers", offset, entry_bytes, count, form.program)
    for number, program in enumerate(form.programs(table)):
        kind, start, _, address, file_bytes, memory_bytes, flags, _ = program
        if kind in (fmt.PT_DYNAMIC, fmt.PT_INTERP):
            raise ElfError("the file needs a dynamic linker; link it statically")
        if kind != fmt.PT_LOAD or memory_bytes == 0:
            continue
        name = f"program header {number}"
        if file_bytes > memory_bytes:
            raise ElfError(f"{name}: {file_bytes} bytes in the file for {memory_bytes} bytes of memory")
        data = _slice(view, name, start, file_bytes)
        segments.append(LoadedSegment(address, data, memory_bytes, bool(flags & 2), bool(flags & 1)))
    check_ranges([(segment.address, segment.memory_bytes, f"segment {i}") for i, segment in enumerate(segments)], form)
    return tuple(sorted(segments, key=lambda segment: segment.address))


def _read_note(view: memoryview, sections: list[tuple[int, ...]]) -> bytes:
    """The content of our note; notes of other owners are skipped."""
    noted = (section for section in sections if section[1] == fmt.SHT_NOTE and section[5] <= MOST_NOTE_BYTES)
    for section in islice(noted, MOST_NOTE_SECTIONS):
        content = find_note(view[section[4] : section[4] + section[5]])
        if content:
            return content
    return b""


def _read_symbols(view: memoryview, sections: list[tuple[int, ...]], form: ElfForm) -> tuple[ElfSymbol, ...]:
    """Named symbols of the first symbol table; section, file and assembler mapping symbols are left out."""
    header = next((section for section in sections if section[1] == fmt.SHT_SYMTAB), None)
    if header is None:
        return ()
    _, _, _, _, start, size_bytes, link, _, _, symbol_bytes = header
    if link >= len(sections) or sections[link][1] != fmt.SHT_STRTAB:
        raise ElfError(f"the symbol table names section {link} for its strings, which is not a string table")
    if size_bytes % form.symbol.size:
        raise ElfError(f"the symbol table has {size_bytes} bytes, not a multiple of {form.symbol.size}")
    table = _table(view, "symbol table", start, symbol_bytes, size_bytes // form.symbol.size, form.symbol)
    strings = bytes(_slice(view, "symbol names", sections[link][4], sections[link][5]))
    symbols = []
    budget_bytes = _MAX_ALL_NAMES_BYTES
    for name_offset, address, symbol_size, info, _, _ in form.symbols(table):
        kind = info & 0xF
        if kind > 2 or name_offset == 0:
            continue
        end = strings.find(b"\0", name_offset, name_offset + fmt.MAX_NAME_BYTES)
        budget_bytes -= end - name_offset
        if end < 0 or budget_bytes < 0:
            raise ElfError(f"symbol name at {name_offset}: not ended inside its table, or names too long in total")
        name = strings[name_offset:end].decode(errors="replace")
        if name and not name.startswith("$"):
            symbols.append(ElfSymbol(name, address, symbol_size, SymbolKind(kind)))
    return tuple(symbols)
