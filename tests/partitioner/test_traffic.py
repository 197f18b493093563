"""The traffic of a plan is what the simulator counts when the lowered program runs, way by way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import pytest

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import UserError
from isched.hazards.verify_program import verify_program
from isched.lowering.lower import lower_layout
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.traffic import Traffic, plan_traffic
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Exchange, Group, Plan, Spill, Split
from partitioner.ir.steps import Binding, MoveStep, RunStep, Step
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import FOR_SCHEDULING, PLAIN, LayoutOptions
from partitioner.planners.levels import LEVELS, planner_of
from partitioner.planners.registry import make_plan
from partitioner.tiling.core_regions import instance_box
from partitioner.tiling.tile_loads import relay
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import Compiled, small_chip
from tests.partition_graphs import Seeded, random_chip, random_graph
from tests.small_graphs import GraphBuilder

Pieces = tuple[int, ...]
ALL_ROWS: Pieces = (2, 4, 1, 1)


def residual(batch: int = 2, size: int = 12) -> tuple[Graph, Constants]:
    builder = GraphBuilder("residual")
    x = builder.input("x", batch, size, size, 16)
    first = builder.elementwise("relu", builder.conv(x, 32))
    second = builder.elementwise("relu", builder.conv(first, 32))
    third = builder.elementwise("relu", builder.elementwise("add", builder.conv(second, 32), first))
    return builder.build(builder.conv(third, 16))


def one_group(base: Plan, graph: Graph, axis: int, instances: int, pieces: Pieces, exchanged: bool = False) -> Plan:
    """All layers of a plan as one group, cut along an axis."""
    layers = tuple(layer for group in base.groups for layer in group.layers)
    extent = graph.by_name[layers[-1].output].shape[axis]
    points = tuple(extent * i // instances for i in range(instances + 1))
    exchanges = tuple(Exchange(layer.output, pieces) for layer in layers[:-1]) if exchanged else ()
    group = Group("all", layers, Split(((axis, points),)) if instances > 1 else Split(), exchanges)
    return replace(base, level="test", groups=(group,), steps=runs(graph, group, pieces, ["DDR"] * instances))


def runs(graph: Graph, group: Group, pieces: Pieces, scopes: Sequence[str]) -> tuple[RunStep, ...]:
    """One step an instance, on as many cores as there are pieces."""
    binding = Binding(pieces, tuple(range(prod(pieces))))
    return tuple(
        RunStep(group.name, i, instance_box(graph, group, group.output, i), scope, binding)
        for i, scope in enumerate(scopes)
    )


def two_groups(base: Plan, graph: Graph, scopes: Sequence[str]) -> Plan:
    """The first three layers an image at a time, on all cores; the last one for all images at once, four rows of cores
    each. Outputs wait where `scopes` says and are brought into the readers' memories."""
    layers = tuple(layer for group in base.groups for layer in group.layers)
    images = graph.by_name[layers[-1].output].shape[0]
    head = Group("head", layers[:-1], Split(((0, tuple(range(images + 1))),)))
    tail = Group("tail", layers[-1:])
    last = runs(graph, tail, ALL_ROWS, ["DDR"])[0]
    steps: list[Step] = list(runs(graph, head, (1, 4, 2, 1), scopes))
    if "DDR" not in scopes:
        steps.append(
            MoveStep("concat", "tail", 0, instance_box(graph, tail, tail.output, 0), "L1", last.binding, head.output)
        )
    return replace(base, level="test", groups=(head, tail), steps=(*steps, last))


def counted(
    graph: Graph, constants: Constants, chip: Chip, plan: Plan, options: LayoutOptions = PLAIN
) -> tuple[Traffic, Traffic, dict[str, int]]:
    """Traffic with and without the tiles, and what the simulator says."""
    ctx = Context(graph, constants, chip, TARGET)
    verify_plan(plan, ctx)
    layout = lay_out(plan, ctx, options)
    program = lower_layout(layout, ctx, TARGET.data_base_bytes)
    verify_program(program, chip)
    compiled = Compiled(graph, constants, chip, plan, program)
    place = {p.tensor: TARGET.address(p.memory, p.offset_bytes) for p in program.placements}
    loads = {place[name]: bits.tobytes() for name, bits in compiled.inputs().items()}
    moved = dict(TARGET.run(compiled.files, loads, (), 0).moved_bytes)
    return plan_traffic(plan, layout, ctx), plan_traffic(plan, layout, ctx, tiles=False), moved


def between_memories(traffic: Traffic) -> dict[str, int]:
    """The vector engine copies inside an L1, which no counter of the simulator sees."""
    return {f"{source}->{target}": size for (source, target), size in traffic.by_way.items() if source != target}


