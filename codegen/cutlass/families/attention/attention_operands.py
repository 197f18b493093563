"""Operands of the operator `attend`: where heads and rows of q, k, v and masks lie.

(item, row, column), heads side by side     (item, head, row, element), heads apart     --> steps in elements

Heads side by side may begin at any column: q, k and v may be columns of one tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from codegen.cutlass.kernel.epilogues import broadcast_strides
from partitioner.ir.graph import Graph, Op

SIDE_BY_SIDE = len(("item", "row", "column"))


@dataclass(frozen=True, slots=True)
class HeadsOperand:
    """A tensor, elements in a row of a head, elements from one item, head and row to the next, and before the first."""

    name: str
    width: int
    steps: tuple[int, int, int]
    begin: int = 0

    @property
    def by_eight(self) -> bool:
        """Whether each row of a head begins at a multiple of eight elements and is one long."""
        return not any(number % 8 for number in (self.width, self.begin, *self.steps))


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """Attention of `rows` rows of each of `items` to `keys`, by `heads` of q, of which each `shared` read one of k and
    v. Row i sees `first_sees` keys and i more, or all where that is 0. A mask may be None."""

    items: int
    rows: int
    keys: int
    heads: int
    shared: int
    q: HeadsOperand
    k: HeadsOperand
    v: HeadsOperand
    mask: HeadsOperand | None
    scale: float
    first_sees: int

    @property
    def groups(self) -> int:
        """Heads of k and v."""
        return self.heads // self.shared

    @property
    def size(self) -> int:
        """Elements of a row of q and k in a head."""
        return self.q.width

    @property
    def width(self) -> int:
        """Elements of a row of v and of the result in a head."""
        return self.v.width

    @property
    def by_eight(self) -> bool:
        return all(operand.by_eight for operand in (self.q, self.k, self.v))

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of q, k, v and mask, as `Layout` of attention.cu has them."""
        return (*self.q.steps, *self.k.steps, *self.v.steps, *(self.mask.steps if self.mask else (0, 0, 0)))


def attention_of(graph: Graph, op: Op) -> AttentionProblem | None:
    """What an `attend` computes; None where its keys come in several parts. Raises KeyError for another operator."""
    heads, groups, parts = (int(op.number(name)) for name in ("heads", "groups", "parts"))
    if parts > 1:
        return None
    items, rows, _ = graph.by_name[op.outputs[0]].shape
    q, k, v, *masks = op.inputs
    keys = graph.by_name[k].shape[-2]
    given = dict(op.attributes)
    sees = int(op.number("first_sees")) if "first_sees" in given else 0
    begins = op.ints("columns") if "columns" in given else (0, 0, 0)
    width = graph.by_name[op.outputs[0]].shape[-1] // heads
    size = int(op.number("size")) if "size" in given else 0
    return AttentionProblem(
        items,
        rows,
        keys,
        heads,
        heads // groups,
        _operand(graph, q, size or _row_of_head(graph, q, heads), begins[0]),
        _operand(graph, k, size or _row_of_head(graph, k, groups), begins[1]),
        _operand(graph, v, width, begins[2]),
        _mask(graph, masks[0], (items, heads, rows, keys)) if masks else None,
        op.number("scale"),
        sees,
    )


def _mask(graph: Graph, name: str, scores: tuple[int, int, int, int]) -> HeadsOperand:
    item, head, row, _ = broadcast_strides(graph.by_name[name].shape, scores)
    return HeadsOperand(name, scores[-1], (item, head, row))


def _row_of_head(graph: Graph, name: str, heads: int) -> int:
    """Elements of a row of a head, of an operand that has nothing but these heads."""
    shape = graph.by_name[name].shape
    return shape[-1] // heads if len(shape) == SIDE_BY_SIDE else shape[-1]


def _operand(graph: Graph, name: str, width: int, begin: int) -> HeadsOperand:
    """q, k or v, with heads side by side or apart."""
    shape = graph.by_name[name].shape
    if len(shape) == SIDE_BY_SIDE:
        return HeadsOperand(name, width, (prod(shape[1:]), width, shape[-1]), begin)
    return HeadsOperand(name, width, (prod(shape[1:]), prod(shape[2:]), shape[-1]))
