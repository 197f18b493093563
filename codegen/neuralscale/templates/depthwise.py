"""Depthwise convolution with the channels of a block, or all of them, in one instruction.

    blocks   weights [C, taps] --mov.m, a diagonal per tap--> matrix [taps * 32, 32];  input, matrix --meconv--> IM
    vector   weights [C, taps] --mov.m, a column per tap--> rows [taps, C];  output += input * row, one tap at a time

The weights of a tap are a column of stride `taps` in the memory, and a diagonal is a column whose stride is one row and
one element. `mov.m` does not move single bytes: weights of int8 are converted to fp16 first, and back to int8 on their
way to the diagonal. Two block matrices alternate, so that one is built while the matrix engine reads the other. A tile
that begins or ends inside a block reads the whole block's input: see
`codegen.neuralscale.instructions.depthwise_forms` for why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from codegen.neuralscale.instructions.arithmetic import Arithmetic, arithmetic_of
from codegen.neuralscale.instructions.builder import Convolution, MatrixPlace
from codegen.neuralscale.instructions.depthwise_forms import (
    BlockPart,
    DepthwiseForm,
    block_parts,
    depthwise_form,
    form_cycles,
)
from codegen.neuralscale.templates.convolution import ConvolutionShape, ConvolutionTemplate
from codegen.neuralscale.templates.products import (
    bias_operand,
    column_buffers,
    column_loads,
    sum_factor,
    summed,
)
from codegen.neuralscale.templates.template import (
    data_buffer,
    finish,
    finish_cycles,
    single_pass,
)
from codegen.neuralscale.templates.tile import DATA, WEIGHTS, Tile, load_bytes, window_region
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size
from partitioner.ir.target import TileBuffer, TileLoad, TileWork

WIDENED = "widened"
"""The buffer of weights of int8 as fp16."""


class DepthwiseTemplate(ConvolutionTemplate):
    """Convolutions with as many groups as input and output channels; limits as for other convolutions."""

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        form = depthwise_form(graph, op, chip)
        if form is DepthwiseForm.EACH:
            return super().work(graph, layer, box, chip)
        arithmetic = arithmetic_of(graph, op)
        shape = ConvolutionShape.of(graph, op)
        (images, rows, columns, count), taps, total = box_shape(box), prod(shape.kernel), shape.groups
        source = _input_load(graph, op, box, form, chip)
        weights = TileLoad(op.inputs[1], (box[3], *((0, k) for k in shape.kernel), (0, 1), (0, 1)), "weights")
        columns_of = column_loads(graph, op, box[3])
        buffers = [
            data_buffer("input", load_bytes(graph, source), strided=True),
            data_buffer("weights", load_bytes(graph, weights)),
            *column_buffers(graph, op, box),
            *_built(arithmetic, form, block_parts(box[3], total, chip.matrix.array_channels), taps, count, columns),
        ]
        if form is DepthwiseForm.BLOCKS:
            buffers.append(TileBuffer("sum", "IM", "", arithmetic.sum_bytes * box_size(box)))
        before, scalings = 1 if bias_operand(graph, op) else 0, 1 if arithmetic.scaled else 0
        cycles = (
            *form_cycles(chip, arithmetic, form, taps, (images, rows, columns), box[3], total),
            *finish_cycles(graph, layer, box, chip, before, scalings),
        )
        return single_pass(graph, layer, box, (source, weights, *columns_of), buffers, cycles)

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        form = depthwise_form(tile.graph, op, tile.chip)
        if form is DepthwiseForm.EACH:
            return super().lower(tile)
        shape = ConvolutionShape.of(tile.graph, op)
        if form is DepthwiseForm.BLOCKS:
            sums = tile.sums("sum", tile.output.rows, tile.output.columns)
            return summed(tile, [tuple(_convolve_blocks(tile, shape, sums))])
        bias = tile.matrix("bias", 1, tile.output.columns) if bias_operand(tile.graph, op) else None
        return ((*_multiply_add(tile, shape), *finish(tile, tile.output, bias)),)


def _input_load(graph: Graph, op: Op, box: Box, form: DepthwiseForm, chip: Chip) -> TileLoad:
    *region, channels = window_region(graph, op, box)
    if form is DepthwiseForm.BLOCKS:
        total = graph.by_name[op.inputs[0]].shape[3]
        parts = block_parts(channels, total, chip.matrix.array_channels)
        channels = (parts[0].first, parts[-1].first + parts[-1].size)
    return TileLoad(op.inputs[0], (*region, channels), "input")


def _built(
    arithmetic: Arithmetic, form: DepthwiseForm, parts: tuple[BlockPart, ...], taps: int, count: int, columns: int
) -> tuple[TileBuffer, ...]:
    """The buffers that are built in L1: the block matrices that alternate, and weights as fp16, or weight rows and one
    line of products."""
    if form is DepthwiseForm.VECTOR:
        item_bytes = arithmetic.item_bytes
        return data_buffer("rows", item_bytes * taps * count), data_buffer("product", item_bytes * columns * count)
    size_bytes = max(arithmetic.operand_bytes * taps * part.size * part.columns for part in parts)
    matrices = tuple(TileBuffer(f"matrix{turn}", "L1", WEIGHTS, size_bytes) for turn in range(min(2, len(parts))))
    if not arithmetic.exact:
        return matrices
    return *matrices, TileBuffer(WIDENED, "L1", DATA, arithmetic.item_bytes * taps * count, briefly=True)


def _tap(weights: MatrixPlace, tap: int, low: int, count: int) -> MatrixPlace:
    """The weights of one tap for `count` channels from `low`, as a column; `weights` has a row per channel."""
    return weights.part(low, count, tap, 1)


def _convolve_blocks(tile: Tile, shape: ConvolutionShape, total: MatrixPlace) -> Iterator[Instr]:
    region = tile.work.passes[0].loads[0].box
    images, out_height, out_width, outputs = box_shape(tile.box)
    _, height, width, channels = box_shape(region)
    taps, pixels_in, pixels_out = prod(shape.kernel), height * width, out_height * out_width
    image = tile.matrix("input", images * pixels_in, channels)
    weights = tile.matrix("weights", outputs, taps)
    padding = (*shape.padding(0, tile.box[1]), *shape.padding(1, tile.box[2]))
    if shape.exact:
        widened = tile.matrix(WIDENED, outputs, taps)
        yield from tile.issue.widen(widened, weights)
        weights = widened
    start = 0
    for position, part in enumerate(block_parts(tile.box[3], shape.groups, tile.chip.matrix.array_channels)):
        matrix = tile.operand(f"matrix{position % 2}", taps * part.size, part.columns)
        if part.fresh:
            yield from tile.issue.fill(matrix.in_units if shape.exact else matrix, 0.0)
        for tap in range(taps):
            first = matrix.part(tap * part.size + part.low, part.columns, 0, 1)
            diagonal = replace(first, stride_bytes=matrix.pitch_bytes + matrix.item_bytes)
            yield from _put(tile, diagonal, _tap(weights, tap, start, part.columns))
        form = Convolution(
            height, width, part.size, out_height, out_width, part.columns,
            shape.kernel, shape.stride, shape.dilation, padding,
        )  # fmt: skip
        for i in range(images):
            yield tile.issue.meconv(
                form,
                total.part(i * pixels_out, pixels_out, start, part.columns),
                image.part(i * pixels_in, pixels_in, part.first - region[3][0], part.size),
                matrix,
                sum_factor(tile),
            )
        start += part.columns


def _put(tile: Tile, diagonal: MatrixPlace, column: MatrixPlace) -> Iterator[Instr]:
    """Move a column of weights to a diagonal, from fp16 to the type that is multiplied."""
    if tile.arithmetic.exact:
        return tile.issue.narrow(diagonal, column)
    return tile.issue.unary("mov.m", diagonal, column)


def _multiply_add(tile: Tile, shape: ConvolutionShape) -> Iterator[Instr]:
    """Multiply and add from +0, kernel rows first, then kernel columns; taps in the padding take no part."""
    issue, region = tile.issue, tile.work.passes[0].loads[0].box
    images, out_height, out_width, channels = box_shape(tile.box)
    _, height, width, _ = box_shape(region)
    taps = prod(shape.kernel)
    weights, rows = tile.matrix("weights", channels, taps), tile.matrix("rows", taps, channels)
    for tap in range(taps):
        yield from issue.unary("mov.m", rows.part(tap, 1).reshaped(channels, 1), _tap(weights, tap, 0, channels))
    image = tile.matrix("input", images * height * width, channels)
    product = tile.matrix("product", out_width, channels)
    yield from issue.fill(tile.output, 0.0)
    for line in range(images * out_height):
        i, y = line // out_height, line % out_height + tile.box[1][0]
        for tap in range(taps):
            low, high = shape.inside(1, tap % shape.kernel[1], tile.box[2])
            first, last = shape.inside(0, tap // shape.kernel[1], (y, y + 1))
            if high <= low or last <= first:
                continue
            row = shape.position(0, tap // shape.kernel[1], y) - region[1][0]
            column = shape.position(1, tap % shape.kernel[1], low) - region[2][0]
            pixel = image.part((i * height + row) * width + column, high - low)
            read = replace(pixel, stride_bytes=shape.stride * image.pitch_bytes)
            some = product.part(0, high - low)
            total = tile.output.part(line * out_width + low - tile.box[2][0], high - low)
            yield from issue.by_column("veemul", some, read, rows.part(tap, 1))
            yield from issue.binary("veadd", total, total, some)
