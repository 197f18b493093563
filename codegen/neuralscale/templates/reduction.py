"""Sums, means and maxima over whole axes: reduce_sum, reduce_mean, reduce_max.

    [outer, length, inner] --> [outer, 1, inner]    neighbouring reduced axes at once, the last ones first

Sums run over pieces of about sqrt(length) elements in order, each from its first element, and then over the pieces'
sums. A mean multiplies the elements by 1 / piece first and the pieces' sums by piece / length, so that no sum can
overflow and small elements do not vanish. Maxima need no pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from codegen.neuralscale.issue import MAX_EXTENT, MAX_STRIDE_BYTES, Issue, Matrix
from codegen.neuralscale.templates.softmax import piece_columns
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
from hw_models.cost import vector_cycles
from isched.program import Instr
from partitioner.graph import Graph, Op
from partitioner.layers import Layer
from partitioner.regions import Box, box_shape
from partitioner.target import Buffer, Load, Pass, Work

__all__ = ["ReductionTemplate"]


@dataclass(frozen=True, slots=True)
class _Run:
    """One reduction of a dense [outer, length, inner]."""

    outer: int
    length: int
    inner: int

    @property
    def piece(self) -> int:
        return piece_columns(self.length)

    @property
    def pieces(self) -> int:
        return -(-self.length // self.piece)

    @property
    def elements(self) -> int:
        return self.outer * self.length * self.inner

    @property
    def results(self) -> int:
        return self.outer * self.inner


def _runs(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[_Run, ...]:
    """The reductions that a box of `shape` goes through, neighbouring axes together, the last ones first."""
    runs: list[_Run] = []
    current = list(shape)
    for last in sorted((axis for axis in axes if axis + 1 not in axes), reverse=True):
        first = last
        while first - 1 in axes:
            first -= 1
        runs.append(_Run(prod(current[:first]), prod(current[first : last + 1]), prod(current[last + 1 :])))
        current[first : last + 1] = [1] * (last + 1 - first)
    return tuple(runs)


def _input_box(graph: Graph, op: Op, box: Box) -> Box:
    shape, axes = graph.by_name[op.inputs[0]].shape, op.ints("axes")
    return tuple((0, shape[axis]) if axis in axes else span for axis, span in enumerate(box))


class ReductionTemplate:
    """reduce_sum, reduce_mean, reduce_max(axes); the reduced axes stay, with one element."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        for run in _runs(graph.by_name[op.inputs[0]].shape, op.ints("axes")):
            if run.inner > MAX_EXTENT:
                return f"{run.inner} elements inside a reduced axis, at most {MAX_EXTENT}"
        return None

    def quanta(self, graph: Graph, op: Op) -> tuple[int, ...]:
        return (1,) * len(graph.by_name[op.outputs[0]].shape)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> Work:
        op = layer.anchor(graph)
        region = _input_box(graph, op, box)
        runs = _runs(box_shape(region), op.ints("axes"))
        buffers = [Buffer("input", "L1", DATA, box_bytes(region))]
        buffers += [Buffer(f"reduced{i}", "L1", DATA, 2 * run.results) for i, run in enumerate(runs[:-1])]
        if op.kind != "reduce_max":
            buffers.append(Buffer("partial", "L1", DATA, max(2 * run.results * run.pieces for run in runs)))
        if op.kind == "reduce_mean":
            buffers.append(Buffer("scaled", "L1", DATA, max(2 * run.elements for run in runs)))
        passes = 2 if op.kind == "reduce_mean" else 1
        cycles = sum(vector_cycles(chip, run.elements, passes) for run in runs)
        cycles += sum(_instructions(op.kind, run) for run in runs) * vector_cycles(chip, 1)
        after = finish_cycles(graph, layer, box, chip) if layer.trailing(graph) else ()
        loads = (Load(op.inputs[0], region, "input"), *finish_loads(graph, layer, box))
        return Work(
            (*buffers, *finish_buffers(graph, layer, box)), (Pass(loads),), "output", (("vector", cycles), *after)
        )

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        runs = _runs(box_shape(tile.work.passes[0].loads[0].box), op.ints("axes"))
        places = ["input", *(f"reduced{i}" for i in range(len(runs) - 1)), "output"]
        instrs: list[Instr] = []
        for i, run in enumerate(runs):
            instrs += _reduce(tile, op.kind, run, tile.matrix(places[i], 1, 1), tile.matrix(places[i + 1], 1, 1))
        instrs += finish(tile, tile.output)
        return (tuple(instrs),)


def _instructions(kind: str, run: _Run) -> int:
    times = run.outer if run.inner > 1 else 1
    return times if kind == "reduce_max" else times * (run.pieces + 1)


def _reduce(tile: Tile, kind: str, run: _Run, source: Matrix, result: Matrix) -> Iterator[Instr]:
    if kind == "reduce_max":
        yield from _combine(tile.issue, "vemax", run, source, (0, run.length), result)
        return
    if kind == "reduce_mean":
        data, scaled = replace(source, rows=1, columns=run.elements), tile.matrix("scaled", 1, run.elements)
        yield from tile.issue.scalar("veemul", scaled, data, 1 / run.piece)
        source = scaled
    partial = tile.matrix("partial", 1, run.results * run.pieces)
    sums = _Run(run.outer, run.pieces, run.inner)
    for piece in range(run.pieces):
        span = (piece * run.piece, min(run.length, (piece + 1) * run.piece))
        yield from _combine(tile.issue, "veacc", run, source, span, partial, (piece, run.pieces))
    if kind == "reduce_mean":
        yield from tile.issue.scalar("veemul", partial, partial, run.piece / run.length)
    yield from _combine(tile.issue, "veacc", sums, partial, (0, run.pieces), result)


def _combine(
    issue: Issue,
    op: str,
    run: _Run,
    source: Matrix,
    span: tuple[int, int],
    result: Matrix,
    place: tuple[int, int] = (0, 1),
) -> Iterator[Instr]:
    """result[o, place[0], i] of [outer, place[1], inner] = op over source[o, span, i]."""
    low, high = span
    position, count = place
    if run.inner == 1:
        rows = Matrix(source.memory, source.offset_bytes, run.outer, run.length).part(0, run.outer, low, high - low)
        column = Matrix(result.memory, result.offset_bytes + 2 * position, run.outer, 1, 2 * count)
        whole = rows.pitch_bytes <= MAX_STRIDE_BYTES
        for row in range(0, run.outer, run.outer if whole else 1):
            step = run.outer if whole else 1
            yield from issue.reduce_rows(op, column.part(row, step), rows.part(row, step))
        return
    for outer in range(run.outer):
        start = source.offset_bytes + 2 * run.inner * (outer * run.length + low)
        into = result.offset_bytes + 2 * run.inner * (outer * count + position)
        rows = Matrix(source.memory, start, high - low, run.inner)
        yield from issue.reduce_columns(op, Matrix(result.memory, into, 1, run.inner), rows)
