"""What an integer input of a model means that does not say it (`declared_meanings.py`), by what reads it.

ids -> Gather(table of 100 rows)          indices, 0 to 99
mask -> Cast, Not, Where                  0 or 1
lengths -> Less(arange(12), lengths)      lengths, 1 to 12
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.zoo.meanings.declared_meanings import Indices, Lengths, Mask, Meaning

__all__ = ["inferred_meanings"]

MOVES = frozenset(
    [
        "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
        "Unsqueeze",
    ]
)  # fmt: skip
GATHERS = ("Gather", "GatherND", "GatherElements")
COMPARISONS = frozenset(["Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
TRUTHS = frozenset(["Cast", "Not", "And", "Or", "Xor", "Where"])
MOST_NODES = 10_000
"""Readers that are followed from one input."""


def inferred_meanings(model: onnx.ModelProto) -> dict[str, Meaning]:
    """Of the integer inputs of which something can be seen."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None:
                constants[node.output[0]] = value
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in dict.fromkeys(node.input):
            readers.setdefault(name, []).append(node)
    found = {
        item.name: _meaning(item.name, readers, constants)
        for item in model.graph.input
        if item.name not in constants and helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type).kind in "iu"
    }
    return {name: meaning for name, meaning in found.items() if meaning is not None}


def _meaning(
    name: str, readers: Mapping[str, list[onnx.NodeProto]], constants: Mapping[str, onnx.TensorProto]
) -> Meaning | None:
    rows, lengths, truths = [], list[int](), False
    for value, node in _read(name, readers):
        if node.op_type in GATHERS and node.input[1] == value and node.input[0] in constants:
            rows.append(_extent(node, constants[node.input[0]]))
        elif node.op_type in COMPARISONS:
            lengths += [_largest(constants[other]) for other in node.input if other in constants]
        truths |= node.op_type in TRUTHS
    if rows:
        return Indices((min(rows),))
    if lengths and max(lengths) > 1:
        return Lengths(max(lengths) + 1)
    return Mask() if truths else None


def _read(name: str, readers: Mapping[str, list[onnx.NodeProto]]) -> Iterator[tuple[str, onnx.NodeProto]]:
    """Nodes that read a value, or what only moves it or changes its type."""
    open_, seen = [name], {name}
    while open_ and len(seen) < MOST_NODES:
        value = open_.pop()
        for node in readers.get(value, ()):
            yield value, node
            if (node.op_type in MOVES and node.input[0] == value) or node.op_type == "Cast":
                fresh = [output for output in node.output if output not in seen]
                seen.update(fresh)
                open_ += fresh


def _extent(node: onnx.NodeProto, table: onnx.TensorProto) -> int:
    """Rows among which every index of a gather may choose."""
    if node.op_type == "GatherND":
        return int(min(table.dims))
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    return int(table.dims[axis])


def _largest(tensor: onnx.TensorProto) -> int:
    array = numpy_helper.to_array(tensor)
    return int(array.max()) if array.size and array.dtype.kind in "iu" and np.abs(array).max() < 1 << 31 else 0
