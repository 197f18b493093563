"""How large the networks of the zoo are, from their topology alone: no weights are drawn, nothing is calibrated.

topology --shape inference--> extents of every value --> parameters, multiply-adds, bytes of activations
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import onnx
from onnx import shape_inference

from dsa_sched.zoo.networks import set_values, topology_bytes

__all__ = ["NetworkSize", "network_size"]

ACTIVATION_BYTES = 2
"""Of a number between layers: half precision."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """`input` is the name and ONNX shape of the first input; `operators` counts nodes that compute.

    `macs` and `activation_bytes` are those of one image. Activations are counted as in Radosavovic et al., "Designing
    Network Design Spaces" (CVPR 2020): what convolutions and matrix products give, so that it does not matter whether
    an exporter writes norms and activations as nodes of their own.
    """

    name: str
    input: str
    shape: tuple[int, ...]
    operators: int
    parameters: int
    macs: int
    activation_bytes: int


def network_size(name: str) -> NetworkSize:
    """Raises ModelError for a name that is not in the zoo."""
    model = onnx.ModelProto()
    model.ParseFromString(topology_bytes(name))
    shapes = _shapes(model)
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    weights = {node.output[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    weights |= {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    read = {name for node in nodes for name in node.input}
    first = next(item for item in graph.input if item.name not in constants)
    products = [node for node in nodes if node.op_type in ("Conv", "Gemm")]
    return NetworkSize(
        name=name,
        input=first.name,
        shape=shapes[first.name],
        operators=len(nodes),
        parameters=sum(prod(shapes[weight]) for weight in weights & read - set_values(graph)),
        macs=sum(_macs(node, shapes) for node in products),
        activation_bytes=ACTIVATION_BYTES * sum(prod(shapes[node.output[0]]) for node in products),
    )


def _shapes(model: onnx.ModelProto) -> Shapes:
    """Of every value and constant, in ONNX layout."""
    graph = shape_inference.infer_shapes(model, strict_mode=True).graph
    values = [*graph.input, *graph.value_info, *graph.output]
    shapes = {item.name: tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim) for item in values}
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def _macs(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Every output of a convolution reads one filter, every output of a matrix product a row of the first factor."""
    reads = shapes[node.input[1]][1:] if node.op_type == "Conv" else shapes[node.input[0]][-1:]
    return prod(shapes[node.output[0]]) * prod(reads)
