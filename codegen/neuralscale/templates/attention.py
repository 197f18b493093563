"""Attention, one (item, head) pair after the other, entirely in L1 and IM; heads are ranges of columns.

    t = transposed k * scale          metr.m into IM, a product on the way out
    s = q t + mask                    memul into IM, the mask added on the way out
    p = exp(s - max of the row - c)
    y = p v / (sum of p, in pieces)    memul into IM, the quotient on the way out

Keys are taken in runs, so that the second factor of each product fits the weights buffer. The scores of all runs lie
side by side, and the sums of all runs are added in order. c is 0 up to SUMMED keys; beyond, each doubling of the keys
adds ln 2, which keeps the sum of p, and p v, as small. Heads of q that share one head of k and v follow each other, so
that it is transposed and moved once. A box that holds parts of heads gets just the columns that it asks for.

Where the keys make one run, the rows of a head are taken in blocks of whole tiles of the matrix array. Blocks use two
places for their scores in turn: the matrix engine works on one block while the vector engine works on the other, and k
and v are transposed and moved once for all blocks. Each row is computed by itself, so blocks change no bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, log, log2

from codegen.neuralscale.instructions.arithmetic import Arithmetic, arithmetic_of
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.templates.lines import Lines, apply, reduce, total
from codegen.neuralscale.templates.steps import instructions, refined_reciprocal
from codegen.neuralscale.templates.template import OnePassTemplate, data_buffer, finish_cycles, single_pass
from codegen.neuralscale.templates.tile import WEIGHTS, Tile, load_bytes
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape
from partitioner.ir.target import TileBuffer, TileLoad, TileWork

SURE_RUN = 512
"""Keys of one run at least: for heads of 128 elements, keys and values then fill the weights buffer of 256 KiB.
Narrower heads have longer runs, as `_longest_run` says."""

PLACES = 2
"""Number of places for scores and sums, used in turn: the matrix engine fills one while the vector engine reads the
other."""

PIXELS = 64
BUFFER_ELEMENTS = 1 << 17
"""Rows of a tile of the matrix array, and fp16 elements of IM and of the weights buffer, of the stcp920. They decide
how sums are cut into runs, hence the bits: chips with other sizes add up in the same order."""

LONGEST_HEAD = 1 << 18
"""Largest number of elements of keys and values per head: half of what L1 has for data."""

SUMMED = 128
"""Number of keys up to which the range of sums needs no care: sums over values up to 500 stay in range."""


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The shape of a box's computation: items, rows and heads from `first` on, of which `box[2]` gives the columns.
    `size` and `width` are the elements of a head of k and of v; `shared` heads of q use one head of k and v."""

    items: int
    rows: int
    first: int
    heads: int
    keys: int
    size: int
    width: int
    shared: int
    box: Box
    arithmetic: Arithmetic

    @property
    def groups(self) -> tuple[int, int]:
        return self.first // self.shared, ceil((self.first + self.heads) / self.shared)

    @property
    def runs(self) -> tuple[Span, ...]:
        count = ceil(self.keys / _longest_run(self.size, self.width))
        return tuple(pairwise(self.keys * i // count for i in range(count + 1)))

    @property
    def longest(self) -> int:
        return max(high - low for low, high in self.runs)

    def blocks(self, chip: Chip) -> tuple[Span, ...]:
        """Ranges of rows that are computed together: a single range of all rows where all have two places in IM, where
        not even one tile of the matrix array has, or where the keys make several runs, which each block would transpose
        anew."""
        run, pixels, arithmetic = self.longest, chip.matrix.array_pixels, self.arithmetic
        room_bytes = chip.memory("IM").size_bytes - arithmetic.operand_bytes * self.size * run
        most = room_bytes // (PLACES * arithmetic.sum_bytes * (run + self.width))
        if len(self.runs) > 1 or self.rows <= most or most < pixels:
            return ((0, self.rows),)
        step = most // pixels * pixels
        points = list(range(0, self.rows, step))
        if len(points) > 1 and self.rows - points[-2] <= most:
            points.pop()
        return tuple(pairwise((*points, self.rows)))

    def lines(self, rows: int) -> Lines:
        return Lines(rows, self.keys, 1)

    def columns(self, head: int) -> Span:
        """The box's columns of a head, counted from the head's first column."""
        low, high = self.box[2]
        return max(0, low - head * self.width), min(self.width, high - head * self.width)


def _longest_run(size: int, width: int) -> int:
    """Longest run of keys that fits the weights buffer with its values and leaves room in IM, where keys are
    transposed, for two blocks of scores and sums; at least `SURE_RUN`."""
    in_im = (BUFFER_ELEMENTS - PLACES * PIXELS * width) // (size + PLACES * PIXELS)
    return max(SURE_RUN, min(in_im, BUFFER_ELEMENTS // (size + width)))


class AttentionTemplate(OnePassTemplate):
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
        """Granularity of a box: one item, one row, and a whole head, since heads are not cut."""
        return (1, 1, graph.by_name[op.outputs[0]].shape[2] // int(op.number("heads")))

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        shape = _shape(graph, op, box)
        arithmetic = shape.arithmetic
        item_bytes, operand_bytes, sum_bytes = arithmetic.item_bytes, arithmetic.operand_bytes, arithmetic.sum_bytes
        loads = _loads(graph, op, shape)
        blocks, run = shape.blocks(chip), shape.longest
        rows, places = max(high - low for low, high in blocks), min(PLACES, len(blocks))
        buffers = (
            *(data_buffer(load.buffer, load_bytes(graph, load), strided=load.buffer != "mask") for load in loads),
            TileBuffer("turned", "L1", WEIGHTS, operand_bytes * shape.size * run),
            TileBuffer("columns", "L1", WEIGHTS, operand_bytes * run * shape.width),
            data_buffer("weights", places * item_bytes * rows * shape.keys),
            data_buffer("line", places * item_bytes * rows),
            data_buffer("partial", places * item_bytes * shape.lines(rows).partial_elements),
            TileBuffer("keys_turned", "IM", "", operand_bytes * shape.size * run, passing=True),
            TileBuffer("scores", "IM", "", places * sum_bytes * rows * run, passing=True),
            TileBuffer("sum", "IM", "", places * sum_bytes * rows * shape.width, passing=True),
        )
        steps = shape.items * shape.heads * len(blocks) if len(blocks) > 1 else 1
        return replace(single_pass(graph, layer, box, loads, buffers, _cycles(graph, layer, shape, chip)), steps=steps)

    def computed(self, tile: Tile) -> Iterator[Instr]:
        op = tile.layer.anchor(tile.graph)
        shape = _shape(tile.graph, op, tile.box)
        blocks = shape.blocks(tile.chip)
        for item in range(shape.items):
            held = -1
            for head in range(shape.first, shape.first + shape.heads):
                for number, rows in enumerate(blocks):
                    place = (len(blocks) * (head - shape.first) + number) % min(PLACES, len(blocks))
                    block = _Block(tile, op, shape, item, head, rows, place)
                    yield from _attended(block, held=held == head // shape.shared)
                    held = head // shape.shared if len(shape.runs) == 1 else -1


def _shape(graph: Graph, op: Op, box: Box) -> _Shape:
    heads, groups = int(op.number("heads")), int(op.number("groups"))
    q, k, v = (graph.by_name[name].shape for name in op.inputs[:3])
    width = v[2] // groups
    items, rows, _ = box_shape(box)
    first, last = box[2][0] // width, ceil(box[2][1] / width)
    return _Shape(
        items, rows, first, last - first, k[1], q[2] // heads, width, heads // groups, box, arithmetic_of(graph, op)
    )


def _loads(graph: Graph, op: Op, shape: _Shape) -> tuple[TileLoad, ...]:
    items, rows, columns = shape.box
    keys, (low, high) = (0, shape.keys), shape.groups
    queries = (shape.first * shape.size, (shape.first + shape.heads) * shape.size)
    of_v = (low * shape.width, high * shape.width)
    if high - low == shape.heads == 1:
        of_v = columns[0] - (shape.first - low) * shape.width, columns[1] - (shape.first - low) * shape.width
    loads = (
        TileLoad(op.inputs[0], (items, rows, queries), "queries"),
        TileLoad(op.inputs[1], (items, keys, (low * shape.size, high * shape.size)), "keys"),
        TileLoad(op.inputs[2], (items, keys, of_v), "values"),
    )
    if len(op.inputs) == 3:
        return loads
    wanted = (items, (shape.first, shape.first + shape.heads), rows, keys)
    extents = graph.by_name[op.inputs[3]].shape
    mask = tuple(span if extent > 1 else (0, 1) for span, extent in zip(wanted, extents, strict=True))
    return (*loads, TileLoad(op.inputs[3], mask, "mask"))


def _cycles(graph: Graph, layer: Layer, shape: _Shape, chip: Chip) -> tuple[tuple[str, float], ...]:
    arithmetic = shape.arithmetic
    heads, moved = shape.items * shape.heads, shape.items * (shape.groups[1] - shape.groups[0])
    lengths = [high - low for low, high in shape.runs]
    turned = sum(arithmetic.vector_cycles(chip, length * shape.size) for length in lengths)
    copied = turned + sum(arithmetic.vector_cycles(chip, length * shape.width) for length in lengths)
    masked = len(layer.anchor(graph).inputs) > 3 or len(lengths) > 1
    products = vector = 0.0
    for low, high in shape.blocks(chip):
        rows = high - low
        products += sum(
            arithmetic.matrix_cycles(chip, rows, length, shape.size)
            + arithmetic.matrix_cycles(chip, rows, shape.width, length)
            for length in lengths
        )
        vector += arithmetic.vector_cycles(chip, rows * shape.keys, 5 if masked else 4)
        vector += shape.lines(rows).sum_instructions * arithmetic.vector_cycles(chip, 1)
        vector += arithmetic.vector_cycles(chip, rows, len(refined_reciprocal("inverse", "sum")))
        vector += arithmetic.vector_cycles(chip, rows * shape.width, len(lengths) + (len(lengths) > 1))
    vector = moved * copied + heads * vector
    if layer.epilogue(graph):
        vector += dict(finish_cycles(graph, layer, shape.box, chip))["vector"]
    return (("matrix", heads * products + moved * turned), ("vector", vector))


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows `low` to `high` of one head of one item; its scratch buffers are those of `place` (0 or 1)."""

    tile: Tile
    op: Op
    shape: _Shape
    item: int
    head: int
    span: Span
    place: int

    @property
    def rows(self) -> int:
        return self.span[1] - self.span[0]

    @property
    def lines(self) -> Lines:
        return self.shape.lines(self.rows)

    def scratch(self, name: str, rows: int, columns: int) -> MatrixPlace:
        """A matrix at the block's place in a buffer; each place has an equal share of the buffer."""
        return self._in_place(name, self.tile.matrix(name, rows, columns))

    def sums(self, name: str, rows: int, columns: int) -> MatrixPlace:
        """A matrix of sums of the matrix engine at the block's place in a buffer."""
        return self._in_place(name, self.tile.sums(name, rows, columns))

    def _in_place(self, name: str, first: MatrixPlace) -> MatrixPlace:
        buffer = next(buffer for buffer in self.tile.work.buffers if buffer.name == name)
        share = buffer.size_bytes // min(PLACES, len(self.shape.blocks(self.tile.chip)))
        return replace(first, offset_bytes=first.offset_bytes + self.place * share)

    @property
    def weights(self) -> MatrixPlace:
        return self.scratch("weights", self.rows, self.shape.keys)

    def mask(self) -> MatrixPlace | None:
        """The rows of the mask that meet the scores: one row for all, or one for each."""
        if len(self.op.inputs) == 3:
            return None
        loads = self.tile.work.passes[0].loads
        items, heads, rows, _ = box_shape(next(load.box for load in loads if load.buffer == "mask"))
        place = min(self.item, items - 1) * heads + min(self.head - self.shape.first, heads - 1)
        whole = self.tile.matrix("mask", items * heads * rows, self.shape.keys)
        return whole.part(place * rows + self.span[0], self.rows) if rows > 1 else whole.part(place, 1)


def _attended(block: _Block, *, held: bool) -> Iterator[Instr]:
    """Compute one block of a head. `held` says that keys and values still lie transposed and moved from the block
    before."""
    shape, lines, issue = block.shape, block.lines, block.tile.issue
    weights = data = block.weights
    line = block.scratch("line", 1, block.rows)
    mask = block.mask()
    for low, high in shape.runs:
        scores = block.sums("scores", block.rows, high - low)
        yield from _scores(block, (low, high), held=held)
        if mask is not None:
            part = mask.part(0, mask.rows, low, high - low)
            place = weights.part(0, block.rows, low, high - low)
            add = issue.binary if mask.rows == block.rows else issue.by_column
            yield from add("veadd", place, scores, part)
        elif len(shape.runs) > 1:
            yield from issue.unary("mov.m", weights.part(0, block.rows, low, high - low), scores)
        else:
            data = scores
    yield from reduce(issue, "vemax", lines, data, (0, lines.length), line)
    if shape.keys > SUMMED:
        yield from issue.scalar("veadd", line, line, ceil(log2(shape.keys / SUMMED)) * log(2))
    yield from apply(issue, "vesub", lines, weights, data, line)
    yield from issue.unary("veexp.m", weights, weights)
    inverse = block.scratch("partial", 1, block.rows)
    yield from total(issue, lines, weights, inverse, line)
    yield from instructions(refined_reciprocal("inverse", "sum"), issue, {"inverse": inverse, "sum": line})
    yield from _values(block, inverse, held=held)


def _scores(block: _Block, run: Span, *, held: bool) -> Iterator[Instr]:
    """Compute the products of q and a run of keys, in IM."""
    tile, shape, item, length = block.tile, block.shape, block.item, run[1] - run[0]
    group = block.head // shape.shared - shape.groups[0]
    turned = tile.operand("turned", shape.size, length)
    if not held:
        keys = tile.matrix("keys", shape.keys, shape.size * (shape.groups[1] - shape.groups[0]))
        own = keys.part(item * shape.keys + run[0], length, group * shape.size, shape.size)
        inside = tile.operand("keys_turned", shape.size, length)
        yield tile.issue.transpose(inside, own)
        yield from tile.issue.scalar("veemul", turned, inside, float(block.op.number("scale")))
    queries = tile.matrix("queries", shape.rows, shape.size * shape.heads)
    first = item * shape.rows + block.span[0]
    own = queries.part(first, block.rows, (block.head - shape.first) * shape.size, shape.size)
    yield tile.issue.memul(block.sums("scores", block.rows, length), own, turned)


def _values(block: _Block, line: MatrixPlace, *, held: bool) -> Iterator[Instr]:
    """Multiply a block's p by the values and divide by the sums of its rows, into its head's columns of the output."""
    tile, shape, item, head = block.tile, block.shape, block.item, block.head
    issue, weights = tile.issue, block.weights
    low, high = shape.columns(head)
    group = head // shape.shared - shape.groups[0]
    alone = shape.heads == 1
    wide = high - low if alone else shape.width * (shape.groups[1] - shape.groups[0])
    values = tile.matrix("values", shape.keys, wide)
    first_row, first_column = item * shape.rows + block.span[0], max(0, head * shape.width - shape.box[2][0])
    place = tile.output.part(first_row, block.rows, first_column, high - low)
    current = total_ = block.sums("sum", block.rows, high - low)
    for number, (first, last) in enumerate(shape.runs):
        columns = tile.operand("columns", last - first, wide if alone else shape.width)
        if not held:
            start = 0 if alone else group * shape.width
            yield from issue.unary(
                "mov.m", columns, values.part(item * shape.keys + first, last - first, start, columns.columns)
            )
        used = columns if alone else columns.part(0, last - first, low, high - low)
        yield issue.memul(total_, weights.part(0, block.rows, first, last - first), used)
        if len(shape.runs) > 1:
            current = place
            if number:
                yield from issue.binary("veadd", place, place, total_)
            else:
                yield from issue.unary("mov.m", place, total_)
    yield from issue.by_row("veemul", place, current, line)
