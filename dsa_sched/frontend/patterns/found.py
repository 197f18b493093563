"""Operators that a network has as such or spells out, counted for the reader of an explanation.

(Found("gelu1", "GELU", spelled=True), ...)  -->  found: 12 LayerNorm, 12 GELU, 6 attention
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from dsa_sched.frontend.network.network import Found, Network, Node
from partitioner.ir.decisions import Decision

SUBJECT = "operators"
"""Subject of the decision that counts them."""

QUICK = 1.702
"""Factor before the sigmoid at which x * Sigmoid(factor * x) is close to a GELU."""

TOLERANCE = 1e-3

LABELS = {
    "LayerNormalization": "LayerNorm",
    "RMSNormalization": "RMSNorm",
    "Gelu": "GELU",
    "Swish": "SiLU",
    "Mish": "Mish",
    "Attention": "attention",
    "RotaryEmbedding": "rotary embedding",
}
"""Operators that are counted, in this order, with their words for a reader."""


def recorded(network: Network, spelled: Collection[str]) -> tuple[Found, ...]:
    """All nodes that are counted, in order; `spelled` names those that the file has as several nodes. A node that got a
    view after it has a new name (`node::1`).
    """
    return tuple(
        Found(own, label, own in spelled)
        for node in network.nodes
        if (label := _label(node)) and (own := _own(node.name, spelled))
    )


def _own(name: str, spelled: Collection[str]) -> str:
    before = name.rpartition("::")[0]
    return before if before in spelled else name


def _label(node: Node) -> str:
    quick = node.op_type == "Swish" and abs(node.number("alpha", 1.0) - QUICK) <= TOLERANCE * QUICK
    return "quick GELU" if quick else LABELS.get(node.op_type, "")


def counts(found: Iterable[Found]) -> dict[str, int]:
    """Number of each of them, in the order of the table."""
    numbers = Counter(each.label for each in found)
    return {label: numbers[label] for label in (*LABELS.values(), "quick GELU") if numbers[label]}


def decisions(network: Network) -> Iterator[Decision]:
    """Decision with the numbers of operators, those of rewrites, then one for each operator that the file spells out.
    Nothing if there are none."""
    spelled = [each for each in network.found if each.spelled]
    if network.found:
        reason = f"spelled out in the file: {_text(counts(spelled))}" if spelled else "each one node of the file"
        yield Decision(SUBJECT, f"found: {_text(counts(network.found))}", reason)
    yield from network.decisions
    for each in spelled:
        yield Decision(each.name, f"found: {each.label}", "replaces the nodes by which the file spells it out")


def _text(numbers: dict[str, int]) -> str:
    return ", ".join(f"{count} {label}" for label, count in numbers.items())
