"""Runs of long reductions: they cover the channels, are short enough, and the operator alone decides."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.neuralscale.instructions.reductions import LONGEST_EXACT, LONGEST_REDUCTION, reduction_runs, staged_runs
from codegen.neuralscale.target import TARGET
from partitioner.context.plan_context import PlanContext
from partitioner.planners.levels import O0
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip
from tests.small_graphs import GraphBuilder


@given(st.integers(1, 40_000), st.integers(1, 49))
def test_runs_cover_the_channels_and_are_short(length: int, unit: int) -> None:
    runs = reduction_runs(length, unit)
    assert (runs[0][0], runs[-1][1]) == (0, length)
    assert all(before[1] == after[0] for before, after in pairwise(runs))
    assert all(0 < (high - low) * unit <= LONGEST_REDUCTION for low, high in runs)
    assert len(runs) == 1 or length * unit > LONGEST_REDUCTION
    for (low, high), (first, last) in zip(runs, staged_runs(length, unit), strict=True):
        assert first <= low < high <= last


@given(st.integers(1, 20_000).map(lambda pairs: 2 * pairs), st.integers(1, 49))
def test_runs_of_int8_begin_at_even_channels(length: int, unit: int) -> None:
    """They are cut only beyond LONGEST_EXACT products, into as few runs as that takes, equal up to two channels."""
    runs = reduction_runs(length, unit, exact=True)
    assert (runs[0][0], runs[-1][1]) == (0, length)
    assert all(before[1] == after[0] for before, after in pairwise(runs))
    assert not [low for low, _ in runs if low % 2]
    assert len(runs) == min(length // 2, -(-length * unit // LONGEST_EXACT))
    assert all(0 < (high - low) * unit < LONGEST_EXACT + 2 * unit for low, high in runs)
    for (low, high), (first, last) in zip(runs, staged_runs(length, unit, exact=True), strict=True):
        assert first <= low < high <= last
        assert (first, last) in {(low, high), (0, length)}


@pytest.mark.parametrize(("kernel", "instructions"), [((1, 1), 1), ((3, 3), 4)])
def test_images_of_a_tile_are_one_where_pixels_stand_alone(kernel: tuple[int, int], instructions: int) -> None:
    builder = GraphBuilder("images")
    pad = kernel[0] // 2
    graph, constants = builder.build(
        builder.conv(builder.input("x", 4, 5, 5, 16), 24, kernel, pads=(pad, pad, pad, pad))
    )
    chip = small_chip(cores=1)
    ((layer,),) = (group.layers for group in make_plan(PlanContext(graph, constants, chip, TARGET), O0()).groups)
    box = ((0, 4), (0, 5), (0, 5), (0, 24))
    work = TARGET.work(graph, layer, box, chip)
    offsets = {buffer.name: position << 20 for position, buffer in enumerate(work.buffers)}
    (instrs,) = TARGET.lower(graph, constants, layer, box, work, offsets, chip)
    products = [instr for instr in instrs if instr.engine == "matrix"]
    assert len(products) == instructions
    assert sum(instr.cycles for instr in products) == dict(work.engine_cycles)["matrix"]
