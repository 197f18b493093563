"""The proven order: right by trying everything, and the measure of the other methods."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lab.exact_order import exact_order
from hw_models.errors import DoesNotFit
from partitioner.ordering.cost import Capacity, InstanceGraph, InstanceNode, evaluate
from partitioner.ordering.methods import breadth_first, choose_order
from tests.instance_graphs import case, cases, cheapest_by_hand, faults, pyramid


@settings(max_examples=60, deadline=None)
@given(cases(most=4))
def test_no_order_and_no_scopes_are_cheaper(drawn: tuple[InstanceGraph, Capacity]) -> None:
    graph, capacity = drawn
    found = exact_order(graph, capacity)
    assert found.proven
    assert found.best is not None
    assert found.best.cost == found.bound == cheapest_by_hand(graph, capacity)


@settings(max_examples=40, deadline=None)
@given(cases(most=9))
def test_orders_and_scopes_may_run_and_cost_what_the_judge_says(drawn: tuple[InstanceGraph, Capacity]) -> None:
    graph, capacity = drawn
    best = exact_order(graph, capacity).best
    assert best is not None
    assert faults(graph, capacity, best) == []
    assert evaluate(graph, capacity, best.order).cost == best.cost


@settings(max_examples=40, deadline=None)
@given(cases(most=8), st.integers(1, 20))
def test_more_local_memory_never_costs_more(drawn: tuple[InstanceGraph, Capacity], more: int) -> None:
    graph, capacity = drawn
    roomier = Capacity(
        capacity.local_bytes + more, capacity.staging_bytes, capacity.staging_weight, capacity.main_weight
    )
    little, much = exact_order(graph, capacity), exact_order(graph, roomier)
    assert little.proven
    assert much.proven
    assert much.bound <= little.bound


def optimal_share(seeds: range) -> float:
    """The share of random cases of 4 to 12 nodes in which the choice costs the proven least."""
    optimal = 0
    for seed in seeds:
        random = Random(seed)
        graph, capacity = case(random, random.randint(4, 12))
        chosen = choose_order(graph, capacity).best
        exact = exact_order(graph, capacity, hint=chosen)
        assert exact.proven
        assert exact.bound <= chosen.cost
        optimal += exact.bound == chosen.cost
    return optimal / len(seeds)


def test_the_choice_is_nearly_always_the_cheapest() -> None:
    assert optimal_share(range(25)) >= 0.95


@pytest.mark.nightly
def test_the_choice_is_the_cheapest_in_95_of_100_cases() -> None:
    assert optimal_share(range(1000, 1600)) >= 0.95


def test_the_search_is_needed_for_that() -> None:
    """The cases are not so easy that the published orders would do."""
    missed = 0
    for seed in range(25):
        random = Random(seed)
        graph, capacity = case(random, random.randint(4, 12))
        choice = choose_order(graph, capacity)
        published = ("breadth first", "depth first", "heaviest first")
        missed += min(found.cost for found in choice.candidates if found.name in published) > choice.best.cost
    assert missed >= 5


def test_the_same_answer_every_time() -> None:
    graph, capacity = case(Random(11), 12)
    assert exact_order(graph, capacity) == exact_order(graph, capacity)


def test_out_of_time_it_says_so() -> None:
    """The hint is what it has then, and the bound is no more than that."""
    graph, capacity = case(Random(3), 60)
    hint = evaluate(graph, capacity, breadth_first(graph))
    found = exact_order(graph, capacity, hint=hint, limit=0.02)
    assert not found.proven
    assert found.bound < hint.cost
    assert found.best is None or found.bound <= found.best.cost


def test_the_tree_of_the_worked_example() -> None:
    """15 instances whose outputs need five places at a time; with four places one output of a pays."""
    graph = pyramid()
    assert exact_order(graph, Capacity(5, 0)).bound == 0
    assert exact_order(graph, Capacity(4, 0)).bound == choose_order(graph, Capacity(4, 0)).best.cost == 8 * 4


def test_an_instance_that_can_never_run_is_refused() -> None:
    with pytest.raises(DoesNotFit, match="instance a"):
        exact_order(InstanceGraph((InstanceNode("a", 2, 0, 0),), ()), Capacity(1, 0))
