"""Emission: a program becomes one executable for all cores of a cluster, with its assembly and a source map.

    Program --each Instr--> CSR writes, addresses, the instruction --> items --> .text      constants --> .data

Every core has its own straight-line code (`expansion`), to which the entry sends it (`frame`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from codegen.neuralscale.asm.assembler import Comment, Item, Label, assemble
from codegen.neuralscale.emit.expansion import Body
from codegen.neuralscale.emit.frame import TRAP_RECORD, code_bytes, ending, start_up
from codegen.neuralscale.emit.memory_map import CODE_BASE, CONTROL_BASE, DATA_BASE, address_of
from codegen.riscv.elf_format import ElfSymbol, SymbolKind
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags
from codegen.source_map import SourceRange, printable
from codegen.target import piece_symbol
from hw_models.errors import DoesNotFit
from hw_models.infeasible import Infeasible, Lever, ProgramSubject
from isched.program.program import Instr, Program
from partitioner.ir.graph import Constants, Graph

CONTROL_BYTES = 128
EVERY_CORE = -1

Piece: TypeAlias = tuple[str, int, str, int]
"""Consecutive code: symbol, core, operator, bytes."""

Written: TypeAlias = tuple[str, int, str, list[Item]]
"""Consecutive code with its items: symbol, core, operator, items."""


@dataclass(frozen=True, slots=True)
class Image:
    """Contents of an executable. `items` are the code in order, including labels and comments."""

    items: tuple[Item, ...]
    entry: int
    segments: tuple[ElfSegment, ...]
    symbols: tuple[ElfSymbol, ...]
    source_map: tuple[SourceRange, ...]


def straight(program: Program) -> Iterator[Written]:
    """Each core's own code, one instruction after the other: symbol, core, operator, items."""
    for stream in program.streams:
        body = Body(program.cluster)
        for number, (source, instrs) in enumerate(_runs(stream.instrs)):
            name = piece_symbol(stream.core, number, source)
            label = [Label(f"core{stream.core}"), Label(name)] if number == 0 else [Label(name)]
            code = [item for instr in instrs for item in body.expand(instr)]
            yield name, stream.core, source, [*label, comment(source or "no operator"), *code]
        last = ending(stream.core, f"core{stream.core}" if not stream.instrs else "")
        yield f"core{stream.core}.end", stream.core, "", last


def emit_image(
    program: Program, graph: Graph, constants: Constants, code: Callable[[Program], Iterator[Written]] = straight
) -> Image:
    """Machine code and data of one cluster; `code` writes the code of the cores. Raises DoesNotFit when the code
    overflows its space."""
    items: list[Item] = [
        comment(f"{program.name} on {program.chip}, cluster {program.cluster}"),
        Label("_start"),
    ]
    items += start_up(program.cluster, len(program.streams))
    pieces: list[Piece] = [("_start", -1, "", code_bytes(items))]
    for name, core, source, written in code(program):
        items += written
        pieces.append((name, core, source, code_bytes(written)))
    text = assemble(items, CODE_BASE)
    if CODE_BASE + len(text) > DATA_BASE:
        bound = DATA_BASE - CODE_BASE
        subject = ProgramSubject(program.name)
        raise DoesNotFit(Infeasible(subject, "code space", "", len(text), bound, levers=(Lever.SMALLER_BATCH,)))
    ranges, symbols = _map(pieces)
    control = ElfSegment(".tohost", CONTROL_BASE, (), SegmentFlags.READ_WRITE, CONTROL_BYTES)
    text_segment = ElfSegment(".text", CODE_BASE, (text,), SegmentFlags.READ_EXECUTE)
    return Image(tuple(items), CODE_BASE, (control, text_segment, *_data(program, graph, constants)), symbols, ranges)


def comment(text: str) -> Comment:
    """A comment of a text, in which what cannot be printed is escaped."""
    return Comment(printable(text).strip())


def _map(pieces: list[Piece]) -> tuple[tuple[SourceRange, ...], tuple[ElfSymbol, ...]]:
    """Source ranges and symbols of consecutive pieces of code (name, core, operator, bytes)."""
    address = CODE_BASE
    ranges: list[SourceRange] = []
    symbols = [
        ElfSymbol("tohost", CONTROL_BASE, 8, SymbolKind.OBJECT),
        ElfSymbol("fromhost", CONTROL_BASE + 8, 8, SymbolKind.OBJECT),
        ElfSymbol("trap_record", TRAP_RECORD, 16, SymbolKind.OBJECT),
    ]
    for name, core, source, size in pieces:
        ranges.append(SourceRange(address, address + size, core, source))
        symbols.append(ElfSymbol(name, address, size, SymbolKind.FUNCTION))
        address += size
    return tuple(ranges), tuple(symbols)


def _runs(instrs: tuple[Instr, ...]) -> Iterator[tuple[str, list[Instr]]]:
    """Runs of consecutive instructions of one operator."""
    run: list[Instr] = []
    for instr in instrs:
        if run and run[0].source != instr.source:
            yield run[0].source, run
            run = []
        run.append(instr)
    if run:
        yield run[0].source, run


def _data(program: Program, graph: Graph, constants: Constants) -> Iterator[ElfSegment]:
    """Segments of constants, each at its place; alignment gaps are zeros, so that the constants make one segment."""
    placed = sorted((p for p in program.placements if p.kind == "constant"), key=lambda p: p.offset_bytes)
    buffers: list[bytes | memoryview] = []
    start = end = 0
    for placement in placed:
        array = np.ascontiguousarray(constants[graph.by_name[placement.tensor].constant])
        if not buffers:
            start = end = placement.offset_bytes
        buffers.append(bytes(placement.offset_bytes - end))
        buffers.append(array.reshape(-1).view(np.uint8).data)
        end = placement.offset_bytes + placement.size_bytes
    if buffers:
        yield ElfSegment(".data", address_of("DDR", start), tuple(buffers), SegmentFlags.READ)
