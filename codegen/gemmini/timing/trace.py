"""GemminiMachine code to the input of the cycle model: what the core runs, and what it asks of the accelerator.

    ELF bytes --the core's code runs, the accelerator only notes what it is asked--> notes --> TimedStream

Only the executable is read. Instructions for one controller that follow each other are one op, as loops of a program
are. Regions are the smallest ranges around what is touched. Control flow may not depend on results of the accelerator.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, MAIN, SCRATCHPAD, geometry_of
from codegen.gemmini.isa.table import ROWS
from codegen.gemmini.simulator import core
from codegen.gemmini.simulator.machine import GemminiMachine, MachineError, Noting
from codegen.gemmini.simulator.status import ENDED, NOTES_FULL
from codegen.gemmini.streams.instructions import BARRIER
from codegen.gemmini.timing.issued_loops import (
    COMPUTE,
    CORE,
    LOOP_DOES,
    IssuedLoop,
    core_work,
    extra_cycles,
    loop_work,
)
from codegen.gemmini.timing.unrolled_work import beat_bytes
from codegen.riscv.elf_format import ElfError
from codegen.target import served_by
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.program import Region
from isched.program.timed_ops import IssueCost, OpWork, TimedOp, TimedStream

MOST_INSTRUCTIONS = 20_000_000_000
"""Largest number of instructions of a program; a longer one is taken for an endless loop."""

NOTES_AT_ONCE = 1 << 15
Notes = npt.NDArray[np.int64]

_DOES = {core.KEY_COMPUTE: COMPUTE, core.KEY_CONFIG_EX: "config_ex", core.KEY_CONFIG_LD: "config_ld"} | {
    core.KEY_MOVE + number: name
    for name, number in (("mvin", core.MVIN), ("mvin2", core.MVIN2), ("mvin3", core.MVIN3), ("mvout", core.MVOUT))
}
_LOOP_DOES = {core.LOOP_KEYS[part]: does for part, does in LOOP_DOES.items()}


def trace(executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
    """The timed stream of the core. Raises TargetError for a file that is not a program for this chip, and for one that
    does not end."""
    try:
        machine = GemminiMachine(executable, {}, False)
    except (ElfError, MachineError) as error:
        raise TargetError("program", needs="a static 64-bit executable for this chip", has=str(error)) from error
    if (cores, cluster) != (1, 0):
        raise TargetError("--cores, --cluster", needs="one core of cluster 0", has=f"{cores} of {cluster}")
    symbols = sorted((symbol.address, served_by(symbol.name)) for symbol in machine.elf.symbols)
    addresses, names = [address for address, _ in symbols], [name for _, name in symbols]
    ops: list[TimedOp] = []
    fences = 0
    noting = _noting(chip)
    for note in _notes(machine, noting):
        place = bisect_right(addresses, int(note[core.PC])) - 1
        fences += int(note[core.KEY] == core.KEY_FENCE)
        ops.append(_op(note, chip, names[place] if place >= 0 else "", fences))
    return (TimedStream(0, tuple(ops), int(noting.state[core.SINCE_COUNT])),)


def _noting(chip: Chip) -> Noting:
    state = np.zeros(core.NOTING_WORDS, np.int64)
    state[core.READ_LOW] = state[core.WRITTEN_LOW] = 1 << 62
    geometry = geometry_of(chip)
    widths = geometry.dim, beat_bytes(chip), chip.dma.max_linear_bytes
    extra = np.array([extra_cycles(row.mnemonic, chip) for row in ROWS], np.int64)
    return Noting(np.zeros((NOTES_AT_ONCE, core.NOTE_WORDS), np.int64), state, widths, extra)


def _notes(machine: GemminiMachine, noting: Noting) -> Iterator[Notes]:
    """The notes of a run, each when it is finished. Raises TargetError."""
    pc, status, done = machine.elf.entry, NOTES_FULL, 0
    while status == NOTES_FULL:
        status, pc, executed = machine.run(pc, MOST_INSTRUCTIONS - done, noting)
        done += executed
        finished = int(noting.state[core.NOTED])
        keeps = status == NOTES_FULL and noting.state[core.OPEN]
        yield from noting.notes[: finished - int(keeps)].copy()
        if keeps:
            noting.notes[0] = noting.notes[finished - 1]
        noting.state[core.NOTED] = int(keeps)
    if status != ENDED:
        raise TargetError("program", needs="to run to its end", has=machine.fault(status, pc))


def _op(note: Notes, chip: Chip, source: str, number: int) -> TimedOp:
    key = int(note[core.KEY])
    if key == core.KEY_CORE:
        count, extra = int(note[core.BEFORE]), int(note[core.BEFORE_EXTRA])
        work = core_work(count, extra, chip)
        reads, writes = (_range(note, low, MAIN, 1, BASE) for low in (core.FIRST_LOW, core.TO_LOW))
        return _made(CORE, "elements", IssueCost(0, entries=count), work, reads, writes, source)
    before = int(note[core.BEFORE]) + 1
    if key == core.KEY_FENCE:
        return TimedOp(CORE, BARRIER, IssueCost(before), rendezvous=f"{BARRIER}{number}", source=source)
    unrolled = key in _LOOP_DOES
    does = _LOOP_DOES[key] if unrolled else _DOES[key]
    instructions = int(note[core.COUNT])
    tick = chip.assumed.scalar_instruction_cycles
    segment = IssuedLoop(
        does, instructions, tick * int(note[core.DURING]), int(note[core.REQUESTS]), int(note[core.MOVED]),
        int(note[core.BEATS]), int(note[core.LOCAL]), int(note[core.ARRAY]), bool(note[core.SUMS]),
    )  # fmt: skip
    work = loop_work(segment, chip)
    dim = geometry_of(chip).dim
    main = _range(note, core.MAIN_LOW, MAIN, 1, BASE)
    local, row_bytes = (ACCUMULATOR, 4 * dim) if segment.sums else (SCRATCHPAD, dim)
    to = _range(note, core.TO_LOW, local, row_bytes)
    factor = (ACCUMULATOR, 4 * dim) if note[core.FIRST_SUMS] else (SCRATCHPAD, dim)
    reads = (*_range(note, core.FIRST_LOW, *factor), *_range(note, core.SECOND_LOW, SCRATCHPAD, dim))
    if does in ("mvout", LOOP_DOES["store"]):
        reads, writes = _range(note, core.FIRST_LOW, local, row_bytes), main
    elif does in (COMPUTE, LOOP_DOES["compute"]):
        reads, writes = (*reads, *to), to
    elif does == LOOP_DOES["load"]:
        reads = (*main, *_range(note, core.FIRST_LOW, MAIN, 1, BASE))
        writes = (*to, *_range(note, core.SECOND_LOW, local, row_bytes))
    else:
        reads, writes = main, to
    issue = IssueCost(before, entries=1 if unrolled else instructions, stationed=True)
    return _made(work.unit, does, issue, work, reads, writes, source)


def _range(note: Notes, low: int, memory: str, unit_bytes: int, base: int = 0) -> tuple[Region, ...]:
    start, end = int(note[low]), int(note[low + 1])
    return (Region(memory, (start - base) * unit_bytes, (end - start) * unit_bytes),) if start < end else ()


def _made(
    engine: str, opcode: str, issue: IssueCost, work: OpWork, reads: tuple[Region, ...], writes: tuple[Region, ...],
    source: str,
) -> TimedOp:  # fmt: skip
    return TimedOp(engine, opcode, issue, work.unit, work.cycles, work.flows, reads, writes, source=source,
                   moved_bytes=work.moved_bytes)  # fmt: skip
