"""Instruction scheduling: the streams of a program in an order that keeps its engines busy at once.

    Program --isched.hazards.dependences--> what must come before what, barriers that nothing needs left out
            --list scheduling by critical path--> the same instructions in another order

A core issues in order and waits where it must, so the order decides what overlaps: weights of later layers travel while
this one computes, transfers start as soon as the bytes that they overwrite are free and are awaited only when their
data are needed, one tile is multiplied while another is finished. The addresses decide how far ahead anything can run:
a write to bytes that are still read depends on the readers. No byte of the results changes.

Cores that do the same at other shared addresses share one order; DMA instructions are placed in it by their own core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np

from hw_models.chip import Chip
from isched.hazards.access_table import Flags, Vector
from isched.hazards.dependences import CoreOrder, Pairs, dependences
from isched.program.program import Instr, Program, Stream
from isched.program.target import Timeable
from isched.program.timed_ops import CoreIssue, timed_work
from isched.scheduling.list_schedule import Floats, Tasks, list_schedule
from isched.timing.contention import Contention, Mover
from isched.timing.cycle_model import EndedRun, run_below


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The fastest of the programs that one plan can have, by the cycle model, with its cycles and its run. `ahead` is
    set where its addresses leave room for running ahead."""

    program: Program
    cycles: float
    ahead: bool
    run: EndedRun | None = field(default=None, repr=False, compare=False)


def scheduled_lowering(
    lower: Callable[[bool], Program], chip: Chip, target: Timeable, limit_cycles: float = inf
) -> Scheduled | None:
    """The fastest program that `lower` makes, whose argument says whether addresses leave room for running ahead; None
    where no program takes fewer cycles than the limit.

    With that room work overlaps most, but tiles get smaller where memories are small, and a plan of few long transfers
    only gets more of them. So the cycle model judges three programs: the one with room in the scheduler's order, the
    one without room unchanged, and the one without room in the scheduler's order. Each runs only until it has taken as
    long as the best before it."""
    best: Scheduled | None = None
    for program, ahead in _candidates(lower, chip, target):
        run = run_below(program, chip, target, best.cycles if best else limit_cycles)
        if run is not None:
            best = Scheduled(program, run.cycles, ahead, run)
    return best


def _candidates(lower: Callable[[bool], Program], chip: Chip, target: Timeable) -> Iterator[tuple[Program, bool]]:
    yield list_scheduled(lower(True), chip, target), True
    plain = lower(False)
    yield plain, False
    yield list_scheduled(plain, chip, target), False


def list_scheduled(program: Program, chip: Chip, target: Timeable) -> Program:
    """A program in the order that list scheduling finds, faster or not.

    `verify_program` must accept `program`; it then accepts the result too."""
    orders = dependences(program, chip)
    cores = [_Core(stream, order) for stream, order in zip(program.streams, orders, strict=True)]
    groups = _alike(cores)
    leaders = [max(members, key=lambda n: len(program.streams[n].instrs)) for members in groups]
    leading = replace(program, streams=tuple(program.streams[leader] for leader in leaders))
    costs = _Costs(chip)
    streams: list[Stream] = list(program.streams)
    met: Floats | None = None
    for members, leader, issue in zip(groups, leaders, target.issue_costs(leading, chip), strict=True):
        tasks = _tasks(program, cores, members, leader, issue, costs)
        order, begun = list_schedule(tasks, met)
        met = begun if met is None and len(begun) else met
        listed = cores[leader].kept[order]
        for member in members:
            streams[member] = _ordered(cores, member, leader, listed)
    return replace(program, streams=tuple(streams))


# Cores that do the same


@dataclass(frozen=True)
class _Core:
    """A stream and its order."""

    stream: Stream
    order: CoreOrder

    @cached_property
    def kept(self) -> Vector:
        """Positions of everything but dropped barriers."""
        return np.delete(np.arange(len(self.stream.instrs)), sorted(self.order.dropped))

    @cached_property
    def background(self) -> Flags:
        """Which instructions start or await a transfer."""
        return np.array([bool(instr.starts or instr.awaits) for instr in self.stream.instrs], np.bool_)

    @cached_property
    def foreground(self) -> Vector:
        """Positions of everything but DMA and dropped barriers."""
        return self.kept[~self.background[self.kept]]

    @property
    def moves(self) -> bool:
        return bool(self.background.any())


def _alike(cores: Sequence[_Core]) -> list[list[int]]:
    """Streams grouped by the work of their engines, DMA ignored; in each group at most one stream has DMA."""
    groups: dict[object, list[int]] = {}
    moving: set[object] = set()
    kinds: dict[tuple[object, ...], int] = {}
    for number, core in enumerate(cores):
        instrs = [core.stream.instrs[position] for position in core.foreground.tolist()]
        work = [
            kinds.setdefault((instr.engine, instr.opcode, instr.cycles, instr.meets), len(kinds)) for instr in instrs
        ]
        key: tuple[object, ...] = (core.order.inside.kind, tuple(work))
        if core.moves:
            key = (*key, number) if key in moving else key
            moving.add(key)
        groups.setdefault(key, []).append(number)
    # Streams with DMA first: all others wait for the transfers where they meet these cores.
    return sorted(groups.values(), key=lambda members: not any(cores[member].moves for member in members))


def _ordered(cores: Sequence[_Core], member: int, leader: int, listed: Vector) -> Stream:
    """The stream of one core in the order that was found for the group's leader."""
    stream = cores[member].stream
    if member != leader:
        listed = _as(cores, leader, member)[listed]
        listed = listed[listed >= 0]
    return replace(stream, instrs=tuple([stream.instrs[position] for position in listed.tolist()]))


