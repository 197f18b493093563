"""Whether a batch may be divided: each item of the outputs must come from the same item of the inputs alone.

outputs, one item --boxes backward through all operators--> that item of every input, or a sentence why not
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from partitioner.ir.graph import Constants, Graph
from partitioner.ir.prepared_items import NONE, prepared_items
from partitioner.ir.regions import Box, box_size, full_box, input_boxes, join

NO_CONSTANTS: Constants = MappingProxyType({})
"""Where nothing is prepared, none is asked for."""

MOST_ITEMS = 16
"""Of a larger batch so many items are looked at, evenly spread: whoever moves items moves some of these."""


def batch_problem(graph: Graph, constants: Constants = NO_CONSTANTS) -> str | None:
    """None when the outermost ONNX axis of all inputs and outputs counts items that do not meet; else what is wrong.

    The graph must hold two items at least, or nothing could be seen to meet. Boxes may be larger than what is read, so
    a network may be refused that could be divided, never the other way.
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
            return f"an item of {name} reads what others have"
    step = -(-items // MOST_ITEMS)
    for item in dict.fromkeys((*range(0, items, step), items - 1)):
        for name, box in _read(graph, item).items():
            if name in prepared:
                own = prepared[name][tuple(slice(*edges) for edges in box)]
                if not np.isin(own, (NONE, item)).all():
                    return f"item {item} of the outputs reads what {name} has of other items"
                continue
            low, high = box[_item_axis(graph, name)]
            if (low, high) != (item, item + 1):
                read = f"items {low} to {high - 1}" if high - low > 1 else f"item {low}"
                return f"item {item} of the outputs reads {read} of {name}"
    return None


def _read(graph: Graph, item: int) -> dict[str, Box]:
    """What one item of all outputs reads of the inputs of the network."""
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
