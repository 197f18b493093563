"""Attention over cached keys and values, writes into a cache, and rotations by place, as what is not bound to places.

    Attention(q, k, v, mask, past_k, past_v)  -->  Concat(past_k, k), Concat(past_v, v), Attention over both
    Attention(q, k, v, lengths = n)           -->  Attention whose mask hides the columns from n on
    TensorScatter(cache, update, place)       -->  Where(rows from `place` on, update there, cache)
    ScatterND(cache, places, rows)            -->  the same along the first axis, as PyTorch assigns to rows
    RotaryEmbedding(x, cos, sin, places)      -->  RotaryEmbedding(x, Gather(cos, places), Gather(sin, places))

Lengths and places are integers that the network may read at run time: masks are comparisons of them with constants, and
tables are looked up, so one program serves every length. This runs before integers are prepared
(`integers/preparation.py`). What a rule cannot express stays as it is, and is refused later by its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, prod
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.decomposition.attention import WINDOWS, in_heads
from dsa_sched.frontend.decomposition.attention_bias import PAST, spreads
from dsa_sched.frontend.decomposition.cached_attention import Masks, attention_apart, written_later
from dsa_sched.frontend.decomposition.in_place import require_pairs, writes_in_place
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.draft import rewritten
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.network.terms import number

BOOL, INT64 = int(onnx.TensorProto.BOOL), int(onnx.TensorProto.INT64)
COUNTS = ("q_num_heads", "kv_num_heads", "qk_matmul_output_mode")
"""Settings of attention that are not needed once heads are apart and only the result is made."""


def with_caches(network: Network, state: Mapping[str, str] = MappingProxyType({}), in_place: bool = False) -> Network:
    """The network without attention that keeps or limits its keys, and without writes into caches. With `in_place`,
    rows are written into caches in their place, if they are an input's next value as names say or `state` does as
    {output: input}. Raises ModelError for pairs that do not go together."""
    require_pairs(network, state)
    rules = {"Attention": _attention, "TensorScatter": _scatter, "RotaryEmbedding": _rotary, "ScatterND": _assigned}
    if not any(node.op_type in rules for node in network.nodes):
        return network
    writes, decided = writes_in_place(network, state) if in_place else ({}, [])
    masks: Masks = {}

    def write(chain: Chain, node: Node) -> bool:
        named = filter(None, (*node.inputs, *node.outputs[:1]))
        if not all(chain.network.known_shape(name) is not None for name in named):
            return False
        if node.outputs[0] in writes:
            return written_later(chain, writes[node.outputs[0]])
        if node.op_type == "Attention" and node.inputs[1] in writes:
            return attention_apart(chain, node, writes, masks)
        return node.op_type in rules and rules[node.op_type](chain, node)

    network = replace(network, decisions=(*network.decisions, *decided))
    network = rewritten(network, write, tag="cached::")
    return network.pruned() if writes else network


def _attention(chain: Chain, node: Node) -> bool:
    """Present keys and values as outputs of their own, and attention of four axes over them."""
    past, presents = (node.input(4), node.input(5)), (*node.outputs, "", "")[1:3]
    if any(node.outputs[3:]) or bool(past[0]) != bool(past[1]) or (past[0] and node.input(6)):
        return False
    heads = in_heads(chain, node)
    if heads is None or not (any((*past, *presents, node.input(6))) or _is_short(chain, node.input(3), heads[1])):
        return False
    q, *new = heads
    keys = [_appended(chain, *each) for each in zip(past, new, presents, strict=True)]
    if not all(keys):
        return False
    rows, columns = chain.shape(q)[2], chain.shape(keys[0])[2]
    settings = tuple(item for item in node.settings if item[0] not in COUNTS)
    mask = _padded(chain, node.input(3), columns)
    if past[0]:
        settings = (*settings, (PAST, chain.shape(past[0])[2]))
    if node.input(6):
        if chain.shape(node.inputs[6]) != chain.shape(q)[:1]:
            return False
        hides = _within(chain, node, rows, columns)
        mask = _both(chain, mask, hides, (*chain.shape(q)[:3], columns))
        settings = tuple(item for item in settings if item[0] not in WINDOWS)
        if not mask:
            return False
    operands = (q, *keys, *filter(None, (mask,)))
    result = chain.add("Attention", *operands, shape=(*chain.shape(q)[:3], chain.shape(keys[1])[3]), settings=settings)
    if len(chain.shape(node.outputs[0])) == 3:
        chain.join_heads(result)
    return True


def _appended(chain: Chain, past: str, new: str, present: str) -> str:
    """The rows of a cache and new ones after them, under the name of the output if there is one; empty where the two
    do not fit."""
    if not past:
        return chain.add("Identity", new, output=present) if present else new
    before, shape = chain.shape(past), chain.shape(new)
    if len(before) != 4 or (*before[:2], before[3]) != (*shape[:2], shape[3]):
        return ""
    joined = (*shape[:2], before[2] + shape[2], shape[3])
    return chain.add("Concat", past, new, shape=joined, settings=(("axis", 2),), output=present)


def _is_short(chain: Chain, mask: str, keys: str) -> bool:
    shape = chain.shape(mask) if mask else ()
    return bool(shape) and 0 < shape[-1] < chain.shape(keys)[2]


def _padded(chain: Chain, mask: str, columns: int) -> str:
    """A mask with a column for each key: those that it does not have are hidden."""
    shape = chain.shape(mask) if mask else ()
    missing = columns - shape[-1] if shape else 0
    if missing <= 0:
        return mask
    truth = _is_truth(chain, mask)
    beyond: npt.NDArray[np.generic] = np.full(
        (*shape[:-1], missing), False if truth else -inf, np.bool_ if truth else np.float32
    )
    hidden = chain.array(beyond, number(0 if truth else -inf).broadcast(*beyond.shape))
    return chain.add("Concat", mask, hidden, shape=(*shape[:-1], columns), settings=(("axis", len(shape) - 1),),
                     dtype=chain.network.values[mask].dtype)  # fmt: skip


def _within(chain: Chain, node: Node, rows: int, columns: int) -> str:
    """Truth values [item, 1, 1 or row, column]: which keys a row sees, of those that are in the cache. The last row
    stands at the last of them."""
    lengths = chain.add("Reshape", node.inputs[6], shape=(chain.shape(node.inputs[6])[0], 1, 1, 1), dtype=INT64)
    place = np.arange(columns)[None, :] - np.arange(rows)[:, None] + rows
    left, right = (node.integer(f"{side}_window_size", -1) for side in ("left", "right"))
    right = 0 if node.integer("is_causal", 0) else right
    seen = _compared(chain, "Less", np.arange(columns)[None, :], lengths)
    if right >= 0:  # column - row <= right + length - rows
        seen = _every(chain, seen, _compared(chain, "LessOrEqual", place - right, lengths))
    if left >= 0:
        seen = _every(chain, seen, _compared(chain, "GreaterOrEqual", place + left, lengths))
    return seen


def _compared(chain: Chain, op_type: str, places: npt.NDArray[np.int64], lengths: str) -> str:
    constant = chain.array(np.asarray(places, np.int64)[None, None], None)
    return chain.add(op_type, constant, lengths, dtype=BOOL)


def _every(chain: Chain, *truths: str) -> str:
    return chain.add("And", *truths, dtype=BOOL)


def _both(chain: Chain, mask: str, seen: str, scores: Shape) -> str:
    """A mask, and what it hides together with truth values; empty where the mask does not fit the scores."""
    if not mask:
        return seen
    if not spreads(chain.shape(mask), scores):
        return ""
    return _every(chain, mask, seen) if _is_truth(chain, mask) else chain.add("Where", seen, mask, chain.number(-inf))


def _is_truth(chain: Chain, mask: str) -> bool:
    return (chain.values.get(mask) or chain.network.values[mask]).dtype == BOOL


def _scatter(chain: Chain, node: Node) -> bool:
    """Rows of the second last axis from a place on, which may differ by item."""
    cache, update, places = (node.input(position) for position in range(3))
    shape, new = chain.shape(cache), chain.shape(update)
    rank = len(shape)
    if rank < 3 or len(new) != rank or (places and chain.shape(places) != shape[:1]):
        return False
    axis = node.integer("axis", -2) % rank
    if axis != rank - 2 or (*shape[:axis], shape[-1]) != (*new[:axis], new[-1]) or new[axis] > shape[axis]:
        return False
    if node.text("mode", "linear") != "linear":
        return False
    rows, count = shape[axis], new[axis]
    if not places:
        return _placed_first(chain, cache, update, axis)
    apart = (shape[0], *(1,) * (rank - 1))
    begins = chain.add("Reshape", places, shape=apart, dtype=INT64)
    place = np.arange(rows, dtype=np.int64)[:, None] - np.arange(count, dtype=np.int64)[None, :]
    at = chain.array(place.reshape(*(1,) * (rank - 2), rows, count), None)
    chosen = chain.add("Equal", at, begins, dtype=BOOL)
    moved, written = update, chosen
    if count > 1:
        ones = chain.add(
            "Cast", chosen, shape=chain.shape(chosen), settings=(("to", chain.network.values[cache].dtype),)
        )
        moved = chain.add("MatMul", ones, update, shape=shape)
        start = chain.array(np.arange(rows, dtype=np.int64).reshape(*(1,) * (rank - 2), rows, 1), None)
        since = chain.add("Sub", start, begins, dtype=INT64)
        least, most = (chain.array(np.array(bound, np.int64), None) for bound in (0, count))
        written = _every(
            chain,
            chain.add("GreaterOrEqual", since, least, dtype=BOOL),
            chain.add("Less", since, most, dtype=BOOL),
        )
    chain.add("Where", written, moved, cache, shape=shape)
    return True


def _assigned(chain: Chain, node: Node) -> bool:
    """Rows of the first axis at places, which count from the end where they are negative."""
    cache, indices, update = node.inputs[:3]
    shape, places = chain.shape(cache), chain.shape(indices)
    if len(places) != 2 or places[1] != 1 or node.text("reduction", "none") != "none" or len(shape) < 2:
        return False
    rows, count, apart = shape[0], places[0], (1,) * (len(shape) - 1)
    if not count or chain.shape(update) != (count, *shape[1:]):
        return False
    if not chain.computed(indices):
        return _assigned_first(chain, cache, update, chain.network.constants[indices].astype(np.int64).reshape(-1))
    place = chain.add("Reshape", indices, shape=(1, count), dtype=INT64)
    zero, end = (chain.array(np.array(bound, np.int64), None) for bound in (0, rows))
    from_end = chain.add("Less", place, zero, dtype=BOOL)
    place = chain.add("Where", from_end, chain.add("Add", place, end, dtype=INT64), place, dtype=INT64)
    numbers = chain.array(np.arange(rows, dtype=np.int64)[:, None], None)
    chosen = chain.add("Equal", numbers, place, dtype=BOOL)
    moved, written = update, chosen
    if count > 1:
        dtype = chain.network.values[cache].dtype
        ones = chain.add("Cast", chosen, settings=(("to", dtype),), dtype=dtype)
        flat = chain.reshaped(update, count, prod(shape[1:]))
        moved = chain.reshaped(chain.add("MatMul", ones, flat, shape=(rows, prod(shape[1:]))), *shape)
        counted = chain.add("Cast", chosen, settings=(("to", INT64),), dtype=INT64)
        settings = (("axes", (1,)), ("keepdims", 1))
        times = chain.add("ReduceMax", counted, shape=(rows, 1), settings=settings, dtype=INT64)
        written = chain.add("Greater", times, zero, dtype=BOOL)
    written = chain.add("Reshape", written, shape=(rows, *apart), dtype=BOOL)
    chain.add("Where", written, moved, cache, shape=shape)
    return True


def _assigned_first(chain: Chain, cache: str, update: str, places: npt.NDArray[np.int64]) -> bool:
    """Rows at constant places, the last of those that are written twice."""
    shape = chain.shape(cache)
    rows = shape[0]
    if places.min() < -rows or places.max() >= rows:
        return False
    order = np.arange(rows)
    order[places % rows] = rows + np.arange(len(places))
    both = chain.concatenated(cache, update, axis=0)
    chosen = chain.array(order, None)
    chain.add("Gather", both, chosen, shape=shape, settings=(("axis", 0),))
    return True


def _placed_first(chain: Chain, cache: str, update: str, axis: int) -> bool:
    """Without a place, the update comes first."""
    shape, count = chain.shape(cache), chain.shape(update)[axis]
    if count == shape[axis]:
        chain.add("Identity", update)
    else:
        chain.concatenated(update, chain.part(cache, axis, count, shape[axis]), axis=axis)
    return True


def _rotary(chain: Chain, node: Node) -> bool:
    """Rotation by tables of which computed places choose the rows."""
    places = node.input(3)
    if not places or not chain.computed(places):
        return False
    tables = []
    for table in node.inputs[1:3]:
        shape = (*chain.shape(places), *chain.shape(table)[1:])
        dtype = chain.network.values[table].dtype
        tables.append(chain.add("Gather", table, places, shape=shape, settings=(("axis", 0),), dtype=dtype))
    chain.add("RotaryEmbedding", node.inputs[0], *tables, shape=chain.shape(node.outputs[0]), settings=node.settings)
    return True
