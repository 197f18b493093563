"""Operators that only move data: transpose, slice, pad, take by constant indices, concatenation.

    input box, dense in L1 --mov.m, metr.m--> output tile in L1

Each operator is a few reads of one form: along every axis, output position o reads input position start + step * o. A
pad is a fill and then a read of the inner part; a take is one read per run of equally spaced indices. A concatenation
moves each piece into its part of the output tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from codegen.neuralscale.instructions.arithmetic import arithmetic_of
from codegen.neuralscale.templates.strided import LoopForm, StridedLoop, move, move_cycles, move_form, strides_of
from codegen.neuralscale.templates.template import (
    OnePassTemplate,
    data_buffer,
    epilogue_cycles,
    finish_cycles,
    single_pass,
)
from codegen.neuralscale.templates.tile import Tile, load_bytes
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size
from partitioner.ir.target import TileBuffer, TileLoad, TileWork


@dataclass(frozen=True, slots=True)
class _Read:
    """Output positions of `target` read input position starts[i] + steps[i] * o along input axis axes[i]."""

    target: Box
    axes: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]
    item_bytes: int

    def source_box(self) -> Box:
        """The box of input positions from the first to the last that is read."""
        box = [(0, 0)] * len(self.axes)
        for axis, start, step, (low, high) in zip(self.axes, self.starts, self.steps, self.target, strict=True):
            ends = sorted((start + step * low, start + step * (high - 1)))
            box[axis] = (ends[0], ends[1] + 1)
        return tuple(box)

    def loops(self, output: Box, source: Box, pitches: tuple[int, int] = (0, 0)) -> tuple[StridedLoop, ...]:
        """One loop per output axis, over boxes of output and source whose rows lie `pitches` bytes apart."""
        into, out_of = (
            strides_of(box_shape(box), self.item_bytes, p) for box, p in zip((output, source), pitches, strict=True)
        )
        return tuple(
            StridedLoop(high - low, (into[i], self.steps[i] * out_of[self.axes[i]]))
            for i, (low, high) in enumerate(self.target)
        )

    def starts_bytes(self, output: Box, source: Box, pitches: tuple[int, int]) -> tuple[int, int]:
        """Offset in bytes of the first element in each of the two boxes."""
        into, out_of = (
            strides_of(box_shape(box), self.item_bytes, p) for box, p in zip((output, source), pitches, strict=True)
        )
        d = a = 0
        for i, (low, _) in enumerate(self.target):
            d += (low - output[i][0]) * into[i]
            axis = self.axes[i]
            a += (self.starts[i] + self.steps[i] * low - source[axis][0]) * out_of[axis]
        return d, a


def spaced_runs(values: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """(first position, length, step) of runs of equally spaced values, each as long as possible."""
    first = 0
    while first < len(values):
        step = values[first + 1] - values[first] if first + 1 < len(values) else 0
        last = first
        while last + 1 < len(values) and values[last + 1] - values[last] == step:
            last += 1
        yield first, last + 1 - first, step
        first = last + 1


def _reads(graph: Graph, op: Op, box: Box) -> tuple[_Read, ...]:
    """The reads that together write a box of the output; none for a box that lies in the padding."""
    rank = len(box)
    plain = _Read(box, tuple(range(rank)), (0,) * rank, (1,) * rank, graph.by_name[op.inputs[0]].item_bytes)
    match op.kind:
        case "transpose":
            return (replace(plain, axes=op.ints("perm")),)
        case "slice":
            return (replace(plain, starts=op.ints("starts"), steps=op.ints("steps")),)
        case "pad":
            begins, shape = op.ints("begins"), graph.by_name[op.inputs[0]].shape
            inside = tuple(
                (max(low, begin), min(high, begin + extent))
                for (low, high), begin, extent in zip(box, begins, shape, strict=True)
            )
            empty = any(high <= low for low, high in inside)
            return () if empty else (replace(plain, target=inside, starts=tuple(-begin for begin in begins)),)
        case "take":
            return tuple(_take_reads(plain, int(op.number("axis")), op.ints("indices")))
    raise ValueError(f"{op.name}: {op.kind} does not only move data")


def _take_reads(plain: _Read, axis: int, indices: tuple[int, ...]) -> Iterator[_Read]:
    low, high = plain.target[axis]
    for first, length, step in spaced_runs(indices[low:high]):
        run = (low + first, low + first + length)
        yield replace(
            plain,
            target=(*plain.target[:axis], run, *plain.target[axis + 1 :]),
            starts=(*plain.starts[:axis], indices[low + first] - step * run[0], *plain.starts[axis + 1 :]),
            steps=(*plain.steps[:axis], step, *plain.steps[axis + 1 :]),
        )


def _source(op: Op, reads: tuple[_Read, ...]) -> Box | None:
    """The input box of a tile. A take always loads from the first to the last of all its indices, so that no tile needs
    more than another of its shape."""
    if not reads:
        return None
    box = reads[0].source_box()
    if op.kind != "take":
        return box
    axis, indices = int(op.number("axis")), op.ints("indices")
    return (*box[:axis], (min(indices), max(indices) + 1), *box[axis + 1 :])


class RearrangeTemplate(OnePassTemplate):
    """transpose(perm), slice(starts, steps), pad(begins, ends, value), take(axis, indices)."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        if op.kind == "take":
            extent = graph.by_name[op.inputs[0]].shape[int(op.number("axis"))]
            if not all(0 <= index < extent for index in op.ints("indices")):
                return f"an index outside the {extent} elements of its axis"
        return None

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        reads = _reads(graph, op, box)
        source = _source(op, reads)
        loads = _input_loads(op, source)
        forms = [_form(read, box, source, chip) for read in reads]
        buffers = [data_buffer("input", load_bytes(graph, load), strided=True) for load in loads]
        if any(form.block for form in forms):
            buffers.append(TileBuffer("turned", "IM", "", max(form.block_bytes for form in forms)))
        cycles = sum(move_cycles(chip, arithmetic, form) for form in forms)
        cycles += arithmetic.vector_cycles(chip, box_size(box), op.kind == "pad")
        after = epilogue_cycles(graph, layer, box, chip)
        return single_pass(graph, layer, box, loads, buffers, (("vector", cycles), *after))

    def computed(self, tile: Tile) -> Iterator[Instr]:
        op = tile.layer.anchor(tile.graph)
        if op.kind == "pad":
            yield from tile.issue.fill(tile.output, op.number("value"))
        reads = _reads(tile.graph, op, tile.box)
        source = _source(op, reads)
        for read in reads:
            assert source is not None  # there is a read
            data, output = tile.matrix("input", 1, 1), tile.output
            pitches = (output.stride_bytes, data.stride_bytes)
            form = _form(read, tile.box, source, tile.chip)
            if any(pitches):
                form = move_form(read.loops(tile.box, source, pitches), form.block_bytes, read.item_bytes)
            into, out_of = read.starts_bytes(tile.box, source, pitches)
            yield from move(
                tile.issue,
                form,
                replace(output, offset_bytes=output.offset_bytes + into),
                replace(data, offset_bytes=data.offset_bytes + out_of),
                tile.matrix("turned", 1, 1) if form.block else None,
            )


