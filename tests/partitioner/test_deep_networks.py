"""Networks of many equal layers: what is found out of one of them is not looked for again in the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from codegen.neuralscale.target import TARGET
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.steps import RunStep
from partitioner.memory import layer_rounds as layer_rounds_module
from partitioner.memory.layer_rounds import OutputCut, layer_rounds
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.core_binding import Binder
from partitioner.planners.levels import planner_of
from partitioner.planners.registry import make_plan
from partitioner.tiling.staging_traffic import StagedBytes
from tests.chip_runs import stcp920
from tests.small_graphs import GraphBuilder

FEW, MANY = 4, 9


def deep(layers: int) -> PlanContext:
    """So many equal feed-forward blocks."""
    b = GraphBuilder("deep", 0)
    x = b.elementwise("relu", b.input("x", 8, 32, 256))
    for _ in range(layers):
        inner = b.elementwise("relu", b.matmul(x, b.normal(256, 1024, scale=0.05)))
        x = b.elementwise("add", b.matmul(inner, b.normal(1024, 256, scale=0.05)), x)
    return Context(*b.build(x), stcp920(), TARGET)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(layer_rounds_module, "_rounds"), (Binder, "_least"), (StagedBytes, "_count")],
    ids=["rounds", "bindings", "staged bytes"],
)
@pytest.mark.parametrize("level", ["O1", "O2", "streamed"])
@pytest.mark.commit
def test_more_equal_layers_ask_no_more(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, level: str) -> None:
    found: Callable[..., Any] = getattr(owner, name)
    asked: list[int] = []

    def counted(*arguments: Any) -> Any:
        asked[-1] += 1
        return found(*arguments)

    monkeypatch.setattr(owner, name, counted)
    for layers in (FEW, MANY):
        asked.append(0)
        make_plan(deep(layers), planner_of(level))
    assert asked[0] == asked[1]


@pytest.mark.parametrize("level", ["O0", "O2", "streamed"])
def test_rounds_of_equal_layers_are_those_of_each_alone(level: str) -> None:
    ctx = deep(FEW)
    plan = make_plan(ctx, planner_of(level))
    runs = {step.group: step for step in plan.steps if isinstance(step, RunStep)}
    entries = [entry for step in lay_out(plan, ctx).steps if isinstance(step, tuple) for entry in step]
    assert len(entries) > FEW
    for entry in entries:
        staged = frozenset(staged.tensor for _, stage in entry.rounds for staged in stage.inputs)
        output = any(stage.outputs for _, stage in entry.rounds)
        cut = OutputCut(entry.boxes)
        if entry.rounds[0][0].whole is not None:
            cut = OutputCut(entry.boxes, runs[entry.group].box, runs[entry.group].binding.pieces)
        alone = Context(ctx.graph, ctx.constants, ctx.chip, ctx.target)
        assert layer_rounds(alone, entry.layer, cut, staged, output, entry.staging[1]) == entry.rounds
