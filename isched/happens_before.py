"""What is over when an instruction begins, as far as the program itself forces it: what a checker may rely on.

    streams --walked together, from meeting to meeting--> Step, Step, ...   each with what it knows to be over

Time plays no part. An instruction begins behind those before it on its own engine, and behind what its core waited for:
an access in flight to the same bytes (the published issue rule), a transfer that it awaited, a barrier. A barrier hands
all that its cores know to each of them. Where cores do an instruction together (`Instr.meets`), it begins when all have
come to it, so what their engines did before is over for all of them; but the scalar cores know that only later, when
they wait for it. Nothing watches the DMA: what it touches must be awaited, or be known to be over when it starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw_models.errors import PlanError
from isched.conflicts import Conflicts
from isched.program import Instr, Program

__all__ = ["Knowledge", "Step", "Units", "walk"]

Vector = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Units:
    """What works in order and touches memory that cores share: each engine of each core, and its scalar core with the
    transfers that it starts (`scalar`)."""

    engines: tuple[str, ...]
    scalar: int

    @staticmethod
    def of(program: Program, shared: frozenset[str]) -> Units:
        """The engines that touch shared memories in this program, background transfers apart."""
        engines = sorted(
            {
                instr.engine
                for stream in program.streams
                for instr in stream.instrs
                if not instr.starts and (instr.meets or any(r.memory in shared for r in (*instr.reads, *instr.writes)))
            }
        )
        return Units(tuple(engines), len(engines))

    def number(self, instr: Instr) -> int:
        """Position of an instruction's unit; -1 for an engine that only touches its core's memories."""
        if instr.starts or instr.awaits:
            return self.scalar
        return self.engines.index(instr.engine) if instr.engine in self.engines else -1

    @property
    def count(self) -> int:
        return len(self.engines) + 1


@dataclass(frozen=True, slots=True)
class Knowledge:
    """For each core (row) and unit (column), how many of the core's instructions are over: all of that unit before
    this position of its stream."""

    over: Vector

    def knows(self, core: int, unit: int, end: int) -> bool:
        """Whether the instruction of a unit at position `end - 1` is over."""
        return bool(self.over[core, unit] >= end)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One instruction (position `index` in the stream of the `core`th stream), begun when what it `knows` is over; its
    own accesses are over for whoever knows that `unit` has come to `end`. Barriers are not steps."""

    core: int
    index: int
    instr: Instr
    unit: int
    end: int
    knows: Knowledge


class _Core:
    """One stream on its way."""

    def __init__(self, number: int, instrs: tuple[Instr, ...], conflicts: Conflicts, cores: int, units: Units) -> None:
        self.number = number
        self.instrs = instrs
        self.conflicts = conflicts.earlier
        self.position = 0
        self.scalar: Vector = np.zeros((cores, units.count), np.int64)
        """What the scalar core knows; an engine knows that of the moment of issue, and what was before it there."""
        self.engines: list[Vector] = [self.scalar] * units.count
        self.flying: dict[str, deque[tuple[int, Vector]]] = {}
        """Positions by engine that the scalar core does not know to be over, with what their end tells."""
        self.open: dict[str, int] = {}
        """Transfers in flight: token -> position behind the wait."""


def walk(program: Program, shared: frozenset[str], conflicts: Sequence[Conflicts]) -> Iterator[Step]:
    """All instructions in one order that keeps the streams and the meetings, each with what it knows. `conflicts` are
    those inside each core, by `isched.conflicts`.

    Raises PlanError where cores wait for each other for ever, or a transfer is never awaited.
    """
    units = Units.of(program, shared)
    count = len(program.streams)
    cores = [_Core(n, stream.instrs, conflicts[n], count, units) for n, stream in enumerate(program.streams)]
    numbers = {stream.core: n for n, stream in enumerate(program.streams)}
    while True:
        for core in cores:
            yield from _until_meeting(program, core, units)
        if all(core.position == len(core.instrs) for core in cores):
            break
        met = _meeting(program, cores, numbers)
        if cores[met[0]].instrs[cores[met[0]].position].opcode == program.barrier:
            _barrier([cores[n] for n in met], units)
        else:
            yield from _together([cores[n] for n in met], units)


def _until_meeting(program: Program, core: _Core, units: Units) -> Iterator[Step]:
    while core.position < len(core.instrs):
        instr = core.instrs[core.position]
        if instr.opcode == program.barrier or instr.meets:
            return
        yield _issue(program, core, instr, units)
        core.position += 1


