"""Attention, one (item, head) pair after the other, entirely in L1 and IM; heads are ranges of columns.

    t = transposed k * scale          metr.m into IM, a product on the way out
    s = q t + mask                    memul into IM, the mask added on the way out
    m = max of the row + c
    p = exp(s - m), l = sum of p      the sum in pieces
    y = p v                           memul into IM
    y / l                             at the end

Keys come in one or several parts, each with its values and perhaps a mask: rows of a cache, say, and new rows. They are
taken in runs, so that the second factor of each product fits the weights buffer. Each run is a pass of the tile, of
which nothing stays but m, l and y of each row; where a further run has a larger m, the l and y before it are multiplied
by exp(m before - m). m is finite, so that a run of which a row sees nothing adds zeros. c is 0 up to SUMMED keys of all
parts; beyond, each doubling of the keys adds ln 2, which keeps the sum of p, and p v, as small. Heads of q that share
one head of k and v follow each other, so that it is transposed and moved once per run. A box that holds parts of heads
gets just the columns that it asks for.

The rows of a head are taken in blocks of whole tiles of the matrix array. Blocks use two places for their scores in
turn: the matrix engine works on one block while the vector engine works on the other, and k and v are transposed and
moved once for all blocks. Each row is computed by itself, so blocks change no bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log, log2

from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.templates.attention_shape import (
    PLACES,
    AttentionOperand,
    AttentionRun,
    AttentionShape,
    Span,
    attention_shape,
)
from codegen.neuralscale.templates.lines import Lines, apply, reduce, total
from codegen.neuralscale.templates.steps import instructions, refined_reciprocal
from codegen.neuralscale.templates.template import (
    Template,
    data_buffer,
    finish,
    finish_buffers,
    finish_cycles,
    finish_loads,
)
from codegen.neuralscale.templates.tile import OUTPUT, WEIGHTS, Tile, load_bytes
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork

WIDEST_HEAD = 256
"""Largest number of elements of a row of k, or of v, in a head: more would leave runs too short to be worth a pass."""

SUMMED = 128
"""Number of keys up to which the range of sums needs no care: sums over values up to 500 stay in range."""

LOWEST = -65504.0
"""Lower bound of the largest score of a row."""

LARGEST, POWERS = "largest", "powers"
"""Buffers of m and l of each row, which stay from run to run."""


class AttentionTemplate(Template):
    """attend(heads, groups, scale): q, and parts of k, v and a mask that is added, heads side by side or apart; rows of
    at most 256 elements in a head."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        heads = int(op.number("heads"))
        widest = max(AttentionOperand.of(graph, name, heads).width for name in (op.inputs[0], op.outputs[0]))
        return f"{widest} elements in a row of a head, at most {WIDEST_HEAD}" if widest > WIDEST_HEAD else None

    def granularity(self, graph: Graph, op: Op) -> tuple[int, ...]:
        """Granularity of a box: one item, one row, and a whole head, since heads are not cut."""
        return (1, 1, graph.by_name[op.outputs[0]].shape[2] // int(op.number("heads")))

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        shape = attention_shape(graph, op, box)
        arithmetic = shape.arithmetic
        item_bytes, operand_bytes, sum_bytes = arithmetic.item_bytes, arithmetic.operand_bytes, arithmetic.sum_bytes
        passes = [_loads(shape, run) for run in shape.runs]
        passes[-1] = (*passes[-1], *finish_loads(graph, layer, box))
        sizes = dict[str, int]()
        for load in (load for run in shape.runs for load in _loads(shape, run)):
            sizes[load.buffer] = max(sizes.get(load.buffer, 0), load_bytes(graph, load))
        blocks, run = shape.blocks(chip), shape.longest
        rows, places = max(high - low for low, high in blocks), min(PLACES, len(blocks))
        partial = max(Lines(rows, each.keys, 1).partial_elements for each in shape.runs)
        buffers = (
            *(data_buffer(name, size_bytes, strided=name != "mask") for name, size_bytes in sizes.items()),
            TileBuffer("turned", "L1", WEIGHTS, operand_bytes * shape.size * run),
            TileBuffer("columns", "L1", WEIGHTS, operand_bytes * run * shape.width),
            data_buffer("weights", places * item_bytes * rows * run),
            data_buffer("line", places * item_bytes * rows),
            data_buffer("partial", places * item_bytes * partial),
            *_kept(shape, places * rows),
            TileBuffer("keys_turned", "IM", "", operand_bytes * shape.size * run, passing=True),
            TileBuffer("scores", "IM", "", places * sum_bytes * rows * run, passing=True),
            TileBuffer("sum", "IM", "", places * sum_bytes * rows * shape.width, passing=True),
            *finish_buffers(graph, layer, box),
        )
        cycles = _cycles(graph, layer, shape, chip)
        steps = shape.items * shape.heads * len(blocks) * len(shape.runs) if len(blocks) > 1 else 1
        return TileWork(buffers, tuple(map(Pass, passes)), OUTPUT, cycles, steps)

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        shape = attention_shape(tile.graph, op, tile.box)
        *passes, last = (tuple(_passed(tile, op, shape, run)) for run in shape.runs)
        return (*passes, (*last, *finish(tile, tile.output)))


def _kept(shape: AttentionShape, lines: int) -> tuple[TileBuffer, ...]:
    """What stays of each row from run to run, next to its result, and factors of `lines` rows."""
    if len(shape.runs) == 1:
        return ()
    item_bytes = shape.arithmetic.item_bytes
    size_bytes = item_bytes * shape.items * shape.heads * shape.rows
    return data_buffer(LARGEST, size_bytes), data_buffer(POWERS, size_bytes), data_buffer("factor", item_bytes * lines)


def _passed(tile: Tile, op: Op, shape: AttentionShape, run: AttentionRun) -> Iterator[Instr]:
    """The instructions of the pass that takes a run of keys."""
    blocks = shape.blocks(tile.chip)
    for item in range(shape.items):
        held = -1
        for head in range(shape.first, shape.first + shape.heads):
            for number, rows in enumerate(blocks):
                place = (len(blocks) * (head - shape.first) + number) % min(PLACES, len(blocks))
                block = _Block(tile, op, shape, run, item, head, rows, place)
                yield from _attended(block, held=held == head // shape.shared)
                held = head // shape.shared


def _loads(shape: AttentionShape, run: AttentionRun) -> tuple[TileLoad, ...]:
    items, rows, _ = shape.box
    part, heads = run.part, (shape.first, shape.first + shape.heads)
    within = shape.columns(shape.first) if shape.heads == 1 else None
    loads: tuple[TileLoad, ...] = (
        TileLoad(part.k.name, part.k.box(items, shape.groups, run.span), "keys"),
        TileLoad(part.v.name, part.v.box(items, shape.groups, run.span, within), "values"),
    )
    if not run.number:
        loads = (TileLoad(shape.q.name, shape.q.box(items, heads, rows), "queries"), *loads)
    if not part.mask:
        return loads
    wanted = (items, heads, rows, run.span)
    mask = tuple(span if extent > 1 else (0, 1) for span, extent in zip(wanted, part.mask_shape, strict=True))
    return (*loads, TileLoad(part.mask, mask, "mask"))


def _cycles(graph: Graph, layer: Layer, shape: AttentionShape, chip: Chip) -> tuple[tuple[str, float], ...]:
    arithmetic = shape.arithmetic
    heads, moved = shape.items * shape.heads, shape.items * (shape.groups[1] - shape.groups[0])
    products = vector = turned = copied = 0.0
    for run in shape.runs:
        turned += arithmetic.vector_cycles(chip, run.keys * shape.size)
        copied += arithmetic.vector_cycles(chip, run.keys * shape.width)
        for low, high in shape.blocks(chip):
            rows = high - low
            products += arithmetic.matrix_cycles(chip, rows, run.keys, shape.size)
            products += arithmetic.matrix_cycles(chip, rows, shape.width, run.keys)
            vector += arithmetic.vector_cycles(chip, rows * run.keys, 5 if run.part.mask else 4)
            vector += Lines(rows, run.keys, 1).sum_instructions * arithmetic.vector_cycles(chip, 1)
            if len(shape.runs) > 1:
                vector += arithmetic.vector_cycles(chip, rows, 6)
                vector += arithmetic.vector_cycles(chip, rows * shape.width, 2 if run.number else 1)
    for low, high in shape.blocks(chip):
        vector += arithmetic.vector_cycles(chip, high - low, len(refined_reciprocal("inverse", "sum")))
        vector += arithmetic.vector_cycles(chip, (high - low) * shape.width)
    vector = moved * (turned + copied) + heads * vector
    if layer.epilogue(graph):
        vector += dict(finish_cycles(graph, layer, shape.box, chip))["vector"]
    return (("matrix", heads * products + moved * turned), ("vector", vector))


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows `span` of one head of one item and a run of keys; its scratch buffers are those of `place` (0 or 1)."""

    tile: Tile
    op: Op
    shape: AttentionShape
    run: AttentionRun
    item: int
    head: int
    span: Span
    place: int

    @property
    def rows(self) -> int:
        return self.span[1] - self.span[0]

    @property
    def lines(self) -> Lines:
        return Lines(self.rows, self.run.keys, 1)

    @property
    def group(self) -> int:
        """The head's number of k and v, counted from the first one that is loaded."""
        return self.head // self.shape.shared - self.shape.groups[0]

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
    def first(self) -> bool:
        return not self.run.number

    @property
    def last(self) -> bool:
        return self.run.number == len(self.shape.runs) - 1

    @property
    def several(self) -> bool:
        """Whether the keys make several runs."""
        return len(self.shape.runs) > 1

    @property
    def scores(self) -> MatrixPlace:
        return self.sums("scores", self.rows, self.run.keys)

    @property
    def weights(self) -> MatrixPlace:
        return self.scratch("weights", self.rows, self.run.keys)

    @property
    def line(self) -> MatrixPlace:
        return self.scratch("line", 1, self.rows)

    @property
    def powers(self) -> MatrixPlace:
        """The sum of p of all runs so far, per row."""
        return self.kept(POWERS) if self.several else self.line

    @property
    def result(self) -> MatrixPlace:
        """The columns of the head in the output."""
        shape, (low, high) = self.shape, self.shape.columns(self.head)
        column = max(0, self.head * shape.width - shape.box[2][0])
        return self.tile.output.part(self.item * shape.rows + self.span[0], self.rows, column, high - low)

    def kept(self, name: str) -> MatrixPlace:
        """A number per row that stays from run to run."""
        shape, place = self.shape, self.tile.matrix(name, 1, self.rows)
        first = (self.item * shape.heads + self.head - shape.first) * shape.rows + self.span[0]
        return replace(place, offset_bytes=place.offset_bytes + first * place.item_bytes)

    def mask(self) -> MatrixPlace | None:
        """The rows of the mask that meet the scores: one row for all, or one for each."""
        if not self.run.part.mask:
            return None
        loads = self.tile.work.passes[self.run.number].loads
        items, heads, rows, keys = box_shape(next(load.box for load in loads if load.buffer == "mask"))
        place = min(self.item, items - 1) * heads + min(self.head - self.shape.first, heads - 1)
        whole = self.tile.matrix("mask", items * heads * rows, keys)
        return whole.part(place * rows + self.span[0], self.rows) if rows > 1 else whole.part(place, 1)

    def queries(self) -> MatrixPlace:
        """The block's rows of q, which the first pass loads."""
        shape = self.shape
        rows = self._operand(shape.q, "queries", 0, self.head - shape.first)
        return rows.part(self.span[0], self.rows)

    def keys(self) -> MatrixPlace:
        """The run's rows of k that the head meets."""
        return self._operand(self.run.part.k, "keys", self.run.number, self.group)

    def values(self) -> MatrixPlace:
        """The run's rows of v that the head meets."""
        return self._operand(self.run.part.v, "values", self.run.number, self.group)

    def _operand(self, operand: AttentionOperand, buffer: str, number: int, head: int) -> MatrixPlace:
        """Rows of one head in a buffer that the pass of this number loads."""
        box = next(load.box for load in self.tile.work.passes[number].loads if load.buffer == buffer)
        return operand.matrix(self.tile, buffer, box, self.item, head)


def _attended(block: _Block, *, held: bool) -> Iterator[Instr]:
    """Compute one block of a head. `held` says that keys and values of the run still lie transposed and moved from the
    block before."""
    issue, result = block.tile.issue, block.result
    yield from _scores(block, held=held)
    yield from _powers(block)
    if block.several and not block.first:
        yield from _added(block)
    inverse = block.scratch("partial", 1, block.rows)
    if block.last:
        yield from instructions(refined_reciprocal("inverse", "sum"), issue, {"inverse": inverse, "sum": block.powers})
    yield from _values(block, held=held)
    sums = block.sums("sum", block.rows, result.columns)
    if block.several and block.first:
        yield from issue.unary("mov.m", result, sums)
    elif block.several:
        yield from issue.by_row("veemul", result, result, block.scratch("factor", 1, block.rows))
        yield from issue.binary("veadd", result, result, sums)
    if block.last:
        yield from issue.by_row("veemul", result, result if block.several else sums, inverse)


def _scores(block: _Block, *, held: bool) -> Iterator[Instr]:
    """Compute the products of q and a run of keys, in IM."""
    tile, shape, keys = block.tile, block.shape, block.run.keys
    turned = tile.operand("turned", shape.size, keys)
    if not held:
        inside = tile.operand("keys_turned", shape.size, keys)
        yield tile.issue.transpose(inside, block.keys())
        yield from tile.issue.scalar("veemul", turned, inside, float(block.op.number("scale")))
    yield tile.issue.memul(block.scores, block.queries(), turned)


def _powers(block: _Block) -> Iterator[Instr]:
    """Compute p of a run, and the sum of each row: of the run in `line`, or of a first one where it stays."""
    shape, lines, issue = block.shape, block.lines, block.tile.issue
    weights, data, line, mask = block.weights, block.scores, block.line, block.mask()
    if mask is not None:
        add = issue.binary if mask.rows == block.rows else issue.by_column
        yield from add("veadd", weights, data, mask)
        data = weights
    yield from reduce(issue, "vemax", lines, data, (0, lines.length), line)
    if shape.keys > SUMMED:
        yield from issue.scalar("veadd", line, line, ceil(log2(shape.keys / SUMMED)) * log(2))
    if block.several:
        yield from _raised(block)
    yield from apply(issue, "vesub", lines, weights, data, block.kept(LARGEST) if block.several else line)
    yield from issue.unary("veexp.m", weights, weights)
    sums = block.powers if block.first else line
    yield from total(issue, lines, weights, block.scratch("partial", 1, block.rows), sums)


def _raised(block: _Block) -> Iterator[Instr]:
    """Let m be the larger of that of the runs before, or LOWEST, and that of this run, which is in `line`; and `factor`
    that by which what was computed before is multiplied."""
    issue, line, largest = block.tile.issue, block.line, block.kept(LARGEST)
    if block.first:
        yield from issue.scalar("vemax", largest, line, LOWEST)
        return
    factor = block.scratch("factor", 1, block.rows)
    yield from issue.binary("vemax", line, line, largest)
    yield from issue.binary("vesub", factor, largest, line)
    yield from issue.unary("veexp.m", factor, factor)
    yield from issue.unary("mov.m", largest, line)


def _added(block: _Block) -> Iterator[Instr]:
    """Add the sums of a further run, which are in `line`, to l."""
    issue, powers = block.tile.issue, block.powers
    yield from issue.binary("veemul", powers, powers, block.scratch("factor", 1, block.rows))
    yield from issue.binary("veadd", powers, powers, block.line)


def _values(block: _Block, *, held: bool) -> Iterator[Instr]:
    """Compute the products of a block's p and the values of a run, in IM."""
    tile, shape = block.tile, block.shape
    low, high = shape.columns(block.head)
    alone = shape.heads == 1
    columns = tile.operand("columns", block.run.keys, high - low if alone else shape.width)
    if not held:
        yield from tile.issue.unary("mov.m", columns, block.values())
    used = columns if alone else columns.part(0, block.run.keys, low, high - low)
    yield tile.issue.memul(block.sums("sum", block.rows, high - low), block.weights, used)