def check(graph: Graph, constants: Constants, chip: Chip, plan: Plan) -> Traffic:
    full, main_only, moved = counted(graph, constants, chip, plan)
    assert between_memories(full) == moved
    assert main_only.main_bytes() == full.main_bytes() == moved["DDR->LLB"] + moved["LLB->DDR"]
    assert main_only.loaded_bytes == full.loaded_bytes
    by_group = [size for ways in full.by_group.values() for size in ways.values()]
    assert sum(by_group) == sum(full.by_way.values())
    return full


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("batch", [1, 3])
def test_levels_move_what_the_simulator_counts(level: str, batch: int) -> None:
    graph, constants = residual(batch)
    chip = small_chip(4, 48 << 10, 24 << 10, 24 << 10, 160 << 10)
    check(graph, constants, chip, make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level)))


def test_random_networks_on_random_chips_move_what_the_simulator_counts() -> None:
    checked = 0
    for seed in range(7, 10):
        choose = Seeded(seed)
        graph, constants = random_graph(choose, 2)
        chip = random_chip(choose)
        for level in LEVELS:
            try:
                plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
            except UserError:  # too small a chip, or an operator that it lacks
                continue
            check(graph, constants, chip, plan)
            checked += 1
    assert checked >= 2 * len(LEVELS)


@pytest.mark.spread(3)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.commit
def test_a_layout_for_a_scheduler_moves_what_the_simulator_counts(level: str) -> None:
    """One broadcast serves all cores and is counted once by the simulator, so loads of tiles can only be more here."""
    graph, constants = residual(3)
    chip = small_chip(4, 48 << 10, 24 << 10, 24 << 10, 64 << 10)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
    full, main_only, moved = counted(graph, constants, chip, plan, FOR_SCHEDULING)
    ways = between_memories(full)
    assert ways.pop("LLB->L1") >= moved.pop("LLB->L1")
    assert ways.pop("LLB->IM", 0) >= moved.pop("LLB->IM", 0)
    assert ways == moved
    assert main_only.main_bytes() == full.main_bytes()


@pytest.mark.parametrize(
    ("axis", "instances", "pieces", "exchanged"),
    [
        (0, 1, ALL_ROWS, False),
        (0, 2, (1, 4, 1, 1), False),
        (1, 3, ALL_ROWS, False),
        (0, 1, ALL_ROWS, True),
        (0, 1, (1, 1, 2, 4), True),
        (0, 1, (1, 1, 1, 2), True),
    ],
)
@pytest.mark.commit
def test_one_group_moves_what_the_simulator_counts(axis: int, instances: int, pieces: Pieces, exchanged: bool) -> None:
    graph, constants = residual()
    chip = small_chip()
    plan = one_group(make_plan(PlanContext(graph, constants, chip, TARGET)), graph, axis, instances, pieces, exchanged)
    check(graph, constants, chip, plan)


@pytest.mark.parametrize("scopes", [("L1", "L1"), ("LLB", "L1"), ("LLB", "LLB"), ("DDR", "DDR")])
def test_outputs_that_wait_move_what_the_simulator_counts(scopes: tuple[str, ...]) -> None:
    """With both in L1 each core gives parts of two instances, from two places in its memory."""
    graph, constants = residual()
    chip = small_chip()
    traffic = check(
        graph, constants, chip, two_groups(make_plan(PlanContext(graph, constants, chip, TARGET)), graph, scopes)
    )
    (middle,) = {part.group for part in traffic.parts} - {"tail"}
    stays = traffic.by_group[middle].get(("LLB", "DDR"), 0)
    assert bool(stays) == (scopes == ("DDR", "DDR"))


@pytest.mark.parametrize("scope", ["LLB", "DDR"])
def test_spilled_values_move_as_the_simulator_counts(scope: str) -> None:
    """Written once, in disjoint pieces, by the cores, and read with halos."""
    graph, constants = residual()
    chip = small_chip()
    base = one_group(make_plan(PlanContext(graph, constants, chip, TARGET)), graph, 1, 2, ALL_ROWS)
    (group,) = base.groups
    name = group.layers[0].output
    spilled = replace(base, groups=(replace(group, exchanges=(Spill(name, ALL_ROWS, scope),)),))
    traffic = check(graph, constants, chip, spilled)
    stays = check(graph, constants, chip, base)
    assert traffic.by_way["L1", "LLB"] > stays.by_way["L1", "LLB"]
    assert (traffic.by_way["LLB", "DDR"] > stays.by_way["LLB", "DDR"]) == (scope == "DDR")


