"""Instruction scheduling: the streams of a program in an order that keeps its engines busy at once.

    Program --isched.dependences--> what must come before what, barriers that nothing needs left out
            --list scheduling by critical path--> the same instructions in another order

A core issues in order and waits where it must, so the order decides what overlaps: weights of later layers travel while
this one computes, transfers start as early as what they overwrite is over and are awaited as late as what they bring is
needed, one tile is multiplied while another is finished. How far ahead anything can run is decided by the addresses:
what would overwrite bytes that are still read depends on the readers. No byte of the results changes.

Cores that do the same but at other shared addresses share one order; DMA instructions are those of one core among them.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hw_models.chip import Chip
from isched.contention import Contention, Mover
from isched.dependences import CoreOrder, dependences
from isched.program import Instr, Program, Stream
from isched.target import LowerTarget
from isched.timed import TimedOp, timed_streams
from isched.timing import time_program

__all__ = ["schedule_program"]


COMPARED_INSTRUCTIONS = 20_000
"""Up to so many, the clock is asked whether the new order is the faster one. For longer programs that would take as
long as all else; a stream of many tiles leaves list scheduling much to gain."""


def schedule_program(program: Program, chip: Chip, target: LowerTarget) -> Program:
    """The same work in the order that list scheduling finds, or as it was where the clock finds that faster.

    `program` must be one that `verify_program` accepts; it accepts the result too."""
    scheduled = _scheduled(program, chip, target)
    if sum(len(stream.instrs) for stream in program.streams) > COMPARED_INSTRUCTIONS:
        return scheduled
    before, after = (time_program(tried, chip, target).cycles for tried in (program, scheduled))
    return scheduled if after <= before else program


def _scheduled(program: Program, chip: Chip, target: LowerTarget) -> Program:
    orders = dependences(program, chip)
    groups = _alike(program, orders)
    leaders = [max(members, key=lambda n: len(program.streams[n].instrs)) for members in groups]
    leading = replace(program, streams=tuple(program.streams[leader] for leader in leaders))
    timed = timed_streams(leading, chip, target.issue_costs(leading))
    costs = _Costs(chip)
    streams: list[Stream] = list(program.streams)
    met: dict[int, float] = {}
    for members, leader, costed in zip(groups, leaders, timed, strict=True):
        tasks = _tasks(program, orders, members, leader, costed.ops, costs)
        numbers = _kept(orders[leader])
        order, begun = _list_schedule(tasks, chip.assumed.queue_depth, met)
        met = met or begun
        listed = [numbers[n] for n in order]
        for member in members:
            streams[member] = _ordered(program, orders, member, leader, listed)
    return replace(program, streams=tuple(streams))


def _kept(order: CoreOrder) -> list[int]:
    return [position for position in range(len(order.inside.earlier)) if position not in order.dropped]


# Cores that do the same


def _background(instr: Instr) -> bool:
    return bool(instr.starts or instr.awaits)


def _foreground(program: Program, order: CoreOrder, core: int) -> list[int]:
    """Positions of everything but DMA and dropped barriers."""
    instrs = program.streams[core].instrs
    return [position for position in _kept(order) if not _background(instrs[position])]


def _alike(program: Program, orders: Sequence[CoreOrder]) -> list[list[int]]:
    """Streams grouped by what their engines do, DMA apart; in each group at most one has DMA."""
    groups: dict[object, list[int]] = {}
    moving: set[object] = set()
    for core, stream in enumerate(program.streams):
        instrs = [stream.instrs[position] for position in _foreground(program, orders[core], core)]
        work = tuple((instr.engine, instr.opcode, instr.cycles, instr.meets) for instr in instrs)
        key: tuple[object, ...] = (orders[core].inside.kind, work)
        if any(_background(instr) for instr in stream.instrs):
            key = (*key, core) if key in moving else key
            moving.add(key)
        groups.setdefault(key, []).append(core)
    # Those with DMA first: what they wait for, all others wait for where they meet them.
    return sorted(groups.values(), key=lambda cores: not any(map(_moves, (program.streams[core] for core in cores))))


def _moves(stream: Stream) -> bool:
    return any(_background(instr) for instr in stream.instrs)


def _ordered(program: Program, orders: Sequence[CoreOrder], member: int, leader: int, listed: Sequence[int]) -> Stream:
    """The stream of one core in the order that was found for the group's leader."""
    instrs = program.streams[member].instrs
    if member == leader:
        return replace(program.streams[member], instrs=tuple(instrs[position] for position in listed))
    mine = _foreground(program, orders[member], member)
    theirs = {position: n for n, position in enumerate(_foreground(program, orders[leader], leader))}
    found = tuple(instrs[mine[theirs[position]]] for position in listed if position in theirs)
    return replace(program.streams[member], instrs=found)


