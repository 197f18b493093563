"""Lower bounds on the time of a program, over all valid orders of its instructions.

    Program --timed_streams--> TimedStream of each core --precedence--> works, edges, claims --> Bounds

There are four bounds, from plain to strong. `engine_cycles` and `bandwidth_cycles` add up the work of an engine and the
bytes that pass a link or memory. `path_cycles` is the longest chain of works that need each other. `cycles` joins them
and knows phases: a work starts when all before it is done, and those works have engines and bandwidth to share; so have
the works that follow it. (The bound for one machine with heads and tails is Jackson's preemptive schedule; see Carlier,
"The one-machine sequencing problem", EJOR 1982.)

A valid order keeps the addresses, the order of accesses to common bytes, and which cores work together
(isched.bounds.precedence); barriers may stand anywhere. The number of scalar instructions depends on the order, so one
is counted per instruction. Cycles include the launch, as those of the cycle model do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hw_models.chip import Chip
from isched.bounds.one_machine_bound import starts
from isched.bounds.precedence import DMA, Claim, Precedence, precedence_of
from isched.program.program import Program
from isched.program.target import Timeable
from isched.program.timed_ops import TimedStream, timed_streams
from isched.timing.contention import Resource

MOST_QUESTIONS = 400_000_000
"""Largest product of works and claims at which all cores are looked at."""

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Cycles that every valid order takes at least, launch included. `engine` and `way` name the binding engine of a
    core, and the binding link or memory."""

    launch_cycles: float
    engine_cycles: float
    engine: str
    bandwidth_cycles: float
    way: str
    path_cycles: float
    cycles: float

    def distance(self, cycles: float) -> float:
        """Excess of a run of `cycles` over the strongest bound, as a share of the bound."""
        return cycles / self.cycles - 1.0 if self.cycles else 0.0


def program_bounds(program: Program, chip: Chip, target: Timeable, clusters: int = 1) -> Bounds:
    """Bounds of the program of one cluster, which must have been lowered for this chip."""
    return stream_bounds(timed_streams(program, chip, target.issue_costs(program, chip)), chip, clusters)


def stream_bounds(streams: tuple[TimedStream, ...], chip: Chip, clusters: int = 1) -> Bounds:
    """Bounds of the streams of one cluster; `clusters` of them work alike at the same time. In a large program, phases
    are looked at only from the core with the busiest engine."""
    graph = precedence_of(streams, chip, clusters)
    tick, launch = chip.assumed.scalar_instruction_cycles, chip.assumed.launch_cycles
    machines: dict[Resource, list[Claim]] = {}
    for claim in graph.claims:
        machines.setdefault(claim.machine, []).append(claim)
    sums = {machine: sum(claim.cycles for claim in claims) for machine, claims in machines.items()}
    engines = {machine: cycles for machine, cycles in sums.items() if _core(machine) is not None}
    ways = {machine: cycles for machine, cycles in sums.items() if machine not in engines}
    engine = max(engines, key=lambda machine: engines[machine], default=None)
    way = max(ways, key=lambda machine: ways[machine], default=None)
    issue = tick * max((len(stream.ops) for stream in streams), default=0)
    core = None if engine is None else _core(engine)
    small = len(graph) * len(graph.claims) <= MOST_QUESTIONS
    cores = frozenset(range(len(streams)) if small else [] if core is None else [core])
    path, cycles = _phases(graph, _relevant(machines, cores), cores, tick)
    return Bounds(
        launch_cycles=launch,
        engine_cycles=launch + (0.0 if engine is None else engines[engine]),
        engine="" if engine is None else _name(engine, streams),
        bandwidth_cycles=launch + (0.0 if way is None else ways[way]),
        way="" if way is None else _name(way, streams),
        path_cycles=launch + path,
        cycles=launch + max(issue, cycles, *sums.values(), 0.0),
    )


def _core(machine: Resource) -> int | None:
    """The core that an engine belongs to; None for a resource that cores share."""
    return machine[0] if isinstance(machine, tuple) and isinstance(machine[0], int) else None


def _name(machine: Resource, streams: tuple[TimedStream, ...]) -> str:
    core = _core(machine)
    if isinstance(machine, tuple) and core is not None:
        return f"{machine[1]} of core {streams[core].core}"
    return " ".join(map(str, machine)) if isinstance(machine, tuple) else str(machine)


