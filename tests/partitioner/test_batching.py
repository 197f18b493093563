"""Batch per pass: which are tried, which is chosen, with which numbers; and whether a batch may be divided at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partitioner.cost.cost_model import PlanCost
from partitioner.cost.micro_batching import MOST_CANDIDATES, candidate_batches, choose_batch, pass_count, shares_of
from partitioner.ir.access import Access, Linear
from partitioner.ir.batch_independence import batch_problem
from partitioner.ir.graph import Axis, Graph, LoopNest, Op, Tensor
from tests.small_graphs import GraphBuilder


def cost(cycles: float) -> PlanCost:
    return PlanCost((), launch_cycles=cycles)


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_shares_are_the_batch(items: int, clusters: int) -> None:
    shares = shares_of(items, clusters)
    assert sum(shares) == items
    assert len(shares) == clusters
    assert list(shares) == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] <= 1


@given(st.integers(1, 5_000))
def test_candidates_are_few_and_hold_the_ends(share: int) -> None:
    found = candidate_batches(share)
    assert len(found) <= MOST_CANDIDATES
    assert found[0] == 1
    assert found[-1] == share
    assert list(found) == sorted(set(found))
    assert all(share % n == 0 or n & (n - 1) == 0 for n in found)


def test_candidates_of_common_shares() -> None:
    assert candidate_batches(1) == (1,)
    assert candidate_batches(12) == (1, 2, 3, 4, 8, 12)
    assert candidate_batches(13) == (1, 2, 4, 8, 13)
    assert candidate_batches(16) == (1, 2, 4, 8, 16)
    assert candidate_batches(64) == (1, 2, 4, 16, 32, 64)


@given(st.integers(1, 300), st.data())
def test_the_choice_has_the_fewest_cycles_in_all(share: int, data: st.DataObject) -> None:
    costs = {n: cost(data.draw(st.integers(1, 1000))) for n in candidate_batches(share)}
    found = choose_batch(costs, share, 1)
    assert found.chosen.cycles == min(pass_count(share, n) * c.cycles for n, c in costs.items())


def test_a_last_pass_that_is_not_full_costs_a_whole_one() -> None:
    """Nine items: three passes of four are dearer than one pass of nine, although four alone are cheaper an item."""
    found = choose_batch({1: cost(50), 4: cost(100), 9: cost(260)}, 9, 1)
    assert (found.chosen.batch_per_pass, found.chosen.passes) == (9, 1)
    assert choose_batch({1: cost(50), 4: cost(100), 8: cost(260)}, 8, 1).chosen.batch_per_pass == 4


def test_of_equal_ones_the_larger_batch_is_taken() -> None:
    assert choose_batch({1: cost(10), 2: cost(20), 4: cost(40)}, 4, 1).chosen.batch_per_pass == 4


def test_decisions_have_the_numbers_of_all_candidates() -> None:
    """64 items on 4 clusters; an item takes 1,600 cycles at O0 and batch 1, 400 at batch 1, 200 as chosen."""
    found = choose_batch({1: cost(400), 4: cost(800), 8: cost(2000), 16: "LLB: needs more"}, 64, 4, 1600.0)
    texts = [str(decision) for decision in found.decisions]
    assert texts == [
        "batch: 4 per pass, 4 passes: 64 items on 4 clusters, 16 on the fullest: "
        "cycles per item 400 at 1, 200 at 4, 250 at 8",
        "batch: gain 8.00, by the batch alone 2.00: 8.00 times fewer cycles per item than O0 at batch 1; "
        "the larger batch alone brings 2.00 times, 33% of it in logarithms",
        "batch: not 8 per pass: 2 passes of 2,000 cycles, 4,000 in all",
        "batch: not 1 per pass: 16 passes of 400 cycles, 6,400 in all",
        "batch: not 16 per pass: not possible: LLB: needs more",
    ]


def network(batch: int) -> GraphBuilder:
    builder = GraphBuilder("items")
    builder.input("x", batch, 6, 6, 8)
    return builder


def test_items_of_convolutions_stay_apart() -> None:
    builder = network(3)
    x = builder.elementwise("relu", builder.conv("x", 16, stride=2))
    assert batch_problem(builder.build(builder.conv(x, 8))[0]) is None


def test_inputs_of_different_extent_cannot_be_divided() -> None:
    builder = network(3)
    builder.input("z", 2, 6, 6, 8)
    graph, _ = builder.build(builder.conv("x", 8), builder.conv("z", 8))
    assert batch_problem(graph) == "z has 2 items and x 3"


def test_items_that_meet_are_named() -> None:
    builder = network(3)
    assert batch_problem(builder.build(builder.softmax("x", 0))[0]) == "item 0 of the outputs reads items 0 to 2 of x"


def test_an_axis_that_mixes_items_and_channels_cannot_be_divided() -> None:
    builder = network(3)
    graph, _ = builder.build(builder.view("x", 18, 6, 8))
    assert batch_problem(graph) == "view0.out has 18 items and x 3"


def test_items_in_another_order_are_named() -> None:
    """A slice with step -1: item i of the output is item 3 - i of the input."""
    domain = (Axis("n", 4), Axis("c", 8))
    backward = LoopNest("slice", domain, Access("y", (Linear((("n", 1),)), Linear((("c", 1),)))),
                     (Access("x", (Linear((("n", -1),), 3), Linear((("c", 1),)))),))  # fmt: skip
    tensors = tuple(Tensor(name, (4, 8), "float16", (0, 1), "float32") for name in ("x", "y"))
    graph = Graph("back", ("x",), ("y",), (Op("y", "slice", ("x",), ("y",), (), (backward,), 0, "Slice"),), tensors)
    assert batch_problem(graph) == "item 0 of the outputs reads item 3 of x"


def test_a_value_without_axes_cannot_be_divided() -> None:
    tensors = (Tensor("x", (), "float16", (), "float32"),)
    assert batch_problem(Graph("scalar", ("x",), ("x",), (), tensors)) == "x has no axis for items"
