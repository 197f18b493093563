"""Orders of instances: the published ones, and a choice that is never worse than any of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings

from benchmarks.lab.exact_order import proven_choice
from hw_models.errors import DoesNotFit
from partitioner.ordering.cost import Capacity, InstanceGraph, InstanceNode, evaluate
from partitioner.ordering.methods import (
    METHODS,
    breadth_first,
    choose_order,
    depth_first,
    heaviest_first,
    post_order,
    searched,
)
from tests.instance_graphs import case, cases, faults, pyramid


def names(graph: InstanceGraph, order: tuple[int, ...]) -> str:
    return " ".join(graph.nodes[i].name for i in order)


def test_published_orders_of_the_8_4_2_1_tree() -> None:
    """The worked example of GraphTurbo (OSDI 2023), figure 6."""
    graph = pyramid()
    assert names(graph, depth_first(graph)) == "a8 a7 b4 a6 a5 b3 c2 a4 a3 b2 a2 a1 b1 c1 d1"
    assert names(graph, breadth_first(graph)) == "a1 a2 a3 a4 a5 a6 a7 a8 b1 b2 b3 b4 c1 c2 d1"


def test_post_order_starts_where_most_room_is_needed() -> None:
    nodes = (InstanceNode("small", 1, 1, 1), InstanceNode("large", 9, 1, 1), InstanceNode("sum", 0, 1, 1))
    graph = InstanceGraph(nodes, ((0, 2), (1, 2)))
    assert names(graph, post_order(graph)) == "large small sum"


def test_heaviest_first_counts_work_output_and_inputs() -> None:
    nodes = (
        InstanceNode("x", 0, 7, 1),
        InstanceNode("y", 5, 1, 1),
        InstanceNode("reads x", 0, 0, 1),
        InstanceNode("z", 5, 1, 1),
    )
    graph = InstanceGraph(nodes, ((0, 2),))
    assert names(graph, heaviest_first(graph)) == "x reads x y z"


@settings(max_examples=150, deadline=None)
@given(cases())
def test_every_candidate_may_run_and_none_is_cheaper_than_the_choice(drawn: tuple[InstanceGraph, Capacity]) -> None:
    graph, capacity = drawn
    choice = choose_order(graph, capacity)
    assert choice.best in choice.candidates
    assert {found.name for found in choice.candidates} >= set(METHODS)
    for found in choice.candidates:
        assert faults(graph, capacity, found) == []
        assert choice.best.cost <= found.cost
    for method in (breadth_first, depth_first, heaviest_first):
        assert choice.best.cost <= evaluate(graph, capacity, method(graph)).cost


@pytest.mark.spread(1)
@pytest.mark.parametrize("count", [40, 65, 200, 500])
def test_graphs_of_several_windows(count: int) -> None:
    """More nodes than the search reorders together, at every width of its beam."""
    for seed in range(4):
        graph, capacity = case(Random(seed), count)
        choice = choose_order(graph, capacity, expansions=2000)
        for found in choice.candidates:
            assert sorted(found.order) == list(range(count))
            assert choice.best.cost <= found.cost
        assert faults(graph, capacity, choice.best) == []


def late_heavy(copies: int) -> tuple[InstanceGraph, Capacity]:
    """`copies` of: a sum of one large output, quickly made, and one small output that takes all memory to make. The
    large output must come last, yet it is of the largest footprint, ready at once, and seen last."""
    nodes, edges = [], []
    for i in range(copies):
        nodes += [
            InstanceNode(f"start{i}", 0, 1, 8),
            InstanceNode(f"heavy{i}", 8, 1, 8),
            InstanceNode(f"sum{i}", 1, 1, 8),
        ]
        edges += [(4 * i, 4 * i + 1), (4 * i + 1, 4 * i + 2), (4 * i + 3, 4 * i + 2)]
        nodes.append(InstanceNode(f"large{i}", 0, 8, 64))
    return InstanceGraph(tuple(nodes), tuple(edges)), Capacity(10, 100)


@pytest.mark.parametrize("copies", [1, 2, 3, 5, 8, 13, 40])
def test_strictly_better_than_all_published_orders(copies: int) -> None:
    graph, capacity = late_heavy(copies)
    published = [evaluate(graph, capacity, method(graph)) for method in (breadth_first, depth_first, heaviest_first)]
    assert choose_order(graph, capacity).best.cost == 0 < min(found.cost for found in published)


@pytest.mark.parametrize("copies", [1, 2, 3, 4])
def test_the_search_alone_finds_it_too(copies: int) -> None:
    graph, capacity = late_heavy(copies)
    worst = evaluate(graph, capacity, breadth_first(graph))
    found = searched(graph, capacity, worst, expansions=60_000)
    assert faults(graph, capacity, found) == []
    assert found.cost == 0


def halo_grid(rows: int, columns: int) -> tuple[InstanceGraph, Capacity]:
    """Each instance reads its own and both neighbouring instances of the layer before, as where halos are exchanged."""
    nodes = tuple(InstanceNode(f"{row}.{column}", 1, 2, 16) for row in range(rows) for column in range(columns))
    edges = tuple(
        (row * columns - columns + before, row * columns + column)
        for row in range(1, rows)
        for column in range(columns)
        for before in range(max(0, column - 1), min(columns, column + 2))
    )
    return InstanceGraph(nodes, edges), Capacity(11, 0)


@pytest.mark.parametrize(("rows", "columns"), [(6, 8), (12, 6), (10, 8)])
def test_the_search_beats_every_rule(rows: int, columns: int) -> None:
    graph, capacity = halo_grid(rows, columns)
    choice = choose_order(graph, capacity)
    assert choice.best.name == "beam"
    assert choice.best.cost < min(found.cost for found in choice.candidates if found.name != "beam")


def test_the_exact_method_goes_on_from_the_best() -> None:
    graph, capacity = case(Random(1), 16)
    quick = choose_order(graph, capacity, expansions=100)
    thorough, bound = proven_choice(graph, capacity, quick, 20.0)
    assert thorough.candidates[:-1] == quick.candidates
    assert thorough.best.name == "exact"
    assert bound == thorough.best.cost < quick.best.cost


def test_what_costs_nothing_is_proven() -> None:
    graph, capacity = pyramid(), Capacity(20, 0)
    choice, bound = proven_choice(graph, capacity, choose_order(graph, capacity), 1.0)
    assert choice.best.cost == bound == 0
    assert {found.name for found in choice.candidates} == set(METHODS)


def test_the_choice_does_not_depend_on_chance() -> None:
    graph, capacity = case(Random(7), 80)
    assert choose_order(graph, capacity) == choose_order(graph, capacity)


@pytest.mark.spread(3)
@pytest.mark.parametrize("seed", range(12))
def test_outputs_that_may_not_be_local_are_not(seed: int) -> None:
    """However small: they are weighed as outputs that are too large for it."""
    graph, capacity = case(Random(seed), 20)
    banned = set(Random(seed).sample(range(20), 7))
    nodes = tuple(replace(node, may_be_local=i not in banned) for i, node in enumerate(graph.nodes))
    asked = InstanceGraph(nodes, graph.edges)
    found, _ = proven_choice(asked, capacity, choose_order(asked, capacity), 0.2)
    for ordered in (
        *found.candidates,
        evaluate(asked, capacity, breadth_first(asked)),
        searched(asked, capacity, found.best),
    ):
        waiting = {i for i in banned if graph.consumers[i]}
        assert all(ordered.scopes[i] != "local" for i in waiting), ordered.name
    too_large = tuple(
        replace(node, output_bytes=capacity.local_bytes + 1) if i in banned else node
        for i, node in enumerate(graph.nodes)
    )
    assert choose_order(InstanceGraph(too_large, graph.edges), capacity) == choose_order(asked, capacity)


def test_an_instance_that_can_never_run_is_refused() -> None:
    graph = InstanceGraph((InstanceNode("small", 1, 1, 1), InstanceNode("large", 2048, 1, 1)), ())
    with pytest.raises(DoesNotFit, match=r"instance large: needs 2 KiB of local memory on a core; has 1 KiB"):
        choose_order(graph, Capacity(1024, 0))


def test_the_empty_graph() -> None:
    assert choose_order(InstanceGraph((), ()), Capacity(0, 0)).best.order == ()
