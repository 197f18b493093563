"""Level streamed: rows over the cores, each constant once from the main memory and once to all cores together."""

from __future__ import annotations

from functools import cache

import pytest

from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from isched.hazards.verify_program import verify_program
from isched.lowering.lower import lower_layout
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.traffic import Traffic, plan_traffic
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Plan, parse_plan
from partitioner.ir.regions import full_box
from partitioner.ir.steps import MoveStep, RunStep
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import FOR_CONSTANTS_AHEAD, FOR_SCHEDULING, PLAIN, LayoutOptions, MoveLayout
from partitioner.planners.levels import Streamed, planner_of
from partitioner.planners.registry import make_plan
from partitioner.planners.streamed import streamed_cycles
from tests.chip_runs import Bits, Compiled, small_chip, stcp920
from tests.movement_graphs import MovementBuilder
from tests.small_graphs import GraphBuilder, patches_before_large_values

CORES = 8
WIDTH, HIDDEN = 768, 3072


def feed_forward(items: int, rows: int, width: int, hidden: int, seed: int = 0) -> tuple[Graph, Constants]:
    """What surrounds the hidden values of an encoder layer: they are read with what they were made of, and the sum is
    read once more."""
    b = GraphBuilder("feed_forward", seed)
    x = b.elementwise("relu", b.input("x", items, rows, width))
    inner = b.elementwise("relu", b.matmul(x, b.normal(width, hidden, scale=0.05)))
    summed = b.elementwise("add", b.matmul(inner, b.normal(hidden, width, scale=0.05)), x)
    return b.build(b.matmul(summed, b.normal(width, width, scale=0.05)))


def context(graph: Graph, constants: Constants, chip: Chip) -> PlanContext:
    return Context(graph, constants, chip, TARGET)


@cache
def of_bert_base() -> PlanContext:
    """One text of 128 words a core."""
    return context(*feed_forward(CORES, 128, WIDTH, HIDDEN), stcp920())


@cache
def planned(level: str) -> Plan:
    return make_plan(of_bert_base(), planner_of(level))


def traffic_of(ctx: PlanContext, level: str) -> Traffic:
    plan = make_plan(ctx, planner_of(level))
    return plan_traffic(plan, lay_out(plan, ctx, FOR_SCHEDULING), ctx)


def traffic(level: str, options: LayoutOptions = FOR_SCHEDULING) -> Traffic:
    plan = planned(level)
    return plan_traffic(plan, lay_out(plan, of_bert_base(), options), of_bert_base())


def weights(graph: Graph) -> tuple[str, ...]:
    return tuple(op.inputs[1] for op in graph.ops if op.kind == "matmul")


def test_each_core_takes_its_rows_of_all_channels() -> None:
    runs = [step for step in planned("streamed").steps if isinstance(step, RunStep)]
    assert {step.binding.pieces for step in runs} == {(CORES, 1, 1)}


@pytest.mark.parametrize("options", [FOR_SCHEDULING, FOR_CONSTANTS_AHEAD])
def test_each_weight_comes_once_from_the_main_memory_and_once_to_each_core(options: LayoutOptions) -> None:
    graph, moved = of_bert_base().graph, traffic("streamed", options)
    to_cores = dict.fromkeys(weights(graph), 0)
    for part in moved.parts:
        for move in part.moves:
            if move.way == ("LLB", "L1") and move.tensor in to_cores:
                to_cores[move.tensor] += move.size_bytes
    sizes = {name: graph.by_name[name].size_bytes for name in weights(graph)}
    assert {name: moved.loaded_bytes[name] for name in sizes} == sizes
    assert to_cores == {name: CORES * size for name, size in sizes.items()}


