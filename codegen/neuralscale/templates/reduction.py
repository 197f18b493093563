"""Reductions over whole axes: sums, means, maxima, and the centre and scale that norms in fp16 need.

    [outer, length, inner] --> [outer, 1, inner]    neighbouring reduced axes together, the last ones first

    reduce_nearest  c = the value nearest to zero between the smallest and the largest of the line
    reduce_power    s = 64 / 2^k, where 2^k is the power of two at or above max |x|, or max |x - c| where it is centred

Sums run in pieces (`lines.py`). A mean multiplies the elements by 1 / piece first and the pieces' sums by piece /
length, so that no sum can overflow and small elements do not vanish. Maxima need no pieces.

Centre and scale are exact and follow the input: for 2^n x they are 2^n c and s / 2^n, bit for bit. So (x - c) * s has
the same bits whatever power of two scales x, stays within 64, and can be squared without leaving the range. A line of
equal values becomes zeros. s is at most 2^15 (lines below 2^-9 stay small) and never zero: an infinity stays one.

2^k takes two floating-point operations: m - m * (1 - 2^-11) is 2^k / 2^11, because the product loses exactly the last
bit of m. The chip's reciprocal of that is a power of two or just below it, and the same two operations correct it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from codegen.neuralscale.instructions.arithmetic import arithmetic_of
from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from codegen.neuralscale.templates.lines import Lines, line_problem, lines_along, reduce, total
from codegen.neuralscale.templates.template import (
    OnePassTemplate,
    data_buffer,
    epilogue_cycles,
    input_buffer,
    single_pass,
)
from codegen.neuralscale.templates.tile import Tile
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size
from partitioner.ir.target import TileLoad, TileWork

LARGEST, SMALLEST = 65504.0, 2.0**-9
"""Magnitudes between which the power of two follows the line; for smaller ones 64 / 2^k would leave the range."""

ALL_BUT_LAST_BIT = 1 - 2.0**-11

ENDS = {"low": "vemin", "high": "vemax"}
"""Buffers of the smallest and largest elements of the lines, with the operation that finds each."""

PASSES = 14
"""Upper bound of the instructions on one value per line, after the two reductions."""


def _runs(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[Lines, ...]:
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


def _region(graph: Graph, op: Op, box: Box) -> Box:
    shape, axes = graph.by_name[op.inputs[0]].shape, op.ints("axes")
    return tuple((0, shape[axis]) if axis in axes else span for axis, span in enumerate(box))


class ReductionTemplate(OnePassTemplate):
    """reduce_sum, reduce_mean, reduce_max(axes): any axes; a reduced axis stays, with one element."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        problems = (line_problem(run) for run in _runs(graph.by_name[op.inputs[0]].shape, op.ints("axes")))
        return next((problem for problem in problems if problem), None)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        item_bytes = arithmetic.item_bytes
        region = _region(graph, op, box)
        runs = _runs(box_shape(region), op.ints("axes"))
        strided = op.kind == "reduce_mean" or runs[0].strided(box_shape(region)[-1])
        buffers = [input_buffer(graph, op, region, strided)]
        buffers += [data_buffer(f"reduced{i}", item_bytes * run.count) for i, run in enumerate(runs[:-1])]
        if op.kind != "reduce_max":
            buffers.append(data_buffer("partial", max(item_bytes * run.partial_elements for run in runs)))
        if op.kind == "reduce_mean":
            buffers.append(data_buffer("scaled", max(item_bytes * run.elements for run in runs)))
        passes = 2 if op.kind == "reduce_mean" else 1
        cycles = sum(arithmetic.vector_cycles(chip, run.elements, passes) for run in runs)
        cycles += sum(_instructions(op.kind, run) for run in runs) * arithmetic.vector_cycles(chip, 1)
        after = epilogue_cycles(graph, layer, box, chip)
        loads = (TileLoad(op.inputs[0], region, "input"),)
        strided = runs[-1].inner == box_shape(box)[-1]
        return single_pass(graph, layer, box, loads, buffers, (("vector", cycles), *after), strided)

    def computed(self, tile: Tile) -> Iterator[Instr]:
        op = tile.layer.anchor(tile.graph)
        shape = box_shape(tile.work.passes[0].loads[0].box)
        runs = _runs(shape, op.ints("axes"))
        names = (*(f"reduced{i}" for i in range(len(runs) - 1)), tile.running)
        results = [tile.matrix(name, 1, 1) for name in names]
        source = tile.matrix("input", prod(shape[:-1]), prod(shape[-1:]))
        for run, result in zip(runs, results, strict=True):
            yield from _reduce(tile, op.kind, run, source, result)
            source = result


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


