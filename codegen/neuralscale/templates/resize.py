"""Resize of images, nearest or linear, one axis after the other, the last one first.

    along one axis:  out[p] = in[s]                            one tap (nearest; linear where a coordinate is whole)
                     out[p] = in[s] * w + in[s + 1] * (1 - w)  two taps, each product rounded, then their sum

An explicit table says which elements an output position reads, so every rule of coordinates and rounding is one line.
Positions that repeat a pattern (every second one of an enlargement by two) are computed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, prod

import numpy as np

from codegen.neuralscale.instructions.arithmetic import Arithmetic, arithmetic_of
from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from codegen.neuralscale.templates.strided import StridedLoop, best_form, matrices
from codegen.neuralscale.templates.template import (
    Template,
    data_buffer,
    finish,
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

Taps = tuple[tuple[int, float], ...]
"""Reads of one output position: (input position, weight) pairs."""

WEIGHT_UNITS = 2_048
"""Units of a linear coordinate, which is rounded to multiples of 1/2048: both weights are then fp16 numbers that add up
to one."""

LONGEST_PATTERN = 16


def taps(op: Op, axis: int, extent: int, wanted: int) -> tuple[Taps, ...]:
    """The taps of each of `wanted` positions on an axis of `extent` elements.

    The factor is the quotient of the extents, unless the attribute `scales` gives the exact one from which the extents
    were rounded.
    """
    scales = dict(op.attributes).get("scales")
    scale = np.float32(scales[axis]) if isinstance(scales, tuple) else np.float32(wanted) / np.float32(extent)
    places = _coordinates(op, scale, extent, wanted)
    if op.attribute("mode") == "linear":
        return tuple(_linear_taps(place) for place in places)
    return tuple(((_nearest(op, place, bool(scale < 1)), 1.0),) for place in places)


def _coordinates(op: Op, scale: np.float32, extent: int, wanted: int) -> list[float]:
    """Coordinate of each output position in the input, in fp32, because ties are decided as in onnxruntime."""
    i, half = np.arange(wanted, dtype=np.float32), np.float32(0.5)
    match op.attribute("coordinates"):
        case "align_corners":
            places = i * np.float32(extent - 1) / np.float32(max(1, wanted - 1))
        case "asymmetric":
            places = i / scale
        case "pytorch_half_pixel" if wanted == 1:
            places = i
        case _:
            places = (i + half) / scale - half
    return [float(place) for place in np.clip(places, 0, extent - 1)]


def _nearest(op: Op, place: float, shrinks: bool) -> int:
    match op.attribute("rounding"):
        case "simple":  # before opset 11
            return ceil(place) if shrinks else floor(place)
        case "floor":
            return floor(place)
        case "ceil":
            return ceil(place)
        case "round_prefer_ceil":
            return floor(place + 0.5)
    return ceil(place - 0.5)


def _linear_taps(place: float) -> Taps:
    """The two neighbours of a coordinate, or one where the rounded coordinate is whole."""
    units = round(place * WEIGHT_UNITS)
    low, upper = divmod(units, WEIGHT_UNITS)
    if not upper:
        return ((low, 1.0),)
    return ((low, 1 - upper / WEIGHT_UNITS), (low + 1, upper / WEIGHT_UNITS))


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A run of `count` positions, `step` apart from `first`, whose taps lie `taps_step` apart."""

    first: int
    step: int
    count: int
    taps: Taps
    taps_step: int


def _patterns(table: tuple[Taps, ...]) -> tuple[_Pattern, ...]:
    """The positions of a table as the fewest patterns."""
    candidates = (tuple(_patterns_of_step(table, step)) for step in range(1, min(LONGEST_PATTERN, len(table)) + 1))
    return min(candidates, key=len)


def _patterns_of_step(table: tuple[Taps, ...], step: int) -> Iterator[_Pattern]:
    for phase in range(step):
        first = phase
        while first < len(table):
            distance = _distance(table, first, first + step)
            count = 1
            while (
                distance is not None and _distance(table, first + (count - 1) * step, first + count * step) == distance
            ):
                count += 1
            yield _Pattern(first, step, count, table[first], distance or 0)
            first += count * step


def _distance(table: tuple[Taps, ...], a: int, b: int) -> int | None:
    """Distance between the taps of two positions; None where their weights differ, or past the end of the table."""
    if b >= len(table) or [weight for _, weight in table[a]] != [weight for _, weight in table[b]]:
        return None
    return table[b][0][0] - table[a][0][0]


