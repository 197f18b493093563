"""Footprints: closed reaches against boxes chained through every operator, in numpy and in sympy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioner.footprint.footprint import Footprints, cut_pieces, largest_sizes, recomputed_elements, totals
from partitioner.footprint.footprint_symbolic import closed_forms, input_bytes, recomputed_macs, value_at
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size, full_box
from partitioner.tiling.core_partition import cut_axis
from tests.partitioner.random_groups import Builder, chained_boxes, groups, needed_layers

Group = tuple[Graph, tuple[Layer, ...]]


def piece_boxes(group: Group, axis: int, count: int, granule: int) -> list[dict[str, Box]]:
    graph, layers = group
    shape = graph.by_name[layers[-1].output].shape
    cuts = cut_axis(0, shape[axis], count, granule)
    whole = full_box(shape)
    return [chained_boxes(graph, layers, (*whole[:axis], cut, *whole[axis + 1 :])) for cut in cuts]


@settings(deadline=None)
@given(groups(), st.data())
def test_pieces_are_those_of_the_chained_boxes(group: Group, data: st.DataObject) -> None:
    graph, layers = group
    axis = data.draw(st.integers(0, len(graph.by_name[layers[-1].output].shape) - 1))
    extent = graph.by_name[layers[-1].output].shape[axis]
    count, granule = data.draw(st.integers(1, extent)), data.draw(st.integers(1, 3))
    footprint = Footprints(graph).along(layers, axis)
    pieces = cut_pieces(extent, (count,), granule)
    exact = piece_boxes(group, axis, count, granule)
    for value in footprint.values:
        assert value.boxes(pieces) == tuple(boxes[value.tensor] for boxes in exact), value.tensor


@settings(deadline=None)
@given(groups(), st.data())
def test_sums_over_pieces_are_those_of_the_boxes(group: Group, data: st.DataObject) -> None:
    """Bytes, and elements beyond those of the uncut output, for all counts at once."""
    graph, layers = group
    axis = data.draw(st.integers(0, 3))
    extent = graph.by_name[layers[-1].output].shape[axis]
    footprint = Footprints(graph).along(layers, axis)
    counts = range(1, extent + 1)
    pieces = cut_pieces(extent, counts)
    exact = [piece_boxes(group, axis, count, 1) for count in counts]
    for value in footprint.values:
        sizes = [sum(box_size(boxes[value.tensor]) for boxes in of_count) * 2 for of_count in exact]
        assert totals(value.piece_bytes(pieces), pieces).tolist() == sizes
        whole = box_size(exact[0][0][value.tensor])
        assert recomputed_elements(value, pieces).tolist() == [size // 2 - whole for size in sizes]


@settings(deadline=None, max_examples=25)
@given(groups(most_ops=4), st.data())
def test_closed_forms_equal_the_numbers(group: Group, data: st.DataObject) -> None:
    graph, layers = group
    axis, granule = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 2))
    extent = graph.by_name[layers[-1].output].shape[axis]
    footprint = Footprints(graph).along(layers, axis)
    forms = closed_forms(footprint, granule)
    count = data.draw(st.integers(1, -(-extent // granule)))
    pieces = cut_pieces(extent, (count,), granule)
    for form, value in zip(forms, footprint.values, strict=True):
        each = [value_at(form.piece_bytes, count, k) for k in range(count)]
        assert each == value.piece_bytes(pieces).tolist(), form
        assert value_at(form.total_bytes, count) == sum(each), form
        assert value_at(form.recomputed_elements, count) == recomputed_elements(value, pieces)[0], form
    assert value_at(input_bytes(forms), count) == footprint.input_bytes(pieces)[0]
    macs = {name: value_at(e, count) for name, e in recomputed_macs(footprint, forms).items()}
    assert {name: n for name, n in macs.items() if n} == {
        name: counts[0] for name, counts in footprint.recomputed_macs(pieces).items()
    }


@settings(deadline=None)
@given(groups(), st.data())
def test_pieces_of_two_axes_hold_the_chained_boxes(group: Group, data: st.DataObject) -> None:
    graph, layers = group
    shape = graph.by_name[layers[-1].output].shape
    first, second = data.draw(st.sampled_from([(0, 1), (0, 2), (1, 2), (1, 3)]))
    counts = data.draw(st.integers(1, shape[first])), data.draw(st.integers(1, shape[second]))
    footprints = [Footprints(graph).along(layers, axis) for axis in (first, second)]
    sizes = largest_sizes(footprints, counts)
    whole = full_box(shape)
    needed: list[dict[str, int]] = []
    for a in cut_axis(0, shape[first], counts[0], 1):
        for b in cut_axis(0, shape[second], counts[1], 1):
            box = tuple(a if k == first else b if k == second else interval for k, interval in enumerate(whole))
            exact = chained_boxes(graph, layers, box)
            needed.append({name: 2 * box_size(exact[name]) for name in sizes})
    most = {name: max(piece[name] for piece in needed) for name in sizes}
    assert all(sizes[name] >= most[name] for name in sizes)


def test_a_chain_of_windows_is_one_term() -> None:
    """Three 3x3 convolutions and a stride: each reach stays a single clamped line, with the halo of the whole chain."""
    builder = Builder("chain")
    x = builder.input("x", 1, 32, 32, 4)
    for stride in (1, 2, 1):
        x = builder.conv(x, 4, stride=stride)
    graph, _ = builder.build(x)
    footprint = Footprints(graph).along(needed_layers(graph, x), 1)
    forms = {form.tensor: form for form in closed_forms(footprint)}
    assert str(forms["x"].start) == "Max(0, 2*floor(16*k/f) - 4)"
    assert str(forms["x"].stop) == "Min(32, 2*floor((16*k + 16)/f) + 3)"
    assert [str(forms[name].recomputed_elements) for name in ("conv2.out", "conv1.out")] == ["0", "128*f - 128"]


def test_batch_pieces_share_nothing() -> None:
    builder = Builder("batch")
    x = builder.input("x", 6, 8, 8, 3)
    y = builder.conv(builder.conv(x, 4), 4)
    graph, _ = builder.build(y)
    footprint = Footprints(graph).along(needed_layers(graph, y), 0)
    pieces = cut_pieces(6, range(1, 7))
    assert footprint.is_linear
    assert footprint.recomputed_macs(pieces) == {}
    assert footprint.input_bytes(pieces).tolist() == [6 * 8 * 8 * 3 * 2] * 6
    assert footprint.peak(pieces).tolist() == [8 * 8 * 8 * 2 * n for n in (6, 3, 2, 2, 2, 1)]


def test_recomputed_macs_of_a_split_by_rows() -> None:
    """The first of two 3x3 convolutions computes two rows more at each of the three cuts."""
    builder = Builder("rows")
    x = builder.input("x", 1, 16, 16, 2)
    y = builder.conv(builder.conv(x, 4), 4)
    graph, _ = builder.build(y)
    footprint = Footprints(graph).along(needed_layers(graph, y), 1)
    macs = footprint.recomputed_macs(cut_pieces(16, (1, 4)))
    assert {name: counts.tolist() for name, counts in macs.items()} == {"conv0": [0, 3 * 2 * 16 * 4 * 9 * 2]}


def test_values_needed_whole_stay_whole() -> None:
    """The right operand of a product of activations, when rows of the result are cut."""
    builder = Builder("attention")
    a, b = builder.input("a", 8, 4), builder.input("b", 4, 8)
    y = builder.softmax(builder.matmul(a, b, bias=False))
    graph, _ = builder.build(y)
    footprint = Footprints(graph).along(needed_layers(graph, y), 0)
    pieces = cut_pieces(8, (4,))
    assert footprint.value("a").piece_bytes(pieces).tolist() == [2 * 4 * 2] * 4
    assert not footprint.value("b").reach.matched
    assert footprint.value("b").piece_bytes(pieces).tolist() == [4 * 8 * 2] * 4


def test_cuts_are_those_of_the_binding() -> None:
    for extent in range(1, 12):
        for granule in (1, 2, 5):
            for count in range(1, 9):
                pieces = cut_pieces(extent, (count,), granule)
                assert list(zip(pieces.start, pieces.stop, strict=True)) == list(cut_axis(0, extent, count, granule))


def test_many_counts_at_once_are_each_count_alone() -> None:
    together = cut_pieces(13, (1, 5, 13, 40))
    assert together.counts.tolist() == [1, 5, 13, 13]
    ends = [*together.first.tolist(), len(together.start)]
    for (low, high), count in zip(pairwise(ends), (1, 5, 13, 13), strict=True):
        alone = cut_pieces(13, (count,))
        assert np.array_equal(together.start[low:high], alone.start)
        assert np.array_equal(together.stop[low:high], alone.stop)


def test_a_stack_of_concats_cut_along_its_channels_stays_small() -> None:
    """Each layer asks whether its piece reads anything of the ones before; the answers must not double every time."""
    builder = Builder("dense")
    x = builder.input("x", 1, 4, 4, 2)
    for _ in range(24):
        x = builder.concat(3, x, builder.conv(x, 1))
    y = builder.elementwise("relu", x)
    graph, _ = builder.build(y)
    layers = needed_layers(graph, y)
    footprint = Footprints(graph).along(layers, 3)
    extent = footprint.extent
    pieces = cut_pieces(extent, (extent,))
    exact = piece_boxes((graph, layers), 3, extent, 1)
    for value in footprint.values:
        needed = [box_size(boxes[value.tensor]) * 2 for boxes in exact]
        assert all(found >= least for found, least in zip(value.piece_bytes(pieces).tolist(), needed, strict=True))
