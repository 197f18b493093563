"""Attention of (item, head) after (item, head), all in L1 and IM: heads are ranges of columns.

    t = transposed k * scale          metr.m into IM, a product on the way out
    s = q t + mask                    memul into IM, the mask added on the way out
    p = exp(s - max of the row - c)
    y = p v * recip(sum of p, in pieces)    memul into IM, the quotient on the way out

Keys are taken in runs of at most LONGEST_RUN, so that what the matrix engine multiplies by has room among the weights:
scores of all runs side by side, sums of all runs added in order. c is 0 up to SUMMED keys, beyond so many powers of two
as keep the sum of p, and what it takes of v, as small. Heads of q that share one of k and v follow each other, and turn
and move it once. A box that holds parts of heads has the columns that it asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log, log2

from codegen.neuralscale.instructions.builder import Matrix
from codegen.neuralscale.instructions.halves import ITEM_BYTES, matrix_cycles, vector_cycles
from codegen.neuralscale.templates.lines import Lines, apply, reduce, total
from codegen.neuralscale.templates.tile import (
    DATA,
    WEIGHTS,
    Tile,
    box_bytes,
    finish,
    finish_buffers,
    finish_cycles,
    finish_loads,
)
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape
from partitioner.ir.target import Buffer, Load, Pass, Work

__all__ = ["LONGEST_HEAD", "AttentionTemplate"]

LONGEST_RUN = 512
"""Keys of one run: of heads of 128 elements, keys and values then fill the weights buffer of 256 KiB."""

LONGEST_HEAD = 1 << 18
"""Elements of keys and values in a head: half of what L1 has for data."""

SUMMED = 128
"""Keys up to which nothing is done about the range of sums: of values up to 500 they stay in it."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is computed for a box: items, rows and heads from `first` on, of which `box[2]` gives the columns; `size`
    and `width` are elements of a head of k and of v, `shared` heads of q have one head of k and v."""

    items: int
    rows: int
    first: int
    heads: int
    keys: int
    size: int
    width: int
    shared: int
    box: Box

    @property
    def groups(self) -> tuple[int, int]:
        return self.first // self.shared, ceil((self.first + self.heads) / self.shared)

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        count = ceil(self.keys / LONGEST_RUN)
        return tuple(pairwise(self.keys * i // count for i in range(count + 1)))

    @property
    def longest(self) -> int:
        return max(high - low for low, high in self.runs)

    @property
    def lines(self) -> Lines:
        return Lines(self.rows, self.keys, 1)

    def columns(self, head: int) -> tuple[int, int]:
        """Columns of a head that the box has, from the head's first."""
        low, high = self.box[2]
        return max(0, low - head * self.width), min(self.width, high - head * self.width)


