"""To which item of the batch each element of a prepared or concluded value belongs.

raw inputs, an item a row --operator by operator, element by element--> the item, NONE, or MIXED where items meet
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Constants, Graph, Op

Items = npt.NDArray[np.int64]

NONE, MIXED = -1, -2


def prepared_items(graph: Graph, constants: Constants) -> dict[str, Items]:
    """For each value that prepared and concluded operators read or make the item of each element, in its shape; of
    computed numbers, which are in the order of the file, the row."""
    found = {name: _rows(graph.by_name[name].shape) for name in graph.raw}
    for op in (*graph.prepared, *graph.concluded):
        for name in op.inputs:
            if name not in found:
                tensor = graph.by_name[name]
                constant = tensor.constant or op in graph.prepared
                found[name] = np.full(tensor.shape, NONE) if constant else _rows(tensor.shape)
        (output,) = op.outputs
        found[output] = _made(graph, op, found, constants).reshape(graph.by_name[output].shape)
    return found


def _rows(shape: tuple[int, ...]) -> Items:
    """An item a row."""
    rows = np.arange(shape[0] if shape else 1).reshape(-1, *(1,) * (len(shape) - 1))
    return np.broadcast_to(rows if shape else rows.reshape(()), shape)


def _made(graph: Graph, op: Op, found: dict[str, Items], constants: Constants) -> Items:
    operands = [found[name] for name in op.inputs]
    shape = graph.by_name[op.outputs[0]].shape
    match op.kind:
        case "words":
            count = prod(shape)
            spread = [np.broadcast_to(own.reshape(-1), (count,)) for own in operands]
            return _together(np.stack(spread), 0)
        case "take":
            source, index = (own.reshape(-1) for own in operands)
            fixed = graph.by_name[op.inputs[1]].constant
            if fixed:
                places = constants[fixed].reshape(-1).astype(np.int64)
                return source[np.clip(places, 0, source.size - 1)]
            return index if (source == NONE).all() else np.full(index.shape, MIXED)
        case "lookup":
            return np.repeat(operands[1].reshape(-1), prod(shape) // operands[1].size)
        case "number" | "ordered" | "whole":
            return operands[0]
        case "join":
            outer = int(op.number("outer"))
            return np.concatenate([own.reshape(outer, -1) for own in operands], axis=1)
    lines = operands[0].reshape(int(op.number("outer")), int(op.number("count")), int(op.number("inner")))
    each = _together(lines, 1)
    return np.repeat(each[:, None], lines.shape[1], axis=1) if op.kind == "cumsum" else each


def _together(items: Items, axis: int) -> Items:
    """The item that all along an axis belong to, those of none apart."""
    most = items.max(axis=axis)
    least = np.where(items == NONE, np.iinfo(np.int64).max, items).min(axis=axis)
    mixed = ((least != most) & (most != NONE)) | (least == MIXED)
    return np.where(mixed, MIXED, most)
