"""Pooling. The vector engine first combines the rows under a window, then the columns; a mean over a whole image is a
matrix product with a row of 1 / pixels, or, for many pixels, a sum in pieces.

    rows:     down[y, x]  = op over ky of in[y * stride + ky, x]      one instruction per ky
    columns:  out[y, x]   = op over kx of down[y, x * stride + kx]    one instruction per row and kx

Maxima start from -inf. Means multiply the input by 1 / taps first, so that sums cannot overflow, start from +0, and are
multiplied once more by taps / divisor at borders whose divisor is smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, prod

from codegen.neuralscale.instructions.arithmetic import arithmetic_of
from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from codegen.neuralscale.templates.lines import Lines, lines_along
from codegen.neuralscale.templates.reduction import mean
from codegen.neuralscale.templates.template import (
    Template,
    data_buffer,
    finish,
    finish_cycles,
    input_buffer,
    single_pass,
)
from codegen.neuralscale.templates.tile import WEIGHTS, Tile, stored_bytes, window_problem, window_region
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size
from partitioner.ir.target import TileBuffer, TileLoad, TileWork

LONGEST_MEAN = 256
"""Largest number of pixels whose mean one matrix instruction takes. Its two accumulators add one by one: for equal
pixels, the worst case, the mean of 256 is right to 0.7 %, that of 512 to 1.4 %, that of 9,000 to 31 %."""


@dataclass(frozen=True, slots=True)
class _Window:
    """One spatial axis of the pooling: taps, their spacing, padding in front, extents."""

    taps: int
    stride: int
    dilation: int
    pad: int
    pad_end: int
    extent: int

    def valid(self, tap: int, low: int, high: int) -> tuple[int, int]:
        """Outputs of [low, high) whose `tap` lies inside the image."""
        offset = tap * self.dilation - self.pad
        first = max(low, -(offset // self.stride))
        last = min(high, (self.extent - 1 - offset) // self.stride + 1)
        return first, max(first, last)

    def divisor(self, position: int, count_padding: bool) -> int:
        """Number of taps that count at an output position."""
        start = position * self.stride - self.pad
        end = self.extent + self.pad_end if count_padding else self.extent
        low = -self.pad if count_padding else 0
        return sum(1 for tap in range(self.taps) if low <= start + tap * self.dilation < end)


def _windows(graph: Graph, op: Op) -> tuple[_Window, _Window]:
    kernel, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    _, height, width, _ = graph.by_name[op.inputs[0]].shape
    return (
        _Window(kernel[0], strides[0], dilations[0], pads[0], pads[2], height),
        _Window(kernel[1], strides[1], dilations[1], pads[1], pads[3], width),
    )


def whole_image(graph: Graph, op: Op) -> bool:
    """Whether `op` is a mean over all pixels."""
    shape = graph.by_name[op.inputs[0]].shape
    return op.kind == "average_pool" and op.ints("kernel") == shape[1:3] and not any(op.ints("pads"))


def _image_lines(region: Box) -> Lines:
    return lines_along(box_shape(region), 1, 2)


class PoolingTemplate(Template):
    """Images of two axes; the padding is smaller than the window and may count in averages."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del graph, chip
        return window_problem(op)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        item_bytes = arithmetic.item_bytes
        whole = whole_image(graph, op)
        region = window_region(graph, op, box)
        (n0, n1), (y0, y1), _, (c0, c1) = box
        pixels = box_size(region[1:3])
        if whole and pixels > LONGEST_MEAN:
            lines = _image_lines(region)
            buffers = [
                input_buffer(graph, op, region),
                data_buffer("partial", item_bytes * lines.partial_elements),
                data_buffer("scaled", item_bytes * box_size(region)),
            ]
            cycles = arithmetic.vector_cycles(chip, lines.elements, 2)
            cycles += lines.sum_instructions * arithmetic.vector_cycles(chip, 1)
            engine: tuple[tuple[str, float], ...] = (("vector", cycles),)
        elif whole:
            buffers = [
                TileBuffer("input", "L1", WEIGHTS, stored_bytes(graph, op.inputs[0], region), strided=True),
                data_buffer("weight", arithmetic.operand_bytes * pixels),
                TileBuffer("sum", "IM", "", arithmetic.sum_bytes * box_size(box)),
            ]
            engine = (("matrix", (n1 - n0) * arithmetic.matrix_cycles(chip, 1, c1 - c0, pixels)),)
        else:
            down = (n1 - n0) * (y1 - y0) * (region[2][1] - region[2][0]) * (c1 - c0)
            buffers = [input_buffer(graph, op, region), data_buffer("down", item_bytes * down)]
            rows, columns = _windows(graph, op)
            cycles = arithmetic.vector_cycles(chip, down, rows.taps + 1)
            cycles += arithmetic.vector_cycles(chip, box_size(box), columns.taps + 1)
            cycles += (n1 - n0) * (y1 - y0) * columns.taps * chip.vector.start_latency_cycles
            if op.kind == "average_pool":
                buffers.append(data_buffer("scaled", item_bytes * box_size(region)))
                cycles += arithmetic.vector_cycles(chip, box_size(region), 1)
            engine = (("vector", cycles),)
        loads = (TileLoad(op.inputs[0], region, "input"),)
        return single_pass(graph, layer, box, loads, buffers, (*engine, *finish_cycles(graph, layer, box, chip)))

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        region = tile.work.passes[0].loads[0].box
        if whole_image(tile.graph, op):
            small = box_size(region[1:3]) <= LONGEST_MEAN
            return (tuple(_mean_of_image(tile, region) if small else _mean_in_pieces(tile, region)),)
        return ((*_pool(tile, op, region), *finish(tile, tile.output)),)