def test_what_waits_in_l1_arrives_bit_for_bit() -> None:
    graph, constants = residual()
    chip = small_chip()
    base = make_plan(PlanContext(graph, constants, chip, TARGET))
    outputs = []
    for plan in (base, two_groups(base, graph, ("L1", "L1"))):
        program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes)
        compiled = Compiled(graph, constants, chip, plan, program)
        place = {p.tensor: (TARGET.address(p.memory, p.offset_bytes), p.size_bytes) for p in program.placements}
        loads = {place[name][0]: bits.tobytes() for name, bits in compiled.inputs().items()}
        wanted = tuple(place[name] for name in graph.outputs)
        outputs.append(TARGET.run(compiled.files, loads, wanted, 0).memory)
    assert list(outputs[0].values()) == list(outputs[1].values())


def test_pinned_weights_come_once() -> None:
    graph, constants = residual()
    chip = small_chip()
    plan = one_group(make_plan(PlanContext(graph, constants, chip, TARGET)), graph, 1, 3, ALL_ROWS)
    pinned = replace(plan, pinned=tuple(tensor.name for tensor in graph.tensors if tensor.constant))
    traffic = {name: check(graph, constants, chip, each) for name, each in (("again", plan), ("once", pinned))}
    assert traffic["again"].main_bytes() > traffic["once"].main_bytes()
    for name in pinned.pinned:
        size = graph.by_name[name].size_bytes
        assert (traffic["again"].loaded_bytes[name], traffic["once"].loaded_bytes[name]) == (3 * size, size)
    assert traffic["once"].redundant_bytes < traffic["again"].redundant_bytes


def test_recomputed_macs_are_those_of_the_overlaps() -> None:
    """Two 3x3 convolutions, the second in two halves: the first computes two rows of 12 twice."""
    builder = GraphBuilder("pair")
    graph, constants = builder.build(builder.conv(builder.conv(builder.input("x", 1, 12, 12, 16), 16), 16))
    chip = small_chip(1)
    base = make_plan(PlanContext(graph, constants, chip, TARGET))
    whole = check(graph, constants, chip, one_group(base, graph, 1, 1, (1, 1, 1, 1)))
    halves = check(graph, constants, chip, one_group(base, graph, 1, 2, (1, 1, 1, 1)))
    row_macs = 12 * 16 * 9 * 16
    assert whole.recompute_share == 0
    assert sum(part.macs for part in halves.parts) - sum(part.macs for part in whole.parts) == 2 * row_macs
    assert halves.recompute_share == pytest.approx(2 / 24)
    assert halves.recompute_of(part for part in halves.parts if part.layer == "conv0") == pytest.approx(2 / 12)


def test_a_core_gives_several_boxes_each_from_its_own_place() -> None:
    whole = ((0, 4), (0, 8))
    givers = [(0, ((0, 2), (0, 4))), (1, ((0, 2), (4, 8))), (0, ((2, 4), (0, 4))), (1, ((2, 4), (4, 8)))]
    handed = relay(givers, [(0, ((0, 2), (0, 8))), (1, ((2, 4), (0, 8)))], whole, lambda count: 4 + count)
    assert handed.given == ((), (((0, 2), (4, 8)),), (((2, 4), (0, 4)),), ())
    assert handed.taken == ((((0, 2), (4, 8)),), (((2, 4), (0, 4)),))


def test_a_giver_whose_parts_lie_scattered_gives_all_around_them_in_few_runs() -> None:
    """Columns that cores own rows of: a run for each row and taker, or one for all."""
    whole = ((0, 64), (0, 8))
    rows = [(core, ((16 * core, 16 * core + 16), (0, 8))) for core in range(4)]
    columns = [(core, ((0, 64), (2 * core, 2 * core + 2))) for core in range(4)]
    handed = relay(rows, columns, whole, lambda count: 4 + count)
    assert handed.given == tuple((box,) for _, box in rows)
    assert handed.taken == tuple(
        tuple(((16 * other, 16 * other + 16), wanted) for other in range(4) if other != core)
        for core, (_, wanted) in columns
    )
    one = relay(rows, columns[:1], whole, lambda count: 4 + count)
    assert all(
        set(parts) <= {((low, high), (0, 2))} for (_, ((low, high), _)), parts in zip(rows, one.given, strict=True)
    )
    shared = [(core, ((0, 64), (0, 8))) for core in range(2)]  # both own all: neither writes what the other may
    assert relay(shared, columns, whole, lambda count: 4 + count).given == tuple(
        tuple(box for taker, box in columns if taker != core) for core in range(2)
    )
