"""What a tile of a product brings to local memory: weights, the patch of its input, what it adds, and the bias.

A patch has its padding as zeros. An input that stays in the scratchpad is read where it lies or, where it needs
padding, passes through the array into a patch.
"""

from __future__ import annotations

from codegen.gemmini.isa.geometry import ACCUMULATOR, SCRATCHPAD
from codegen.gemmini.isa.operations import ACCUMULATOR as SUMS
from codegen.gemmini.kernels.block_moves import block_moves, blocks_at_once, by_rows
from codegen.gemmini.kernels.loops import BoxLoop, blocks, box_loop, merged, strides
from codegen.gemmini.kernels.passes import passed
from codegen.gemmini.kernels.product_shape import ProductShape, product_shape
from codegen.gemmini.kernels.product_tile import (
    INPUT,
    SUMS_BUFFER,
    WEIGHTS,
    LocalRows,
    ProductTile,
    bandwidth,
    main_address,
    main_regions,
    patch_rows,
    resident_regions,
    resident_rows,
    weights_box,
    whole_buffer,
)
from codegen.gemmini.streams.instructions import accelerator_instr
from codegen.gemmini.streams.streams import Item, looped, nested, once
from isched.program.program import Instr, Region
from partitioner.ir.regions import full_box


def load_configuration(tile: ProductTile) -> tuple[Instr, ...]:
    shape, source = tile.shape, tile.layer.name
    rows, channels = shape.taps * shape.depth, shape.all_channels
    patch, stride = shape.patch_pixels, shape.input_channels
    load = (
        once("config_ld", state=0, pixels_per_row=1, block_rows=patch, scale=1.0, stride=stride),
        once("config_ld", state=1, pixels_per_row=1, block_rows=rows, scale=1.0, stride=channels),
        once("config_ld", state=2, pixels_per_row=1, block_rows=0, scale=1.0, stride=0),
    )
    return (accelerator_instr("load", "config_ld", load, (), (), 1.0, source),)


def load_weights(tile: ProductTile) -> Instr:
    shape, dim, name = tile.shape, tile.geometry.dim, tile.op.inputs[1]
    extents = tile.graph.by_name[name].shape
    box = weights_box(shape, extents)
    rows = shape.taps * shape.depth
    dram = main_address(tile, name, box)
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
    writes = (whole_buffer(tile, SCRATCHPAD, WEIGHTS, shape.weight_rows(dim)),)
    cycles = shape.matrix_count * rows * shape.out_channels / bandwidth(tile, SCRATCHPAD)
    reads = main_regions(tile, name, box)
    return accelerator_instr("load", "mvin2", stream, reads, writes, cycles, tile.layer.name)


def bring_input(tile: ProductTile) -> tuple[Instr, ...]:
    """What brings the patch, where it is not there."""
    if tile.reads_in_place or _patch_is_held(tile):
        return ()
    if not tile.input_stays:
        return (_load_input(tile),)
    zeros: tuple[Instr, ...] = ()
    if moved := _padding(tile):
        writes = (whole_buffer(tile, SCRATCHPAD, INPUT, tile.shape.input_rows_in_scratchpad(tile.geometry.dim)),)
        zeros = (accelerator_instr("load", "mvin", moved, (), writes, 1.0, tile.layer.name),)
    return (*zeros, *_pass_input(tile))


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


def _patch_part(
    tile: ProductTile, first_row: int, height: int, first_column: int, width: int, dram: int
) -> tuple[Item, ...]:
    """Rows and columns of the patch, from `dram` on or as zeros."""
    shape, dim, channels = tile.shape, tile.geometry.dim, tile.shape.input_channels
    patch = patch_rows(shape, tile.offsets_bytes[INPUT] // dim)
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
        dram = main_address(tile, name, box)
        stream = _patch_part(tile, rows.before, rows.real, columns.before, columns.real, dram)
    writes = (whole_buffer(tile, SCRATCHPAD, INPUT, shape.input_rows_in_scratchpad(dim)),)
    moved = shape.image_count * rows.real * columns.real * shape.group_count * shape.depth
    cycles = moved / bandwidth(tile, SCRATCHPAD)
    reads = main_regions(tile, name, box) if stream else ()
    return accelerator_instr("load", "mvin", (*_padding(tile), *stream), reads, writes, cycles, tile.layer.name)


def _pass_input(tile: ProductTile) -> tuple[Instr, ...]:
    """The pixels of the patch, from where they stay in the scratchpad."""
    shape, dim = tile.shape, tile.geometry.dim
    rows, columns = shape.row_span, shape.column_span
    if not rows.real or not columns.real:
        return ()
    place, box = tile.operands[tile.op.inputs[0]], shape.input_box()
    held, patch = resident_rows(place, box, tile), patch_rows(shape, tile.offsets_bytes[INPUT] // dim)
    axes = (
        *shape.image_loops(held.images, "a", a=held.image, c=patch.image),
        box_loop(rows.real, a=held.row, c=patch.row),
        box_loop(columns.real, a=held.column, c=patch.column),
    )
    first = held.first, patch.first + rows.before * patch.row + columns.before
    block = box_loop(1, a=held.block, c=patch.block)
    regions = (
        resident_regions(place, box),
        (whole_buffer(tile, SCRATCHPAD, INPUT, shape.input_rows_in_scratchpad(dim)),),
    )
    channels = shape.group_count * shape.depth
    return passed(axes, channels, block, first, [tile.identity_row(1)], dim, {"scale": 1.0}, regions, tile.layer.name)


def load_bias(tile: ProductTile) -> Instr:
    """The bias in every row of the sums, zeros where there is none."""
    shape, dim = tile.shape, tile.geometry.dim
    name = tile.op.inputs[3] if len(tile.op.inputs) > 3 else ""
    dram = main_address(tile, name, (shape.channels,)) if name else 0
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
    reads = main_regions(tile, name, (shape.channels,)) if name else ()
    writes = (whole_buffer(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
    cycles = 4 * shape.pixels * shape.out_channels / bandwidth(tile, ACCUMULATOR)
    return accelerator_instr("load", "mvin3", tuple(stream), reads, writes, cycles, tile.layer.name)


def bring_added(tile: ProductTile, name: str, held: LocalRows, writes: tuple[Region, ...]) -> tuple[Instr, ...]:
    """The part of a value that has the shape of the result, moved to where it is `held` in the scratchpad."""
    shape, dim = tile.shape, tile.geometry.dim
    steps = strides(tile.graph.by_name[name].shape, 1)
    pixel = steps[-2] if len(steps) > 1 else 0
    images = [box_loop(high - low, dram=step) for (low, high), step in zip(shape.images, steps, strict=False)]
    axes = (*images, box_loop(shape.out_rows, dram=steps[-3] if tile.op.kind == "conv" else 0),
            box_loop(shape.out_columns, dram=pixel))  # fmt: skip
    around, dense = by_rows(axes)
    config = once("config_ld", state=0, pixels_per_row=1, block_rows=held.block, scale=1.0, stride=dense.step("dram"))
    stream = block_moves("mvin", dense.count, dense.step("dram"), shape.out_channels, dim, blocks_at_once(dim), around,
                    main_address(tile, name, tile.box), held.first, held.block)  # fmt: skip
    cycles = shape.pixels * shape.out_channels / bandwidth(tile, SCRATCHPAD)
    reads, source = main_regions(tile, name, tile.box), tile.layer.name
    return (
        accelerator_instr("load", "config_ld", (config,), (), (), 1.0, source),
        accelerator_instr("load", "mvin", stream, reads, writes, cycles, source),
    )