def test_every_product_finds_its_rows_on_its_core_made_there_or_copied_first() -> None:
    plan, graph = planned("streamed"), of_bert_base().graph
    local = {plan.group_by_name[s.group].output for s in plan.steps if isinstance(s, RunStep) and s.scope == "L1"}
    copies = {(step.group, step.tensor): step for step in plan.steps if isinstance(step, MoveStep)}
    products = [op for op in graph.ops if op.kind == "matmul"]
    elsewhere = {(op.name, op.inputs[0]) for op in products if op.inputs[0] not in local}
    assert elsewhere, "hidden values and both of what stands around them do not fit a core together"
    assert elsewhere == copies.keys()
    assert {step.kind for step in copies.values()} == {"copy"}
    reasons = {d.subject: d.reason for d in plan.decisions if d.verdict.startswith("reads ")}
    assert reasons == {name: "1.50 MiB that it would load again for each part of its channels" for name, _ in copies}


def test_less_moves_than_at_o2() -> None:
    streamed, other = traffic("streamed"), traffic("O2")
    assert streamed.main_bytes() <= other.main_bytes()
    assert 2 * streamed.by_way["LLB", "L1"] < other.by_way["LLB", "L1"]


def test_a_copy_that_finds_no_room_is_not_made() -> None:
    """The same with so little room on a core that no part of the wide layer's input could wait there."""
    graph, constants = feed_forward(4, 64, 128, 512)
    ctx = context(graph, constants, small_chip(4, data_bytes=80 << 10, llb_bytes=1 << 20))
    plan = make_plan(ctx, Streamed())
    lay_out(plan, ctx)
    lay_out(plan, ctx, FOR_SCHEDULING)


def test_constants_are_hidden_behind_products_but_do_not_come_faster_than_the_main_memory_gives_them() -> None:
    ctx = of_bert_base()
    wide = next(layer for layer in ctx.layers if layer.anchor(ctx.graph).kind == "matmul")
    box = full_box(ctx.graph.by_name[wide.output].shape)
    name = next(name for name in wide.inputs(ctx.graph) if name in weights(ctx.graph))
    rate = ctx.chip.memory("DDR").bandwidth_bytes_per_cycle
    assert rate is not None
    from_main = ctx.graph.by_name[name].size_bytes / rate
    (low, _), *rest = box
    few = streamed_cycles(ctx, wide, ((low, low + 1), (0, 1), *rest[1:]))
    assert from_main <= few < 1.1 * from_main, "one row: the constants alone take time"
    each = [streamed_cycles(ctx, wide, ((low, low + items), *rest)) for items in (1, 2, 4)]
    assert each == sorted(each)
    assert each[2] > 2 * from_main, "many rows: the products do"


@cache
def of_two_texts_a_core() -> tuple[PlanContext, Plan]:
    """Hidden values of 256 rows a core, 1.5 MiB, find no room there."""
    ctx = context(*feed_forward(2 * CORES, 128, WIDTH, HIDDEN), stcp920())
    return ctx, make_plan(ctx, Streamed())


def test_hidden_values_without_room_stay_in_the_cores_for_half_of_the_rows_at_a_time() -> None:
    ctx, plan = of_two_texts_a_core()
    wide, narrow, _ = (op for op in ctx.graph.ops if op.kind == "matmul")
    (group,) = [group for group in plan.groups if len(group.layers) > 1]
    assert [layer.name for layer in group.layers] == [wide.name, narrow.name]
    assert group.split.cuts == ((0, (0, CORES, 2 * CORES)),)
    runs = [step for step in plan.steps if isinstance(step, RunStep) and step.group == group.name]
    assert [(step.instance, step.box[0]) for step in runs] == [(0, (0, CORES)), (1, (CORES, 2 * CORES))]
    (said,) = [d for d in plan.decisions if d.subject == group.name and "instances" in d.verdict]
    assert said.verdict == f"2 instances with {wide.name}"
    assert said.reason == f"12 MiB of {group.layers[0].output} stay in L1; 9.01 MiB of constants are loaded 2 times"
    assert parse_plan(str(plan)) == plan