class AttentionTemplate:
    """attend(heads, groups, scale): q, k, v and a mask that is added, heads side by side; heads of at most 262,144
    elements of keys and values."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        shape = _shape(graph, op, tuple((0, extent) for extent in graph.by_name[op.outputs[0]].shape))
        elements = shape.keys * (shape.size + shape.width)
        if elements > LONGEST_HEAD:
            return f"{elements} elements of keys and values in a head, at most {LONGEST_HEAD}"
        return None

    def granularity(self, graph: Graph, op: Op) -> tuple[int, ...]:
        """Heads are not cut."""
        return (1, 1, graph.by_name[op.outputs[0]].shape[2] // int(op.number("heads")))

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> Work:
        op = layer.anchor(graph)
        shape = _shape(graph, op, box)
        loads = (*_loads(graph, op, shape), *finish_loads(graph, layer, box))
        lines, run = shape.lines, shape.longest
        buffers = (
            *(
                Buffer(load.buffer, "L1", DATA, box_bytes(load.box), strided=load.buffer != "mask")
                for load in _loads(graph, op, shape)
            ),
            Buffer("turned", "L1", WEIGHTS, ITEM_BYTES * shape.size * run),
            Buffer("columns", "L1", WEIGHTS, ITEM_BYTES * run * shape.width),
            Buffer("weights", "L1", DATA, ITEM_BYTES * shape.rows * shape.keys),
            Buffer("line", "L1", DATA, ITEM_BYTES * shape.rows),
            Buffer("partial", "L1", DATA, ITEM_BYTES * lines.partial_elements),
            Buffer("keys_turned", "IM", "", ITEM_BYTES * shape.size * run, passing=True),
            Buffer("scores", "IM", "", ITEM_BYTES * shape.rows * run, passing=True),
            Buffer("sum", "IM", "", ITEM_BYTES * shape.rows * shape.width, passing=True),
            *finish_buffers(graph, layer, box),
        )
        return Work(buffers, (Pass(loads),), "output", _cycles(graph, layer, shape, chip))

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        shape = _shape(tile.graph, op, tile.box)
        instrs: list[Instr] = []
        for item in range(shape.items):
            held = -1
            for head in range(shape.first, shape.first + shape.heads):
                instrs += _attended(tile, op, shape, item, head, held=held == head // shape.shared)
                held = head // shape.shared if len(shape.runs) == 1 else -1
        instrs += finish(tile, tile.output)
        return (tuple(instrs),)


def _shape(graph: Graph, op: Op, box: Box) -> _Shape:
    heads, groups = int(op.number("heads")), int(op.number("groups"))
    q, k, v = (graph.by_name[name].shape for name in op.inputs[:3])
    width = v[2] // groups
    items, rows, _ = box_shape(box)
    first, last = box[2][0] // width, ceil(box[2][1] / width)
    return _Shape(items, rows, first, last - first, k[1], q[2] // heads, width, heads // groups, box)


def _loads(graph: Graph, op: Op, shape: _Shape) -> tuple[Load, ...]:
    items, rows, columns = shape.box
    keys, (low, high) = (0, shape.keys), shape.groups
    queries = (shape.first * shape.size, (shape.first + shape.heads) * shape.size)
    of_v = (low * shape.width, high * shape.width)
    if high - low == shape.heads == 1:
        of_v = columns[0] - (shape.first - low) * shape.width, columns[1] - (shape.first - low) * shape.width
    loads = (
        Load(op.inputs[0], (items, rows, queries), "queries"),
        Load(op.inputs[1], (items, keys, (low * shape.size, high * shape.size)), "keys"),
        Load(op.inputs[2], (items, keys, of_v), "values"),
    )
    if len(op.inputs) == 3:
        return loads
    wanted = (items, (shape.first, shape.first + shape.heads), rows, keys)
    extents = graph.by_name[op.inputs[3]].shape
    mask = tuple(span if extent > 1 else (0, 1) for span, extent in zip(wanted, extents, strict=True))
    return (*loads, Load(op.inputs[3], mask, "mask"))


def _cycles(graph: Graph, layer: Layer, shape: _Shape, chip: Chip) -> tuple[tuple[str, float], ...]:
    heads, moved = shape.items * shape.heads, shape.items * (shape.groups[1] - shape.groups[0])
    lengths = [high - low for low, high in shape.runs]
    products = sum(
        matrix_cycles(chip, shape.rows, length, shape.size) + matrix_cycles(chip, shape.rows, shape.width, length)
        for length in lengths
    )
    turned = sum(vector_cycles(chip, length * shape.size) for length in lengths)
    copied = turned + sum(vector_cycles(chip, length * shape.width) for length in lengths)
    masked = len(layer.anchor(graph).inputs) > 3 or len(lengths) > 1
    lines = vector_cycles(chip, shape.rows * shape.keys, 5 if masked else 4)
    lines += shape.lines.sum_instructions * vector_cycles(chip, 1)
    sums = vector_cycles(chip, shape.rows * shape.width, len(lengths) + (len(lengths) > 1))
    vector = moved * copied + heads * (lines + sums)
    if layer.epilogue(graph):
        vector += dict(finish_cycles(graph, layer, shape.box, chip))["vector"]
    return (("matrix", heads * products + moved * turned), ("vector", vector))


def _attended(tile: Tile, op: Op, shape: _Shape, item: int, head: int, *, held: bool) -> Iterator[Instr]:
    """One head of one item. `held` says that keys and values lie turned and moved as the head before left them."""
    issue, lines = tile.issue, shape.lines
    weights = tile.matrix("weights", shape.rows, shape.keys)
    line, partial = (tile.matrix(name, 1, shape.rows) for name in ("line", "partial"))
    mask = _mask(tile, op, shape, item, head)
    data = weights
    for low, high in shape.runs:
        scores = tile.matrix("scores", shape.rows, high - low)
        yield from _scores(tile, op, shape, item, head, (low, high), held=held)
        if mask is not None:
            part = mask.part(0, mask.rows, low, high - low)
            place = weights.part(0, shape.rows, low, high - low)
            add = issue.binary if mask.rows == shape.rows else issue.by_column
            yield from add("veadd", place, scores, part)
        elif len(shape.runs) > 1:
            yield from issue.unary("mov.m", weights.part(0, shape.rows, low, high - low), scores)
        else:
            data = scores
    yield from reduce(issue, "vemax", lines, data, (0, lines.length), line)
    if shape.keys > SUMMED:
        yield from issue.scalar("veadd", line, line, ceil(log2(shape.keys / SUMMED)) * log(2))
    yield from apply(issue, "vesub", lines, weights, data, line)
    yield from issue.unary("veexp.m", weights, weights)
    yield from total(issue, lines, weights, partial, line)
    yield from issue.unary("verecip.m", line, line)
    yield from _values(tile, shape, item, head, held=held)


def _scores(
    tile: Tile, op: Op, shape: _Shape, item: int, head: int, run: tuple[int, int], *, held: bool
) -> Iterator[Instr]:
    """The products of a run of keys, in IM."""
    issue, length = tile.issue, run[1] - run[0]
    group = head // shape.shared - shape.groups[0]
    turned = tile.matrix("turned", shape.size, length)
    if not held:
        keys = tile.matrix("keys", shape.keys, shape.size * (shape.groups[1] - shape.groups[0]))
        own = keys.part(item * shape.keys + run[0], length, group * shape.size, shape.size)
        inside = tile.matrix("keys_turned", shape.size, length)
        yield issue.transpose(inside, own)
        yield from issue.scalar("veemul", turned, inside, float(op.number("scale")))
    queries = tile.matrix("queries", shape.rows, shape.size * shape.heads)
    own = queries.part(item * shape.rows, shape.rows, (head - shape.first) * shape.size, shape.size)
    yield issue.memul(tile.matrix("scores", shape.rows, length), own, turned)


def _values(tile: Tile, shape: _Shape, item: int, head: int, *, held: bool) -> Iterator[Instr]:
    """What a head takes of the values, over the sums of its rows, in its columns of the output."""
    issue = tile.issue
    low, high = shape.columns(head)
    group = head // shape.shared - shape.groups[0]
    alone = shape.heads == 1
    wide = high - low if alone else shape.width * (shape.groups[1] - shape.groups[0])
    values = tile.matrix("values", shape.keys, wide)
    place = tile.output.part(item * shape.rows, shape.rows, max(0, head * shape.width - shape.box[2][0]), high - low)
    weights, line = tile.matrix("weights", shape.rows, shape.keys), tile.matrix("line", 1, shape.rows)
    current = total_ = tile.matrix("sum", shape.rows, high - low)
    for number, (first, last) in enumerate(shape.runs):
        columns = tile.matrix("columns", last - first, wide if alone else shape.width)
        if not held:
            start = 0 if alone else group * shape.width
            yield from issue.unary(
                "mov.m", columns, values.part(item * shape.keys + first, last - first, start, columns.columns)
            )
        used = columns if alone else columns.part(0, last - first, low, high - low)
        yield issue.memul(total_, weights.part(0, shape.rows, first, last - first), used)
        if len(shape.runs) > 1:
            current = place
            if number:
                yield from issue.binary("veadd", place, place, total_)
            else:
                yield from issue.unary("mov.m", place, total_)
    yield from issue.by_row("veemul", place, current, line)


def _mask(tile: Tile, op: Op, shape: _Shape, item: int, head: int) -> Matrix | None:
    """The rows of the mask that meet the scores: one for all, or one for each."""
    if len(op.inputs) == 3:
        return None
    items, heads, rows, _ = box_shape(next(load.box for load in tile.work.passes[0].loads if load.buffer == "mask"))
    place = min(item, items - 1) * heads + min(head - shape.first, heads - 1)
    return tile.matrix("mask", items * heads * rows, shape.keys).part(place * rows, rows)
