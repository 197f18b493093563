"""Machine code of a program as files, and the information that such a file holds.

Program --streams as code--> program.elf, program.s, source_map.json
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from codegen.gemmini.emit.core_code import constant, stream_code
from codegen.gemmini.isa.geometry import BASE, CODE_BYTES, IDENTITY_OFFSET, geometry_of, geometry_symbol
from codegen.gemmini.isa.table import CODEC, format_instruction, instruction
from codegen.gemmini.streams.instructions import IDENTITY_LOAD
from codegen.gemmini.streams.streams import stream_of
from codegen.riscv.codec import Instruction
from codegen.riscv.dwarf import debug_sections
from codegen.riscv.elf import Elf, read_elf
from codegen.riscv.elf_format import ELF64, ElfError, ElfSymbol, OtherElfClass, SymbolKind
from codegen.riscv.elf_note import note_bytes, read_note
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes
from codegen.source_map import SOURCE_MAP, SourceRange, printable, source_map_text
from codegen.target import ClusterFiles, MadeFor, OtherProgram, piece_symbol, symbol_of
from hw_models.chip import Chip
from hw_models.errors import DoesNotFit, TargetError
from hw_models.infeasible import Infeasible, Lever, ProgramSubject
from isched.program.program import Instr, Program
from partitioner.ir.graph import Constants, Graph

EXECUTABLE, ASSEMBLY = "program.elf", "program.s"

HOST_BYTES = 128
"""Bytes at the end of the code's part of the memory in which the program tells its host that it has ended."""

TOHOST = BASE + CODE_BYTES - HOST_BYTES
FROMHOST = TOHOST + 64
TRAPPED = 100
"""Exit code of a program whose core trapped."""

_ALL = 0b1111
_MSTATUS, _MTVEC, _FCSR = 0x300, 0x305, 0x003
_FLOATS_ON = 1 << 13
_END = 31


def emit(program: Program, graph: Graph, constants: Constants, chip: Chip) -> ClusterFiles:
    """The files of a program: executable, assembly text and source map. Raises DoesNotFit for a program with too much
    code."""
    code = start_code()
    ranges: list[SourceRange] = []
    symbols = [*host_symbols(), ElfSymbol(geometry_symbol(geometry_of(chip)), BASE, 0, SymbolKind.OBJECT)]
    (stream,) = program.streams
    for instr in stream.instrs:
        start = BASE + 4 * len(code)
        code += _code(program, instr)
        end = BASE + 4 * len(code)
        if ranges and ranges[-1].source == instr.source:
            ranges[-1] = replace(ranges[-1], end=end)
        else:
            ranges.append(SourceRange(start, end, 0, instr.source))
    for number, each in enumerate(ranges):
        name = piece_symbol(0, number, each.source)
        symbols.append(ElfSymbol(name, each.start, each.end - each.start, SymbolKind.FUNCTION))
    symbols.append(ElfSymbol("end", BASE + 4 * len(code), 0, SymbolKind.FUNCTION))
    code += end_code()
    text = b"".join(CODEC.encode(word).to_bytes(4, "little") for word in code)
    if len(text) > IDENTITY_OFFSET:
        room, subject = IDENTITY_OFFSET, ProgramSubject(program.name)
        raise DoesNotFit(Infeasible(subject, "code space", "", len(text), room, levers=(Lever.SMALLER_BATCH,)))
    segments = [ElfSegment(".text", BASE, (text,), SegmentFlags.READ_EXECUTE)]
    if any(instr.opcode == IDENTITY_LOAD for instr in stream.instrs):
        identity = np.eye(geometry_of(chip).dim, dtype=np.int8).tobytes()
        segments.append(ElfSegment(".identity", BASE + IDENTITY_OFFSET, (identity,), SegmentFlags.READ))
    segments.append(host_segment())
    for place in sorted(program.placements, key=lambda place: place.offset_bytes):
        stored = graph.by_name[place.tensor].constant if place.kind == "constant" else None
        if stored is not None:
            data = constants[stored].tobytes()
            segments.append(ElfSegment(f".const.{symbol_of(place.tensor)}", BASE + place.offset_bytes, (data,),
                                       SegmentFlags.READ))  # fmt: skip
    owner = MadeFor(chip.isa, chip.name, chip.hash, 1, program.cluster)
    assembly, lines = _assembly(code, ranges)
    debug = debug_sections(ASSEMBLY, BASE, lines, ranges, ELF64)
    files = {
        EXECUTABLE: elf_bytes(BASE, segments, symbols, note_bytes(owner), ELF64, debug),
        ASSEMBLY: assembly.encode(),
        SOURCE_MAP: source_map_text(ranges).encode(),
    }
    return ClusterFiles(1, EXECUTABLE, files, program.cluster)


