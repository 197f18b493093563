"""Convolutions as loops that the accelerator unrolls itself, beside the streams of explicit instructions.

[n, h, w, c] (*) [kh, kw, c, f] --tilings--> parts of rows, filters and channels --> one loop_conv_ws for each part

What the unroller counts beyond the patch that is needed, with a stride of two, is made zeros. A kernel of one tap and a
stride of two moves every other pixel. Of few channels, pixels lie side by side, so that a row of the array has several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from codegen.gemmini.isa.convolution_loops import LOOP, ConvolutionLoop
from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, MAIN, SCRATCHPAD, ArrayGeometry
from codegen.gemmini.isa.unrolled import Part
from codegen.gemmini.kernels.accelerator_loops import (
    BIAS_BYTES,
    Touches,
    equal_parts,
    local_rows,
    main_rows,
    moved_bytes,
    powers,
    turns,
)
from codegen.gemmini.kernels.finish import finish_of
from codegen.gemmini.kernels.product_shape import Window, product_shape, span_of
from codegen.gemmini.streams.instructions import accelerator_instr
from codegen.gemmini.streams.streams import once
from isched.program.program import Instr, Region
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import full_box

MOST = (1 << 16) - 1
"""Largest extent or stride that a field holds, counted in elements."""
MOST_PADDING = 255
"""Largest padding, stride and distance of taps that all fields for them hold."""


@dataclass(frozen=True, slots=True)
class ConvolutionTiling:
    """Rows of the result, blocks of filters and input channels of one loop; `rows_inside` says that the next loop has
    other rows, so that weights may stay, else other filters."""

    rows: int
    filters: int
    channels: int
    rows_inside: bool

    def __str__(self) -> str:
        order = "rows" if self.rows_inside else "filters"
        return f"loops of {self.rows} rows x {self.filters} blocks, {self.channels} channels, {order} inside, by {LOOP}"


@dataclass(frozen=True, slots=True)
class ConvolutionLayer:
    """A layer that is one convolution of int8, finished by one scale, with or without Relu. Offsets are those of the
    main memory; `bias` is -1 where nothing is added. `image`, `result` are rows, columns and channels."""

    name: str
    images: int
    image: tuple[int, int, int]
    result: tuple[int, int, int]
    down: Window
    along: Window
    input: int
    weights: int
    bias: int
    output: int
    scale: float
    relu: bool

    @property
    def _thins(self) -> bool:
        """Whether only every other pixel is moved."""
        return self.down == self.along == Window(step=2)

    def _pixels(self, dim: int) -> int:
        """Pixels side by side in a row of the scratchpad."""
        if self.along.dilation > 1:
            return 1
        return max(1, min(dim // self.image[2], self.along.taps))

    def tilings(self, geometry: ArrayGeometry) -> Iterator[ConvolutionTiling]:
        """Ways to cut it into loops, each of as many channels as fit, in equal parts."""
        dim = geometry.dim
        rows, columns, filters = self.result
        most, blocks = geometry.accumulator_rows // 2 // columns, -(-filters // dim)
        seen: set[ConvolutionTiling] = set()
        for wanted_filters in (*powers(blocks), blocks):
            for wanted_rows in (*powers(rows), rows, most // wanted_filters):
                if not 0 < wanted_rows * wanted_filters <= most:
                    continue
                part = equal_parts(rows, wanted_rows), equal_parts(blocks, wanted_filters)
                channels = self._channels(*part, geometry)
                if channels:
                    seen |= {ConvolutionTiling(*part, channels, inside) for inside in (False, True)}
        yield from sorted(seen, key=lambda each: (each.rows, each.filters, each.channels, each.rows_inside))

    def _channels(self, rows: int, filters: int, geometry: ArrayGeometry) -> int:
        """Input channels of a loop, whole blocks or all, 0 where none fit."""
        dim, channels = geometry.dim, self.image[2]
        blocks = -(-channels // dim)
        for parts in range(1, blocks + 1):
            each = channels if parts == 1 else dim * -(-blocks // parts)
            tiling = ConvolutionTiling(rows, filters, each, rows_inside=False)
            if next(self.loops(tiling, geometry)).fits(geometry):
                return each
        return 0

    def loops(self, tiling: ConvolutionTiling, geometry: ArrayGeometry) -> Iterator[ConvolutionLoop]:
        """The loops, in order."""
        dim, pixels = geometry.dim, self._pixels(geometry.dim)
        (all_rows, _, filters), depth = self.result, self.image[2]
        heights = [(image, row) for image in range(self.images) for row in range(0, all_rows, tiling.rows)]
        widths, depths = range(0, filters, tiling.filters * dim), range(0, depth, tiling.channels)
        for turn in turns(heights, widths, depths, tiling.rows_inside):
            (image, row), first, deep = turn.row, turn.column, turn.deep
            yield self._loop(
                (image, row, min(all_rows, row + tiling.rows)),
                (first, min(filters, first + tiling.filters * dim)),
                (deep, min(depth, deep + tiling.channels)),
                turn.stay,
                (turn.halves[0], 2 if pixels > 1 else turn.halves[1]),
                pixels,
            )

    def _loop(
        self, height: tuple[int, int, int], filters: tuple[int, int], channels: tuple[int, int],
        stay: tuple[bool, bool], halves: tuple[int, int], pixels: int,
    ) -> ConvolutionLoop:  # fmt: skip
        """The loop over these rows of an image, filters and channels, whose patch or weights may stay where they are.
        Pixels side by side may be written before the half of the patch begins, so weights have the other half then."""
        (image, first, end), (in_rows, in_columns, depth) = height, self.image
        out_rows, out_columns, all_filters = self.result
        down, along = span_of((first, end), self.down, in_rows), span_of((0, out_columns), self.along, in_columns)
        more = 0 if self._thins else self.down.step - 1
        pixel = (image * in_rows + down.first + down.before) * in_columns + along.first + along.before
        out_pixel = (image * out_rows + first) * out_columns
        return ConvolutionLoop(
            weights=0 if stay[1] else BASE + self.weights + channels[0] * all_filters + filters[0],
            output=BASE + self.output + out_pixel * all_filters + filters[0] if channels[1] == depth else 0,
            bias=(BASE + max(0, self.bias) + BIAS_BYTES * filters[0]) if channels[0] == 0 else 0,
            input=0 if stay[0] else BASE + self.input + pixel * depth + channels[0],
            in_rows=in_rows, in_columns=in_columns, in_channels=depth,
            out_rows=out_rows, out_columns=out_columns, out_channels=all_filters,
            in_stride=depth, weight_stride=all_filters, out_stride=all_filters,
            rows=end - first, columns=out_columns, part_channels=filters[1] - filters[0],
            kernel=self.along.taps, kernel_rows=self.down.taps, kernel_columns=self.along.taps,
            kernel_channels=channels[1] - channels[0], a_half=halves[0], b_half=halves[1], batch=self.images,
            stride=self.down.step, dilation=self.down.dilation,
            top=down.before, bottom=down.after + more, left=along.before, right=along.after + more,
            no_bias=int(self.bias < 0), pixels_per_row=pixels, downsample=int(self._thins),
            activation=int(self.relu), out_scale=self.scale,
        )  # fmt: skip

    def settings(self, geometry: ArrayGeometry) -> tuple[Instr, ...]:
        """What is configured before the loops."""
        del geometry
        execute = once("config_ex", weight_stationary=1, a_stride=1 if self._thins else self.down.step, c_stride=1)
        store = once("config_st", activation=int(self.relu), stride=self.result[2], scale=self.scale)
        return (
            accelerator_instr("array", "config_ex", (execute,), (), (), 1.0, self.name),
            accelerator_instr("store", "mvout", (store,), (), (), 1.0, self.name),
        )

    def touched(self, loop: ConvolutionLoop, geometry: ArrayGeometry, sums: Region) -> Touches:
        """What a loop reads and writes."""
        dim = geometry.dim
        a = local_rows(SCRATCHPAD, loop.input_row(geometry), loop.input_rows(dim), dim)
        b = local_rows(SCRATCHPAD, loop.weight_row(geometry), loop.weight_rows(dim), dim)
        sums = Region(ACCUMULATOR, sums.offset_bytes, loop.sums_rows(dim) * dim * 4)
        found: dict[Part, tuple[tuple[Region, ...], tuple[Region, ...], float]] = {}
        if loop.bias:
            added = () if loop.no_bias else (Region(MAIN, loop.bias - BASE, BIAS_BYTES * loop.part_channels),)
            found["added"] = (added, (sums,), float(loop.rows * loop.columns))
        reads = [*self._read_input(loop), *_read_weights(loop)]
        writes = [place for place, address in ((a, loop.input), (b, loop.weights)) if address]
        if writes:
            found["load"] = (tuple(reads), tuple(writes), moved_bytes(reads))
        found["compute"] = ((a, b, sums), (sums,), float(loop.sums_rows(dim) * loop.weight_block_rows / dim))
        if loop.output:
            result = main_rows(loop.output, loop.rows * loop.columns, loop.part_channels, loop.out_stride)
            found["store"] = ((sums,), (result,), float(result.size_bytes))
        return found

    @staticmethod
    def _read_input(loop: ConvolutionLoop) -> Iterator[Region]:
        """The pixels of a loop's patch, those between them included where only every other one is moved."""
        rows, columns = loop.own_pixels
        if not loop.input or min(rows, columns) == 0:
            return
        last_row, last_column = (rows - loop.thinning, columns - loop.thinning)
        pixels = last_row * loop.in_columns + last_column + 1
        yield main_rows(loop.input, pixels, loop.kernel_channels, loop.in_stride)


