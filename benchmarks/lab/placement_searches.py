"""Baselines of SPHINX: CPOP and PEFT, and searches that know nothing of the network but which devices accept a task.

    Problem + Search --a list rule, random genes, annealing or a plain genetic algorithm--> Outcome

The searches start from random genes. They have the decoder and the operators of CPGA (`search_space.py`,
`genetic_ops.py`); where streams contend, the simulator judges the last few (`best_placement`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dsa_sched.placement.methods.genetic_ops import canonical, change, random_below, random_number
from dsa_sched.placement.methods.list_scheduling import cpop_rule, list_schedule, peft_rule
from dsa_sched.placement.methods.registry import Outcome, Search, finished
from dsa_sched.placement.methods.search_space import (
    JUDGED,
    DecoderSpace,
    Generation,
    Rates,
    Tally,
    best_placement,
    random_state,
    survivors,
)
from dsa_sched.placement.methods.sphinx import concatenated, list_starts, perturbed
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.schedule.list_decoder import decode

__all__ = ["PLAIN", "Heat", "annealing", "cpop", "genetic", "peft", "random_search"]

BATCH = 256
"""Random placements, or steps of annealing, between two looks at the clock."""

PLAIN = Rates(population=60, crossover=0.9, repeat=0.3, path_bias=0.0, reprioritise=0.3, tournament=4)
"""The plain genetic algorithm's, chosen by `benchmarks/sphinx.py --tune` on a network that the results leave out."""


@dataclass(frozen=True, slots=True)
class Heat:
    """Of annealing: first and last heat, as parts of the first makespan, and how often a change is one of priority."""

    hot: float = 0.02
    cold: float = 1e-4
    reprioritise: float = 0.3


def cpop(problem: Problem, search: Search) -> Outcome:  # noqa: ARG001 - one signature for all methods
    """Critical path on a processor (Topcuoglu, Hariri, Wu 2002): the tasks of the mean critical path on the machine
    that takes least for them (among those that refuse fewest), the others where they end first."""
    return list_schedule(problem, cpop_rule(problem))


def peft(problem: Problem, search: Search) -> Outcome:  # noqa: ARG001
    """Predict earliest finish time (Arabnejad, Barbosa 2014): where a task's end plus its optimistic rest is least."""
    return list_schedule(problem, peft_rule(problem))


def random_search(problem: Problem, search: Search) -> Outcome:
    """Random devices and priorities, the best of `evaluations`."""
    space, state, tally = DecoderSpace.of(problem), random_state(search), Tally.of(search)
    kept: list[tuple[int, NDArray[np.int64], NDArray[np.float64]]] = []
    while True:
        genes, priorities = space.random(min(BATCH, max(1, tally.left)), state)
        makespans, _ = space.decoder.evaluate(genes, priorities)
        tally.add(makespans)
        best = int(np.argmin(makespans))
        kept.append((int(makespans[best]), genes[best], priorities[best]))
        kept.sort(key=lambda item: item[0])
        del kept[JUDGED:]
        if tally.left <= 0:
            break
    rows = np.array([genes for _, genes, _ in kept]), np.array([priorities for _, _, priorities in kept])
    return _found("random", problem, space, rows, tally)


def annealing(problem: Problem, search: Search, heat: Heat = Heat()) -> Outcome:
    """Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983), one change a step."""
    space, state, tally = DecoderSpace.of(problem), random_state(search), Tally.of(search)
    genes, priorities = space.random(1, state)
    makespans, _ = space.decoder.evaluate(genes, priorities)
    tally.add(makespans)
    gene, priority, makespan = genes[0], priorities[0], int(makespans[0])
    best_gene, best_priority = gene.copy(), priority.copy()
    first, steps = makespan, tally.budget - 1
    done = 0
    while done < steps and tally.left > 0:
        count = min(steps - done, BATCH)
        ends = np.array([done, done + count]) / max(1, steps)
        heats = heat.hot * (heat.cold / heat.hot) ** ends * first
        found = np.zeros((count, 2), np.int64)
        decoder = space.decoder
        own = (space.arrays, gene, priority, decoder.no_bias, makespan, count, heats, heat.reprioritise)
        wins = _anneal(decoder.tables, decoder.room, *own, state, best_gene, best_priority, found)
        for step, reached in found[:wins].tolist():
            if reached < tally.best:
                tally.history.append((tally.evaluations + step + 1, reached))
        tally.evaluations += count
        done += count
        makespan = space.decoder.run(gene, priority)
    return _found("annealing", problem, space, (best_gene[None], best_priority[None]), tally)


def genetic(problem: Problem, search: Search, rates: Rates = PLAIN, listed: bool = False) -> Outcome:
    """A genetic algorithm over devices and priorities, from random individuals; with `listed`, from the list schedules
    that `sphinx` starts from."""
    space, tally = DecoderSpace.of(problem), Tally.of(search)
    state = random_state(search)
    rows = space.random(rates.population, state)
    if listed:
        rows = concatenated(list_starts(space), perturbed(space, rows[1]))
    count = max(1, tally.left)
    generation = survivors([_evaluated(space, tally, rates, rows[0][:count], rows[1][:count])], rates.population)
    while tally.left > 0:
        generation = _next(space, tally, rates, state, generation)
    return _found("ga", problem, space, generation.best(JUDGED), tally)