# One stream as tasks


@dataclass(frozen=True, slots=True)
class _Task:
    """One instruction: scalar cycles to issue it, its unit (empty for none) and cycles there. `after` are tasks that
    are over before it issues, `behind` those that are issued before it; with `drains` all engines are idle then."""

    issue: float
    unit: str
    cycles: float
    after: tuple[int, ...]
    behind: tuple[int, ...]
    drains: bool = False
    meeting: int = -1
    background: str = ""
    awaits: str = ""


class _Costs:
    """Cycles of an instruction when all cores do the same: each has its part of what they share."""

    def __init__(self, chip: Chip) -> None:
        self.tick = chip.assumed.scalar_instruction_cycles
        self._chip = chip
        self._contention = Contention(chip)
        self._rates: dict[tuple[str, int], float] = {}

    def cycles(self, op: TimedOp) -> float:
        """Latency, then the bytes of each flow at the rate it then has."""
        shared = 0 if op.starts else 1 if op.rendezvous else self._chip.cores_per_cluster
        return op.cycles + sum(flow.size_bytes / self._rate(flow.link, shared) for flow in op.flows)

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
    program: Program,
    orders: Sequence[CoreOrder],
    members: Sequence[int],
    leader: int,
    ops: Sequence[TimedOp],
    costs: _Costs,
) -> list[_Task]:
    """The leader's stream, without dropped barriers, with what any member must keep."""
    kept = _kept(orders[leader])
    number = {position: n for n, position in enumerate(kept)}
    order = orders[leader]
    after = [[number[p] for p in order.over(position)] for position in kept]
    behind = [[number[p] for p in order.order.get(position, ())] for position in kept]
    theirs = [number[position] for position in _foreground(program, order, leader)]
    for member in members:
        if member == leader:
            continue
        as_leader = dict(zip(_foreground(program, orders[member], member), theirs, strict=True))
        for pairs, found in ((orders[member].shared, after), (orders[member].order, behind)):
            for position, earlier in pairs.items():
                if position in as_leader:
                    found[as_leader[position]] += [as_leader[p] for p in earlier if p in as_leader]
    tasks = []
    lead = meetings = 0
    for n, position in enumerate(kept):
        op = ops[position]
        issue = (op.issue.before + lead) * costs.tick
        lead = op.issue.after
        drains = bool(op.rendezvous) and not op.unit
        meetings += bool(op.rendezvous)
        unit = "" if op.starts else op.unit
        tasks.append(
            _Task(
                issue=issue,
                unit=unit,
                cycles=costs.cycles(op),
                after=tuple(sorted(set(after[n]))),
                behind=tuple(sorted(set(behind[n]))),
                drains=drains,
                meeting=meetings if op.rendezvous else -1,
                background=op.starts.partition("#")[0],
                awaits="".join(token.partition("#")[0] for token in op.awaits),
            )
        )
    return tasks


def _tails(tasks: Sequence[_Task]) -> list[float]:
    """Cycles from the start of each task to the end of all that depends on it."""
    tails = [0.0] * len(tasks)
    started: dict[str, int] = {}
    for n in range(len(tasks) - 1, -1, -1):
        task = tasks[n]
        if task.background:
            waits = started.get(task.background)
            own = task.cycles + (tails[waits] if waits is not None else 0.0)
            tails[n] = max(tails[n], own)
        else:
            tails[n] += task.issue + (task.cycles if task.unit else 0.0)
        if task.awaits:
            started[task.awaits] = n
        for p in task.after:
            tails[p] = max(tails[p], tails[n])
        for p in task.behind:
            less = 0.0 if not tasks[p].unit else tasks[p].cycles
            tails[p] = max(tails[p], tails[n] - less)
    return tails


