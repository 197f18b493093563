"""Softmax over the last axis: maximum, difference, exponential, sum, product with the reciprocal of the sum.

Sums run over pieces of about sqrt(length) columns first and then over the partial sums: one running fp16 sum of a
thousand terms would stop growing.
"""

from __future__ import annotations

from math import isqrt

from codegen.neuralscale.issue import MAX_STRIDE_BYTES, Matrix
from codegen.neuralscale.templates.tile import (
    DATA,
    Tile,
    box_bytes,
    finish,
    finish_buffers,
    finish_cycles,
    finish_loads,
)
from hw_models.chip import Chip
from isched.program import Instr
from partitioner.graph import Graph, Op
from partitioner.layers import Layer
from partitioner.regions import Box, box_size
from partitioner.target import Buffer, Load, Pass, Work

__all__ = ["SoftmaxTemplate", "piece_columns"]


def piece_columns(length: int) -> int:
    """Columns of one piece of the sum."""
    return isqrt(max(0, length - 1)) + 1


class SoftmaxTemplate:
    """softmax(axis): the axis must be the last one of the device layout."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        shape = graph.by_name[op.outputs[0]].shape
        axis = int(op.number("axis")) % len(shape)
        if any(extent != 1 for extent in shape[axis + 1 :]):
            return f"axis {axis} of {list(shape)} is not the innermost on the device"
        if 2 * shape[axis] > MAX_STRIDE_BYTES:
            return f"{shape[axis]} elements on the axis, at most {MAX_STRIDE_BYTES // 2}"
        return None

    def quanta(self, graph: Graph, op: Op) -> tuple[int, ...]:
        shape = graph.by_name[op.outputs[0]].shape
        axis = int(op.number("axis")) % len(shape)
        return tuple(1 if i < axis else 0 for i in range(len(shape)))

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> Work:
        op = layer.anchor(graph)
        length = graph.by_name[op.outputs[0]].shape[int(op.number("axis"))]
        rows = box_size(box) // length
        pieces = -(-length // piece_columns(length))
        buffers = (
            Buffer("input", "L1", DATA, box_bytes(box)),
            Buffer("row", "L1", DATA, 2 * rows),
            Buffer("partial", "L1", DATA, 2 * rows * pieces),
            *finish_buffers(graph, layer, box),
        )
        loads = (Load(op.inputs[0], box, "input"), *finish_loads(graph, layer, box))
        return Work(buffers, (Pass(loads),), "output", finish_cycles(graph, layer, box, chip, 5))

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        issue, op = tile.issue, tile.layer.anchor(tile.graph)
        length = tile.graph.by_name[op.outputs[0]].shape[int(op.number("axis"))]
        rows = box_size(tile.box) // length
        data, output = tile.matrix("input", rows, length), tile.output.reshaped(rows, length)
        row, column = tile.matrix("row", 1, rows), tile.matrix("row", rows, 1)
        width = piece_columns(length)
        pieces = -(-length // width)
        partial = tile.matrix("partial", rows, pieces)
        instrs = list(issue.reduce_rows("vemax", column, data))
        instrs += issue.by_row("vesub", output, data, row)
        instrs += issue.unary("veexp.m", output, output)
        for piece in range(pieces):
            start = piece * width
            into = Matrix("L1", partial.offset_bytes + 2 * piece, rows, 1, partial.row_bytes)
            instrs += issue.reduce_rows("veacc", into, output.part(0, rows, start, min(width, length - start)))
        instrs += issue.reduce_rows("veacc", column, partial)
        instrs += issue.unary("verecip.m", row, row)
        instrs += issue.by_row("veemul", output, output, row)
        instrs += finish(tile, tile.output)
        return (tuple(instrs),)
