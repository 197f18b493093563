"""Shapes of values that ONNX's inference does not find, as onnxruntime says them: results of operators of its own.

com.microsoft FusedConv [1, 8, 6, 6]  -->  Value((1, 8, 6, 6), FLOAT)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import helper

from dsa_sched.frontend.network.network import Value, graphs_of

SCALARS: Mapping[str, type[np.generic]] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
}
"""Names of onnxruntime for types of elements, as they stand in `tensor(...)`."""


def runtime_values(model: onnx.ModelProto, known: Mapping[str, Value]) -> dict[str, Value]:
    """Static shapes and types of values that are not `known`, of a model with operators of other domains or with graphs
    inside: of outputs as the file declares them, of others as onnxruntime infers them."""
    if not any(node.domain not in ("", "ai.onnx") or any(graphs_of(node)) for node in model.graph.node):
        return {}
    found = dict(_declared(model, known))
    import onnxruntime

    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name and name not in known]
    del asked.graph.output[:]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(asked.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # what it says is told where the stage is run
        return found
    inferred = {item.name: _value(item.type, item.shape) for item in session.get_outputs()}
    return found | {name: value for name, value in inferred.items() if value is not None}


def _declared(model: onnx.ModelProto, known: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    for item in model.graph.output:
        kind = item.type.tensor_type
        if item.name not in known and kind.HasField("shape") and all(dim.dim_value > 0 for dim in kind.shape.dim):
            yield item.name, Value(tuple(int(dim.dim_value) for dim in kind.shape.dim), kind.elem_type)


def _value(kind: str, shape: list[int | str | None]) -> Value | None:
    """`tensor(float)` of whole extents; None for others, and for no extents, which it says of unknown shapes too."""
    scalar = SCALARS.get(kind.removeprefix("tensor(").removesuffix(")"))
    extents = [extent for extent in shape if isinstance(extent, int) and extent >= 0]
    if scalar is None or not shape or len(extents) < len(shape):
        return None
    return Value(tuple(extents), helper.np_dtype_to_tensor_dtype(np.dtype(scalar)))