def _next(
    space: DecoderSpace, tally: Tally, rates: Rates, state: NDArray[np.uint64], parents: Generation
) -> Generation:
    """Parents and children compete."""
    count = min(rates.children or rates.population, tally.left)
    genes = np.zeros((count, parents.genes.shape[1]), np.int64)
    priorities = np.zeros(genes.shape)
    rows = parents.genes, parents.priorities, parents.makespans, parents.paths
    numbers = np.array([rates.crossover, rates.repeat, rates.path_bias, rates.reprioritise, rates.tournament])
    _breed(space.arrays, *rows, numbers, state, genes, priorities)
    return survivors([_evaluated(space, tally, rates, genes, priorities), parents], rates.population)


def _evaluated(
    space: DecoderSpace, tally: Tally, rates: Rates, genes: NDArray[np.int64], priorities: NDArray[np.float64]
) -> Generation:
    makespans, paths = space.decoder.evaluate(genes, priorities, paths=rates.path_bias > 0)
    tally.add(makespans)
    return Generation(genes, priorities, makespans, paths)


def _found(
    name: str, problem: Problem, space: DecoderSpace, rows: tuple[NDArray[np.int64], NDArray[np.float64]], tally: Tally
) -> Outcome:
    placement = best_placement(space, rows)
    return finished(name, problem, placement, evaluations=tally.evaluations, history=tuple(tally.history))


@njit(cache=True, nogil=True)
def _anneal(
    tables: Any,
    room: Any,
    space: Any,
    gene: NDArray[np.int64],
    priority: NDArray[np.float64],
    bias: NDArray[np.float64],
    makespan: int,
    steps: int,
    heats: NDArray[np.float64],
    reprioritise: float,
    state: NDArray[np.uint64],
    best_gene: NDArray[np.int64],
    best_priority: NDArray[np.float64],
    found: NDArray[np.int64],
) -> Any:
    """Change `gene` and `priority` `steps` times from heat to heat (ns); the best goes to `best_...`.

    `found` gets (step, makespan) of each improvement on the best; how many there were is returned.
    """
    nowhere = np.zeros(0, np.int8)
    new_gene, new_priority = gene.copy(), priority.copy()
    best, improvements = makespan, 0
    cooling = (heats[1] / heats[0]) ** (1.0 / max(1, steps))
    heat = heats[0]
    for step in range(steps):
        new_gene[:] = gene
        new_priority[:] = priority
        change(space, new_gene, new_priority, nowhere, 0.0, reprioritise, 0, len(gene), state)
        reached = decode(tables, room, new_gene, new_priority, bias)
        new_gene[:] = room[1][2]  # what was chosen for a task that is free
        if reached <= makespan or random_number(state) < np.exp((makespan - reached) / heat):
            gene[:] = new_gene
            priority[:] = new_priority
            makespan = reached
        if reached < best:
            best = reached
            best_gene[:] = new_gene
            best_priority[:] = new_priority
            if improvements < len(found):
                found[improvements, 0] = step
                found[improvements, 1] = reached
                improvements += 1
        heat *= cooling
    return improvements


@njit(cache=True, nogil=True)
def _tournament(makespans: NDArray[np.int64], rounds: int, state: NDArray[np.uint64]) -> Any:
    best = random_below(len(makespans), state)
    for _ in range(rounds - 1):
        other = random_below(len(makespans), state)
        if makespans[other] < makespans[best]:
            best = other
    return best


@njit(cache=True, nogil=True)
def _breed(
    space: Any,
    genes: NDArray[np.int64],
    priorities: NDArray[np.float64],
    makespans: NDArray[np.int64],
    paths: NDArray[np.int8],
    rates: NDArray[np.float64],
    state: NDArray[np.uint64],
    new_genes: NDArray[np.int64],
    new_priorities: NDArray[np.float64],
) -> None:
    """Fill the children. `rates` are those of `Rates` from `crossover` to `tournament`."""
    tasks, folds = genes.shape[1], len(space[8]) > 0 or (space[6] != np.arange(len(space[6]))).any()
    for child in range(len(new_genes)):
        parent = _tournament(makespans, np.int64(rates[4]), state)
        new_genes[child] = genes[parent]
        new_priorities[child] = priorities[parent]
        if random_number(state) < rates[0]:
            other = _tournament(makespans, np.int64(rates[4]), state)
            first, second = random_below(tasks, state), random_below(tasks + 1, state)
            for task in range(min(first, second), max(first, second)):
                new_genes[child, task] = genes[other, task]
                new_priorities[child, task] = priorities[other, task]
        path = paths[parent] if len(paths) else np.zeros(0, np.int8)
        while True:
            change(space, new_genes[child], new_priorities[child], path, rates[2], rates[3], 0, tasks, state)
            if random_number(state) >= rates[1]:
                break
        if folds:
            canonical(space, new_genes[child], new_priorities[child])
