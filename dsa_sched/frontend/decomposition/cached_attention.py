"""Attention to a cache that stays in its place: to its old rows and to the new ones, which are written later.

    TensorScatter(past, rows, places)     -->  Assign(past, rows, places), after everything else
    Attention(q, present k, present v)    -->  CachedAttention(q, new k, new v, past k, past v, what masks add)

Of the old keys, those that are overwritten are hidden; a new one is seen as the mask says of its place. Rows whose
places are not in the cache are neither written nor seen.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import onnx

from dsa_sched.frontend.decomposition.attention import WINDOWS, in_heads
from dsa_sched.frontend.decomposition.attention_bias import HELD, part_bias
from dsa_sched.frontend.decomposition.in_place import Write, difference
from dsa_sched.frontend.decomposition.mask_columns import columns_at
from dsa_sched.frontend.decomposition.steps import integers, shaped, steps, truths
from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import ASSIGN, CACHED_ATTENTION, Node

BOOL, FLOAT, INT64 = (int(getattr(onnx.TensorProto, name)) for name in ("BOOL", "FLOAT", "INT64"))


def written_later(chain: Chain, write: Write) -> bool:
    """The write as an operator that is done in the place of its cache, with places for each item and head."""
    items, heads, rows, _ = chain.shape(write.cache)
    regions = items * heads
    if write.each:
        places = integers(chain, "Add", _from_the_front(chain, write, rows), np.zeros((regions, 1), np.int64))
    else:
        begins = shaped(chain, write.places, items, 1) if write.places else _zeros(chain, items, 1)
        places = integers(chain, "Add", begins, np.zeros((1, heads), np.int64))
    settings = (("pieces", write.count if write.each else 1), ("regions", regions), ("rows", rows))
    operands = (write.cache, _update(chain, write), places)
    chain.add(ASSIGN, *operands, shape=chain.shape(write.cache), settings=settings)
    return True


@dataclass(frozen=True, slots=True)
class MaskOfParts:
    """What masks add to the scores of new and of past keys, which rows see any of these, and whether scores must be
    kept finite after the sum."""

    new: str
    past: str
    seen: str
    held: bool


Masks = dict[Hashable, MaskOfParts]
"""Masks that were written, by all that they follow from: layers share them."""


def attention_apart(chain: Chain, node: Node, writes: Mapping[str, Write], masks: Masks) -> bool:
    """Attention to the old rows of caches but those that are overwritten, and to the new rows."""
    heads = in_heads(chain, node)
    if heads is None:
        return False
    q, (k, v) = heads[0], (writes[name] for name in node.inputs[1:3])
    windows = tuple(item for item in node.settings if item[0] in WINDOWS)
    key = (chain.shape(k.cache), chain.shape(q), k.places, k.each, k.count, node.inputs[3:], windows)
    if key not in masks:
        masks[key] = _mask_of_parts(chain, node, k)
    mask = masks[key]
    settings = tuple(item for item in node.settings if item[0] in ("scale", "softcap"))
    shape = (*chain.shape(q)[:3], chain.shape(v.cache)[3])
    rows, own = (_update(chain, k), _update(chain, v)), (mask.new, mask.past, mask.seen)
    settings = (*settings, (HELD, int(mask.held)))
    result = chain.add(CACHED_ATTENTION, q, *rows, k.cache, v.cache, *own, shape=shape, settings=settings)
    if len(chain.shape(node.outputs[0])) == 3:
        chain.join_heads(result)
    return True


def _mask_of_parts(chain: Chain, node: Node, write: Write) -> MaskOfParts:
    columns = _Columns.of(chain, node, write)
    past, new = columns.past(), columns.new()
    if mask := node.input(3):
        past, new = _both(chain, mask, past), _both(chain, columns_at(chain, mask, columns.places()), new)
    of_new, of_past = part_bias(chain, new), part_bias(chain, past)
    seen = chain.add("Max", of_new.seen, of_past.seen)
    return MaskOfParts(of_new.added, of_past.added, seen, of_new.held or of_past.held)


def _update(chain: Chain, write: Write) -> str:
    """The new rows, in the order of the cache."""
    return chain.transposed(write.update, *write.order) if write.order else write.update


def _zeros(chain: Chain, *shape: int) -> str:
    return chain.array(np.zeros(shape, np.int64), None)


def _from_the_front(chain: Chain, write: Write, rows: int) -> str:
    """Places [row], of which negative ones count from the end."""
    places = shaped(chain, write.places, write.count)
    constant = chain.network.constants.get(write.places)
    if constant is not None:
        return chain.array(constant.reshape(-1).astype(np.int64) % rows, None)
    negative = integers(chain, "Less", places, 0)
    return chain.add("Where", negative, integers(chain, "Add", places, rows), places, dtype=INT64)


def _both(chain: Chain, mask: str, seen: str) -> str:
    """A mask, and what truth values hide besides."""
    kind = chain.values.get(mask) or chain.network.values[mask]
    return (
        truths(chain, "And", mask, seen) if kind.dtype == BOOL else chain.add("Where", seen, mask, chain.number(-inf))
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which keys each row of an attention sees, by their places in the cache, of `room` keys: from `first` up to `end`,
    exclusively, where there are such bounds [item, 1, 1 or row, 1].

    The new keys, `count` of them, are written from `begin` on [item, 1, 1, 1], or at places `each` of its own
    [1, 1, 1, new key]. Where they are the `last` of all, and each row sees them all or, if `causal`, up to its own, all
    rows see the same of the past."""

    chain: Chain
    begin: str
    each: str
    end: str
    first: str
    room: int
    count: int
    last: bool
    causal: bool

    @classmethod
    def of(cls, chain: Chain, node: Node, write: Write) -> _Columns:
        (items, _, room, _), rows = chain.shape(write.cache), chain.shape(node.inputs[0])[-2]
        begin, each = _zeros(chain, items, 1, 1, 1), ""
        if write.each:
            each = shaped(chain, _from_the_front(chain, write, room), 1, 1, 1, write.count)
        elif write.places:
            begin = shaped(chain, write.places, items, 1, 1, 1)
        length = node.input(6)
        left, right = (node.integer(f"{side}_window_size", -1) for side in ("left", "right"))
        right = 0 if node.integer("is_causal", 0) else right
        ends = length and write.places and not write.each
        last = bool(ends) and difference(chain.network, length, write.places) == write.count
        last = last and (right < 0 or (right == 0 and rows == write.count))
        end = shaped(chain, length, items, 1, 1, 1) if length else ""
        own = integers(chain, "Add", end or _zeros(chain, items, 1, 1, 1), _numbers(rows) - (rows if length else 0))
        if right >= 0 and not last:
            seen = integers(chain, "Add", own, right + 1)
            end = integers(chain, "Min", end, seen) if end else seen
        first = integers(chain, "Sub", own, left) if left >= 0 else ""
        return cls(chain, begin, each, end, first, room, write.count, last, right == 0)

    def places(self) -> str:
        """Places of the new keys [item or 1, 1, 1, new key]."""
        return self.each or integers(self.chain, "Add", self.begin, np.arange(self.count))

    def past(self) -> str:
        """Truth values [item, 1, 1 or row, key of the cache]: those that are seen and not overwritten."""
        chain, room, conditions = self.chain, self.room, [self._kept()]
        if self.end and not self.last:
            conditions.append(steps(chain, self.end, room))
        if self.first:
            conditions.append(truths(chain, "Not", steps(chain, self.first, room)))
        return _all(chain, conditions)

    def _kept(self) -> str:
        """Truth values [item or 1, 1, 1, key of the cache]: keys that are not overwritten; with `last`, those before
        the first new one."""
        chain, room = self.chain, self.room
        if not self.each:
            before = steps(chain, self.begin, room)
            after = integers(chain, "Add", self.begin, self.count)
            return before if self.last else truths(chain, "Or", before, truths(chain, "Not", steps(chain, after, room)))
        lines = shaped(chain, self.each, 1, 1, self.count, 1)
        before, after = (steps(chain, integers(chain, "Add", lines, more), room) for more in (0, 1))
        kept = truths(chain, "Or", before, truths(chain, "Not", after))
        return kept if self.count == 1 else _all_lines(chain, kept)

    def new(self) -> str:
        """Truth values [item, 1, 1 or row, new key]: those that are seen and have a place in the cache."""
        chain, places = self.chain, self.places()
        inside = integers(chain, "Min", integers(chain, "Max", places, 0), self.room - 1)
        conditions = [integers(chain, "Equal", places, inside)]
        if self.last and self.causal and self.count > 1:
            conditions.append(chain.array(np.tri(self.count, dtype=np.bool_)[None, None], None))
        if self.end and not self.last:
            conditions.append(self._new_before(self.end))
        if self.first:
            conditions.append(truths(chain, "Not", self._new_before(self.first)))
        return _all(chain, conditions)

    def _new_before(self, bound: str) -> str:
        """Truth values [item, 1, 1 or row, new key]: whether its place is before a bound."""
        if self.each:
            return integers(self.chain, "Less", self.each, bound)
        return steps(self.chain, integers(self.chain, "Sub", bound, self.begin), self.count)


def _all_lines(chain: Chain, truth: str) -> str:
    """Truth values [1, 1, 1, column] that hold where those of all lines [1, 1, line, column] do."""
    if not chain.computed(truth):
        return chain.array(np.asarray(chain.constants[truth].all(2, keepdims=True)), None)
    wrong = chain.add("Cast", truths(chain, "Not", truth), settings=(("to", FLOAT),), dtype=FLOAT)
    shape, settings = (1, 1, 1, chain.shape(truth)[3]), (("axes", (2,)), ("keepdims", 1))
    most = chain.add("ReduceMax", wrong, shape=shape, settings=settings, dtype=FLOAT)
    return truths(chain, "Not", chain.add("Cast", most, settings=(("to", BOOL),), dtype=BOOL))


def _numbers(rows: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.arange(rows)[:, None]


def _all(chain: Chain, conditions: list[str]) -> str:
    """Truth values that hold where all conditions do."""
    seen = conditions[0]
    for condition in conditions[1:]:
        seen = truths(chain, "And", seen, condition)
    return seen
