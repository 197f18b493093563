"""Networks whose weights are drawn and not calibrated, and the extents that open dimensions were published with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.zoo.topologies.bert import (
    bert_base_mini_topology,
    bert_base_topology,
    bert_large_mini_topology,
    bert_large_topology,
)
from dsa_sched.zoo.topologies.conformer import conformer_m_mini_topology, conformer_m_topology
from dsa_sched.zoo.topologies.convnext import convnext_t_mini_topology, convnext_t_topology
from dsa_sched.zoo.topologies.dlrm import dlrm_mini_topology, dlrm_topology
from dsa_sched.zoo.topologies.gpt2 import gpt2_mini_topology, gpt2_topology
from dsa_sched.zoo.topologies.siamese import siamese_mini_topology, siamese_topology
from dsa_sched.zoo.topologies.swin import swin_t_mini_topology, swin_t_topology
from dsa_sched.zoo.topologies.vit import (
    vit_b16_384_mini_topology,
    vit_b16_384_topology,
    vit_b16_mini_topology,
    vit_b16_topology,
)
from dsa_sched.zoo.topologies.whisper import whisper_encoder_mini_topology, whisper_encoder_topology
from dsa_sched.zoo.topologies.wide_deep import wide_deep_mini_topology, wide_deep_topology
from dsa_sched.zoo.weights import ConstantRole, drawn, roles

UNCALIBRATED = {ConstantRole.MEAN: ConstantRole.SHIFT, ConstantRole.VARIANCE: ConstantRole.FACTOR}
"""Roles of the statistics of a norm that has seen no data: near 0, near 1."""


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


@dataclass(frozen=True, slots=True)
class DrawnNetwork:
    """`shapes` are extents of inputs that the model file leaves open, as the network was published."""

    topology: Callable[[], onnx.ModelProto]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def _texts(words: int) -> Mapping[str, tuple[int, ...]]:
    """One text of `words` words for BERT."""
    return dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, words))


DRAWN: Mapping[str, DrawnNetwork] = MappingProxyType(
    {
        "bert_base": DrawnNetwork(bert_base_topology, _texts(128)),
        "bert_base-mini": DrawnNetwork(bert_base_mini_topology),
        "bert_large": DrawnNetwork(bert_large_topology, _texts(384)),
        "bert_large-mini": DrawnNetwork(bert_large_mini_topology),
        "conformer_m": DrawnNetwork(conformer_m_topology),
        "conformer_m-mini": DrawnNetwork(conformer_m_mini_topology),
        "convnext_t": DrawnNetwork(convnext_t_topology),
        "convnext_t-mini": DrawnNetwork(convnext_t_mini_topology),
        "dlrm": DrawnNetwork(dlrm_topology),
        "dlrm-mini": DrawnNetwork(dlrm_mini_topology),
        "gpt2": DrawnNetwork(gpt2_topology, {"input_ids": (1, 1024)}),
        "gpt2-mini": DrawnNetwork(gpt2_mini_topology),
        "siamese": DrawnNetwork(siamese_topology),
        "siamese-mini": DrawnNetwork(siamese_mini_topology),
        "swin_t": DrawnNetwork(swin_t_topology),
        "swin_t-mini": DrawnNetwork(swin_t_mini_topology),
        "vit_b16": DrawnNetwork(vit_b16_topology),
        "vit_b16-mini": DrawnNetwork(vit_b16_mini_topology),
        "vit_b16_384": DrawnNetwork(vit_b16_384_topology),
        "vit_b16_384-mini": DrawnNetwork(vit_b16_384_mini_topology),
        "whisper_encoder": DrawnNetwork(whisper_encoder_topology),
        "whisper_encoder-mini": DrawnNetwork(whisper_encoder_mini_topology),
        "wide_deep": DrawnNetwork(wide_deep_topology),
        "wide_deep-mini": DrawnNetwork(wide_deep_mini_topology),
    }
)
