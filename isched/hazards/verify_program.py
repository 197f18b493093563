"""Checks of a program, always run: every read was written, every hazard between cores or with DMA is ordered.

    Program --isched.hazards.happens_before--> instructions with what is over when they begin --> accesses, one by one

Two accesses to the same bytes of a shared memory, one of them a write, must be ordered by the program itself: by a
barrier, by an instruction that the cores do together, or by a transfer that was awaited. The same holds for an access
of a core and a DMA transfer of its own. Inside a core the hardware orders the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.hazards.access_table import COLUMNS, Flags, Table, Touches, Vector
from isched.hazards.conflicts import Earlier, conflicts_of, conflicts_within, own_accesses
from isched.hazards.happens_before import OrderedSteps, SharedMemoryUnits, walk
from isched.hazards.uninitialised_reads import first_unwritten
from isched.program.program import Program, Region

INITIALISED = ("input", "constant", "probe")
"""Kinds of placements that hold data before the program starts."""


def verify_program(program: Program, chip: Chip) -> None:
    """Check bounds, alignment, engines that may not touch a memory, reads of unwritten bytes, races between cores and
    with DMA, and deadlocks. Raises PlanError naming core, instruction and operator."""
    touches = Touches.of(program)
    _check_rules(program, touches, chip)
    _check_own_memories(program, touches, chip)
    _check_shared_memories(program, touches, chip)


def _check_shared_memories(program: Program, touches: Touches, chip: Chip) -> None:
    """Require that there is no race and that every read was written; the earlier fault is reported first."""
    shared = frozenset(memory.name for memory in chip.memories if memory.scope != "core")
    kind_of = touches.kinds(shared)
    kinds = [kind_of[lists] for lists in touches.streams]
    units = SharedMemoryUnits.of(program, [own != 0 for own in kinds])
    steps = walk(program, units, conflicts_within(program, touches, chip, frozenset(units.engines)))
    groups = _Groups.of(program, steps, kinds)
    lead = groups.steps[groups.begins[:-1]]
    lists = [int(touches.streams[core][index]) for core, index in zip(*steps.places(lead), strict=True)]
    accesses = touches.accesses(np.array(lists, np.int64), shared)
    race = _first_race(steps, groups, conflicts_of(accesses))
    held = _held(program, touches)
    row = first_unwritten(np.concatenate((held, accesses.table))) - len(held)
    if race is not None and (row < 0 or race[1] <= accesses.who[row]):
        raise _race(program, steps, race[0], int(lead[race[1]]))
    if row >= 0:
        step = lead[accesses.who[row]]
        raise _unwritten(program, int(steps.core[step]), int(steps.index[step]), touches.region(accesses.table[row]))


@dataclass(frozen=True, slots=True)
class _Groups:
    """Steps that touch shared memories, in order; the steps from `begins[n]` to `begins[n + 1]` are those of cores that
    touch the same bytes together. `starts` are the flags of background transfers."""

    steps: Vector
    begins: Vector
    starts: Flags

    @staticmethod
    def of(program: Program, steps: OrderedSteps, kinds: Sequence[Vector]) -> _Groups:
        """The groups of steps; `kinds`, by stream and position, are equal where the same bytes are touched, and 0 where
        none are."""
        lengths = np.concatenate(([0], np.cumsum([len(own) for own in kinds])))
        kind = np.concatenate(kinds)[lengths[steps.core] + steps.index]
        chosen = np.flatnonzero(kind)
        apart = np.diff(kind[chosen], prepend=-1) != 0
        apart |= np.diff(steps.knows[chosen], prepend=-1) != 0
        starts = [bool(program.streams[c].instrs[i].starts) for c, i in zip(*steps.places(chosen), strict=True)]
        return _Groups(chosen, np.append(np.flatnonzero(apart), len(chosen)), np.array(starts, np.bool_))


def _held(program: Program, touches: Touches) -> Table:
    """Data present before the program starts, as accesses that write."""
    numbers = {memory: number for number, memory in enumerate(touches.memories)}
    rows = [
        (numbers[p.memory], p.offset_bytes, p.offset_bytes + p.size_bytes, p.size_bytes, 1, 0, 1)
        for p in program.placements
        if p.kind in INITIALISED and p.memory in numbers
    ]
    return np.array(rows, np.int64).reshape(-1, COLUMNS)


def _first_race(steps: OrderedSteps, groups: _Groups, earlier: Earlier) -> tuple[int, int] | None:
    """The first access that need not come after an earlier one to the same bytes, though one of them writes: the
    earlier step, and the number of the group of the later one."""
    begins = groups.begins
    core, unit, end = (column[groups.steps] for column in (steps.core, steps.unit, steps.end))
    sizes = np.diff(begins)[earlier.numbers]
    # Every pair once for each member of the earlier group.
    then = np.repeat(earlier.later, sizes)
    first = np.arange(len(then)) - np.repeat(np.cumsum(sizes) - sizes - begins[earlier.numbers], sizes)
    lead = begins[then]
    watched = (core[first] == core[lead]) & ~groups.starts[first] & ~groups.starts[lead]  # by the core's hardware
    over = steps.over[steps.knows[groups.steps[lead]], core[first], unit[first]] >= end[first]
    racing = np.flatnonzero(~watched & ~over)
    return (int(groups.steps[first[racing[0]]]), int(then[racing[0]])) if len(racing) else None


def _check_rules(program: Program, touches: Touches, chip: Chip) -> None:
    """Require that its engine and memory allow every access."""
    rules, kept = _Rules.of(chip), _Kept.of(program)
    checked: set[tuple[str, int]] = set()
    for core, (stream, lists) in enumerate(zip(program.streams, touches.streams, strict=True)):
        for index, (instr, touched) in enumerate(zip(stream.instrs, lists.tolist(), strict=True)):
            key = (instr.engine, touched)
            if key in checked:
                continue
            checked.add(key)
            for regions, write in ((instr.reads, False), (instr.writes, True)):
                for region in regions:
                    if problem := rules[region.memory].problem(instr.engine, region, write):
                        raise PlanError(program.who(core, index), needs=problem, has=str(region))
            for region in instr.writes:
                if overwritten := kept.within(region):
                    needs = f"{overwritten} as it was given, of which no next value has its place"
                    raise PlanError(program.who(core, index), needs=needs, has=f"writes in {region}")


def _check_own_memories(program: Program, touches: Touches, chip: Chip) -> None:
    """Require that each core reads from its own memories only what it wrote there before. Cores that do the same are
    checked once."""
    known: set[tuple[bytes, bytes]] = set()
    for core in range(len(program.streams)):
        accesses = own_accesses(program, touches, chip, core)
        if accesses.key in known:
            continue
        known.add(accesses.key)
        row = first_unwritten(accesses.table)
        if row >= 0:
            raise _unwritten(program, core, int(accesses.who[row]), touches.region(accesses.table[row]))


def _unwritten(program: Program, core: int, index: int, region: Region) -> PlanError:
    needs = "data that something wrote before"
    return PlanError(program.who(core, index), needs=needs, has=f"unwritten bytes in {region}")


def _race(program: Program, steps: OrderedSteps, before: int, step: int) -> PlanError:
    core, index = int(steps.core[step]), int(steps.index[step])
    stream = program.streams[steps.core[before]]
    instr = stream.instrs[steps.index[before]]
    if instr.starts and steps.core[before] == core:
        needs = f"transfer {instr.starts} to be awaited before"
    else:
        needs = "a barrier between accesses of two cores, or of a core and its DMA"
    other = f"core {stream.core} {instr.opcode} ({instr.source})"
    return PlanError(program.who(core, index), needs=needs, has=f"{other} not known to be over")


@dataclass(frozen=True, slots=True)
class _Kept:
    """Tensors that are given and that no instruction may write, in order of their ends: their names, first bytes and
    ends, by memory."""

    places: Mapping[str, tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]]

    @staticmethod
    def of(program: Program) -> _Kept:
        """All inputs and constants but inputs whose next values are written in their places."""
        written = {place.of for place in program.placements if place.kind == "state"}
        found: dict[str, list[tuple[int, int, str]]] = {}
        for place in program.placements:
            if place.kind in INITIALISED and place.tensor not in written and place.size_bytes:
                end = place.offset_bytes + place.size_bytes
                found.setdefault(place.memory, []).append((end, place.offset_bytes, place.tensor))
        columns = {memory: tuple(zip(*sorted(rows), strict=True)) for memory, rows in found.items()}
        return _Kept({memory: (names, starts, ends) for memory, (ends, starts, names) in columns.items()})

    def within(self, region: Region) -> str:
        """The first of them of which a region has bytes; empty where there is none."""
        if region.memory not in self.places:
            return ""
        names, starts, ends = self.places[region.memory]
        at = bisect_right(ends, region.offset_bytes)
        if at == len(ends) or starts[at] >= region.end_bytes:
            return ""
        return names[at]


@dataclass(frozen=True, slots=True)
class _Rules:
    """Rules of one memory."""

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
        """The rule that forbids an access, as what it would need; empty when the access is allowed. Rows that are no
        whole units of the alignment have smaller elements, which may lie at multiples of less."""
        if region.offset_bytes < 0 or region.end_bytes > self.size_bytes:
            return f"addresses inside {self.name} ({self.size_bytes} bytes)"
        if (region.offset_bytes | region.stride_bytes) % gcd(self.alignment_bytes, region.row_bytes):
            return f"addresses and strides of {self.name} at multiples of {self.alignment_bytes} bytes"
        allowed = self.written_by if write else self.read_by
        if engine not in allowed:
            return f"an engine that may {'write' if write else 'read'} {self.name}: {', '.join(sorted(allowed))}"
        return ""
