"""Machine code of one cluster as files, and the information that such a file holds.

Program --image, ELF--> program.elf, program.s, source_map.json        program.elf --> listing, chip it was made for
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.neuralscale.asm.assembly_text import code_lines, render
from codegen.neuralscale.emit.emit import Image, emit_image
from codegen.neuralscale.rolling.rolled import shared
from codegen.riscv.dwarf import debug_sections
from codegen.riscv.elf import Elf, read_elf
from codegen.riscv.elf_format import ELF32, ElfError, OtherElfClass
from codegen.riscv.elf_note import note_bytes, read_note
from codegen.riscv.elf_writer import elf_bytes
from codegen.source_map import SOURCE_MAP, source_map_text
from codegen.target import ClusterFiles, MadeFor, OtherProgram
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.program import Program
from partitioner.ir.graph import Constants, Graph

EXECUTABLE = "program.elf"
ASSEMBLY = "program.s"


def emit(program: Program, graph: Graph, constants: Constants, chip: Chip | None = None) -> ClusterFiles:
    """Machine code of one instruction after the other, for each core its own. Without a chip, as for an experiment on a
    program, the executable does not name the chip it was made for."""
    return files_of(program, emit_image(program, graph, constants), chip)


def emit_rolled(program: Program, graph: Graph, constants: Constants, chip: Chip | None = None) -> ClusterFiles:
    """Machine code with loops, and one text for all cores."""
    return files_of(program, emit_image(program, graph, constants, shared), chip)


def made_for(executable: bytes) -> MadeFor | None:
    """The chip, cores and cluster that an executable names. Raises TargetError for bytes that are not an ELF file of
    this instruction set, and for a note that cannot be read."""
    try:
        return read_note(read_elf(executable).note)
    except ElfError as error:
        raise _no_program(error) from error


def disassemble(executable: bytes) -> Iterator[str]:
    """Lines of a listing. Raises TargetError for bytes that are not an ELF file of this instruction set."""
    from codegen.neuralscale.asm.disassembler import disassemble_elf  # not needed to compile

    return map(str, disassemble_elf(_read(executable)))


def _read(executable: bytes) -> Elf:
    try:
        return read_elf(executable)
    except ElfError as error:
        raise _no_program(error) from error


def _no_program(error: ElfError) -> TargetError:
    kind = OtherProgram if isinstance(error, OtherElfClass) else TargetError
    return kind("program", needs="a static executable for this chip", has=str(error))


def files_of(program: Program, image: Image, chip: Chip | None) -> ClusterFiles:
    """The files of an image of the program; the executable names the chip, if there is one, as its own."""
    cores = len(program.streams)
    owner = chip and MadeFor(chip.isa, chip.name, chip.hash, cores, program.cluster)
    note = note_bytes(owner) if owner else b""
    debug = debug_sections(ASSEMBLY, image.entry, code_lines(image.items), image.source_map, ELF32)
    executable = elf_bytes(image.entry, image.segments, image.symbols, note, ELF32, debug)
    files = {
        EXECUTABLE: executable,
        ASSEMBLY: render(image.items).encode(),
        SOURCE_MAP: source_map_text(image.source_map).encode(),
    }
    return ClusterFiles(cores, EXECUTABLE, files, program.cluster)
