"""Extents of a tile of a convolution or matrix product, as the array sees it.

    conv [n, h, w, c] x [kh, kw, c, f]      images n, rows h, columns w; a matrix product is one of a single tap
    matmul [..., m, k] x [k, n]             images: all axes before m; one row of m columns

The scratchpad holds the patch of the input that the tile reads, padding included, as blocks of the array's width of
channels; then the weights, as blocks of output channels. The accumulator holds the sums, as blocks of output channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

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
        return self.channel_blocks(dim) * self.taps * self.depth

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
        return ProductShape(
            box[:-2], (0, 1), box[-2], box[-1], x[:-2], 1, x[-2], x[-1], y[-1], Window(), Window(), True
        )
    kernel, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    down, along = (Window(kernel[axis], strides[axis], dilations[axis], pads[axis]) for axis in range(2))
    return ProductShape(box[:1], box[1], box[2], box[3], x[:1], x[1], x[2], x[3], y[3], down, along, False)
