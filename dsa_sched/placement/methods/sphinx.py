"""SPHINX: the space pruned by the network's structure, then a genetic algorithm that works on the critical path (CPGA).

    Problem --list schedules--> a known makespan --pruning--> a smaller problem --CPGA--> placements of groups
            --expanded--> CPGA once more, over single tasks --> the best

After the abstract of SPHINX (Yuchi, Shi, Bao, ICPP 2024), which names the pruned space, a cost model and the Critical
Path Genetic Algorithm, and gives no details: they are this project's reading. The cost model is the list scheduler
with copies of `schedule/list_decoder.py`. The operators of CPGA are in `genetic_ops.py`; it starts from list
schedules, which are good on critical paths, changes tasks that are on the current one, by the operator that answers
what they wait for there, and searches the segments between cuts of the network each for itself (`segments.py`).
Groups are searched first where a segment has more tasks than there are individuals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsa_sched.placement.methods import pruning
from dsa_sched.placement.methods.coarsening import Coarse, expanded
from dsa_sched.placement.methods.list_scheduling import ListRule, list_rules, upward_ranks
from dsa_sched.placement.methods.registry import Outcome, Search, finished
from dsa_sched.placement.methods.search_space import (
    JUDGED,
    DecoderSpace,
    Evolution,
    Generation,
    Rates,
    Rows,
    Tally,
    best_placement,
    random_state,
)
from dsa_sched.placement.methods.segments import cuts, longest
from dsa_sched.placement.model.problem import NOT_ACCEPTED, Problem
from dsa_sched.placement.schedule.bounds import through
from dsa_sched.placement.schedule.list_decoder import FREE
from dsa_sched.placement.schedule.schedule import TaskPlacement, single_machine
from dsa_sched.placement.schedule.simulate import simulate
from partitioner.ir.decisions import Decision

PERTURBATION = 0.3
"""Largest relative difference of the ranks of shaken individuals."""


def list_starts(space: DecoderSpace, ways: NDArray[np.float64] | None = None) -> Rows:
    """List schedules; every task where its longest way through the network is shortest; and every task on one machine
    (or by its way, if that machine refuses it), in the order of the graph if the machine runs one at a time. `ways` are
    `bounds.through` of the problem, where they are known.
    """
    problem = space.problem
    way = (through(problem) if ways is None else ways).argmin(axis=1)
    rank = upward_ranks(problem)
    rules = [*list_rules(problem), ListRule("ways", rank, np.asarray(way, np.int64))]
    for machine, kind in enumerate(problem.machines):
        gene = np.where(problem.work_ns[:, machine] == NOT_ACCEPTED, way, machine)
        rules.append(ListRule("alone", np.arange(len(way), 0.0, -1.0) if kind.streams == 1 else rank, gene))
    return space.listed(rules)


def perturbed(space: DecoderSpace, random: NDArray[np.float64]) -> Rows:
    """HEFT with slightly changed ranks: every task goes where it ends first."""
    rank = upward_ranks(space.problem)
    priorities = rank / max(1.0, float(rank.max(initial=0))) * (1 + PERTURBATION * (random - 0.5))
    return np.full(priorities.shape, FREE, np.int64), priorities


def concatenated(one: Rows, other: Rows) -> Rows:
    """Both, one below the other."""
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])


CRITICAL = Rates(
    population=60,
    crossover=0.9,
    repeat=0.3,
    path_bias=0.4,
    reprioritise=0.1,
    tournament=6,
    segment_share=0.5,
    children=10,
)
"""Rates of CPGA, chosen by `benchmarks/sphinx.py --tune`, also for its results early in the search."""

COARSE_PART = 0.5
"""Largest share of the evaluations that are of groups; the rest are of single tasks."""

PATIENCE = 0.03
"""Share of all evaluations without improvement in a row after which the search of groups ends."""


@dataclass(frozen=True, slots=True)
class Sphinx:
    """Switches for the parts of the method, to see what each contributes: without `listed` it starts from random genes,
    without `prune` it searches the whole space of single tasks; `rates` with `segment_share` 0 ignore segments, with
    `path_bias` 0 the critical path.
    """

    rates: Rates = CRITICAL
    listed: bool = True
    prune: bool = True


def sphinx(problem: Problem, search: Search, how: Sphinx = Sphinx()) -> Outcome:
    """Pruned space and Critical Path Genetic Algorithm; never worse than HEFT, CPOP, PEFT and any one device.

    Option: `enough_ns`, a makespan at which it may stop.
    """
    ways = through(problem)
    bound_ns = int(ways.min(axis=1).max(initial=0))
    critical = _Critical(how.rates, random_state(search), Tally.of(search), bound_ns)
    placements, rows, known = list[TaskPlacement](), None, math.inf
    if how.listed:
        space = DecoderSpace.of(problem)
        rows = list_starts(space, ways)
        critical.tally.add(space.decoder.evaluate(*rows)[0])
        placements, known = _known(space, rows, critical.tally)
    options, decisions = problem.accepted, list[Decision]()
    if how.prune:
        fewer = pruning.shorter(ways, known)
        decisions += _said_dominated(problem, fewer, known)
        options = fewer or options
        if fewer and critical.goes_on and critical.is_wide(problem):
            found, own = pruning.together(problem, fewer)
            decisions += _said_together(problem, fewer, found, own)
            if len(own) < len(options):
                placement, better = critical.coarse(found, own, listed=rows is not None)
                placements.append(placement)
                rows = better if rows is None else concatenated(better, rows)
    if critical.goes_on or not placements:
        space = _folded_space(problem, options)
        generation = critical.search(space, rows, critical.tally.budget, critical.tally.budget)
        placements.append(best_placement(space, generation.best(JUDGED)))
    if len(placements) > 1:
        placements.sort(key=lambda placement: simulate(problem, placement).makespan_ns)
    return finished(
        "sphinx",
        problem,
        placements[0],
        evaluations=critical.tally.evaluations,
        bound_ns=critical.bound_ns,
        history=tuple(critical.tally.history),
        decisions=tuple(decisions),
    )


def _known(space: DecoderSpace, rows: Rows, tally: Tally) -> tuple[list[TaskPlacement], float]:
    """The best of the first individuals, and its makespan. Where streams contend, one stream of one machine may be
    better than all of these, so it is tried too.
    """
    problem = space.problem
    found = [best_placement(space, rows)]
    if not any(problem.contended):
        return found, tally.best
    alone = (single_machine(problem, machine) for machine in range(len(problem.machines)))
    found += [placement for placement in alone if placement is not None]
    tally.evaluations += len(found) - 1
    return found, min(simulate(problem, placement).makespan_ns for placement in found)


@dataclass(frozen=True)
class _Critical:
    """The search itself, over one space after another. It ends when the best is as good as the bound."""

    rates: Rates
    state: NDArray[np.uint64]
    tally: Tally
    bound_ns: int

    @property
    def goes_on(self) -> bool:
        return self.tally.left > 0 and self.tally.best > self.bound_ns

    def is_wide(self, problem: Problem) -> bool:
        """Whether a segment has more tasks than there are individuals: groups of tasks are then searched first."""
        return not self.rates.segment_share or longest(cuts(problem.graph)) > self.rates.population

    def search(self, space: DecoderSpace, rows: Rows | None, most: int, patience: int) -> Generation:
        """Search until `most` evaluations are over in all, or `patience` of them in a row found nothing better."""
        evolution = Evolution.of(space, self.rates, self.state, self.tally)
        began = self.tally.evaluations
        first = space.random(evolution.rates.children or evolution.rates.population, self.state)
        if rows is not None:
            first = concatenated(rows, perturbed(space, first[1]))
        generation = evolution.first(first)
        while self.goes_on and self.tally.evaluations < most:
            last = max(began, self.tally.history[-1][0])
            if self.tally.evaluations - last >= patience:
                break
            generation = evolution.next(generation)
        return generation

    def coarse(self, found: Coarse, options: pruning.Options, *, listed: bool) -> tuple[TaskPlacement, Rows]:
        """The best placement of groups, as one of tasks (none of which ends later than its group), and the last
        generation as genes of tasks."""
        space = _folded_space(found.problem, options)
        most, patience = (max(1, int(part * self.tally.budget)) for part in (COARSE_PART, PATIENCE))
        generation = self.search(space, list_starts(space, through(found.problem)) if listed else None, most, patience)
        placement = best_placement(space, generation.best(JUDGED))
        genes = _single_genes(found, space, generation.best(max(1, self.rates.population // 2)))
        return expanded(found, placement), genes


def _folded_space(problem: Problem, options: pruning.Options) -> DecoderSpace:
    """The space of these devices, in which an exchange of equal devices or of equal tasks is no other placement."""
    classes, interchangeable = pruning.device_classes(problem), pruning.interchangeable_tasks(problem, options)
    return DecoderSpace.of(problem, options, classes.tolist(), interchangeable)


def _single_genes(found: Coarse, space: DecoderSpace, rows: Rows) -> Rows:
    """Genes of groups as genes of tasks, which are decoded in the order of their groups."""
    count = sum(map(len, found.members))
    genes, priorities = np.zeros((len(rows[0]), count), np.int64), np.zeros((len(rows[0]), count))
    for row, (gene, priority) in enumerate(zip(*rows, strict=True)):
        space.decoder.run(gene, priority)
        turns = space.decoder.turns
        for group, tasks in enumerate(found.members):
            genes[row, list(tasks)] = gene[group]
            priorities[row, list(tasks)] = 1 - turns[group] / (turns.max() + 1)
    return genes, priorities


def _bits(options: pruning.Options) -> float:
    return float(np.log2([len(own) for own in options]).sum())


def _said_dominated(problem: Problem, fewer: pruning.Options | None, known_ns: float) -> Iterator[Decision]:
    """Decision about the choices that bounds leave."""
    if fewer is None:
        reason = f"a task takes no less on any device, with the least that is before and behind it: {known_ns:.0f} ns"
        yield Decision("schedule", "proven by its critical path", reason)
        return
    before, after = _bits(problem.accepted), _bits(fewer)
    count = sum(len(own) > 1 for own in fewer)
    reason = (
        f"elsewhere the ways through the others take the known {known_ns:.0f} ns or more; 2^{before:.0f} placements"
    )
    yield Decision("space", f"{count} of {len(fewer)} tasks have a choice", f"{reason} become 2^{after:.0f}")


def _said_together(
    problem: Problem, fewer: pruning.Options, found: Coarse, options: pruning.Options
) -> Iterator[Decision]:
    """Which tasks stay together in the first search."""
    if len(options) == len(fewer):
        return
    reason = f"2^{_bits(fewer):.0f} placements become 2^{_bits(options):.0f}; single tasks are searched after them"
    yield Decision("space", f"{len(fewer)} tasks as {len(options)}", reason)
    kinds = pruning.device_classes(found.problem)
    if folded := len(kinds) - len(set(kinds.tolist())):
        yield Decision("space", f"{folded} devices are like others", "exchanging them changes no time")
    for tasks, own in zip(found.members, options, strict=True):
        if len(tasks) > 1:
            work = min(int(problem.work_ns[list(tasks), machine].sum()) for machine in own)
            last = problem.graph.tasks[tasks[-1]].name
            reason = f"up to {last}, {work} ns on one device, and apart no sooner on any two"
            yield Decision(problem.graph.tasks[tasks[0]].name, f"together with {len(tasks) - 1} more", reason)
