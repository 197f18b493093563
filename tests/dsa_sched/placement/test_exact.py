"""The exact method and the bounds, against each other and against all other methods."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dsa_sched.placement.methods.exact import exact
from dsa_sched.placement.methods.registry import METHODS, Search, find_method
from dsa_sched.placement.model.problem import Machine, Problem, Route
from dsa_sched.placement.schedule.bounds import load_bound_ns, lower_bound_ns, path_bound_ns
from dsa_sched.placement.schedule.list_decoder import Decoder
from hw_models.errors import PlacementError
from tests.dsa_sched.placement.test_frame import chain
from tests.placement_problems import random_problem

QUICK = Search(evaluations=300)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_beats_a_proven_schedule(seed: int) -> None:
    problem = random_problem(seed, 7, 2 + seed % 2, 1 + seed % 2, refusing=bool(seed % 2))
    best = exact(problem, Search())
    assert best.makespan_ns <= best.bound_ns
    for name in METHODS:
        if name != "exact":
            try:
                outcome = find_method(name)(problem, QUICK)
            except PlacementError:
                continue  # some need a machine that accepts every task, or prices of merged ones
            if outcome.problem == problem:
                assert outcome.makespan_ns >= best.makespan_ns, name


@pytest.mark.parametrize("seed", range(5))
def test_all_placements_and_orders_of_small_problems(seed: int) -> None:
    """By brute force: every device of every task under many priorities is never faster, and some are as fast."""
    problem = random_problem(seed, 4, 2)
    decoder, rng = Decoder.of(problem), np.random.default_rng(seed)
    genes = np.repeat(np.array(list(product(*problem.accepted))), 60, axis=0)
    makespans, _ = decoder.evaluate(genes, rng.random(genes.shape))
    assert exact(problem, Search()).makespan_ns == makespans.min()


@pytest.mark.parametrize("contended", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_below_what_is_found(seed: int, contended: bool) -> None:
    problem = random_problem(seed, 8, 2, 2, contended=contended, refusing=bool(seed % 2))
    outcome = exact(problem, Search())
    assert 0 < path_bound_ns(problem) <= outcome.makespan_ns
    assert 0 < load_bound_ns(problem) <= outcome.makespan_ns
    assert lower_bound_ns(problem) <= outcome.bound_ns <= outcome.makespan_ns


def test_the_load_is_a_bound_of_its_own() -> None:
    """Four tasks of 100 ns that may go anywhere: two machines of one and two streams take 400 / 3 at least."""
    problem = chain(*[(100, 100)] * 4, shares=(0.0,) * 4)
    machines = (Machine("a", 2), Machine("b"))
    problem = Problem(problem.graph, replace(problem.costs, machines=machines, shares=()))
    assert path_bound_ns(problem) == 100
    assert 133 <= load_bound_ns(problem) <= 134
    assert exact(problem, Search()).makespan_ns == 200


def test_resources_of_a_contended_machine_are_a_bound() -> None:
    """Two streams whose tasks each want all of the memory are no faster than one."""
    problem = chain((100, 10**6), (100, 10**6), shares=(1.0, 1.0))
    assert 199 <= load_bound_ns(problem) <= 200


def without_last_machine(problem: Problem) -> Problem:
    costs = problem.costs
    last = costs.machines[-1].name
    routes = tuple(route for route in costs.routes if last not in (route.source, route.target))
    return Problem(
        problem.graph,
        replace(costs, machines=costs.machines[:-1], routes=routes, work_ns=tuple(row[:-1] for row in costs.work_ns)),
    )


@pytest.mark.parametrize("seed", range(6))
def test_more_devices_never_worsen_the_exact_result(seed: int) -> None:
    problem = random_problem(seed, 7, 3)
    fewer, all_of_them = exact(without_last_machine(problem), Search()), exact(problem, Search())
    assert fewer.makespan_ns <= fewer.bound_ns
    assert all_of_them.makespan_ns <= all_of_them.bound_ns
    assert all_of_them.makespan_ns <= fewer.makespan_ns


@pytest.mark.parametrize("seed", range(3))
def test_equal_seeds_give_equal_outcomes_and_short_efforts_give_bounds(seed: int) -> None:
    problem = random_problem(seed, 16, 3)
    short = Search(options={"effort": 0.05})
    outcome = exact(problem, short)
    assert outcome == exact(problem, short)
    assert 0 < outcome.bound_ns <= outcome.makespan_ns
    assert outcome.makespan_ns <= find_method("heft")(problem, Search()).makespan_ns
    assert ("not proven" in outcome.decisions[0].verdict) is not (outcome.makespan_ns <= outcome.bound_ns)


def test_a_slow_second_device_changes_nothing() -> None:
    problem = chain((10, 10**6), (10, 10**6))
    routes = tuple(Route(r.source, r.target, 10**6, 1, r.wire) for r in problem.costs.routes)
    problem = Problem(problem.graph, replace(problem.costs, routes=routes))
    assert exact(problem, Search()).makespan_ns == 20


def test_it_says_that_streams_are_without_slowdown_in_its_model() -> None:
    outcome = exact(random_problem(4, 8, 2, 2, contended=True), Search())
    assert "in which streams do not slow each other down" in outcome.decisions[0].reason


def test_evaluations_bound_the_search_before() -> None:
    """Schedules that SPHINX starts from are tried in any case, by both."""
    problem = random_problem(3, 30, 3)
    few = exact(problem, Search(evaluations=1, seconds=1.0)).evaluations
    assert few <= find_method("sphinx")(problem, Search(evaluations=1)).evaluations + 1
    assert few < exact(problem, Search(evaluations=200, seconds=1.0)).evaluations <= 300
