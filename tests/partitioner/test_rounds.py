"""Rounds: what a layer whose output does not fit the shared buffer costs the DMA."""

from __future__ import annotations

import pytest

from codegen.neuralscale.target import TARGET
from isched.lowering.lower import lower_plan
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.regions import box_size
from partitioner.memory.memory_plan import MoveLayout, lay_out
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip
from tests.small_graphs import GraphBuilder

KIB = 1024


@pytest.mark.parametrize("llb_kib", [96, 128, 192, 256])
def test_outputs_reach_the_main_memory_in_long_runs(llb_kib: int) -> None:
    """The input lies in L1 and the constants are small, so rounds may cut rows or channels. The DMA cannot scatter: cut
    by channels, the 4,608 pixels of the output would need a descriptor each, four times."""
    chip = small_chip(8, 64 * KIB, 64 * KIB, 64 * KIB, llb_kib * KIB)
    b = GraphBuilder("rounds", 1)
    x = b.conv(b.input("x", 8, 24, 24, 8), 32)
    graph, constants = b.build(b.conv(x, 128, (1, 1), pads=(0, 0, 0, 0)))
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), "O2")
    program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes)
    chains = [instr.reads for stream in program.streams for instr in stream.instrs if instr.starts]
    assert sum(map(len, chains)) < 256


@pytest.mark.parametrize("images", [2, 4, 6])
def test_every_round_has_work_for_all_cores(images: int) -> None:
    """An image has too few rows for a round of its own to be divided like all images: rounds take rows of each."""
    chip = small_chip(8, 64 * KIB, 64 * KIB, 64 * KIB, 128 * KIB)
    b = GraphBuilder("rounds", 1)
    graph, constants = b.build(b.conv(b.input("x", images, 24, 24, 32), 64, (1, 1), pads=(0, 0, 0, 0)))
    ctx = PlanContext(graph, constants, chip, TARGET)
    layout = lay_out(make_plan(ctx, "O1"), ctx)
    (entry,) = (entry for step in layout.steps if not isinstance(step, MoveLayout) for entry in step)
    assert len(entry.rounds) > 1
    for this_round, _ in entry.rounds:
        assert sum(box_size(box) > 0 for box in this_round.boxes) == len(entry.cores)
