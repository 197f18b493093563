"""Checks of a program, always run: every read was written, every hazard between cores or with DMA is ordered.

    Program --isched.happens_before--> instructions with what is over when they begin --> accesses, one by one

Two accesses to the same bytes of a shared memory, one of them a write, must be ordered by the program itself: by a
barrier, by an instruction that the cores do together, or by a transfer that was awaited. So must an access of a core
and a DMA transfer of its own. Inside a core the hardware orders the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.conflicts import Touched, conflicts_of, conflicts_within, touched_in
from isched.happens_before import Step, Units, walk
from isched.program import Program, Region

__all__ = ["verify_program"]

INITIALISED = ("input", "constant", "probe")
"""Placements that hold data before the program starts."""


def verify_program(program: Program, chip: Chip) -> None:
    """Bounds, alignment, engines that may not touch a memory, reads of unwritten bytes, races between cores and with
    DMA, equal barriers. Raises PlanError naming core, instruction and operator."""
    counts = {sum(i.opcode == program.barrier for i in stream.instrs) for stream in program.streams}
    if len(counts) > 1:
        raise PlanError(f"program {program.name}", needs="as many barriers on every core", has=str(sorted(counts)))
    _check_rules(program, chip)
    _check_own_memories(program, chip)
    shared = frozenset(memory.name for memory in chip.memories if memory.scope != "core")
    written = _Written(chip)
    for placement in program.placements:
        if placement.kind in INITIALISED:
            written.mark(Region(placement.memory, placement.offset_bytes, placement.size_bytes))
    steps: list[list[Step]] = []
    touched: list[Touched] = []
    engines = frozenset(Units.of(program, shared).engines)
    for step in walk(program, shared, conflicts_within(program, chip, engines)):
        reads = tuple(region for region in step.instr.reads if region.memory in shared)
        writes = tuple(region for region in step.instr.writes if region.memory in shared)
        if not reads and not writes:
            continue
        if steps and steps[-1][0].knows is step.knows and touched[-1] == (reads, writes):
            steps[-1].append(step)  # cores that touch the same bytes together
            continue
        steps.append([step])
        touched.append((reads, writes))
    for (step, *_), (reads, writes), earlier in zip(steps, touched, conflicts_of(touched), strict=True):
        for number in earlier:
            for before in steps[number]:
                _refuse_race(program, before, step)
        for region in reads:
            if not written.whole(region):
                raise _unwritten(program, step.core, step.index, region)
        for region in writes:
            written.mark(region)


def _check_rules(program: Program, chip: Chip) -> None:
    """Every access is one that its engine and memory allow."""
    rules = _Rules.of(chip)
    checked: set[tuple[str, Region, bool]] = set()
    for core, stream in enumerate(program.streams):
        for index, instr in enumerate(stream.instrs):
            for regions, write in ((instr.reads, False), (instr.writes, True)):
                for region in regions:
                    access = (instr.engine, region, write)
                    if access not in checked:
                        checked.add(access)
                        if problem := rules[region.memory].problem(*access):
                            raise PlanError(_who(program, core, index), needs=problem, has=str(region))


def _check_own_memories(program: Program, chip: Chip) -> None:
    """Each core reads of its own memories what it wrote there before. Cores that do the same are checked once."""
    private = frozenset(memory.name for memory in chip.memories if memory.scope == "core")
    known: set[tuple[Touched, ...]] = set()
    for core, stream in enumerate(program.streams):
        touched = touched_in(stream.instrs, private)
        key = tuple(entry for entry in touched if entry[0] or entry[1])
        if key in known:
            continue
        known.add(key)
        written = _Written(chip)
        for index, (reads, writes) in enumerate(touched):
            for region in reads:
                if not written.whole(region):
                    raise _unwritten(program, core, index, region)
            for region in writes:
                written.mark(region)


def _unwritten(program: Program, core: int, index: int, region: Region) -> PlanError:
    needs = "data that something wrote before"
    return PlanError(_who(program, core, index), needs=needs, has=f"unwritten bytes in {region}")


def _who(program: Program, core: int, index: int) -> str:
    instr = program.streams[core].instrs[index]
    served = instr.source or "no operator"
    where = f"program {program.name}, core {program.streams[core].core}, instruction {index}"
    return f"{where} ({instr.opcode} of {served})"


def _refuse_race(program: Program, before: Step, step: Step) -> None:
    """An access must come behind an earlier one to the same bytes, if one of them writes."""
    if before.core == step.core and not before.instr.starts and not step.instr.starts:
        return  # inside a core the hardware watches
    if step.knows.knows(before.core, before.unit, before.end):
        return
    if before.instr.starts and before.core == step.core:
        needs = f"transfer {before.instr.starts} to be awaited before"
    else:
        needs = "a barrier between accesses of two cores, or of a core and its DMA"
    other = f"core {program.streams[before.core].core} {before.instr.opcode} ({before.instr.source})"
    raise PlanError(_who(program, step.core, step.index), needs=needs, has=f"{other} not known to be over")


@dataclass(frozen=True, slots=True)
class _Rules:
    """What one memory allows."""

    name: str
    size_bytes: int
    alignment_bytes: int
    read_by: frozenset[str]
    written_by: frozenset[str]

    @staticmethod
    def of(chip: Chip) -> dict[str, _Rules]:
        return {
            m.name: _Rules(m.name, m.size_bytes, m.alignment_bytes, frozenset(m.read_by), frozenset(m.written_by))
            for m in chip.memories
        }

    def problem(self, engine: str, region: Region, write: bool) -> str:
        """What an access would need to be allowed; empty when it is."""
        if region.offset_bytes < 0 or region.end_bytes > self.size_bytes:
            return f"addresses inside {self.name} ({self.size_bytes} bytes)"
        if (region.offset_bytes | region.stride_bytes) % self.alignment_bytes:
            return f"addresses and strides of {self.name} at multiples of {self.alignment_bytes} bytes"
        allowed = self.written_by if write else self.read_by
        if engine not in allowed:
            return f"an engine that may {'write' if write else 'read'} {self.name}: {', '.join(sorted(allowed))}"
        return ""


class _Written:
    """Which bytes hold data: of the shared memories, or of one core's."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.maps: dict[str, npt.NDArray[np.bool_]] = {}

    def mark(self, region: Region) -> None:
        self._view(region)[...] = True

    def whole(self, region: Region) -> bool:
        return bool(self._view(region).all())

    def _view(self, region: Region) -> npt.NDArray[np.bool_]:
        if region.memory not in self.maps:
            self.maps[region.memory] = np.zeros(self.chip.memory(region.memory).size_bytes, np.bool_)
        flat = self.maps[region.memory][region.offset_bytes : region.end_bytes]
        if region.rows == 1:
            return flat
        shape, strides = (region.rows, region.row_bytes), (region.stride_bytes, 1)
        return np.lib.stride_tricks.as_strided(flat, shape, strides)
