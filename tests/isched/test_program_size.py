"""Programs of too many instructions are refused early: layers that are alike say how many are still to come."""

from __future__ import annotations

import pytest

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from hw_models.errors import PlanError
from isched.program.program import Program
from partitioner.context.plan_context import Context
from partitioner.planners.levels import O1
from partitioner.planners.registry import make_plan
from tests.chip_runs import stcp920
from tests.small_graphs import GraphBuilder

LIMIT = "isched.lowering.lower.MOST_INSTRUCTIONS"


def lowered(layers: int) -> Program:
    b = GraphBuilder("equal", 1)
    x = b.input("x", 1, 16, 16, 32)
    for _ in range(layers):
        x = b.conv(x, 32)
    ctx = Context(*b.build(x), stcp920(), TARGET)
    return lower_plan(make_plan(ctx, O1()), ctx, TARGET.data_base_bytes)


def count(program: Program) -> int:
    return sum(len(stream.instrs) for stream in program.streams)


def test_equal_layers_say_how_many_instructions_there_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = count(lowered(3)), count(lowered(12))
    monkeypatch.setattr(LIMIT, many)
    assert count(lowered(12)) == many
    monkeypatch.setattr(LIMIT, few)
    with pytest.raises(PlanError, match=rf"the program: needs at most {few:,} instructions; has about") as raised:
        lowered(12)
    about = int(raised.value.has.split()[1].rstrip(",").replace(",", ""))
    assert about == pytest.approx(many, rel=0.1)


def test_a_layer_that_alone_has_too_many_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMIT, 10)
    with pytest.raises(PlanError, match=r"layer \S+: needs at most 10 instructions; has \d+"):
        lowered(1)