def _list_schedule(tasks: Sequence[_Task], depth: int, met: Mapping[int, float]) -> tuple[list[int], dict[int, float]]:
    """Numbers of the tasks in the order of issue: of those that need not wait the one with the longest tail, else the
    one that waits least; and when each meeting was issued. Meetings do not begin before the time that `met` says."""
    tails = _tails(tasks)
    following: list[list[tuple[int, bool]]] = [[] for _ in tasks]
    missing = [len(task.after) + len(task.behind) for task in tasks]
    for n, task in enumerate(tasks):
        for p in task.after:
            following[p].append((n, True))
        for p in task.behind:
            following[p].append((n, False))
    machine = _Machine(depth)
    earliest = [met.get(task.meeting, 0.0) for task in tasks]
    begun: dict[int, float] = {}
    waiting: list[tuple[float, float, int]] = []
    free: dict[str, list[tuple[float, int]]] = {}
    for n, count in enumerate(missing):
        if not count:
            heapq.heappush(waiting, (earliest[n], -tails[n], n))
    result: list[int] = []
    now = 0.0
    while len(result) < len(tasks):
        while waiting and waiting[0][0] <= now:
            _, tail, n = heapq.heappop(waiting)
            heapq.heappush(free.setdefault(_lane(tasks[n]), []), (tail, n))
        best: tuple[float, int, str] | None = None
        soon: tuple[float, float, int, str] | None = None
        for lane, heap in free.items():
            if not heap:
                continue
            tail, n = heap[0]
            slot = machine.slot(tasks[n], now)
            if slot <= now:
                if best is None or (tail, n) < best[:2]:
                    best = (tail, n, lane)
            elif soon is None or (slot, tail, n) < soon[:3]:
                soon = (slot, tail, n, lane)
        if best is None:
            if waiting and (soon is None or waiting[0][0] <= soon[0]):
                now = waiting[0][0]
                continue
            assert soon is not None  # something is always ready: dependences point back
            now = soon[0]
            continue
        _, n, lane = best
        heapq.heappop(free[lane])
        task = tasks[n]
        result.append(n)
        if task.meeting >= 0:
            begun[task.meeting] = now
        end = machine.issue(task, now)
        now += task.issue
        for other, over in following[n]:
            missing[other] -= 1
            earliest[other] = max(earliest[other], end if over else now)
            if not missing[other]:
                at = earliest[other]
                if tasks[other].awaits:
                    at = max(at, machine.transfer_end(tasks[other].awaits))
                heapq.heappush(waiting, (at, -tails[other], other))
    return result, begun


def _lane(task: _Task) -> str:
    return task.unit or ("drain" if task.drains else "scalar")


class _Machine:
    """The engines of one core and the transfers in the background, as far as their order matters here."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.ends: dict[str, list[float]] = {}
        self.transfers: dict[str, float] = {}
        self.moving = 0.0

    def slot(self, task: _Task, now: float) -> float:
        """When its engine's queue has a place for the task; for a barrier, when all engines are idle."""
        if task.drains:
            return max((ends[-1] for ends in self.ends.values() if ends), default=now)
        ends = self.ends.get(task.unit, [])
        return ends[-self.depth] if task.unit and len(ends) >= self.depth else now

    def issue(self, task: _Task, now: float) -> float:
        """When the task is over, issued at `now`."""
        begin = now + task.issue
        if task.background:
            self.moving = max(self.moving, begin) + task.cycles
            self.transfers[task.background] = self.moving
            return begin
        if not task.unit:
            return begin
        ends = self.ends.setdefault(task.unit, [])
        start = max(begin, ends[-1]) if ends else begin
        ends.append(start + task.cycles)
        return ends[-1]

    def transfer_end(self, token: str) -> float:
        return self.transfers[token]
