"""Maxima of int8 over windows, by moving in and by moving out with a pool.

    patch of the input --mvin--> scratchpad --mvout, the largest of each window--> result

Moving out counts what lies outside of the patch as zero. So the patch has the padding too, filled with copies of the
pixels next to it, which change no maximum: each window reads these pixels as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from codegen.gemmini.isa.geometry import BASE, MAIN, SCRATCHPAD, geometry_of
from codegen.gemmini.kernels.block_moves import block_moves, blocks_at_once
from codegen.gemmini.kernels.loops import blocks, box_loop, strides
from codegen.gemmini.kernels.product_shape import Span, Window, span_of
from codegen.gemmini.streams.instructions import accelerator_instr
from codegen.gemmini.streams.streams import Item, looped, nested, once
from hw_models.chip import Chip
from isched.lowering.strided_copies import box_regions
from isched.program.program import Instr, Region
from isched.program.target import PlacedArray
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork

PATCH = "patch"
LARGEST_WINDOW = 3
"""Largest window and step of a pool that moving out has fields for."""

LARGEST_EXTENT = 255
"""Most rows and columns of a patch, and columns of a result of which several rows are moved out at once."""


def pools_moving_out(graph: Graph, op: Op) -> bool:
    """Whether an operator is a pool of int8 that moving out computes."""
    if op.kind != "max_pool" or graph.by_name[op.inputs[0]].dtype != "int8":
        return False
    kernel, steps, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    square = len(set(kernel)) == len(set(steps)) == len(set(dilations)) == 1
    inside = all(0 <= pad < taps for pad, taps in zip(pads[:2], kernel, strict=True))
    return square and inside and dilations[0] == 1 and max(*kernel, *steps) <= LARGEST_WINDOW


@dataclass(frozen=True, slots=True)
class PoolPart:
    """Rows and columns of a tile whose patch moving out can address, with the local row, from that of the tile on, at
    which its patch begins."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    row_span: Span
    column_span: Span
    first_row: int

    @property
    def patch_pixels(self) -> int:
        return self.row_span.patch * self.column_span.patch


def _windows(op: Op) -> tuple[Window, Window]:
    kernel, steps, pads = (op.ints(name) for name in ("kernel", "strides", "pads"))
    down, along = (Window(kernel[axis], steps[axis], 1, pads[axis]) for axis in range(2))
    return down, along


def _cut(interval: tuple[int, int], window: Window) -> list[tuple[int, int]]:
    most = (LARGEST_EXTENT - window.reach) // window.step + 1
    return [(low, min(interval[1], low + most)) for low in range(*interval, most)]


