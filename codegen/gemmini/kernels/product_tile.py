"""A tile of a convolution or matrix product on the array: what it needs, and where its operands lie in local memory.

layer, box of the result --product_work--> buffers and loads      --ProductTile--> rows, regions and addresses
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, MAIN, SCRATCHPAD, ArrayGeometry, geometry_of
from codegen.gemmini.kernels.finish import Finish, added_values, finish_of
from codegen.gemmini.kernels.loops import BoxLoop, blocks, box_loop, merged, start_of
from codegen.gemmini.kernels.passes import digits, identity_bytes
from codegen.gemmini.kernels.product_shape import ProductShape, product_shape
from hw_models.chip import Chip
from isched.lowering.strided_copies import box_regions
from isched.program.program import Region
from isched.program.target import PlacedArray
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, full_box, relative
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork

INPUT, WEIGHTS, SUMS_BUFFER = "input", "weights", "sums"
"""Buffers of a tile. Multiples of the identity matrix follow the weights: a tile that finds these finds those."""


def product_work(graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
    """Needs of a tile: the patch, the weights, what is added, and the sums, each whole."""
    op, geometry = layer.anchor(graph), geometry_of(chip)
    shape, dim = product_shape(graph, op, box), geometry.dim
    added = added_values(graph, layer)
    buffers = (
        TileBuffer(INPUT, SCRATCHPAD, "", dim * shape.input_rows_in_scratchpad(dim)),
        TileBuffer(WEIGHTS, SCRATCHPAD, "", dim * shape.weight_rows(dim) + identity_bytes(dim, 1 + 2 * len(added))),
        TileBuffer(SUMS_BUFFER, ACCUMULATOR, "", 4 * dim * shape.sum_rows(dim)),
        *(TileBuffer(added_buffer(name), SCRATCHPAD, "", dim * shape.sum_rows(dim)) for name in added),
    )
    weights = graph.by_name[op.inputs[1]].shape
    channels = shape.channels
    loads = [
        TileLoad(op.inputs[0], shape.input_box(), INPUT),
        TileLoad(op.inputs[1], weights_box(shape, weights), WEIGHTS),
    ]
    for name in op.inputs[2:]:
        extent = graph.by_name[name].shape[0]
        loads.append(TileLoad(name, (channels if extent > 1 else (0, 1),), SUMS_BUFFER))
    for name in layer.inputs(graph):
        if name not in op.inputs:
            loads.append(
                TileLoad(name, result_part(graph, name, box), added_buffer(name) if name in added else SUMS_BUFFER)
            )
    return TileWork(buffers, (Pass(tuple(loads)),), SUMS_BUFFER, (("array", array_cycles(shape, geometry)),))


def added_buffer(name: str) -> str:
    """The buffer of a tile for a value that is added to its sums."""
    return f"added {name}"


def weights_box(shape: ProductShape, weights: tuple[int, ...]) -> Box:
    """The part of the second factor, of all its extents, that a tile reads."""
    return (*shape.matrices, *full_box(weights[len(shape.matrices) : -1]), shape.channels)


def result_part(graph: Graph, name: str, box: Box) -> Box:
    """The part of an operand of the epilogue that a box of the result needs."""
    shape = graph.by_name[name].shape
    return tuple(
        (0, 1) if extent == 1 else interval
        for extent, interval in zip(shape, box[len(box) - len(shape) :], strict=True)
    )


def array_cycles(shape: ProductShape, geometry: ArrayGeometry) -> float:
    """A block of rows passes through the array in as many cycles as the array has rows."""
    dim = geometry.dim
    return float(_row_blocks(shape, dim) * shape.channel_blocks(dim) * shape.taps * shape.depth_blocks(dim) * dim)


def _row_blocks(shape: ProductShape, dim: int) -> int:
    axes = pixel_axes(shape, patch_rows(shape), dim)
    return sum(number for _, number, _ in blocks(axes[-1].count, dim)) * prod(each.count for each in axes[:-1])


@dataclass(frozen=True, slots=True)
class LocalRows:
    """How an array of pixels lies in a local memory: the row of its first block of channels, the images that it has
    along each axis, and the rows from one image, row, column and block of channels to the next."""

    first: int
    images: tuple[int, ...]
    image: int
    row: int
    column: int
    block: int


def patch_rows(shape: ProductShape, first: int = 0) -> LocalRows:
    """The patch: blocks of channels one after the other, each with all pixels."""
    columns = shape.column_span.patch
    return LocalRows(first, image_counts(shape), shape.row_span.patch * columns, columns, 1, shape.patch_pixels)


def image_counts(shape: ProductShape) -> tuple[int, ...]:
    return tuple(high - low for low, high in shape.images)


def pixel_axes(shape: ProductShape, rows: LocalRows, dim: int) -> tuple[BoxLoop, ...]:
    """Loops over the pixels of a tile, with what they add to rows of the input, of the weights and of the sums; at
    least one, the last of which has the same weights for all."""
    per_image = shape.out_rows * shape.out_columns
    steps = {"a": rows.image, "b": shape.rows_of_matrix(dim), "c": per_image}
    axes = merged(
        (
            *shape.image_loops(rows.images, "a", **steps),
            box_loop(shape.out_rows, a=shape.down.step * rows.row, c=shape.out_columns),
            box_loop(shape.out_columns, a=shape.along.step * rows.column, c=1),
        )
    )
    is_dense = axes and axes[-1].step("c") == 1 and not axes[-1].step("b")
    return axes if is_dense else (*axes, box_loop(1, a=1, c=1))


@dataclass(frozen=True, slots=True)
class ProductTile:
    """A tile that is lowered."""

    graph: Graph
    constants: Constants
    layer: Layer
    box: Box
    offsets_bytes: Mapping[str, int]
    operands: Mapping[str, PlacedArray]
    result: PlacedArray
    chip: Chip
    held: frozenset[str] = frozenset()
    """Tensors of which the scratchpad holds the same boxes already."""

    @property
    def op(self) -> Op:
        return self.layer.anchor(self.graph)

    @property
    def geometry(self) -> ArrayGeometry:
        return geometry_of(self.chip)

    @property
    def shape(self) -> ProductShape:
        return product_shape(self.graph, self.op, self.box)

    @property
    def input_stays(self) -> bool:
        """Whether the input lies in the scratchpad, where a layer before it left it."""
        return self.operands[self.op.inputs[0]].memory == SCRATCHPAD

    @property
    def reads_in_place(self) -> bool:
        """Whether the array reads the input where it lies: it stays there, and needs no padding."""
        spans = self.shape.row_span, self.shape.column_span
        return self.input_stays and not any(span.before or span.after for span in spans)

    @property
    def input_rows(self) -> LocalRows:
        """Where the array reads the input."""
        if self.reads_in_place:
            return resident_rows(self.operands[self.op.inputs[0]], self.shape.input_box(), self)
        return patch_rows(self.shape, self.offsets_bytes[INPUT] // self.geometry.dim)

    @property
    def finish(self) -> Finish:
        return finish_of(self.graph, self.constants, self.layer)

    @property
    def factors(self) -> tuple[int, ...]:
        """Multiples of the identity matrix that passes of the tile take."""
        passes = (self.input_stays and not self.reads_in_place) or self.result.memory == SCRATCHPAD
        of_terms = [factor for term in self.finish.terms for factor in digits(term.factor)]
        return tuple(dict.fromkeys((*((1,) if passes else ()), *of_terms)))

    @property
    def identities_bytes(self) -> int:
        """Where multiples of the identity matrix begin."""
        dim = self.geometry.dim
        return self.offsets_bytes[WEIGHTS] + dim * self.shape.weight_rows(dim)

    def identity_row(self, factor: int) -> int:
        """The row where a multiple of the identity matrix begins."""
        dim = self.geometry.dim
        return self.identities_bytes // dim + self.factors.index(factor) * dim

    @property
    def weight_row(self) -> int:
        return self.offsets_bytes[WEIGHTS] // self.geometry.dim

    @property
    def sum_row(self) -> int:
        return self.offsets_bytes[SUMS_BUFFER] // (4 * self.geometry.dim)


def resident_rows(place: PlacedArray, box: Box, tile: ProductTile) -> LocalRows:
    """How a box of an array lies that stays in the scratchpad, densely, with whole blocks of channels."""
    *outer, channels = box_shape(place.box)
    dim, images = tile.geometry.dim, len(tile.shape.images)
    column = channels // dim
    row = column * outer[-1]
    per_image = column * prod(outer[images:])
    start = (place.offset_bytes + start_of(box_shape(place.box), 1, relative(box, place.box))) // dim
    return LocalRows(start, tuple(outer[:images]), per_image, row, column, 1)


def resident_regions(place: PlacedArray, box: Box) -> tuple[Region, ...]:
    """Where a box of a value lies that stays in the scratchpad."""
    return box_regions(SCRATCHPAD, place.offset_bytes, box_shape(place.box), relative(box, place.box), 1)


def whole_buffer(tile: ProductTile, memory: str, buffer: str, rows: int) -> Region:
    """All of a buffer."""
    row_bytes = tile.geometry.dim * (4 if memory == ACCUMULATOR else 1)
    return Region(memory, tile.offsets_bytes[buffer], rows * row_bytes)


def main_regions(tile: ProductTile, name: str, box: Box) -> tuple[Region, ...]:
    place = tile.operands[name]
    item_bytes = tile.graph.by_name[name].item_bytes
    return box_regions(MAIN, place.offset_bytes, box_shape(place.box), box, item_bytes)


def main_address(tile: ProductTile, name: str, box: Box) -> int:
    place = tile.operands[name]
    return BASE + place.offset_bytes + start_of(box_shape(place.box), tile.graph.by_name[name].item_bytes, box)


def bandwidth(tile: ProductTile, memory: str) -> float:
    return tile.chip.link(MAIN, memory).bandwidth_bytes_per_cycle
