"""The networks of IOS as ONNX files with seeded weights, so that the compiler and onnxruntime can read them.

    Network + seed --onnx_model--> ModelProto (float32 or float16, opset 13)

The schema has no weights: these keep activations about as large from layer to layer, and equal seeds give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import erf, exp, pi, prod, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.lab.ios.network import Kernel, Network, Operator
from hw_models.errors import ModelError

__all__ = ["node_names", "onnx_model"]

OPSET, IR_VERSION = 13, 8
MOST_WEIGHTS = 1 << 28
"""Elements of a file: it may not have 2 GiB."""

POOLING = {
    "max": "MaxPool",
    "avg": "AveragePool",
    "global_max": "GlobalMaxPool",
    "global_avg": "GlobalAveragePool",
}


@dataclass(frozen=True, slots=True)
class _Node:
    op: str
    name: str
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any] = field(default_factory=dict)


def node_names(network: Network, operator: Operator) -> tuple[str, ...]:
    """Names of the ONNX nodes that an operator becomes, in order."""
    return tuple(node.name for node in _operator_nodes(network, operator))


def _operator_nodes(network: Network, operator: Operator) -> Iterator[_Node]:
    for kernel in operator.kernels[:-1]:
        yield from _kernel_nodes(network, kernel, kernel.name)
    yield from _kernel_nodes(network, operator.kernels[-1], operator.name)


def _kernel_nodes(network: Network, kernel: Kernel, output: str) -> Iterator[_Node]:
    """Slices, sums and the concatenation of what it reads, then the kernel itself: the last node makes `output`."""
    made = [*_input_nodes(network, kernel)]
    source = made[-1].output if made else kernel.inputs[0][0].node
    made += _own_nodes(kernel, source) or ([] if made else [_Node("Identity", kernel.name, (source,), "")])
    yield from made[:-1]
    yield replace(made[-1], output=output)


def _input_nodes(network: Network, kernel: Kernel) -> Iterator[_Node]:
    terms = []
    for number, term in enumerate(kernel.inputs):
        parts = []
        for place, part in enumerate(term):
            parts.append(part.node)
            if part.last - part.first < network.shape[part.node][0]:
                parts[-1] = name = f"{kernel.name}/slice{number}_{place}"
                ends = {"first": part.first, "last": part.last}
                yield _Node("Slice", name, (part.node, f"{name}/first", f"{name}/last", "%channels"), name, ends)
        if len(parts) > 1:
            name = f"{kernel.name}/sum{number}"
            yield _Node("Sum", name, tuple(parts), name)
            parts = [name]
        terms += parts
    if len(terms) > 1:
        yield _Node("Concat", f"{kernel.name}/concat", tuple(terms), f"{kernel.name}/concat", {"axis": 1})


def _own_nodes(kernel: Kernel, source: str) -> list[_Node]:
    window = {
        "kernel_shape": list(kernel.kernel),
        "strides": list(kernel.stride),
        "pads": [*kernel.padding, *kernel.padding],
    }
    match kernel.kind:
        case "conv":
            weights = f"{kernel.name}/weight", f"{kernel.name}/bias"
            inner = f"{kernel.name}/conv" if kernel.relu else kernel.name
            conv = _Node("Conv", inner, (source, *weights), inner, {**window, "group": kernel.groups})
            return [conv, _Node("Relu", kernel.name, (inner,), kernel.name)] if kernel.relu else [conv]
        case "relu":
            return [_Node("Relu", kernel.name, (source,), kernel.name)]
        case "identity":
            return []
        case kind:
            own = {} if kind.startswith("global") else window
            return [_Node(POOLING[kind], kernel.name, (source,), kernel.name, own)]


def onnx_model(network: Network, seed: int = 0, batch: int = 1, *, half: bool = False) -> onnx.ModelProto:
    """A checked model with one input and one output, of float16 where `half`.

    Raises ModelError for more weights than a file may have.
    """
    dtype = np.dtype(np.float16 if half else np.float32)
    weights = sum(kernel.weights for operator in network.operators for kernel in operator.kernels)
    if weights > MOST_WEIGHTS:
        raise ModelError(f"network {network.name}", needs=f"at most {MOST_WEIGHTS} weights", has=str(weights))
    rng = np.random.default_rng(seed)
    made = {network.input_name: _Moments(0.0, 1.0)}
    nodes, constants = [], [numpy_helper.from_array(np.array([1], np.int64), "%channels")]
    for operator in network.operators:
        for node in _operator_nodes(network, operator):
            attributes = {} if node.op == "Slice" else node.attributes
            nodes.append(helper.make_node(node.op, list(node.inputs), [node.output], node.name, **attributes))
            for end in ("first", "last") if node.op == "Slice" else ():
                value = np.array([node.attributes[end]], np.int64)
                constants.append(numpy_helper.from_array(value, f"{node.name}/{end}"))
        for kernel in operator.kernels:
            read = _read(kernel, made)
            if kernel.kind == "conv":
                constants += _weights(kernel, rng, read.square, dtype)
                read = _Moments(0.0, 2.0 if kernel.relu else 1.0)
            made[kernel.name] = _rectified(read) if kernel.relu or kernel.kind == "relu" else read
        made[operator.name] = made[operator.kernels[-1].name]
    if not any(node.op_type == "Slice" for node in nodes):
        constants = constants[1:]
    graph = helper.make_graph(nodes, network.name, [_value(network, network.input_name, batch, dtype)],
                              [_value(network, network.operators[-1].name, batch, dtype)], constants)  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(made)
    return made


@dataclass(frozen=True, slots=True)
class _Moments:
    """About the mean of a value's elements, and of their squares: on normal inputs, as if all were independent."""

    mean: float
    square: float


