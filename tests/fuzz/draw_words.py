"""Makers of what integers decide: index arithmetic and lookups on inputs of their own, added to a value.

    i --CumSum, Mod--> rows --Gather(table)--> numbers --Add--> value

Integer inputs are from -LEAST_ROWS to LEAST_ROWS - 1, so that they choose rows of every table here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from tests.fuzz.draft import FLOAT, Attribute, Draft, Maker, Shape

__all__ = ["LEAST_ROWS", "WORDS"]

LEAST_ROWS = 4
MOST_ELEMENTS = 400
INT32, INT64 = int(TensorProto.INT32), int(TensorProto.INT64)


def _plane(draft: Draft, x: str) -> Shape | None:
    """The last two axes of a value, where they are small."""
    shape = draft.shapes[x][-2:]
    return shape if len(shape) == 2 and shape[0] * shape[1] <= MOST_ELEMENTS else None


def _added(draft: Draft, x: str, numbers: str) -> bool:
    draft.add("Add", [x, numbers] if draft.flip() else [numbers, x], draft.shapes[x])
    return True


def _as_numbers(draft: Draft, words: str, shape: Shape) -> str:
    numbers = draft.add("Cast", [words], shape, to=FLOAT)
    return draft.add("Mul", [numbers, draft.number_constant(0.125)], shape)


def _running_sum(draft: Draft, op_type: str, x: str) -> bool:
    plane = _plane(draft, x)
    if plane is None:
        return False
    axis = draft.constant(np.array(draft.signed(draft.axis(plane), 2), np.int64))
    settings = {name: draft.number(0, 1) for name in ("exclusive", "reverse") if draft.flip()}
    sums = draft.add_other(op_type, [draft.integer_input(plane), axis], plane, INT64, **settings)
    if draft.flip():
        return _added(draft, x, _as_numbers(draft, sums, plane))
    rows = draft.add_other("Mod", [sums, draft.integers(LEAST_ROWS)], plane, INT64)
    table = draft.weights(LEAST_ROWS)
    return _added(draft, x, draft.add("Gather", [table, rows], plane))


def _modulo(draft: Draft, op_type: str, x: str) -> bool:
    plane = _plane(draft, x)
    if plane is None:
        return False
    settings: dict[str, Attribute] = {"fmod": draft.number(0, 1)} if draft.flip() else {}
    divisor = draft.integers(draft.one_of(3, -3))
    rest = draft.add_other(op_type, [draft.integer_input(plane), divisor], plane, INT64, **settings)
    return _added(draft, x, _as_numbers(draft, rest, plane))


def _place(draft: Draft, op_type: str, x: str) -> bool:
    """Kept axes are broadcast; one that goes stood before, between or behind those of the value."""
    plane = _plane(draft, x)
    if plane is None:
        return False
    keep = draft.flip()
    axis = draft.number(0, 1 if keep else 2)
    given = plane if keep else (*plane[:axis], 3, *plane[axis:])
    result = tuple(1 if number == axis else extent for number, extent in enumerate(given)) if keep else plane
    settings: dict[str, Attribute] = {} if keep and draft.flip() else {"keepdims": int(keep)}
    if axis or draft.flip():
        settings["axis"] = draft.signed(axis, len(given))
    if draft.opset >= 12 and draft.flip():
        settings["select_last_index"] = draft.number(0, 1)
    found = draft.add_other(op_type, [draft.integer_input(given, INT32)], result, INT64, **settings)
    return _added(draft, x, _as_numbers(draft, found, result))


def _elements(draft: Draft, op_type: str, x: str) -> bool:
    plane = _plane(draft, x)
    if plane is None:
        return False
    axis = draft.axis(plane)
    table = draft.weights(*(extent + LEAST_ROWS * (number == axis) for number, extent in enumerate(plane)))
    settings: dict[str, Attribute] = {"axis": draft.signed(axis, 2)} if axis or draft.flip() else {}
    return _added(draft, x, draft.add(op_type, [table, draft.integer_input(plane)], plane, **settings))


def _points(draft: Draft, op_type: str, x: str) -> bool:
    plane = _plane(draft, x)
    if plane is None:
        return False
    rows, columns = plane
    if draft.opset >= 12 and draft.flip():
        operands = [draft.weights(rows, LEAST_ROWS), draft.integer_input((rows, columns, 1))]
        return _added(draft, x, draft.add(op_type, operands, plane, batch_dims=1))
    if draft.flip():
        operands = [draft.weights(LEAST_ROWS, LEAST_ROWS + 1), draft.integer_input((rows, columns, 2))]
    else:
        operands = [draft.weights(LEAST_ROWS, columns), draft.integer_input((rows, 1))]
    return _added(draft, x, draft.add(op_type, operands, plane))


def _one_hot(draft: Draft, op_type: str, x: str) -> bool:
    """Rows of a table by a product; from the other side where the ones stand in columns."""
    plane = _plane(draft, x)
    if plane is None:
        return False
    rows, columns = plane
    pair = draft.constant(np.array([0.0, 1.0] if draft.flip() else [-0.5, 0.25], np.float32))
    first = draft.flip()
    indices = draft.integer_input((columns if first else rows,))
    operands = [indices, draft.integers(LEAST_ROWS), pair]
    settings: dict[str, Attribute] = {"axis": draft.one_of(0, -2)} if first else draft.one_of({}, {"axis": 1})
    shape = (LEAST_ROWS, columns) if first else (rows, LEAST_ROWS)
    ones = draft.add(op_type, operands, shape, **settings)
    if first:
        product = draft.add("MatMul", [draft.weights(rows, LEAST_ROWS, length=4), ones], plane)
    else:
        product = draft.add("MatMul", [ones, draft.weights(LEAST_ROWS, columns, length=4)], plane)
    return _added(draft, x, product)


WORDS: Mapping[str, Maker] = {
    "CumSum": _running_sum,
    "Mod": _modulo,
    "ArgMax": _place,
    "ArgMin": _place,
    "GatherElements": _elements,
    "GatherND": _points,
    "OneHot": _one_hot,
}
