"""Precedence between works: which must be over before which, in every valid order of a program's instructions.

    TimedStream of each core --accesses to common bytes, rendezvous--> Precedence: works and edges, earlier ones first

Two accesses that share a byte, one of them a write, keep their order in the program: on a core by issue, between cores
by barriers, other rendezvous and awaited transfers, wherever these come to stand. Cores that do an instruction together
keep their partners. Barriers themselves force nothing here. Only certain orders become edges: an omission (an access
that later writes covered bit by bit) weakens a bound and never falsifies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from hw_models.chip import Chip
from isched.bounds.region_sets import Places, Tracker
from isched.program.program import Region
from isched.program.timed_ops import TimedOp, TimedStream
from isched.timing.contention import Contention, Mover, Resource
from isched.timing.engines import TOLERANCE

DMA = "dma"
"""Name of the machine that stands for all channels of a cluster together."""

Place = tuple[int, int]
"""Position of a stream, and of an op in it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Use of `machine` by a work for `cycles`, no earlier than `head_cycles` after the start of the work and with at
    least `tail_cycles` of the work after it."""

    machine: Resource
    work: int
    head_cycles: float
    cycles: float
    tail_cycles: float


@dataclass(frozen=True)
class Precedence:
    """Works, numbered in an order that keeps all edges: `before[n]` are lower numbers. `members[n]` are the ops that a
    work stands for: one, or several that one read serves, or none for the moment at which cores meet. A work takes
    `cycles[n]` when nothing else moves."""

    before: tuple[tuple[int, ...], ...]
    cycles: tuple[float, ...]
    members: tuple[tuple[Place, ...], ...]
    claims: tuple[Claim, ...]

    def __len__(self) -> int:
        return len(self.cycles)


def precedence_of(streams: Sequence[TimedStream], chip: Chip, clusters: int = 1) -> Precedence:
    """The works of one cluster; the order of the streams must itself be valid."""
    return _Building(streams, chip, clusters).build()


class _Building:
    """One walk over all streams, from rendezvous to rendezvous."""

    def __init__(self, streams: Sequence[TimedStream], chip: Chip, clusters: int) -> None:
        self.streams = streams
        self.contention = Contention(chip, clusters)
        self.broadcasts = frozenset(link.name for link in chip.links if link.broadcast)
        self.channels = chip.dma.engines_per_cluster * chip.dma.channels_per_engine
        self.private = frozenset(memory.name for memory in chip.memories if memory.scope == "core")
        self.apart = _groups_meet_apart(streams)
        self.places = {memory: Places(regions) for memory, regions in _regions(streams).items()}
        self.trackers: dict[tuple[str, int], Tracker] = {}
        self.before: list[tuple[int, ...]] = []
        self.cycles: list[float] = []
        self.members: list[tuple[Place, ...]] = []
        self.claims: list[Claim] = []
        self.alone: dict[Mover, float] = {}

    def build(self) -> Precedence:
        for places in _walk(self.streams):
            ops = [self.streams[core].ops[index] for core, index in places]
            if ops[0].unit:
                self._add(places, ops)
        return Precedence(tuple(self.before), tuple(self.cycles), tuple(self.members), tuple(self.claims))

    def _add(self, places: list[Place], ops: list[TimedOp]) -> None:
        """The works of one op, or of those that cores do together."""
        served = self._served(ops)
        if len(served) == 1:
            self._work(places, ops, set())
            return
        # They start together, and each has an end of its own.
        needed: set[int] = set()
        for (core, _), op in zip(places, ops, strict=True):
            self._touch(core, op, -1, needed)
        number = self._node(needed, 0.0, ())
        for group in served:
            self._work([places[n] for n in group], [ops[n] for n in group], {number})

    def _served(self, ops: list[TimedOp]) -> list[list[int]]:
        """Positions of ops, grouped by the read that serves them."""
        groups: dict[object, list[int]] = {}
        for number, op in enumerate(ops):
            alone = len(op.flows) != 1 or op.flows[0].link not in self.broadcasts
            groups.setdefault(number if alone else (op.reads, op.flows), []).append(number)
        return list(groups.values())

    def _work(self, places: list[Place], ops: list[TimedOp], before: set[int]) -> None:
        number = len(self.cycles)
        for (core, _), op in zip(places, ops, strict=True):
            self._touch(core, op, number, before)
        cores = () if ops[0].starts else tuple(core for core, _ in places)
        cycles = self._move(number, ops[0], cores)
        self._node(before, cycles, tuple(places))
        for (core, _), op in zip(places, ops, strict=True):
            if op.starts:  # channels are alike: any of them might have done it
                self.claims.append(Claim(DMA, number, 0.0, cycles / self.channels, 0.0))
            else:
                self.claims.append(Claim((core, op.unit), number, 0.0, cycles, 0.0))

    def _node(self, before: set[int], cycles: float, places: tuple[Place, ...]) -> int:
        self.before.append(tuple(sorted(before)))
        self.cycles.append(cycles)
        self.members.append(places)
        return len(self.cycles) - 1

    def _move(self, number: int, op: TimedOp, cores: tuple[int, ...]) -> float:
        """Cycles of the op alone; the op claims every link and memory that its bytes pass, for as long as they must."""
        moved, spans = 0.0, dict[Resource, tuple[float, float, float]]()
        for flow in op.flows:
            mover = Mover(flow.link, cores)
            start = moved
            moved += flow.size_bytes / self._rate(mover)
            for resource, bandwidth in self.contention.resources(mover):
                first, cycles, _ = spans.get(resource, (start, 0.0, 0.0))
                spans[resource] = (first, cycles + flow.size_bytes / bandwidth, moved)
        total = op.cycles + ceil(moved - TOLERANCE)
        for resource, (first, cycles, last) in spans.items():
            self.claims.append(Claim(resource, number, op.cycles + first, cycles, total - op.cycles - last))
        return total

    def _rate(self, mover: Mover) -> float:
        if mover not in self.alone:
            self.alone[mover] = self.contention.shares((mover,))[0]
        return self.alone[mover]

    def _touch(self, core: int, op: TimedOp, number: int, before: set[int]) -> None:
        """Add to `before` the works that the op must wait for, and add its own accesses under `number` unless that is
        negative."""
        for regions, write in ((op.reads, False), (op.writes, True)):
            for region in regions:
                owner = core if self.apart or region.memory in self.private else -1
                tracker = self.trackers.get((region.memory, owner))
                if tracker is None:
                    tracker = self.trackers[region.memory, owner] = Tracker(self.places[region.memory])
                place = tracker.places.numbers[region]
                tracker.waits(place, write, before)
                if number >= 0:
                    tracker.access(place, write, number)
        before.discard(number)


def _regions(streams: Sequence[TimedStream]) -> dict[str, list[Region]]:
    """The touched regions of each memory."""
    regions: dict[str, list[Region]] = {}
    for op in (op for stream in streams for op in stream.ops):
        for region in (*op.reads, *op.writes):
            regions.setdefault(region.memory, []).append(region)
    return regions


def _groups_meet_apart(streams: Sequence[TimedStream]) -> bool:
    """True where barriers join only some of the cores; orders between other cores are then not looked for."""
    members: dict[str, int] = {}
    for op in (op for stream in streams for op in stream.ops if op.rendezvous and not op.unit):
        members[op.rendezvous] = members.get(op.rendezvous, 0) + 1
    return any(count < len(streams) for count in members.values())


def _walk(streams: Sequence[TimedStream]) -> Iterator[list[Place]]:
    """All ops, those that meet together, in an order that keeps each stream and every wait for a transfer."""
    members: dict[str, int] = {}
    for op in (op for stream in streams for op in stream.ops if op.rendezvous):
        members[op.rendezvous] = members.get(op.rendezvous, 0) + 1
    position = [0] * len(streams)
    come: dict[str, list[int]] = {}
    at: list[str] = [""] * len(streams)
    started: set[str] = set()
    moving = True
    while moving:
        moving = False
        for core, stream in enumerate(streams):
            while position[core] < len(stream.ops) and not at[core]:
                op = stream.ops[position[core]]
                if not started.issuperset(op.awaits):
                    break
                moving = True
                if op.rendezvous:
                    at[core] = op.rendezvous
                    come.setdefault(op.rendezvous, []).append(core)
                    break
                started.add(op.starts)
                yield [(core, position[core])]
                position[core] += 1
        for name in [name for name, cores in come.items() if len(cores) == members[name]]:
            cores = come.pop(name)
            yield [(core, position[core]) for core in sorted(cores)]
            for core in cores:
                position[core], at[core] = position[core] + 1, ""
            moving = True
