"""Extents of a tile of a convolution or matrix product, as the array sees it.

    conv [n, h, w, c] x [kh, kw, c, f]      images n, rows h, columns w; a matrix product is one of a single tap
    matmul [..., m, k] x [..., k, n]        images: all axes before m; one row of m columns
    conv in g groups [n, h, w, g c] x [kh, kw, c, g f]

A second factor with axes before its last two, which was computed, is as many matrices of weights, one after the other.

The scratchpad holds the patch of the input that the tile reads, padding included, as blocks of the array's width of
channels; then the weights, as blocks of output channels. The accumulator holds the sums, as blocks of output channels.
No block has channels of two groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from types import MappingProxyType

from codegen.gemmini.kernels.loops import BoxLoop, blocks, box_loop
from partitioner.ir.graph import Graph, Op
from partitioner.ir.regions import Box

Steps = Mapping[str, int]
NONE: Steps = MappingProxyType({})


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
class ChannelRun:
    """As many output channels of `each` of `count` groups, which follow each other: from group `group`, channel `first`
    and block `block` of the tile on."""

    group: int
    count: int
    first: int
    each: int
    block: int

    def blocks_each(self, dim: int) -> int:
        return -(-self.each // dim)

    def end_block(self, dim: int) -> int:
        return self.block + self.count * self.blocks_each(dim)

    def dense(self, dim: int) -> bool:
        """Whether channels lie in blocks as if all groups were one."""
        return self.count == 1 or self.each % dim == 0


@dataclass(frozen=True, slots=True)
class ChannelBlocks:
    """Blocks of `width` output channels, from group `group`, channel `first` and block `block` of the tile on. Each of
    the `axes` is a count, and the channels, blocks and groups from one to the next."""

    group: int
    first: int
    block: int
    width: int
    axes: tuple[tuple[int, int, int, int], ...]

    def loops(self, channel: Steps = NONE, block: Steps = NONE, group: Steps = NONE) -> tuple[BoxLoop, ...]:
        """Loops over the blocks that add these steps with each channel, block and group."""
        return tuple(
            BoxLoop(count, (*_times(channel, channels), *_times(block, blocks_on), *_times(group, groups)))
            for count, channels, blocks_on, groups in self.axes
        )


def _times(steps: Steps, number: int) -> Iterator[tuple[str, int]]:
    return ((name, step * number) for name, step in steps.items())


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
    input_channels: int
    all_channels: int
    down: Window
    along: Window
    is_matrix: bool
    all_groups: int = 1
    matrices: Box = ()
    """The part of the second factor that the tile reads, along its axes before the last two."""

    @property
    def matrix_count(self) -> int:
        return prod(high - low for low, high in self.matrices)

    @property
    def depth(self) -> int:
        """Input channels of a group."""
        return self.input_channels // self.all_groups

    @property
    def groups(self) -> tuple[int, int]:
        """Groups of which the tile has output channels, as (first, end)."""
        each = self.all_channels // self.all_groups
        return self.channels[0] // each, -(-self.channels[1] // each)

    @property
    def group_count(self) -> int:
        return self.groups[1] - self.groups[0]

    def runs(self, dim: int) -> tuple[ChannelRun, ...]:
        """The output channels of the tile: the last ones of a group, whole groups, and the first ones of a group."""
        each, (first, end) = self.all_channels // self.all_groups, self.channels
        bounds = sorted({first, min(end, -(-first // each) * each), max(first, end // each * each), end})
        found: list[ChannelRun] = []
        for low, high in pairwise(bounds):
            count = max(1, (high - low) // each)
            block = found[-1].end_block(dim) if found else 0
            found.append(ChannelRun(low // each - first // each, count, low - first, (high - low) // count, block))
        return tuple(found)

    def blocks(self, dim: int) -> Iterator[ChannelBlocks]:
        """The blocks of output channels of the tile."""
        for run in self.runs(dim):
            for start, number, width in blocks(run.each, dim):
                axes = ((run.count, run.each, run.blocks_each(dim), 1), (number, dim, 1, 0))
                yield ChannelBlocks(run.group, run.first + start, run.block + start // dim, width, axes)

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
        return span_of(self.rows, self.down, self.input_rows)

    @property
    def column_span(self) -> Span:
        return span_of(self.columns, self.along, self.input_columns)

    @property
    def patch_pixels(self) -> int:
        """Pixels of one block of channels of the patch."""
        return self.image_count * self.row_span.patch * self.column_span.patch

    def depth_blocks(self, dim: int) -> int:
        """Of one group."""
        return -(-self.depth // dim)

    def channel_blocks(self, dim: int) -> int:
        """Of all groups of the tile."""
        return self.runs(dim)[-1].end_block(dim)

    def input_rows_in_scratchpad(self, dim: int) -> int:
        return self.group_count * self.depth_blocks(dim) * self.patch_pixels

    def weight_rows(self, dim: int) -> int:
        return self.matrix_count * self.rows_of_matrix(dim)

    def rows_of_matrix(self, dim: int) -> int:
        return self.channel_blocks(dim) * self.taps * self.depth

    def image_loops(self, extents: Sequence[int], array: str = "dram", **steps: int) -> tuple[BoxLoop, ...]:
        """Loops over the images, which are some of a dense array of these extents: from one image to the next the array
        goes on by its step, `array`, as those before and after it do; all else has the images of the tile alone.
        Matrices of weights go on by `b` rows where there are several."""
        loops, inner, dense, matrix = [], 1, 1, 1
        own = ((0, 1),) * (len(self.images) - len(self.matrices)) + self.matrices
        for (low, high), extent, (first, end) in reversed(tuple(zip(self.images, extents, own, strict=True))):
            added = {name: step * (inner if name == array else dense) for name, step in steps.items() if name != "b"}
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
        return (*self.images, *(spatial[1:] if self.is_matrix else spatial),
                tuple(group * self.depth for group in self.groups))  # fmt: skip

    def macs(self) -> int:
        return self.pixels * self.out_channels * self.taps * self.depth


def span_of(outputs: tuple[int, int], window: Window, extent: int) -> Span:
    """What a range of outputs reads of an axis of this extent."""
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
            box[:-2], (0, 1), box[-2], box[-1], x[:-2], 1, x[-2], x[-1], y[-1], Window(), Window(), True, 1, matrices
        )
    kernel, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    down, along = (Window(kernel[axis], strides[axis], dilations[axis], pads[axis]) for axis in range(2))
    return ProductShape(box[:1], box[1], box[2], box[3], x[:1], x[1], x[2], x[3], y[3], down, along, False,
                        int(op.number("groups")))  # fmt: skip
