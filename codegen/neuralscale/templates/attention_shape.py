"""What a tile of an attention has to do: operands with heads side by side or apart, runs of keys, blocks of rows.

operator, box of its output --attention_shape--> AttentionShape: runs of keys, each a pass, and heads of the box
rows, memories of a chip    --blocks-----------> ranges of rows that are computed together
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from codegen.neuralscale.instructions.arithmetic import Arithmetic, arithmetic_of
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.templates.tile import Tile
from hw_models.chip import Chip
from partitioner.ir.graph import Graph, Op
from partitioner.ir.regions import Box, box_shape

SURE_RUN = 512
"""Keys of one part that are one run where the weights buffer of 256 KiB holds them with their values: those of heads of
128 elements fill it."""

PLACES = 2
"""Number of places for scores and sums, used in turn: the matrix engine fills one while the vector engine reads the
other."""

PIXELS = 64
BUFFER_ELEMENTS = 1 << 17
"""Rows of a tile of the matrix array, and fp16 elements of IM and of the weights buffer, of the stcp920. They decide
how sums are cut into runs, hence the bits: chips with other sizes add up in the same order."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class AttentionOperand:
    """q, k or v: `width` elements in a row of a head. Heads are ranges of columns, or have an axis where they are
    `apart`: (item, head, row, element)."""

    name: str
    width: int
    apart: bool

    @classmethod
    def of(cls, graph: Graph, name: str, heads: int) -> AttentionOperand:
        shape = graph.by_name[name].shape
        apart = len(shape) > len(("item", "row", "column"))
        return cls(name, shape[-1] if apart else shape[-1] // heads, apart)

    def box(self, items: Span, heads: Span, rows: Span, within: Span | None = None) -> Box:
        """Rows of heads; of a single one, perhaps the elements `within` it."""
        low, high = within or (0, self.width)
        if self.apart:
            return items, heads, rows, (low, high)
        return items, rows, (heads[0] * self.width + low, (heads[1] - 1) * self.width + high)

    def matrix(self, tile: Tile, buffer: str, box: Box, item: int, head: int) -> MatrixPlace:
        """Rows of one item and head, counted from those of the box that the buffer holds."""
        if self.apart:
            _, heads, rows, width = box_shape(box)
            first = (item * heads + head) * rows
            return tile.matrix(buffer, first + rows, width).part(first, rows)
        _, rows, columns = box_shape(box)
        whole = tile.matrix(buffer, (item + 1) * rows, columns)
        width = min(self.width, columns)
        return whole.part(item * rows, rows, head * width, width)


@dataclass(frozen=True, slots=True)
class AttentionPart:
    """k, v and a mask, empty for none, of some of the keys. The mask has four axes, (item, head, row, key)."""

    k: AttentionOperand
    v: AttentionOperand
    mask: str
    keys: int
    mask_shape: tuple[int, ...]


def _parts(graph: Graph, op: Op) -> tuple[AttentionPart, ...]:
    count, groups = int(op.number("parts")), int(op.number("groups"))
    each = (len(op.inputs) - 1) // count
    return tuple(_part(graph, groups, *op.inputs[first : first + each]) for first in range(1, len(op.inputs), each))


def _part(graph: Graph, groups: int, k: str, v: str, mask: str = "") -> AttentionPart:
    own_k, own_v = (AttentionOperand.of(graph, name, groups) for name in (k, v))
    return AttentionPart(own_k, own_v, mask, graph.by_name[k].shape[-2], graph.by_name[mask].shape if mask else ())


@dataclass(frozen=True, slots=True)
class AttentionRun:
    """Keys `span` of a part, which a pass takes; `number` counts the passes."""

    number: int
    part: AttentionPart
    span: Span

    @property
    def keys(self) -> int:
        return self.span[1] - self.span[0]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The shape of a box's computation: items, rows and heads from `first` on, of which `box[2]` gives the columns.
    `width` are the elements of a head of v; `shared` heads of q use one head of k and v."""

    q: AttentionOperand
    items: int
    rows: int
    first: int
    heads: int
    runs: tuple[AttentionRun, ...]
    width: int
    shared: int
    box: Box
    arithmetic: Arithmetic

    @property
    def size(self) -> int:
        """Elements of a head of q and of k."""
        return self.q.width

    @property
    def groups(self) -> tuple[int, int]:
        return self.first // self.shared, ceil((self.first + self.heads) / self.shared)

    @property
    def keys(self) -> int:
        return sum(run.keys for run in self.runs)

    @property
    def longest(self) -> int:
        return max(run.keys for run in self.runs)

    def blocks(self, chip: Chip) -> tuple[Span, ...]:
        """Ranges of rows that are computed together: a single range of all rows where all have two places in IM, or
        where not even one tile of the matrix array has."""
        run, pixels, arithmetic = self.longest, chip.matrix.array_pixels, self.arithmetic
        room_bytes = chip.memory("IM").size_bytes - arithmetic.operand_bytes * self.size * run
        most = room_bytes // (PLACES * arithmetic.sum_bytes * (run + self.width))
        if self.rows <= most or most < pixels:
            return ((0, self.rows),)
        step = most // pixels * pixels
        points = list(range(0, self.rows, step))
        if len(points) > 1 and self.rows - points[-2] <= most:
            points.pop()
        return tuple(pairwise((*points, self.rows)))

    def columns(self, head: int) -> Span:
        """The box's columns of a head, counted from the head's first column."""
        low, high = self.box[2]
        return max(0, low - head * self.width), min(self.width, high - head * self.width)


def _longest_run(size: int, width: int) -> int:
    """Longest run of keys that fits the weights buffer with its values and leaves room in IM, where keys are
    transposed, for two blocks of scores and sums."""
    in_im = (BUFFER_ELEMENTS - PLACES * PIXELS * width) // (size + PLACES * PIXELS)
    return min(in_im, BUFFER_ELEMENTS // (size + width))


def _runs(parts: Sequence[AttentionPart], size: int, width: int) -> tuple[AttentionRun, ...]:
    """The keys of one part alone are one run if SURE_RUN allows; otherwise each part has runs of equal length."""
    longest = _longest_run(size, width)
    if len(parts) == 1:
        longest = max(longest, min(SURE_RUN, BUFFER_ELEMENTS // (size + width)))
    runs = list[AttentionRun]()
    for part in parts:
        count = ceil(part.keys / longest)
        for span in pairwise(part.keys * i // count for i in range(count + 1)):
            runs.append(AttentionRun(len(runs), part, span))
    return tuple(runs)


def attention_shape(graph: Graph, op: Op, box: Box) -> AttentionShape:
    """What the tile that computes a box has to do. Raises KeyError for an operator without the attributes of attend."""
    heads, groups = int(op.number("heads")), int(op.number("groups"))
    q, width = AttentionOperand.of(graph, op.inputs[0], heads), graph.by_name[op.outputs[0]].shape[2] // heads
    items, rows, _ = box_shape(box)
    first, last = box[2][0] // width, ceil(box[2][1] / width)
    runs, arithmetic = _runs(_parts(graph, op), q.width, width), arithmetic_of(graph, op)
    return AttentionShape(q, items, rows, first, last - first, runs, width, heads // groups, box, arithmetic)
