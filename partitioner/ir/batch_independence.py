"""The check whether a batch may be divided: each item of the outputs must come only from the same item of the inputs.

outputs, one item --boxes backward through all operators--> that item of every input, or a sentence why not
prepared and concluded values --operator by operator--> the item of the batch that each element belongs to
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.regions import Box, box_size, full_box, input_boxes, join

Items = npt.NDArray[np.int64]

NONE, MIXED = -1, -2


def prepared_items(graph: Graph, constants: Constants) -> dict[str, Items]:
    """For each value that prepared and concluded operators read or make, the item of each element, in its shape; for
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
    """Items of a value with one item per row."""
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
        case "ordered" if len(op.inputs) == 2:
            of_lines = _together(operands[0].reshape(int(op.number("lines")), -1), 1)
            return np.repeat(of_lines, prod(shape) // of_lines.size)
        case "number" | "ordered" | "whole":
            return operands[0]
        case "assign":
            cache, update, places = operands
            outer = shape[0]
            parts = [own.reshape(outer, -1) for own in (cache, update, places)]
            return np.repeat(_together(np.concatenate(parts, axis=1), 1), prod(shape) // outer)
        case "join":
            outer = int(op.number("outer"))
            return np.concatenate([own.reshape(outer, -1) for own in operands], axis=1)
    lines = operands[0].reshape(int(op.number("outer")), int(op.number("count")), int(op.number("inner")))
    each = _together(lines, 1)
    return np.repeat(each[:, None], lines.shape[1], axis=1) if op.kind == "cumsum" else each


def _together(items: Items, axis: int) -> Items:
    """The item to which all elements along an axis belong, ignoring elements that belong to none."""
    most = items.max(axis=axis)
    least = np.where(items == NONE, np.iinfo(np.int64).max, items).min(axis=axis)
    mixed = ((least != most) & (most != NONE)) | (least == MIXED)
    return np.where(mixed, MIXED, most)


NO_CONSTANTS: Constants = MappingProxyType({})
"""No constants, for a graph in which nothing is prepared."""

MOST_ITEMS = 16
"""Number of items of a larger batch that are looked at, evenly spread: an operator that moves items moves some of
these."""


def batch_problem(graph: Graph, constants: Constants = NO_CONSTANTS) -> str | None:
    """None when the outermost ONNX axis of all inputs and outputs counts items that do not meet; else the problem.

    The graph must hold at least two items, or no meeting could be seen. Boxes may be larger than what is read, so a
    network that could be divided may be refused, but never the other way round.
    """
    extents = {}
    for name in (*graph.fed, *graph.outputs, *graph.results):
        tensor = graph.by_name[name]
        if tensor.constant:
            return f"{name} is constant: its items do not belong to those of the inputs"
        if not tensor.shape:
            return f"{name} has no axis for items"
        extents[name] = tensor.shape[_item_axis(graph, name)]
    items = extents[graph.fed[0]] if graph.fed else 1
    if odd := [name for name, extent in extents.items() if extent != items]:
        return f"{odd[0]} has {extents[odd[0]]} items and {graph.fed[0]} {items}"
    prepared = prepared_items(graph, constants)
    for name in graph.results:
        rows = np.arange(items).reshape(-1, *(1,) * (len(graph.by_name[name].shape) - 1))
        if name in prepared and not ((prepared[name] == rows) | (prepared[name] == NONE)).all():
            return f"an item of {name} reads data of other items"
    step = -(-items // MOST_ITEMS)
    for item in dict.fromkeys((*range(0, items, step), items - 1)):
        for name, box in _read(graph, item).items():
            if name in prepared:
                own = prepared[name][tuple(slice(*edges) for edges in box)]
                if not np.isin(own, (NONE, item)).all():
                    return f"item {item} of the outputs reads data of other items in {name}"
                continue
            low, high = box[_item_axis(graph, name)]
            if (low, high) != (item, item + 1):
                read = f"items {low} to {high - 1}" if high - low > 1 else f"item {low}"
                return f"item {item} of the outputs reads {read} of {name}"
    return None


def _read(graph: Graph, item: int) -> dict[str, Box]:
    """The boxes of the network's inputs that one item of all outputs reads."""
    needed: dict[str, Box] = {name: _one_item(graph, name, item) for name in graph.outputs}
    for op in reversed(graph.ops):
        written = {name: needed[name] for name in op.outputs if name in needed}
        for name, box in input_boxes(graph, op, written).items() if written else ():
            needed[name] = join(needed[name], box) if name in needed else box
    return {name: needed[name] for name in graph.inputs if name in needed and box_size(needed[name])}


def _item_axis(graph: Graph, name: str) -> int:
    """The device axis that holds the outermost ONNX axis."""
    axes = graph.by_name[name].axes
    return axes.index(0) if axes else 0


def _one_item(graph: Graph, name: str, item: int) -> Box:
    box = list(full_box(graph.by_name[name].shape))
    box[_item_axis(graph, name)] = (item, item + 1)
    return tuple(box)
