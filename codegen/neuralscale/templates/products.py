"""Sums of products of the matrix engine: their runs, integer sums that are scaled, and a bias per column.

    fp16   sums in IM                                         --runs added in order--> + bias --> epilogue
    int8   int32 sums in IM --times a scale per column--> fp16 --runs added in order--> + bias --> epilogue

The operands of a product of int8 are x, w, scale and perhaps bias. Scale and bias are fp16 with one element per column.
A scale may also be one constant number, by which the matrix engine itself multiplies: it leaves fp16 sums in IM.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen.neuralscale.instructions.arithmetic import Arithmetic, arithmetic_of
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.templates.elementwise import scalar_value
from codegen.neuralscale.templates.template import data_buffer, finish
from codegen.neuralscale.templates.tile import DATA, Tile, load_bytes
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.regions import Box, box_size
from partitioner.ir.target import Pass, TileBuffer, TileLoad

SCALE, BIAS, SUM = "scale", "bias", "sum"
FURTHER = "further"
"""The buffer of scaled sums of a further run of a reduction."""

CHECKED_ROWS = 1_024
"""Largest number of rows whose scales' range, as the chip checks it, lies in the buffer of a scale."""


def scale_operand(graph: Graph, op: Op) -> str | None:
    """The operand by which the vector engine multiplies the integer sums of a product; None where there are no such
    sums."""
    return op.inputs[2] if arithmetic_of(graph, op).scaled else None


def sum_factor(tile: Tile) -> float | None:
    """The number by which the matrix engine multiplies sums; None for none."""
    op = tile.layer.anchor(tile.graph)
    if not tile.arithmetic.exact or tile.arithmetic.scaled:
        return None
    return scalar_value(tile.graph, tile.constants, op.inputs[2])


def bias_operand(graph: Graph, op: Op) -> str | None:
    """The operand that is added to each column of a product; None where there is none."""
    position = 3 if arithmetic_of(graph, op).exact else 2
    return op.inputs[position] if len(op.inputs) > position else None


def column_loads(graph: Graph, op: Op, columns: tuple[int, int]) -> tuple[TileLoad, ...]:
    """The parts of the operands of a product that have one element per column: scale and bias."""
    named = ((SCALE, scale_operand(graph, op)), (BIAS, bias_operand(graph, op)))
    return tuple(TileLoad(tensor, (columns,), buffer) for buffer, tensor in named if tensor)


def with_scale(passes: Sequence[Pass], columns: tuple[TileLoad, ...], others: tuple[TileLoad, ...]) -> list[Pass]:
    """The passes of a reduction with the loads of `columns` and `others`: the scale comes with the first pass,
    the rest with the last one."""
    scale = tuple(load for load in columns if load.buffer == SCALE)
    rest = tuple(load for load in columns if load.buffer != SCALE)
    result = list(passes)
    result[0] = Pass((*result[0].loads, *scale))
    result[-1] = Pass((*result[-1].loads, *rest, *others))
    return result


def column_buffers(graph: Graph, op: Op, box: Box) -> tuple[TileBuffer, ...]:
    """Buffers of scale and bias of a box of a product's output. That of a scale has room for CHECKED_ROWS elements,
    because the chip checks the range of a scale as if it had one per row."""
    rows = min(CHECKED_ROWS, box_size(box[:-1]))
    buffers = []
    for load in column_loads(graph, op, box[-1]):
        least = rows * graph.by_name[load.tensor].item_bytes if load.buffer == SCALE else 0
        buffers.append(data_buffer(load.buffer, max(load_bytes(graph, load), least)))
    return tuple(buffers)


def product_problem(graph: Graph, op: Op) -> str | None:
    """Why a product of int8 has no scale that goes with its columns; None where it has one, and for other products."""
    arithmetic, columns = arithmetic_of(graph, op), graph.by_name[op.outputs[0]].shape[-1:]
    if arithmetic.exact and len(op.inputs) < 3:
        return "its integer sums have no scale, which is the third operand"
    scale = scale_operand(graph, op)
    if scale is None or graph.by_name[scale].shape == columns:
        return None
    shape = list(graph.by_name[scale].shape)
    return f"{scale} has shape {shape}; a scale has one element per column, or is a constant of one"


def summed(tile: Tile, parts: Sequence[Sequence[Instr]]) -> tuple[tuple[Instr, ...], ...]:
    """The instructions of each pass of a reduction. Each of `parts` leaves partial sums in the buffer `sum`; they are
    added in order, and the last pass ends with bias and epilogue. Integer sums are scaled before they are added."""
    issue, output = tile.issue, tile.output
    total = tile.sums(SUM, output.rows, output.columns)
    bias = tile.matrix(BIAS, 1, output.columns) if bias_operand(tile.graph, tile.layer.anchor(tile.graph)) else None
    if len(parts) == 1:
        scaling, result = _scaled(tile, total, output)
        return ((*parts[0], *scaling, *finish(tile, result, bias)),)
    first, *others = parts
    scaling, result = _scaled(tile, total, output)
    passes = [(*first, *scaling)] if tile.arithmetic.scaled else [(*first, *issue.unary("mov.m", output, total))]
    for part in others:
        further = tile.matrix(FURTHER, output.rows, output.columns) if tile.arithmetic.scaled else total
        scaling, result = _scaled(tile, total, further)
        passes.append((*part, *scaling, *issue.binary("veadd", output, output, result)))
    return (*passes[:-1], (*passes[-1], *finish(tile, output, bias)))


def _scaled(tile: Tile, total: MatrixPlace, to: MatrixPlace) -> tuple[tuple[Instr, ...], MatrixPlace]:
    """The instructions that multiply integer sums by their scale, and the place of the result; sums of other types stay
    where they are."""
    if not tile.arithmetic.scaled:
        return (), total
    return tuple(tile.issue.rescale(to, total, tile.matrix(SCALE, 1, total.columns))), to


def sum_buffers(arithmetic: Arithmetic, box: Box, runs: int) -> tuple[TileBuffer, ...]:
    """The buffer of the sums of a box, and of those of a further run after they are scaled."""
    sums = TileBuffer(SUM, "IM", "", arithmetic.sum_bytes * box_size(box), passing=True)
    if runs == 1 or not arithmetic.scaled:
        return (sums,)
    return sums, TileBuffer(FURTHER, "L1", DATA, arithmetic.item_bytes * box_size(box), briefly=True)
