"""Plans out of parts of several plans: borders, refusals, and the division of least cost against all divisions."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import pytest

from codegen.neuralscale.target import TARGET
from hw_models.errors import ModelError, PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.cost.cost_model import plan_cycles
from partitioner.ir.plan import parse_plan
from partitioner.ir.steps import MoveStep
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.levels import LEVELS, O0, O1, O2, O3, SEGMENTS, Segment, Segments, planner_of
from partitioner.planners.registry import make_plan
from partitioner.planners.segments import Column, border_values, column_of, cut_points, divide, expected_layer_cycles
from partitioner.verification.verify_layout import verify_layout
from tests.chip_runs import small_chip, stcp920
from tests.partition_graphs import Seeded, chain_graph
from tests.partitioner.test_local_scopes import chain, scopes

KIB = 1024


def context(layers: int = 6) -> PlanContext:
    graph, constants = chain(layers=layers)
    return PlanContext(graph, constants, stcp920(), TARGET)


def recipe(ctx: PlanContext, *parts: tuple[str, int]) -> Segments:
    return Segments(tuple(Segment(planner_of(level), ctx.layers[first].name) for level, first in parts))


def test_each_part_is_as_its_level_has_it_and_borders_lie_in_the_staging_memory() -> None:
    ctx = context()
    plan = make_plan(ctx, recipe(ctx, ("O2", 0), ("O0", 2), ("O2", 4)))
    assert plan.level == SEGMENTS
    assert scopes(plan) == ["L1", "LLB", "DDR", "LLB", "L1", "DDR"]
    between = [decision for decision in plan.decisions if decision.verdict == "between segments in LLB"]
    assert [decision.subject for decision in between] == [ctx.layers[1].output, ctx.layers[3].output]
    assert parse_plan(str(plan)) == plan
    verify_layout(lay_out(plan, ctx), plan, ctx)


def test_one_segment_is_the_level_itself() -> None:
    ctx = context()
    for level in LEVELS:
        whole, alone = make_plan(ctx, planner_of(level)), make_plan(ctx, recipe(ctx, (level, 0)))
        assert (alone.groups, alone.steps, alone.pinned) == (whole.groups, whole.steps, whole.pinned)


def test_what_crosses_a_border_is_moved_to_no_core() -> None:
    graph, constants = chain(batch=1, kernel=3, layers=6)
    ctx = PlanContext(graph, constants, stcp920(), TARGET)
    assert any(isinstance(step, MoveStep) for step in make_plan(ctx, O2()).steps)
    plan = make_plan(ctx, recipe(ctx, ("O2", 0), ("O1", 3)))
    crossing = border_values(graph, ctx.layers, [3])
    assert list(crossing) == [ctx.layers[2].output]
    assert not any(isinstance(step, MoveStep) and step.tensor in crossing for step in plan.steps)


def test_a_border_value_without_room_in_the_staging_memory_goes_to_the_main_one() -> None:
    graph, constants = chain(batch=8)  # values of 98 KiB
    ctx = PlanContext(graph, constants, small_chip(data_bytes=12 * KIB, llb_bytes=64 * KIB), TARGET)
    plan = make_plan(ctx, recipe(ctx, ("O1", 0), ("O0", 2)))
    assert "between segments in DDR" in {decision.verdict for decision in plan.decisions}
    verify_layout(lay_out(plan, ctx), plan, ctx)


def test_segments_that_do_not_cover_the_network_are_refused() -> None:
    ctx = context()
    names = [layer.name for layer in ctx.layers]
    for odd in ((names[1],), (names[0], names[3], names[2]), (names[0], "nobody")):
        with pytest.raises(ModelError, match=f"segments: needs layers of chain in their order, {names[0]} first; has"):
            make_plan(ctx, Segments(tuple(Segment(O1(), name) for name in odd)))


def test_a_border_within_a_group_is_refused() -> None:
    ctx = context()
    inside = next(cut for cut in range(1, 6) if cut not in cut_points(ctx.layers, make_plan(ctx, O3())))
    with pytest.raises(PlanError) as raised:
        make_plan(ctx, recipe(ctx, ("O3", 0), ("O1", inside)))
    assert str(raised.value).startswith("the segment of O3 from ")
    assert f"has a group of O3 that goes on at {ctx.layers[inside].name}" in str(raised.value)


def test_segments_by_name_alone_are_refused() -> None:
    with pytest.raises(ModelError, match="--level: needs a planner: O0, O1, O2, O3, streamed, astitch; has segments"):
        make_plan(context(), planner_of(SEGMENTS))


# The division.


def columns_of(ctx: PlanContext, *cycles: tuple[float, ...]) -> tuple[Column, ...]:
    """Plans of one group a layer, whose values lie in the main memory, and such cycles."""
    return tuple(column_of(ctx, make_plan(ctx, O0()), each) for each in cycles)


def cost_by_hand(ctx: PlanContext, columns: tuple[Column, ...], numbers: tuple[int, ...], weight: float) -> float:
    changes = sum(before != behind for before, behind in pairwise(numbers))
    spent = sum(columns[number].cycles(layer, layer + 1) for layer, number in enumerate(numbers))
    return spent + weight * changes * 2 * ctx.chip.assumed.sync_cycles


@pytest.mark.parametrize("seed", range(20))
def test_no_division_costs_less(seed: int) -> None:
    """Against all choices for six layers and three plans; borders cost two barriers where nothing waits on cores."""
    choose = Seeded(seed)
    graph, constants = chain_graph(6)
    chip = stcp920()
    chip = chip.model_copy(update={"assumed": chip.assumed.model_copy(update={"sync_cycles": 40})})
    ctx = PlanContext(graph, constants, chip, TARGET)
    count = len(ctx.layers)
    columns = columns_of(ctx, *(tuple(float(choose.number(0, 300)) for _ in range(count)) for _ in range(3)))
    weight = float(choose.number(1, 3))
    found = divide(ctx, columns, weight)
    everything = product(range(3), repeat=count)
    assert found.cycles == pytest.approx(min(cost_by_hand(ctx, columns, numbers, weight) for numbers in everything))
    numbers = tuple(part.column for part in found.parts for _ in range(part.first, part.end))
    assert cost_by_hand(ctx, columns, numbers, weight) == pytest.approx(found.cycles)


def test_values_on_cores_make_a_border_dearer_and_weight_makes_borders_fewer() -> None:
    ctx = context()
    local, main = make_plan(ctx, O2()), make_plan(ctx, O0())
    cheap = (0.0, 900.0, 0.0, 900.0, 0.0, 900.0), (900.0, 0.0, 900.0, 0.0, 900.0, 0.0)
    between_main = divide(ctx, [column_of(ctx, main, each) for each in cheap])
    between_local = divide(ctx, [column_of(ctx, local, each) for each in cheap])
    assert len(between_main.parts) == 6
    assert between_local.cycles > between_main.cycles
    counts = [len(divide(ctx, [column_of(ctx, local, each) for each in cheap], weight).parts) for weight in (1, 9, 99)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 1


def test_plans_are_not_cut_within_groups() -> None:
    ctx = context()
    grouped, single = make_plan(ctx, O3()), make_plan(ctx, O0())
    cuts = cut_points(ctx.layers, grouped)
    assert cuts < cut_points(ctx.layers, single) == frozenset(range(len(ctx.layers) + 1))
    for first, end in combinations(range(len(ctx.layers) + 1), 2):
        wished = tuple(0.0 if first <= layer < end else 10_000.0 for layer in range(len(ctx.layers)))
        found = divide(ctx, [column_of(ctx, grouped, wished), column_of(ctx, single, (5_000.0,) * len(ctx.layers))])
        assert all({part.first, part.end} <= cuts for part in found.parts if part.column == 0)


def test_cycles_of_layers_add_up_to_those_of_the_plan() -> None:
    ctx = context()
    for level in LEVELS:
        plan = make_plan(ctx, planner_of(level))
        cycles = expected_layer_cycles(ctx, plan, plan_cycles(plan, ctx), 12_345.0)
        assert len(cycles) == len(ctx.layers)
        assert sum(cycles) == pytest.approx(12_345.0)
