"""Level O3: the shape of ResNet-50's plan, what it saves, what fits where, and what is said when nothing fits."""

from __future__ import annotations

from functools import cache

import pytest

from codegen.generic import GenericTarget
from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import Model, load_model
from hw_models.errors import DoesNotFit, PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.cost.traffic import Traffic, plan_traffic
from partitioner.ir.plan import Plan, parse_plan
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.levels import O3, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip, stcp920
from tests.group_plans import check_against_o0
from tests.small_graphs import GraphBuilder

KIB = 1024


@cache
def resnet50() -> Model:
    return load_model("resnet50", {}, 16)


@cache
def plan_of(level: str) -> Plan:
    model = resnet50()
    return make_plan(PlanContext(model.graph, model.constants, stcp920(), TARGET), planner_of(level))


@cache
def traffic_of(level: str) -> Traffic:
    ctx = PlanContext(resnet50().graph, resnet50().constants, stcp920(), TARGET)
    return plan_traffic(plan_of(level), lay_out(plan_of(level), ctx), ctx, tiles=False)


@pytest.mark.commit
def test_resnet50_has_four_groups_whose_factors_fall_as_the_maps_shrink() -> None:
    """Borders lie behind the down-sampling blocks; a block of ResNet-50 has three layers, its first four."""
    plan = plan_of("O3")
    assert [group.split.instances for group in plan.groups] == [8, 4, 2, 1]
    assert all(axis == 0 for group in plan.groups for axis, _ in group.split.cuts)
    assert [len(group.layers) for group in plan.groups] == [2 + 4 + 3 + 3 + 4, 3 * 3 + 4, 5 * 3 + 4, 2 * 3 + 4]


def test_the_order_is_depth_first_as_in_the_worked_example() -> None:
    """Some instances of a group, then what they make possible; a group may be begun from either end."""
    names = dict(zip((group.name for group in plan_of("O3").groups), "abcd", strict=True))
    order = "".join(names[step.group] for step in plan_of("O3").steps)
    assert order == "aabaabcaabaabcd"


@pytest.mark.nightly
def test_traffic_to_the_main_memory_is_at_least_nine_times_below_o0() -> None:
    """At the same batch: the batch's own share of the gain is not in this number."""
    assert traffic_of("O0").main_bytes() >= 9 * traffic_of("O3").main_bytes()


@pytest.mark.nightly
def test_the_text_form_and_the_bytes_are_the_same_every_time() -> None:
    model = resnet50()
    again = make_plan(PlanContext(model.graph, model.constants, stcp920(), TARGET), O3())
    assert str(again) == str(plan_of("O3"))
    assert parse_plan(str(again)) == again


def test_every_refused_merge_and_every_factor_has_its_numbers() -> None:
    decisions = plan_of("O3").decisions
    refused = [d for d in decisions if d.verdict == "not merged"]
    assert refused
    assert all("factor" in d.reason or "halo" in d.reason or "view" in d.reason for d in refused)
    for group in plan_of("O3").groups:
        assert any(
            d.subject == group.name and "instances" in d.verdict and "B on a core" in d.reason for d in decisions
        )
    assert any(d.subject == "order" and "breadth first" in d.reason for d in decisions)


def test_a_chip_too_small_for_the_smallest_tile_is_refused_with_numbers() -> None:
    builder = GraphBuilder("wide")
    x = builder.input("x", 1, 4, 4, 512)
    graph, constants = builder.build(builder.conv(x, 8))
    with pytest.raises(DoesNotFit) as refusal:
        make_plan(PlanContext(graph, constants, small_chip(weights_bytes=KIB), TARGET), O3())
    text = str(refusal.value)
    assert "conv0" in text
    assert "needs" in text
    assert "too few" in text
    assert "change one of" in text


def test_more_instances_than_a_program_can_hold_are_refused_with_their_number() -> None:
    builder = GraphBuilder("many")
    x = builder.input("x", 5000, 16, 16, 8)
    graph, constants = builder.build(builder.elementwise("relu", builder.pool("max_pool", x, (2, 2), stride=2)))
    with pytest.raises(PlanError, match=r"graph many: needs at most 4,096 instances; has 5,000; .*--per-pass"):
        make_plan(PlanContext(graph, constants, small_chip(cores=1, data_bytes=6 * KIB), TARGET), O3())


@pytest.mark.parametrize("data_bytes", [6 * KIB, 16 * KIB, 64 * KIB, 1024 * KIB])
def test_groups_shrink_with_the_local_memory_and_the_bits_stay(data_bytes: int) -> None:
    builder = GraphBuilder("blocks")
    x = builder.input("x", 3, 20, 20, 8)
    for _ in range(2):
        inner = builder.elementwise("relu", builder.conv(x, 16))
        x = builder.elementwise("relu", builder.elementwise("add", builder.conv(inner, 8), x))
    graph, constants = builder.build(builder.pool("max_pool", x, (2, 2), stride=2))
    chip = small_chip(cores=4, data_bytes=data_bytes)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O3())
    if data_bytes == 1024 * KIB:
        assert len(plan.groups) == 1
        assert plan.groups[0].split.instances == 1
    if data_bytes == 6 * KIB:
        assert len(plan.steps) > 1
    check_against_o0(graph, constants, chip, plan)


@pytest.mark.commit
def test_a_chip_without_a_code_generator_is_planned_too() -> None:
    model = resnet50()
    plan = make_plan(PlanContext(model.graph, model.constants, stcp920(), GenericTarget("neuralscale-v1")), O3())
    assert len(plan.groups) < len(plan_of("O0").groups) / 4


def test_every_instance_cuts_a_view_into_whole_parts_of_its_source() -> None:
    """Typical instances may do so where one between them does not: rows of 8 elements, cut in pieces of 5 and 6."""
    builder = GraphBuilder("column")
    rows = builder.elementwise("relu", builder.input("x", 1, 7, 8, 8))
    column = builder.view(rows, 448, 1)
    graph, constants = builder.build(builder.matmul(column, builder.normal(1, 448)))
    ctx = PlanContext(graph, constants, stcp920(), TARGET)
    plan = make_plan(ctx, O3())
    assert lay_out(plan, ctx).peaks
