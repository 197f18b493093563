"""Rotary embeddings as products and sums, for targets that do not want them whole.

    RotaryEmbedding(x, cos, sin)  -->  x * C + exchanged(x) * S      C = (cos, cos), S = (-sin, sin)

`exchanged` has the second half of the elements of a head before the first; where they are interleaved, each of a pair
in the place of the other, and C and S have pairs. The sign lies in S, so that nothing is negated at run time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dsa_sched.frontend.decomposition.attention import IN_FORM
from dsa_sched.frontend.network.chain import Chain, Rule, Shape
from dsa_sched.frontend.network.network import Array, Node
from dsa_sched.frontend.network.terms import Term, number


def _as_one(chain: Chain, node: Node) -> bool:
    """Keep one node, with heads apart, and cosines and sines for each row."""
    x, shape, heads = node.inputs[0], chain.shape(node.inputs[0]), node.integer("num_heads", 0)
    flat = len(shape) == 3
    if flat and (heads < 1 or shape[2] % heads):
        return False
    if flat:
        batch, rows, width = shape
        x = chain.add("Reshape", x, shape=(batch, rows, heads, width // heads))
        turned = (batch, heads, rows, width // heads)
        x = chain.add("Transpose", x, shape=turned, settings=(("perm", (0, 2, 1, 3)),))
    size = node.integer("rotary_embedding_dim", 0) or chain.shape(x)[3]
    tables = [_table(chain, node, position, size // 2, by_head=True) for position in (1, 2)]
    if not all(tables) or size % 2 or size > chain.shape(x)[3]:
        return False
    settings = ((IN_FORM, 1), ("interleaved", node.integer("interleaved", 0)), ("rotary_embedding_dim", size))
    result = chain.add("RotaryEmbedding", x, *tables, shape=chain.shape(x), settings=settings)
    if flat:
        back = (shape[0], shape[1], heads, shape[2] // heads)
        chain.add(
            "Reshape", chain.add("Transpose", result, shape=back, settings=(("perm", (0, 2, 1, 3)),)), shape=shape
        )
    return True


def _rotary(chain: Chain, node: Node) -> bool:
    x, shape = node.inputs[0], chain.shape(node.inputs[0])
    heads = node.integer("num_heads", 0)
    if len(shape) == 3:
        if heads < 1 or shape[2] % heads:
            return False
        batch, rows, width = shape
        x = chain.add("Reshape", x, shape=(batch, rows, heads, width // heads))
    by_head = len(shape) == 4  # the axis of heads is 1, else 2
    size = chain.shape(x)[3]
    turned = node.integer("rotary_embedding_dim", 0) or size
    tables = [_table(chain, node, position, turned // 2, by_head) for position in (1, 2)]
    if turned % 2 or turned > size or not all(tables):
        return False
    kept = _part(chain, x, turned, size) if turned < size else ""
    x = _part(chain, x, 0, turned) if turned < size else x
    interleaved = bool(node.integer("interleaved", 0))
    cosines, sines = tables
    sines_below = _negated(chain, sines)
    straight = chain.add("Mul", x, _joined(chain, cosines, cosines, interleaved))
    across = chain.add("Mul", _exchanged(chain, x, interleaved), _joined(chain, sines_below, sines, interleaved))
    result = chain.add("Add", straight, across)
    if kept:
        result = _concat(chain, result, kept)
    if len(shape) == 3:
        chain.add("Reshape", result, shape=shape)
    return True


def _table(chain: Chain, node: Node, position: int, width: int, by_head: bool) -> str:
    """Cosines or sines as (batch, 1, row, half) or (batch, row, 1, half); empty where they do not fit."""
    name, places = node.inputs[position], node.input(3)
    given = chain.shape(node.inputs[0])
    rows = given[2] if len(given) == 4 else given[1]
    if places:
        name = _picked(chain, name, places)
    shape = chain.shape(name)
    if len(shape) != 3 or shape[1:] != (rows, width):
        return ""
    spread = (shape[0], 1, rows, width) if by_head else (shape[0], rows, 1, width)
    array = _constant(chain, name)
    if array is None:
        return chain.add("Reshape", name, shape=spread)
    return chain.array(array.reshape(spread), _term(chain, name).reshape(*spread))


def _picked(chain: Chain, table: str, places: str) -> str:
    """The rows of a table at these places."""
    array, indices = _constant(chain, table), _constant(chain, places)
    shape = (*chain.shape(places), *chain.shape(table)[1:])
    if array is None or indices is None or len(shape) != 3:
        return chain.add("Gather", table, places, shape=shape, settings=(("axis", 0),))
    flat = tuple(int(place) % len(array) for place in indices.reshape(-1))
    return chain.array(array[list(flat)].reshape(shape), _term(chain, table).take(flat).reshape(*shape))


def _constant(chain: Chain, name: str) -> Array | None:
    return chain.constants[name] if name in chain.constants else chain.network.constants.get(name)


def _term(chain: Chain, name: str) -> Term:
    return chain.terms[name] if name in chain.terms else chain.network.term(name)


def _negated(chain: Chain, name: str) -> str:
    array = _constant(chain, name)
    return (
        chain.add("Neg", name)
        if array is None
        else chain.array(np.negative(array.astype(np.float64)), _term(chain, name) * number(-1))
    )


def _joined(chain: Chain, first: str, second: str, interleaved: bool) -> str:
    """Two tables side by side, or element by element."""
    shape = chain.shape(first)
    joined = (*shape[:-1], 2 * shape[-1])
    a, b = _constant(chain, first), _constant(chain, second)
    if a is None or b is None:
        if not interleaved:
            return _concat(chain, first, second)
        split = (*shape, 1)
        pairs = _concat(chain, *(chain.add("Reshape", name, shape=split) for name in (first, second)))
        return chain.add("Reshape", pairs, shape=joined)
    axis = -1 if interleaved else -2
    stacked = np.stack([a, b], axis).reshape(joined)
    return chain.array(stacked, _stacked(_term(chain, first), _term(chain, second), shape, interleaved))


def _stacked(first: Term, second: Term, shape: Shape, interleaved: bool) -> Term:
    """Both terms side by side: each next to zeros, and their sum."""
    rank, width = len(shape), shape[-1]
    split = (*shape, 1) if interleaved else (*shape[:-1], 1, width)
    axis = rank if interleaved else rank - 1
    counts = [0] * (rank + 1)
    counts[axis] = 1
    left = first.reshape(*split).pad(*counts)
    right = second.reshape(*split).pad(*counts)
    order = tuple(range(rank + 1))
    to_front = (axis, *(a for a in order if a != axis))
    back = tuple(to_front.index(a) for a in order)
    moved = right.transpose(*to_front).take((1, 0)).transpose(*back)
    return (left + moved).reshape(*shape[:-1], 2 * width)


def _exchanged(chain: Chain, x: str, interleaved: bool) -> str:
    shape = chain.shape(x)
    half = shape[-1] // 2
    if not interleaved:
        return _concat(chain, _part(chain, x, half, 2 * half), _part(chain, x, 0, half))
    pairs = chain.add("Reshape", x, shape=(*shape[:-1], half, 2))
    swapped = _concat(chain, _part(chain, pairs, 1, 2), _part(chain, pairs, 0, 1))
    return chain.add("Reshape", swapped, shape=shape)


def _part(chain: Chain, x: str, start: int, end: int) -> str:
    """Elements from `start` to `end` of the last axis."""
    shape = chain.shape(x)
    settings = (("axes", (len(shape) - 1,)), ("ends", (end,)), ("starts", (start,)))
    return chain.add("Slice", x, shape=(*shape[:-1], end - start), settings=settings)


def _concat(chain: Chain, first: str, second: str) -> str:
    shape = chain.shape(first)
    joined = (*shape[:-1], shape[-1] + chain.shape(second)[-1])
    return chain.add("Concat", first, second, shape=joined, settings=(("axis", len(shape) - 1),))


ROTARY: Mapping[str, Rule] = {"RotaryEmbedding": _rotary}
"""Rule for rotary embeddings; where it returns False, the node is refused by its own name."""

ROTARY_WHOLE: Mapping[str, Rule] = {"RotaryEmbedding": _as_one}
"""Rule for rotary embeddings that are wanted whole."""

ROTARY_LIMITS: Mapping[str, str] = {
    "RotaryEmbedding": "heads and turned elements must divide, and tables be of (batch, rows, half), or rows of half "
    "that places name"
}
"""Text for the user where the rule returns False."""
