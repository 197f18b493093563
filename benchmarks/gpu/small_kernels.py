"""Small models of one kernel each, or of integers alone, for the executor: what is no block of a network.

Lines("small_columns", "ReduceMean", (1030, 24), axis=1)  -->  ONNX model, its batch open
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["LOOKUPS", "SMALL_LINES", "WORDS", "Integers", "Lines", "Lookup", "small_model"]

Values = list[onnx.ValueInfoProto]
_Left = tuple[int, tuple[int, ...]]
"""Type and extents of a result, but for the batch."""


@dataclass(frozen=True)
class Lines:
    """An operator along an axis of items of `rows` and then `shape`."""

    name: str
    kind: str
    rows: int
    shape: tuple[int, ...]
    axis: int


@dataclass(frozen=True)
class Lookup:
    """Rows of a constant table by `rows` integers of each item, or slices along the second axis of three."""

    name: str
    rows: int
    table: tuple[int, ...]
    axis: int


@dataclass(frozen=True)
class Integers:
    """Operators on lines of `rows` integers of each item, and on as many numbers."""

    name: str
    lines: int
    rows: int


SMALL_LINES = (
    Lines("small_rows", "LayerNormalization", 3, (2088,), -1),
    Lines("small_largest", "ReduceMax", 9, (277,), 2),
    Lines("small_columns", "ReduceMean", 1, (530, 24), 2),
)
"""Lines for the widest teams: of 8 neighbours and of one, read twice and once, in memory and across it."""

LOOKUPS = (Lookup("small_lookup", 29, (23, 40), 0), Lookup("small_slices", 9, (3, 11, 5), 1))
"""Rows by eight neighbours and slices by one."""

WORDS = Integers("small_words", 6, 37)
"""Of every kind of launch on integers at least one; no whole warp or block, indices beyond a table on both sides."""


def small_model(small: Lines | Lookup | Integers) -> onnx.ModelProto:
    """Its batch is open."""
    if isinstance(small, Lines):
        return _lines(small)
    return _lookup(small) if isinstance(small, Lookup) else _integers(small)


def _constant(name: str, values: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(values, name)


def _drawn(name: str, *shape: int) -> onnx.TensorProto:
    return _constant(name, np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32))


def _model(
    name: str, nodes: list[onnx.NodeProto], given: Values, made: Values, held: list[onnx.TensorProto]
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, name, given, made, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _value(name: str, kind: int, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ["n", *shape])


def _lines(small: Lines) -> onnx.ModelProto:
    shape, wide, held = (small.rows, *small.shape), small.shape[-1], list[onnx.TensorProto]()
    attributes: dict[str, Any] = {"axis": small.axis}
    if small.kind == "LayerNormalization":
        held = [_drawn("scale", wide), _drawn("bias", wide)]
    else:
        held, attributes = [_constant("axes", np.array([small.axis]))], {"keepdims": 1}
    node = helper.make_node(small.kind, ["x", *(each.name for each in held)], ["y"], "line", **attributes)
    made = tuple(1 if at == small.axis else extent for at, extent in enumerate(shape, 1))
    float_ = TensorProto.FLOAT
    return _model(small.name, [node], [_value("x", float_, *shape)], [_value("y", float_, *made)], held)


def _lookup(small: Lookup) -> onnx.ModelProto:
    node = helper.make_node("Gather", ["table", "ids"], ["y"], "lookup", axis=small.axis)
    before, after = small.table[: small.axis], small.table[small.axis + 1 :]
    extents: list[int | str | None] = [*before, "n", small.rows, *after]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, extents)
    given = [_value("ids", TensorProto.INT64, small.rows)]
    return _model(small.name, [node], given, [result], [_drawn("table", *small.table)])


def _integers(small: Integers) -> onnx.ModelProto:
    """Quotients, remainders, choices, sums, the largest and its place, and what lies at places."""
    nodes, made, held = list[onnx.NodeProto](), Values(), list[onnx.TensorProto]()

    def node(kind: str, *operands: str | int, left: _Left | None = None, **attributes: Any) -> str:
        name = f"{kind.lower()}{len(nodes)}"
        given = list[str]()
        for at, operand in enumerate(operands):
            given.append(operand if isinstance(operand, str) else f"{name}.{at}")
            if isinstance(operand, int):
                held.append(_constant(given[-1], np.array(operand if kind != "Unsqueeze" else [operand], np.int64)))
        nodes.append(helper.make_node(kind, given, [name], name, **attributes))
        if left is not None:
            made.append(_value(name, left[0], *left[1]))
        return name

    lines, number, whole = (small.lines, small.rows), TensorProto.FLOAT, TensorProto.INT64
    held += [_constant("numbers", np.arange(-4, 5) ** 3), _constant("steps", np.arange(16))]
    held += [_constant("along", np.array([2])), _constant("ends", np.array([0, 1], np.float32))]
    node("Div", node("Sub", "ids", "others"), "others", left=(whole, lines))
    node("Mod", "ids", "others", left=(whole, lines))
    place = node("Mod", node("Mul", "ids", "others"), 7, left=(whole, lines))
    large = node("Or", node("Greater", "ids", 2), node("LessOrEqual", "others", -9))
    chosen = node("Where", large, "ids", node("Neg", node("Max", "others", "ids")))
    node("Concat", chosen, node("Abs", "ids"), axis=2, left=(whole, (small.lines, 2 * small.rows)))
    node("CumSum", "ids", 2, exclusive=1, reverse=1, left=(whole, lines))
    node("CumSum", "others", 1, left=(whole, lines))
    mixed = node("Add", node("Mul", chosen, 97), "others")
    for kind in ("ReduceSum", "ReduceMin"):
        node(kind, mixed, "along", keepdims=1, left=(whole, (small.lines, 1)))
    node("ArgMax", "x", axis=2, keepdims=0, select_last_index=1, left=(whole, (small.lines,)))
    node("ArgMin", "x", axis=2, keepdims=0, left=(whole, (small.lines,)))
    node("Gather", "numbers", "ids", left=(whole, lines))
    node("OneHot", place, 8, "ends", left=(number, (*lines, 8)))
    shorter = node("Less", "steps", node("Unsqueeze", place, -1))
    node("Cast", shorter, to=number, left=(number, (*lines, 16)))
    node("Cast", node("Mul", chosen, 9999), to=number, left=(number, lines))
    node("Cast", "x", to=whole, left=(whole, lines))
    given = [_value("x", number, *lines), _value("ids", whole, *lines), _value("others", whole, *lines)]
    return _model(small.name, nodes, given, made, held)
