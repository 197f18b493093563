"""How large the networks of the zoo are, from their topology alone: no weights are drawn, nothing is calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import onnx
from onnx import numpy_helper

from dsa_sched.zoo.networks import set_values, topology_bytes

__all__ = ["NetworkSize", "network_size"]


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """`input` is the name and ONNX shape of the first input; `operators` counts nodes that compute."""

    name: str
    input: str
    shape: tuple[int, ...]
    operators: int
    parameters: int


def network_size(name: str) -> NetworkSize:
    """Raises ModelError for a name that is not in the zoo."""
    model = onnx.ModelProto()
    model.ParseFromString(topology_bytes(name))
    graph = model.graph
    constants = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    fillings = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = [tuple(int(extent) for extent in shapes[node.input[0]]) for node in fillings]
    kept = set_values(graph)
    weights += [
        tuple(t.dims) for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and t.name not in kept
    ]
    first = next(item for item in graph.input if item.name not in constants)
    return NetworkSize(
        name=name,
        input=first.name,
        shape=tuple(int(dim.dim_value) for dim in first.type.tensor_type.shape.dim),
        operators=len(graph.node) - len(fillings),
        parameters=sum(prod(shape) for shape in weights),
    )
