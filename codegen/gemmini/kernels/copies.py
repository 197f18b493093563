"""Values of int8 that are joined: each operand is moved in, and out to its place in the result.

operand [outer, own] --mvin--> scratchpad --mvout--> result [outer, all] from a column on
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod

from codegen.gemmini.isa.geometry import BASE, MAIN, SCRATCHPAD, ArrayGeometry, geometry_of
from codegen.gemmini.kernels.block_moves import block_moves, blocks_at_once
from codegen.gemmini.streams.instructions import accelerator_instr
from codegen.gemmini.streams.streams import once
from hw_models.chip import Chip
from isched.program.program import Instr, Region
from isched.program.target import PlacedArray
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import full_box
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork

HALVES = "halves"
"""Two places in turn, so that one is moved out while the other is filled."""


def is_joined_by_moving(graph: Graph, op: Op) -> bool:
    """Whether an operator joins values of int8."""
    return op.kind == "concat" and graph.by_name[op.outputs[0]].dtype == "int8"


def _half_rows(geometry: ArrayGeometry) -> int:
    """Local rows of each place, a whole number of blocks."""
    return geometry.local_rows // 4 // geometry.dim * geometry.dim


def copy_work(graph: Graph, layer: Layer, chip: Chip) -> TileWork:
    """Needs of the whole layer."""
    geometry = geometry_of(chip)
    names = layer.inputs(graph)
    loads = tuple(TileLoad(name, full_box(graph.by_name[name].shape), HALVES) for name in names)
    buffer = TileBuffer(HALVES, SCRATCHPAD, "", 2 * _half_rows(geometry) * geometry.dim)
    size = sum(prod(graph.by_name[name].shape) for name in names)
    cycles = size / chip.link(MAIN, SCRATCHPAD).bandwidth_bytes_per_cycle
    return TileWork((buffer,), (Pass(loads),), HALVES, (("load", cycles), ("store", cycles)))


def copy_instrs(
    graph: Graph, layer: Layer, offsets_bytes: Mapping[str, int], operands: Mapping[str, PlacedArray],
    result: PlacedArray, chip: Chip,
) -> tuple[Instr, ...]:  # fmt: skip
    """Instructions of the whole layer."""
    op, geometry = layer.anchor(graph), geometry_of(chip)
    axis, made, column = int(op.number("axis")), list[Instr](), 0
    wide = prod(graph.by_name[layer.output].shape[axis:])
    for name in op.inputs:
        shape = graph.by_name[name].shape
        rows, columns = prod(shape[:axis]), prod(shape[axis:])
        at_once, width = _extents(rows, columns, geometry)
        setting = once("config_ld", state=0, pixels_per_row=1, block_rows=at_once, scale=1.0, stride=columns)
        made.append(accelerator_instr("load", "config_ld", (setting,), (), (), 1.0, layer.name))
        corners = product(range(0, columns, width), range(0, rows, at_once))
        for number, (left, top) in enumerate(corners):
            extent = min(width, columns - left), min(at_once, rows - top)
            source = Region(MAIN, operands[name].offset_bytes + top * columns + left, *extent, columns)
            to = Region(MAIN, result.offset_bytes + top * wide + column + left, *extent, wide)
            place = offsets_bytes[HALVES] + number % 2 * _half_rows(geometry) * geometry.dim
            made += _copied(source, to, place, at_once, chip, layer.name)
        column += columns
    return tuple(made)


def _extents(rows: int, columns: int, geometry: ArrayGeometry) -> tuple[int, int]:
    """Rows and columns of a matrix that find room in one place."""
    room, dim = _half_rows(geometry), geometry.dim
    width = min(columns, room * dim)
    return min(rows, room // -(-width // dim)), width


def _copied(
    source: Region, to: Region, place_bytes: int, block_rows: int, chip: Chip, layer: str
) -> tuple[Instr, Instr]:
    """A matrix moved in, in blocks of columns that are `block_rows` apart, and out again."""
    dim = geometry_of(chip).dim
    rows, columns, first = source.rows, source.row_bytes, place_bytes // dim
    place = Region(SCRATCHPAD, place_bytes, dim * ((-(-columns // dim) - 1) * block_rows + rows))
    moved_in = block_moves("mvin", rows, source.stride_bytes, columns, dim, blocks_at_once(dim), (),
                           BASE + source.offset_bytes, first, block_rows)  # fmt: skip
    moved_out = block_moves("mvout", rows, to.stride_bytes, columns, dim, 1, (), BASE + to.offset_bytes, first,
                            block_rows)  # fmt: skip
    setting = once("config_st", stride=to.stride_bytes, scale=1.0)
    cycles = [source.size_bytes / chip.link(*ways).bandwidth_bytes_per_cycle
              for ways in ((MAIN, SCRATCHPAD), (SCRATCHPAD, MAIN))]  # fmt: skip
    return (
        accelerator_instr("load", "mvin", moved_in, (source,), (place,), cycles[0], layer),
        accelerator_instr("store", "mvout", (setting, *moved_out), (place,), (to,), cycles[1], layer),
    )
