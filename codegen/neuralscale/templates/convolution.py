"""Convolution: one `meconv` for each image of a tile, for each group where there are several.

    input rows + weights in L1 --meconv--> IM --bias, trailing operators--> output in L1

`meconv` has no row pitch, so the rows that a tile reads are gathered densely; padding is set for each tile.
A reduction longer than `LONGEST_REDUCTION` is cut into equal runs of input channels whose partial sums are added in
order by the vector engine: the two fp16 accumulators lose too many bits beyond that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from codegen.neuralscale.issue import MAX_EXTENT, Convolution
from codegen.neuralscale.templates.tile import (
    DATA,
    WEIGHTS,
    Tile,
    box_bytes,
    finish,
    finish_buffers,
    finish_cycles,
    finish_loads,
    window_problem,
    window_region,
)
from hw_models.chip import Chip
from hw_models.cost import matrix_cycles
from isched.program import Instr
from partitioner.graph import Graph, Op
from partitioner.layers import Layer
from partitioner.regions import Box, box_shape
from partitioner.target import Buffer, Load, Pass, Work

__all__ = ["LONGEST_REDUCTION", "ConvolutionShape", "ConvolutionTemplate", "bias_loads", "reduction_runs"]

LONGEST_REDUCTION = 9_000
RUN_LENGTH = 1_152
"""Where a reduction is cut at all: the error of one run falls with its root, and a run more is one vector addition."""
MAX_FIELD = 255


def reduction_runs(length: int, unit: int) -> tuple[tuple[int, int], ...]:
    """Cut a reduction of `length` channels, `unit` products each, into runs; one up to LONGEST_REDUCTION products."""
    runs = 1 if length * unit <= LONGEST_REDUCTION else -(-length * unit // RUN_LENGTH)
    points = [length * i // runs for i in range(runs + 1)]
    return tuple(pairwise(points))


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """The convolution's own numbers, from the operator's attributes."""

    kernel: tuple[int, int]
    stride: int
    dilation: int
    pads: tuple[int, int, int, int]  # top, left, bottom, right
    groups: int
    in_shape: tuple[int, int, int, int]
    out_shape: tuple[int, int, int, int]

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
        )

    @property
    def group_channels(self) -> int:
        return self.in_shape[3] // self.groups

    @property
    def group_outputs(self) -> int:
        return self.out_shape[3] // self.groups

    def runs(self) -> tuple[tuple[int, int], ...]:
        return (
            reduction_runs(self.group_channels, prod(self.kernel)) if self.groups == 1 else ((0, self.group_channels),)
        )

    def padding(self, axis: int, span: tuple[int, int]) -> tuple[int, int]:
        """Padding before and after the input of outputs `span` on a spatial axis (0 rows, 1 columns)."""
        before = self.pads[axis] - span[0] * self.stride
        reach = (span[1] - 1) * self.stride + (self.kernel[axis] - 1) * self.dilation - self.pads[axis] + 1
        return max(0, before), max(0, reach - self.in_shape[axis + 1])

    def position(self, axis: int, tap: int, output: int) -> int:
        """Where in the input a tap of an output lies on a spatial axis, negative or beyond where it is padding."""
        return output * self.stride + tap * self.dilation - self.pads[axis]

    def inside(self, axis: int, tap: int, span: tuple[int, int]) -> tuple[int, int]:
        """The outputs of `span` whose `tap` lies in the image: first and last + 1, or an empty range."""
        offset = self.position(axis, tap, 0)
        first = max(span[0], -(offset // self.stride))
        last = min(span[1], (self.in_shape[axis + 1] - 1 - offset) // self.stride + 1)
        return first, max(first, last)

    def group_parts(self, channels: tuple[int, int]) -> tuple[tuple[int, int, int], ...]:
        """(group, first and last + 1 of its own output channels) of the groups that a range of outputs touches."""
        low, high = channels
        size = self.group_outputs
        return tuple(
            (group, max(0, low - group * size), min(size, high - group * size))
            for group in range(low // size, -(-high // size))
        )


class ConvolutionTemplate:
    """Images of two axes; constant weights, an optional bias, any groups; one stride and one dilation for both axes;
    kernel, stride, dilation and padding up to 255; at most 32,767 channels."""

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
        if 2 * max(graph.by_name[name].shape[3] for name in (op.inputs[0], op.outputs[0])) > MAX_EXTENT:
            return "more than 32,767 channels: the pixel stride does not fit 16 bits"
        return None

    def quanta(self, graph: Graph, op: Op) -> tuple[int, ...]:
        del graph, op
        return (1, 1, 1, 1)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> Work:
        op = layer.anchor(graph)
        shape = ConvolutionShape.of(graph, op)
        passes = [Pass((_input_load(graph, op, shape, box, run), _weight_load(op, shape, box, run)))
                  for run in shape.runs()]  # fmt: skip
        extra = [*bias_loads(op, box), *finish_loads(graph, layer, box)]
        passes[-1] = Pass((*passes[-1].loads, *extra))
        buffers = [
            Buffer("input", "L1", DATA, max(box_bytes(step.loads[0].box) for step in passes), strided=True),
            Buffer("weights", "L1", WEIGHTS, max(box_bytes(step.loads[1].box) for step in passes)),
            *(Buffer(load.buffer, "L1", DATA, box_bytes(load.box)) for load in bias_loads(op, box)),
            Buffer("sum", "IM", "", box_bytes(box)),
        ]
        (n0, n1), (y0, y1), (x0, x1), (c0, c1) = box
        reduction = prod(shape.kernel) * shape.group_channels
        pixels = (y1 - y0) * (x1 - x0)
        parts = Counter(high - low for _, low, high in shape.group_parts((c0, c1)))
        matrix = (n1 - n0) * sum(
            groups * matrix_cycles(chip, pixels, outputs, reduction) for outputs, groups in parts.items()
        )
        before = len(passes) - 1 + (1 if len(op.inputs) > 2 else 0)
        cycles = (("matrix", matrix), *finish_cycles(graph, layer, box, chip, before))
        return Work((*buffers, *finish_buffers(graph, layer, box)), tuple(passes), "output", cycles)

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        graph, op = tile.graph, tile.layer.anchor(tile.graph)
        shape = ConvolutionShape.of(graph, op)
        result: list[tuple[Instr, ...]] = []
        total = tile.matrix("sum", tile.output.rows, tile.output.columns)
        runs = shape.runs()
        for position, (run, step) in enumerate(zip(runs, tile.work.passes, strict=True)):
            instrs = list(_convolve(tile, shape, run, step))
            last = position == len(runs) - 1
            if len(runs) > 1 and position == 0:
                instrs += tile.issue.unary("mov.m", tile.output, total)
            elif len(runs) > 1:
                instrs += tile.issue.binary("veadd", tile.output, tile.output, total)
            if last:
                bias = tile.matrix("bias", 1, tile.output.columns) if len(op.inputs) > 2 else None
                instrs += finish(tile, total if len(runs) == 1 else tile.output, bias)
            result.append(tuple(instrs))
        return tuple(result)


def _input_load(graph: Graph, op: Op, shape: ConvolutionShape, box: Box, run: tuple[int, int]) -> Load:
    images, rows, columns, _ = window_region(graph, op, box)
    parts = shape.group_parts(box[3])
    grouped = (parts[0][0] * shape.group_channels, (parts[-1][0] + 1) * shape.group_channels)
    return Load(op.inputs[0], (images, rows, columns, run if shape.groups == 1 else grouped), "input")


def _weight_load(op: Op, shape: ConvolutionShape, box: Box, run: tuple[int, int]) -> Load:
    kernel = ((0, shape.kernel[0]), (0, shape.kernel[1]))
    if shape.groups == 1:
        return Load(op.inputs[1], (*kernel, run, box[3]), "weights")
    parts = shape.group_parts(box[3])
    columns = parts[0][1:] if len(parts) == 1 else (0, shape.group_outputs)
    groups = (parts[0][0], parts[-1][0] + 1)
    return Load(op.inputs[1], (groups, *kernel, (0, shape.group_channels), columns), "weights")


def bias_loads(op: Op, box: Box) -> tuple[Load, ...]:
    return (Load(op.inputs[2], (box[3],), "bias"),) if len(op.inputs) > 2 else ()


def _convolve(tile: Tile, shape: ConvolutionShape, run: tuple[int, int], step: Pass) -> Iterator[Instr]:
    """The matrix instructions of one pass: each image, each group."""
    region, held = step.loads[0].box, step.loads[1].box
    images, out_height, out_width, outputs = box_shape(tile.box)
    _, height, width, channels = box_shape(region)
    per_group = shape.group_channels if shape.groups > 1 else run[1] - run[0]
    parts = shape.group_parts(tile.box[3])
    taps = prod(shape.kernel) * per_group
    pixels_in, pixels_out = height * width, out_height * out_width
    image = tile.matrix("input", images * pixels_in, channels)
    weights = tile.matrix("weights", len(parts) * taps, held[-1][1] - held[-1][0])
    total = tile.matrix("sum", images * pixels_out, outputs)
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
                image.part(i * pixels_in, pixels_in, position * per_group, per_group),
                weights.part(position * taps, taps, within, columns),
            )
            start += columns
