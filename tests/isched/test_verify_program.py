"""The checks of a program: each fault, planted in a program that is right, is found and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hw_models.errors import PlanError
from isched.hazards.verify_program import verify_program
from isched.program.program import Instr, Program, Stream
from tests.chip_runs import Compiled, compile_graph, small_chip
from tests.small_graphs import GraphBuilder

Edit = Callable[[list[Instr]], list[Instr]]


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    builder = GraphBuilder("network")
    x = builder.input("x", 1, 20, 20, 16)
    first = builder.conv(x, 32)
    second = builder.elementwise("add", builder.conv(first, 32), first)
    return compile_graph(*builder.build(second), small_chip(4, 32 << 10, 16 << 10, 16 << 10, 128 << 10))


def edited(program: Program, core: int, edit: Edit) -> Program:
    streams = tuple(Stream(s.core, tuple(edit(list(s.instrs)))) if s.core == core else s for s in program.streams)
    return replace(program, streams=streams)


def without(which: Callable[[Instr], bool], number: int = 0) -> Edit:
    """Drops the `number`th instruction that fits."""

    def edit(instrs: list[Instr]) -> list[Instr]:
        position = [i for i, instr in enumerate(instrs) if which(instr)][number]
        return instrs[:position] + instrs[position + 1 :]

    return edit


def shifted(which: Callable[[Instr], bool], by_bytes: int) -> Edit:
    """Moves what the first instruction that fits writes."""

    def edit(instrs: list[Instr]) -> list[Instr]:
        position = next(i for i, instr in enumerate(instrs) if which(instr))
        instr = instrs[position]
        writes = tuple(replace(w, offset_bytes=w.offset_bytes + by_bytes) for w in instr.writes)
        return [*instrs[:position], replace(instr, writes=writes), *instrs[position + 1 :]]

    return edit


def is_opcode(*names: str) -> Callable[[Instr], bool]:
    return lambda instr: instr.opcode in names


def moves(source: str, destination: str) -> Callable[[Instr], bool]:
    return lambda instr: (
        bool(instr.reads and instr.writes) and instr.reads[0].memory == source and instr.writes[0].memory == destination
    )


def test_the_program_itself_is_right(compiled: Compiled) -> None:
    verify_program(compiled.program, compiled.chip)


FAULTS: dict[str, tuple[int, Edit, str]] = {
    "a dropped wait before the barrier": (0, without(is_opcode("dma.wait")), "awaited before it starts again"),
    "a dropped wait, the engine started again": (0, without(is_opcode("dma.wait"), -1), "awaited before"),
    "a dropped barrier on one core": (1, without(is_opcode("sync")), "the same number of barriers on every core"),
    "a load into local memory removed": (1, without(moves("LLB", "L1")), "data that something wrote before"),
    "a load from the main memory removed": (0, without(moves("DDR", "LLB")), "data that something wrote before"),
    "a store to the main memory removed": (0, without(moves("LLB", "DDR")), "data that something wrote before"),
    "a matrix instruction removed": (2, without(is_opcode("meconv.mm")), "data that something wrote before"),
    "a result past the end of its memory": (0, shifted(is_opcode("meconv.mm"), 1 << 20), "addresses inside IM"),
    "a result before the start": (0, shifted(is_opcode("meconv.mm"), -2), "addresses inside IM"),
    "a local buffer past the end": (3, shifted(moves("LLB", "L1"), 1 << 20), "addresses inside L1"),
    "a result at an odd address": (0, shifted(is_opcode("meconv.mm"), 1), "multiples of 2 bytes"),
    "a result in another core's place": (1, shifted(moves("L1", "LLB"), -64), "a barrier between accesses of two"),
}


@pytest.mark.parametrize(("core", "edit", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_planted_faults_are_found(compiled: Compiled, core: int, edit: Edit, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        verify_program(edited(compiled.program, core, edit), compiled.chip)


def test_barriers_dropped_on_every_core_are_found(compiled: Compiled) -> None:
    """The same barrier missing everywhere leaves the counts equal, but lets cores race with the DMA of core 0."""
    program = compiled.program
    for core in range(len(program.streams)):
        program = edited(program, core, without(is_opcode("sync")))
    with pytest.raises(PlanError):
        verify_program(program, compiled.chip)


def test_engines_touch_only_the_memories_that_they_can(compiled: Compiled) -> None:
    def into_l1(instrs: list[Instr]) -> list[Instr]:
        return [
            replace(i, writes=tuple(replace(w, memory="L1") for w in i.writes)) if i.opcode == "meconv.mm" else i
            for i in instrs
        ]

    with pytest.raises(PlanError, match="an engine that may write L1: scalar, transfer, vector"):
        verify_program(edited(compiled.program, 1, into_l1), compiled.chip)


def test_a_message_names_core_instruction_and_operator(compiled: Compiled) -> None:
    program = edited(compiled.program, 2, without(is_opcode("meconv.mm")))
    with pytest.raises(PlanError, match=r"core 2, instruction \d+ \(veadd.* of conv0\)"):
        verify_program(program, compiled.chip)


def test_reading_what_a_transfer_in_flight_writes(compiled: Compiled) -> None:
    """The wait moved behind the barrier and the first read: found although it is there."""

    def late(instrs: list[Instr]) -> list[Instr]:
        start = next(i for i, instr in enumerate(instrs) if instr.starts)
        probe = Instr("scalar", "read", reads=instrs[start].writes[:1])
        return [*instrs[: start + 1], probe, *instrs[start + 1 :]]

    with pytest.raises(PlanError, match="to be awaited before"):
        verify_program(edited(compiled.program, 0, late), compiled.chip)
