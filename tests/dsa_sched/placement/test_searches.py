"""The searches: sound, reproducible, and better the longer they search."""

from __future__ import annotations

import pytest

from benchmarks.lab.placement_searches import annealing, genetic, random_search
from dsa_sched.placement.methods.list_scheduling import heft
from dsa_sched.placement.methods.registry import Method, Search
from tests.placement_problems import random_problem

SEARCHES = (random_search, annealing, genetic)


@pytest.mark.parametrize("method", SEARCHES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.commit
def test_searches_are_reproducible_and_count(method: Method, seed: int) -> None:
    problem = random_problem(seed, 12, 3, 1 + seed % 2, refusing=True)
    outcome = method(problem, Search(seed=seed, evaluations=700))
    assert outcome == method(problem, Search(seed=seed, evaluations=700))
    assert outcome.evaluations == 700
    evaluations, makespans = zip(*outcome.history, strict=True)
    assert sorted(set(evaluations)) == list(evaluations)
    assert sorted(set(makespans), reverse=True) == list(makespans)
    assert evaluations[-1] <= 700
    assert makespans[-1] == outcome.makespan_ns


@pytest.mark.parametrize("method", SEARCHES)
def test_longer_searches_are_no_worse(method: Method) -> None:
    """Of one seed, a longer random or genetic search begins as a shorter one does."""
    problem = random_problem(1, 20, 3)
    short, long = (method(problem, Search(evaluations=count)) for count in (200, 4000))
    assert long.makespan_ns <= short.makespan_ns


@pytest.mark.parametrize("method", SEARCHES)
def test_streams_that_contend_are_judged_by_the_simulator(method: Method) -> None:
    problem = random_problem(3, 12, 2, 3, contended=True)
    outcome = method(problem, Search(evaluations=300))
    assert outcome.makespan_ns >= outcome.history[-1][1]


@pytest.mark.parametrize("method", SEARCHES)
def test_no_time_is_one_look_at_the_problem(method: Method) -> None:
    outcome = method(random_problem(2, 10), Search(seconds=0.0))
    assert outcome.evaluations <= 256
    assert outcome.makespan_ns > 0


def test_the_genetic_search_may_start_from_list_schedules() -> None:
    problem = random_problem(5, 30, 3)
    first = heft(problem, Search())
    outcome = genetic(problem, Search(evaluations=10), listed=True)
    assert outcome.history[0] == (1, first.makespan_ns)