def _as(cores: Sequence[_Core], of: int, to: int) -> Vector:
    """For each position of one stream, that of the same instruction in a similar stream; -1 for DMA and dropped
    barriers."""
    found = np.full(len(cores[of].stream.instrs), -1, np.int64)
    found[cores[of].foreground] = cores[to].foreground
    return found


# One stream as tasks


class _Costs:
    """Cycles of an instruction when all cores do the same: each has an equal part of the shared bandwidth."""

    def __init__(self, chip: Chip) -> None:
        self.tick = chip.assumed.scalar_instruction_cycles
        self._chip = chip
        self._contention = Contention(chip)
        self._rates: dict[tuple[str, int], float] = {}
        self._known: dict[tuple[object, ...], tuple[str, float]] = {}

    def work(self, instr: Instr, idle: bool) -> tuple[str, float]:
        """The unit (empty for none) and its cycles: latency, then the bytes of each flow at the rate that it then has.
        With `idle`, the instruction is only a wait of the scalar core."""
        shapes = [(r.memory, r.row_bytes, r.rows, r.stride_bytes) for r in (*instr.reads, *instr.writes)]
        key = (instr.engine, instr.starts, instr.cycles, idle, bool(instr.meets), len(instr.reads), *shapes)
        found = self._known.get(key)
        if found is None:
            unit, cycles, flows = timed_work(instr, self._chip, bool(instr.starts), idle)
            shared = 0 if instr.starts else 1 if instr.meets else self._chip.cores_per_cluster
            cycles += sum(flow.size_bytes / self._rate(flow.link, shared) for flow in flows)
            found = self._known[key] = "" if instr.starts else unit, cycles
        return found

    def depth(self, unit: str) -> int:
        """Places of a unit's queue."""
        return self._chip.queue_depth(unit)

    def _rate(self, link: str, cores: int) -> float:
        if (link, cores) not in self._rates:
            if cores == 0:
                movers: tuple[Mover, ...] = (Mover(link),)
            elif cores == 1:
                movers = (Mover(link, tuple(range(self._chip.cores_per_cluster))),)
            else:
                movers = tuple(Mover(link, (core,)) for core in range(cores))
            self._rates[link, cores] = min(self._contention.shares(movers))
        return self._rates[link, cores]


def _tasks(
    program: Program, cores: Sequence[_Core], members: Sequence[int], leader: int, issue: CoreIssue, costs: _Costs
) -> Tasks:
    """The leader's stream, without dropped barriers, with the order that any member must keep."""
    core = cores[leader]
    kept = core.kept.tolist()
    instrs = [core.stream.instrs[n] for n in kept]
    works = [costs.work(instr, bool(instr.awaits) or program.is_barrier(instr)) for instr in instrs]
    meets = np.array([program.is_rendezvous(instr) for instr in instrs], np.bool_)
    full = np.array([program.is_full_rendezvous(instr) for instr in instrs], np.bool_)
    names = [unit for unit, _ in works]
    unit = _numbers(names)
    channels = _numbers([instr.starts or instr.awaits for instr in instrs])
    starts = np.array([bool(instr.starts) for instr in instrs], np.bool_)
    awaits = np.array([bool(instr.awaits) for instr in instrs], np.bool_)
    after, follows = _pairs(cores, members, leader)
    return Tasks(
        issue=costs.tick * _issued(issue, kept),
        unit=unit,
        cycles=np.array([cycles for _, cycles in works], np.float64),
        depths=np.array([costs.depth(name) for name in dict.fromkeys(names) if name], np.int64),
        drains=meets & (unit < 0) & ~starts,
        rendezvous=np.where(full, np.cumsum(full), -1),
        background=np.where(starts, channels, -1),
        awaits=np.where(awaits, channels, -1),
        after=after,
        follows=follows,
    )


def _numbers(names: Sequence[str]) -> Vector:
    """A number for each name, -1 for empty ones."""
    known: dict[str, int] = {"": -1}
    return np.array([known.setdefault(name, len(known) - 1) for name in names], np.int64)


def _issued(issue: CoreIssue, kept: Sequence[int]) -> Floats:
    """Scalar instructions of the kept instructions: those after one instruction belong to the next."""
    before = np.array([cost.before for cost in issue.issues], np.float64)
    before[:1] += issue.start
    after = np.array([issue.issues[n].after for n in kept], np.float64)
    found: Floats = before[kept] + np.concatenate(([0.0], after))[: len(kept)]
    return found


def _pairs(cores: Sequence[_Core], members: Sequence[int], leader: int) -> tuple[Pairs, Pairs]:
    """Tasks that are over, and tasks that are issued, before each task of the leader, by their numbers."""
    core = cores[leader]
    number = np.full(len(core.stream.instrs), -1, np.int64)
    number[core.kept] = np.arange(len(core.kept))
    inside = core.order.inside.earlier
    after, follows = [Pairs(number[inside.later], number[inside.numbers])], []
    for member in members:
        as_leader = number
        if member != leader:
            place = _as(cores, member, leader)
            as_leader = np.where(place >= 0, number[place], -1)
        after.append(_renamed(cores[member].order.shared, as_leader))
        follows.append(_renamed(cores[member].order.ordered, as_leader))
    return _union(after), _union(follows)


def _renamed(pairs: Pairs, numbers: Vector) -> Pairs:
    """Pairs with other numbers, without positions that have none."""
    later, earlier = numbers[pairs.later], numbers[pairs.earlier]
    known = (later >= 0) & (earlier >= 0)
    return Pairs(later[known], earlier[known])


def _union(found: Sequence[Pairs]) -> Pairs:
    return Pairs.of(
        np.concatenate([pairs.later for pairs in found]), np.concatenate([pairs.earlier for pairs in found])
    )
