"""Concatenation: each piece dense into L1, then `mov.m` into its columns of the output tile."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from codegen.neuralscale.templates.tile import (
    DATA,
    Tile,
    finish,
    finish_buffers,
    finish_cycles,
    finish_loads,
    load_bytes,
)
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork


class ConcatTemplate:
    """concat(axis): pieces along any axis. That axis is never cut, so that every tile holds its share of each piece."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del graph, op, chip
        return None

    def granularity(self, graph: Graph, op: Op) -> tuple[int, ...]:
        rank = len(graph.by_name[op.outputs[0]].shape)
        axis = int(op.number("axis")) % rank
        return tuple(0 if i == axis else 1 for i in range(rank))

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        pieces = [load for load, _ in _pieces(graph, layer.anchor(graph), box)]
        buffers = [TileBuffer(load.buffer, "L1", DATA, load_bytes(graph, load), strided=True) for load in pieces]
        loads = (*pieces, *finish_loads(graph, layer, box))
        cycles = finish_cycles(graph, layer, box, chip, 1)
        return TileWork((*buffers, *finish_buffers(graph, layer, box)), (Pass(loads),), "output", cycles)

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        axis = int(op.number("axis")) % len(tile.box)
        instrs: list[Instr] = []
        for load, start in _pieces(tile.graph, op, tile.box):
            instrs += _move(tile, axis, load, start)
        instrs += finish(tile, tile.output)
        return (tuple(instrs),)


def _move(tile: Tile, axis: int, load: TileLoad, start: int) -> Iterator[Instr]:
    """Move one piece into its place, `start` positions into the axis."""
    extents, part = box_shape(tile.box), box_shape(load.box)
    outer, inner = prod(extents[:axis]), prod(extents[axis + 1 :])
    source = tile.matrix(load.buffer, prod(part[:-1]), part[-1])
    if axis == len(extents) - 1:
        yield from tile.issue.unary("mov.m", tile.output.part(0, outer, start, part[-1]), source)
    elif source.dense and tile.output.dense:
        output = tile.output.reshaped(outer, extents[axis] * inner)
        columns = part[axis] * inner
        yield from tile.issue.unary(
            "mov.m", output.part(0, outer, start * inner, columns), source.reshaped(-1, columns)
        )
    else:
        lines = inner // part[-1]  # rows of the matrices in one position of the axis
        for i in range(outer):
            into = tile.output.part((i * extents[axis] + start) * lines, part[axis] * lines)
            yield from tile.issue.unary("mov.m", into, source.part(i * part[axis] * lines, part[axis] * lines))


def _pieces(graph: Graph, op: Op, box: Box) -> list[tuple[TileLoad, int]]:
    """Each input's share of the box, and its start on the axis inside the box."""
    axis = int(op.number("axis")) % len(box)
    low, high = box[axis]
    pieces: list[tuple[TileLoad, int]] = []
    start = 0
    for position, name in enumerate(op.inputs):
        extent = graph.by_name[name].shape[axis]
        first, last = max(low, start), min(high, start + extent)
        if last > first:
            part = (*box[:axis], (first - start, last - start), *box[axis + 1 :])
            pieces.append((TileLoad(name, part, f"piece{position}"), first - low))
        start += extent
    return pieces