def _assembly(code: Sequence[Instruction], ranges: Sequence[SourceRange]) -> tuple[str, list[int]]:
    """The code as text, with a comment where code for another operator begins, and the line of each word, from 1."""
    comments = {BASE: "start"} | {each.start: printable(each.source) or "no operator" for each in ranges}
    if ranges:
        comments[ranges[-1].end] = "end"
    text: list[str] = []
    lines: list[int] = []
    for number, word in enumerate(code):
        told = comments.get(BASE + 4 * number)
        if told is not None:
            text.append(f"    # {told}\n")
        text.append(f"    {format_instruction(word)}\n")
        lines.append(len(text))
    return "".join(text), lines


def _code(program: Program, instr: Instr) -> list[Instruction]:
    if program.is_barrier(instr):
        return [instruction("fence", _ALL, _ALL)]
    return stream_code(stream_of(instr.operands))


def start_code() -> list[Instruction]:
    """Turn floating point on, rounding to the nearest, and end the program with an exit code where the core traps."""
    handler = [*_told(TRAPPED)]
    begin = [
        instruction("auipc", 1, 0),
        instruction("addi", 1, 1, 4 * (4 + 3)),
        instruction("csrrw", 0, _MTVEC, 1),
        *constant(1, _FLOATS_ON),
        instruction("csrrs", 0, _MSTATUS, 1),
        instruction("csrrw", 0, _FCSR, 0),
    ]
    assert len(begin) == 4 + 2  # the handler lies behind these and the jump over it
    return [*begin, instruction("jal", 0, 4 * (len(handler) + 1)), *handler]


def end_code() -> list[Instruction]:
    """Tell the host that the program ended well."""
    return [
        instruction("fence", _ALL, _ALL),
        *_told(0),
    ]


def _told(exit_code: int) -> list[Instruction]:
    """Tell the host that the program ended, and wait."""
    return [
        *constant(_END, TOHOST),
        instruction("addi", 1, 0, 2 * exit_code + 1),
        instruction("sd", 1, 0, _END),
        instruction("jal", 0, 0),
    ]


def host_segment() -> ElfSegment:
    """The words through which program and host talk."""
    return ElfSegment(".tohost", TOHOST, (bytes(HOST_BYTES),), SegmentFlags.READ_WRITE)


def host_symbols() -> tuple[ElfSymbol, ...]:
    return (
        ElfSymbol("tohost", TOHOST, 8, SymbolKind.OBJECT),
        ElfSymbol("fromhost", FROMHOST, 8, SymbolKind.OBJECT),
    )


def made_for(executable: bytes) -> MadeFor | None:
    """The chip that an executable names. Raises TargetError for bytes that are no executable of this kind."""
    try:
        return read_note(read_program(executable).note)
    except ElfError as error:
        raise _no_program(error) from error


def read_program(executable: bytes) -> Elf:
    """The executable's parts. Raises TargetError."""
    try:
        return read_elf(executable, ELF64)
    except ElfError as error:
        raise _no_program(error) from error


def disassemble(executable: bytes) -> Iterator[str]:
    """Lines of a listing. Raises TargetError for bytes that are no executable of this kind."""
    elf = read_program(executable)
    return _lines(elf)


def _lines(elf: Elf) -> Iterator[str]:
    for segment in elf.segments:
        for place in range(0, len(segment.data) // 4 * 4, 4) if segment.executable else ():
            word = int.from_bytes(segment.data[place : place + 4], "little")
            found = CODEC.decode(word)
            text = format_instruction(found) if found else f".4byte {word:#010x}"
            yield f"{segment.address + place:08x}: {word:08x}  {text}"


def _no_program(error: ElfError) -> TargetError:
    kind = OtherProgram if isinstance(error, OtherElfClass) else TargetError
    return kind("program", needs="a static 64-bit executable for this chip", has=str(error))
