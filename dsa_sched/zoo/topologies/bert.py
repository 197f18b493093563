"""BERT: words as integers, a mask of the words that are there, norms after every part.

    input_ids, token_type_ids, positions --three tables, added, norm--> 12 or 24 layers --> states, the first pooled

After Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding"
(NAACL 2019), section 3, in the form in which PyTorch's exporter writes the `BertModel` of transformers: the mask
becomes 0 and the least float32, once, and is added to the scores of every layer. Batch and length are dynamic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto

from dsa_sched.zoo.meanings.declared_meanings import Indices, MaskMeaning
from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.sequence_builder import Attention, SequenceBuilder

EPSILON = 1e-12
TYPES = 2
LEAST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class _Shape:
    """`extents` of the inputs, [batch, length]; rows of the tables of words and positions; layers of `width`."""

    name: str
    extents: tuple[int | str, int | str]
    words: int
    positions: int
    layers: int
    width: int
    heads: int


OPEN = ("batch", "sequence")
BASE = _Shape("bert_base", OPEN, 30522, 512, 12, 768, 12)
LARGE = _Shape("bert_large", OPEN, 30522, 512, 24, 1024, 16)
BASE_MINI = _Shape("bert_base-mini", (1, 16), 100, 32, 2, 48, 4)
"""Two layers of 48 over 16 words."""
LARGE_MINI = _Shape("bert_large-mini", (1, 24), 100, 32, 3, 64, 4)
"""Three layers of 64 over 24 words."""


def bert_base_topology(layers: int = BASE.layers) -> onnx.ModelProto:
    """12 layers of 768, 109.5 million parameters; fewer layers to measure the cost of one more."""
    return topology(replace(BASE, layers=layers))


def bert_large_topology(layers: int = LARGE.layers) -> onnx.ModelProto:
    """24 layers of 1,024, 335.1 million parameters, or fewer layers."""
    return topology(replace(LARGE, layers=layers))


def topology(shape: _Shape) -> onnx.ModelProto:
    """The network of a shape."""
    net = SequenceBuilder(shape.name)
    ids = net.integer_input("input_ids", shape.extents, Indices((shape.words,)))
    there = net.integer_input("attention_mask", shape.extents, MaskMeaning())
    types = net.integer_input("token_type_ids", shape.extents, Indices((TYPES,)))
    x = _embedded(net, ids, types, shape)
    mask = _added_mask(net, there)
    kind = Attention(shape.width, shape.heads)
    for number in range(shape.layers):
        name = f"layer{number}"
        seen = net.attention(f"{name}.attention", x, kind, lambda node, scores: net.add(node, scores, mask))
        x = net.layer_norm(f"{name}.norm1", net.add(f"{name}.add1", seen, x), shape.width, EPSILON)
        inner = net.feed_forward(name, x, shape.width, 4 * shape.width, "intermediate", "output")
        x = net.layer_norm(f"{name}.norm2", net.add(f"{name}.add2", inner, x), shape.width, EPSILON)
    first = net.node("Gather", "pooler.first", [x, net.index(0)], axis=1)
    return net.build(x, net.node("Tanh", "pooled", [net.dense("pooler", first, shape.width, shape.width)]))


def _embedded(net: SequenceBuilder, ids: str, types: str, shape: _Shape) -> str:
    """Sum of the embeddings of words, types and as many positions as there are words."""
    width = shape.width
    words = net.node("Gather", "words", [net.weight("words.weight", shape.words, width), ids], axis=0)
    kinds = net.node("Gather", "types", [net.weight("types.weight", TYPES, width), types], axis=0)
    all_places = net.constant("position_ids", np.arange(shape.positions, dtype=np.int64)[None])
    length = net.node("Shape", "length", [ids], start=1, end=2)
    places = net.node("Slice", "places", [all_places, net.integers(0), length, net.integers(1)])
    positions = net.node(
        "Gather", "positions", [net.weight("positions.weight", shape.positions, width), places], axis=0
    )
    summed = net.add("embedded.positions", net.add("embedded.types", words, kinds), positions)
    return net.layer_norm("embedded", summed, width, EPSILON)


def _added_mask(net: SequenceBuilder, there: str) -> str:
    """Mask [N, 1, 1, T]: 0 where there is a word, the least number where there is none."""
    rows = net.node("Unsqueeze", "mask.rows", [there, net.integers(1)])
    heads = net.node("Unsqueeze", "mask.heads", [rows, net.integers(2)])
    floats = net.node("Cast", "mask.floats", [heads], to=TensorProto.FLOAT)
    absent = net.node("Sub", "mask.absent", [net.number(1.0), floats])
    return net.node("Mul", "mask", [absent, net.number(LEAST)])


NETWORKS = topologies(topology, BASE, LARGE, BASE_MINI, LARGE_MINI)
