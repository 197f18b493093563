"""A program at the costs of another chip is what the machine code asks of that chip."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.lab.programs import lower_plan
from benchmarks.lab.recost import recosted
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.loading import load_chip
from isched.program.timed_ops import timed_streams
from partitioner.context.plan_context import Context, PlanContext
from partitioner.planners.levels import planner_of
from partitioner.planners.registry import make_plan
from tests.small_graphs import GraphBuilder

CHIP = load_chip("stcp920")


def other() -> Chip:
    """The stcp920 with a turned array, fewer lanes, and fills."""
    sides = {"array_pixels": 32, "array_channels": 64}
    engines = tuple(
        engine.model_copy(update={"matrix": sides, "vector": {"lanes": 24}}.get(engine.kind, {}))
        for engine in CHIP.engines
    )
    assumed = CHIP.assumed.model_copy(update={"matrix_tile_cycles": 17.0, "vector_pass_cycles": 3.0})
    return CHIP.model_copy(update={"engines": engines, "assumed": assumed})


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_recosted_programs_cost_what_their_machine_code_does(level: str) -> None:
    b = GraphBuilder("recost", 1)
    x = b.conv(b.input("x", 2, 20, 20, 5), 40)
    x = b.conv(b.elementwise("relu", x), 33, (1, 1), pads=(0, 0, 0, 0))
    x = b.conv(b.pool("max_pool", x, (2, 2), 1, (1, 1, 0, 0)), 33, groups=33)
    graph, constants = b.build(b.softmax(x))
    plan = make_plan(PlanContext(graph, constants, CHIP, TARGET), planner_of(level))
    program = lower_plan(plan, Context(graph, constants, CHIP, TARGET), TARGET.data_base_bytes)
    assert recosted(program, CHIP) == program
    chip = other()
    files = TARGET.emit(program, graph, constants)
    traced = TARGET.trace(files.files[files.executable], files.cores, chip)
    moved = recosted(program, chip)
    assert moved != replace(program, chip=chip.name)
    own = timed_streams(moved, chip, TARGET.issue_costs(moved, chip))
    assert [[op.cycles for op in stream.ops] for stream in own] == [[op.cycles for op in s.ops] for s in traced]
