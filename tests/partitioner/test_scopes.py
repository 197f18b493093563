"""Scopes of values between layers: who stays in the staging memory, who does not, and why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from codegen.generic import GenericTarget
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Plan
from partitioner.ir.value_lifetimes import waiting_values
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.offset_assignment import Item, peak_bytes
from partitioner.planners.levels import O1
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import small_chip, stcp920
from tests.small_graphs import GraphBuilder


def chain(batch: int = 1, size: int = 16, layers: int = 4) -> tuple[Graph, Constants]:
    b = GraphBuilder("chain")
    x = b.input("x", batch, size, size, 16)
    for _ in range(layers):
        x = b.elementwise("relu", b.conv(x, 16))
    return b.build(x)


def scopes(plan: Plan) -> dict[str, str]:
    return {plan.group_by_name[step.group].output: step.scope for step in plan.steps}


def decisions(plan: Plan) -> dict[str, tuple[str, str]]:
    return {decision.subject: (decision.verdict, decision.reason) for decision in plan.decisions}


def two_levels() -> Chip:
    """The stcp920 whose cores load from the main memory directly."""
    chip = stcp920()
    memories = tuple(memory for memory in chip.memories if memory.name != "LLB")
    links = tuple(
        link.model_copy(update={end: "DDR" for end in ("source", "destination") if getattr(link, end) == "LLB"})
        for link in chip.links
        if "DDR" not in (link.source, link.destination)
    )
    return chip.model_copy(update={"name": "two-levels", "memories": memories, "links": links})


def test_all_that_fits_stays_and_the_output_of_the_network_leaves() -> None:
    graph, constants = chain()
    plan = make_plan(PlanContext(graph, constants, stcp920(), TARGET), O1())
    assert list(scopes(plan).values()) == ["LLB", "LLB", "LLB", "DDR"]
    assert plan.level == "O1"
    verdict, reason = decisions(plan)["relu1.out"]
    assert (verdict, reason) == ("kept in LLB", "8 KiB for 1 layers save 16 KiB of traffic with DDR")


def test_a_value_larger_than_the_memory_goes_to_main_with_the_numbers() -> None:
    graph, constants = chain(size=64)
    plan = make_plan(PlanContext(graph, constants, small_chip(llb_bytes=100 << 10), TARGET), O1())
    assert set(scopes(plan).values()) == {"DDR"}
    verdict, reason = decisions(plan)["relu1.out"]
    assert verdict == "goes to DDR"
    assert reason == "needs 128 KiB of LLB, which has 100 KiB free next to values that save more"


def test_a_value_that_waits_long_yields_to_those_that_do_not() -> None:
    b = GraphBuilder("long")
    first = b.conv(b.input("x", 1, 16, 16, 16), 16)
    x = first
    for _ in range(4):
        x = b.elementwise("relu", b.conv(x, 16))
    graph, constants = b.build(b.elementwise("add", b.conv(x, 16), b.elementwise("tanh", first)))
    # 8 KiB a value; in 24 KiB two neighbours of the chain leave no room for a third that waits.
    plan = make_plan(PlanContext(graph, constants, small_chip(llb_bytes=24 << 10), TARGET), O1())
    found = scopes(plan)
    assert found[first] == "DDR"
    assert "LLB" in found.values()


def test_views_lie_where_the_value_lies_and_keep_it_alive() -> None:
    b = GraphBuilder("views")
    x = b.conv(b.input("x", 1, 8, 8, 16), 16)
    y = b.elementwise("relu", b.conv(x, 16))
    flat = b.view(x, 1, 64, 16)
    out = b.matmul(flat, b.normal(16, 8))
    graph, constants = b.build(b.pool("average_pool", y, (8, 8)), out, b.view(y, 1, 1024))
    plan = make_plan(PlanContext(graph, constants, stcp920(), TARGET), O1())
    found = scopes(plan)
    assert found[x] == found[flat] == "LLB"
    assert found[y] == "DDR", "it is an output of the network under another name"
    layers = [group.layers[0] for group in plan.groups]
    value = next(v for v in waiting_values(graph, layers) if v.name == x)
    assert value.names == (x, flat)
    assert layers[value.last].output == out


def test_a_chip_without_a_level_between_is_planned_as_at_o0() -> None:
    graph, constants = chain()
    chip = two_levels()
    target = GenericTarget("any")
    plan = make_plan(PlanContext(graph, constants, chip, target), O1())
    assert plan.steps == make_plan(PlanContext(graph, constants, chip, target)).steps


@pytest.mark.parametrize("llb_bytes", [8 << 10, 20 << 10, 48 << 10, 200 << 10, 8 << 20])
def test_what_stays_fits_beside_what_each_layer_stages(llb_bytes: int) -> None:
    graph, constants = chain(batch=2, layers=6)
    chip = small_chip(llb_bytes=llb_bytes)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O1())
    layout = lay_out(plan, PlanContext(graph, {}, chip, TARGET))
    assert layout.peaks["LLB"] <= llb_bytes
    assert bool(layout.peaks["LLB"]) == ("LLB" in scopes(plan).values())


@pytest.mark.parametrize("build", [chain])
def test_more_room_never_keeps_fewer_bytes(build: Callable[..., tuple[Graph, Constants]]) -> None:
    graph, constants = build(batch=2, layers=6)
    kept = []
    for llb_bytes in (16 << 10, 32 << 10, 64 << 10, 128 << 10):
        plan = make_plan(PlanContext(graph, constants, small_chip(llb_bytes=llb_bytes), TARGET), O1())
        kept.append(sum(graph.by_name[name].size_bytes for name, scope in scopes(plan).items() if scope == "LLB"))
    assert kept == sorted(kept)
    assert kept[0] < kept[-1]


def test_lives_bound_what_is_kept_at_once() -> None:
    graph, constants = chain(batch=4, layers=8)
    chip = small_chip(llb_bytes=96 << 10)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O1())
    found = scopes(plan)
    values = waiting_values(graph, [group.layers[0] for group in plan.groups])
    items = [Item(v.name, v.made, v.last, v.size_bytes) for v in values if found[v.name] == "LLB"]
    assert 0 < peak_bytes(items)[0] <= 96 << 10


def test_a_target_without_templates_is_planned_too() -> None:
    graph, constants = chain()
    target = GenericTarget("any")
    plan = make_plan(PlanContext(graph, constants, stcp920(), target), O1())
    verify_plan(plan, PlanContext(graph, {}, stcp920(), target))
    assert "LLB" in scopes(plan).values()
