"""Norms of lines: x, minus the line's mean if centred, over the root of the mean of its squares plus epsilon.

    c  the value nearest to zero between the line's smallest and largest, 0 where it is not centred
    s  8 / 2^k, 2^k being the power of two at or above the largest |x - c|
    e = (x - c) * s      d = e - mean(e), e where it is not centred      w = mean(d * d) + epsilon * s * s
    y = d * r            r = recip(sqrt(w)), refined by one Newton step, r * (3/2 - w * r * r / 2)

c and s are exact (`reduction.py`), so that 2^n x has the same e, bit for bit; the sum of 64 squares of d, 16 at most,
is in the range, and so no product has to be stored before it is added. Sums and means run in pieces (`lines.py`). The
refined reciprocal is right to 0.1 %, where the chip's reciprocal of the chip's root is right to 0.8 %. There are eight
passes over the elements, of which the centre takes three; all else works on one value per line. Scale and bias are
separate operators later in the layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, frexp, log2, sqrt

from codegen.neuralscale.instructions.arithmetic import arithmetic_of
from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from codegen.neuralscale.templates.lines import Lines, apply, line_problem, lines_along, reduce, total
from codegen.neuralscale.templates.reduction import LARGEST, power_above
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

SMALLEST = 2.0**-11
"""Largest |x - c| below which lines are scaled as if it had this magnitude: for less, 8 / 2^k and its reciprocal are
not normal fp16 numbers."""

LARGEST_FACTOR = 2.0**14
SMALLEST_ROOT = 2.0**-24
"""Least root of an epsilon that is not zero: a smaller one would vanish, and lines of zeros would become NaN."""

LINE_PASSES = 27
"""Upper bound of the instructions on one value per line."""

LINE_BUFFERS = ("low", "high", "spare", "factor")


class NormaliseTemplate(OnePassTemplate):
    """normalise(axes, centred, epsilon): neighbouring axes, which tiles never cut."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        axes = op.ints("axes")
        if axes != tuple(range(axes[0], axes[0] + len(axes))):
            return f"a norm over device axes {list(axes)}, which are not neighbours"
        return line_problem(_lines(op, graph.by_name[op.outputs[0]].shape))

    def whole_axes(self, graph: Graph, op: Op) -> tuple[int, ...]:
        del graph
        return op.ints("axes")

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        item_bytes = arithmetic.item_bytes
        lines = _lines(op, box_shape(box))
        strided = lines.strided(box_shape(box)[-1])
        buffers = (
            input_buffer(graph, op, box, strided),
            *(data_buffer(name, item_bytes * lines.count) for name in LINE_BUFFERS),
            data_buffer("partial", item_bytes * lines.partial_elements),
        )
        centred = bool(op.number("centred"))
        reductions = (4 if centred else 3) * lines.instructions + (2 if centred else 1) * lines.sum_instructions
        cycles = reductions * arithmetic.vector_cycles(chip, 1)
        cycles += LINE_PASSES * arithmetic.vector_cycles(chip, lines.count)
        after = finish_cycles(graph, layer, box, chip, 8 if centred else 5)
        loads = (TileLoad(op.inputs[0], box, "input"),)
        return single_pass(graph, layer, box, loads, buffers, (("vector", cycles), *after), strided)

    def computed(self, tile: Tile) -> Iterator[Instr]:
        op = tile.layer.anchor(tile.graph)
        lines = _lines(op, box_shape(tile.box))
        return _normalised(tile, lines, float(op.number("epsilon")), centred=bool(op.number("centred")))


def _lines(op: Op, shape: tuple[int, ...]) -> Lines:
    axes = op.ints("axes")
    return lines_along(shape, axes[0], axes[-1])


