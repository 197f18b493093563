"""Bindings that follow readers: who finds what in place, what must be moved, and which piece goes to which core."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from partitioner.context.plan_context import PlanContext
from partitioner.cost.transfer_cost import TransferCosts
from partitioner.ir.graph import Graph
from partitioner.ir.regions import Box, box_size, exact_view_box, holds
from partitioner.planners.core_assignment import assign
from partitioner.planners.core_binding import Binder, LayerBinding
from partitioner.planners.o2 import renumbered
from partitioner.planners.streamed import streamed_cycles
from tests.chip_runs import small_chip, stcp920
from tests.small_graphs import GraphBuilder


def binder(graph: Graph, chip: Chip, most_bytes: int = 1 << 19) -> Binder:
    return Binder(PlanContext(graph, {}, chip, TARGET), most_bytes)


def pointwise(batch: int, channels: int = 64, size: int = 14) -> Graph:
    b = GraphBuilder("pointwise")
    x = b.input("x", batch, size, size, channels)
    for _ in range(3):
        x = b.elementwise("relu", b.conv(x, channels, (1, 1), pads=(0, 0, 0, 0)))
    return b.build(x)[0]


def windows(size: int = 32) -> Graph:
    b = GraphBuilder("windows")
    x = b.conv(b.input("x", 1, size, size, 16), 16)
    return b.build(b.conv(x, 16))[0]


def test_a_chain_without_overlaps_is_bound_alike_and_stays_in_place() -> None:
    binds = binder(pointwise(8), stcp920())
    bound = binds.bind()
    assert len({b.binding for b in bound.values()}) == 1
    for value in binds.values.values():
        if value.readers:
            close = binds.closeness(value, bound)
            assert not close.moved
            assert close.cycles > 0
            assert close.core_bytes == value.size_bytes // 8


def test_readers_that_need_rows_of_other_cores_get_them_moved_for_less_than_the_shared_memory_costs() -> None:
    graph = windows()
    binds = binder(graph, stcp920())
    bound = binds.bind()
    value = next(v for v in binds.values.values() if v.readers)
    close = binds.closeness(value, bound)
    ((reader, name, need),) = close.moved
    assert (reader, name) == (value.readers[0], value.name)
    boxes = bound[value.made].boxes
    assert any(not holds(boxes[core], box) for core, box in need.items())
    moved = binds.transfers.moved(value.name, boxes, need)
    shared = binds.transfers.shared(value.name, boxes, [need])
    assert 0 < moved < shared
    assert close.cycles == shared - moved


def test_nothing_to_move_costs_nothing_and_more_to_move_costs_more() -> None:
    graph = windows()
    transfers = TransferCosts(PlanContext(graph, {}, stcp920(), TARGET))
    name = next(op.outputs[0] for op in graph.ops)
    rows: dict[int, Box] = {core: ((0, 1), (4 * core, 4 * core + 4), (0, 32), (0, 16)) for core in range(8)}

    def need(halo: int) -> dict[int, Box]:
        return {
            core: (box[0], (max(0, box[1][0] - halo), min(32, box[1][1] + halo)), box[2], box[3])
            for core, box in rows.items()
        }

    costs = [transfers.moved(name, rows, need(halo)) for halo in range(5)]
    assert costs[0] == 0
    assert costs == sorted(costs)
    assert costs[4] > costs[1]


def test_values_too_large_for_a_core_do_not_bend_bindings() -> None:
    graph = pointwise(2, channels=128)
    chip = stcp920()
    free, bent = binder(graph, chip, most_bytes=0), binder(graph, chip)
    fastest = {index: next(iter(free.choices(index))) for index in range(len(free.ctx.layers))}
    assert {index: bound.pieces for index, bound in free.bind().items()} == fastest
    assert all(bound.cycles >= free.choices(index)[fastest[index]] for index, bound in bent.bind().items())


def test_banned_values_free_their_layers() -> None:
    binds = binder(windows(), stcp920())
    bound = binds.bind()
    names = frozenset(v.name for v in binds.values.values() if v.readers)
    again = binds.rebind(bound, names)
    assert {i: b.pieces for i, b in again.items()} == {i: next(iter(binds.choices(i))) for i in again}


def test_a_reader_counts_what_other_readers_save_with_it() -> None:
    """Three products of one value, whose rows are divided among the cores. Each alone is a little faster with its
    columns divided too; then the value is brought to it over the shared memory, though the others find it in place."""
    b = GraphBuilder("heads")
    x = b.elementwise("relu", b.input("x", 2, 577, 768))
    graph, _ = b.build(*(b.matmul(x, b.normal(768, 768)) for _ in range(3)))
    ctx = PlanContext(graph, {}, stcp920(), TARGET)
    binds = Binder(ctx, ctx.roles.local_bytes, streamed_cycles)
    bound = binds.bind()
    value = next(value for value in binds.values.values() if len(value.readers) == 3)
    assert any(next(iter(binds.choices(reader))) != bound[value.made].pieces for reader in value.readers)
    assert not binds.closeness(value, bound).moved


def on_cores(bound: LayerBinding, cores: tuple[int, ...]) -> LayerBinding:
    return LayerBinding(bound.pieces, {cores[core]: box for core, box in bound.boxes.items()}, bound.cycles)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(8)), st.integers(0, 5), st.integers(1, 6))
def test_a_run_of_layers_on_other_cores_goes_where_its_neighbours_are(
    cores: list[int], first: int, number: int
) -> None:
    binds = binder(pointwise(8), stcp920())
    bound = binds.bind()
    run = sorted(bound)[first : first + number]
    apart = {index: on_cores(at, tuple(cores)) if index in run else at for index, at in bound.items()}
    found = renumbered(binds, apart)
    assert {index: (at.pieces, at.cycles) for index, at in found.items()} == {
        index: (at.pieces, at.cycles) for index, at in bound.items()
    }
    assert not any(binds.closeness(value, found).moved for value in binds.values.values() if value.readers)


def test_cores_stay_where_nothing_is_saved_by_others() -> None:
    for graph in (pointwise(8), windows()):
        binds = binder(graph, stcp920())
        bound = binds.bind()
        assert renumbered(binds, bound) == bound


def test_a_view_has_a_box_of_the_same_elements_or_none() -> None:
    b = GraphBuilder("view")
    x = b.input("x", 2, 6, 4, 8)
    graph, _ = b.build(b.elementwise("relu", b.view(x, 2, 24, 8)))
    view = next(op for op in graph.ops if op.is_view)
    assert exact_view_box(graph, view, ((0, 1), (2, 4), (0, 4), (0, 8))) == ((0, 1), (8, 16), (0, 8))
    assert exact_view_box(graph, view, ((0, 1), (2, 4), (0, 2), (0, 8))) is None


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 5).flatmap(lambda rows: st.lists(
    st.lists(st.integers(0, 9), min_size=6, max_size=6), min_size=rows, max_size=rows
)))  # fmt: skip
def test_the_assignment_is_the_best_of_all(gain: list[list[int]]) -> None:
    rows = len(gain)
    found = assign(gain)
    assert len(set(found)) == rows
    best = max(sum(gain[row][column] for row, column in enumerate(columns)) for columns in permutations(range(6), rows))
    assert sum(gain[row][column] for row, column in enumerate(found)) == best


def test_pieces_go_to_the_first_cores_where_nothing_decides() -> None:
    assert assign([[0] * 4 for _ in range(3)]) == (0, 1, 2)
    assert assign([[5, 5, 0], [5, 5, 0]]) == (0, 1)
    assert assign([[0, 7, 0], [0, 7, 1]]) == (1, 2)


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_every_core_of_a_reader_finds_its_boxes_or_is_given_them(cores: int) -> None:
    b = GraphBuilder("mixed")
    x = b.elementwise("relu", b.conv(b.input("x", 2, 12, 12, 16), 32))
    y = b.elementwise("add", b.conv(x, 32), x)
    rows = b.view(y, 2, 144, 32)
    graph, _ = b.build(b.matmul(rows, b.normal(32, 16)), b.pool("max_pool", y, (2, 2), 2))
    binds = binder(graph, small_chip(cores=cores))
    bound = binds.bind()
    for value in binds.values.values():
        boxes = bound[value.made].boxes
        assert sum(map(box_size, boxes.values())) * 2 == value.size_bytes, "pieces cover the value, each byte once"
        assert len(boxes) <= cores
        moved = {(reader, name) for reader, name, _ in binds.closeness(value, bound).moved}
        for reader, name, need in binds.needs(value, bound):
            if (reader, name) not in moved:
                assert all(core in boxes and holds(boxes[core], box) for core, box in need.items())
