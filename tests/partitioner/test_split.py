"""Splitting information: the published example, and the best splitting against trying everything."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from partitioner.footprint.footprint import Footprints, cut_pieces
from partitioner.footprint.peak_memory import Activations, peak_of
from partitioner.fusion.split_factor import SplitOptions, Splitter, Splitting, best_of, candidates
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from tests.partitioner.networks import MEBIBYTE, network_layers, stages
from tests.partitioner.random_groups import Builder, groups, needed_layers

STAGE_ENDS = ("n32", "n74", "n136", "n168")


def test_peaks_of_the_stages_of_resnet50_are_the_published_ones() -> None:
    """MiB an image: 3.445, 2.488, 1.244 and 0.622, in the best order and with the residual added in place."""
    graph, layers = network_layers("resnet50", 16)
    footprints = Footprints(graph)
    inputs = Activations(graph)
    peaks = [peak_of(inputs, footprints.ordered(stage)) / 16 / MEBIBYTE for stage in stages(layers, *STAGE_ENDS)]
    assert [round(peak, 3) for peak in peaks] == [3.445, 2.488, 1.244, 0.622]


@pytest.mark.parametrize(("capacity_mebibytes", "factors"), [(10, [8, 4, 2, 1]), (8, [8, 8, 4, 2])])
def test_stages_of_resnet50_get_the_published_factors(capacity_mebibytes: int, factors: list[int]) -> None:
    graph, layers = network_layers("resnet50", 16)
    splitter = Splitter(Footprints(graph), capacity_mebibytes * MEBIBYTE)
    found = [splitter.best(stage) for stage in stages(layers, *STAGE_ENDS)]
    assert [splitting.factors for splitting in found if splitting] == [((0, factor),) for factor in factors]


def test_candidates_are_the_cores_of_a_row_and_then_every_number() -> None:
    assert candidates(12, uneven=True) == (1, 2, 4, 8, 9, 10, 11, 12)
    assert candidates(12) == (1, 2, 4, 12)
    assert candidates(1) == candidates(1, uneven=True) == (1,)
    assert candidates(7, uneven=True) == (1, 2, 4, 7)
    assert candidates(1000, uneven=True)[-6:] == (100, 125, 200, 250, 500, 1000)


def test_more_operators_split_come_first_then_fewer_pieces_then_outer_axes() -> None:
    a, b, c = Splitting(((1, 4),), 3, 0), Splitting(((0, 2),), 2, 0), Splitting(((2, 2),), 3, 0)
    assert best_of((a, b, c)) == c
    assert best_of((a, b, Splitting(((0, 4),), 3, 0))) == Splitting(((0, 4),), 3, 0)
    assert best_of(()) is None


@settings(max_examples=60)
@given(groups(), st.integers(1, 4000), st.booleans())
def test_best_is_the_best_of_all_axes_and_candidates(
    group: tuple[Graph, tuple[Layer, ...]], capacity_bytes: int, uneven: bool
) -> None:
    graph, layers = group
    footprints = Footprints(graph)
    splitter = Splitter(footprints, capacity_bytes, SplitOptions(uneven))
    every = []
    for axis, extent in enumerate(graph.by_name[layers[-1].output].shape):
        footprint = footprints.along(layers, axis)
        for count in candidates(extent, uneven):
            peak = int(footprint.peak(cut_pieces(extent, (count,)))[0])
            if peak <= capacity_bytes:
                # Strided reads that leave out elements between pieces make pieces smaller than their share: the search
                # may then end at an axis that a later one beats.
                assume(peak * count >= footprint.whole_peak_bytes)
                every.append(Splitting(((axis, count),), splitter._ops_split(footprint, count), peak))
                break  # the smallest that fits
    assert splitter.best(layers) == best_of(tuple(every))


@settings(max_examples=40)
@given(groups(most_ops=5), st.integers(1, 600))
def test_two_axes_are_cut_only_where_one_is_not_enough(
    group: tuple[Graph, tuple[Layer, ...]], capacity_bytes: int
) -> None:
    graph, layers = group
    one = Splitter(Footprints(graph), capacity_bytes, SplitOptions(uneven=True)).best(layers)
    two = Splitter(Footprints(graph), capacity_bytes, SplitOptions(uneven=True, most_axes=2)).best(layers)
    if one is not None:
        assert two == one
    elif two is not None:
        assert len(two.factors) == 2
        assert two.peak_bytes <= capacity_bytes


def test_two_axes_fit_what_neither_fits_alone() -> None:
    """Two images of eight rows, written in place, with room for two rows of one image."""
    builder = Builder("small")
    x = builder.input("x", 2, 8, 1, 4)
    y = builder.elementwise("relu", x)
    graph, _ = builder.build(y)
    layers, row_bytes = needed_layers(graph, y), 4 * 2
    assert Splitter(Footprints(graph), row_bytes, SplitOptions(most_axes=1)).best(layers) is None
    best = Splitter(Footprints(graph), row_bytes, SplitOptions(most_axes=2)).best(layers)
    assert best == Splitting(((0, 2), (1, 8)), 1, row_bytes)
    assert Splitter(Footprints(graph), 1, SplitOptions(most_axes=2)).best(layers) is None


def test_granularity_says_where_an_axis_may_be_cut() -> None:
    builder = Builder("granularity")
    x = builder.input("x", 1, 12, 4, 2)
    y = builder.elementwise("relu", x)
    graph, _ = builder.build(y)
    layers = needed_layers(graph, y)
    row_bytes = 4 * 2 * 2
    footprints, uneven = Footprints(graph), SplitOptions(uneven=True)
    free = Splitter(footprints, 3 * row_bytes).best(layers)
    by_five = Splitter(footprints, 5 * row_bytes, uneven, lambda _: (0, 5, 0, 0)).best(layers)
    too_small = Splitter(footprints, 4 * row_bytes, uneven, lambda _: (0, 5, 0, 0)).best(layers)
    never = Splitter(footprints, 3 * row_bytes, granularity=lambda _: (0, 0, 0, 0)).best(layers)
    assert free == Splitting(((1, 4),), 1, 3 * row_bytes)
    assert by_five == Splitting(((1, 3),), 1, 5 * row_bytes)  # of 5, 5 and 2 rows
    assert too_small is None
    assert never is None


def test_pieces_need_not_be_equal_where_that_is_allowed() -> None:
    """Seven rows, room for four: no divisor but seven, or two uneven pieces."""
    builder = Builder("seven")
    x = builder.input("x", 1, 7, 4, 2)
    y = builder.elementwise("relu", x)
    graph, _ = builder.build(y)
    layers, row_bytes = needed_layers(graph, y), 4 * 2 * 2
    even, uneven = (
        Splitter(Footprints(graph), 4 * row_bytes, SplitOptions(uneven=allowed), lambda _: (0, 1, 0, 0)).best(layers)
        for allowed in (False, True)
    )
    assert even == Splitting(((1, 7),), 1, row_bytes)
    assert uneven == Splitting(((1, 2),), 1, 4 * row_bytes)


def test_the_text_names_pieces_axes_and_bytes() -> None:
    assert str(Splitting(((0, 4),), 3, 5 * MEBIBYTE)) == "4 pieces of axis 0, 5 MiB at the worst step"
    assert str(Splitting(((0, 1),), 3, 100)) == "uncut, 100 bytes at the worst step"
    both = Splitting(((0, 2), (1, 3)), 3, 100)
    assert (both.instances, str(both)) == (6, "2 pieces of axis 0 x 3 pieces of axis 1, 100 bytes at the worst step")
