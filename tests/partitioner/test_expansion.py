"""What a layout becomes: transfers, computation and barriers in order, the same for lowering and for costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from codegen.neuralscale.target import TARGET
from isched.lowering.lower import lower_layout
from partitioner.context.plan_context import Context, PlanContext
from partitioner.expansion.expansion import Barrier, Begin, Compute, CoreTransfers, Event, InMain, expand
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Constants, Graph
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import (
    FOR_CONSTANTS_AHEAD,
    FOR_SCHEDULING,
    PLAIN,
    Layout,
    LayoutOptions,
    MoveLayout,
    Place,
)
from partitioner.planners.levels import LEVELS, O1, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip
from tests.group_plans import one_group
from tests.small_graphs import GraphBuilder


def chain(layers: int = 2) -> tuple[Graph, Constants]:
    builder = GraphBuilder("chain")
    x = builder.input("x", 1, 8, 8, 16)
    for _ in range(layers):
        x = builder.conv(x, 16)
    return builder.build(x)


def said(events: Iterator[Event]) -> list[str]:
    """The events as lines; places by their memory and offset."""

    def at(place: Place | InMain) -> str:
        return "main" if isinstance(place, InMain) else f"{place.memory}@{place.offset_bytes}"

    lines: list[str] = []
    for event in events:
        match event:
            case Begin(laid=laid):
                lines.append(laid.tensor if isinstance(laid, MoveLayout) else laid.layer.name)
            case CoreTransfers():
                lines += [
                    f"  core {event.core}: {each.tensor} {at(each.source)} -> {at(each.target)} {list(each.part[:2])}"
                    for each in event.transfers
                ]
            case Compute():
                pieces = [f"{len(piece.tiles)} on core {piece.core}" for piece in event.pieces]
                lines.append(f"  round {event.staged_round.number}: tiles {pieces}")
            case Barrier():
                lines.append("  barrier" + (" (drains)" if event.drains else ""))
    return lines


def test_a_layout_is_expanded_in_the_order_of_a_program() -> None:
    """Two convolutions on two cores; they exchange two rows of what is between them."""
    graph, constants = chain()
    chip = small_chip(cores=2)
    plan = one_group(graph, constants, chip, {}, (1, 2, 1, 1), ("conv0.out",))
    ctx = PlanContext(graph, constants, chip, TARGET)
    assert said(expand(lay_out(plan, ctx), ctx)) == EXPANDED


EXPANDED = """\
conv0
  core 0: conv0.w main -> LLB@0 [(0, 3), (0, 3)]
  core 0: conv0.b main -> LLB@4608 [(0, 16)]
  core 0: x main -> LLB@4640 [(0, 1), (0, 8)]
  barrier
  round 0: tiles ['1 on core 0', '1 on core 1']
  barrier
  core 0: conv0.out L1@0 -> LLB@0 [(0, 1), (3, 4)]
  core 1: conv0.out L1@0 -> LLB@0 [(0, 1), (4, 5)]
  barrier
  core 0: conv0.out LLB@0 -> L1@0 [(0, 1), (4, 5)]
  core 1: conv0.out LLB@0 -> L1@0 [(0, 1), (3, 4)]
  barrier
conv1
  core 0: conv1.w main -> LLB@0 [(0, 3), (0, 3)]
  core 0: conv1.b main -> LLB@4608 [(0, 16)]
  barrier
  round 0: tiles ['1 on core 0', '1 on core 1']
  barrier
  core 0: conv1.out LLB@4640 -> main [(0, 1), (0, 4)]
  core 0: conv1.out LLB@5664 -> main [(0, 1), (4, 8)]
""".splitlines()


@pytest.mark.spread(6)
@pytest.mark.parametrize(
    "options", [PLAIN, FOR_SCHEDULING, FOR_CONSTANTS_AHEAD], ids=["plain", "for a scheduler", "ahead"]
)
@pytest.mark.parametrize("level", LEVELS)
def test_programs_have_the_barriers_of_the_expansion(level: str, options: LayoutOptions) -> None:
    graph, constants = chain()
    chip = small_chip(2, 24 << 10, 24 << 10, 24 << 10, 16 << 10)
    ctx = Context(graph, constants, chip, TARGET)
    layout = lay_out(make_plan(ctx, planner_of(level)), ctx, options)
    barriers = sum(isinstance(event, Barrier) for event in expand(layout, ctx))
    for stream in lower_layout(layout, ctx, TARGET.data_base_bytes).streams:
        assert sum(instr.opcode == "sync" and not instr.meets for instr in stream.instrs) == barriers


def test_a_plan_is_laid_out_once_a_compilation() -> None:
    """Reasons make no difference, options and pinned constants do."""
    graph, constants = chain()
    ctx = PlanContext(graph, constants, small_chip(2), TARGET)
    plan = make_plan(ctx, O1())
    layout = lay_out(plan, ctx)
    assert lay_out(replace(plan, decisions=(Decision("a", "b", "c"),)), ctx) is layout
    assert lay_out(plan, ctx, FOR_SCHEDULING) is not layout
    assert lay_out(replace(plan, pinned=("conv0.w",)), ctx) != layout
    assert lay_out(plan, PlanContext(graph, constants, small_chip(2), TARGET)) is not layout


def ahead(layers: int, llb_bytes: int) -> tuple[PlanContext, Layout]:
    """Convolutions on two cores, the values between them in the staging memory, constants ahead."""
    graph, constants = chain(layers)
    ctx = PlanContext(graph, constants, small_chip(2, llb_bytes=llb_bytes), TARGET)
    return ctx, lay_out(make_plan(ctx, O1()), ctx, FOR_CONSTANTS_AHEAD)


def fetches(ctx: PlanContext, layout: Layout) -> list[list[str]]:
    """The names in each transfer from the main memory."""
    found = (
        [moved.tensor for moved in event.transfers if isinstance(moved.source, InMain)]
        for event in expand(layout, ctx)
        if isinstance(event, CoreTransfers)
    )
    return [names for names in found if names]


def constants_of(layers: Iterable[int]) -> list[str]:
    return [f"conv{layer}.{kind}" for layer in layers for kind in ("w", "b")]


def test_constants_ahead_come_together_and_lie_clear_of_all_values() -> None:
    """A fetch brings an eighth of all or as much as came before it, where a 64th of the staging memory holds more."""
    ctx, layout = ahead(16, 8 << 20)
    assert fetches(ctx, layout) == [["x"], *map(constants_of, ((0, 1), (2, 3), range(4, 8), range(8, 16)))]
    entries = [entry for step in layout.steps if not isinstance(step, MoveLayout) for entry in step]
    ((low, size),) = {entry.staging for entry in entries}
    assert low + size == 8 << 20
    between = [(entry.layer.output, entry.destination) for entry in entries[:-1]]
    for name, place in between:
        assert place is not None
        assert place.memory == layout.staging
        assert place.offset_bytes + layout.size_bytes(name, place) <= low


def test_constants_that_are_too_large_for_one_fetch_come_apart() -> None:
    """A fetch for several rounds is at most a 64th of the staging memory."""
    ctx, layout = ahead(16, 256 << 10)
    assert fetches(ctx, layout) == [["x"], *([f"conv{n}.w", f"conv{n}.b"] for n in range(16))]
