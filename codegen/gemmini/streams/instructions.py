"""Instructions of a program: each carries a stream of the accelerator or of the core, and what it reads and writes."""

from __future__ import annotations

from codegen.gemmini.streams.streams import Item, dynamic_count, operands_of
from isched.program.program import Instr, Region

BARRIER = "barrier"
IDENTITY_LOAD = "mvin_identity"
"""Opcode of what brings the identity matrix, which executables with such an instruction have among their code."""

CORE_CYCLES = 16.0
"""Cycles that the core takes for an element of a chain, about [guess]."""


def accelerator_instr(
    engine: str,
    opcode: str,
    stream: tuple[Item, ...],
    reads: tuple[Region, ...],
    writes: tuple[Region, ...],
    cycles: float,
    source: str,
) -> Instr:
    """What one of the accelerator's controllers does."""
    return Instr(engine, opcode, operands_of(stream), reads, writes, cycles, source)


def core_instr(
    opcode: str, stream: tuple[Item, ...], reads: tuple[Region, ...], writes: tuple[Region, ...], source: str
) -> Instr:
    """What the core itself does."""
    return Instr("core", opcode, operands_of(stream), reads, writes, CORE_CYCLES * dynamic_count(stream), source)


def fence(source: str) -> Instr:
    """The core waits for all that the accelerator has begun: a barrier, since there is one core."""
    return Instr("core", BARRIER, source=source)
