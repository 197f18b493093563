"""The cost of a plan: barriers as lowering puts them, times near those of the cycle model, a launch per run."""

from __future__ import annotations

import pytest

from benchmarks.lab.drawn_cases import small_team_chip
from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from isched.scheduling.schedule import list_scheduled
from isched.timing.cycle_model import time_program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.cost_model import PlanCost, StepCost, plan_cycles
from partitioner.ir.graph import Constants, Graph
from partitioner.planners.levels import LEVELS, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip, stcp920
from tests.small_graphs import GraphBuilder


def residual(batch: int, size: int = 16) -> tuple[Graph, Constants]:
    builder = GraphBuilder("residual")
    x = builder.input("x", batch, size, size, 16)
    first = builder.elementwise("relu", builder.conv(x, 32))
    second = builder.elementwise("relu", builder.conv(first, 32))
    third = builder.elementwise("relu", builder.elementwise("add", builder.conv(second, 32), first))
    return builder.build(builder.conv(third, 16))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("llb_bytes", [1 << 23, 1 << 16])
@pytest.mark.commit
def test_barriers_are_those_of_the_lowered_program(level: str, llb_bytes: int) -> None:
    """With a small LLB layers need several rounds, each with two barriers."""
    graph, constants = residual(4)
    chip = small_chip(4, data_bytes=1 << 16, llb_bytes=llb_bytes)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
    program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes)
    counts = {sum(instr.opcode == program.barrier for instr in stream.instrs) for stream in program.streams}
    assert counts == {plan_cycles(plan, PlanContext(graph, {}, chip, TARGET)).barriers}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("chip", [stcp920(), small_team_chip()], ids=["stcp920", "small-team"])
@pytest.mark.commit
def test_both_times_are_near_the_cycle_model(level: str, chip: Chip) -> None:
    """The second chip spends most of its time in transfers, which have long start-ups there."""
    graph, constants = residual(8, 32)
    ctx = Context(graph, constants, chip, TARGET)
    plan = make_plan(ctx, planner_of(level))
    program = lower_plan(plan, ctx, TARGET.data_base_bytes)
    ahead = list_scheduled(lower_plan(plan, ctx, TARGET.data_base_bytes, overlap=True), chip, TARGET)
    launch = chip.assumed.launch_cycles
    serial, overlapped = (time_program(made, chip, TARGET).cycles - launch for made in (program, ahead))
    cost = plan_cycles(plan, ctx)
    assert cost.serial_cycles - launch == pytest.approx(serial, rel=0.15)
    assert cost.overlapped_cycles - launch == pytest.approx(overlapped, rel=0.3)
    assert cost.overlapped_cycles <= cost.serial_cycles
    assert cost.cycles == cost.serial_cycles


def test_a_launch_counts_once_a_run() -> None:
    steps = (
        StepCost("run", "a", 0, 140.0, 100.0, 2),
        StepCost("copy", "b", 0, 10.0, 10.0, 3),
        StepCost("run", "b", 0, 5.0, 0.0),
        StepCost("view", "c", 0),
    )
    cost = PlanCost(steps, launch_cycles=1000.0)
    assert (cost.kernels, cost.barriers) == (2, 5)
    assert cost.serial_cycles == 1000 + 155
    assert cost.overlapped_cycles == 1000 + 110


def test_values_that_stay_on_the_chip_make_a_plan_cheaper() -> None:
    graph, constants = residual(4)
    ctx = PlanContext(graph, constants, stcp920(), TARGET)
    costs = {level: plan_cycles(make_plan(ctx, planner_of(level)), ctx) for level in ("O0", "O1")}
    assert costs["O1"].cycles < costs["O0"].cycles
