"""Softmax over one axis: maximum, difference, exponential, sum, product with the refined reciprocal of the sum.

t = exp(x - max of the line)    y = t * refined reciprocal of (sum of t, in pieces)
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.neuralscale.instructions.arithmetic import arithmetic_of
from codegen.neuralscale.templates.lines import Lines, apply, line_problem, lines_along, reduce, total
from codegen.neuralscale.templates.steps import instructions, refined_reciprocal
from codegen.neuralscale.templates.template import (
    OnePassTemplate,
    data_buffer,
    finish_cycles,
    input_buffer,
    single_pass,
)
from codegen.neuralscale.templates.tile import Tile
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape
from partitioner.ir.target import TileLoad, TileWork


class SoftmaxTemplate(OnePassTemplate):
    """softmax(axis): any axis, which tiles never cut."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        return line_problem(_lines(graph, op, graph.by_name[op.outputs[0]].shape))

    def whole_axes(self, graph: Graph, op: Op) -> tuple[int, ...]:
        return (int(op.number("axis")) % len(graph.by_name[op.outputs[0]].shape),)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        item_bytes = arithmetic.item_bytes
        lines = _lines(graph, op, box_shape(box))
        strided = lines.strided(box_shape(box)[-1])
        buffers = (
            input_buffer(graph, op, box, strided),
            data_buffer("line", item_bytes * lines.count),
            data_buffer("partial", item_bytes * lines.partial_elements),
        )
        cycles = (lines.sum_instructions + 3 * lines.instructions) * arithmetic.vector_cycles(chip, 1)
        cycles += arithmetic.vector_cycles(chip, lines.count, len(refined_reciprocal("partial", "line")))
        after = finish_cycles(graph, layer, box, chip, 5)
        loads = (TileLoad(op.inputs[0], box, "input"),)
        return single_pass(graph, layer, box, loads, buffers, (("vector", cycles), *after), strided)

    def computed(self, tile: Tile) -> Iterator[Instr]:
        issue, output = tile.issue, tile.output
        lines = _lines(tile.graph, tile.layer.anchor(tile.graph), box_shape(tile.box))
        data, line, partial = (tile.matrix(name, 1, lines.count) for name in ("input", "line", "partial"))
        yield from reduce(issue, "vemax", lines, data, (0, lines.length), line)
        yield from apply(issue, "vesub", lines, output, data, line)
        yield from issue.unary("veexp.m", output, output)
        yield from total(issue, lines, output, partial, line)
        yield from instructions(refined_reciprocal("partial", "line"), issue, {"partial": partial, "line": line})
        yield from apply(issue, "veemul", lines, output, output, partial)


def _lines(graph: Graph, op: Op, shape: tuple[int, ...]) -> Lines:
    axis = int(op.number("axis")) % len(graph.by_name[op.outputs[0]].shape)
    return lines_along(shape, axis, axis)
