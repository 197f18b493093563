"""Extents of a tile of a convolution or matrix product, as the array sees it.

    conv [n, h, w, c] x [kh, kw, c, f]      images n, rows h, columns w; a matrix product is one of a single tap
    matmul [..., m, k] x [..., k, n]        images: all axes before m; one row of m columns

A second factor with axes before its last two, which was computed, is as many matrices of weights, one after the other.

The scratchpad holds the patch of the input that the tile reads, padding included, as blocks of the array's width of
channels; then the weights, as blocks of output channels. The accumulator holds the sums, as blocks of output channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from codegen.gemmini.kernels.loops import BoxLoop, box_loop
from partitioner.ir.graph import Graph, Op
from partitioner.ir.regions import Box


@dataclass(frozen=True, slots=True)
class Window:
    """Taps, step, distance of taps and padding before along one axis."""

    taps: int = 1
    step: int = 1
    dilation: int = 1
    pad: int = 0

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True, slots=True)
class Span:
    """Inputs that a range of outputs reads along one axis: `patch` from `first` on, of which `before` and `after` lie
    in the padding."""

    first: int
    patch: int
    before: int
    after: int

    @property
    def real(self) -> int:
        return self.patch - self.before - self.after


@dataclass(frozen=True, slots=True)
class ProductShape:
    """A tile: the box of the result as (images, rows, columns, channels), and the input's extents."""

    images: tuple[tuple[int, int], ...]
    rows: tuple[int, int]
    columns: tuple[int, int]
    channels: tuple[int, int]
    input_images: tuple[int, ...]
    input_rows: int
    input_columns: int
    depth: int
    all_channels: int
    down: Window
    along: Window
    is_matrix: bool
    matrices: Box = ()
    """The part of the second factor that the tile reads, along its axes before the last two."""

    @property
    def matrix_count(self) -> int:
        return prod(high - low for low, high in self.matrices)

    @property
    def image_count(self) -> int:
        return prod(high - low for low, high in self.images)

    @property
    def out_rows(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def out_columns(self) -> int:
        return self.columns[1] - self.columns[0]

    @property
    def out_channels(self) -> int:
        return self.channels[1] - self.channels[0]

    @property
    def pixels(self) -> int:
        return self.image_count * self.out_rows * self.out_columns

    @property
    def taps(self) -> int:
        return self.down.taps * self.along.taps

    @property
    def row_span(self) -> Span:
        return _span(self.rows, self.down, self.input_rows)

    @property
    def column_span(self) -> Span:
        return _span(self.columns, self.along, self.input_columns)

    @property
    def patch_pixels(self) -> int:
        """Pixels of one block of channels of the patch."""
        return self.image_count * self.row_span.patch * self.column_span.patch

    def depth_blocks(self, dim: int) -> int:
        return -(-self.depth // dim)

    def channel_blocks(self, dim: int) -> int:
        return -(-self.out_channels // dim)

    def input_rows_in_scratchpad(self, dim: int) -> int:
        return self.depth_blocks(dim) * self.patch_pixels

    def weight_rows(self, dim: int) -> int:
        return self.matrix_count * self.rows_of_matrix(dim)

    def rows_of_matrix(self, dim: int) -> int:
        return self.channel_blocks(dim) * self.taps * self.depth

    def image_loops(self, extents: Sequence[int], **steps: int) -> tuple[BoxLoop, ...]:
        """Loops over the images, which are some of a dense array of these extents: from one image to the next the array
        goes on by `dram`, all else by its own step. Matrices of weights go on by `b` rows where there are several."""
        loops, inner, dense, matrix = [], 1, 1, 1
        own = ((0, 1),) * (len(self.images) - len(self.matrices)) + self.matrices
        for (low, high), extent, (first, end) in reversed(tuple(zip(self.images, extents, own, strict=True))):
            added = {name: step * (inner if name == "dram" else dense) for name, step in steps.items() if name != "b"}
            if end - first > 1:
                added["b"] = steps.get("b", 0) * matrix
            loops.append(box_loop(high - low, **added))
            inner, dense, matrix = inner * extent, dense * (high - low), matrix * (end - first)
        return tuple(reversed(loops))

    def sum_rows(self, dim: int) -> int:
        return self.channel_blocks(dim) * self.pixels

    def input_box(self) -> Box:
        """The part of the input that the tile reads, without padding."""
        rows, columns = self.row_span, self.column_span
        spatial = ((rows.first + rows.before, rows.first + rows.before + rows.real),
                   (columns.first + columns.before, columns.first + columns.before + columns.real))  # fmt: skip
        return (*self.images, *(spatial[1:] if self.is_matrix else spatial), (0, self.depth))

    def macs(self) -> int:
        return self.pixels * self.out_channels * self.taps * self.depth


def _span(outputs: tuple[int, int], window: Window, extent: int) -> Span:
    first = outputs[0] * window.step - window.pad
    patch = (outputs[1] - outputs[0] - 1) * window.step + window.reach
    before = min(patch, max(0, -first))
    after = min(patch - before, max(0, first + patch - extent))
    return Span(first, patch, before, after)


def product_shape(graph: Graph, op: Op, box: Box) -> ProductShape:
    """The tile of a conv or matmul that makes a box of its result."""
    x, y = graph.by_name[op.inputs[0]].shape, graph.by_name[op.outputs[0]].shape
    if op.kind == "matmul":
        *outer, _, _ = graph.by_name[op.inputs[1]].shape
        matrices = tuple(
            (0, 1) if extent == 1 else images
            for extent, images in zip(outer, box[len(box) - 2 - len(outer) : -2], strict=True)
        )
        return ProductShape(
            box[:-2], (0, 1), box[-2], box[-1], x[:-2], 1, x[-2], x[-1], y[-1], Window(), Window(), True, matrices
        )
    kernel, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    down, along = (Window(kernel[axis], strides[axis], dilations[axis], pads[axis]) for axis in range(2))
    return ProductShape(box[:1], box[1], box[2], box[3], x[:1], x[1], x[2], x[3], y[3], down, along, False)
