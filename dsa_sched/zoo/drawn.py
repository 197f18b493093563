"""Networks whose weights are drawn as they are: norms in every layer keep values small, nothing is calibrated.

    topology (weights by shape and gain) --what reads them, a seed--> ModelProto with initialisers

Each weight becomes bytes of the model as soon as it is drawn, so that a gigabyte of weights takes little more.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.zoo.weights import ConstantRole, drawn, roles

UNCALIBRATED = {ConstantRole.MEAN: ConstantRole.SHIFT, ConstantRole.VARIANCE: ConstantRole.FACTOR}
"""Statistics of a norm that has seen no data: near 0, near 1."""


def weight_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shape of every weight of a topology, in the order of the file."""
    constants = {item.name: item for item in graph.initializer}
    made = (node for node in graph.node if node.op_type == "ConstantOfShape")
    return {node.output[0]: tuple(numpy_helper.to_array(constants[node.input[0]]).tolist()) for node in made}


def drawn_model(name: str, topology: onnx.ModelProto) -> onnx.ModelProto:
    """The network `name` with seeded weights, the same bytes every time. Takes 10 ns a weight."""
    shapes = weight_shapes(topology.graph)
    part = roles([node for node in topology.graph.node if node.output[0] not in shapes], shapes)
    result = onnx.ModelProto()
    result.CopyFrom(topology)
    result.producer_name = "dsa-sched zoo"
    graph = result.graph
    gains = {node.output[0]: _gain(node) for node in graph.node if node.output[0] in shapes}
    nodes = [node for node in graph.node if node.output[0] not in shapes]
    used = {operand for node in nodes for operand in node.input}
    kept = [item for item in graph.initializer if item.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    for weight, shape in shapes.items():
        role = UNCALIBRATED.get(part[weight], part[weight])
        array = drawn(name, weight, role, shape)
        array *= np.float32(gains[weight])
        tensor = graph.initializer.add(name=weight, data_type=onnx.TensorProto.FLOAT, dims=shape)
        tensor.raw_data = array.astype("<f4", copy=False).tobytes()
    return result


def _gain(node: onnx.NodeProto) -> float:
    values = [helper.get_attribute_value(item) for item in node.attribute if item.name == "value"]
    return float(numpy_helper.to_array(values[0])[0]) if values else 1.0
