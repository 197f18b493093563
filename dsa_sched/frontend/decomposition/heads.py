"""Attention as one operator over heads side by side, for a target that has a kernel for it.

    Transpose(Reshape(x)) -> Attention -> Transpose -> Reshape  -->  Attend(x, k, v, mask)    all of (item, row, column)
    CachedAttention  -->  Attend(x, past k, past v, mask, k, v, mask)    k and v stay (item, head, row, element)

A head is a range of columns, so that neither splitting nor joining heads moves anything; operands that the file has by
head, with an axis of heads, stay so. Several heads of q may share one of k and v. The mask is numbers that are added to
the scores; other features of attention (a cap, a fill, rows that are zeros where they see nothing, if that depends on
the head) are left to `attention.py`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf, sqrt

from dsa_sched.frontend.decomposition.attention import ATTENTION, CACHED, FILL
from dsa_sched.frontend.decomposition.attention_bias import HELD, PAST, Bias, bias_of
from dsa_sched.frontend.network.chain import BY_ROW, Chain, Rule, Shape
from dsa_sched.frontend.network.matching import matches, op
from dsa_sched.frontend.network.network import ATTEND, CACHED_ATTENTION, Network, Node
from partitioner.ir.wants import Wants

JOINED = op("Reshape", op("Transpose", op("Transpose", op("Reshape", op(ATTEND, name="flat")))))


def attending(wants: Wants) -> Rule:
    """The rule for an attention. Those that a target does not want so, and that the operator cannot express, are taken
    apart.
    """
    return _or_apart(partial(_attend, wants=wants), ATTENTION["Attention"])


def attending_in_parts(wants: Wants) -> Rule:
    """As `attending`, for attention to new and past keys."""
    return _or_apart(partial(_attend_in_parts, wants=wants), CACHED[CACHED_ATTENTION])


def _or_apart(first: Rule, apart: Rule) -> Rule:
    def rule(chain: Chain, node: Node) -> bool:
        if first(chain, node):
            return True
        for written in (chain.nodes, chain.values, chain.constants, chain.terms):
            written.clear()
        return apart(chain, node)

    return rule


def _is_wanted(wants: Wants, keys: int, size: int, width: int) -> bool:
    """Whether heads of so many keys, with these elements of a row of k and of v, are wanted in one operator."""
    few = not wants.attention_elements or keys * (size + width) <= wants.attention_elements
    return few and max(size, width) <= wants.attention_width


def _attend_in_parts(chain: Chain, node: Node, *, wants: Wants) -> bool:
    q, k, v, past_k, past_v, added, past_added, seen = node.inputs
    by_head, groups, width = chain.shape(q), chain.shape(k)[1], chain.shape(v)[3]
    keys = chain.shape(k)[2] + chain.shape(past_k)[2]
    if node.number("softcap", 0.0) or node.integer(HELD, 0) or not _is_wanted(wants, keys, by_head[3], width):
        return False
    if chain.shape(seen)[1] > 1 or by_head[1] // groups * by_head[2] < wants.attention_rows:
        return False
    parts = ((past_k, past_v, past_added), (k, v, added))
    masks = [_spread(chain, mask, chain.shape(keys)[2]) for keys, _, mask in parts]
    if not all(masks):
        return False
    operands = [name for (keys, values, _), mask in zip(parts, masks, strict=True) for name in (keys, values, mask)]
    items, heads, rows, size = by_head
    settings = (("heads", heads), ("groups", groups), ("parts", 2), ("scale", node.number("scale", 1 / sqrt(size))))
    shape = (items, rows, heads * width)
    result = chain.add(ATTEND, _as_it_lies(chain, q, by_head), *operands, shape=shape, settings=settings)
    result = chain.add("Mul", result, _by_row(chain, seen))
    split = chain.add("Reshape", result, shape=(items, rows, heads, width))
    chain.add("Transpose", split, shape=(items, heads, rows, width), settings=(("perm", BY_ROW),))
    return True


def _attend(chain: Chain, node: Node, *, wants: Wants) -> bool:
    if any([*node.inputs[4:], *node.outputs[1:]]) or node.number("softcap", 0.0) or node.number(FILL, -inf) != -inf:
        return False
    counts = [node.integer(name, 0) for name in ("q_num_heads", "kv_num_heads")]
    sizes = [_by_head(chain.shape(name), heads) for name, heads in zip(node.inputs, (*counts, counts[1]), strict=False)]
    q, k, v = (size or (0, 0, 0, 0) for size in sizes[:3])
    fits = q[0] == k[0] > 0 and k[:3] == v[:3] and q[3] == k[3] and q[1] % k[1] == 0
    if not fits or not _is_wanted(wants, k[2], k[3], v[3]):
        return False
    first_sees = _first_sees(node) if wants.attention_by_place else 0
    bias = Bias() if first_sees else bias_of(chain, node, (*q[:3], k[2]))
    if bias is None or bias.held:
        return False
    mask = _spread(chain, bias.added, k[2])
    seen = _spread(chain, bias.seen, 1)
    if (bias.added and not mask) or (seen and chain.shape(seen)[1] > 1):
        return False
    flat = [_as_it_lies(chain, name, size) for name, size in zip(node.inputs, (q, k, v), strict=False)]
    settings = (("heads", q[1]), ("groups", k[1]), ("scale", node.number("scale", 1 / sqrt(q[3]))))
    settings = (*settings, *((("first_sees", first_sees),) if first_sees else ()))
    shape = (q[0], q[2], q[1] * v[3])
    result = chain.add(ATTEND, *flat, *filter(None, (mask,)), shape=shape, settings=settings)
    if seen:
        result = chain.add("Mul", result, _by_row(chain, seen))
    if len(chain.shape(node.outputs[0])) == 4:
        split = chain.add("Reshape", result, shape=(q[0], q[2], q[1], v[3]))
        chain.add("Transpose", split, shape=(*q[:3], v[3]), settings=(("perm", BY_ROW),))
    return True


def _first_sees(node: Node) -> int:
    """Number of keys that the first row sees where each row sees one more than the row before, and nothing else hides
    any; 0 for other masks."""
    right = 0 if node.integer("is_causal", 0) else node.integer("right_window_size", -1)
    alone = not node.input(3) and node.integer("left_window_size", -1) < 0
    return max(0, node.integer(PAST, 0) + right + 1) if alone and right >= 0 else 0


def _by_row(chain: Chain, seen: str) -> str:
    """Factors per item and row, [item, 1, row, 1], as (item, row, column)."""
    items, _, rows, _ = chain.shape(seen)
    return _reshaped(chain, seen, (items, rows, 1))


def _by_head(shape: Shape, heads: int) -> Shape | None:
    """(item, head, row, element) of an operand."""
    if len(shape) == 4:
        return shape
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        return None
    return shape[0], heads, shape[1], shape[2] // heads


def _spread(chain: Chain, name: str, columns: int) -> str:
    """The mask with four axes, the last of `columns`; empty if there is none, or its last axis has another extent."""
    shape = chain.shape(name) if name else ()
    if not shape or shape[-1] != columns or len(shape) > 4:
        return ""
    return _reshaped(chain, name, (1,) * (4 - len(shape)) + shape)


def _reshaped(chain: Chain, name: str, shape: Shape) -> str:
    """Reshape a constant directly, a computed value by a node."""
    if chain.shape(name) == shape:
        return name
    if name in chain.constants:
        term = chain.terms.get(name)
        return chain.array(chain.constants[name].reshape(shape), term.reshape(*shape) if term is not None else None)
    if name in chain.network.constants:
        return chain.array(chain.network.constants[name].reshape(shape), chain.network.term(name).reshape(*shape))
    return chain.add("Reshape", name, shape=shape)


def _as_it_lies(chain: Chain, name: str, by_head: Shape) -> str:
    """The operand as (item, row, column) where it lies so before its heads are split, else as (item, head, row,
    element)."""
    items, heads, rows, element = by_head
    flat = (items, rows, heads * element)
    made = _producer(chain, name)
    if made is None or made.op_type != "Transpose" or made.integers("perm", ()) != BY_ROW:
        return name
    before = _producer(chain, made.inputs[0])
    if before is not None and before.op_type == "Reshape" and chain.shape(before.inputs[0]) == flat:
        return before.inputs[0]
    return chain.add("Reshape", made.inputs[0], shape=flat)


def _producer(chain: Chain, name: str) -> Node | None:
    return chain.network.producer.get(name) or next((node for node in chain.nodes if name in node.outputs), None)


def joined_heads(network: Network) -> Network:
    """Let the attention operator itself give the joined heads where the file joins them.

    Attend -> Reshape -> Transpose -> Transpose -> Reshape  -->  Attend, under the name of the last
    """
    ends: dict[str, list[Node]] = {}
    for node in network.nodes:
        for found in matches(network, JOINED, node.outputs[0]):
            by_row = all(transpose.integers("perm", ()) == BY_ROW for transpose in found.nodes[1:3])
            if by_row and network.shape(node.outputs[0]) == network.shape(found.values["flat"]):
                ends.setdefault(found.values["flat"], []).append(node)
    names, gone = dict[str, str](), set[str]()
    for flat, nodes in ends.items():
        outputs = [node for node in nodes if node.outputs[0] in network.outputs]
        joined = [*outputs[:1], *(node for node in nodes if node not in outputs)]  # one name can be kept
        names |= dict.fromkeys((flat, *(node.outputs[0] for node in joined)), joined[0].outputs[0])
        gone |= {node.name for node in joined}
    kept = (node.renamed(names) for node in network.nodes if node.name not in gone)
    return replace(network, nodes=tuple(kept))
