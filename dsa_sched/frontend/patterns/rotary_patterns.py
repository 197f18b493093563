"""Rotary embeddings that a file spells out, found again as the operators that they are.

    x * cos + Concat(-x[half:], x[:half]) * sin  -->  RotaryEmbedding(x, cos, sin)

x is (batch, head, row, element), or (batch, row, head, element); cosines and sines are constants, equal for both halves
of a head and for all heads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsa_sched.frontend.network.chain import Chain, Settings, Shape
from dsa_sched.frontend.network.network import Array, Network, Node
from dsa_sched.frontend.network.terms import Term
from dsa_sched.frontend.patterns.pattern_search import Match, made_for, reader_of


def rotary_matches(network: Network) -> Iterator[Match]:
    for node in network.nodes:
        if node.op_type == "Concat" and len(node.inputs) == 2:
            found = _rotary(network, node)
            if found is not None:
                yield found


def _rotary(network: Network, turned: Node) -> Match | None:
    """The embedding around the halves of x in exchanged order."""
    x = _exchanged(network, turned)
    across = reader_of(network, turned.outputs[0], "Mul") if x else None
    end = reader_of(network, across.outputs[0], "Add") if across is not None else None
    if across is None or end is None or end.inputs[0] == end.inputs[1]:
        return None
    straight = made_for(network, next(name for name in end.inputs if name != across.outputs[0]), "Mul")
    sines = _other(across, turned.outputs[0])
    cosines = _other(straight, x) if straight is not None and x in straight.inputs else ""
    tables = [network.constants.get(name) for name in (cosines, sines)]
    shape = network.shape(x)
    if network.known_shape(end.outputs[0]) != shape:
        return None
    for by_head in (True, False):
        found = [_table(array, shape, by_head=by_head) for array in tables if array is not None]
        known = [table for table in found if table is not None]
        if len(known) == 2:
            terms = [_half(network.term(name), tables[i], shape) for i, name in enumerate((cosines, sines))]
            return Match(end, lambda chain, by_head=by_head, known=known, terms=terms: _write(  # type: ignore[misc]
                chain, x, shape, known, terms, by_head
            ))  # fmt: skip
    return None


def _exchanged(network: Network, turned: Node) -> str:
    """The x whose second half, negated, comes before its first; empty where it is another concatenation."""
    negated = made_for(network, turned.inputs[0], "Neg")
    if negated is None:
        return ""
    ends = [_half_of(network, name) for name in (negated.inputs[0], turned.inputs[1])]
    shape = network.known_shape(ends[0][0])
    if ends[0][0] != ends[1][0] or not shape or len(shape) != 4 or shape[3] % 2:
        return ""
    last = turned.integer("axis", 0) % 4 == 3
    return ends[0][0] if last and (ends[0][1], ends[1][1]) == (shape[3] // 2, 0) else ""


def _half_of(network: Network, name: str) -> tuple[str, int]:
    """The value of which this is one half along the last axis, and where it begins; or empty."""
    node, part = made_for(network, name, "Slice", "Split"), network.known_shape(name)
    whole = network.known_shape(node.inputs[0]) if node is not None else None
    if node is None or not whole or not part or whole[-1] != 2 * part[-1] or whole[:-1] != part[:-1]:
        return "", 0
    if node.op_type == "Split":
        last = node.integer("axis", 0) % len(whole) == len(whole) - 1
        return (
            (node.inputs[0], list(node.outputs).index(name) * part[-1]) if last and len(node.outputs) == 2 else ("", 0)
        )
    given = [network.constants.get(node.input(position)) for position in (1, 3, 4)]
    starts, axes, steps = (None if array is None else [int(v) for v in array.reshape(-1)] for array in given)
    if starts is None or axes is None or len(axes) != 1 or axes[0] % len(whole) != len(whole) - 1:
        return "", 0
    if (node.input(4) and steps is None) or (steps or [1]) != [1]:
        return "", 0
    return node.inputs[0], starts[0] + whole[-1] if starts[0] < 0 else starts[0]


def _other(node: Node, name: str) -> str:
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def _table(array: Array, shape: Shape, *, by_head: bool) -> Array | None:
    """Cosines or sines as (batch, row, half); None where heads or halves differ, or rows are not those of x."""
    own = (1,) * (4 - array.ndim) + array.shape
    rows, heads = (2, 1) if by_head else (1, 2)
    half = shape[3] // 2
    if array.ndim > 4 or array.dtype.kind != "f" or own[heads] != 1 or own[rows] != shape[rows] or own[3] != shape[3]:
        return None
    if own[0] not in (1, shape[0]):
        return None
    plain = array.reshape(own[0], shape[rows], shape[3])
    if not np.array_equal(plain[..., :half], plain[..., half:]):
        return None
    return np.broadcast_to(plain[..., :half], (shape[0], shape[rows], half)).copy()


def _half(term: Term, array: Array | None, shape: Shape) -> Term:
    """Derivation of the first halves of all rows from the term of a table: by (batch, row)."""
    assert array is not None
    rows = array.size // shape[3]
    turned = term.reshape(rows, shape[3]).transpose(1, 0).take(tuple(range(shape[3] // 2)))
    return turned.transpose(1, 0)


def _write(chain: Chain, x: str, shape: Shape, tables: list[Array], terms: list[Term], by_head: bool) -> None:
    names = [
        chain.array(table, term.reshape(-1, *table.shape[1:]).broadcast(*table.shape))
        for table, term in zip(tables, terms, strict=True)
    ]
    if by_head:
        chain.add("RotaryEmbedding", x, *names, shape=shape)
        return
    batch, rows, heads, size = shape
    settings: Settings = (("num_heads", heads),)
    flat = chain.add("Reshape", x, shape=(batch, rows, heads * size))
    result = chain.add("RotaryEmbedding", flat, *names, shape=(batch, rows, heads * size), settings=settings)
    chain.add("Reshape", result, shape=shape)