def _issue(program: Program, core: _Core, instr: Instr, units: Units) -> Step:
    """One instruction of one core alone."""
    index, unit = core.position, units.number(instr)
    if instr.starts:
        end = _start(program, core, instr)
        return Step(core.number, index, instr, unit, end, Knowledge(core.scalar))
    if instr.awaits:
        core.open.pop(instr.awaits, None)
        core.scalar = core.scalar.copy()
        core.scalar[core.number, unit] = index + 1
        return Step(core.number, index, instr, unit, index + 1, Knowledge(core.scalar))
    _wait_for_conflicts(core)
    known = core.scalar if unit < 0 else np.maximum(core.scalar, core.engines[unit])
    _fly(core, instr, unit, known)
    return Step(core.number, index, instr, unit, index + 1, Knowledge(known))


def _start(program: Program, core: _Core, instr: Instr) -> int:
    """The position behind the wait that ends a transfer."""
    who = f"program {program.name}, core {program.streams[core.number].core}"
    if instr.starts in core.open:
        raise PlanError(who, needs=f"transfer {instr.starts} to be awaited before it starts again")
    for position in range(core.position + 1, len(core.instrs)):
        if core.instrs[position].awaits == instr.starts:
            core.open[instr.starts] = position + 1
            return position + 1
        if core.instrs[position].starts == instr.starts:
            raise PlanError(who, needs=f"transfer {instr.starts} to be awaited before it starts again")
    raise PlanError(who, needs="every background transfer awaited before the end", has=instr.starts)


def _wait_for_conflicts(core: _Core) -> None:
    """The scalar core waits for accesses in flight to the same bytes, so for all before them on the same engine."""
    earlier = core.conflicts[core.position]
    if not earlier:
        return
    for queue in core.flying.values():
        if not queue or queue[0][0] > earlier[-1]:
            continue
        last = -1
        mine = set(earlier)
        for n, (position, _) in enumerate(queue):
            if position in mine:
                last = n
        for _ in range(last + 1):
            core.scalar = np.maximum(core.scalar, queue.popleft()[1])


def _fly(core: _Core, instr: Instr, unit: int, known: Vector) -> None:
    """The instruction is on its way; whoever waits for its end knows `told`."""
    if unit < 0:
        return
    told = known.copy()
    told[core.number, unit] = core.position + 1
    core.engines[unit] = told
    core.flying.setdefault(instr.engine, deque()).append((core.position, told))


def _meeting(program: Program, cores: list[_Core], numbers: dict[int, int]) -> list[int]:
    """Cores that have all come to one instruction that they do together."""
    waiting = [core for core in cores if core.position < len(core.instrs)]
    for core in waiting:
        instr = core.instrs[core.position]
        if instr.opcode == program.barrier:
            members = list(range(len(cores)))
        else:
            members = [numbers[n] for n in range(instr.meets.bit_length()) if instr.meets >> n & 1 and n in numbers]
        if all(_comes_to(cores[n], instr) for n in members):
            return members
    first = waiting[0]
    instr = first.instrs[first.position]
    raise PlanError(
        f"program {program.name}, core {program.streams[first.number].core}, instruction {first.position} "
        f"({instr.opcode} of {instr.source or 'no operator'})",
        needs="as many barriers on every core, and the same instructions that cores do together in the same order",
        has="cores that wait for each other for ever",
    )


def _comes_to(core: _Core, instr: Instr) -> bool:
    if core.position == len(core.instrs):
        return False
    here = core.instrs[core.position]
    return here.opcode == instr.opcode and here.meets == instr.meets


def _barrier(cores: list[_Core], units: Units) -> None:
    """Each core comes when its engines are done; then all know what each knew. Open transfers stay open."""
    for core in cores:
        core.scalar = np.maximum.reduce([core.scalar, *core.engines])
        for unit in range(units.count):
            if unit != units.scalar:
                core.scalar[core.number, unit] = core.position
        core.flying.clear()
    known = np.maximum.reduce([core.scalar for core in cores])
    for core in cores:
        core.scalar = known
        core.engines = [known] * units.count
        core.position += 1


def _together(cores: list[_Core], units: Units) -> Iterator[Step]:
    """An instruction that begins when it is first in the queues of all its cores."""
    before = []
    for core in cores:
        instr = core.instrs[core.position]
        _wait_for_conflicts(core)
        before.append(np.maximum(core.scalar, core.engines[units.number(instr)]))
    known = np.maximum.reduce(before)
    for core in cores:
        instr = core.instrs[core.position]
        known[core.number, units.number(instr)] = core.position
    knowledge = Knowledge(known)
    for core in cores:
        instr = core.instrs[core.position]
        unit = units.number(instr)
        _fly(core, instr, unit, known)
        yield Step(core.number, core.position, instr, unit, core.position + 1, knowledge)
        core.position += 1
