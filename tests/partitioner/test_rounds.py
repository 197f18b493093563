"""Rounds: what a layer whose output does not fit the shared buffer costs the DMA."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.regions import Box, box_size
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import MoveLayout
from partitioner.planners.levels import O0, O1, O2
from partitioner.planners.registry import make_plan
from partitioner.tiling.staging_rounds import Round, Stager, own_rounds
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
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O2())
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
    layout = lay_out(make_plan(ctx, O1()), ctx)
    (entry,) = (entry for step in layout.steps if not isinstance(step, MoveLayout) for entry in step)
    assert len(entry.rounds) > 1
    for this_round, _ in entry.rounds:
        assert sum(box_size(box) > 0 for box in this_round.boxes) == len(entry.cores)


def _channel_rounds(granules: int, room: int) -> list[int]:
    """Channels of each round, in granules of 64, of a product whose staging memory has room for `room` granules."""
    b = GraphBuilder("rounds", 1)
    graph, constants = b.build(b.conv(b.input("x", 8, 2, 2, 64), 64 * granules, (1, 1), pads=(0, 0, 0, 0)))
    ctx = PlanContext(graph, constants, small_chip(8, 256 * KIB, 64 * KIB, 64 * KIB, 256 * KIB), TARGET)
    (layer,) = make_plan(ctx, O0()).groups[0].layers
    boxes: tuple[Box, ...] = tuple(((image, image + 1), (0, 2), (0, 2), (0, 64 * granules)) for image in range(8))
    narrow = Round(tuple((*box[:3], (0, 64 * room)) for box in boxes))
    unbounded = Stager(ctx, layer, lambda name: bool(ctx.graph.by_name[name].constant), output=False, room_bytes=0)
    stager = replace(unbounded, room_bytes=unbounded.stage(narrow).size_bytes)
    found = own_rounds(stager, boxes, (1, 1, 1, 64))
    assert not isinstance(found, Infeasible)
    spans = [[box[-1] for box in this_round.boxes] for this_round in found]
    assert all(len(set(cores)) == 1 for cores in spans)
    ends = [low for (low, _), *_ in spans] + [64 * granules]
    assert ends[0] == 0
    assert [high for (_, high), *_ in spans] == ends[1:]
    return [(high - low) // 64 for (low, high), *_ in spans]


@pytest.mark.parametrize(
    ("granules", "room", "rounds"),
    [
        (18, 4, [3] * 6),  # a fifth more rounds, none of which waits for a larger one behind it
        (18, 6, [6] * 3),
        (18, 18, [18]),
        (16, 7, [5, 5, 6]),  # four equal ones would be a third more
        (11, 4, [3, 4, 4]),  # a prime number of granules is equal only one by one
    ],
)
def test_rounds_of_constants_are_equal_where_few_more_do(granules: int, room: int, rounds: list[int]) -> None:
    """Constants of the next round come while this one works: unequal rounds wait for the largest."""
    assert sorted(_channel_rounds(granules, room)) == rounds