class ScalingTemplate(ReductionTemplate):
    """reduce_nearest(axes), reduce_power(axes, centred): any axes; a reduced axis stays, with one element."""

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        item_bytes = arithmetic.item_bytes
        region = _region(graph, op, box)
        runs = _runs(box_shape(region), op.ints("axes"))
        strided = runs[0].strided(box_shape(region)[-1])
        extremes = (data_buffer(f"{which}{i}", item_bytes * r.count) for which in ENDS for i, r in enumerate(runs))
        buffers = (input_buffer(graph, op, region, strided), *extremes)
        cycles = sum(arithmetic.vector_cycles(chip, run.elements, 2) for run in runs)
        cycles += sum(2 * run.instructions for run in runs) * arithmetic.vector_cycles(chip, 1)
        cycles += PASSES * arithmetic.vector_cycles(chip, box_size(box))
        after = epilogue_cycles(graph, layer, box, chip)
        loads = (TileLoad(op.inputs[0], region, "input"),)
        return single_pass(graph, layer, box, loads, buffers, (("vector", cycles), *after), strided=False)

    def computed(self, tile: Tile) -> Iterator[Instr]:
        op = tile.layer.anchor(tile.graph)
        shape = box_shape(tile.work.passes[0].loads[0].box)
        runs = _runs(shape, op.ints("axes"))
        ends = []
        for which, mnemonic in ENDS.items():
            source = tile.matrix("input", prod(shape[:-1]), prod(shape[-1:]))
            for i, run in enumerate(runs):
                result = tile.matrix(f"{which}{i}", 1, run.count)
                yield from reduce(tile.issue, mnemonic, run, source, (0, run.length), result)
                source = result
            ends.append(source)
        low, high = ends
        output = tile.output.reshaped(1, low.columns)
        if op.kind == "reduce_nearest":
            yield from _nearest(tile.issue, low, high, output)
        else:
            yield from _power(tile.issue, low, high, output, centred=bool(op.number("centred")))


def _nearest(issue: InstructionBuilder, low: MatrixPlace, high: MatrixPlace, output: MatrixPlace) -> Iterator[Instr]:
    """Compute max(low, 0) + min(high, 0), of which at least one is zero."""
    yield from issue.scalar("vemax", low, low, 0.0)
    yield from issue.scalar("vemin", high, high, 0.0)
    yield from issue.binary("veadd", output, low, high)


def _power(
    issue: InstructionBuilder, low: MatrixPlace, high: MatrixPlace, output: MatrixPlace, *, centred: bool
) -> Iterator[Instr]:
    """Compute the larger of high - max(low, 0) and min(high, 0) - low, which is the largest |x - c|, or of high and
    -low; then 64 over the power of two at or above it."""
    if centred:
        yield from issue.scalar("vemax", output, low, 0.0)
        yield from issue.binary("vesub", output, high, output)
        yield from issue.scalar("vemin", high, high, 0.0)
        yield from issue.binary("vesub", low, high, low)
        yield from issue.binary("vemax", high, output, low)
    else:
        yield from issue.scalar("veemul", low, low, -1.0)
        yield from issue.binary("vemax", high, high, low)
    yield from issue.scalar("vemax", high, high, SMALLEST)
    yield from issue.scalar("vemin", high, high, LARGEST)
    yield from power_above(issue, high, low)
    yield from issue.scalar("veemul", high, high, 2.0**7)  # 2^k / 16, so that its reciprocal has all its bits
    yield from issue.unary("verecip.m", high, high)
    yield from power_above(issue, high, low)
    yield from issue.scalar("veemul", output, high, 2.0**13)  # 16 / 2^k / 2^11 before


def power_above(issue: InstructionBuilder, values: MatrixPlace, spare: MatrixPlace) -> Iterator[Instr]:
    """Replace each value by the power of two at or above it, / 2^11."""
    yield from issue.scalar("veemul", spare, values, ALL_BUT_LAST_BIT)
    yield from issue.binary("vesub", values, values, spare)
