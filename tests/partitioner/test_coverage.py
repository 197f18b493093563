"""Whole lines stay whole under any cut, and no plan is accepted in which a core reads what is not there.

softmax over rows -> conv 3x3, cut along rows      LRN over channels -> channels taken apart, cut along channels
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.neuralscale.target import TARGET, NeuralScaleTarget
from hw_models.errors import PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.ir.regions import Box
from partitioner.ir.steps import Binding, RunStep, Step
from partitioner.planners.levels import LEVELS, O3, planner_of
from partitioner.planners.registry import make_plan
from partitioner.verification.coverage import covered
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import small_chip, stcp920
from tests.group_plans import check_against_o0, one_group
from tests.movement_graphs import MovementBuilder


def softmax_over_rows() -> tuple[Graph, Constants]:
    b = MovementBuilder("softmax over rows")
    return b.build(b.conv(b.softmax(b.input("x", 1, 8, 8, 4), 1), 8))


def norm_over_channels() -> tuple[Graph, Constants]:
    """The norm's channels are read in parts by what follows."""
    b = MovementBuilder("norm over channels")
    normed = b.lrn(b.input("x", 1, 6, 6, 16), 5)
    return b.build(b.slice(normed, (0, 0, 0, 4), (1, 1, 1, 1), (1, 6, 6, 7)))


def softmax_that_leaves() -> tuple[Graph, Constants]:
    """The softmax is an output too: each core gives away only its part of the lines that it computes."""
    b = MovementBuilder("softmax that leaves")
    weights = b.softmax(b.input("x", 1, 8, 8, 4), 1)
    return b.build(weights, b.conv(weights, 8))


GRAPHS = (softmax_over_rows, norm_over_channels, softmax_that_leaves)


@pytest.mark.parametrize("network", GRAPHS)
@pytest.mark.parametrize("level", [level for level in LEVELS if level != "O0"])
@pytest.mark.commit
def test_every_level_computes_whole_lines(network: Callable[[], tuple[Graph, Constants]], level: str) -> None:
    graph, constants = network()
    for chip in (stcp920(), small_chip(4, data_bytes=8 << 10, llb_bytes=64 << 10)):
        check_against_o0(
            graph, constants, chip, make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
        )


@pytest.mark.spread(1)
@pytest.mark.parametrize("network", GRAPHS)
@pytest.mark.parametrize("exchanged", [False, True])
def test_any_cut_keeps_whole_lines(network: Callable[[], tuple[Graph, Constants]], exchanged: bool) -> None:
    graph, constants = network()
    inner = tuple(op.outputs[0] for op in graph.ops[:-1]) if exchanged else ()
    cuts: tuple[dict[int, int], ...] = ({}, {1: 2}, {1: 3, 2: 2}, {2: 4})
    pieces = ((1, 4, 1, 1), (1, 2, 2, 1), (1, 1, 1, 3), (1, 1, 1, 1))
    plans = [one_group(graph, constants, stcp920(), cut, piece, inner) for cut in cuts for piece in pieces]
    check_against_o0(graph, constants, stcp920(), *plans)


@dataclass(frozen=True, slots=True)
class Forgetful(NeuralScaleTarget):
    """The target as if its kernels could compute any part of a line."""

    def whole_axes(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        del graph, layer
        return ()


def test_without_whole_lines_the_plan_is_refused() -> None:
    graph, constants = softmax_over_rows()
    with pytest.raises(
        PlanError, match=r"layer softmax0: needs \[0:1, 0:8, .* of x for \[0:1, 0:2, .*a kernel that loads"
    ):
        make_plan(PlanContext(graph, constants, stcp920(), Forgetful()), O3())


def cut_plan() -> tuple[Graph, Plan]:
    b = MovementBuilder("cut")
    graph, constants = b.build(b.conv(b.conv(b.input("x", 1, 8, 8, 4), 8), 8))
    plan = make_plan(PlanContext(graph, constants, stcp920(), TARGET))
    first, second = plan.steps
    assert isinstance(first, RunStep)
    return graph, replace(plan, steps=(replace(first, binding=Binding((1, 2, 1, 1), (0, 1))), second))


def with_binding(step: Step, binding: Binding) -> RunStep:
    assert isinstance(step, RunStep)
    return replace(step, binding=binding)


DAMAGES: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "a step makes half of what is read": (
        lambda p: replace(p, steps=(replace(p.steps[0], box=((0, 1), (0, 4), (0, 8), (0, 8))), p.steps[1])),
        r"group conv1, core \d: needs \[.*\] of conv0.out, which conv1 reads; has \[0:1, 0:4, 0:8, 0:8\]",
    ),
    "an output has a gap": (
        lambda p: replace(p, steps=(p.steps[0], replace(p.steps[1], box=((0, 1), (0, 8), (0, 7), (0, 8))))),
        "all of the output conv1.out; has instances that leave a gap",
    ),
    "a piece without a core": (
        lambda p: replace(p, steps=(with_binding(p.steps[0], Binding((1, 2, 1, 1), (0,))), p.steps[1])),
        r"needs \[0:1, 0:8, 0:8, 0:8\] of conv0.out from its cores; has pieces that leave a gap",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_plans_with_gaps_are_refused(damage: Callable[[Plan], Plan], message: str) -> None:
    graph, plan = cut_plan()
    verify_plan(plan, PlanContext(graph, {}, stcp920(), TARGET))
    with pytest.raises(PlanError, match=message):
        verify_plan(damage(plan), PlanContext(graph, {}, stcp920(), TARGET))


spans = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda pair: (min(pair), max(pair)))
boxes = st.tuples(spans, spans, spans)


@settings(max_examples=200, deadline=None)
@given(box=boxes, parts=st.lists(boxes, max_size=5))
def test_cover_is_that_of_the_elements(box: Box, parts: list[Box]) -> None:
    def elements(of: Box) -> set[tuple[int, int, int]]:
        (a, b), (c, d), (e, f) = of
        return {(i, j, k) for i in range(a, b) for j in range(c, d) for k in range(e, f)}

    assert covered(box, parts) == (elements(box) <= set().union(*map(elements, parts)))
