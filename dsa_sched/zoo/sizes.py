"""Sizes of the networks of the zoo, from their topology alone: no weights are drawn, nothing is calibrated.

topology --shape inference--> extents of every value --> parameters, multiply-adds, bytes of activations
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

from dsa_sched.zoo.networks import is_built, published_shapes, set_values, topology_bytes

ACTIVATION_BYTES = 2
"""Bytes of a number between layers: fp16."""

Shapes = Mapping[str, tuple[int, ...]]


PRODUCTS = ("Conv", "Gemm", "MatMul", "Attention", "LSTM", "GRU")
GATES = {"LSTM": 4, "GRU": 3}


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """`input` is the name and ONNX shape of the first of `inputs`; `operators` counts nodes that compute.

    `macs` and `activation_bytes` are those of the inputs that a network was published with: one image, one text.
    Activations are counted as in Radosavovic et al., "Designing Network Design Spaces" (CVPR 2020): what convolutions
    and matrix products give, so that it does not matter whether an exporter writes norms and activations as separate
    nodes. Products of constants alone count in neither.
    """

    name: str
    input: str
    shape: tuple[int, ...]
    inputs: int
    operators: int
    parameters: int
    macs: int
    activation_bytes: int


def network_size(name: str) -> NetworkSize:
    """Raises ModelError for a name that is not in the zoo."""
    model = onnx.ModelProto()
    model.ParseFromString(topology_bytes(name))
    operators = sum(node.op_type != "ConstantOfShape" for node in model.graph.node)
    _set_published(model, published_shapes(name))
    shapes = _shapes(model)
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    weights = {node.output[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    if not is_built(name):
        weights |= {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    read = {name for node in nodes for name in node.input}
    inputs = [item for item in graph.input if item.name not in constants | weights]
    fixed = _constant_values(nodes, constants | weights)
    products = [node for node in nodes if node.op_type in PRODUCTS and not fixed.issuperset(node.output)]
    return NetworkSize(
        name=name,
        input=inputs[0].name,
        shape=shapes[inputs[0].name],
        inputs=len(inputs),
        operators=operators,
        parameters=sum(prod(shapes[weight]) for weight in weights & read - set_values(graph)),
        macs=sum(_macs(node, shapes) for node in products),
        activation_bytes=ACTIVATION_BYTES * sum(prod(shapes[_made(node)]) for node in products),
    )


def _set_published(model: onnx.ModelProto, published: Mapping[str, tuple[int, ...]]) -> None:
    """Set the extents of inputs, and those of the same names elsewhere."""
    named = {
        dim.dim_param: extent
        for item in model.graph.input
        for dim, extent in zip(item.type.tensor_type.shape.dim, published.get(item.name, ()), strict=False)
    }
    for item in (*model.graph.input, *model.graph.output):
        for dim in item.type.tensor_type.shape.dim:
            if dim.dim_param in named:
                dim.dim_value = named[dim.dim_param]


def _constant_values(nodes: Iterable[onnx.NodeProto], constants: Set[str]) -> frozenset[str]:
    """All values that follow from constants alone."""
    known = set(constants)
    for node in nodes:
        if known.issuperset(filter(None, node.input)):
            known.update(node.output)
    return frozenset(known)


def _shapes(model: onnx.ModelProto) -> Shapes:
    """Shapes of every value and constant, in ONNX layout. Replaces Shapes in `model` by constants: inference does not
    slice up to an end that is computed.
    """
    while True:
        graph = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
        shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        for item in (*graph.output, *graph.value_info, *graph.input):
            dims = item.type.tensor_type.shape.dim
            if all(dim.HasField("dim_value") for dim in dims):
                shapes[item.name] = tuple(dim.dim_value for dim in dims)
        known = [node for node in model.graph.node if node.op_type == "Shape" and node.input[0] in shapes]
        if not known:
            return shapes
        for node in known:
            ends = {item.name: item.i for item in node.attribute}
            extents = shapes[node.input[0]][ends.get("start", 0) : ends.get("end")]
            model.graph.initializer.append(numpy_helper.from_array(np.array(extents, np.int64), node.output[0]))
            model.graph.node.remove(node)


def _made(node: onnx.NodeProto) -> str:
    return next(str(name) for name in node.output if name)


def _macs(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Multiply-adds: every output of a convolution reads one filter, every output of a matrix product a row of the
    first factor, every step of a recurrence all weights, every query of an attention all keys and values.
    """
    first, second = shapes[node.input[0]], shapes[node.input[1]]
    if node.op_type == "Attention":
        return prod(first[:-1]) * second[-2] * (first[-1] + shapes[node.input[2]][-1])
    if node.op_type in GATES:
        steps, batch, inside = first
        directions, gates, _ = second
        return steps * batch * directions * gates * (inside + gates // GATES[node.op_type])
    reads = second[1:] if node.op_type == "Conv" else first[-1:]
    return prod(shapes[_made(node)]) * prod(reads)
