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

SCALED, WHOLE, DIVIDED, RAISED = "sum of squares", "logarithm or power", "root of squares", "guard of a division"

RANGED = {
    SCALED: "on lines that are scaled by a power of two, so that no square leaves the range of fp16",
    WHOLE: "with what it is of, so that values in between may leave the range of fp16",
    DIVIDED: "of what is squared over the largest magnitude, so that no square leaves the range of fp16",
    RAISED: "raised, since fp16 has no normal number as small",
}
"""Operators that rules of `ranges/` rewrite, and how."""


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


def decisions(found: tuple[Found, ...]) -> Iterator[Decision]:
    """Decision with their numbers, then one for each that the file spells out. Nothing if there are none."""
    ranged = [each for each in found if each.label in RANGED]
    operators = [each for each in found if each.label not in RANGED and not each.reason]
    if operators:
        spelled = counts(each for each in operators if each.spelled)
        reason = f"spelled out in the file: {_text(spelled)}" if spelled else "each one node of the file"
        yield Decision(SUBJECT, f"found: {_text(counts(operators))}", reason)
    for each in ranged:
        yield Decision(each.name, f"kept in range: {each.label}", RANGED[each.label])
    for each in found:
        if each.reason:
            yield Decision(each.name, each.label, each.reason)
    for each in operators:
        if each.spelled:
            yield Decision(each.name, f"found: {each.label}", "replaces the nodes by which the file spells it out")


def _text(numbers: dict[str, int]) -> str:
    return ", ".join(f"{count} {label}" for label, count in numbers.items())
