"""Convolution: one `meconv` per image of a tile, and per group where there are several.

    input rows + weights in L1 --meconv--> IM --bias, epilogue--> output in L1

`meconv` has no row pitch, so the rows that a tile reads are gathered densely; padding is set for each tile. Where
nothing lies between the pixels of one image and those of the next (1x1, stride 1), all images count as one. A long
reduction is cut into runs of input channels (`codegen.neuralscale.instructions.reductions`): one pass per run loads the
run's weights, and the vector engine adds the partial sums in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from codegen.neuralscale.instructions.arithmetic import arithmetic_of
from codegen.neuralscale.instructions.builder import MAX_EXTENT, Convolution
from codegen.neuralscale.instructions.reductions import reduction_runs, staged_runs
from codegen.neuralscale.templates.products import (
    PACKED,
    bias_operand,
    column_buffers,
    column_loads,
    packed_weights,
    product_problem,
    sum_buffers,
    sum_factor,
    summed,
    unpacked,
    unpacking_cycles,
    weight_buffers,
    with_scale,
)
from codegen.neuralscale.templates.template import (
    Template,
    data_buffer,
    finish_buffers,
    finish_cycles,
    finish_loads,
)
from codegen.neuralscale.templates.tile import Tile, load_bytes, window_problem, window_region
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape
from partitioner.ir.target import Pass, TileLoad, TileWork

MAX_FIELD = 255


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """The convolution's parameters, from the operator's attributes."""

    kernel: tuple[int, int]
    stride: int
    dilation: int
    pads: tuple[int, int, int, int]  # top, left, bottom, right
    groups: int
    in_shape: tuple[int, int, int, int]
    out_shape: tuple[int, int, int, int]
    exact: bool  # sums of integers

    @staticmethod
    def of(graph: Graph, op: Op) -> ConvolutionShape:
        kernel, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
        n, h, w, c = graph.by_name[op.inputs[0]].shape
        on, oh, ow, oc = graph.by_name[op.outputs[0]].shape
        top, left, bottom, right = pads
        groups = int(op.number("groups"))
        return ConvolutionShape(
            (kernel[0], kernel[1]),
            strides[0],
            dilations[0],
            (top, left, bottom, right),
            groups,
            (n, h, w, c),
            (on, oh, ow, oc),
            arithmetic_of(graph, op).exact,
        )

    @property
    def group_channels(self) -> int:
        return self.in_shape[3] // self.groups

    @property
    def group_outputs(self) -> int:
        return self.out_shape[3] // self.groups

    def runs(self) -> tuple[tuple[int, int], ...]:
        """Runs of the input channels that are multiplied separately."""
        if self.groups > 1:
            return ((0, self.group_channels),)
        return reduction_runs(self.group_channels, prod(self.kernel), self.exact)

    def staged(self, channels: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        """Channels of the input that are loaded for each run, given a range of output channels."""
        if self.groups == 1:
            return staged_runs(self.group_channels, prod(self.kernel), self.exact)
        parts = self.group_parts(channels)
        return ((parts[0][0] * self.group_channels, (parts[-1][0] + 1) * self.group_channels),)

    def folded(self, box: Box) -> tuple[int, int]:
        """(images, rows of each) of a box of outputs, as the matrix engine sees them: one image of all rows where each
        output reads only the pixel under it."""
        (n0, n1), (y0, y1), *_ = box
        single = self.kernel == (1, 1) and self.stride == 1 and not any(self.pads)
        if single and (n1 - n0) * (y1 - y0) <= MAX_EXTENT:
            return 1, (n1 - n0) * (y1 - y0)
        return n1 - n0, y1 - y0

    def padding(self, axis: int, span: tuple[int, int]) -> tuple[int, int]:
        """Padding before and after the input that the outputs `span` read on a spatial axis (0 rows, 1 columns)."""
        before = self.pads[axis] - span[0] * self.stride
        reach = (span[1] - 1) * self.stride + (self.kernel[axis] - 1) * self.dilation - self.pads[axis] + 1
        return max(0, before), max(0, reach - self.in_shape[axis + 1])

    def position(self, axis: int, tap: int, output: int) -> int:
        """Input position of a tap of an output on a spatial axis; negative or past the end where it is padding."""
        return output * self.stride + tap * self.dilation - self.pads[axis]

    def inside(self, axis: int, tap: int, span: tuple[int, int]) -> tuple[int, int]:
        """The outputs of `span` whose `tap` lies in the image, as (first, last + 1); an empty range where there are
        none."""
        offset = self.position(axis, tap, 0)
        first = max(span[0], -(offset // self.stride))
        last = min(span[1], (self.in_shape[axis + 1] - 1 - offset) // self.stride + 1)
        return first, max(first, last)

    def group_parts(self, channels: tuple[int, int]) -> tuple[tuple[int, int, int], ...]:
        """(group, first, last + 1 of its own output channels) for each group that a range of output channels
        touches."""
        low, high = channels
        size = self.group_outputs
        return tuple(
            (group, max(0, low - group * size), min(size, high - group * size))
            for group in range(low // size, -(-high // size))
        )


class ConvolutionTemplate(Template):
    """Images of two axes, fp16 or int8 with fp16 results; constant weights, for fp16 images int8 ones too, an optional
    bias, any groups; one stride and one dilation for both axes; kernel, stride, dilation and padding up to 255; at most
    32,767 channels, of int8 16,383 with scales."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        strides, dilations = op.ints("strides"), op.ints("dilations")
        if problem := window_problem(op):
            return problem
        if not graph.by_name[op.inputs[1]].constant:
            return "the weights are not constant"
        if strides[0] != strides[1] or dilations[0] != dilations[1]:
            return (
                f"strides {list(strides)} or dilations {list(dilations)} differ by axis; meconv has one value for both"
            )
        if max(*op.ints("kernel"), *strides, *dilations, *op.ints("pads")) > MAX_FIELD:
            return f"kernel, stride, dilation or padding above {MAX_FIELD}, the largest that meconv can encode"
        x, y, sum_bytes = graph.by_name[op.inputs[0]], graph.by_name[op.outputs[0]], arithmetic_of(graph, op).sum_bytes
        for tensor, item_bytes in ((x, x.item_bytes), (y, sum_bytes)):
            if item_bytes * tensor.shape[3] > MAX_EXTENT:
                return f"more than {MAX_EXTENT // item_bytes:,} channels: the pixel stride does not fit 16 bits"
        return product_problem(graph, op)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        shape = ConvolutionShape.of(graph, op)
        runs = shape.runs()
        region = window_region(graph, op, box)
        inputs = [TileLoad(op.inputs[0], (*region[:3], channels), "input") for channels in shape.staged(box[3])]
        weights = [_weight_load(op, shape, box, run, packed_weights(graph, op)) for run in runs]
        passes = [Pass(loads) for loads in zip(inputs, weights, strict=True)]
        passes = with_scale(passes, column_loads(graph, op, box[3]), finish_loads(graph, layer, box))
        buffers = [
            data_buffer("input", max(load_bytes(graph, load) for load in inputs), strided=True),
            *weight_buffers(graph, op, weights, "weights", strided=False),
            *column_buffers(graph, op, box),
            *sum_buffers(arithmetic, box, len(runs)),
        ]
        images, rows = shape.folded(box)
        pixels = rows * (box[2][1] - box[2][0])
        parts = Counter(high - low for _, low, high in shape.group_parts(box[3]))
        matrix = images * sum(
            groups * arithmetic.matrix_cycles(chip, pixels, outputs, prod(shape.kernel) * (high - low))
            for low, high in runs
            for outputs, groups in parts.items()
        )
        before = len(passes) - 1 + (1 if bias_operand(graph, op) else 0)
        scalings = len(passes) if arithmetic.scaled else 0
        vector = sum(cycles for _, cycles in finish_cycles(graph, layer, box, chip, before, scalings))
        cycles = (("matrix", matrix), ("vector", vector + unpacking_cycles(graph, op, weights, chip)))
        return TileWork((*buffers, *finish_buffers(graph, layer, box)), tuple(passes), "output", cycles)

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        shape = ConvolutionShape.of(tile.graph, tile.layer.anchor(tile.graph))
        steps = zip(shape.runs(), tile.work.passes, strict=True)
        return summed(tile, [tuple(_convolve(tile, shape, run, step)) for run, step in steps])


