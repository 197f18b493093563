"""Stitched groups: memory-bound neighbours in one kernel, whole values in the cores' memories, cut where they do not
fit, and never around a convolution."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.generic import GenericTarget
from codegen.neuralscale.target import TARGET
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import group_layers
from partitioner.ir.plan import Plan
from partitioner.ir.value_lifetimes import activations
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.astitch import COMPUTE_BOUND_KINDS, neighbours
from partitioner.planners.levels import Astitch
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import small_chip, stcp920
from tests.small_graphs import GraphBuilder


def cheap_chain(size: int = 8, channels: int = 16) -> tuple[Graph, Constants]:
    b = GraphBuilder("chain")
    x = b.conv(b.input("x", 2, size, size, channels), channels)
    x = b.pool("max_pool", x, (3, 3), pads=(1, 1, 1, 1))
    x = b.pool("average_pool", x, (3, 3), pads=(1, 1, 1, 1))
    x = b.elementwise("add", x, b.pool("max_pool", x, (3, 3), pads=(1, 1, 1, 1)))
    return b.build(b.conv(x, channels))


def sizes(plan: Plan) -> list[int]:
    return [len(group.layers) for group in plan.groups]


def test_neighbours_that_multiply_nothing_are_one_kernel() -> None:
    graph, constants = cheap_chain()
    plan = make_plan(PlanContext(graph, constants, stcp920(), TARGET), Astitch())
    assert sizes(plan) == [1, 3, 1]
    assert [step.scope for step in plan.steps] == ["DDR"] * 3
    (decision,) = (d for d in plan.decisions if d.verdict.startswith("stitched"))
    assert decision.verdict == "stitched: 3 layers, one kernel"
    assert decision.reason.startswith("8 KiB stay in L1")


def test_a_group_that_does_not_fit_is_cut_and_says_why() -> None:
    graph, constants = cheap_chain(size=64)
    chip = small_chip(data_bytes=40 << 10)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), Astitch())
    assert max(sizes(plan)) < 3
    decision = next(d for d in plan.decisions if "not stitched" in d.verdict)
    assert decision.verdict.startswith("3 layers not stitched: cut before ")
    assert "of L1" in decision.reason
    lay_out(plan, PlanContext(graph, {}, chip, TARGET))


def test_a_convolution_between_keeps_two_operators_apart() -> None:
    """a -> conv -> c and a -> b -> c: stitching a, b and c would need the convolution before and after the kernel."""
    b = GraphBuilder("around")
    first = b.pool("max_pool", b.input("x", 1, 8, 8, 16), (3, 3), pads=(1, 1, 1, 1))
    side = b.pool("average_pool", first, (3, 3), pads=(1, 1, 1, 1))
    graph, constants = b.build(b.concat(3, b.conv(first, 16), side))
    plan = make_plan(PlanContext(graph, constants, stcp920(), TARGET), Astitch())
    homes = {layer.output: group.name for group in plan.groups for layer in group.layers}
    assert homes[first] == homes[side]
    assert homes[graph.outputs[0]] != homes[side]


def test_a_view_whose_name_leaves_is_a_group_of_its_own() -> None:
    b = GraphBuilder("view")
    x = b.pool("max_pool", b.input("x", 1, 8, 8, 16), (2, 2), 2)
    flat = b.view(x, 1, 256)
    graph, constants = b.build(flat, b.softmax(flat))
    plan = make_plan(PlanContext(graph, constants, stcp920(), TARGET), Astitch())
    assert [step.kind for step in plan.steps] == ["run", "view", "run"]


def test_a_target_without_templates_is_planned_too() -> None:
    graph, constants = cheap_chain()
    target = GenericTarget("any")
    ctx = PlanContext(graph, constants, stcp920(), target)
    verify_plan(make_plan(ctx, Astitch()), ctx)


@st.composite
def wired(draw: st.DrawFn) -> Graph:
    """Random graphs of cheap operators and convolutions over values of one shape."""
    b = GraphBuilder("random")
    values = [b.input("x", 1, 4, 4, 4)]
    for _ in range(draw(st.integers(2, 14))):
        x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        match draw(st.sampled_from(("conv", "pool", "add"))):
            case "conv":
                values.append(b.conv(x, 4))
            case "pool":
                values.append(b.pool("max_pool", x, (3, 3), pads=(1, 1, 1, 1)))
            case _:
                values.append(b.elementwise("add", x, y))
    read = {name for op in b.ops for name in op.inputs}
    graph, _ = b.build(*(name for name in values[1:] if name not in read))
    return graph


@settings(max_examples=60, deadline=None)
@given(wired())
def test_sets_can_be_put_in_an_order_and_hold_no_products_with_others(graph: Graph) -> None:
    layers, _ = group_layers(graph)
    sets = neighbours(graph, layers)
    assert sorted(index for members in sets for index in members) == list(range(len(layers)))
    for members in sets:
        kinds = {layers[index].anchor(graph).kind for index in members}
        assert len(members) == 1 or not kinds & COMPUTE_BOUND_KINDS
    home = {layers[index].output: number for number, members in enumerate(sets) for index in members}
    needs = {
        number: {home[n] for i in members for n in activations(graph, layers[i]) if n in home} - {number}
        for number, members in enumerate(sets)
    }
    done: set[int] = set()
    while ready := [number for number, before in needs.items() if number not in done and before <= done]:
        done.update(ready)
    assert done == set(needs), "sets wait for each other"


@pytest.mark.parametrize("data_bytes", [8 << 10, 32 << 10, 128 << 10])
def test_every_chip_gets_a_plan_that_can_be_laid_out(data_bytes: int) -> None:
    graph, constants = cheap_chain(size=16)
    chip = small_chip(data_bytes=data_bytes, weights_bytes=16 << 10)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), Astitch())
    lay_out(plan, PlanContext(graph, {}, chip, TARGET))
