"""List scheduling against the published example, and on random problems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lab.placement_searches import cpop, peft
from dsa_sched.placement.methods.list_scheduling import heft, optimistic_costs, upward_ranks
from dsa_sched.placement.methods.registry import Method, Search
from dsa_sched.placement.model.problem import CostTable, Machine, Problem, Route
from dsa_sched.placement.model.task_graph import Task, TaskGraph, TaskValue
from tests.placement_problems import random_problem

WORK = (
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10), (13, 16, 9), (7, 15, 11), (5, 11, 14),
    (18, 12, 20), (21, 7, 16),
)  # fmt: skip
EDGES = {
    (0, 1): 18, (0, 2): 12, (0, 3): 9, (0, 4): 11, (0, 5): 14, (1, 7): 19, (1, 8): 16, (2, 6): 23, (3, 7): 27,
    (3, 8): 23, (4, 8): 13, (5, 7): 15, (6, 9): 17, (7, 9): 11, (8, 9): 13,
}  # fmt: skip
"""The example of Topcuoglu, Hariri and Wu (2002): ten tasks on three processors."""


def published() -> Problem:
    """One value an edge, of as many bytes as it takes nanoseconds; a wire for each direction."""
    names = ("p1", "p2", "p3")
    values = tuple(TaskValue(f"{a} {b}", f"n{a}", (f"n{b}",), cost) for (a, b), cost in EDGES.items())
    graph = TaskGraph("published", tuple(Task(f"n{number}") for number in range(len(WORK))), values)
    routes = tuple(Route(a, b, 0, 10**9, f"{a} {b}") for a in names for b in names if a != b)
    return Problem(graph, CostTable(tuple(map(Machine, names)), routes, WORK))


def test_ranks_of_the_published_example() -> None:
    wanted = [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    np.testing.assert_allclose(upward_ranks(published()), wanted, atol=5e-4)


def test_the_published_example_takes_longer_when_wires_carry_one_value_at_a_time() -> None:
    assert heft(published(), Search()).makespan_ns >= 80
    assert cpop(published(), Search()).makespan_ns >= 80


def test_the_optimistic_table_is_a_bound_of_the_rest() -> None:
    """The last task has nothing behind it; before it, the cheapest machine counts, with the way there."""
    table = optimistic_costs(published())
    assert table[9].tolist() == [0, 0, 0]
    assert table[8].tolist() == [13 + 7, 7, 16]
    assert peft(published(), Search()).makespan_ns >= table[0].min() + 9


def textbook_heft(problem: Problem) -> int:
    """Without copies: by upward rank, each task in the first gap of the machine where it ends first."""
    graph, work = problem.graph, problem.work_ns.astype(float)
    mean = np.where(work < 0, np.nan, work)
    rank = np.zeros(len(graph.tasks))
    for task in reversed(range(len(rank))):
        rank[task] = np.nanmean(mean[task]) + max((rank[other] for other in graph.successors[task]), default=0)
    ends: dict[int, int] = {}
    busy: list[list[tuple[int, int]]] = [[] for _ in problem.machines]
    ready = [task for task, before in enumerate(graph.predecessors) if not before]
    while ready:
        task = max(ready, key=lambda one: (rank[one], -one))
        ready.remove(task)
        there = max((ends[other] for other in graph.predecessors[task]), default=0)
        found = []
        for machine in problem.accepted[task]:
            length = int(problem.work_ns[task, machine])
            starts = [there, *(end for _, end in busy[machine] if end > there)]
            fits = (s for s in starts if all(e <= s or s + length <= b for b, e in busy[machine]))
            found.append((min(fits) + length, machine, length))
        ends[task], machine, length = min(found)
        busy[machine].append((ends[task] - length, ends[task]))
        ready += [
            other for other in graph.successors[task]
            if other not in ready and all(before in ends for before in graph.predecessors[other])
        ]  # fmt: skip
    return max(ends.values())


@pytest.mark.parametrize("seed", range(12))
def test_heft_is_the_textbooks_where_copies_take_no_time(seed: int) -> None:
    problem = random_problem(seed, 20, 3, refusing=bool(seed % 2))
    routes = tuple(Route(r.source, r.target, 0, 10**18, r.wire) for r in problem.costs.routes)
    values = tuple(replace(value, size_bytes=0) for value in problem.graph.values)
    graph = TaskGraph("free copies", problem.graph.tasks, values)
    free = Problem(graph, replace(problem.costs, routes=routes))
    assert heft(free, Search()).makespan_ns == textbook_heft(free)


@pytest.mark.parametrize("method", [heft, cpop, peft])
@pytest.mark.parametrize("seed", range(10))
def test_random_problems_have_sound_schedules(method: Method, seed: int) -> None:
    """`finished` simulates and verifies."""
    problem = random_problem(seed, 15, 3, 1 + seed % 2, contended=seed % 3 == 0, refusing=True)
    outcome = method(problem, Search())
    assert outcome.makespan_ns > 0
    assert outcome == method(problem, Search())
