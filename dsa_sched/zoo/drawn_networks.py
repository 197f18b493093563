"""Networks whose weights are drawn and not calibrated, and the extents that open dimensions were published with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.zoo.topologies import (
    bert,
    conformer,
    convnext,
    decoder,
    dlrm,
    gpt2,
    siamese,
    swin,
    vit,
    whisper,
    wide_deep,
)
from dsa_sched.zoo.topologies.node_builder import Topology
from dsa_sched.zoo.weights import ConstantRole, drawn, roles

UNCALIBRATED = {ConstantRole.MEAN: ConstantRole.SHIFT, ConstantRole.VARIANCE: ConstantRole.FACTOR}
"""Roles of the statistics of a norm that has seen no data: near 0, near 1."""


def weight_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shape of every weight of a topology, in the order of the file."""
    constants = {item.name: item for item in graph.initializer}
    made = (node for node in graph.node if node.op_type == "ConstantOfShape")
    return {node.output[0]: tuple(numpy_helper.to_array(constants[node.input[0]]).tolist()) for node in made}


def drawn_model(name: str, topology: onnx.ModelProto) -> onnx.ModelProto:
    """The network `name` with seeded weights, the same bytes every time. Takes 10 ns per weight."""
    shapes = weight_shapes(topology.graph)
    part = roles([node for node in topology.graph.node if node.output[0] not in shapes], shapes)
    result = onnx.ModelProto()
    result.CopyFrom(topology)
    result.producer_name = "dsa-sched zoo"
    graph = result.graph
    filled = {node.output[0]: _filled(node) for node in graph.node if node.output[0] in shapes}
    nodes = [node for node in graph.node if node.output[0] not in shapes]
    used = {operand for node in nodes for operand in node.input}
    kept = [item for item in graph.initializer if item.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    for weight, shape in shapes.items():
        role = UNCALIBRATED.get(part[weight], part[weight])
        array = drawn(name, weight, role, shape)
        array *= np.float32(filled[weight])
        kind = helper.np_dtype_to_tensor_dtype(filled[weight].dtype)
        tensor = graph.initializer.add(name=weight, data_type=kind, dims=shape)
        tensor.raw_data = array.astype(filled[weight].dtype.newbyteorder("<"), copy=False).tobytes()
    return result


def _filled(node: onnx.NodeProto) -> np.floating[Any]:
    """The gain of a weight, in the weight's own type."""
    values = [helper.get_attribute_value(item) for item in node.attribute if item.name == "value"]
    return numpy_helper.to_array(values[0])[0] if values else np.float32(1)


DRAWN: Mapping[str, Topology] = MappingProxyType(
    {
        **bert.NETWORKS,
        **conformer.NETWORKS,
        **convnext.NETWORKS,
        **decoder.NETWORKS,
        **dlrm.NETWORKS,
        **gpt2.NETWORKS,
        **siamese.NETWORKS,
        **swin.NETWORKS,
        **vit.NETWORKS,
        **whisper.NETWORKS,
        **wide_deep.NETWORKS,
    }
)
"""Topologies of the networks whose weights are drawn. NAME-mini has the operators of NAME and runs in seconds."""

BERT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")

PUBLISHED_SHAPES: Mapping[str, Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "bert_base": dict.fromkeys(BERT_INPUTS, (1, 128)),
        "bert_large": dict.fromkeys(BERT_INPUTS, (1, 384)),
        "gpt2": {"input_ids": (1, 1024)},
        **{name: {"ids": (1, 1)} for name in decoder.NETWORKS},
    }
)
"""Extents, as the network was published, of inputs that its file leaves open; of decoders, those of one step."""
