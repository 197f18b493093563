"""Local response normalisation across channels, which are the innermost axis on the device.

    t = x * sqrt(alpha / size)    q = t * t    u = (q + its neighbours, the lower channels first) + bias
    y = x * recip(u ** beta)

Scaling before squaring keeps the squares of large elements finite. The power is a product of square roots, so beta is a
multiple of 1/4: sqrt(u) for the half, sqrt(sqrt(u)) for the quarter, then u as often as the whole part says.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from codegen.neuralscale.instructions.arithmetic import arithmetic_of
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.templates.template import OnePassTemplate, data_buffer, epilogue_cycles, single_pass
from codegen.neuralscale.templates.tile import Tile, stored_bytes
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size
from partitioner.ir.target import TileLoad, TileWork

LARGEST_QUARTERS = 16
"""Largest beta in quarters (beta = 4): a higher power leaves the range of fp16 for any u that differs much from 1."""


def _quarters(op: Op) -> float:
    return 4 * op.number("beta")


def _shifts(op: Op) -> tuple[int, ...]:
    """Offsets of a channel's neighbours in its window, in the order in which they are added."""
    size = int(op.number("size"))
    before = (size - 1) // 2
    return tuple(shift for shift in range(-before, size - before) if shift)


class LrnTemplate(OnePassTemplate):
    """lrn(size, alpha, beta, bias): across channels; beta is a multiple of 1/4, at most 4."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del graph, chip
        quarters = _quarters(op)
        if quarters != int(quarters) or not 0 < quarters <= LARGEST_QUARTERS:
            return f"beta {op.number('beta'):g}; it must be a positive multiple of 1/4, at most {LARGEST_QUARTERS // 4}"
        if op.number("alpha") < 0 or op.number("size") < 1:
            return f"alpha {op.number('alpha'):g} and size {op.number('size'):g}; they must be positive"
        return None

    def whole_axes(self, graph: Graph, op: Op) -> tuple[int, ...]:
        return (len(graph.by_name[op.outputs[0]].shape) - 1,)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        size_bytes = stored_bytes(graph, op.inputs[0], box)
        buffers = (data_buffer(name, size_bytes, strided=name == "input") for name in ("input", "squares", "sums"))
        cycles = arithmetic.vector_cycles(chip, box_size(box), len(_shifts(op)) + 8 + int(_quarters(op)))
        after = epilogue_cycles(graph, layer, box, chip)
        loads = (TileLoad(op.inputs[0], box, "input"),)
        return single_pass(graph, layer, box, loads, buffers, (("vector", cycles), *after))

    def computed(self, tile: Tile) -> Iterator[Instr]:
        issue, op, output = tile.issue, tile.layer.anchor(tile.graph), tile.output
        data, squares, sums = (tile.matrix(n, output.rows, output.columns) for n in ("input", "squares", "sums"))
        yield from issue.scalar("veemul", sums, data, sqrt(op.number("alpha") / op.number("size")))
        yield from issue.binary("veemul", squares, sums, sums)
        yield from issue.unary("mov.m", sums, squares)
        for shift in _shifts(op):
            width = output.columns - abs(shift)
            if width > 0:
                into = sums.part(0, sums.rows, max(0, -shift), width)
                yield from issue.binary("veadd", into, into, squares.part(0, sums.rows, max(0, shift), width))
        yield from issue.scalar("veadd", sums, sums, op.number("bias"))
        yield from _power(tile, output, sums, squares, int(_quarters(op)))
        yield from issue.unary("verecip.m", output, output)
        yield from issue.binary("veemul", output, data, output)


def _power(tile: Tile, result: MatrixPlace, base: MatrixPlace, scratch: MatrixPlace, quarters: int) -> Iterator[Instr]:
    """Compute result = base ** (quarters / 4): the roots first, then whole factors."""
    issue, started = tile.issue, False
    if quarters & 2:
        yield from issue.unary("vesqrt.m", result, base)
        started = True
    if quarters & 1:
        yield from issue.unary("vesqrt.m", scratch, base)
        yield from issue.unary("vesqrt.m", scratch, scratch)
        if started:
            yield from issue.binary("veemul", result, result, scratch)
        else:
            yield from issue.unary("mov.m", result, scratch)
        started = True
    for _ in range(quarters // 4):
        if started:
            yield from issue.binary("veemul", result, result, base)
        else:
            yield from issue.unary("mov.m", result, base)
        started = True
