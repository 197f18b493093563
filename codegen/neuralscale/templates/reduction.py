"""Sums, means and maxima over whole axes: reduce_sum, reduce_mean, reduce_max.

    [outer, length, inner] --> [outer, 1, inner]    neighbouring reduced axes together, the last ones first

Sums run in pieces (`lines.py`). A mean multiplies the elements by 1 / piece first and the pieces' sums by piece /
length, so that no sum can overflow and small elements do not vanish. Maxima need no pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from codegen.neuralscale.instructions.arithmetic import arithmetic_of
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.templates.lines import Lines, line_problem, lines_along, reduce, total
from codegen.neuralscale.templates.tile import (
    DATA,
    Tile,
    finish,
    finish_buffers,
    finish_cycles,
    finish_loads,
    stored_bytes,
)
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork


def reduced_runs(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[Lines, ...]:
    """The reductions of a box of `shape`: neighbouring axes together, the last ones first."""
    runs: list[Lines] = []
    current = list(shape)
    for last in sorted((axis for axis in axes if axis + 1 not in axes), reverse=True):
        first = last
        while first - 1 in axes:
            first -= 1
        runs.append(lines_along(tuple(current), first, last))
        current[first : last + 1] = [1] * (last + 1 - first)
    return tuple(runs)


def reduced_box(graph: Graph, op: Op, box: Box) -> Box:
    shape, axes = graph.by_name[op.inputs[0]].shape, op.ints("axes")
    return tuple((0, shape[axis]) if axis in axes else span for axis, span in enumerate(box))


class ReductionTemplate:
    """reduce_sum, reduce_mean, reduce_max(axes); the reduced axes stay, with one element."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        problems = (line_problem(run) for run in reduced_runs(graph.by_name[op.inputs[0]].shape, op.ints("axes")))
        return next((problem for problem in problems if problem), None)

    def granularity(self, graph: Graph, op: Op) -> tuple[int, ...]:
        return (1,) * len(graph.by_name[op.outputs[0]].shape)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        item_bytes = arithmetic.item_bytes
        region = reduced_box(graph, op, box)
        runs = reduced_runs(box_shape(region), op.ints("axes"))
        strided = op.kind == "reduce_mean" or runs[0].strided(box_shape(region)[-1])
        buffers = [TileBuffer("input", "L1", DATA, stored_bytes(graph, op.inputs[0], region), strided=strided)]
        buffers += [TileBuffer(f"reduced{i}", "L1", DATA, item_bytes * run.count) for i, run in enumerate(runs[:-1])]
        if op.kind != "reduce_max":
            buffers.append(TileBuffer("partial", "L1", DATA, max(item_bytes * run.partial_elements for run in runs)))
        if op.kind == "reduce_mean":
            buffers.append(TileBuffer("scaled", "L1", DATA, max(item_bytes * run.elements for run in runs)))
        passes = 2 if op.kind == "reduce_mean" else 1
        cycles = sum(arithmetic.vector_cycles(chip, run.elements, passes) for run in runs)
        cycles += sum(_instructions(op.kind, run) for run in runs) * arithmetic.vector_cycles(chip, 1)
        after = finish_cycles(graph, layer, box, chip) if layer.epilogue(graph) else ()
        loads = (TileLoad(op.inputs[0], region, "input"), *finish_loads(graph, layer, box))
        return TileWork(
            (*buffers, *finish_buffers(graph, layer, box, runs[-1].inner == box_shape(box)[-1])),
            (Pass(loads),),
            "output",
            (("vector", cycles), *after),
        )

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        shape = box_shape(tile.work.passes[0].loads[0].box)
        runs = reduced_runs(shape, op.ints("axes"))
        results = [tile.matrix(name, 1, 1) for name in (*(f"reduced{i}" for i in range(len(runs) - 1)), "output")]
        source = tile.matrix("input", prod(shape[:-1]), prod(shape[-1:]))
        instrs: list[Instr] = []
        for run, result in zip(runs, results, strict=True):
            instrs += _reduce(tile, op.kind, run, source, result)
            source = result
        instrs += finish(tile, tile.output)
        return (tuple(instrs),)


def _instructions(kind: str, run: Lines) -> int:
    return run.instructions if kind == "reduce_max" else run.sum_instructions


def _reduce(tile: Tile, kind: str, run: Lines, source: MatrixPlace, result: MatrixPlace) -> Iterator[Instr]:
    issue = tile.issue
    if kind == "reduce_max":
        yield from reduce(issue, "vemax", run, source, (0, run.length), result)
    elif kind == "reduce_sum":
        yield from total(issue, run, source, tile.matrix("partial", 1, run.count), result)
    else:
        yield from mean(tile, run, source, result)


def mean(tile: Tile, run: Lines, source: MatrixPlace, result: MatrixPlace) -> Iterator[Instr]:
    """Compute the mean of every line. The buffer `scaled` holds all elements and `partial` the sums of pieces."""
    issue = tile.issue
    scaled = tile.matrix("scaled", 1, run.elements)
    if source.dense:
        yield from issue.scalar("veemul", scaled, replace(source, rows=1, columns=run.elements), 1 / run.piece)
    else:
        yield from issue.scalar("veemul", scaled.reshaped(source.rows, source.columns), source, 1 / run.piece)
    yield from total(issue, run, scaled, tile.matrix("partial", 1, run.count), result, mean=True)