@dataclass(frozen=True, slots=True)
class _Step:
    """Resize of one axis of a tile: [outer, extent, inner] becomes [outer, len(table), inner]; the table starts at 0 in
    both.

    Rows of `width` elements (a part of the inner ones, or one) may have a pitch in the source, the result or both.
    """

    outer: int
    extent: int
    inner: int
    width: int
    table: tuple[Taps, ...]
    item_bytes: int

    @property
    def results(self) -> int:
        return self.outer * len(self.table) * self.inner

    def row_bytes(self, pitch_bytes: int) -> int:
        """Bytes from one position of the axis to the next in a source or result with this pitch (0 for dense)."""
        return self.inner // self.width * (pitch_bytes or self.item_bytes * self.width)

    def loops(self, pattern: _Pattern, into: int = 0, out_of: int = 0) -> tuple[StridedLoop, ...]:
        """The loops over a result and a source with these pitches."""
        d, a = self.row_bytes(into), self.row_bytes(out_of)
        lines = self.inner // self.width
        return (
            StridedLoop(self.outer, (len(self.table) * d, self.extent * a)),
            StridedLoop(pattern.count, (pattern.step * d, pattern.taps_step * a)),
            StridedLoop(lines, (d // lines, a // lines)),
            StridedLoop(self.width, (self.item_bytes, self.item_bytes)),
        )


def _resized(graph: Graph, op: Op) -> tuple[int, ...]:
    """The axes whose extent changes."""
    before, after = graph.by_name[op.inputs[0]].shape, graph.by_name[op.outputs[0]].shape
    return tuple(axis for axis, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)


def _plan(graph: Graph, op: Op, box: Box) -> tuple[Box, tuple[_Step, ...]]:
    """The input box of an output box, and the steps from one to the other, last axis first."""
    before, after = graph.by_name[op.inputs[0]].shape, graph.by_name[op.outputs[0]].shape
    region, tables, item_bytes = list(box), {}, graph.by_name[op.inputs[0]].item_bytes
    for axis in _resized(graph, op):
        low, high = box[axis]
        table = taps(op, axis, before[axis], after[axis])[low:high]
        first, last = min(t[0][0] for t in table), max(t[-1][0] for t in table)
        region[axis] = (first, last + 1)
        tables[axis] = tuple(tuple((source - first, weight) for source, weight in t) for t in table)
    shape = list(box_shape(tuple(region)))
    steps = []
    for axis in sorted(tables, reverse=True):
        inner = shape[axis + 1 :]
        steps.append(_Step(prod(shape[:axis]), shape[axis], prod(inner), prod(inner[-1:]), tables[axis], item_bytes))
        shape[axis] = len(tables[axis])
    return tuple(region), tuple(steps)


class ResizeTemplate(Template):
    """resize(mode, coordinates, rounding, optional scales): nearest and linear, any axes."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del graph, chip
        mode = op.attribute("mode")
        return None if mode in ("nearest", "linear") else f"mode {mode}; it must be nearest or linear"

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        item_bytes = arithmetic.item_bytes
        region, steps = _plan(graph, op, box)
        strided = len(box) - 1 not in _resized(graph, op)
        buffers = [input_buffer(graph, op, region, strided)]
        buffers += [data_buffer(f"resized{i}", item_bytes * step.results) for i, step in enumerate(steps[:-1])]
        if op.attribute("mode") == "linear" and steps:
            buffers.append(data_buffer("second", item_bytes * max(step.results for step in steps)))
        cycles = sum(_cycles(chip, arithmetic, step) for step in steps)
        after = finish_cycles(graph, layer, box, chip) if layer.epilogue(graph) or not steps else ()
        loads = (TileLoad(op.inputs[0], region, "input"),)
        return single_pass(graph, layer, box, loads, buffers, (("vector", cycles), *after), strided)

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        _, steps = _plan(tile.graph, tile.layer.anchor(tile.graph), tile.box)
        places = ["input", *(f"resized{i}" for i in range(len(steps) - 1)), tile.running]
        second = tile.matrix("second", 1, 1) if any(b.name == "second" for b in tile.work.buffers) else None
        instrs: list[Instr] = []
        for i, step in enumerate(steps):
            instrs += _resample(
                tile.issue, step, tile.matrix(places[i], 1, 1), tile.matrix(places[i + 1], 1, 1), second
            )
        source = tile.output if steps else tile.matrix("input", tile.output.rows, tile.output.columns)
        instrs += finish(tile, source)
        return (tuple(instrs),)


def _cycles(chip: Chip, arithmetic: Arithmetic, step: _Step) -> float:
    times = max(2 * len(table) - 1 for table in step.table)
    patterns = _patterns(step.table)
    forms = (best_form(step.loops(pattern), step.item_bytes) for pattern in patterns)
    instructions = sum((2 * len(p.taps) - 1) * form.instructions for p, form in zip(patterns, forms, strict=True))
    return instructions * arithmetic.vector_cycles(chip, 1) + arithmetic.vector_cycles(chip, step.results, times)


def _resample(
    issue: InstructionBuilder, step: _Step, source: MatrixPlace, result: MatrixPlace, second: MatrixPlace | None
) -> Iterator[Instr]:
    for pattern in _patterns(step.table):
        loops = step.loops(pattern, result.stride_bytes, source.stride_bytes)
        form = best_form(loops, step.item_bytes)
        into = _moved(result, pattern.first * step.row_bytes(result.stride_bytes))
        out_of = [
            (_moved(source, position * step.row_bytes(source.stride_bytes)), weight)
            for position, weight in pattern.taps
        ]
        if len(out_of) == 1:
            for d, a in matrices(form, (into, out_of[0][0])):
                yield from issue.unary("mov.m", d, a)
            continue
        assert second is not None  # two taps come only from the linear mode
        for d, a in matrices(form, (into, out_of[0][0])):
            yield from issue.scalar("veemul", d, a, out_of[0][1])
        packed = _packed(loops, step.item_bytes)
        for s, a in matrices(best_form(packed, step.item_bytes), (second, out_of[1][0])):
            yield from issue.scalar("veemul", s, a, out_of[1][1])
        sums = tuple(
            StridedLoop(loop.extent, (loop.steps_bytes[0], dense.steps_bytes[0]))
            for loop, dense in zip(loops, packed, strict=True)
        )
        for d, s in matrices(best_form(sums, step.item_bytes), (into, second)):
            yield from issue.binary("veadd", d, d, s)


def _moved(at: MatrixPlace, offset_bytes: int) -> MatrixPlace:
    return MatrixPlace(at.memory, at.offset_bytes + offset_bytes, 1, 1, at.item_bytes)


def _packed(loops: tuple[StridedLoop, ...], item_bytes: int) -> tuple[StridedLoop, ...]:
    """The loops with a dense destination."""
    extents = [loop.extent for loop in loops]
    return tuple(
        StridedLoop(loop.extent, (item_bytes * prod(extents[i + 1 :]), loop.steps_bytes[1]))
        for i, loop in enumerate(loops)
    )