def _relevant(machines: dict[Resource, list[Claim]], cores: frozenset[int]) -> list[list[Claim]]:
    """Claims of the cores' engines and of shared resources, without those that say no more than another one does."""
    kept: list[list[Claim]] = []
    shapes: list[set[tuple[int, float]]] = []
    for machine, claims in sorted(machines.items(), key=lambda item: (-len(item[1]), str(item[0]))):
        owners = {part for part in machine[1:] if isinstance(part, int)} if isinstance(machine, tuple) else set()
        core = _core(machine)
        if owners or (core is not None and core not in cores):
            continue
        shape = {(claim.work, claim.cycles) for claim in claims}
        if not any(shape <= other for other in shapes):
            kept.append(claims)
            shapes.append(shape)
    return kept


def _phases(graph: Precedence, machines: list[list[Claim]], cores: frozenset[int], tick: float) -> tuple[float, float]:
    """The longest chain, and the bound that knows phases."""
    count = len(graph)
    if not count:
        return 0.0, 0.0
    cycles = np.array(graph.cycles, np.float64)
    started = {claim.work for claims in machines for claim in claims if claim.machine == DMA}
    judged = np.array(
        [number in started or any(core in cores for core, _ in places) for number, places in enumerate(graph.members)],
        np.uint8,
    )
    after: list[list[int]] = [[] for _ in range(count)]
    for number, before in enumerate(graph.before):
        for other in before:
            after[count - 1 - other].append(count - 1 - number)
    nobody = np.zeros(count, np.uint8)
    forward, backward = _flat(graph.before), _flat(after[n] for n in range(count))
    none = _claims([], cycles)
    plain = _run(forward, cycles, tick, nobody, none)
    rest = _run(backward, cycles[::-1].copy(), 0.0, nobody, none)[::-1]
    path = float((plain + cycles + rest).max())
    heads = _run(forward, cycles, tick, judged, _claims(machines, plain))
    mirrored = [
        [Claim(c.machine, count - 1 - c.work, c.tail_cycles, c.cycles, c.head_cycles) for c in claims]
        for claims in machines
    ]
    tails = _run(backward, cycles[::-1].copy(), 0.0, judged[::-1].copy(), _claims(mirrored, rest[::-1]))[::-1]
    strongest = max((_one_machine(claims, heads, tails) for claims in machines), default=0.0)
    return path, max(strongest, float((heads + cycles + tails).max()))


_Claims = tuple[Indices, Indices, Indices, Numbers]


def _claims(machines: list[list[Claim]], known: Numbers) -> _Claims:
    """(bit of each work, first claim of each machine, work of each claim, its numbers), with the claims in order of
    their known start."""
    ordered = [sorted(claims, key=lambda c: known[c.work] + c.head_cycles) for claims in machines]
    bit = np.full(known.size, -1, np.int64)
    works = np.array([claim.work for claims in ordered for claim in claims], np.int64)
    claimed = np.unique(works)
    bit[claimed] = np.arange(claimed.size)
    firsts = np.cumsum([0, *map(len, ordered)], dtype=np.int64)
    rows = [(claim.head_cycles, claim.cycles, claim.tail_cycles) for claims in ordered for claim in claims]
    return bit, firsts, works, np.array(rows, np.float64).reshape(-1, 3).T.copy()


def _flat(lists: Iterable[Iterable[int]]) -> tuple[Indices, Indices]:
    rows = [tuple(row) for row in lists]
    firsts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return firsts, np.fromiter((item for row in rows for item in row), np.int64, int(firsts[-1]))


def _run(
    edges: tuple[Indices, Indices], cycles: Numbers, earliest: float, judged: NDArray[np.uint8], claims: _Claims
) -> Numbers:
    bit, firsts, works, numbers = claims
    found: Numbers = starts(*edges, cycles, earliest, bit, judged, firsts, works, numbers)
    return found


def _one_machine(claims: list[Claim], heads: Numbers, tails: Numbers) -> float:
    """Earliest time at which everything is over on one machine that may interrupt a work for a more urgent one: the
    work with the longest tail goes first."""
    coming = sorted(
        (float(heads[c.work] + c.head_cycles), -float(tails[c.work] + c.tail_cycles), c.cycles) for c in claims
    )
    waiting: list[tuple[float, float]] = []
    now = over = 0.0
    for number, (head, urgent, cycles) in enumerate(coming):
        now = max(now, head)
        heapq.heappush(waiting, (urgent, cycles))
        until = coming[number + 1][0] if number + 1 < len(coming) else np.inf
        while waiting and now < until:
            first, left = heapq.heappop(waiting)
            worked = min(left, until - now)
            now += worked
            if worked < left:
                heapq.heappush(waiting, (first, left - worked))
            else:
                over = max(over, now - first)
    return float(over)
