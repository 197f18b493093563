"""The plain searches: random, simulated annealing, and a genetic algorithm without knowledge of critical paths.

They start from random genes and know nothing of the network but which devices accept a task. Each decodes by the list
scheduler of `schedule/list_decoder.py`; where streams contend, the simulator judges the last few (`best_placement`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsa_sched.placement.methods.genetic_ops import anneal
from dsa_sched.placement.methods.list_starts import list_starts, shaken, stacked
from dsa_sched.placement.methods.registry import Outcome, Search, finished
from dsa_sched.placement.methods.search_space import (
    JUDGED,
    Evolution,
    Rates,
    Space,
    Tally,
    best_placement,
    random_state,
)
from dsa_sched.placement.model.problem import Problem
from hw_models.errors import PlacementError

__all__ = ["PLAIN", "annealing", "genetic", "random_search"]

BATCH = 256
"""Random placements, or steps of annealing, between two looks at the clock."""

HOT, COLD = 0.02, 1e-4
"""First and last heat of annealing, as parts of the first makespan."""

PLAIN = Rates(population=60, cross=0.9, again=0.3, bias=0.0, hurry=0.3, rounds=4)
"""The plain genetic algorithm's, chosen by `benchmarks/sphinx.py --tune` on a network that the results leave out."""


def random_search(problem: Problem, search: Search) -> Outcome:
    """Random devices and priorities, the best of `evaluations`. Option: `enough_ns`, a makespan that ends the search;
    the others have it too."""
    space, state, tally = Space.of(problem), random_state(search), Tally.of(search)
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


def annealing(problem: Problem, search: Search) -> Outcome:
    """Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983) by the operators of `genetic_ops.py`, one change per step.

    Options: `hot` and `cold` (0.02 and 0.0001; given alone, one takes the other along), the first and last heat as
    parts of the first makespan; `hurry` (0.3), how often a change is one of priority. Raises PlacementError where cold
    is above hot.
    """
    hot = search.option("hot", max(HOT, search.option("cold", COLD)))
    cold = search.option("cold", min(COLD, hot))
    if cold > hot:
        raise PlacementError("option cold", needs=f"at most hot, {hot:g}", has=f"{cold:g}")
    space, state, tally = Space.of(problem), random_state(search), Tally.of(search)
    genes, priorities = space.random(1, state)
    makespans, _ = space.decoder.evaluate(genes, priorities)
    tally.add(makespans)
    gene, priority, makespan = genes[0], priorities[0], int(makespans[0])
    best_gene, best_priority = gene.copy(), priority.copy()
    first, steps = makespan, tally.budget - 1
    done = 0
    while done < steps and tally.left > 0:
        count = min(steps - done, BATCH)
        heats = np.array([hot * (cold / hot) ** (part / max(1, steps)) * first for part in (done, done + count)])
        found = np.zeros((count, 2), np.int64)
        decoder = space.decoder
        own = (space.arrays, gene, priority, decoder.no_bias, makespan, count, heats, search.option("hurry", 0.3))
        wins = anneal(decoder.tables, decoder.room, *own, state, best_gene, best_priority, found)
        for step, reached in found[:wins].tolist():
            if reached < tally.best:
                tally.history.append((tally.evaluations + step + 1, reached))
        tally.evaluations += count
        done += count
        makespan = space.decoder.run(gene, priority)
    return _found("annealing", problem, space, (best_gene[None], best_priority[None]), tally)


def genetic(problem: Problem, search: Search) -> Outcome:
    """A genetic algorithm over devices and priorities, from random individuals.

    Options: those of `Rates` by name, and `listed` (0): 1 starts from the list schedules that `sphinx` starts from.
    """
    space, tally = Space.of(problem), Tally.of(search)
    evolution = Evolution(space, Rates.of(search, PLAIN), random_state(search), tally)
    genes, priorities = space.random(evolution.rates.population, evolution.state)
    if search.option("listed", 0):
        genes, priorities = stacked(list_starts(space), shaken(space, priorities))
    generation = evolution.first((genes, priorities))
    while tally.left > 0:
        generation = evolution.next(generation)
    return _found("ga", problem, space, generation.best(JUDGED), tally)


def _found(
    name: str, problem: Problem, space: Space, rows: tuple[NDArray[np.int64], NDArray[np.float64]], tally: Tally
) -> Outcome:
    placement = best_placement(space, rows)
    return finished(name, problem, placement, evaluations=tally.evaluations, history=tuple(tally.history))