def _normalised(tile: Tile, lines: Lines, epsilon: float, *, centred: bool) -> Iterator[Instr]:
    issue, output = tile.issue, tile.output
    data, partial = (tile.matrix(name, output.rows, output.columns) for name in ("input", "partial"))
    low, high, spare, factor = (tile.matrix(name, 1, lines.count) for name in LINE_BUFFERS)
    yield from reduce(issue, "vemin", lines, data, (0, lines.length), low)
    yield from reduce(issue, "vemax", lines, data, (0, lines.length), high)
    if centred:
        yield from _centre(issue, low, high, spare, factor)
        yield from apply(issue, "vesub", lines, output, data, spare)
        data = output
    else:
        yield from issue.scalar("veemul", low, low, -1.0)
        yield from issue.binary("vemax", high, high, low)
    yield from _factor(issue, high, spare, factor, epsilon)
    yield from apply(issue, "veemul", lines, output, data, factor)
    if centred:
        yield from total(issue, lines, output, partial, low, mean=True, divided=False)
        yield from apply(issue, "vesub", lines, output, output, low)
    yield from total(issue, lines, output, partial, low, mean=True, divided=False, op="veemacc")
    if epsilon > 0:
        yield from _plus_epsilon(issue, low, factor, epsilon)
    yield from _inverse_root(issue, low, high, spare)
    yield from apply(issue, "veemul", lines, output, output, high)


def _centre(
    issue: InstructionBuilder, low: MatrixPlace, high: MatrixPlace, centre: MatrixPlace, spare: MatrixPlace
) -> Iterator[Instr]:
    """Compute `centre` = max(low, 0) + min(high, 0), one of which is zero, and `high` = the largest distance from it,
    the larger of high - max(low, 0) and min(high, 0) - low."""
    yield from issue.scalar("vemax", centre, low, 0.0)
    yield from issue.binary("vesub", spare, high, centre)
    yield from issue.scalar("vemin", high, high, 0.0)
    yield from issue.binary("vesub", low, high, low)
    yield from issue.binary("veadd", centre, centre, high)
    yield from issue.binary("vemax", high, spare, low)


def _factor(
    issue: InstructionBuilder, largest: MatrixPlace, spare: MatrixPlace, factor: MatrixPlace, epsilon: float
) -> Iterator[Instr]:
    """Compute 8 over the power of two at or above each value; epsilon times its square stays in the range."""
    yield from issue.scalar("vemax", largest, largest, SMALLEST)
    yield from issue.scalar("vemin", largest, largest, LARGEST)
    yield from power_above(issue, largest, spare)
    yield from issue.scalar("veemul", largest, largest, 2.0**8)  # 2^k / 8, a normal fp16 number as its reciprocal is
    yield from issue.unary("verecip.m", largest, largest)
    yield from power_above(issue, largest, spare)
    yield from issue.scalar("veemul", factor, largest, 2.0**11)
    highest = 2.0 ** floor(log2(2**7 / sqrt(epsilon))) if epsilon > 0 else LARGEST_FACTOR
    if highest < LARGEST_FACTOR:
        yield from issue.scalar("vemin", factor, factor, highest)


def _plus_epsilon(
    issue: InstructionBuilder, power: MatrixPlace, factor: MatrixPlace, epsilon: float
) -> Iterator[Instr]:
    """Compute power + (factor * root of epsilon)^2. The root's fraction and power of two are applied separately,
    because the root may not be a normal fp16 number."""
    fraction, exponent = frexp(max(sqrt(epsilon), SMALLEST_ROOT))
    yield from issue.scalar("veemul", factor, factor, fraction)
    yield from issue.scalar("veemul", factor, factor, 2.0**exponent)
    yield from issue.binary("veemul", factor, factor, factor)
    yield from issue.binary("veadd", power, power, factor)


def _inverse_root(
    issue: InstructionBuilder, power: MatrixPlace, result: MatrixPlace, spare: MatrixPlace
) -> Iterator[Instr]:
    """Compute r = recip(sqrt(power)), then r * (3/2 - power * r * r / 2)."""
    yield from issue.unary("vesqrt.m", result, power)
    yield from issue.unary("verecip.m", result, result)
    yield from issue.binary("veemul", spare, power, result)
    yield from issue.binary("veemul", spare, spare, result)
    yield from issue.scalar("veemul", spare, spare, -0.5)
    yield from issue.scalar("veadd", spare, spare, 1.5)
    yield from issue.binary("veemul", result, result, spare)