def _read_weights(loop: ConvolutionLoop) -> Iterator[Region]:
    if not loop.weights:
        return
    for tap in range(loop.kernel_rows * loop.kernel_columns):
        start = loop.weights + tap * loop.in_channels * loop.weight_stride
        yield main_rows(start, loop.kernel_channels, loop.part_channels, loop.weight_stride)


def convolution_layer(
    graph: Graph, constants: Constants, layer: Layer, places: Mapping[str, int]
) -> ConvolutionLayer | str:
    """The layer, whose tensors lie at these offsets of the main memory, or why loops over convolutions cannot do it."""
    op = layer.anchor(graph)
    finish = finish_of(graph, constants, layer)
    if not finish.on_array:
        return "the core finishes it"
    if finish.terms:
        return "values are added to its sums"
    shape = product_shape(graph, op, full_box(graph.by_name[op.outputs[0]].shape))
    if shape.is_matrix or shape.all_groups > 1 or shape.matrix_count > 1:
        return "it is no convolution of all channels"
    down, along = shape.down, shape.along
    if down.step != along.step or down.dilation != along.dilation:
        return "its steps or the distances of its taps differ along the axes"
    image = shape.input_rows, shape.input_columns, shape.input_channels
    result = shape.out_rows, shape.out_columns, shape.out_channels
    pads = max(down.pad, along.pad, down.reach, along.reach) + down.step
    if max(*image, *result, shape.image_count) > MOST or pads > MOST_PADDING:
        return "its extents exceed the fields of a loop"
    names = (*op.inputs[:2], *op.inputs[3:], layer.output)
    if any(name not in places for name in names):
        return "values stay in the scratchpad"
    bias = places[op.inputs[3]] if len(op.inputs) > 3 else -1
    x, w = (places[name] for name in op.inputs[:2])
    return ConvolutionLayer(layer.name, shape.image_count, image, result, down, along, x, w, bias, places[layer.output],
                            finish.scale, finish.relu)  # fmt: skip
