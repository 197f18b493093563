"""Tiles of convolutions and matrix products of int8 on the array, from where operands lie to where results go.

    patch of the input, weights, bias --mvin--> scratchpad and accumulator --preload, compute--> sums --mvout--> result

A result of int8 with one scale leaves the accumulator finished: scaled, bounded below by an activation, rounded. All
else that follows (a scale per channel, more operators, a result in float32) the core does for each element: the sums go
to the main memory as int32 first.
"""

from __future__ import annotations

from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, CODE_BYTES, MAIN, SCRATCHPAD
from codegen.gemmini.isa.operations import ACCUMULATE, FULL_WIDTH, GARBAGE
from codegen.gemmini.isa.operations import ACCUMULATOR as SUMS
from codegen.gemmini.kernels.block_moves import by_rows
from codegen.gemmini.kernels.elements import chain_of, element_stream, source_place
from codegen.gemmini.kernels.finish import AddedTerm, Finish
from codegen.gemmini.kernels.loops import BoxLoop, blocks, box_loop, start_of, strides
from codegen.gemmini.kernels.passes import digits, load_identities, passed
from codegen.gemmini.kernels.product_input import bring_added, bring_input, load_bias, load_configuration, load_weights
from codegen.gemmini.kernels.product_tile import (
    INPUT,
    SUMS_BUFFER,
    WEIGHTS,
    LocalRows,
    ProductTile,
    added_buffer,
    array_cycles,
    image_counts,
    main_regions,
    pixel_axes,
    resident_regions,
    resident_rows,
    result_part,
    whole_buffer,
)
from codegen.gemmini.streams.instructions import accelerator_instr, core_instr, fence
from codegen.gemmini.streams.streams import Item, looped, nested, once
from isched.lowering.strided_copies import box_regions
from isched.program.program import Instr, Region
from partitioner.ir.regions import box_shape

SUMS_NAME = "::sums"
"""Name of the sums, where the core goes on with them."""


def product_instrs(tile: ProductTile) -> tuple[Instr, ...]:
    """Instructions of a tile."""
    constants: tuple[Instr, ...] = ()
    if tile.op.inputs[1] not in tile.held:
        dim, source = tile.geometry.dim, tile.layer.name
        constants = (
            *load_identities(tile.factors, tile.identities_bytes, dim, tile.chip, source),
            *load_configuration(tile),
            load_weights(tile),
        )
    return (
        *(constants or load_configuration(tile)),
        *bring_input(tile),
        _execute_configuration(tile),
        load_bias(tile),
        _compute(tile),
        *(instr for term in tile.finish.terms for instr in _add(tile, term)),
        *_finish(tile),
    )


def _execute_configuration(tile: ProductTile) -> Instr:
    stride = pixel_axes(tile.shape, tile.input_rows, tile.geometry.dim)[-1].step("a")
    execute = (once("config_ex", weight_stationary=1, a_stride=stride, c_stride=1),)
    return accelerator_instr("array", "config_ex", execute, (), (), 1.0, tile.layer.name)


def _compute(tile: ProductTile) -> Instr:
    """All products of the tile, added to the sums."""
    shape, dim = tile.shape, tile.geometry.dim
    rows = shape.taps * shape.depth
    held = tile.input_rows
    *outer, pixels = pixel_axes(shape, held, dim)
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
    factor: tuple[Region, ...] = (whole_buffer(tile, SCRATCHPAD, INPUT, shape.input_rows_in_scratchpad(dim)),)
    if tile.reads_in_place:
        factor = resident_regions(tile.operands[tile.op.inputs[0]], shape.input_box())
    reads = (*factor, whole_buffer(tile, SCRATCHPAD, WEIGHTS, shape.weight_rows(dim)))
    writes = (whole_buffer(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
    cycles = array_cycles(shape, tile.geometry)
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
        held = LocalRows(first, image_counts(shape), per_image, shape.out_columns, 1, shape.pixels)
        reads = (whole_buffer(tile, SCRATCHPAD, buffer, shape.sum_rows(dim)),)
        if term.name not in tile.held or term.name == tile.op.inputs[0]:  # what is held is the patch then
            brought = bring_added(tile, term.name, held, reads)
    axes = (
        *shape.image_loops(held.images, "a", a=held.image, c=per_image),
        box_loop(shape.out_rows, a=held.row, c=shape.out_columns),
        box_loop(shape.out_columns, a=held.column, c=1),
    )
    sums = (whole_buffer(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
    start = held.first, SUMS + ACCUMULATE + tile.sum_row
    block, rows = box_loop(1, a=held.block, c=shape.pixels), [tile.identity_row(each) for each in digits(term.factor)]
    regions = (*reads, *sums), sums
    return (*brought, *passed(axes, shape.out_channels, block, start, rows, dim, {}, regions, source))


def _finish(tile: ProductTile) -> tuple[Instr, ...]:
    finish, shape, source = tile.finish, tile.shape, tile.layer.name
    dim = tile.geometry.dim
    reads = (whole_buffer(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),)
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
    regions = (
        (whole_buffer(tile, ACCUMULATOR, SUMS_BUFFER, shape.sum_rows(dim)),),
        resident_regions(tile.result, tile.box),
    )
    return passed(axes, shape.out_channels, block, first, [tile.identity_row(1)], dim, config, regions, tile.layer.name)


def _moves_out(
    tile: ProductTile, axes: tuple[BoxLoop, ...], start: int, item_bytes: int, flags: int
) -> tuple[Item, ...]:
    """Loops that move the sums out: `axes` over pixels, as they lie in the accumulator, with steps in the main
    memory."""
    shape, dim = tile.shape, tile.geometry.dim
    around, dense = by_rows(axes)
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
            reads += main_regions(tile, name, result_part(graph, name, tile.box))
    stream = element_stream(chain, graph, tile.box, places, layer.output, tile.result, BASE)
    result = graph.by_name[layer.output]
    writes = box_regions(MAIN, tile.result.offset_bytes, result.shape, tile.box, result.item_bytes)
    return core_instr("elements", stream, tuple(reads), writes, tile.layer.name)
