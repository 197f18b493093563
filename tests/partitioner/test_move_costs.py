"""Costs of moves: as many copies as lowering makes, each with its start-up; and work that fills idle times."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from codegen.neuralscale.emit.descriptors import linear_control
from codegen.neuralscale.emit.expansion import Body
from codegen.neuralscale.target import TARGET
from hw_models.cost import transfer_cycles
from isched.lowering.strided_copies import packed_copies
from isched.program.program import Instr
from partitioner.context.plan_context import PlanContext
from partitioner.cost.copy_shape import copy_shape
from partitioner.cost.move_costs import MoveCosts
from partitioner.cost.run_clock import Unit
from partitioner.expansion.expansion import Transfer
from partitioner.ir.regions import Box, full_box
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import Place
from partitioner.planners.registry import make_plan
from tests.chip_runs import stcp920
from tests.small_graphs import GraphBuilder


@dataclass(frozen=True)
class Array:
    """A dense array at a place."""

    memory: str
    offset_bytes: int
    box: Box


def inner(rng: random.Random, box: Box) -> Box:
    """A part of a box that is not empty."""
    lows = [rng.randrange(low, high) for low, high in box]
    return tuple((low, rng.randint(low + 1, high)) for low, (_, high) in zip(lows, box, strict=True))


@pytest.mark.parametrize("seed", range(200))
def test_copies_are_those_of_lowering(seed: int) -> None:
    rng = random.Random(seed)
    whole = full_box(tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 4))))
    packed, strided = (rng.choice((whole, inner(rng, whole))) for _ in range(2))
    part = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(packed, strided, strict=True))
    if any(low >= high for low, high in part):
        part, packed, strided = whole, whole, whole
    made = packed_copies(Array("LLB", 0, strided), Array("L1", 0, packed), part, 2, at_source=False)
    assert copy_shape(packed, strided, part) == (len(made), made[0].source.rows)


def test_each_copy_has_a_start_up() -> None:
    """Parts of rows of two images are two copies, each with its rows at one pitch."""
    builder = GraphBuilder("moves")
    graph, constants = builder.build(builder.elementwise("relu", builder.input("x", 2, 8, 8, 16)))
    chip = stcp920()
    ctx = PlanContext(graph, constants, chip, TARGET)
    costs = MoveCosts(ctx, lay_out(make_plan(ctx), ctx))
    part = ((0, 2), (0, 4), (0, 4), (0, 16))
    moved = costs.transfer(Transfer("x", Place("LLB", 0, full_box((2, 8, 8, 16))), Place("L1", 0, part), part))
    assert moved is not None
    each = transfer_cycles(chip, "LLB", "L1", 4 * 4 * 16 * 2, 4, sharers=chip.cores_per_cluster)
    assert (moved.engine, moved.cycles) == ("transfer", 2 * each)


def test_starts_of_chains_are_counted_as_they_are_expanded() -> None:
    words = [word for n in (1, 2, 3) for word in (linear_control(0x2000 + n), 0x40001000 * n, 0xC0002000 + n, 0, 0)]
    named = tuple((f"w{number}", word) for number, word in enumerate(words))
    channel = (("engine", 0), ("channel", 0))
    body = Body(0)
    code = body.expand(Instr("dma", "dma.start", (*channel, *named)))
    code += body.expand(Instr("scalar", "dma.wait", channel))
    assert TARGET.dma_start_instructions(3) == pytest.approx(len(code), abs=6)


def test_work_fills_idle_times() -> None:
    unit = Unit()
    assert unit.work(10, 5) == 15
    assert unit.work(0, 8) == 8  # before the first
    assert unit.work(0, 4) == 19  # no longer room before it
    assert unit.work(0, 2) == 10
    assert unit.gaps == []
