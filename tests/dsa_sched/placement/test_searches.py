"""The searches: sound, reproducible, and better the longer they search."""

from __future__ import annotations

import pytest

from dsa_sched.placement.methods.registry import Search, find_method
from hw_models.errors import PlacementError
from tests.placement_problems import random_problem

SEARCHES = ("random", "annealing", "ga")


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("seed", range(4))
def test_searches_are_reproducible_and_count(name: str, seed: int) -> None:
    problem = random_problem(seed, 12, 3, 1 + seed % 2, refusing=True)
    outcome = find_method(name)(problem, Search(seed=seed, evaluations=700))
    assert outcome == find_method(name)(problem, Search(seed=seed, evaluations=700))
    assert outcome.evaluations == 700
    evaluations, makespans = zip(*outcome.history, strict=True)
    assert sorted(set(evaluations)) == list(evaluations)
    assert sorted(set(makespans), reverse=True) == list(makespans)
    assert evaluations[-1] <= 700
    assert makespans[-1] == outcome.makespan_ns


@pytest.mark.parametrize("name", SEARCHES)
def test_longer_searches_are_no_worse(name: str) -> None:
    """Of one seed, a longer random or genetic search begins as a shorter one does."""
    problem = random_problem(1, 20, 3)
    short, long = (find_method(name)(problem, Search(evaluations=count)) for count in (200, 4000))
    assert long.makespan_ns <= short.makespan_ns


@pytest.mark.parametrize("name", SEARCHES)
def test_streams_that_contend_are_judged_by_the_simulator(name: str) -> None:
    problem = random_problem(3, 12, 2, 3, contended=True)
    outcome = find_method(name)(problem, Search(evaluations=300))
    assert outcome.makespan_ns >= outcome.history[-1][1]


@pytest.mark.parametrize("name", SEARCHES)
def test_no_time_is_one_look_at_the_problem(name: str) -> None:
    outcome = find_method(name)(random_problem(2, 10), Search(seconds=0.0))
    assert outcome.evaluations <= 256
    assert outcome.makespan_ns > 0


@pytest.mark.parametrize(("hot", "cold"), [(1e-3, 1e-2), (0.02, 1.0)])
def test_annealing_does_not_heat(hot: float, cold: float) -> None:
    with pytest.raises(PlacementError, match="option cold: needs at most hot, "):
        find_method("annealing")(random_problem(2, 10), Search(options={"hot": hot, "cold": cold}))


def test_the_genetic_search_may_start_from_list_schedules() -> None:
    problem = random_problem(5, 30, 3)
    heft = find_method("heft")(problem, Search())
    outcome = find_method("ga")(problem, Search(evaluations=10, options={"listed": 1}))
    assert outcome.history[0] == (1, heft.makespan_ns)
