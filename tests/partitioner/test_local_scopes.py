"""Values in the cores' own memories: what stays, what is moved between cores, what yields to whom."""

from __future__ import annotations

import pytest

from codegen.generic import GenericTarget
from codegen.neuralscale.target import TARGET
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Plan
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.levels import O2
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import small_chip, stcp920
from tests.partitioner.test_scopes import two_levels
from tests.small_graphs import GraphBuilder


def chain(
    batch: int = 8, size: int = 14, channels: int = 32, layers: int = 4, kernel: int = 1
) -> tuple[Graph, Constants]:
    b = GraphBuilder("chain")
    x = b.input("x", batch, size, size, channels)
    for _ in range(layers):
        x = b.elementwise("relu", b.conv(x, channels, (kernel, kernel), pads=(kernel // 2,) * 4))
    return b.build(x)


def scopes(plan: Plan) -> list[str]:
    return [step.scope for step in plan.steps if step.kind == "run"]


def reasons(plan: Plan, verdict: str) -> list[str]:
    return [decision.reason for decision in plan.decisions if decision.verdict.startswith(verdict)]


def test_a_chain_that_fits_stays_in_the_cores() -> None:
    graph, constants = chain()
    plan = make_plan(PlanContext(graph, constants, stcp920(), TARGET), O2())
    assert scopes(plan) == ["L1", "L1", "L1", "DDR"]
    assert {step.kind for step in plan.steps} == {"run"}, "no core reads what another one made"
    first = reasons(plan, "kept in L1")[0]
    assert first.startswith("12.25 KiB of a core for 1 layers save about ")


def test_rows_of_neighbours_are_redistributed_before_their_reader() -> None:
    graph, constants = chain(batch=1, kernel=3)
    plan = make_plan(PlanContext(graph, constants, stcp920(), TARGET), O2())
    moves = [(position, step) for position, step in enumerate(plan.steps) if step.kind == "redistribute"]
    assert moves
    for position, step in moves:
        assert plan.steps[position + 1].group == step.group
        assert step.tensor in plan.group_by_name[step.group].inputs(graph)
    assert any("after a redistribution" in reason for reason in reasons(plan, "kept in L1"))


def test_what_a_core_cannot_hold_goes_to_the_shared_memory_and_then_to_main() -> None:
    graph, constants = chain()  # 12.25 KiB of a core, 98 KiB in all
    tight = make_plan(PlanContext(graph, constants, small_chip(data_bytes=12 << 10), TARGET), O2())
    assert set(scopes(tight)) == {"LLB", "DDR"}
    assert reasons(tight, "not kept in L1")[0] == "12.25 KiB of a core, which has 12 KiB"
    tighter = make_plan(
        PlanContext(graph, constants, small_chip(data_bytes=12 << 10, llb_bytes=40 << 10), TARGET), O2()
    )
    assert set(scopes(tighter)) == {"DDR"}


def test_values_that_the_shared_memory_cannot_hold_are_worth_more_of_a_core() -> None:
    """Of three values in a row one finds room in a core and none in the shared memory: the two that are not next to
    each other stay."""
    graph, constants = chain()
    plan = make_plan(PlanContext(graph, constants, small_chip(data_bytes=22 << 10, llb_bytes=40 << 10), TARGET), O2())
    assert scopes(plan) == ["L1", "DDR", "L1", "DDR"]


@pytest.mark.parametrize("data_kib", [2, 4, 8, 16, 24, 48])
@pytest.mark.parametrize("llb_kib", [16, 120])
@pytest.mark.commit
def test_what_stays_leaves_room_for_all_tiles(data_kib: int, llb_kib: int) -> None:
    b = GraphBuilder("residual")
    x = b.elementwise("relu", b.conv(b.input("x", 2, 14, 14, 16), 16))
    for _ in range(3):
        x = b.elementwise("add", b.conv(b.elementwise("relu", b.conv(x, 16)), 16), x)
    graph, constants = b.build(b.concat(3, x, b.pool("max_pool", x, (3, 3), pads=(1, 1, 1, 1))))
    chip = small_chip(data_bytes=data_kib << 10, llb_bytes=llb_kib << 10)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O2())
    layout = lay_out(plan, PlanContext(graph, {}, chip, TARGET))
    assert layout.peaks["L1"] <= data_kib << 10
    assert layout.peaks["LLB"] <= llb_kib << 10


def test_a_chip_whose_smallest_tile_does_not_fit_is_planned_for_whoever_explains_it() -> None:
    graph, constants = chain(channels=512, layers=2)
    chip = small_chip(data_bytes=512, weights_bytes=512)
    verify_plan(make_plan(PlanContext(graph, constants, chip, TARGET), O2()), PlanContext(graph, {}, chip, TARGET))


@pytest.mark.parametrize("enforced", [True, False])
def test_a_target_without_templates_is_planned_too(enforced: bool) -> None:
    graph, constants = chain()
    for chip in (small_chip(enforced=enforced), two_levels()):
        target = GenericTarget("any")
        plan = make_plan(PlanContext(graph, constants, chip, target), O2())
        verify_plan(plan, PlanContext(graph, {}, chip, target))
        assert "L1" in scopes(plan)


def test_a_graph_of_views_alone_has_a_plan() -> None:
    b = GraphBuilder("views")
    graph, constants = b.build(b.view(b.input("x", 2, 4, 4, 8), 2, 128))
    assert [step.kind for step in make_plan(PlanContext(graph, constants, stcp920(), TARGET), O2()).steps] == ["view"]
