"""The space that the searches explore (a device for each task that has a choice, and a priority for each task), and the
count of evaluations.

Problem --Space.of--> options and neighbours as arrays --random_rows, breed--> genes --Tally--> the best
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsa_sched.placement.methods.genetic_ops import random_rows
from dsa_sched.placement.methods.list_scheduling import ListRule
from dsa_sched.placement.methods.registry import Search
from dsa_sched.placement.methods.segments import Pools, breed_segments, cuts, keep, longest, rest_of
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.schedule.list_decoder import Decoder, offsets
from dsa_sched.placement.schedule.schedule import TaskPlacement
from dsa_sched.placement.schedule.simulate import simulate

JUDGED = 8
"""Number of individuals of the last generation that are simulated where streams contend, because decoding only
estimates there.
"""

Rows = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Device genes and priorities, one row per individual."""


def random_state(search: Search) -> NDArray[np.uint64]:
    return np.array([search.seed % 2**64], np.uint64)


@dataclass(frozen=True)
class DecoderSpace:
    """A decoder, and the devices that each task may get. `arrays` is the same for the compiled operators."""

    decoder: Decoder
    options: tuple[tuple[int, ...], ...]
    arrays: Any

    @staticmethod
    def of(
        problem: Problem,
        options: Sequence[Sequence[int]] | None = None,
        kinds: Sequence[int] | None = None,
        interchangeable: Sequence[Sequence[int]] = (),
    ) -> DecoderSpace:
        """A space of all devices that accept a task, unless fewer are given. `kinds` are classes of devices that are
        alike, and `interchangeable` groups of tasks whose exchange changes nothing (`pruning`).
        """
        graph = problem.graph
        chosen = tuple(map(tuple, problem.accepted if options is None else options))
        near = tuple(before + after for before, after in zip(graph.predecessors, graph.successors, strict=True))
        before = np.array([len(others) for others in graph.predecessors], np.int64)
        free = np.array([task for task, own in enumerate(chosen) if len(own) > 1], np.int64)
        kind = np.array(range(len(problem.machines)) if kinds is None else kinds, np.int64)
        folds = kind, *offsets(tuple(map(tuple, interchangeable)))
        return DecoderSpace(Decoder.of(problem), chosen, (*offsets(chosen), *offsets(near), before, free, *folds))

    @property
    def problem(self) -> Problem:
        return self.decoder.problem

    @property
    def bits(self) -> float:
        """The number of placements, as a power of two."""
        return float(np.log2([len(own) for own in self.options]).sum())

    def random(self, count: int, state: NDArray[np.uint64]) -> Rows:
        genes = np.zeros((count, len(self.options)), np.int64)
        priorities = np.zeros(genes.shape)
        random_rows(self.arrays, state, genes, priorities)
        return genes, priorities

    def listed(self, rules: Sequence[ListRule]) -> Rows:
        """The genes that decode to the schedules of list scheduling. Priorities are scaled to end at 1."""
        genes, priorities = [], []
        for rule in rules:
            self.decoder.run(rule.gene, rule.priority, rule.bias)
            genes.append(self.decoder.machine)
            priorities.append(rule.priority / max(1.0, float(rule.priority.max(initial=0))))
        return np.array(genes), np.array(priorities)

    def place(self, gene: NDArray[np.int64], priority: NDArray[np.float64]) -> TaskPlacement:
        self.decoder.run(gene, priority)
        return self.decoder.placement()


EVALUATIONS = 5000
"""Default number of evaluations of a search."""


