"""Attention as products, a softmax and the operators between, for targets that do not want it whole.

    Attention(q, k, v, mask)  -->  Softmax((q * scale) x k^T + mask) x v
    CachedAttention           -->  Softmax(Concat(scores of the past, scores of new keys)), two products with its parts

The scale is applied to q, the smallest of the three places, where its rounding errors average out in the sums; a power
of two is exact. Several heads of q that share one of k and v are rows of one product: nothing is copied. Masked scores
are minus infinity, as in ONNX.

A node may have settings that no file can give it: `unguarded` and `past` (`attention_bias.py`), and
`fill`: scores become this number where the condition, its fourth input, is not `kept`. A node that a target is given
whole has the setting `in_form`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt

from dsa_sched.frontend.decomposition.attention_bias import (
    HELD,
    PAST,
    UNGUARDED,
    Bias,
    added_mask,
    bias_of,
    spreads,
)
from dsa_sched.frontend.network.chain import Chain, Rule, Shape
from dsa_sched.frontend.network.network import CACHED_ATTENTION, Node

FILL, KEPT, IN_FORM = "fill", "kept", "in_form"
WINDOWS = ("is_causal", "left_window_size", "right_window_size")


def stays_whole(node: Node) -> bool:
    """Whether ONNX can express it as one node that keeps no keys."""
    return node.number(FILL, -inf) == -inf and not node.integer(UNGUARDED, 0) and not node.integer(PAST, 0)


def swapped(rank: int) -> Shape:
    """The permutation that exchanges the last two axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _attention(chain: Chain, node: Node) -> bool:
    if any([*node.inputs[4:], *node.outputs[1:]]) or len({chain.shape(name)[:1] for name in node.inputs[:3]}) != 1:
        return False
    heads = in_heads(chain, node)
    return heads is not None and _joined(chain, node, _attended(chain, node, *heads))


def _as_one(chain: Chain, node: Node) -> bool:
    """Keep one node, with operands by head, its scale and a mask that is added."""
    heads = None if any([*node.inputs[4:], *node.outputs[1:]]) else in_heads(chain, node)
    if heads is None:
        return False
    q, k, v = (chain.shape(name) for name in heads)
    if node.input(3) and not spreads(chain.shape(node.input(3)), (*q[:3], k[2])):
        return False
    mask = added_mask(chain, node.input(3))
    kept = tuple(item for item in node.settings if item[0] in WINDOWS)
    settings = (
        *kept,
        (IN_FORM, 1),
        ("scale", node.number("scale", 1 / sqrt(q[3]))),
        ("softcap", node.number("softcap", 0.0)),
    )
    inputs = (*heads, *filter(None, (mask,)))
    return _joined(chain, node, chain.add("Attention", *inputs, shape=(*q[:3], v[3]), settings=settings))


def _joined(chain: Chain, node: Node, result: str) -> bool:
    """The heads side by side again, where the node has them so."""
    if result and len(chain.shape(node.outputs[0])) == 3:
        chain.join_heads(result)
    return bool(result)


def in_heads(chain: Chain, node: Node) -> tuple[str, str, str] | None:
    """q, k and v as (batch, head, row, element); None where their shapes do not go together."""
    counts = [node.integer(name, 0) for name in ("q_num_heads", "kv_num_heads")]
    operands = []
    for name, heads in zip(node.inputs[:3], (counts[0], counts[1], counts[1]), strict=True):
        shape = chain.shape(name)
        if len(shape) == 3:
            if heads < 1 or shape[2] % heads:
                return None
            name = chain.split_heads(name, heads)
        operands.append(name)
    q, k, v = (chain.shape(name) for name in operands)
    fits = len(q) == len(k) == len(v) == 4 and q[3] == k[3] and k[:3] == v[:3] and k[1] > 0 and q[1] % k[1] == 0
    return (operands[0], operands[1], operands[2]) if fits else None


def _attended(chain: Chain, node: Node, q: str, k: str, v: str) -> str:
    """The values that each row attends to, by head; empty where the mask fits no scores."""
    own = _ByGroup.of(chain, node, q, k)
    scores = own.scores(k)
    bias = bias_of(chain, node, chain.shape(scores)) if node.number(FILL, -inf) == -inf else Bias()
    if bias is None:
        return ""
    weights = chain.add("Softmax", _masked(chain, node, scores, bias), settings=(("axis", 3),))
    result = own.by_head(own.values(weights, v))
    return chain.add("Mul", result, bias.seen) if bias.seen else result