def _input_loads(op: Op, source: Box | None) -> tuple[TileLoad, ...]:
    return (TileLoad(op.inputs[0], source, "input"),) if source else ()


def _form(read: _Read, box: Box, source: Box | None, chip: Chip) -> LoopForm:
    assert source is not None  # a read has a source
    return move_form(read.loops(box, source), chip.memory("IM").size_bytes, read.item_bytes)


class ConcatTemplate(OnePassTemplate):
    """concat(axis): pieces along any axis, which tiles never cut."""

    def granularity(self, graph: Graph, op: Op) -> tuple[int, ...]:
        rank = len(graph.by_name[op.outputs[0]].shape)
        axis = int(op.number("axis")) % rank
        return tuple(0 if i == axis else 1 for i in range(rank))

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        loads = [load for load, _ in _pieces(graph, layer.anchor(graph), box)]
        buffers = (data_buffer(load.buffer, load_bytes(graph, load), strided=True) for load in loads)
        return single_pass(graph, layer, box, loads, buffers, finish_cycles(graph, layer, box, chip, 1))

    def computed(self, tile: Tile) -> Iterator[Instr]:
        op = tile.layer.anchor(tile.graph)
        axis = int(op.number("axis")) % len(tile.box)
        for load, start in _pieces(tile.graph, op, tile.box):
            yield from _move_piece(tile, axis, load, start)


def _move_piece(tile: Tile, axis: int, load: TileLoad, start: int) -> Iterator[Instr]:
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
