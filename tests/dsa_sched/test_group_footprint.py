"""Closed forms of what the pieces of a group hold: they are the footprint's numbers, for every piece and count."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from codegen.neuralscale.target import TARGET
from dsa_sched.analysis.explanation import explain_plan
from dsa_sched.analysis.group_detail import detail_of
from dsa_sched.analysis.group_footprint import group_footprint, held_values, worst_step
from dsa_sched.report.explain import print_detail
from hw_models.memory_parts import part_bytes
from partitioner.context.plan_context import PlanContext
from partitioner.footprint.footprint import Footprints, cut_pieces
from partitioner.footprint.footprint_symbolic import closed_forms, value_at
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group, Split
from partitioner.planners.levels import O3
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip
from tests.partitioner.random_groups import groups
from tests.small_graphs import GraphBuilder


@settings(deadline=None, max_examples=25)
@given(groups(most_ops=4), st.data())
@pytest.mark.commit
def test_what_a_piece_holds_is_the_peak_of_the_footprint(
    group: tuple[Graph, tuple[Layer, ...]], data: st.DataObject
) -> None:
    graph, layers = group
    footprint = Footprints(graph).along(layers, data.draw(st.integers(0, 3)))
    granule = data.draw(st.integers(1, 2))
    forms = closed_forms(footprint, granule)
    for count in {1, data.draw(st.integers(1, -(-footprint.extent // granule)))}:
        worst = worst_step(footprint, count, granule)
        assert worst.held_bytes == footprint.peak(cut_pieces(footprint.extent, (count,), granule))[0]
        held = held_values(footprint, forms, worst.step).values()
        of_piece = [sum(value_at(formula, count, piece) for formula in held) for piece in range(count)]
        assert max(of_piece) == of_piece[worst.piece] == worst.held_bytes


def chain(images: int) -> tuple[PlanContext, Group]:
    """Three convolutions with windows, one group that is cut along its rows."""
    builder = GraphBuilder("chain")
    x = builder.input("x", images, 32, 32, 16)
    for _ in range(3):
        x = builder.conv(x, 16)
    graph, constants = builder.build(x)
    ctx = PlanContext(graph, constants, small_chip(4), TARGET)
    return ctx, Group("chain", ctx.layers, Split(((1, (0, 8, 16, 24, 32)),)))


def test_a_group_that_is_cut_along_rows() -> None:
    ctx, group = chain(images=1)
    found = group_footprint(group, ctx)
    assert found is not None
    assert [value.tensors for value in found.held] == [("x",), ("conv0.out",)]
    formula = "-1024*Max(0, floor(32*k/f) - 2) + 1024*Min(32, floor((32*k + 32)/f) + 2)"
    assert found.held[1].bytes_formula == formula
    assert (found.worst.pieces, found.worst.piece, found.coarser.pieces) == (4, 1, 3)
    assert found.worst.held_bytes == (14 + 12) * 1024 < found.coarser.held_bytes
    assert found.room_bytes == 4 * part_bytes(ctx.chip, *ctx.roles.local)
    assert found.input_formula == f"{(32 + 3 * 6) * 1024:,}"
    assert found.again_formulas == {"conv0": f"{3 * 4 * 32 * 16 * 144:,}", "conv1": "147456*f - 147456 = 442,368"}


@pytest.mark.parametrize(
    "cuts", [(), ((1, (0, 8, 10, 32)),), ((0, (0, 1, 2)), (1, (0, 16, 32)))], ids=["uncut", "by hand", "two axes"]
)
def test_other_cuts_have_no_closed_form(cuts: tuple[tuple[int, tuple[int, ...]], ...]) -> None:
    ctx, group = chain(images=2)
    assert group_footprint(Group(group.name, group.layers, Split(cuts)), ctx) is None


def test_explain_says_why_one_piece_fewer_is_too_few() -> None:
    """O3 on a chip whose memory forces a cut: the fewest pieces that fit are those that it has."""
    builder = GraphBuilder("tight")
    x = builder.input("x", 8, 16, 16, 16)
    for _ in range(2):
        x = builder.conv(x, 16)
    graph, constants = builder.build(x)
    ctx = PlanContext(graph, constants, small_chip(4, data_bytes=16 << 10), TARGET)
    explained = explain_plan(make_plan(ctx, O3()), ctx)
    (group,) = explained.explanation.groups
    detail = detail_of(explained, group.name)
    assert detail.footprint is not None
    assert detail.footprint.worst.held_bytes <= detail.footprint.room_bytes < detail.footprint.coarser.held_bytes
    console = Console(file=StringIO(), width=200)
    print_detail(explained.explanation, detail, console)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert re.search(r"  f = \d+: \d+ KiB in piece 0, of \d+ KiB in all cores\n", text)
    assert re.search(r"  f = \d+: \d+ KiB, which is too much\n", text)
    assert "8192*floor((8*k + 8)/f) bytes" in text