def _parts(graph: Graph, op: Op, box: Box, dim: int) -> tuple[PoolPart, ...]:
    down, along = _windows(op)
    _, height, width, _ = graph.by_name[op.inputs[0]].shape
    images, channel_blocks = box_shape(box)[0], -(-box_shape(box)[3] // dim)
    found: list[PoolPart] = []
    row = 0
    for rows, columns in product(_cut(box[1], down), _cut(box[2], along)):
        part = PoolPart(rows, columns, span_of(rows, down, height), span_of(columns, along, width), row)
        row += images * channel_blocks * part.patch_pixels
        found.append(part)
    return tuple(found)


def _local_rows(graph: Graph, op: Op, box: Box, dim: int) -> int:
    last = _parts(graph, op, box, dim)[-1]
    return last.first_row + box_shape(box)[0] * -(-box_shape(box)[3] // dim) * last.patch_pixels


def _input_box(graph: Graph, op: Op, box: Box) -> Box:
    extents = graph.by_name[op.inputs[0]].shape[1:3]
    spans = [span_of(own, window, size) for own, window, size in zip(box[1:3], _windows(op), extents, strict=True)]
    rows, columns = ((span.first + span.before, span.first + span.before + span.real) for span in spans)
    return (box[0], rows, columns, box[3])


def pool_work(graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
    """Needs of a tile: its patch."""
    op, dim = layer.anchor(graph), geometry_of(chip).dim
    buffer = TileBuffer(PATCH, SCRATCHPAD, "", dim * _local_rows(graph, op, box, dim))
    load = TileLoad(op.inputs[0], _input_box(graph, op, box), PATCH)
    return TileWork((buffer,), (Pass((load,)),), PATCH, (("store", _cycles(op, box, dim)),))


def _cycles(op: Op, box: Box, dim: int) -> float:
    """A local row is read in each cycle."""
    *pixels, channels = box_shape(box)
    return float(prod(pixels) * prod(op.ints("kernel")) * -(-channels // dim))


def pool_instrs(
    graph: Graph, layer: Layer, box: Box, offsets_bytes: Mapping[str, int], operands: Mapping[str, PlacedArray],
    result: PlacedArray, chip: Chip,
) -> tuple[Instr, ...]:  # fmt: skip
    """Instructions of a tile."""
    op, dim = layer.anchor(graph), geometry_of(chip).dim
    x, y = graph.by_name[op.inputs[0]], graph.by_name[layer.output]
    start, to = BASE + operands[x.name].offset_bytes, BASE + result.offset_bytes
    made: list[Instr] = []
    for part in _parts(graph, op, box, dim):
        pixels = (box[0], part.rows, part.columns, box[3])
        rows = box_shape(box)[0] * -(-box_shape(box)[3] // dim) * part.patch_pixels
        patch = Region(SCRATCHPAD, offsets_bytes[PATCH] + dim * part.first_row, dim * rows)
        row = patch.offset_bytes // dim
        read = _input_box(graph, op, pixels)
        load = prod(box_shape(read)) / chip.link(MAIN, SCRATCHPAD).bandwidth_bytes_per_cycle
        reads = box_regions(MAIN, operands[x.name].offset_bytes, x.shape, read, 1)
        writes = box_regions(MAIN, result.offset_bytes, y.shape, pixels, 1)
        moved_in, moved_out = (
            _moved_in(part, box, x.shape, start, row, dim),
            _moved_out(part, op, box, y.shape, to, row, dim),
        )
        block_rows = box_shape(box)[0] * part.patch_pixels
        setting = once("config_ld", state=0, pixels_per_row=1, block_rows=block_rows, scale=1.0, stride=x.shape[3])
        made += (
            accelerator_instr("load", "config_ld", (setting,), (), (), 1.0, layer.name),
            accelerator_instr("load", "mvin", tuple(moved_in), reads, (patch,), load, layer.name),
            accelerator_instr(
                "store", "mvout", tuple(moved_out), (patch,), writes, _cycles(op, pixels, dim), layer.name
            ),
        )
    return tuple(made)


def _moved_in(
    part: PoolPart, box: Box, shape: tuple[int, ...], start: int, first: int, dim: int
) -> Iterator[Item]:  # fmt: skip
    """The patch: blocks of channels, in each the images, in each the rows, with the nearest pixels as padding."""
    images, channels = (high - low for low, high in (box[0], box[3]))
    own, patch = strides(shape, 1), part.patch_pixels
    start += box[0][0] * own[0] + box[3][0]
    for (row, rows, from_row, down), (column, columns, from_column, along) in product(
        _pieces(part.row_span), _pieces(part.column_span)
    ):
        around = [
            box_loop(images, dram=own[0], row=patch),
            box_loop(rows, dram=down * own[1], row=part.column_span.patch),
        ]
        if not along:  # one pixel again and again
            around.append(box_loop(columns, row=1))
        dram = start + from_row * own[1] + from_column * own[2]
        local = first + row * part.column_span.patch + column
        pixels = columns if along else 1
        yield from block_moves("mvin", pixels, own[2], channels, dim, blocks_at_once(dim), tuple(around), dram, local,
                               images * patch)  # fmt: skip


def _pieces(span: Span) -> Iterator[tuple[int, int, int, int]]:
    """Pieces of a patch along an axis: where they begin, their extent, the first element of the input and the step to
    the next one."""
    begin = span.first + span.before
    pieces = ((0, span.before, begin, 0), (span.before, span.real, begin, 1),
              (span.before + span.real, span.after, begin + span.real - 1, 0))  # fmt: skip
    return (piece for piece in pieces if piece[1])


def _moved_out(
    part: PoolPart, op: Op, box: Box, shape: tuple[int, ...], to: int, first: int, dim: int
) -> Iterator[Item]:  # fmt: skip
    images, channels = (high - low for low, high in (box[0], box[3]))
    own, patch, window = strides(shape, 1), part.patch_pixels, _windows(op)[0]
    rows, columns = (high - low for low, high in (part.rows, part.columns))
    at_once = rows if shape[2] <= LARGEST_EXTENT else 1
    yield once(
        "config_st", stride=own[2], scale=1.0, pool_stride=window.step, pool_size=window.taps,
        pool_width=min(shape[2], LARGEST_EXTENT), pool_out_rows=at_once, pool_out_columns=columns,
        pool_in_rows=(at_once - 1) * window.step + window.taps, pool_in_columns=part.column_span.patch,
    )  # fmt: skip
    low = (box[0][0], part.rows[0], part.columns[0], box[3][0])
    to += sum(place * step for place, step in zip(low, own, strict=True))
    for channel, number, width in blocks(channels, dim):
        loops = [
            each
            for each in (
                box_loop(number, dram=dim, row=images * patch),
                box_loop(images, dram=own[0], row=patch),
                box_loop(rows // at_once, dram=at_once * own[1], row=at_once * window.step * part.column_span.patch),
            )
            if each.count > 1
        ]
        do = looped(
            "mvout",
            [{"dram": each.step("dram"), "row": each.step("row")} for each in loops],
            dram=to + channel,
            row=first + channel // dim * images * patch,
            columns=width,
            rows=1,
        )
        yield from nested([each.count for each in loops], (do,))
