"""Plans: what verification refuses, and which operators become one layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from codegen.neuralscale.target import TARGET
from hw_models.errors import ModelError, PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer, group_layers
from partitioner.ir.plan import Exchange, Plan, Spill, Split, parse_plan
from partitioner.ir.steps import MOVES, Binding, MoveStep, RunStep, Step, ViewStep
from partitioner.ir.text import TextError
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import stcp920
from tests.small_graphs import GraphBuilder


def network() -> tuple[Graph, Plan]:
    builder = GraphBuilder("network")
    x = builder.input("x", 1, 12, 12, 8)
    first = builder.elementwise("relu", builder.conv(x, 8))
    graph, constants = builder.build(builder.elementwise("add", builder.conv(first, 8), first))
    return graph, make_plan(PlanContext(graph, constants, stcp920(), TARGET))


def run_of(plan: Plan, position: int) -> RunStep:
    step = plan.steps[position]
    assert isinstance(step, RunStep)
    return step


def move_to(plan: Plan, position: int) -> MoveStep:
    """Brings what the first group makes to the cores of a step."""
    reader, made = run_of(plan, position), plan.groups[0].output
    return MoveStep("copy", reader.group, reader.instance, plan.steps[0].box, "L1", reader.binding, made)


FAULTS: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "a layer missing": (lambda p: replace(p, groups=p.groups[:1]), "every operator once.*conv2"),
    "a layer twice": (lambda p: replace(p, groups=(*p.groups, p.groups[0])), "every operator once.*conv0"),
    "a step missing": (lambda p: replace(p, steps=p.steps[:1]), "every instance of every group once"),
    "instances that no step runs": (
        lambda p: replace(p, groups=(replace(p.groups[0], split=Split(((1, (0, 6, 12)),))), *p.groups[1:])),
        "every instance of every group once",
    ),
    "the wrong order": (
        lambda p: replace(p, steps=p.steps[::-1]),
        "group conv2, core 0: needs .* of relu1.out, which conv2 reads; has none of it",
    ),
    "a core too many": (
        lambda p: replace(p, steps=(replace(run_of(p, 0), binding=Binding((1, 1, 1, 1), (8,))), *p.steps[1:])),
        "cores below 8",
    ),
    "an exchange of more pieces than cores": (
        lambda p: replace(
            p,
            groups=(replace(p.groups[0], exchanges=(Exchange("conv0.out", (1, 3, 3, 1)),)), *p.groups[1:]),
        ),
        "a core for each of 9 pieces of conv0.out; has",
    ),
    "a move for an instance that there is not": (
        lambda p: replace(p, steps=(*p.steps, replace(move_to(p, 1), instance=7))),
        "copy relu1.out: needs an instance that runs after it; has instance 7 of group conv2",
    ),
    "a move behind its reader": (
        lambda p: replace(p, steps=(*p.steps, move_to(p, 1))),
        "copy relu1.out: needs an instance that runs after it; has instance 0 of group conv2",
    ),
    "an unknown memory": (
        lambda p: replace(p, steps=(replace(p.steps[0], scope="L9"), *p.steps[1:])),
        "a memory of stcp920.*L9",
    ),
}


@pytest.mark.parametrize(("damage", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_damaged_plans_are_refused(damage: Callable[[Plan], Plan], message: str) -> None:
    graph, plan = network()
    verify_plan(plan, PlanContext(graph, {}, stcp920(), TARGET))
    with pytest.raises(PlanError, match=message):
        verify_plan(damage(plan), PlanContext(graph, {}, stcp920(), TARGET))


def test_text_round_trip_and_decisions() -> None:
    _, plan = network()
    assert parse_plan(str(plan)) == plan
    subjects = {decision.subject for decision in plan.decisions}
    assert {"relu1", "add3", "conv0", "conv2"} <= subjects


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "plan line first"), ("plan name=1", "plan line first"), ("layer name=3", "line 1.*complete layer line"),
     ("step x=1", "line 1.*plan, group, layer"),
     ('view group="v" instance=1 box=[[0, 4]] scope="DDR" pieces=[1] cores=[0]', "line 1.*a view has instance 0"),
     ('view group="v" instance=0 box=[[0, 4]] scope="DDR" pieces=[1] cores=[7]', "one piece on core 0"),
     ('run group="r" instance=0 box=[[0, 4]] scope="DDR" pieces=[1] cores=[0] tensor="x"', "a run has no tensor"),
     ('copy group="c" instance=0 box=[[0, 4]] scope="L1" pieces=[1] cores=[0]', "complete copy line.*tensor")],
)  # fmt: skip
def test_damaged_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(TextError, match=message):
        parse_plan(text)


def test_every_kind_of_step_and_exchange_is_read_back() -> None:
    _, plan = network()
    box, binding = ((0, 1), (0, 8)), Binding((1, 2), (3, 0))
    steps: tuple[Step, ...] = (
        RunStep("g", 2, box, "LLB", binding, (("side", "DDR"),)),
        *(MoveStep(kind, "g", 0, box, "L1", binding, "x") for kind in MOVES),
        ViewStep("v", box, "DDR"),
    )
    kept = (Exchange("a", (1, 2)), Spill("b", (2, 1), "LLB"))
    odd = replace(plan, groups=(replace(plan.groups[0], exchanges=kept),), steps=steps)
    assert parse_plan(str(odd)) == odd
    assert odd.groups[0].spills == kept[1:]


def layers_of(builder: GraphBuilder, *outputs: str) -> list[tuple[str, ...]]:
    graph, _ = builder.build(*outputs)
    return [layer.ops for layer in group_layers(graph, TARGET.can_fuse_epilogue)[0]]


def test_an_operator_joins_the_layer_of_its_latest_operand() -> None:
    builder = GraphBuilder("diamond")
    x = builder.input("x", 1, 6, 6, 8)
    a, b = builder.conv(x, 8), builder.conv(x, 8)
    total = builder.elementwise("relu", builder.elementwise("add", a, b))
    assert layers_of(builder, total) == [("conv0",), ("conv1", "add2", "relu3")]


def test_what_is_stored_anyway_is_not_fused() -> None:
    builder = GraphBuilder("stored")
    x = builder.input("x", 1, 6, 6, 8)
    read_twice = builder.conv(x, 8)
    first, second = builder.elementwise("relu", read_twice), builder.elementwise("neg", read_twice)
    output = builder.conv(x, 8)
    third = builder.elementwise("relu", output)
    assert layers_of(builder, first, second, output, third) == [
        ("conv0",),
        ("relu1",),
        ("neg2",),
        ("conv3",),
        ("relu4",),
    ]


def test_a_broadcast_value_is_in_no_epilogue_of_its_producer() -> None:
    builder = GraphBuilder("gate")
    x = builder.input("x", 1, 6, 6, 8)
    gate = builder.elementwise("sigmoid", builder.pool("average_pool", x, (6, 6)))
    y = builder.elementwise("mul", x, gate)
    assert layers_of(builder, y) == [("average_pool0", "sigmoid1"), ("mul2",)]


def test_the_layer_knows_what_it_reads() -> None:
    graph, plan = network()
    layer = plan.groups[1].layers[0]
    assert layer == Layer("conv2", ("conv2", "add3"), "add3.out")
    assert layer.inputs(graph) == ("relu1.out", "conv2.w", "conv2.b")


def test_all_operators_that_cannot_be_computed_are_listed_at_once() -> None:
    builder = GraphBuilder("unsupported")
    x = builder.input("x", 1, 6, 6, 8)
    y = builder.elementwise("relu", x)
    graph, constants = builder.build(y)
    odd = tuple(Op(f"odd{i}", kind, (x,), (f"o{i}",), (), graph.ops[0].stages, 0, kind.title())
                for i, kind in enumerate(("erosion", "gather")))  # fmt: skip
    tensors = (*graph.tensors, *(replace(graph.by_name[y], name=f"o{i}") for i in range(2)))
    with pytest.raises(ModelError, match=r"odd0 \(Erosion of \[1, 8, 6, 6\]\): no template(.|\n)*odd1 \(Gather"):
        make_plan(PlanContext(replace(graph, ops=(*graph.ops, *odd), tensors=tensors), constants, stcp920(), TARGET))