@dataclass
class Tally:
    """Counts evaluations and remembers improvements of one search, which ends at a makespan of `enough_ns`."""

    budget: int
    seconds: float | None = None
    enough_ns: float = 0.0
    evaluations: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @staticmethod
    def of(search: Search) -> Tally:
        """Tally of a search with the option `enough_ns`."""
        budget = EVALUATIONS if search.evaluations is None else max(1, search.evaluations)
        return Tally(budget, search.seconds, search.option("enough_ns", 0.0))

    @property
    def best(self) -> float:
        return self.history[-1][1] if self.history else float("inf")

    @property
    def left(self) -> int:
        """Evaluations that are left; none when time is up, or when the best is good enough."""
        if self.best <= self.enough_ns:
            return 0
        late = self.seconds is not None and time.monotonic() - self.began >= self.seconds
        return 0 if late else self.budget - self.evaluations

    def add(self, makespans: NDArray[np.int64]) -> None:
        """Add makespans, in the order in which they were computed."""
        for number in np.flatnonzero(makespans < self.best).tolist():
            if makespans[number] < self.best:
                self.history.append((self.evaluations + number + 1, int(makespans[number])))
        self.evaluations += len(makespans)


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of a genetic algorithm.

    crossover      share of the children that have two parents
    repeat         probability of another change after each change
    path_bias      share of the changes that are made on the critical path
    reprioritise   share of the changes that give a task another priority
    tournament     number of individuals drawn, the best of which is a parent
    segment_share  share of the segments that change at a time; 0 makes the whole network one segment
    children       children per generation; 0 means as many as `population`
    """

    population: int
    crossover: float
    repeat: float
    path_bias: float
    reprioritise: float
    tournament: int
    segment_share: float = 0.0
    children: int = 0


@dataclass
class Generation:
    """Individuals, best first. `paths` is empty where critical paths are not asked for."""

    genes: NDArray[np.int64]
    priorities: NDArray[np.float64]
    makespans: NDArray[np.int64]
    paths: NDArray[np.int8]

    def best(self, count: int) -> Rows:
        return self.genes[:count], self.priorities[:count]


@dataclass(frozen=True)
class Evolution:
    """A genetic algorithm whose parents are the best genes of each segment (`segments.py`), in pools. A generation is
    the best whole rows."""

    space: DecoderSpace
    rates: Rates
    state: NDArray[np.uint64]
    tally: Tally
    pools: Pools

    @staticmethod
    def of(space: DecoderSpace, rates: Rates, state: NDArray[np.uint64], tally: Tally) -> Evolution:
        """Where a segment has more tasks than there are individuals, as many children are bred at a time as there are
        of these. With `segment_share` 0, the whole network is one segment.
        """
        last = cuts(space.problem.graph) if rates.segment_share else np.array([len(space.options) - 1])
        if longest(last) > rates.population:
            rates = replace(rates, children=0)
        pools = Pools.of(last, len(space.problem.machines), rates.population)
        return Evolution(space, rates, state, tally, pools)

    def first(self, rows: Rows) -> Generation:
        """Evaluate the first individuals, as many as the budget allows (one at least)."""
        count = max(1, self.tally.left)
        return survivors([self._evaluated(rows[0][:count], rows[1][:count])], self.rates.population)

    def next(self, parents: Generation) -> Generation:
        own = self.rates
        count = min(own.children or own.population, self.tally.left)
        genes = np.zeros((count, parents.genes.shape[1]), np.int64)
        priorities = np.zeros(genes.shape)
        rates = np.array(
            [own.crossover, own.repeat, own.path_bias, own.reprioritise, own.tournament, own.segment_share]
        )
        better = int(self.pools.rest[0].min()) < self.tally.best
        breed_segments(self.space.arrays, self.pools.arrays, rates, better, self.state, genes, priorities)
        return survivors([self._evaluated(genes, priorities), parents], own.population)

    def _evaluated(self, genes: NDArray[np.int64], priorities: NDArray[np.float64]) -> Generation:
        pools, biased = self.pools, self.rates.path_bias > 0
        makespans, paths, ends = self.space.decoder.watch(genes, priorities, pools.last, paths=biased)
        self.tally.add(makespans)
        keep(self.space.arrays, pools.arrays, genes, priorities, paths, np.column_stack([ends[:, :-1], makespans]))
        rest_of(self.space.arrays, pools.arrays)
        return Generation(genes, priorities, makespans, paths)


def survivors(groups: Sequence[Generation], population: int) -> Generation:
    """The best; of equals the first of the first group, the others only where there is room."""
    makespans = np.concatenate([group.makespans for group in groups])
    order = np.argsort(makespans, kind="stable")
    again = np.zeros(len(order), np.bool_)
    again[1:] = makespans[order][1:] == makespans[order][:-1]
    kept = np.concatenate([order[~again], order[again]])[:population]
    kept = kept[np.argsort(makespans[kept], kind="stable")]
    genes = np.concatenate([group.genes for group in groups])[kept]
    priorities = np.concatenate([group.priorities for group in groups])[kept]
    paths = np.concatenate([group.paths for group in groups])
    return Generation(genes, priorities, makespans[kept], paths[kept] if len(paths) else paths)


def best_placement(space: DecoderSpace, rows: Rows) -> TaskPlacement:
    """The best row's; where streams contend, the one that the simulator finds fastest."""
    genes, priorities = rows
    if not any(space.problem.contended):
        best = int(np.argmin(space.decoder.evaluate(genes, priorities)[0]))
        return space.place(genes[best], priorities[best])
    placements = [space.place(gene, priority) for gene, priority in zip(genes, priorities, strict=True)]
    return min(placements, key=lambda placement: simulate(space.problem, placement).makespan_ns)