def _cached(chain: Chain, node: Node) -> bool:
    """Attention to new and past keys that are not joined: only scores and weights are. What the mask of each adds to
    its scores and which rows see anything are operands."""
    q, k, v, past_k, past_v, added, past_added, seen = node.inputs
    own = _ByGroup.of(chain, node, q, k)
    held = bool(node.integer(HELD, 0))
    scores = [_masked(chain, node, own.scores(each), Bias(bias, held=held))
              for each, bias in ((past_k, past_added), (k, added))]  # fmt: skip
    weights = chain.add("Softmax", chain.concatenated(*scores, axis=3), settings=(("axis", 3),))
    border = chain.shape(past_k)[2]
    ends = (0, border, border + chain.shape(k)[2])
    products = [own.values(chain.part(weights, 3, start, end), each)
                for start, end, each in zip(ends, ends[1:], (past_v, v), strict=False)]  # fmt: skip
    chain.add("Mul", own.by_head(chain.add("Add", *products)), seen)
    return True


@dataclass(frozen=True, slots=True)
class _ByGroup:
    """Scaled q with the rows of all heads that share one of k and v together."""

    chain: Chain
    q: str
    heads: int
    rows: int
    groups: int

    @classmethod
    def of(cls, chain: Chain, node: Node, q: str, k: str) -> _ByGroup:
        (batch, heads, rows, width), groups = chain.shape(q), chain.shape(k)[1]
        scale = node.number("scale", 1 / sqrt(width))
        q = q if scale == 1.0 else chain.add("Mul", q, chain.number(scale))
        if heads != groups:
            q = chain.add("Reshape", q, shape=(batch, groups, heads // groups * rows, width))
        return cls(chain, q, heads, rows, groups)

    def scores(self, k: str) -> str:
        """[item, head, row, column]"""
        shape = (*self.chain.shape(self.q)[:3], self.chain.shape(k)[2])
        return self.by_head(self.chain.add("MatMul", self.q, transposed_keys(self.chain, k), shape=shape))

    def values(self, weights: str, v: str) -> str:
        """[item, group, row of each of its heads, element]"""
        batch, _, _, columns = self.chain.shape(weights)
        together = (batch, self.groups, self.heads // self.groups * self.rows)
        if self.heads != self.groups:
            weights = self.chain.add("Reshape", weights, shape=(*together, columns))
        return self.chain.add("MatMul", weights, v, shape=(*together, self.chain.shape(v)[3]))

    def by_head(self, x: str) -> str:
        if self.heads == self.groups:
            return x
        batch, *_, last = self.chain.shape(x)
        return self.chain.add("Reshape", x, shape=(batch, self.heads, self.rows, last))


def transposed_keys(chain: Chain, k: str) -> str:
    """k with its last two axes exchanged, by one transpose with the one that made it."""
    made = chain.network.producer.get(k) or next((node for node in chain.nodes if k in node.outputs), None)
    rank, perm = len(chain.shape(k)), swapped(len(chain.shape(k)))
    if made is not None and made.op_type == "Transpose":
        before = made.integers("perm", tuple(reversed(range(rank))))
        k, perm = made.inputs[0], tuple(before[axis] for axis in perm)
    if perm == tuple(range(rank)):
        return k
    shape = tuple(chain.shape(k)[axis] for axis in perm)
    return chain.add("Transpose", k, shape=shape, settings=(("perm", perm),))


def _masked(chain: Chain, node: Node, scores: str, bias: Bias) -> str:
    """The scores, capped where the node asks for it, with hidden ones far below."""
    cap, mask, fill = node.number("softcap", 0.0), node.input(3), node.number(FILL, -inf)
    if cap:
        scores = chain.add("Mul", chain.add("Tanh", chain.add("Mul", scores, chain.number(1 / cap))), chain.number(cap))
    if fill != -inf:
        choice = (scores, chain.number(fill)) if node.integer(KEPT, 1) else (chain.number(fill), scores)
        return chain.add("Where", mask, *choice, shape=chain.shape(scores))
    if bias.added:
        scores = chain.add("Add", scores, bias.added)
    return chain.add("Max", scores, chain.number(-chain.network.rounding.largest)) if bias.held else scores


ATTENTION: Mapping[str, Rule] = {"Attention": _attention}
"""Rule for attention; where it returns False, the node is refused by its own name."""

CACHED: Mapping[str, Rule] = {CACHED_ATTENTION: _cached}
"""Rule for attention to keys that are not joined, which no target wants whole."""

ATTENTION_WHOLE: Mapping[str, Rule] = {"Attention": _as_one}
"""Rule for attention that is wanted whole: one form for all that ONNX has."""

ATTENTION_LIMITS: Mapping[str, str] = {
    "Attention": "scores as an output, and lengths next to past keys, are not taken; heads of q, k and v must divide, "
    "and a mask must spread over the scores"
}
"""Text for the user where the rule returns False."""