def _read(kernel: Kernel, made: Mapping[str, _Moments]) -> _Moments:
    """Of what a kernel reads: means and variances of what is added add up; concatenated terms count by channels."""
    mean = square = 0.0
    for term in kernel.inputs:
        parts = [made[part.node] for part in term]
        together = sum(part.mean for part in parts)
        share = (term[0].last - term[0].first) / kernel.input_channels
        mean += share * together
        square += share * (together**2 + sum(part.square - part.mean**2 for part in parts))
    return _Moments(mean, square)


def _rectified(read: _Moments) -> _Moments:
    """Of what a Relu makes of a normal distribution."""
    deviation = max(read.square - read.mean**2, 1e-12) ** 0.5
    centre = read.mean / deviation
    positive, density = (1 + erf(centre / sqrt(2))) / 2, exp(-(centre**2) / 2) / sqrt(2 * pi)
    mean = read.mean * positive + deviation * density
    return _Moments(mean, read.square * positive + read.mean * deviation * density)


def _weights(kernel: Kernel, rng: np.random.Generator, mean_square: float, dtype: np.dtype[Any]) -> list[TensorProto]:
    """Normal, of the variance that makes the mean square of results 1; twice that before a Relu (He et al. 2015)."""
    shape = kernel.output_shape[0], kernel.input_channels // kernel.groups, *kernel.kernel
    scale = ((2.0 if kernel.relu else 1.0) / (prod(shape[1:]) * mean_square)) ** 0.5
    weight = rng.standard_normal(shape, np.float32) * np.float32(scale)
    bias = rng.standard_normal(shape[0], np.float32) * np.float32(0.01)
    return [
        numpy_helper.from_array(weight.astype(dtype), f"{kernel.name}/weight"),
        numpy_helper.from_array(bias.astype(dtype), f"{kernel.name}/bias"),
    ]


def _value(network: Network, name: str, batch: int, dtype: np.dtype[Any]) -> onnx.ValueInfoProto:
    element_type = helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, element_type, [batch, *network.shape[name]])
