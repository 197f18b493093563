"""Values that move elements of others and round nothing: they follow from these, element by element.

q (int8) -> widen -> pad -> narrow, cut off   =   q with its padding, whatever computes it
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Graph, Op

Array = npt.NDArray[np.generic]


def only_moves(op: Op) -> bool:
    """Whether the results of an operator are elements of its operands, or integers of the same value."""
    if op.kind == "narrow":
        return dict(op.attributes)["rounding"] == "truncate"
    return op.kind in ("widen", "pad", "transpose", "slice", "concat")


def moved_value(graph: Graph, op: Op, known: Mapping[str, bytes]) -> bytes:
    """The bytes of the result of an operator that only moves, from those of its operands; all in device layout."""
    result = graph.by_name[op.outputs[0]]
    operands = [_array(graph, name, known[name]) for name in op.inputs]
    x = operands[0]
    match op.kind:
        case "pad":
            pads = list(zip(op.ints("begins"), op.ints("ends"), strict=True))
            made: Array = np.pad(x, pads, constant_values=np.asarray(op.number("value"), x.dtype))
        case "transpose":
            made = np.transpose(x, op.ints("perm"))
        case "slice":
            starts = zip(op.ints("starts"), op.ints("steps"), result.shape, strict=True)
            places = np.ix_(*(start + step * np.arange(extent) for start, step, extent in starts))
            made = x[places]
        case "concat":
            made = np.concatenate(operands, int(op.number("axis")))
        case _:
            made = x
    return np.ascontiguousarray(made.astype(result.dtype)).tobytes()


def _array(graph: Graph, name: str, data: bytes) -> Array:
    tensor = graph.by_name[name]
    return np.frombuffer(data, np.dtype(tensor.dtype)).reshape(tensor.shape)
