"""Tiles of convolutions and matrix products of int8 on the array, from the main memory to the main memory.

    patch of the input, weights, bias --mvin--> scratchpad and accumulator --preload, compute--> sums --mvout--> result

A result of int8 with one scale leaves the accumulator finished: scaled, bounded below by an activation, rounded. All
else that follows (a scale per channel, more operators, a result in float32) the core does for each element: the sums go
to the main memory as int32 first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from codegen.gemmini.kernels.finish import AddedTerm, Finish, added_values, finish_of
from codegen.gemmini.kernels.loops import BoxLoop, blocks, box_loop, merged, start_of, strides
from codegen.gemmini.kernels.passes import digits, identity_bytes, load_identities, passed
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


def blocks_at_once(dim: int) -> int:
    return max(1, MOVED_BYTES // dim)


INPUT, WEIGHTS, SUMS_BUFFER = "input", "weights", "sums"
"""Buffers of a tile. Multiples of the identity matrix follow the weights: a tile that finds these finds those."""


def product_work(graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
    """Needs of a tile: the patch, the weights, what is added, and the sums, each whole."""
    op, geometry = layer.anchor(graph), geometry_of(chip)
    shape, dim = product_shape(graph, op, box), geometry.dim
    added = added_values(graph, layer)
    buffers = (
        TileBuffer(INPUT, SCRATCHPAD, "", dim * shape.input_rows_in_scratchpad(dim)),
        TileBuffer(WEIGHTS, SCRATCHPAD, "", dim * shape.weight_rows(dim) + identity_bytes(dim, 1 + 2 * len(added))),
        TileBuffer(SUMS_BUFFER, ACCUMULATOR, "", 4 * dim * shape.sum_rows(dim)),
        *(TileBuffer(added_buffer(name), SCRATCHPAD, "", dim * shape.sum_rows(dim)) for name in added),
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
            loads.append(TileLoad(name, _part(graph, name, box), added_buffer(name) if name in added else SUMS_BUFFER))
    return TileWork(buffers, (Pass(tuple(loads)),), SUMS_BUFFER, (("array", _array_cycles(shape, geometry)),))


def added_buffer(name: str) -> str:
    """The buffer of a tile for a value that is added to its sums."""
    return f"added {name}"


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
    axes = _pixel_axes(shape, _patch_rows(shape), dim)
    return sum(number for _, number, _ in blocks(axes[-1].count, dim)) * prod(each.count for each in axes[:-1])


@dataclass(frozen=True, slots=True)
class LocalRows:
    """How an array of pixels lies in a local memory: the row of its first block of channels, the images that it has
    along each axis, and the rows from one image, row, column and block of channels to the next."""

    first: int
    images: tuple[int, ...]
    image: int
    row: int
    column: int
    block: int


def _patch_rows(shape: ProductShape, first: int = 0) -> LocalRows:
    """The patch: blocks of channels one after the other, each with all pixels."""
    columns = shape.column_span.patch
    return LocalRows(first, _image_counts(shape), shape.row_span.patch * columns, columns, 1, shape.patch_pixels)


def _image_counts(shape: ProductShape) -> tuple[int, ...]:
    return tuple(high - low for low, high in shape.images)


def _pixel_axes(shape: ProductShape, rows: LocalRows, dim: int) -> tuple[BoxLoop, ...]:
    """Loops over the pixels of a tile, with what they add to rows of the input, of the weights and of the sums; at
    least one, the last of which has the same weights for all."""
    per_image = shape.out_rows * shape.out_columns
    steps = {"a": rows.image, "b": shape.rows_of_matrix(dim), "c": per_image}
    axes = merged(
        (
            *shape.image_loops(rows.images, "a", **steps),
            box_loop(shape.out_rows, a=shape.down.step * rows.row, c=shape.out_columns),
            box_loop(shape.out_columns, a=shape.along.step * rows.column, c=1),
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
    def input_stays(self) -> bool:
        """Whether the input lies in the scratchpad, where a layer before it left it."""
        return self.operands[self.op.inputs[0]].memory == SCRATCHPAD

    @property
    def reads_in_place(self) -> bool:
        """Whether the array reads the input where it lies: it stays there, and needs no padding."""
        spans = self.shape.row_span, self.shape.column_span
        return self.input_stays and not any(span.before or span.after for span in spans)

    @property
    def input_rows(self) -> LocalRows:
        """Where the array reads the input."""
        if self.reads_in_place:
            return resident_rows(self.operands[self.op.inputs[0]], self.shape.input_box(), self)
        return _patch_rows(self.shape, self.offsets_bytes[INPUT] // self.geometry.dim)

    @property
    def finish(self) -> Finish:
        return finish_of(self.graph, self.constants, self.layer)

    @property
    def factors(self) -> tuple[int, ...]:
        """Multiples of the identity matrix that passes of the tile take."""
        passes = (self.input_stays and not self.reads_in_place) or self.result.memory == SCRATCHPAD
        of_terms = [factor for term in self.finish.terms for factor in digits(term.factor)]
        return tuple(dict.fromkeys((*((1,) if passes else ()), *of_terms)))

    @property
    def identities_bytes(self) -> int:
        """Where multiples of the identity matrix begin."""
        dim = self.geometry.dim
        return self.offsets_bytes[WEIGHTS] + dim * self.shape.weight_rows(dim)

    def identity_row(self, factor: int) -> int:
        """The row where a multiple of the identity matrix begins."""
        dim = self.geometry.dim
        return self.identities_bytes // dim + self.factors.index(factor) * dim

    @property
    def weight_row(self) -> int:
        return self.offsets_bytes[WEIGHTS] // self.geometry.dim

    @property
    def sum_row(self) -> int:
        return self.offsets_bytes[SUMS_BUFFER] // (4 * self.geometry.dim)


def resident_rows(place: PlacedArray, box: Box, tile: ProductTile) -> LocalRows:
    """How a box of an array lies that stays in the scratchpad, densely, with whole blocks of channels."""
    *outer, channels = box_shape(place.box)
    dim, images = tile.geometry.dim, len(tile.shape.images)
    column = channels // dim
    row = column * outer[-1]
    per_image = column * prod(outer[images:])
    inside = tuple((low - start, high - start) for (low, high), (start, _) in zip(box, place.box, strict=True))
    start = (place.offset_bytes + start_of(box_shape(place.box), 1, inside)) // dim
    return LocalRows(start, tuple(outer[:images]), per_image, row, column, 1)


def product_instrs(tile: ProductTile) -> tuple[Instr, ...]:
    """Instructions of a tile."""
    constants: tuple[Instr, ...] = ()
    if tile.op.inputs[1] not in tile.held:
        dim, source = tile.geometry.dim, tile.layer.name
        constants = (
            *load_identities(tile.factors, tile.identities_bytes, dim, tile.chip, source),
            *_load_configuration(tile),
            _load_weights(tile),
        )
    return (
        *(constants or _load_configuration(tile)),
        *_input(tile),
        _execute_configuration(tile),
        _load_bias(tile),
        _compute(tile),
        *(instr for term in tile.finish.terms for instr in _add(tile, term)),
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


def _input(tile: ProductTile) -> tuple[Instr, ...]:
    """What brings the patch, where it is not there."""
    if tile.reads_in_place or _patch_is_held(tile):
        return ()
    if not tile.input_stays:
        return (_load_input(tile),)
    zeros: tuple[Instr, ...] = ()
    if moved := _padding(tile):
        writes = (_local(tile, SCRATCHPAD, INPUT, tile.shape.input_rows_in_scratchpad(tile.geometry.dim)),)
        zeros = (accelerator_instr("load", "mvin", moved, (), writes, 1.0, tile.layer.name),)
    return (*zeros, *_pass_input(tile))


def _load_configuration(tile: ProductTile) -> tuple[Instr, ...]:
    shape, source = tile.shape, tile.layer.name
    rows, channels = shape.taps * shape.depth, shape.all_channels
    patch, stride = shape.patch_pixels, shape.input_channels
    load = (
        once("config_ld", state=0, pixels_per_row=1, block_rows=patch, scale=1.0, stride=stride),
        once("config_ld", state=1, pixels_per_row=1, block_rows=rows, scale=1.0, stride=channels),
        once("config_ld", state=2, pixels_per_row=1, block_rows=0, scale=1.0, stride=0),
    )
    return (accelerator_instr("load", "config_ld", load, (), (), 1.0, source),)


def _execute_configuration(tile: ProductTile) -> Instr:
    stride = _pixel_axes(tile.shape, tile.input_rows, tile.geometry.dim)[-1].step("a")
    execute = (once("config_ex", weight_stationary=1, a_stride=stride, c_stride=1),)
    return accelerator_instr("array", "config_ex", execute, (), (), 1.0, tile.layer.name)


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


def block_moves(
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
    stream: tuple[Item, ...] = ()
    matrices, row = list[BoxLoop](), shape.rows_of_matrix(dim)
    for (low, high), step in reversed(tuple(zip(shape.matrices, strides(extents, 1), strict=False))):
        matrices.append(box_loop(high - low, dram=step, row=row))
        row *= high - low
    for run in shape.runs(dim):
        groups, columns = (1, run.count * run.each) if run.dense(dim) else (run.count, run.each)
        around = (*merged(matrices[::-1]), box_loop(groups, dram=run.each, row=run.blocks_each(dim) * rows))
        stream += block_moves("mvin2", rows, shape.all_channels, columns, dim, blocks_at_once(dim), around,
                         dram + run.first, tile.weight_row + run.block * rows, rows)  # fmt: skip
    writes = (_local(tile, SCRATCHPAD, WEIGHTS, shape.weight_rows(dim)),)
    cycles = shape.matrix_count * rows * shape.out_channels / _bandwidth(tile, SCRATCHPAD)
    reads = _main_regions(tile, name, box)
    return accelerator_instr("load", "mvin2", stream, reads, writes, cycles, tile.layer.name)


def _bandwidth(tile: ProductTile, memory: str) -> float:
    return tile.chip.link(MAIN, memory).bandwidth_bytes_per_cycle


def _patch_part(
    tile: ProductTile, first_row: int, height: int, first_column: int, width: int, dram: int
) -> tuple[Item, ...]:
    """Rows and columns of the patch, from `dram` on or as zeros."""
    shape, dim, channels = tile.shape, tile.geometry.dim, tile.shape.input_channels
    patch = _patch_rows(shape, tile.offsets_bytes[INPUT] // dim)
    dense_groups = shape.group_count == 1 or shape.depth % dim == 0
    groups, depth = (1, shape.group_count * shape.depth) if dense_groups else (shape.group_count, shape.depth)
    step_row = shape.input_columns * channels if dram else 0
    step_image = shape.input_rows * step_row
    loops = merged(
        (
            *shape.image_loops(shape.input_images, dram=step_image, row=patch.image),
            box_loop(height, dram=step_row, row=patch.row),
            box_loop(width, dram=channels if dram else 0, row=1),
        )
    )
    # The pixels of a block follow each other in the scratchpad: the last loop, if it is one over pixels.
    dense = loops[-1] if loops and loops[-1].step("row") == 1 else box_loop(1, row=1)
    around = loops[:-1] if loops and dense is loops[-1] else loops
    each = box_loop(groups, dram=depth if dram else 0, row=shape.depth_blocks(dim) * patch.block)
    start = patch.first + first_row * patch.row + first_column
    return block_moves("mvin", dense.count, channels if dram else 0, depth, dim, blocks_at_once(dim), (each, *around),
                       dram, start, patch.block)  # fmt: skip


def _padding(tile: ProductTile) -> tuple[Item, ...]:
    """The padding of the patch, as zeros."""
    rows, columns = tile.shape.row_span, tile.shape.column_span
    borders = (
        (0, rows.before, 0, columns.patch),
        (rows.patch - rows.after, rows.after, 0, columns.patch),
        (rows.before, rows.real, 0, columns.before),
        (rows.before, rows.real, columns.patch - columns.after, columns.after),
    )
    zeros: tuple[Item, ...] = ()
    for border in borders:
        if border[1] and border[3]:
            zeros += _patch_part(tile, *border, 0)
    return zeros


def _load_input(tile: ProductTile) -> Instr:
    """The patch: its padding as zeros, then its pixels."""
    shape, dim, name = tile.shape, tile.geometry.dim, tile.op.inputs[0]
    rows, columns = shape.row_span, shape.column_span
    box = shape.input_box()
    stream: tuple[Item, ...] = ()
    if rows.real and columns.real:
        dram = _address(tile, name, box)
        stream = _patch_part(tile, rows.before, rows.real, columns.before, columns.real, dram)
    writes = (_local(tile, SCRATCHPAD, INPUT, shape.input_rows_in_scratchpad(dim)),)
    moved = shape.image_count * rows.real * columns.real * shape.group_count * shape.depth
    cycles = moved / _bandwidth(tile, SCRATCHPAD)
    reads = _main_regions(tile, name, box) if stream else ()
    return accelerator_instr("load", "mvin", (*_padding(tile), *stream), reads, writes, cycles, tile.layer.name)


def _pass_input(tile: ProductTile) -> tuple[Instr, ...]:
    """The pixels of the patch, from where they stay in the scratchpad."""
    shape, dim = tile.shape, tile.geometry.dim
    rows, columns = shape.row_span, shape.column_span
    if not rows.real or not columns.real:
        return ()
    place, box = tile.operands[tile.op.inputs[0]], shape.input_box()
    held, patch = resident_rows(place, box, tile), _patch_rows(shape, tile.offsets_bytes[INPUT] // dim)
    axes = (
        *shape.image_loops(held.images, "a", a=held.image, c=patch.image),
        box_loop(rows.real, a=held.row, c=patch.row),
        box_loop(columns.real, a=held.column, c=patch.column),
    )
    first = held.first, patch.first + rows.before * patch.row + columns.before
    block = box_loop(1, a=held.block, c=patch.block)
    regions = resident_regions(place, box), (_local(tile, SCRATCHPAD, INPUT, shape.input_rows_in_scratchpad(dim)),)
    channels = shape.group_count * shape.depth
    return passed(axes, channels, block, first, [tile.identity_row(1)], dim, {"scale": 1.0}, regions, tile.layer.name)


def resident_regions(place: PlacedArray, box: Box) -> tuple[Region, ...]:
    """Where a box of a value lies that stays in the scratchpad."""
    inside = tuple((low - start, high - start) for (low, high), (start, _) in zip(box, place.box, strict=True))
    return box_regions(SCRATCHPAD, place.offset_bytes, box_shape(place.box), inside, 1)


def _load_bias(tile: ProductTile) -> Instr:
    """The bias in every row of the sums, zeros where there is none."""
    shape, dim = tile.shape, tile.geometry.dim
    name = tile.op.inputs[3] if len(tile.op.inputs) > 3 else ""
    dram = _address(tile, name, (shape.channels,)) if name else 0
    stream: list[Item] = []
    for channels in shape.blocks(dim):
        for start, number, height in blocks(shape.pixels, dim):
            loops = [
                each
                for each in (
                    *channels.loops({"dram": 4 if dram else 0}, {"row": shape.pixels}),
                    box_loop(number, row=height),
                )
                if each.count > 1
            ]
            do = looped(
                "mvin3",
                [{"dram": each.step("dram"), "row": each.step("row")} for each in loops],
                dram=dram + 4 * channels.first if dram else 0,
                row=SUMS + tile.sum_row + channels.block * shape.pixels + start,
                columns=channels.width,
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
    held = tile.input_rows
    *outer, pixels = _pixel_axes(shape, held, dim)
    stream: list[Item] = []
    group_rows = shape.depth_blocks(dim) * held.block
    for channels in shape.blocks(dim):
        width = channels.width
        for deep, deep_count, depth in blocks(shape.depth, dim):
            for first, count, height in blocks(pixels.count, dim):
                loops = [
                    each
                    for each in (
                        *channels.loops(block={"b": rows, "c": shape.pixels}, group={"a": group_rows}),
                        box_loop(shape.down.taps, b=shape.along.taps * shape.depth, a=shape.down.dilation * held.row),
                        box_loop(shape.along.taps, b=shape.depth, a=shape.along.dilation * held.column),
                        box_loop(deep_count, b=depth, a=held.block),
                        *outer,
                        box_loop(count, a=height * pixels.step("a"), c=height),
                    )
                    if each.count > 1
                ]
                a = held.first + deep // dim * held.block + first * pixels.step("a")
                a += channels.group * group_rows
                b = tile.weight_row + channels.block * rows + deep
                c = SUMS + ACCUMULATE + tile.sum_row + channels.block * shape.pixels + first
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
    factor: tuple[Region, ...] = (_local(tile, SCRATCHPAD, INPUT, shape.input_rows_in_scratchpad(dim)),)
    if tile.reads_in_place:
        factor = resident_regions(tile.operands[tile.op.inputs[0]], shape.input_box())
    reads = (*factor, _local(tile, SCRATCHPAD, WEIGHTS, shape.weight_rows(dim)))
    writes = (_local(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
    cycles = _array_cycles(shape, tile.geometry)
    return accelerator_instr("array", "compute", tuple(stream), (*reads, *writes), writes, cycles, tile.layer.name)


def _add(tile: ProductTile, term: AddedTerm) -> tuple[Instr, ...]:
    """A value, times a whole number, added to the sums; it lies in the scratchpad or is brought there."""
    shape, dim, source = tile.shape, tile.geometry.dim, tile.layer.name
    place, per_image = tile.operands[term.name], shape.out_rows * shape.out_columns
    brought: tuple[Instr, ...] = ()
    if place.memory == SCRATCHPAD:
        held, reads = resident_rows(place, tile.box, tile), resident_regions(place, tile.box)
    else:
        buffer = added_buffer(term.name)
        first = tile.offsets_bytes[buffer] // dim
        held = LocalRows(first, _image_counts(shape), per_image, shape.out_columns, 1, shape.pixels)
        reads = (_local(tile, SCRATCHPAD, buffer, shape.sum_rows(dim)),)
        if term.name not in tile.held:
            brought = _bring(tile, term.name, held, reads)
    axes = (
        *shape.image_loops(held.images, "a", a=held.image, c=per_image),
        box_loop(shape.out_rows, a=held.row, c=shape.out_columns),
        box_loop(shape.out_columns, a=held.column, c=1),
    )
    sums = (_local(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
    start = held.first, SUMS + ACCUMULATE + tile.sum_row
    block, rows = box_loop(1, a=held.block, c=shape.pixels), [tile.identity_row(each) for each in digits(term.factor)]
    regions = (*reads, *sums), sums
    return (*brought, *passed(axes, shape.out_channels, block, start, rows, dim, {}, regions, source))


def _bring(tile: ProductTile, name: str, held: LocalRows, writes: tuple[Region, ...]) -> tuple[Instr, ...]:
    """The part of a value that has the shape of the result, moved to where it is `held` in the scratchpad."""
    shape, dim = tile.shape, tile.geometry.dim
    steps = strides(tile.graph.by_name[name].shape, 1)
    pixel = steps[-2] if len(steps) > 1 else 0
    images = [box_loop(high - low, dram=step) for (low, high), step in zip(shape.images, steps, strict=False)]
    axes = (*images, box_loop(shape.out_rows, dram=steps[-3] if tile.op.kind == "conv" else 0),
            box_loop(shape.out_columns, dram=pixel))  # fmt: skip
    around, dense = _by_rows(axes)
    config = once("config_ld", state=0, pixels_per_row=1, block_rows=held.block, scale=1.0, stride=dense.step("dram"))
    stream = block_moves("mvin", dense.count, dense.step("dram"), shape.out_channels, dim, blocks_at_once(dim), around,
                    _address(tile, name, tile.box), held.first, held.block)  # fmt: skip
    cycles = shape.pixels * shape.out_channels / _bandwidth(tile, SCRATCHPAD)
    reads, source = _main_regions(tile, name, tile.box), tile.layer.name
    return (
        accelerator_instr("load", "config_ld", (config,), (), (), 1.0, source),
        accelerator_instr("load", "mvin", stream, reads, writes, cycles, source),
    )


def _by_rows(axes: Sequence[BoxLoop]) -> tuple[tuple[BoxLoop, ...], BoxLoop]:
    """Loops over pixels that lie one after the other in local memory, with what each adds to rows: those around, and
    the last one, over rows without a gap."""
    counts = [each.count for each in axes]
    steps = [1] * len(axes)
    for position in range(len(axes) - 2, -1, -1):
        steps[position] = steps[position + 1] * counts[position + 1]
    loops = merged([BoxLoop(each.count, (*each.steps, ("row", row))) for each, row in zip(axes, steps, strict=True)])
    dense = loops[-1] if loops and loops[-1].step("row") == 1 else box_loop(1, row=1, dram=0)
    return (loops[:-1] if loops and dense is loops[-1] else loops), dense


def _finish(tile: ProductTile) -> tuple[Instr, ...]:
    finish, shape, source = tile.finish, tile.shape, tile.layer.name
    dim = tile.geometry.dim
    reads = (_local(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
    result = tile.graph.by_name[tile.layer.output]
    steps = strides(result.shape, result.item_bytes)
    if tile.result.memory == SCRATCHPAD:
        return _stay(tile, finish)
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


def _stay(tile: ProductTile, finish: Finish) -> tuple[Instr, ...]:
    """The sums, scaled, as the result that stays in the scratchpad."""
    shape, dim = tile.shape, tile.geometry.dim
    held = resident_rows(tile.result, tile.box, tile)
    per_image = shape.out_rows * shape.out_columns
    axes = (
        *shape.image_loops(held.images, "c", a=per_image, c=held.image),
        box_loop(shape.out_rows, a=shape.out_columns, c=held.row),
        box_loop(shape.out_columns, a=1, c=held.column),
    )
    first = SUMS + tile.sum_row, held.first
    block = box_loop(1, a=shape.pixels, c=held.block)
    config = {"activation": int(finish.relu), "scale": finish.scale}
    regions = (_local(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),), resident_regions(tile.result, tile.box)
    return passed(axes, shape.out_channels, block, first, [tile.identity_row(1)], dim, config, regions, tile.layer.name)


def _moves_out(
    tile: ProductTile, axes: tuple[BoxLoop, ...], start: int, item_bytes: int, flags: int
) -> tuple[Item, ...]:
    """Loops that move the sums out: `axes` over pixels, as they lie in the accumulator, with steps in the main
    memory."""
    shape, dim = tile.shape, tile.geometry.dim
    around, dense = _by_rows(axes)
    stream: list[Item] = []
    for channels in shape.blocks(dim):
        for begin, number, height in blocks(dense.count, dim):
            all_loops = [
                each
                for each in (
                    *channels.loops({"dram": item_bytes}, {"row": shape.pixels}),
                    *around,
                    box_loop(number, dram=height * dense.step("dram"), row=height),
                )
                if each.count > 1
            ]
            do = looped(
                "mvout",
                [{"dram": each.step("dram"), "row": each.step("row")} for each in all_loops],
                dram=start + channels.first * item_bytes + begin * dense.step("dram"),
                row=flags + tile.sum_row + channels.block * shape.pixels + begin,
                columns=channels.width,
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
