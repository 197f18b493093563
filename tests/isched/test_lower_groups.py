"""Whole instances through the chip: values that stay local, halos, exchanges, moves; always the bits of O0."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen.neuralscale.target import TARGET
from hw_models.errors import DoesNotFit, PlanError
from hw_models.infeasible import Infeasible, LayerSubject, Lever, ValueSubject
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Group, Plan, Split
from partitioner.ir.steps import Binding, MoveKind, MoveStep, RunStep, Step
from partitioner.memory.memory_plan import fit_layout, lay_out
from partitioner.memory.memory_plan_types import MoveLayout
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip
from tests.group_plans import check_against_o0, one_group
from tests.small_graphs import GraphBuilder

KIB = 1024


def residual(batch: int = 2, extent: int = 12) -> tuple[Graph, Constants]:
    """Three convolutions of 3x3 with a residual from the first, then a fourth."""
    builder = GraphBuilder("residual")
    x = builder.input("x", batch, extent, extent, 16)
    first = builder.elementwise("relu", builder.conv(x, 32))
    second = builder.elementwise("relu", builder.conv(first, 32))
    third = builder.elementwise("relu", builder.elementwise("add", builder.conv(second, 32), first))
    return builder.build(builder.conv(third, 16))


INNER = ("relu1.out", "relu3.out", "relu6.out")


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("cuts", "pieces", "exchanged"),
    [
        ({0: 2}, (1, 4, 1, 1), ()),
        ({}, (2, 4, 1, 1), ()),
        ({1: 3}, (2, 4, 1, 1), ()),
        ({0: 2, 1: 2}, (1, 4, 1, 1), ()),
        ({}, (2, 4, 1, 1), INNER),
        ({}, (1, 1, 2, 4), INNER),
        ({}, (1, 1, 1, 8), INNER),
        ({}, (2, 1, 2, 2), ()),
        ({1: 5}, (1, 3, 1, 1), INNER[1:]),
    ],
)
def test_one_group_computes_what_its_layers_compute(
    cuts: dict[int, int], pieces: tuple[int, ...], exchanged: tuple[str, ...]
) -> None:
    graph, constants = residual()
    chip = small_chip()
    check_against_o0(graph, constants, chip, one_group(graph, constants, chip, cuts, pieces, exchanged))


@pytest.mark.spread(2)
@pytest.mark.parametrize("scope", ["LLB", "DDR"])
@pytest.mark.parametrize(
    ("cuts", "pieces", "spilled"),
    [
        ({}, (2, 4, 1, 1), INNER[:1]),
        ({1: 3}, (2, 4, 1, 1), INNER[1:2]),
        ({0: 2, 1: 2}, (1, 4, 1, 1), INNER),
        ({}, (1, 1, 1, 8), INNER),
    ],
)
def test_spilled_values_change_no_bit(
    cuts: dict[int, int], pieces: tuple[int, ...], spilled: tuple[str, ...], scope: str
) -> None:
    """Halos too: cores read from the shared memory what others computed."""
    graph, constants = residual()
    chip = small_chip()
    plan = one_group(graph, constants, chip, cuts, pieces, spilled=dict.fromkeys(spilled, scope))
    check_against_o0(graph, constants, chip, plan)
    layout = lay_out(plan, PlanContext(graph, {}, chip, TARGET))
    whole = lay_out(one_group(graph, constants, chip, cuts, pieces, spilled), PlanContext(graph, {}, chip, TARGET))
    assert layout.peaks["L1"] < whole.peaks["L1"]


def test_spilled_beside_exchanged_values() -> None:
    graph, constants = residual()
    chip = small_chip()
    plan = one_group(graph, constants, chip, {1: 3}, (2, 4, 1, 1), INNER[1:2], {INNER[0]: "LLB", INNER[2]: "DDR"})
    check_against_o0(graph, constants, chip, plan)


def test_only_what_stays_inside_can_be_spilled_and_only_to_a_shared_memory() -> None:
    graph, constants = residual()
    for spilled in ({graph.outputs[0]: "LLB"}, {INNER[0]: "L1"}, {"nothing": "LLB"}):
        with pytest.raises(PlanError, match="group all: needs a value of its own and one of DDR, LLB to spill it to"):
            one_group(graph, constants, small_chip(), {}, (2, 4, 1, 1), spilled=spilled)


def test_views_and_the_end_of_a_network_inside_a_group() -> None:
    builder = GraphBuilder("classifier")
    x = builder.input("x", 4, 6, 6, 8)
    features = builder.elementwise("relu", builder.conv(x, 16))
    pooled = builder.pool("average_pool", features, (6, 6))
    graph, constants = builder.build(builder.matmul(builder.view(pooled, 4, 16), builder.normal(16, 10)))
    chip = small_chip(cores=4)
    for cuts, pieces in (({0: 2}, (2, 1)), ({}, (4, 1)), ({0: 4}, (1, 2))):
        check_against_o0(graph, constants, chip, one_group(graph, constants, chip, cuts, pieces))


def two_groups(
    graph: Graph, constants: Constants, kind: MoveKind | None, cores: tuple[int, ...], scope: str = "L1"
) -> Plan:
    """The first two layers in two instances, the others in one whose cores read what lies elsewhere."""
    chip = small_chip()
    base = make_plan(PlanContext(graph, constants, chip, TARGET))
    layers = tuple(layer for group in base.groups for layer in group.layers)
    shape = graph.by_name[layers[1].output].shape
    first = Group("first", layers[:2], Split(((0, (0, 1, 2)),)))
    second = Group("second", layers[2:])
    steps: list[Step] = [
        RunStep("first", n, ((n, n + 1), *((0, e) for e in shape[1:])), scope, Binding((1, 4, 1, 1), (0, 1, 2, 3)))
        for n in range(2)
    ]
    whole = tuple((0, e) for e in graph.by_name[second.output].shape)
    binding = Binding((2, 2, 1, 1), cores)
    if kind:
        box = tuple((0, e) for e in shape)
        steps.append(MoveStep(kind, "second", 0, box, "L1", binding, tensor=layers[1].output))
    steps.append(RunStep("second", 0, whole, "DDR", binding))
    return replace(base, groups=(first, second), steps=tuple(steps))


def chain() -> tuple[Graph, Constants]:
    builder = GraphBuilder("chain")
    x = builder.input("x", 2, 12, 12, 16)
    for channels in (24, 16, 16):
        x = builder.elementwise("relu", builder.conv(x, channels))
    return builder.build(x)


@pytest.mark.parametrize("cores", [(0, 1, 2, 3), (3, 1, 0, 2), (4, 5, 6, 7)])
def test_a_move_gathers_from_cores_and_instances(cores: tuple[int, ...]) -> None:
    graph, constants = chain()
    plan = two_groups(graph, constants, "concat", cores)
    layout = lay_out(plan, PlanContext(graph, {}, small_chip(), TARGET))
    assert isinstance(layout.steps[2], MoveLayout)
    check_against_o0(graph, constants, small_chip(), plan, two_groups(graph, constants, "copy", cores, "LLB"))


def test_what_waits_in_shared_memory_is_read_from_there() -> None:
    graph, constants = chain()
    for scope in ("LLB", "DDR"):
        check_against_o0(graph, constants, small_chip(), two_groups(graph, constants, None, (0, 1, 2, 3), scope))


def test_pinned_constants_are_loaded_once() -> None:
    graph, constants = residual()
    chip = small_chip()
    plan = one_group(graph, constants, chip, {1: 4}, (2, 4, 1, 1))
    pinned = replace(plan, pinned=tuple(t.name for t in graph.tensors if t.constant))
    check_against_o0(graph, constants, chip, pinned)


def test_a_reader_whose_data_lie_elsewhere_is_refused() -> None:
    graph, constants = chain()
    plan = two_groups(graph, constants, None, (4, 5, 6, 7))
    with pytest.raises(PlanError, match=r"instance 0 of group second: needs relu3\.out in the memories of its cores"):
        lay_out(plan, PlanContext(graph, {}, small_chip(), TARGET))


def test_values_that_find_no_room_are_named_with_who_holds_it() -> None:
    graph, constants = residual()
    chip = small_chip(data_bytes=8 * KIB)
    plan = one_group(graph, constants, chip, {1: 4}, (2, 4, 1, 1))
    with pytest.raises(DoesNotFit) as refusal:
        lay_out(plan, PlanContext(graph, {}, chip, TARGET))
    assert str(refusal.value).splitlines() == [
        "value relu3.out: needs 10.50 KiB of L1 (data buffer); has 8 KiB (2.50 KiB too few); change one of: more "
        "instances or smaller groups, a chip with more L1",
        "  held in L1 (data buffer) at that moment: 10.50 KiB",
        "  relu1.out  4.50 KiB  from conv0 (instance 0 of 4) to conv4 (instance 0 of 4)",
        "  relu3.out  3.75 KiB  from conv2 (instance 0 of 4) to conv4 (instance 0 of 4)",
        "  relu6.out  2.25 KiB  from conv4 (instance 0 of 4) to conv7 (instance 0 of 4)",
    ]


def test_a_layout_that_is_only_tried_tells_what_lacks_room_by_fields() -> None:
    graph, constants = residual()
    chip = small_chip(data_bytes=8 * KIB)
    found = fit_layout(
        one_group(graph, constants, chip, {1: 4}, (2, 4, 1, 1)), PlanContext(graph, constants, chip, TARGET)
    )
    assert isinstance(found, Infeasible)
    assert found.subject == ValueSubject("relu3.out")
    assert (found.memory, found.part, found.demand_bytes, found.room_bytes) == ("L1", "data", 10752, 8192)
    assert found.levers == (Lever.FINER_CUT, Lever.LARGER_MEMORY)
    assert {holder.name for holder in found.holders} == {"relu1.out", "relu3.out", "relu6.out"}
    chip = small_chip(data_bytes=11520)
    found = fit_layout(
        one_group(graph, constants, small_chip(), {1: 4}, (2, 4, 1, 1)), PlanContext(graph, constants, chip, TARGET)
    )
    assert isinstance(found, Infeasible)
    assert isinstance(found.subject, LayerSubject)
    assert found.subject.smallest_tile
    assert found.slot is not None


def test_a_tile_that_finds_no_room_says_what_is_held_beside_it() -> None:
    graph, constants = residual()
    plan = one_group(graph, constants, small_chip(), {1: 4}, (2, 4, 1, 1))
    chip = small_chip(data_bytes=11520)
    with pytest.raises(DoesNotFit, match=r"layer conv.* \(smallest tile\): needs") as refusal:
        lay_out(plan, PlanContext(graph, {}, chip, TARGET))
    held = str(refusal.value).splitlines()[1:]
    assert held[0].startswith("  held in L1 (data buffer) at that moment: ")
    assert held[1].startswith("  relu1.out  ")
