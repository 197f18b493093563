"""Layers whose anchor is an element-wise operator: operands into L1, vector instructions, result in L1."""

from __future__ import annotations

from codegen.neuralscale.templates import elementwise
from codegen.neuralscale.templates.tile import (
    Tile,
    finish,
    finish_buffers,
    finish_cycles,
    finish_loads,
    operand_buffer,
)
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box
from partitioner.ir.target import Pass, TileWork


class PointwiseTemplate:
    """Element by element; one operand has the shape of the output, the other may be broadcast to it."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        return elementwise.accepts(graph, op, chip)

    def granularity(self, graph: Graph, op: Op) -> tuple[int, ...]:
        return (1,) * len(graph.by_name[op.outputs[0]].shape)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        operands = elementwise.operand_loads(graph, op, op.inputs, box, "anchor")
        buffers = [operand_buffer(graph, layer, load, box) for load in operands]
        loads = (*operands, *finish_loads(graph, layer, box))
        cycles = finish_cycles(graph, layer, box, chip, elementwise.passes(graph, op))
        return TileWork((*buffers, *finish_buffers(graph, layer, box)), (Pass(loads),), "output", cycles)

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        running = elementwise.running_operand(tile.graph, op)
        current = tile.matrix(f"anchor.{running}", tile.output.rows, tile.output.columns)
        instrs = list(elementwise.apply(tile, tile.issue, op, current, tile.output, "anchor"))
        instrs += finish(tile, tile.output)
        return (tuple(instrs),)