def _mean_of_image(tile: Tile, region: Box) -> Iterator[Instr]:
    images, height, width, channels = box_shape(region)
    pixels = height * width
    weight = tile.operand("weight", 1, pixels)
    data = tile.matrix("input", images * pixels, channels)
    total = tile.sums("sum", images, channels)
    yield from tile.issue.fill(weight, 1.0 / pixels)
    for image in range(images):
        yield tile.issue.memul(total.part(image, 1), weight, data.part(image * pixels, pixels))
    yield from finish(tile, total)


def _mean_in_pieces(tile: Tile, region: Box) -> Iterator[Instr]:
    shape = box_shape(region)
    yield from mean(tile, _image_lines(region), tile.matrix("input", prod(shape[:3]), shape[3]), tile.output)
    yield from finish(tile, tile.output)


def _pool(tile: Tile, op: Op, region: Box) -> Iterator[Instr]:
    issue = tile.issue
    rows, columns = _windows(tile.graph, op)
    images, height, width, channels = box_shape(region)
    averaged = op.kind == "average_pool"
    mnemonic, start = ("veadd", 0.0) if averaged else ("vemax", -inf)
    data = tile.matrix("input", images * height * width, channels)
    if averaged:
        flat = data.reshaped(images * height, width * channels) if data.dense else data
        scaled = tile.matrix("scaled", flat.rows, flat.columns)
        yield from issue.scalar("veemul", scaled, flat, 1.0 / (rows.taps * columns.taps))
        data = scaled.reshaped(data.rows, data.columns)
    (y0, y1), (x0, x1) = tile.box[1], tile.box[2]
    down = tile.matrix("down", images * (y1 - y0), width * channels)
    row_bytes = channels * down.item_bytes
    yield from issue.fill(down, start)
    for image in range(images):
        for tap in range(rows.taps):
            low, high = rows.valid(tap, y0, y1)
            if high > low:
                source = image * height + low * rows.stride + tap * rows.dilation - rows.pad - region[1][0]
                target = down.part(image * (y1 - y0) + low - y0, high - low)
                for d, a in _lines(target, data, source, rows.stride, width):
                    yield from issue.binary(mnemonic, d, d, a)
    yield from issue.fill(tile.output, start)
    for row in range(images * (y1 - y0)):
        for tap in range(columns.taps):
            low, high = columns.valid(tap, x0, x1)
            if high > low:
                pixel = row * width + low * columns.stride + tap * columns.dilation - columns.pad - region[2][0]
                part = MatrixPlace(
                    down.memory,
                    down.offset_bytes + pixel * row_bytes,
                    high - low,
                    channels,
                    down.item_bytes,
                    columns.stride * row_bytes,
                )
                target = tile.output.part(row * (x1 - x0) + low - x0, high - low)
                yield from issue.binary(mnemonic, target, target, part)
    if averaged:
        yield from _border_divisors(issue, tile, op, rows, columns)


def _lines(
    target: MatrixPlace, data: MatrixPlace, first: int, step: int, width: int
) -> Iterator[tuple[MatrixPlace, MatrixPlace]]:
    """Combine lines of `target` with those of an image of pixels, every `step`th from `first`: all of them at once
    where the pixels lie densely or no line is left out, else one by one."""
    if data.dense:
        start, columns = data.offset_bytes + first * width * data.row_bytes, width * data.columns
        stride = step * width * data.row_bytes
        yield target, MatrixPlace(data.memory, start, target.rows, columns, data.item_bytes, stride)
        return
    lines = target.rows if step == 1 else 1
    for i in range(0, target.rows, lines):
        d = target.part(i, lines).reshaped(lines * width, data.columns)
        yield d, data.part((first + i * step) * width, lines * width)


def _border_divisors(issue: InstructionBuilder, tile: Tile, op: Op, rows: _Window, columns: _Window) -> Iterator[Instr]:
    """Multiply by taps / divisor where fewer taps count than the window has."""
    counted = bool(op.number("count_include_pad"))
    taps = rows.taps * columns.taps
    (n0, n1), (y0, y1), (x0, x1), _ = tile.box
    across = [columns.divisor(x, counted) for x in range(x0, x1)]
    for image in range(n1 - n0):
        for y in range(y0, y1):
            down = rows.divisor(y, counted)
            start = 0
            for x in range(1, len(across) + 1):
                if x < len(across) and across[x] == across[start]:
                    continue
                if (divisor := down * across[start]) not in (0, taps):
                    row = (image * (y1 - y0) + y - y0) * (x1 - x0) + start
                    part = tile.output.part(row, x - start)
                    yield from issue.scalar("veemul", part, part, taps / divisor)
                start = x
