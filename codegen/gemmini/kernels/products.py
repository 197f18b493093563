"""Tiles of convolutions and matrix products of int8 on the array, from the main memory to the main memory.

    patch of the input, weights, bias --mvin--> scratchpad and accumulator --preload, compute--> sums --mvout--> result

A result of int8 with one scale leaves the accumulator finished: scaled, bounded below by an activation, rounded. All
else that follows (a scale per channel, more operators, a result in float32) the core does for each element: the sums go
to the main memory as int32 first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from codegen.gemmini.isa.geometry import (
    ACCUMULATOR,
    BASE,
    CODE_BYTES,
    MAIN,
    SCRATCHPAD,
    SUMS_BYTES,
    ArrayGeometry,
    geometry_of,
)
from codegen.gemmini.isa.operations import ACCUMULATE, FULL_WIDTH, GARBAGE
from codegen.gemmini.isa.operations import ACCUMULATOR as SUMS
from codegen.gemmini.kernels.elements import chain_of, element_stream, source_place
from codegen.gemmini.kernels.loops import BoxLoop, blocks, box_loop, merged, start_of, strides
from codegen.gemmini.kernels.product_shape import ProductShape, product_shape
from codegen.gemmini.streams.instructions import accelerator_instr, core_instr, fence
from codegen.gemmini.streams.streams import Item, looped, nested, once
from hw_models.chip import Chip
from isched.lowering.strided_copies import box_regions
from isched.program.program import Instr, Region
from isched.program.target import PlacedArray
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, full_box
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork

MOVED_BYTES = 64
"""Bytes of a row of the main memory that one `mvin` of int8 moves at most, in blocks of columns."""


def _blocks_at_once(dim: int) -> int:
    return max(1, MOVED_BYTES // dim)


INPUT, WEIGHTS, SUMS_BUFFER = "input", "weights", "sums"


@dataclass(frozen=True, slots=True)
class Finish:
    """How sums become the result: by moving out with one scale, with or without Relu; else by the core."""

    on_array: bool
    relu: bool = False
    scale: float = 0.0


def finish_of(graph: Graph, constants: Constants, layer: Layer) -> Finish:
    """How the sums of a product layer become its result."""
    anchor, epilogue = layer.anchor(graph), layer.epilogue(graph)
    scale = constants.get(graph.by_name[anchor.inputs[2]].constant or "")
    kinds = [op.kind for op in epilogue]
    last = dict(epilogue[-1].attributes) if epilogue else {}
    nearest = last.get("rounding") == "nearest" and "centre" not in last
    if kinds in (["narrow"], ["relu", "narrow"]) and nearest and scale is not None and scale.size == 1:
        return Finish(True, kinds[0] == "relu", float(scale.reshape(-1)[0]))
    return Finish(False)


def product_work(graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
    """Needs of a tile: the patch, the weights and the sums, each whole."""
    op, geometry = layer.anchor(graph), geometry_of(chip)
    shape, dim = product_shape(graph, op, box), geometry.dim
    buffers = (
        TileBuffer(INPUT, SCRATCHPAD, "", dim * shape.input_rows_in_scratchpad(dim)),
        TileBuffer(WEIGHTS, SCRATCHPAD, "", dim * shape.weight_rows(dim)),
        TileBuffer(SUMS_BUFFER, ACCUMULATOR, "", 4 * dim * shape.sum_rows(dim)),
    )
    weights = graph.by_name[op.inputs[1]].shape
    channels = shape.channels
    loads = [
        TileLoad(op.inputs[0], shape.input_box(), INPUT),
        TileLoad(op.inputs[1], _weights_box(shape, weights), WEIGHTS),
    ]
    for name in op.inputs[2:]:
        extent = graph.by_name[name].shape[0]
        loads.append(TileLoad(name, (channels if extent > 1 else (0, 1),), SUMS_BUFFER))
    for name in layer.inputs(graph):
        if name not in op.inputs:
            loads.append(TileLoad(name, _part(graph, name, box), SUMS_BUFFER))
    return TileWork(buffers, (Pass(tuple(loads)),), SUMS_BUFFER, (("array", _array_cycles(shape, geometry)),))


def _weights_box(shape: ProductShape, weights: tuple[int, ...]) -> Box:
    """The part of the second factor, of all its extents, that a tile reads."""
    return (*shape.matrices, *full_box(weights[len(shape.matrices) : -1]), shape.channels)


def _part(graph: Graph, name: str, box: Box) -> Box:
    """The part of an operand of the epilogue that a box of the result needs."""
    shape = graph.by_name[name].shape
    return tuple(
        (0, 1) if extent == 1 else interval
        for extent, interval in zip(shape, box[len(box) - len(shape) :], strict=True)
    )


def _array_cycles(shape: ProductShape, geometry: ArrayGeometry) -> float:
    """A block of rows passes through the array in as many cycles as the array has rows."""
    dim = geometry.dim
    return float(_row_blocks(shape, dim) * shape.channel_blocks(dim) * shape.taps * shape.depth_blocks(dim) * dim)


def _row_blocks(shape: ProductShape, dim: int) -> int:
    axes = _pixel_axes(shape, dim)
    return sum(number for _, number, _ in blocks(axes[-1].count, dim)) * prod(each.count for each in axes[:-1])


def _pixel_axes(shape: ProductShape, dim: int) -> tuple[BoxLoop, ...]:
    """Loops over the pixels of a tile, with what they add to rows of the input patch, of the weights and of the sums;
    at least one, the last of which has the same weights for all."""
    patch_rows, patch_columns = shape.row_span.patch, shape.column_span.patch
    per_image = shape.out_rows * shape.out_columns
    steps = {"a": patch_rows * patch_columns, "b": shape.rows_of_matrix(dim), "c": per_image}
    axes = merged(
        (
            *shape.image_loops(shape.input_images, **steps),
            box_loop(shape.out_rows, a=shape.down.step * patch_columns, c=shape.out_columns),
            box_loop(shape.out_columns, a=shape.along.step, c=1),
        )
    )
    is_dense = axes and axes[-1].step("c") == 1 and not axes[-1].step("b")
    return axes if is_dense else (*axes, box_loop(1, a=1, c=1))


@dataclass(frozen=True, slots=True)
class ProductTile:
    """A tile that is lowered."""

    graph: Graph
    constants: Constants
    layer: Layer
    box: Box
    offsets_bytes: Mapping[str, int]
    operands: Mapping[str, PlacedArray]
    result: PlacedArray
    chip: Chip
    held: frozenset[str] = frozenset()
    """Tensors of which the scratchpad holds the same boxes already."""

    @property
    def op(self) -> Op:
        return self.layer.anchor(self.graph)

    @property
    def geometry(self) -> ArrayGeometry:
        return geometry_of(self.chip)

    @property
    def shape(self) -> ProductShape:
        return product_shape(self.graph, self.op, self.box)

    @property
    def input_row(self) -> int:
        return self.offsets_bytes[INPUT] // self.geometry.dim

    @property
    def weight_row(self) -> int:
        return self.offsets_bytes[WEIGHTS] // self.geometry.dim

    @property
    def sum_row(self) -> int:
        return self.offsets_bytes[SUMS_BUFFER] // (4 * self.geometry.dim)


def product_instrs(tile: ProductTile) -> tuple[Instr, ...]:
    """Instructions of a tile."""
    return (
        *_configuration(tile),
        *(() if tile.op.inputs[1] in tile.held else (_load_weights(tile),)),
        *(() if _patch_is_held(tile) else (_load_input(tile),)),
        _load_bias(tile),
        _compute(tile),
        *_finish(tile),
    )


def _patch_is_held(tile: ProductTile) -> bool:
    """Whether the patch is there, with its padding. The same box of the input may belong to patches with other padding
    where it is all of the input along an axis and the tile is not all of the result."""
    if tile.op.inputs[0] not in tile.held:
        return False
    shape, whole = (
        tile.shape,
        product_shape(tile.graph, tile.op, full_box(tile.graph.by_name[tile.op.outputs[0]].shape)),
    )
    return not ambiguous(shape, whole)


def ambiguous(shape: ProductShape, whole: ProductShape) -> bool:
    """Whether another tile of the `whole` layer may read the same box of the input with other padding around it."""
    axes = ((shape.row_span, shape.rows, whole.rows), (shape.column_span, shape.columns, whole.columns))
    return any(own != all_of_it and span.before > 0 and span.after > 0 for span, own, all_of_it in axes)


def _configuration(tile: ProductTile) -> tuple[Instr, ...]:
    shape, source = tile.shape, tile.layer.name
    depth, channels = shape.depth, shape.all_channels
    load = (
        once("config_ld", state=0, pixels_per_row=1, block_rows=shape.patch_pixels, scale=1.0, stride=depth),
        once("config_ld", state=1, pixels_per_row=1, block_rows=shape.taps * depth, scale=1.0, stride=channels),
        once("config_ld", state=2, pixels_per_row=1, block_rows=0, scale=1.0, stride=0),
    )
    execute = (
        once(
            "config_ex", weight_stationary=1, a_stride=_pixel_axes(shape, tile.geometry.dim)[-1].step("a"), c_stride=1
        ),
    )
    return (
        accelerator_instr("load", "config_ld", load, (), (), 1.0, source),
        accelerator_instr("array", "config_ex", execute, (), (), 1.0, source),
    )


def _local(tile: ProductTile, memory: str, buffer: str, rows: int) -> Region:
    """All of a buffer."""
    row_bytes = tile.geometry.dim * (4 if memory == ACCUMULATOR else 1)
    return Region(memory, tile.offsets_bytes[buffer], rows * row_bytes)


def _main_regions(tile: ProductTile, name: str, box: Box) -> tuple[Region, ...]:
    place = tile.operands[name]
    item_bytes = tile.graph.by_name[name].item_bytes
    return box_regions(MAIN, place.offset_bytes, box_shape(place.box), box, item_bytes)


def _address(tile: ProductTile, name: str, box: Box) -> int:
    place = tile.operands[name]
    return BASE + place.offset_bytes + start_of(box_shape(place.box), tile.graph.by_name[name].item_bytes, box)


def _moves(
    mnemonic: str, rows: int, row_step: int, columns: int, dim: int, at_once: int, loops: tuple[BoxLoop, ...],
    dram: int, row: int, block_rows: int,
) -> tuple[Item, ...]:  # fmt: skip
    """Loops that move a matrix of int8: rows one after the other in local memory and `row_step` bytes apart in the main
    memory (zeros where `dram` is 0), columns in blocks. `loops` are around them."""
    stream: list[Item] = []
    for first, count, some in blocks(columns, dim * at_once):
        for start, number, height in blocks(rows, dim):
            inner = (
                box_loop(count, dram=dim * at_once if dram else 0, row=at_once * block_rows),
                box_loop(number, dram=height * row_step, row=height),
            )
            all_loops = [each for each in (*loops, *inner) if each.count > 1]
            steps = [{"dram": each.step("dram"), "row": each.step("row")} for each in all_loops]
            do = looped(
                mnemonic,
                steps,
                dram=dram + first + start * row_step if dram else 0,
                row=row + first // dim * block_rows + start,
                columns=some,
                rows=height,
            )
            stream += nested([each.count for each in all_loops], (do,))
    return tuple(stream)


def _load_weights(tile: ProductTile) -> Instr:
    shape, dim, name = tile.shape, tile.geometry.dim, tile.op.inputs[1]
    extents = tile.graph.by_name[name].shape
    box = _weights_box(shape, extents)
    rows = shape.taps * shape.depth
    dram = _address(tile, name, box)
    steps = strides(extents, 1)
    matrices, row = [], shape.rows_of_matrix(dim)
    for (low, high), step in reversed(tuple(zip(shape.matrices, steps, strict=False))):
        matrices.append(box_loop(high - low, dram=step, row=row))
        row *= high - low
    stream = _moves("mvin2", rows, shape.all_channels, shape.out_channels, dim, _blocks_at_once(dim),
                    merged(matrices[::-1]), dram, tile.weight_row, rows)  # fmt: skip
    writes = (_local(tile, SCRATCHPAD, WEIGHTS, shape.weight_rows(dim)),)
    cycles = shape.matrix_count * rows * shape.out_channels / _bandwidth(tile, SCRATCHPAD)
    reads = _main_regions(tile, name, box)
    return accelerator_instr("load", "mvin2", stream, reads, writes, cycles, tile.layer.name)


def _bandwidth(tile: ProductTile, memory: str) -> float:
    return tile.chip.link(MAIN, memory).bandwidth_bytes_per_cycle


def _load_input(tile: ProductTile) -> Instr:
    """The patch: its padding as zeros, then its pixels."""
    shape, dim, name = tile.shape, tile.geometry.dim, tile.op.inputs[0]
    rows, columns, depth = shape.row_span, shape.column_span, shape.depth
    image = rows.patch * columns.patch

    def part(first_row: int, height: int, first_column: int, width: int, dram: int) -> tuple[Item, ...]:
        """Rows and columns of the patch, from `dram` on or as zeros."""
        step_row = shape.input_columns * depth if dram else 0
        step_image = shape.input_rows * step_row
        loops = merged(
            (
                *shape.image_loops(shape.input_images, dram=step_image, row=image),
                box_loop(height, dram=step_row, row=columns.patch),
                box_loop(width, dram=depth if dram else 0, row=1),
            )
        )
        # The pixels of a block follow each other in the scratchpad: the last loop, if it is one over pixels.
        dense = loops[-1] if loops and loops[-1].step("row") == 1 else box_loop(1, row=1)
        around = loops[:-1] if loops and dense is loops[-1] else loops
        start = tile.input_row + first_row * columns.patch + first_column
        return _moves("mvin", dense.count, depth if dram else 0, depth, dim, _blocks_at_once(dim), around, dram, start,
                      shape.patch_pixels)  # fmt: skip

    zeros: tuple[Item, ...] = ()
    borders = (
        (0, rows.before, 0, columns.patch),
        (rows.patch - rows.after, rows.after, 0, columns.patch),
        (rows.before, rows.real, 0, columns.before),
        (rows.before, rows.real, columns.patch - columns.after, columns.after),
    )
    for border in borders:
        if border[1] and border[3]:
            zeros += part(*border, 0)
    box = shape.input_box()
    stream: tuple[Item, ...] = ()
    if rows.real and columns.real:
        dram = _address(tile, name, box)
        stream = part(rows.before, rows.real, columns.before, columns.real, dram)
    writes = (_local(tile, SCRATCHPAD, INPUT, shape.input_rows_in_scratchpad(dim)),)
    moved = shape.image_count * rows.real * columns.real * depth
    cycles = moved / _bandwidth(tile, SCRATCHPAD)
    reads = _main_regions(tile, name, box) if stream else ()
    return accelerator_instr("load", "mvin", (*zeros, *stream), reads, writes, cycles, tile.layer.name)


def _load_bias(tile: ProductTile) -> Instr:
    """The bias in every row of the sums, zeros where there is none."""
    shape, dim = tile.shape, tile.geometry.dim
    name = tile.op.inputs[3] if len(tile.op.inputs) > 3 else ""
    dram = _address(tile, name, (shape.channels,)) if name else 0
    stream: list[Item] = []
    for first, count, columns in blocks(shape.out_channels, dim):
        for start, number, height in blocks(shape.pixels, dim):
            loops = [
                each
                for each in (
                    box_loop(count, dram=4 * dim if dram else 0, row=shape.pixels),
                    box_loop(number, row=height),
                )
                if each.count > 1
            ]
            do = looped(
                "mvin3",
                [{"dram": each.step("dram"), "row": each.step("row")} for each in loops],
                dram=dram + 4 * first if dram else 0,
                row=SUMS + tile.sum_row + first // dim * shape.pixels + start,
                columns=columns,
                rows=height,
            )
            stream += nested([each.count for each in loops], (do,))
    reads = _main_regions(tile, name, (shape.channels,)) if name else ()
    writes = (_local(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
    cycles = 4 * shape.pixels * shape.out_channels / _bandwidth(tile, ACCUMULATOR)
    return accelerator_instr("load", "mvin3", tuple(stream), reads, writes, cycles, tile.layer.name)


def _compute(tile: ProductTile) -> Instr:
    """All products of the tile, added to the sums."""
    shape, dim = tile.shape, tile.geometry.dim
    rows = shape.taps * shape.depth
    patch = shape.column_span.patch
    *outer, pixels = _pixel_axes(shape, dim)
    stream: list[Item] = []
    for out, out_count, width in blocks(shape.out_channels, dim):
        for deep, deep_count, depth in blocks(shape.depth, dim):
            for first, count, height in blocks(pixels.count, dim):
                loops = [
                    each
                    for each in (
                        box_loop(out_count, b=rows, c=shape.pixels),
                        box_loop(shape.down.taps, b=shape.along.taps * shape.depth, a=shape.down.dilation * patch),
                        box_loop(shape.along.taps, b=shape.depth, a=shape.along.dilation),
                        box_loop(deep_count, b=depth, a=shape.patch_pixels),
                        *outer,
                        box_loop(count, a=height * pixels.step("a"), c=height),
                    )
                    if each.count > 1
                ]
                a = tile.input_row + deep // dim * shape.patch_pixels + first * pixels.step("a")
                b = tile.weight_row + out // dim * rows + deep
                c = SUMS + ACCUMULATE + tile.sum_row + out // dim * shape.pixels + first
                body = (
                    looped(
                        "preload",
                        [{"b_row": each.step("b"), "c_row": each.step("c")} for each in loops],
                        b_row=b, b_columns=width, b_rows=depth, c_row=c, c_columns=width, c_rows=height,
                    ),
                    looped(
                        "compute_preloaded",
                        [{"a_row": each.step("a")} for each in loops],
                        a_row=a, a_columns=depth, a_rows=height, d_row=GARBAGE, d_columns=dim, d_rows=dim,
                    ),
                )  # fmt: skip
                stream += nested([each.count for each in loops], body)
    reads = (
        _local(tile, SCRATCHPAD, INPUT, shape.input_rows_in_scratchpad(dim)),
        _local(tile, SCRATCHPAD, WEIGHTS, shape.weight_rows(dim)),
    )
    writes = (_local(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
    cycles = _array_cycles(shape, tile.geometry)
    return accelerator_instr("array", "compute", tuple(stream), (*reads, *writes), writes, cycles, tile.layer.name)


def _finish(tile: ProductTile) -> tuple[Instr, ...]:
    finish, shape, source = finish_of(tile.graph, tile.constants, tile.layer), tile.shape, tile.layer.name
    dim = tile.geometry.dim
    reads = (_local(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
    result = tile.graph.by_name[tile.layer.output]
    steps = strides(result.shape, result.item_bytes)
    if finish.on_array:
        config = once("config_st", activation=int(finish.relu), stride=steps[-2] if len(steps) > 1 else 0,
                      scale=finish.scale)  # fmt: skip
        start = BASE + tile.result.offset_bytes + start_of(result.shape, result.item_bytes, tile.box)
        images = [box_loop(high - low, dram=step) for (low, high), step in zip(shape.images, steps, strict=False)]
        spatial = [box_loop(shape.out_rows, dram=steps[-3] if tile.op.kind == "conv" else 0)]
        axes = (*images, *spatial, box_loop(shape.out_columns, dram=steps[-2] if len(steps) > 1 else 0))
        stream = (config, *_moves_out(tile, axes, start, 1, SUMS))
        writes = box_regions(MAIN, tile.result.offset_bytes, result.shape, tile.box, result.item_bytes)
        cycles = shape.pixels * shape.out_channels / tile.chip.link(ACCUMULATOR, MAIN).bandwidth_bytes_per_cycle
        return (accelerator_instr("store", "mvout", stream, reads, writes, cycles, source),)
    width = 4 * shape.out_channels
    config = once("config_st", stride=width, scale=1.0)
    start = BASE + CODE_BYTES
    axes = (box_loop(shape.pixels, dram=width),)
    stream = (config, *_moves_out(tile, axes, start, 4, SUMS + FULL_WIDTH))
    waiting = Region(MAIN, CODE_BYTES, shape.pixels * width)
    cycles = shape.pixels * width / tile.chip.link(ACCUMULATOR, MAIN).bandwidth_bytes_per_cycle
    out = accelerator_instr("store", "mvout", stream, reads, (waiting,), cycles, source)
    return (out, fence(source), _by_core(tile, waiting))


def _moves_out(
    tile: ProductTile, axes: tuple[BoxLoop, ...], start: int, item_bytes: int, flags: int
) -> tuple[Item, ...]:
    """Loops that move the sums out: `axes` over pixels, as they lie in the accumulator, with steps in the main
    memory."""
    shape, dim = tile.shape, tile.geometry.dim
    counts = [each.count for each in axes]
    steps = [1] * len(axes)
    for position in range(len(axes) - 2, -1, -1):
        steps[position] = steps[position + 1] * counts[position + 1]
    loops = merged([BoxLoop(each.count, (*each.steps, ("row", row))) for each, row in zip(axes, steps, strict=True)])
    dense = loops[-1] if loops and loops[-1].step("row") == 1 else box_loop(1, row=1, dram=0)
    around = loops[:-1] if loops and dense is loops[-1] else loops
    stream: list[Item] = []
    for first, count, columns in blocks(shape.out_channels, dim):
        for begin, number, height in blocks(dense.count, dim):
            all_loops = [
                each
                for each in (
                    box_loop(count, dram=dim * item_bytes, row=shape.pixels),
                    *around,
                    box_loop(number, dram=height * dense.step("dram"), row=height),
                )
                if each.count > 1
            ]
            do = looped(
                "mvout",
                [{"dram": each.step("dram"), "row": each.step("row")} for each in all_loops],
                dram=start + first * item_bytes + begin * dense.step("dram"),
                row=flags + tile.sum_row + first // dim * shape.pixels + begin,
                columns=columns,
                rows=height,
            )
            stream += nested([each.count for each in all_loops], (do,))
    return tuple(stream)


SUMS_NAME, SCALE_NAME = "::sums", "::scale"


def _by_core(tile: ProductTile, waiting: Region) -> Instr:
    """Sums in the main memory as the layer's result: scaled, then the epilogue."""
    graph, op, layer = tile.graph, tile.op, tile.layer
    chain = chain_of(graph, tile.constants, (), {op.outputs[0]: SUMS_NAME})
    chain.value[op.outputs[0]] = chain.step("multiply", chain.value[op.outputs[0]], chain.operand(op.inputs[2]))
    for follower in layer.epilogue(graph):
        chain.apply(follower)
    shape = box_shape(tile.box)
    places = {SUMS_NAME: ("int32", BASE + waiting.offset_bytes, strides(shape, 4))}
    reads = [waiting]
    for name in chain.sources:
        if name != SUMS_NAME:
            places[name] = source_place(graph, name, tile.operands[name], tile.box, BASE)
            reads += _main_regions(tile, name, _part(graph, name, tile.box))
    stream = element_stream(chain, graph, tile.box, places, layer.output, tile.result, BASE)
    result = graph.by_name[layer.output]
    writes = box_regions(MAIN, tile.result.offset_bytes, result.shape, tile.box, result.item_bytes)
    return core_instr("elements", stream, tuple(reads), writes, tile.layer.name)


def sums_fit(graph: Graph, layer: Layer, box: Box) -> bool:
    """Whether the sums of a tile find room where they wait for the core."""
    shape = product_shape(graph, layer.anchor(graph), box)
    return 4 * shape.pixels * shape.out_channels <= SUMS_BYTES
