"""What fits and what does not: tiles, rounds, buffers, and the sentence when nothing fits."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import DoesNotFit, place_text, required
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer, group_layers
from partitioner.ir.regions import box_size, full_box
from partitioner.tiling.buffer_aliasing import NOTHING, Residents
from partitioner.tiling.tiling import (
    Tiling,
    buffer_sizes,
    choose_tiles,
    overflow,
    piece_tiles,
    place_buffers,
    tile_boxes,
)
from tests.chip_runs import compile_graph, small_chip, stcp920
from tests.small_graphs import GraphBuilder

KIB = 1024


def convolution(channels: int = 64, outputs: int = 96, size: int = 20) -> tuple[Graph, Layer]:
    builder = GraphBuilder("one")
    graph, _ = builder.build(builder.conv(builder.input("x", 1, size, size, channels), outputs))
    return graph, group_layers(graph)[0][0]


def tiles(chip: Chip, graph: Graph, layer: Layer) -> Tiling:
    box = full_box(graph.by_name[layer.output].shape)
    return required(choose_tiles(PlanContext(graph, {}, chip, TARGET), layer, box))[0]


def test_what_fits_whole_is_one_tile() -> None:
    graph, layer = convolution()
    assert tiles(stcp920(), graph, layer).counts == (1, 1, 1, 1)


@pytest.mark.parametrize("chip", [small_chip(1, 64 * KIB, 64 * KIB), small_chip(1, 1024 * KIB, 40 * KIB)])
def test_every_tile_fits_and_together_they_are_the_piece(chip: Chip) -> None:
    graph, layer = convolution()
    box = full_box(graph.by_name[layer.output].shape)
    boxes = tile_boxes(box, tiles(chip, graph, layer))
    assert len(boxes) > 1
    assert sum(box_size(tile) for tile in boxes) == box_size(box)
    assert all(overflow(chip, buffer_sizes((TARGET.work(graph, layer, tile, chip).buffers,))) is None for tile in boxes)


def test_a_short_weights_buffer_cuts_channels_and_keeps_the_input() -> None:
    graph, layer = convolution()
    tiling = tiles(small_chip(1, 1024 * KIB, 40 * KIB), graph, layer)
    assert (tiling.counts, tiling.granularity[3]) == ((1, 1, 1, 3), 32)


def test_channels_are_cut_finer_where_the_width_of_the_array_does_not_fit() -> None:
    graph, layer = convolution()
    tiling = tiles(small_chip(1, 1024 * KIB, 20 * KIB), graph, layer)
    assert tiling.granularity[3] == 1
    assert tiling.counts[3] >= 6


def test_buffers_lie_one_after_the_other_in_their_parts() -> None:
    sizes = {("a", "L1", "data"): 10, ("w", "L1", "weights"): 6, ("b", "L1", "data"): 3, ("s", "IM", ""): 8}
    assert place_buffers(stcp920(), sizes) == {"a": 0, "w": 1024 * KIB, "b": 10, "s": 0}
    pooled = small_chip(enforced=False)
    assert place_buffers(pooled, sizes) == {"a": 0, "w": 10, "b": 16, "s": 0}


def test_no_buffer_reaches_into_another_part() -> None:
    """Tiles at the border need a large output, those inside a large input: one place for both would be too large."""
    builder = GraphBuilder("uneven")
    out = builder.conv(builder.input("x", 1, 17, 7, 16), 8, (7, 7), 1, (3, 3, 3, 3))
    chip = small_chip(cores=1, data_bytes=2 * KIB, weights_bytes=32 * KIB, im_bytes=16 * KIB, llb_bytes=128 * KIB)
    compiled = compile_graph(*builder.build(out), chip)
    regions = [r for s in compiled.program.streams for i in s.instrs for r in (*i.reads, *i.writes) if r.memory == "L1"]
    assert not [r for r in regions if r.offset_bytes < 2 * KIB < r.end_bytes]
    stores = [i for s in compiled.program.streams for i in s.instrs if i.opcode == "mov.llb.l1"]
    assert all(i.reads[0].end_bytes <= 2 * KIB for i in stores), "results lie in the data part"
    compiled.check(0)


@pytest.mark.parametrize(
    ("chip", "where"),
    [
        (small_chip(data_bytes=1 * KIB), r"L1 \(data buffer\)"),
        (small_chip(weights_bytes=256), r"L1 \(weights buffer\)"),
        (small_chip(im_bytes=1), "IM"),
        (small_chip(llb_bytes=2 * KIB), "LLB"),
    ],
    ids=["data", "weights", "IM", "LLB"],
)
def test_a_layer_that_cannot_fit_is_named_with_demand_and_bound(chip: Chip, where: str) -> None:
    builder = GraphBuilder("large")
    graph, constants = builder.build(builder.conv(builder.input("x", 1, 20, 20, 64), 33))
    with pytest.raises(DoesNotFit, match=rf"layer conv0.*needs .* of {where}; has .* too few.*change one of") as caught:
        compile_graph(graph, constants, chip)
    found = caught.value.infeasible
    assert found.demand_bytes > found.room_bytes
    assert re.fullmatch(where, place_text(found))


def test_tensors_beyond_the_main_memory_are_named() -> None:
    builder = GraphBuilder("huge")
    x = builder.input("images", 40, 4096, 4096, 3)
    graph, constants = builder.build(builder.elementwise("relu", x))
    with pytest.raises(DoesNotFit, match=r"largest tensor images.*DDR"):
        compile_graph(graph, constants)


def test_isolated_layers_read_probes_of_their_inputs() -> None:
    builder = GraphBuilder("probed")
    first = builder.conv(builder.input("x", 1, 6, 6, 8), 8)
    graph, constants = builder.build(builder.conv(first, 8))
    compiled = compile_graph(graph, constants, isolated=True)
    probes = {p.of: p for p in compiled.program.placements if p.kind == "probe"}
    assert first in probes
    reads = {r.offset_bytes for s in compiled.program.streams for i in s.instrs for r in i.reads if r.memory == "DDR"}
    assert probes[first].offset_bytes in reads
    assert compiled.program.placement[first].offset_bytes not in reads


def test_a_border_that_makes_another_tile_the_largest_does_not_refuse_the_piece() -> None:
    """Of two tiles at the lower border the last one's halo is clipped; the first needs a row more."""
    builder = GraphBuilder("border")
    x = builder.input("x", 6, 15, 10, 24)
    graph, _ = builder.build(builder.pool("max_pool", x, (3, 3), stride=1, pads=(1, 1, 1, 1)))
    (layer,) = group_layers(graph)[0]
    chip = small_chip(cores=1)
    ctx = PlanContext(graph, {}, chip, TARGET)
    free_regions = {("L1", "data"): (0, 4352)}
    piece = ((0, 1), (7, 15), (0, 10), (0, 24))
    kept = Residents({layer.output: piece, "x": ((0, 1), (6, 15), (0, 10), (0, 24))}, "data")
    for residents in (NOTHING, kept):
        tiles = piece_tiles(ctx, layer, piece, residents, free_regions)
        assert sum(box_size(tile) for tile in tiles.boxes) == box_size(piece)
        assert all(overflow(chip, buffer_sizes((used.spare,)), free_regions) is None for used in tiles.fits)


def test_a_network_that_passes_its_input_on_needs_no_instruction() -> None:
    builder = GraphBuilder("pass")
    graph, constants = builder.build(builder.input("x", 2, 3))
    assert all(not stream.instrs for stream in compile_graph(graph, constants).program.streams)


def test_rounds_after_each_other_leave_room_for_a_second_place() -> None:
    """A piece that fits once is one tile; where more rounds follow it is cut until the next one's tile fits beside."""
    chip = small_chip(1, 256 * KIB, 256 * KIB)
    graph, layer = convolution(channels=64, outputs=128, size=20)
    ctx, box = PlanContext(graph, {}, chip, TARGET), full_box(graph.by_name[layer.output].shape)
    alone, several = (required(choose_tiles(ctx, layer, box, rounds=rounds))[0] for rounds in (0, 8))
    assert len(tile_boxes(box, alone)) == 1 < len(tile_boxes(box, several))
    for tile in tile_boxes(box, several):
        buffers = TARGET.work(graph, layer, tile, chip).buffers
        again = tuple(replace(buffer, name=f"{buffer.name}'") for buffer in buffers if not buffer.briefly)
        assert overflow(chip, buffer_sizes((buffers + again,))) is None
