"""Centre and scale of a line, which norms need before they compute in half precision.

    reduce_nearest  c = the value nearest to zero between the smallest and the largest of the line
    reduce_power    s = 64 / 2^k, where 2^k is the power of two at or above max |x|, or max |x - c| where it is centred

Both are exact and follow the input: for 2^n x they are 2^n c and s / 2^n, bit for bit. So (x - c) * s has the same bits
whatever power of two scales x, stays within 64, and can be squared without leaving the range. A line of equal values
becomes zeros. s is at most 2^15 (lines below 2^-9 stay small) and never zero: an infinity stays one.

2^k takes two floating-point operations: m - m * (1 - 2^-11) is 2^k / 2^11, because the product loses exactly the last
bit of m. The chip's reciprocal of that is a power of two or just below it, and the same two operations correct it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from codegen.neuralscale.instructions.arithmetic import arithmetic_of
from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from codegen.neuralscale.templates.lines import reduce
from codegen.neuralscale.templates.reduction import ReductionTemplate, reduced_box, reduced_runs
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
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork

LARGEST, SMALLEST = 65504.0, 2.0**-9
"""Magnitudes between which the power of two follows the line; for smaller ones 64 / 2^k would leave the range."""

ALL_BUT_LAST_BIT = 1 - 2.0**-11

ENDS = {"low": "vemin", "high": "vemax"}
"""Buffers of the smallest and largest elements of the lines, with the operation that finds each."""

PASSES = 14
"""Upper bound of the instructions on one value per line, after the two reductions."""


class ScalingTemplate(ReductionTemplate):
    """reduce_nearest(axes), reduce_power(axes, centred): any axes; they stay, with one element."""

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        item_bytes = arithmetic.item_bytes
        region = reduced_box(graph, op, box)
        runs = reduced_runs(box_shape(region), op.ints("axes"))
        strided = runs[0].strided(box_shape(region)[-1])
        extremes = (
            TileBuffer(f"{which}{i}", "L1", DATA, item_bytes * r.count) for which in ENDS for i, r in enumerate(runs)
        )
        buffers = (
            TileBuffer("input", "L1", DATA, stored_bytes(graph, op.inputs[0], region), strided=strided),
            *extremes,
        )
        cycles = sum(arithmetic.vector_cycles(chip, run.elements, 2) for run in runs)
        cycles += sum(2 * run.instructions for run in runs) * arithmetic.vector_cycles(chip, 1)
        cycles += PASSES * arithmetic.vector_cycles(chip, box_size(box))
        after = finish_cycles(graph, layer, box, chip) if layer.epilogue(graph) else ()
        loads = (TileLoad(op.inputs[0], region, "input"), *finish_loads(graph, layer, box))
        outputs = finish_buffers(graph, layer, box, strided=False)
        return TileWork((*buffers, *outputs), (Pass(loads),), "output", (("vector", cycles), *after))

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        shape = box_shape(tile.work.passes[0].loads[0].box)
        runs = reduced_runs(shape, op.ints("axes"))
        instrs: list[Instr] = []
        ends = []
        for which, mnemonic in ENDS.items():
            source = tile.matrix("input", prod(shape[:-1]), prod(shape[-1:]))
            for i, run in enumerate(runs):
                result = tile.matrix(f"{which}{i}", 1, run.count)
                instrs += reduce(tile.issue, mnemonic, run, source, (0, run.length), result)
                source = result
            ends.append(source)
        low, high = ends
        output = tile.output.reshaped(1, low.columns)
        if op.kind == "reduce_nearest":
            instrs += _nearest(tile.issue, low, high, output)
        else:
            instrs += _power(tile.issue, low, high, output, centred=bool(op.number("centred")))
        instrs += finish(tile, tile.output)
        return (tuple(instrs),)


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
