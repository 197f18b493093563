"""Cuts of axes, pieces of boxes, and the choice among them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from codegen.neuralscale.target import TARGET
from partitioner.context.plan_context import PlanContext
from partitioner.ir.layers import group_layers
from partitioner.ir.regions import box_size, full_box
from partitioner.ir.steps import Binding
from partitioner.tiling.core_partition import bind, cut_axis, cut_granularity, piece_boxes
from tests.chip_runs import small_chip, stcp920
from tests.small_graphs import GraphBuilder


@given(st.integers(0, 20), st.integers(1, 100), st.integers(1, 12), st.integers(0, 9))
def test_cuts_cover_the_axis_in_order(low: int, length: int, parts: int, granule: int) -> None:
    cuts = cut_axis(low, low + length, parts, granule)
    assert cuts[0][0] == low
    assert cuts[-1][1] == low + length
    assert all(a[1] == b[0] for a, b in pairwise(cuts))
    assert len(cuts) == (min(parts, -(-length // granule)) if granule else 1)
    if granule:
        assert all((end - low) % granule == 0 for _, end in cuts[:-1])
        sizes = [-(-(b - a) // granule) for a, b in cuts]
        assert max(sizes) - min(sizes) <= 1


def test_pieces_are_row_major() -> None:
    boxes = piece_boxes(((0, 3), (0, 4)), (2, 2), (1, 1))
    assert boxes == (((0, 1), (0, 2)), ((0, 1), (2, 4)), ((1, 3), (0, 2)), ((1, 3), (2, 4)))


def bound(shape: tuple[int, int, int, int], channels: int, cores: int = 8) -> Binding:
    builder = GraphBuilder("one")
    y = builder.conv(builder.input("x", *shape), channels)
    graph, _ = builder.build(y)
    (layer,), _ = group_layers(graph)
    chip = small_chip(cores=cores)
    binding, _ = bind(PlanContext(graph, {}, chip, TARGET), layer, full_box(graph.by_name[y].shape))
    return binding


def test_all_cores_work_on_a_large_image() -> None:
    """Cut both ways, because the halo of two blocks of half the width is smaller than that of thinner rows."""
    assert bound((1, 64, 64, 32), 32).pieces == (1, 4, 2, 1)


def test_a_small_image_is_cut_by_channels() -> None:
    """Seven rows make uneven pieces for eight cores; 512 channels divide."""
    binding = bound((1, 7, 7, 512), 512)
    assert binding.pieces[3] > 1
    assert len(binding.cores) == 8


def test_images_of_a_batch_go_to_different_cores() -> None:
    assert bound((8, 9, 9, 16), 16).pieces == (8, 1, 1, 1)


def test_one_core_gets_everything() -> None:
    assert bound((2, 9, 9, 16), 64, cores=1) == Binding((1, 1, 1, 1), (0,))


def test_channels_are_cut_at_the_width_of_the_matrix_array() -> None:
    builder = GraphBuilder("granularity")
    x = builder.input("x", 1, 8, 8, 96)
    names = (builder.conv(x, 256), builder.conv(x, 40), builder.conv(x, 96, groups=96), builder.conv(x, 96, groups=2))
    graph, _ = builder.build(*names)
    ctx = PlanContext(graph, {}, stcp920(), TARGET)
    layers, _ = group_layers(graph)
    boxes = [full_box(graph.by_name[layer.output].shape) for layer in layers]
    granularity = [cut_granularity(ctx, layer, box)[3] for layer, box in zip(layers, boxes, strict=True)]
    assert granularity == [32, 1, 32, 32]
    assert box_size(boxes[0]) == 8 * 8 * 256
