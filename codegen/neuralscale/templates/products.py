"""Sums of products of the matrix engine: their runs, integer sums that are scaled, and a bias per column.

    fp16   sums in IM                                         --runs added in order--> + bias --> epilogue
    int8   int32 sums in IM --times a scale per column--> fp16 --runs added in order--> + bias --> epilogue

The operands of a product of int8 are x, w, scale and perhaps bias. Scale and bias are fp16 with one element per column.
A scale may also be one constant number, by which the matrix engine itself multiplies: it leaves fp16 sums in IM.

fp16 values may meet int8 weights with a scale per column. Each core makes fp16 weights of those that it has loaded,
with one rounding, and multiplies as if they had been fp16 in the main memory:

    int8 weights in L1 --as fp16--> times the scale of their column --> fp16 weights in L1 --matrix engine--> ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from codegen.neuralscale.instructions.arithmetic import INT8, Arithmetic, arithmetic_of, conversion_cycles
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.templates.elementwise import scalar_value
from codegen.neuralscale.templates.template import data_buffer, finish
from codegen.neuralscale.templates.tile import DATA, WEIGHTS, Tile, load_bytes
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.regions import Box, box_size
from partitioner.ir.target import Pass, TileBuffer, TileLoad

SCALE, BIAS, SUM = "scale", "bias", "sum"
PACKED = "packed"
"""The buffer of int8 weights, before they become fp16."""
FURTHER = "further"
"""The buffer of scaled sums of a further run of a reduction."""

CHECKED_ROWS = 1_024
"""Largest number of rows whose scales' range, as the chip checks it, lies in the buffer of a scale."""


def packed_weights(graph: Graph, op: Op) -> bool:
    """Whether fp16 values are multiplied by int8 weights, where templates have that: one matrix, or one group."""
    x, weights = (graph.by_name[name] for name in op.inputs[:2])
    alone = int(op.number("groups")) == 1 if op.kind == "conv" else prod(weights.shape[:-2]) == 1
    return x.dtype != weights.dtype == INT8.operands and alone


def scale_operand(graph: Graph, op: Op) -> str | None:
    """The operand by which the vector engine multiplies the integer sums of a product, or its weights; None where it
    multiplies neither."""
    return op.inputs[2] if arithmetic_of(graph, op).scaled or packed_weights(graph, op) else None


def sum_factor(tile: Tile) -> float | None:
    """The number by which the matrix engine multiplies sums; None for none."""
    op = tile.layer.anchor(tile.graph)
    if not tile.arithmetic.exact or tile.arithmetic.scaled:
        return None
    return scalar_value(tile.graph, tile.constants, op.inputs[2])


def bias_operand(graph: Graph, op: Op) -> str | None:
    """The operand that is added to each column of a product; None where there is none."""
    position = 3 if arithmetic_of(graph, op).exact or packed_weights(graph, op) else 2
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
    rows = min(CHECKED_ROWS, box_size(box[:-1])) if arithmetic_of(graph, op).scaled else 0
    buffers = []
    for load in column_loads(graph, op, box[-1]):
        least = rows * graph.by_name[load.tensor].item_bytes if load.buffer == SCALE else 0
        buffers.append(data_buffer(load.buffer, max(load_bytes(graph, load), least)))
    return tuple(buffers)


def weight_buffers(graph: Graph, op: Op, loads: Sequence[TileLoad], name: str, strided: bool) -> tuple[TileBuffer, ...]:
    """The buffer of the weights that the matrix engine reads, each of `loads` in turn, and where these are int8 that in
    which they arrive."""
    most = max(load_bytes(graph, load) for load in loads)
    if not packed_weights(graph, op):
        return (TileBuffer(name, "L1", WEIGHTS, most, strided=strided),)
    size_bytes = max(box_size(load.box) for load in loads) * arithmetic_of(graph, op).operand_bytes
    unpacked = TileBuffer(name, "L1", WEIGHTS, size_bytes, passing=True)
    return data_buffer(PACKED, most, strided=strided), unpacked


def unpacking_cycles(graph: Graph, op: Op, loads: Sequence[TileLoad], chip: Chip) -> float:
    """Cycles of the vector engine that make fp16 weights of the int8 weights that are loaded; none of others."""
    if not packed_weights(graph, op):
        return 0.0
    elements, arithmetic = [box_size(load.box) for load in loads], arithmetic_of(graph, op)
    return sum(conversion_cycles(chip, each) + arithmetic.vector_cycles(chip, each) for each in elements)


def unpacked(tile: Tile, weights: MatrixPlace) -> Iterator[Instr]:
    """The instructions that make fp16 weights of int8 ones of the same shape; none for others."""
    if packed_weights(tile.graph, tile.layer.anchor(tile.graph)):
        packed = tile.matrix(PACKED, weights.rows, weights.columns)
        yield from tile.issue.widen(weights, packed)
        yield from tile.issue.by_column("veemul", weights, weights, tile.matrix(SCALE, 1, weights.columns))


def product_problem(graph: Graph, op: Op) -> str | None:
    """Why a product of int8 has no scale that goes with its columns; None where it has one, and for other products."""
    arithmetic, columns = arithmetic_of(graph, op), graph.by_name[op.outputs[0]].shape[-1:]
    if (arithmetic.exact or packed_weights(graph, op)) and len(op.inputs) < 3:
        integers = "integer sums have" if arithmetic.exact else "int8 weights have"
        return f"its {integers} no scale, which is the third operand"
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
