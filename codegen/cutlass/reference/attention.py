"""Attention, bounded as kernels compute it that store no score: largest, sums and weights go from block to block.

    scores s +- e  -->  weights w in [least, most]  -->  sums of w v: |w' - w| |v - result|, for weights add up to 1

The power of each score is taken less the largest so far; where that grows, what was summed is made smaller. Weights are
rounded to fp16 before they meet v; their sum is of fp32 powers.
"""

from __future__ import annotations

import numpy as np

from codegen.cutlass.reference.evaluated import (
    ARGUMENT_UNITS,
    ELEMENTARY_UNITS,
    LEAST,
    UNIT,
    Evaluated,
    add,
    immediate,
    mul,
)
from codegen.cutlass.reference.lines import softmax_interval
from codegen.cutlass.reference.operands import RuleInputs
from codegen.cutlass.reference.sums import pieces, sums_of_products
from codegen.judgement import Points

HALF_UNIT, HALF_LEAST = 2.0**-11, 2.0**-25
"""Error of rounding to fp16: a share of normal numbers, and of the others."""
FEWEST_KEYS = 16
"""Fewest keys between two times that what was summed is made smaller."""


def attend(asked: RuleInputs) -> Evaluated:
    """Attention at the points of (item, row, column), each row of a head once."""
    points = asked.points
    heads, groups = (int(asked.op.number(name)) for name in ("heads", "groups"))
    width = asked.shape[-1] // heads
    rows, row = np.unique(np.stack([points[:, 0], points[:, 2] // width, points[:, 1]], 1), axis=0, return_inverse=True)
    row, column = row.reshape(-1), points[:, 2] % width
    numbers, errors = np.empty((2, len(points)))
    of_keys = rows[:, :2] // np.array([1, heads // groups])
    for item, group in np.unique(of_keys, axis=0):
        same = np.flatnonzero((of_keys == (item, group)).all(1))
        keys = _OneHead(asked, int(item), int(group))
        for piece in pieces(len(same), keys.count):
            some = rows[same[piece]]
            here = np.flatnonzero((row >= same[piece][0]) & (row <= same[piece][-1]) & np.isin(row, same[piece]))
            found = keys.attended(some)
            where = np.searchsorted(same[piece], row[here]), column[here]
            numbers[here], errors[here] = found.numbers[where], found.error[where]
    return Evaluated(numbers, errors)


class _OneHead:
    """Keys and values of one item and head, and the rows of q that meet them."""

    def __init__(self, asked: RuleInputs, item: int, group: int) -> None:
        self.asked, self.op = asked, asked.op
        size, width = (_row_of_head(asked, position) for position in (1, 2))
        self.k, self.v = (_head(asked, at, item, group, each) for at, each in ((1, size), (2, width)))

    @property
    def count(self) -> int:
        return len(self.k.numbers)

    def attended(self, rows: Points) -> Evaluated:
        """Results of rows (item, head, row), [U, width]."""
        scores = self._scores(rows)
        hidden = np.isneginf(scores.numbers) & (scores.error == 0)
        found = _weighted(scores, self.v)
        strange = ~np.isfinite(self.k.numbers).all(1) | ~np.isfinite(self.v.numbers).all(1)
        unknown = (hidden & strange).any(1, keepdims=True)  # a kernel may leave out what is hidden, or not
        certain = np.isnan(scores.numbers).any(1, keepdims=True) & ~unknown & ~scores.error.any(1, keepdims=True)
        certain = certain | (hidden.all(1, keepdims=True) & ~unknown)
        error = np.where(np.isfinite(found.numbers) & ~unknown, found.error, np.where(certain, 0.0, np.inf))
        return Evaluated(found.numbers, error)

    def _scores(self, rows: Points) -> Evaluated:
        """Scores of rows with all keys, [U, keys], minus infinity where a key is hidden."""
        asked, op, count = self.asked, self.op, self.count
        q = _rows(asked, rows)
        sums = sums_of_products(
            q.at, self.k.at, np.repeat(np.arange(len(rows)), count), np.tile(np.arange(count), len(rows)),
            q.numbers.shape[1], None,
        )  # fmt: skip
        scores = mul(sums, immediate(op.number("scale")))
        if len(op.inputs) > len("qkv"):
            scores = add(scores, self._mask(rows))
        numbers, error = (array.reshape(len(rows), count) for array in (scores.numbers, scores.error))
        if "first_sees" in dict(op.attributes):
            sees = int(op.number("first_sees")) + rows[:, 2:]
            seen = np.arange(count) < sees
            numbers, error = np.where(seen, numbers, -np.inf), np.where(seen, error, 0.0)
        return Evaluated(numbers, error)

    def _mask(self, rows: Points) -> Evaluated:
        """What is added to the scores of rows, [U keys]."""
        mask = self.asked.tensor(3)
        found = mask.at(*(np.where(extent > 1, i, 0) for i, extent in zip(rows.T, mask.values.shape, strict=False)))
        return Evaluated(found.numbers.reshape(-1), found.error.reshape(-1))


def _weighted(scores: Evaluated, v: Evaluated) -> Evaluated:
    """Sums of v by the weights of scores, [U, width]."""
    weights = softmax_interval(scores)
    largest = scores.numbers.max(1, keepdims=True)
    total = np.exp(scores.numbers - largest).sum(1, keepdims=True)
    keys = scores.numbers.shape[1]
    times = -(-keys // FEWEST_KEYS)
    arguments = np.where(np.isfinite(scores.numbers), 2 * (scores.sizes + np.abs(largest)), 0.0)
    each = UNIT * (ELEMENTARY_UNITS + ARGUMENT_UNITS * arguments + times * (ELEMENTARY_UNITS + 1))
    off = weights.error + (weights.numbers + weights.error) * each
    rounding = HALF_UNIT * (weights.numbers + off) + np.where(weights.numbers + off > 0, HALF_LEAST / total, 0.0)
    numbers = weights.numbers @ v.numbers
    sizes = (weights.numbers + off + rounding) @ v.sizes
    apart = np.abs(v.numbers[None] - numbers[:, None])
    error = np.einsum("uk,ukw->uw", off, apart) + rounding @ v.sizes
    if v.error.any():
        error = error + (weights.numbers + off + rounding) @ v.error
    summed = (keys + times) * UNIT
    error = error + summed * (sizes + np.abs(numbers)) + ELEMENTARY_UNITS * UNIT * np.abs(numbers) + LEAST
    denominator = 1 - off.sum(1, keepdims=True) - summed
    return Evaluated(numbers, np.where(denominator > 0, error / np.where(denominator > 0, denominator, 1.0), np.inf))


def _begin(asked: RuleInputs, position: int) -> int:
    """The column at which the heads of an operand begin."""
    return asked.op.ints("columns")[position] if "columns" in dict(asked.op.attributes) else 0


def _row_of_head(asked: RuleInputs, position: int) -> int:
    """Elements of a row of a head of an operand."""
    op = asked.op
    if position == len("qk"):
        return asked.shape[-1] // int(op.number("heads"))
    if "size" in dict(op.attributes):
        return int(op.number("size"))
    shape = asked.sampled.graph.by_name[op.inputs[position]].shape
    apart = len(shape) == len(("item", "head", "row", "element"))
    return shape[-1] if apart else shape[-1] // int(op.number("groups" if position else "heads"))


def _head(asked: RuleInputs, position: int, item: int, head: int, width: int) -> Evaluated:
    """Rows of a head of an operand, [rows, width]."""
    stored, begin = asked.tensor(position), _begin(asked, position) + head * width
    if stored.values.ndim == len(("item", "head", "row", "element")):
        return stored.at(item, head)
    return stored.at(item, slice(None), slice(begin, begin + width))


def _rows(asked: RuleInputs, rows: Points) -> Evaluated:
    """Rows (item, head, row) of q, [U, elements]."""
    item, head, row = rows.T
    stored, width = asked.tensor(), _row_of_head(asked, 0)
    if stored.values.ndim == len(("item", "head", "row", "element")):
        return stored.at(item, head, row)
    columns = _begin(asked, 0) + head[:, None] * width + np.arange(width)
    return stored.at(item[:, None], row[:, None], columns)