def test_no_other_value_goes_to_the_main_memory() -> None:
    ctx, plan = of_two_texts_a_core()
    moved = plan_traffic(plan, lay_out(plan, ctx, FOR_SCHEDULING), ctx)
    assert set(moved.stored_bytes) == set(ctx.graph.outputs)
    loaded = {name for name in moved.loaded_bytes if not ctx.graph.by_name[name].constant}
    assert loaded == set(ctx.graph.inputs)
    assert moved.main_bytes() < 0.7 * traffic_of(ctx, "O2").main_bytes()


def test_where_weights_are_more_than_hidden_values_the_rows_are_not_cut() -> None:
    """One row a core: the hidden values find no room only because the cores have none."""
    ctx = context(*feed_forward(4, 1, 256, 2048), small_chip(4, data_bytes=4 << 10, llb_bytes=48 << 10))
    assert all(len(group.layers) == 1 for group in make_plan(ctx, Streamed()).groups)


def stored(
    graph: Graph, constants: Constants, chip: Chip, level: str, options: LayoutOptions = PLAIN
) -> dict[str, Bits]:
    ctx = Context(graph, constants, chip, TARGET)
    plan = make_plan(ctx, planner_of(level))
    program = lower_layout(lay_out(plan, ctx, options), ctx, TARGET.data_base_bytes)
    verify_program(program, chip)
    made = Compiled(graph, constants, chip, plan, program)
    return made.run(made.inputs(seed=3), seed=5)


@pytest.mark.parametrize("data_kib", [1024, 96, 48])
def test_values_are_those_of_o0(data_kib: int) -> None:
    check_values(
        feed_forward(4, 24, 64, 256, seed=data_kib), small_chip(4, data_bytes=data_kib << 10, llb_bytes=1 << 18)
    )


@pytest.mark.parametrize(("items", "rows", "axis"), [(8, 64, 0), (4, 129, 1)])
def test_values_of_rows_in_several_instances_are_those_of_o0(items: int, rows: int, axis: int) -> None:
    chip = small_chip(4, data_bytes=160 << 10, llb_bytes=400 << 10)
    graph, constants = feed_forward(items, rows, 128, 640, seed=rows)
    plan = make_plan(context(graph, constants, chip), Streamed())
    assert [group.split.cuts[0][0] for group in plan.groups if group.split.cuts] == [axis]
    check_values((graph, constants), chip)


def encoder_layer(items: int, rows: int, width: int, heads: int) -> tuple[Graph, Constants]:
    """Attention with the products around it, and the sum with what it reads."""
    b = MovementBuilder("encoder_layer")
    x = b.elementwise("relu", b.input("x", items, rows, width))
    query, key, value = (b.matmul(x, b.normal(width, width, scale=width**-0.5)) for _ in range(3))
    joined = b.attend(query, key, value, heads=heads, groups=heads)
    summed = b.elementwise("add", b.matmul(joined, b.normal(width, width, scale=width**-0.5)), x)
    return b.build(b.matmul(summed, b.normal(width, width, scale=0.1)))


