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
from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.terms import Term


def _as_one(chain: Chain, node: Node) -> bool:
    """Keep one node, with heads apart, and cosines and sines for each row."""
    x, shape, heads = node.inputs[0], chain.shape(node.inputs[0]), node.integer("num_heads", 0)
    flat = len(shape) == 3
    if flat and (heads < 1 or shape[2] % heads):
        return False
    x = chain.split_heads(x, heads) if flat else x
    size = node.integer("rotary_embedding_dim", 0) or chain.shape(x)[3]
    tables = [_table(chain, node, position, size // 2, by_head=True) for position in (1, 2)]
    if not all(tables) or size % 2 or size > chain.shape(x)[3]:
        return False
    settings = ((IN_FORM, 1), ("interleaved", node.integer("interleaved", 0)), ("rotary_embedding_dim", size))
    result = chain.add("RotaryEmbedding", x, *tables, shape=chain.shape(x), settings=settings)
    if flat:
        chain.join_heads(result)
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
    rotated = node.integer("rotary_embedding_dim", 0) or size
    tables = [_table(chain, node, position, rotated // 2, by_head) for position in (1, 2)]
    if rotated % 2 or rotated > size or not all(tables):
        return False
    kept = chain.part(x, 3, rotated, size) if rotated < size else ""
    x = chain.part(x, 3, 0, rotated) if rotated < size else x
    interleaved = bool(node.integer("interleaved", 0))
    cosines, sines = tables
    known = chain.traced(sines)
    negated = chain.add("Neg", sines) if known is None else chain.store(-known)
    straight = chain.add("Mul", x, _joined(chain, cosines, cosines, interleaved))
    across = chain.add("Mul", _exchanged(chain, x, interleaved), _joined(chain, negated, sines, interleaved))
    result = chain.add("Add", straight, across)
    if kept:
        result = chain.concatenated(result, kept, axis=3)
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
    return chain.reshaped(name, *spread)


def _picked(chain: Chain, table: str, places: str) -> str:
    """The rows of a table at these places."""
    known, indices = chain.traced(table), chain.traced(places)
    shape = (*chain.shape(places), *chain.shape(table)[1:])
    if known is None or indices is None or len(shape) != 3:
        return chain.add("Gather", table, places, shape=shape, settings=(("axis", 0),))
    rows = [int(place) % known.shape[0] for place in indices.array.reshape(-1)]
    return chain.store(known.take(rows).reshape(*shape))


def _joined(chain: Chain, first: str, second: str, interleaved: bool) -> str:
    """Two tables side by side, or element by element."""
    shape = chain.shape(first)
    joined = (*shape[:-1], 2 * shape[-1])
    a, b = chain.traced(first), chain.traced(second)
    if a is None or b is None:
        if not interleaved:
            return chain.concatenated(first, second, axis=len(shape) - 1)
        split = (*shape, 1)
        pairs = chain.concatenated(
            *(chain.add("Reshape", name, shape=split) for name in (first, second)), axis=len(shape)
        )
        return chain.add("Reshape", pairs, shape=joined)
    axis = len(shape) if interleaved else len(shape) - 1
    stacked = np.stack([a.array, b.array], axis).reshape(joined)
    return chain.array(stacked, _stacked(a.term, b.term, shape, axis).reshape(*joined))


def _stacked(first: Term, second: Term, shape: Shape, axis: int) -> Term:
    """Both terms along a new axis: each next to zeros, and their sum."""
    split, order = (*shape[:axis], 1, *shape[axis:]), tuple(range(len(shape) + 1))
    counts = tuple(int(a == axis) for a in order)
    to_front = (axis, *(a for a in order if a != axis))
    back = tuple(to_front.index(a) for a in order)
    moved = second.reshape(*split).pad(*counts).transpose(*to_front).take((1, 0)).transpose(*back)
    return first.reshape(*split).pad(*counts) + moved


def _exchanged(chain: Chain, x: str, interleaved: bool) -> str:
    shape = chain.shape(x)
    half = shape[3] // 2
    if not interleaved:
        return chain.concatenated(chain.part(x, 3, half, 2 * half), chain.part(x, 3, 0, half), axis=3)
    pairs = chain.add("Reshape", x, shape=(*shape[:3], half, 2))
    swapped = chain.concatenated(chain.part(pairs, 4, 1, 2), chain.part(pairs, 4, 0, 1), axis=4)
    return chain.add("Reshape", swapped, shape=shape)


ROTARY: Mapping[str, Rule] = {"RotaryEmbedding": _rotary}
"""Rule for rotary embeddings; where it returns False, the node is refused by its own name."""

ROTARY_WHOLE: Mapping[str, Rule] = {"RotaryEmbedding": _as_one}
"""Rule for rotary embeddings that are wanted whole."""

ROTARY_LIMITS: Mapping[str, str] = {
    "RotaryEmbedding": "the width must be a multiple of the number of heads, the number of rotated elements even, "
    "and the tables [batch, rows, half], or [positions, half] with position_ids"
}
"""Text for the user where the rule returns False."""