def _weight_load(op: Op, shape: ConvolutionShape, box: Box, run: tuple[int, int], packed: bool) -> TileLoad:
    kernel = ((0, shape.kernel[0]), (0, shape.kernel[1]))
    if shape.groups == 1:
        return TileLoad(op.inputs[1], (*kernel, run, box[3]), PACKED if packed else "weights")
    parts = shape.group_parts(box[3])
    columns = parts[0][1:] if len(parts) == 1 else (0, shape.group_outputs)
    groups = (parts[0][0], parts[-1][0] + 1)
    return TileLoad(op.inputs[1], (groups, *kernel, (0, shape.group_channels), columns), "weights")


def _convolve(tile: Tile, shape: ConvolutionShape, run: tuple[int, int], step: Pass) -> Iterator[Instr]:
    """The matrix instructions of one pass, for each image and each group."""
    source, held = step.loads[0].box, step.loads[1].box
    out_width, outputs = box_shape(tile.box)[2:]
    images, out_height = shape.folded(tile.box)
    region = box_shape(source)
    height, width, channels = prod(region[:2]) // images, region[2], region[3]
    per_group, start_channel = run[1] - run[0], run[0] - source[3][0] if shape.groups == 1 else 0
    parts = shape.group_parts(tile.box[3])
    taps = prod(shape.kernel) * per_group
    pixels_in, pixels_out = height * width, out_height * out_width
    image = tile.matrix("input", images * pixels_in, channels)
    weights = tile.matrix("weights", len(parts) * taps, held[-1][1] - held[-1][0])
    yield from unpacked(tile, weights)
    total = tile.sums("sum", images * pixels_out, outputs)
    padding = (*shape.padding(0, tile.box[1]), *shape.padding(1, tile.box[2]))
    sizes = (height, width, per_group, out_height, out_width)
    for i in range(images):
        start = 0
        for position, (_, low, high) in enumerate(parts):
            columns = high - low
            form = Convolution(*sizes, columns, shape.kernel, shape.stride, shape.dilation, padding)
            within = low - (held[-1][0] if len(parts) == 1 else 0)
            yield tile.issue.meconv(
                form,
                total.part(i * pixels_out, pixels_out, start, columns),
                image.part(i * pixels_in, pixels_in, position * per_group + start_channel, per_group),
                weights.part(position * taps, taps, within, columns),
                sum_factor(tile),
            )
            start += columns