@pytest.mark.parametrize(
    ("data_kib", "llb_kib", "points", "left"),
    [(40, 96, (0, 32, 64, 96, 128), 0), (44, 128, (0, 64, 128), 2), (36, 160, (0, 64, 128), 3)],
)
@pytest.mark.commit
def test_keys_and_values_without_room_are_made_some_heads_at_a_time(
    data_kib: int, llb_kib: int, points: tuple[int, ...], left: int
) -> None:
    """Each weight comes once all the same; what the cores have no room for is `left` in the staging memory."""
    chip = small_chip(4, data_bytes=data_kib << 10, llb_bytes=llb_kib << 10)
    graph, constants = encoder_layer(8, 32, 128, 4)
    ctx = context(graph, constants, chip)
    plan = make_plan(ctx, Streamed())
    (group,) = [group for group in plan.groups if group.split.cuts]
    assert group.layers[-1].anchor(graph).kind == "attend"
    assert group.split.cuts == ((2, points),)
    assert [(spill.scope, spill.tensor in graph.producer) for spill in group.spills] == [("LLB", True)] * left
    (said,) = [d for d in plan.decisions if d.subject == group.name and "instances" in d.verdict]
    assert said.reason.endswith("of constants are loaded once")
    assert parse_plan(str(plan)) == plan
    moved = plan_traffic(plan, lay_out(plan, ctx, FOR_SCHEDULING), ctx)
    inside = {name for layer in group.layers for name in layer.inputs(graph) if graph.by_name[name].constant}
    assert {name: moved.loaded_bytes[name] for name in inside} == {n: graph.by_name[n].size_bytes for n in inside}
    assert not {layer.output for layer in group.layers} & (moved.stored_bytes.keys() | moved.loaded_bytes.keys())
    check_values((graph, constants), chip)


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("items", "rows", "width", "heads", "cores", "data_kib", "llb_kib"),
    [(1, 64, 128, 4, 4, 16, 48), (1, 96, 128, 8, 4, 24, 24)],
)
def test_values_that_cores_handed_to_each_other_are_made_where_they_are_read_in_instances(
    items: int, rows: int, width: int, heads: int, cores: int, data_kib: int, llb_kib: int
) -> None:
    """Before the layers were put together, keys or values went from core to core; inside there is nothing to hand."""
    chip = small_chip(cores, data_bytes=data_kib << 10, llb_bytes=llb_kib << 10)
    graph, constants = encoder_layer(items, rows, width, heads)
    plan = make_plan(context(graph, constants, chip), Streamed())
    inside = {layer.output for group in plan.groups for layer in group.layers[:-1]}
    assert inside
    assert not [step for step in plan.steps if isinstance(step, MoveStep) and step.tensor in inside]
    check_values((graph, constants), chip)


def test_rows_that_windows_of_two_instances_read_are_made_twice() -> None:
    """A 1x1 convolution that makes many channels, and a 3x3 one that reads them: a row on each side again."""
    builder = GraphBuilder("windows")
    wide = builder.conv(builder.input("x", 4, 32, 32, 8), 48, (1, 1), pads=(0, 0, 0, 0))
    graph, constants = builder.build(builder.conv(wide, 8, (3, 3)))
    chip = small_chip(4, data_bytes=64 << 10, llb_bytes=128 << 10)
    plan = make_plan(context(graph, constants, chip), Streamed())
    (group,) = plan.groups
    assert group.split.cuts == ((1, (0, 16, 32)),)
    check_values((graph, constants), chip)


@pytest.mark.nightly
def test_patches_come_once_to_room_that_no_value_takes_yet() -> None:
    graph, constants = patches_before_large_values()
    chip = small_chip(8, 96 << 10, 64 << 10, 64 << 10, 256 << 10)
    ctx = context(graph, constants, chip)
    plan = make_plan(ctx, Streamed())
    layout = lay_out(plan, ctx, FOR_CONSTANTS_AHEAD)
    first, *others = (entry for step in layout.steps if not isinstance(step, MoveLayout) for entry in step)
    ((low, size),) = {entry.staging for entry in others}
    assert sum(first.staging) <= low
    assert first.staging[1] > size
    moved = plan_traffic(plan, layout, ctx)
    read = first.layer.inputs(graph)
    assert {name: moved.loaded_bytes[name] for name in read} == {name: graph.by_name[name].size_bytes for name in read}
    check_values((graph, constants), chip, FOR_CONSTANTS_AHEAD)


def check_values(network: tuple[Graph, Constants], chip: Chip, options: LayoutOptions = PLAIN) -> None:
    graph, constants = network
    first, other = (stored(graph, constants, chip, level, options) for level in ("O0", "streamed"))
    (output,) = graph.outputs
    assert (first[output] == other[output]).all()
