"""What an order costs: scopes of outputs, capacities, and the errors of graphs and orders that are none."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings

from hw_models.errors import DoesNotFit, PlanError
from partitioner.ordering.cost import Capacity, InstanceGraph, InstanceNode, evaluate
from partitioner.ordering.methods import breadth_first, depth_first
from partitioner.ordering.scope_assignment import Lifetime, Scope, assign_scopes, scope_cost
from tests.instance_graphs import cases, cheapest_by_hand, faults, pyramid


def chain(*sizes: tuple[int, int]) -> InstanceGraph:
    """Nodes of (work, output) bytes, each reading the one before; the cluster's bytes are ten times a core's."""
    nodes = tuple(InstanceNode(f"n{i}", work, output, 10 * output) for i, (work, output) in enumerate(sizes))
    return InstanceGraph(nodes, tuple((i, i + 1) for i in range(len(nodes) - 1)))


def test_work_output_and_inputs_must_fit_together() -> None:
    graph = chain((1, 4), (2, 3), (0, 9))
    assert evaluate(graph, Capacity(9, 0), (0, 1, 2)).scopes == ("local", "local", "main")
    assert evaluate(graph, Capacity(8, 0), (0, 1, 2)).scopes == ("local", "main", "main")


def test_an_output_that_nothing_reads_neither_waits_nor_costs() -> None:
    graph = InstanceGraph((InstanceNode("a", 3, 100, 100), InstanceNode("b", 3, 100, 100)), ())
    assert evaluate(graph, Capacity(3, 0), (0, 1)).cost == 0


def test_bytes_are_weighed_by_the_level_they_go_to() -> None:
    graph = chain((0, 4), (0, 3), (0, 9))
    assert evaluate(graph, Capacity(5, 30, 2, 7), (0, 1, 2)).cost == 30 * 2
    assert evaluate(graph, Capacity(5, 29, 2, 7), (0, 1, 2)).cost == 30 * 7
    assert evaluate(graph, Capacity(2, 40, 2, 7), (0, 1, 2)).cost == 40 * 2 + 30 * 7
    assert evaluate(graph, Capacity(5, 30, 7, 2), (0, 1, 2)).cost == 30 * 2


def test_an_output_has_one_scope_for_its_life() -> None:
    """x waits over a short squeeze in the middle and must be out all the time."""
    nodes = (InstanceNode("x", 0, 5, 50), InstanceNode("squeeze", 8, 0, 0), InstanceNode("reads x", 0, 0, 0))
    graph = InstanceGraph(nodes, ((0, 2), (0, 1), (1, 2)))
    assert evaluate(graph, Capacity(12, 50), (0, 1, 2)).scopes[0] == "staging"
    assert evaluate(graph, Capacity(13, 50), (0, 1, 2)).scopes[0] == "local"


def test_depth_first_needs_less_room_than_breadth_first() -> None:
    graph = pyramid()
    need = {
        order: min(b for b in range(20) if evaluate(graph, Capacity(b, 0), order).cost == 0)
        for order in (breadth_first(graph), depth_first(graph))
    }
    assert list(need.values()) == [9, 5]


@settings(max_examples=150, deadline=None)
@given(cases(most=7))
def test_scopes_are_the_cheapest_there_are(drawn: tuple[InstanceGraph, Capacity]) -> None:
    graph, capacity = drawn
    order = depth_first(graph)
    found = evaluate(graph, capacity, order)
    assert faults(graph, capacity, found) == []
    assert found.cost == cheapest_by_hand(graph, capacity, order)


def random_lives(random: Random, count: int, life: int) -> list[Lifetime]:
    lives = []
    for first in range(count - 1):
        size = random.randint(1, 100)
        last = min(count - 1, first + random.randint(1, life))
        lives.append(Lifetime(first, last, size, 8 * size, 8 * size, 32 * size))
    return lives


def overfull(lives: list[Lifetime], scopes: tuple[Scope, ...], free: list[int], staging_bytes: int) -> list[int]:
    """Steps at which more is held than there is room for."""
    steps = []
    for step, capacity in enumerate(free):
        alive = [(life, scope) for life, scope in zip(lives, scopes, strict=True) if life.first <= step <= life.last]
        local = sum(life.local_bytes for life, scope in alive if scope == "local")
        staged = sum(life.staging_bytes for life, scope in alive if scope == "staging")
        if local > capacity or staged > staging_bytes:
            steps.append(step)
    return steps


def test_greedy_scopes_are_close_to_the_cheapest() -> None:
    """Where the exact sweep is not let through, on cases where it can say what the least is."""
    random = Random(3)
    greedy_cost = least_cost = 0
    for _ in range(30):
        lives = random_lives(random, 30, 8)
        free = [random.randint(0, 300) for _ in range(30)]
        greedy = assign_scopes(lives, free, 1500, open_choices=0)
        exact = assign_scopes(lives, free, 1500, open_choices=10_000_000)
        assert overfull(lives, greedy, free, 1500) == overfull(lives, exact, free, 1500) == []
        assert scope_cost(lives, exact) <= scope_cost(lives, greedy)
        greedy_cost += scope_cost(lives, greedy)
        least_cost += scope_cost(lives, exact)
    assert least_cost < greedy_cost < 1.1 * least_cost


@pytest.mark.parametrize("life", [5, 400])
def test_scopes_of_thousands_of_outputs_respect_the_room(life: int) -> None:
    lives = random_lives(Random(5), 2500, life)
    free = [900] * 2500
    assert overfull(lives, assign_scopes(lives, free, 4000), free, 4000) == []


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        (((0, 1), (1, 0)), "instance graph: needs no cycles; has a cycle among or before n0, n1"),
        (((0, 0),), "instance graph: needs no cycles; has a cycle among or before n0"),
        (((0, 3),), "instance graph: needs edges between nodes 0 to 2; has edge 0 -> 3"),
    ],
)
def test_edges_that_are_none(edges: tuple[tuple[int, int], ...], said: str) -> None:
    nodes = tuple(InstanceNode(f"n{i}", 0, 0, 0) for i in range(3))
    with pytest.raises(PlanError, match=f"^{re.escape(said)}$"):
        InstanceGraph(nodes, edges)


@pytest.mark.parametrize("order", [(0, 1), (0, 0, 1), (0, 1, 3), (1, 0, 2)])
def test_orders_that_are_none(order: tuple[int, ...]) -> None:
    with pytest.raises(PlanError, match="order of instances: needs"):
        evaluate(chain((0, 1), (0, 1), (0, 1)), Capacity(9, 9), order)


def test_sizes_below_zero() -> None:
    with pytest.raises(PlanError, match="instance a: needs sizes of 0 bytes or more"):
        InstanceNode("a", 0, -1, 0)
    with pytest.raises(PlanError, match="capacity: needs sizes and weights of 0 or more"):
        Capacity(0, -1)


def test_an_instance_that_can_never_run_is_refused() -> None:
    with pytest.raises(DoesNotFit, match="instance n1: needs 6 bytes of local memory on a core; has 5 bytes"):
        evaluate(chain((0, 1), (6, 1)), Capacity(5, 9), (0, 1))
