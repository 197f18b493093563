"""Makers of truth values and of choices, each between values that are alike where the choice turns.

    g = Abs(x) - 1/2      Where(x > -1/2 and x < 1/2, g, 2 g)      or g * Cast(...)

What rounding moves over a threshold is then as near as what it moves elsewhere, and a wrong choice is not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from tests.fuzz.draft import FLOAT, Attribute, Draft, Maker

__all__ = ["MASKS"]

BOOL = int(TensorProto.BOOL)
THRESHOLD = 0.5
WITH_WHERE, WITH_NUMBERS = 9, 11
"""Versions from which there is Where, and from which Equal compares floating-point numbers."""

UNCHANGED = ("Identity", "Cast", "CastLike")


def _compared(draft: Draft, op_type: str, x: str, threshold: float) -> str:
    shape = draft.shapes[x]
    operands = [x, draft.number_constant(threshold, *draft.one_of((), (1,)))]
    return draft.add_other(op_type, operands, shape, BOOL)


def _distance(draft: Draft, x: str) -> str:
    """From the nearest threshold, below zero between the two."""
    shape = draft.shapes[x]
    return draft.add("Sub", [draft.add("Abs", [x], shape), draft.number_constant(THRESHOLD)], shape)


def _chosen(draft: Draft, truth: str, x: str) -> None:
    """Between two values that are zero together, by Where or by a product."""
    shape, g = draft.shapes[x], _distance(draft, x)
    if draft.opset >= WITH_WHERE and draft.flip():
        twice = draft.add("Mul", [g, draft.number_constant(2.0)], shape)
        draft.add("Where", [truth, g, twice] if draft.flip() else [truth, twice, g], shape)
    else:
        draft.add("Mul", [g, draft.add("Cast", [truth], shape, to=FLOAT)], shape)


def _between(draft: Draft, x: str) -> tuple[str, str]:
    """Is it above the lower threshold, and below the upper one?"""
    return _compared(draft, "Greater", x, -THRESHOLD), _compared(draft, "Less", x, THRESHOLD)


def _comparison(draft: Draft, op_type: str, x: str) -> bool:
    _chosen(draft, _compared(draft, op_type, x, draft.one_of(THRESHOLD, -THRESHOLD)), x)
    return True


def _equal(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if draft.opset >= WITH_NUMBERS and draft.flip():
        above = draft.add("Relu", [_distance(draft, x)], shape)
        truth = draft.add_other(op_type, [above, draft.number_constant(0.0)], shape, BOOL)
    else:
        truth = draft.add_other(op_type, _between(draft, x), shape, BOOL)
    _chosen(draft, truth, x)
    return True


def _connected(draft: Draft, op_type: str, x: str) -> bool:
    truths = list(_between(draft, x))
    if draft.number(0, 3) == 0:
        truths[1] = draft.constant(draft.random.integers(0, 2, draft.shapes[x][-1:]).astype(np.bool_))
    _chosen(draft, draft.add_other(op_type, truths, draft.shapes[x], BOOL), x)
    return True


def _not(draft: Draft, op_type: str, x: str) -> bool:
    truth = draft.add_other(op_type, [_compared(draft, "Less", x, THRESHOLD)], draft.shapes[x], BOOL)
    if draft.flip():
        truth = draft.add_other("Identity", [truth], draft.shapes[x], BOOL) if draft.opset >= 13 else truth
    _chosen(draft, truth, x)
    return True


def _may_be_softmax(draft: Draft) -> set[str]:
    """Results of a Softmax, perhaps of another type, from which choices may be refused."""
    found: set[str] = set()
    for node in draft.nodes:
        if node.op_type == "Softmax" or (node.op_type in UNCHANGED and node.input[0] in found):
            found.add(node.output[0])
    return found


def _where(draft: Draft, op_type: str, x: str) -> bool:
    """By a constant, from a number or from another value."""
    shape, refused = draft.shapes[x], _may_be_softmax(draft)
    if x in refused:
        return False
    mask = tuple(extent if draft.flip() else 1 for extent in shape)[draft.number(0, len(shape)) :]
    condition = draft.constant(np.asarray(draft.random.integers(0, 2, mask)).astype(np.bool_))
    other = draft.one_of(
        draft.number_constant(-1.5),
        draft.weights(*shape[-1:]),
        *(name for name in draft.like(shape) if name not in refused),
    )
    draft.add(op_type, [condition, x, other] if draft.flip() else [condition, other, x], shape)
    return True


def _guard(draft: Draft, op_type: str, x: str) -> bool:
    """As exporters guard a Softmax."""
    shape = draft.shapes[x]
    if not shape:
        return False
    scores = draft.add("Mul", [x, draft.number_constant(0.25)], shape)
    weights = draft.add("Softmax", [scores], shape, axis=len(shape) - 1)
    truth = draft.add_other(op_type, [weights], shape, BOOL)
    draft.add("Where", [truth, draft.number_constant(0.0), weights], shape)
    return True


def _triangle(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if len(shape) < 2:
        return False
    settings: dict[str, Attribute] = {"upper": draft.number(0, 1)} if draft.flip() else {}
    diagonal = [draft.constant(np.array(draft.number(-2, 2), np.int64))] if draft.flip() else []
    draft.add(op_type, [x, *diagonal], shape, **settings)
    return True


def _thresholded(draft: Draft, op_type: str, x: str) -> bool:
    """Of values that are all above the threshold, or with none: x jumps at any other."""
    shape = draft.shapes[x]
    if draft.flip():
        draft.add(op_type, [x], shape, alpha=0.0)
    else:
        above = draft.add("Add", [draft.add("Abs", [x], shape), draft.number_constant(1.5)], shape)
        draft.add(op_type, [above], shape)
    return True


MASKS: Mapping[str, Maker] = {
    "ThresholdedRelu": _thresholded,
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual"), _comparison),
    "Equal": _equal,
    **dict.fromkeys(("And", "Or", "Xor"), _connected),
    "Not": _not,
    "Where": _where,
    "IsNaN": _guard,
    "Trilu": _triangle,
}
