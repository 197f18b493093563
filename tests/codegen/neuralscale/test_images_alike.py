"""What a tile needs and its instructions are the same, asked for its images or taken from others'."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.neuralscale.kernels.dispatch import template_of
from codegen.neuralscale.target import TARGET, NeuralScaleTarget
from isched.lowering.tile_code import tile_code
from partitioner.context.image_independence import images_of
from partitioner.context.plan_context import Context
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer, group_layers
from partitioner.tiling.tiling import buffer_sizes, place_buffers
from tests.chip_runs import stcp920
from tests.movement_graphs import MovementBuilder

CHIP = stcp920()
IMAGES = 5


@cache
def network() -> tuple[Graph, Constants, tuple[Layer, ...]]:
    """Layers of every template, with epilogues and operands of several shapes; the first axis is of images in
    most, of something else in some."""
    b = MovementBuilder("images")
    x = b.input("x", IMAGES, 9, 9, 16)
    y = b.elementwise("add", b.elementwise("relu", b.conv(x, 16, stride=1)), x)
    y = b.elementwise("mul", b.conv(y, 16, groups=4), b.normal(1, 9, 9, 16))
    y = b.scale_shift(b.conv(y, 16, groups=16))
    z = b.pool("average_pool", b.pool("max_pool", y, (3, 3), 2, (1, 1, 1, 1)), (3, 3), 1, (1, 1, 1, 1))
    z = b.concat(3, z, b.pool("max_pool", x, (3, 3), 2, (1, 1, 1, 1)))
    moved = b.pad(b.transpose(y, 0, 2, 1, 3), (0, 1, 0, 0), (0, 2, 1, 0), 1.5)
    moved = b.slice(moved, (1, 1, 0, 0), (1, 2, 1, 1), (IMAGES - 1, 5, 7, 8))
    turned = b.transpose(b.reduce("reduce_max", y, 2), 1, 0, 2, 3)
    taken = b.take(y, 0, 3, 1, 1)
    both = b.concat(0, y, x)
    wide = b.resize(b.lrn(y, 3), (IMAGES, 18, 18, 16))
    flat = b.softmax(b.matmul(b.view(z, IMAGES, 5 * 5 * 32), b.normal(5 * 5 * 32, 10)))
    graph, constants = b.build(moved, turned, taken, both, wide, flat)
    layers = group_layers(graph, TARGET.can_fuse_epilogue)[0]
    return graph, constants, tuple(layer for layer in layers if not layer.is_view(graph))


@cache
def context() -> Context[NeuralScaleTarget]:
    graph, constants, _ = network()
    return Context(graph, constants, CHIP, TARGET)


@given(st.data())
@settings(max_examples=400, deadline=None)
@pytest.mark.commit
def test_the_same_for_all_images(data: st.DataObject) -> None:
    graph, constants, layers = network()
    layer = data.draw(st.sampled_from(layers))
    template = template_of(graph, layer.anchor(graph))
    granularity = template.granularity(graph, layer.anchor(graph))
    box = []
    for extent, granule in zip(graph.by_name[layer.output].shape, granularity, strict=True):
        points = st.integers(0, -(-extent // granule) if granule else 1)
        low, high = sorted(data.draw(st.tuples(points, points).filter(lambda ends: ends[0] != ends[1])))
        box.append((low * granule, min(extent, high * granule)) if granule else (0, extent))
    place = tuple(box)
    ctx = context()
    work = TARGET.work(graph, layer, place, CHIP)
    assert ctx.work(layer, place) == work
    offsets = place_buffers(CHIP, buffer_sizes((work.buffers,)))
    assert tile_code(ctx, layer, place, offsets, {}) == TARGET.lower(
        graph, constants, layer, place, work, offsets, CHIP
    )


def test_which_values_follow_the_images() -> None:
    graph, _, layers = network()
    constants = {tensor.name for tensor in graph.tensors if tensor.constant}
    follow = {layer.name: images_of(graph, layer) for layer in layers}
    for layer in layers:
        found = follow[layer.name]
        assert found is None or set(found) == set(layer.inputs(graph)) - constants
    # What turns, picks or joins images, and weights of which the maps say only that any may be read.
    apart = {layer.name for layer in layers if follow[layer.name] is None}
    assert {graph.op_by_name[name].kind for name in apart} == {"transpose", "take", "concat", "slice", "conv"}
    assert {"conv0", "conv3"} & apart == {"conv3"}
