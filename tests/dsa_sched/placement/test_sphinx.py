"""SPHINX: what pruning leaves out loses nothing, and the search is never worse than list scheduling."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.lab.placement_searches import cpop, peft
from dsa_sched.placement.methods import pruning
from dsa_sched.placement.methods.coarsening import expanded
from dsa_sched.placement.methods.exact import exact
from dsa_sched.placement.methods.list_scheduling import heft
from dsa_sched.placement.methods.registry import Search, single
from dsa_sched.placement.methods.sphinx import CRITICAL, Sphinx, sphinx
from dsa_sched.placement.model.problem import CostTable, Machine, Problem, Route
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, Task, TaskGraph, TaskValue
from dsa_sched.placement.schedule.list_decoder import Decoder
from dsa_sched.placement.schedule.schedule import verify_schedule
from dsa_sched.placement.schedule.simulate import simulate
from tests.placement_problems import random_problem


def branches(lengths: tuple[int, ...], work: tuple[int, ...], size_bytes: int = 100) -> Problem:
    """Branches of so many tasks each between the ends, on a host and machines that are alike, 1 byte a ns."""
    tasks, values, first = [Task(INPUTS)], list[TaskValue](), list[str]()
    for branch, length in enumerate(lengths):
        names = [f"b{branch} t{number}" for number in range(length)]
        tasks += map(Task, names)
        first.append(names[0])
        values += [TaskValue(f"{a} out", a, (b,), size_bytes) for a, b in pairwise((*names, OUTPUTS))]
    values.insert(0, TaskValue("in", INPUTS, tuple(first), size_bytes))
    tasks.append(Task(OUTPUTS))
    machines = tuple(Machine(f"m{number}") for number in range(len(work)))
    names = [machine.name for machine in machines]
    routes = tuple(Route(a, b, 0, 10**9, "bus") for a in names for b in names if a != b)
    rows = tuple((0, *[-1] * (len(work) - 1)) if task.is_end else work for task in tasks)
    return Problem(TaskGraph("branches", tuple(tasks), tuple(values)), CostTable(machines, routes, rows))


@pytest.mark.parametrize("seed", range(12))
def test_dominated_devices_are_no_loss(seed: int) -> None:
    """What is left has a schedule as good as the best, unless the known one is the best."""
    problem = random_problem(seed, 7, 3, refusing=bool(seed % 2))
    known = heft(problem, Search()).makespan_ns
    best = exact(problem, Search()).makespan_ns
    fewer = pruning.dominated(problem, known)
    if fewer is None:
        assert best == known
        return
    work = np.full(problem.work_ns.shape, -1)
    for task, own in enumerate(fewer):
        work[task, list(own)] = problem.work_ns[task, list(own)]
    pruned = Problem(problem.graph, replace(problem.costs, work_ns=tuple(tuple(map(int, row)) for row in work)))
    assert min(known, exact(pruned, Search()).makespan_ns) == best


def test_chains_come_together() -> None:
    """Copies in a chain cost as much as behind it: nothing is gained by cutting it."""
    problem = branches((4, 3), (-1, 500, 500))
    found, options = pruning.together(problem, problem.accepted)
    assert sorted(map(len, found.members)) == [1, 1, 3, 4]
    assert options[1] == (1, 2)


def test_chains_are_cut_where_another_device_is_better() -> None:
    """Of two tasks each has its own fast device, and the copy between takes less than the difference."""
    problem = branches((2,), (-1, 500, 500))
    rows = list(problem.costs.work_ns)
    rows[1:3] = [(-1, 500, 5), (-1, 5, 500)]
    apart = Problem(problem.graph, replace(problem.costs, work_ns=tuple(rows)))
    assert len(pruning.together(apart, apart.accepted)[0].members) == 4


def test_tasks_side_by_side_with_one_device_come_together() -> None:
    problem = branches((1, 1, 1), (-1, 500))
    found, _ = pruning.together(problem, problem.accepted)
    assert sorted(map(len, found.members)) == [1, 1, 3]


@pytest.mark.parametrize("seed", range(8))
def test_tasks_of_groups_end_no_later_than_their_groups(seed: int) -> None:
    problem = random_problem(seed, 25, 2, 1 + seed % 2, refusing=bool(seed % 2))
    found, options = pruning.together(problem, problem.accepted)
    rng = np.random.default_rng(seed)
    decoder = Decoder.of(found.problem)
    makespan = decoder.run(np.array([rng.choice(own) for own in options]), rng.random(len(options)))
    schedule = simulate(problem, expanded(found, decoder.placement()))
    verify_schedule(schedule, problem)
    assert schedule.makespan_ns <= makespan


def test_devices_and_branches_that_are_alike_are_found() -> None:
    problem = branches((1, 1, 2), (-1, 500, 500, 600))
    assert pruning.device_classes(problem).tolist() == [0, 1, 1, 3]
    assert pruning.interchangeable_tasks(problem, problem.accepted) == ((1, 2),)
    with_own_wire = tuple(
        replace(route, wire="own") if route.source == "m1" else route for route in problem.costs.routes
    )
    other = Problem(problem.graph, replace(problem.costs, routes=with_own_wire))
    assert pruning.device_classes(other).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "how",
    [
        Sphinx(),
        Sphinx(prune=False),
        Sphinx(replace(CRITICAL, path_bias=0.0)),
        Sphinx(listed=False),
        Sphinx(listed=False, prune=False),
    ],
    ids=["whole", "not pruned", "no bias", "random", "random, not pruned"],
)
@pytest.mark.parametrize("seed", range(6))
def test_sphinx_is_sound_and_reproducible(seed: int, how: Sphinx) -> None:
    problem = random_problem(seed, 14, 3, 1 + seed % 2, contended=seed % 3 == 0, refusing=bool(seed % 2))
    search = Search(seed=seed, evaluations=600)
    outcome = sphinx(problem, search, how)
    assert outcome == sphinx(problem, search, how)
    assert outcome.evaluations <= 600
    assert 0 < outcome.bound_ns <= outcome.makespan_ns
    if not any(problem.contended):
        assert outcome.history[-1][1] == outcome.makespan_ns


@pytest.mark.parametrize("seed", range(24))
def test_sphinx_is_never_worse_than_list_scheduling(seed: int) -> None:
    """Nor than one machine; also where streams contend, and with next to no evaluations."""
    problem = random_problem(seed, 20, 3, 1 + seed % 3, contended=bool(seed % 2))
    outcome = sphinx(problem, Search(evaluations=10 if seed % 4 else 400))
    for method in (heft, cpop, peft, single):
        assert outcome.makespan_ns <= method(problem, Search()).makespan_ns, method


def test_what_its_critical_path_proves_ends_the_search() -> None:
    problem = branches((5,), (-1, 500, 900))
    outcome = sphinx(problem, Search())
    assert outcome.makespan_ns <= outcome.bound_ns
    assert outcome.evaluations < 20
    assert "proven by its critical path" in {decision.verdict for decision in outcome.decisions}


def test_decisions_say_what_became_of_the_space() -> None:
    """Two chains of 31 on two equal devices, more tasks than there are individuals: 64 become four, of which two have a
    choice of two devices."""
    problem = branches((31, 31), (-1, 500, 500), size_bytes=1)
    text = "\n".join(map(str, sphinx(problem, Search(), Sphinx(listed=False)).decisions))
    assert "space: 64 tasks as 4: 2^62 placements become 2^2; single tasks are searched after them" in text
    assert "b0 t0: together with 30 more: up to b0 t30, 15500 ns on one device" in text
