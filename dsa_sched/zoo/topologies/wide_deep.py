"""Wide and deep, with two texts: a linear model that remembers, a deep one that generalises, two that read.

    crosses --one number each, summed----------------------------------------------> + --> one number from 0 to 1
    fields --rows of a table--, numbers --1,200--> 1,024 --> 512 --> 256 --> number --> /
    query  --rows of a table--> LSTM, last state --/          the history by a GRU likewise

After Cheng et al., "Wide & Deep Learning for Recommender Systems" (DLRS 2016), section 4.2 and figure 4: rows of 32,
about 1,200 numbers into three layers with ReLUs. Texts as Zhang et al. join recurrent layers to it in "DUET: A
Compiler-Runtime Subgraph Scheduling Approach for Tensor Programs on a Coupled CPU-GPU Architecture" (IPDPS 2021): 256
states. Tables of all fields are stored in sequence, so an index is the field's own plus the start of its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx

from dsa_sched.zoo.meanings.declared_meanings import Indices
from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.sequence_builder import SequenceBuilder

CROSS_GAIN = 0.5
SCORE_GAIN = 4.0


@dataclass(frozen=True, slots=True)
class _Shape:
    """`crosses` indices into `cross_rows` numbers; `fields` of `field_rows` rows of `width` each, and `numbers`;
    `words` of `vocabulary` in either text, and the states of the layers that read them; widths of the deep layers."""

    name: str
    crosses: int
    cross_rows: int
    fields: int
    field_rows: int
    width: int
    numbers: int
    words: int
    vocabulary: int
    states: int
    layers: tuple[int, ...]


FULL = _Shape("wide_deep", 16, 100_000, 36, 10_000, 32, 48, 96, 20_000, 256, (1024, 512, 256))
"""1,200 numbers of 36 fields and 48 others, two texts of 96 words."""
MINI = _Shape("wide_deep-mini", 4, 50, 6, 20, 8, 4, 8, 50, 16, (32, 24, 16))
"""Six fields, two texts of eight words."""


def _topology(shape: _Shape) -> onnx.ModelProto:
    net = SequenceBuilder(shape.name)
    parts = [_fields(net, shape), net.input("numbers", (1, shape.numbers))]
    parts += [_text(net, name, kind, shape) for name, kind in (("query", "LSTM"), ("history", "GRU"))]
    x = net.node("Concat", "joined", parts, axis=1)
    inside = shape.fields * shape.width + shape.numbers + 2 * shape.states
    for number, (narrow, wide) in enumerate(pairwise((inside, *shape.layers))):
        x = net.node("Relu", f"deep{number}.relu", [net.dense(f"deep{number}", x, narrow, wide)])
    deep = net.dense("deep", x, shape.layers[-1], 1, SCORE_GAIN)
    return net.build(net.node("Sigmoid", "wanted", [net.add("score", _crosses(net, shape), deep)]))


def _crosses(net: SequenceBuilder, shape: _Shape) -> str:
    """The linear model: one number for every cross of features that is there."""
    indices = net.integer_input("crosses", (1, shape.crosses), Indices((shape.cross_rows,)))
    numbers = net.node(
        "Gather", "wide.numbers", [net.weight("wide", shape.cross_rows, 1, gain=CROSS_GAIN), indices], axis=0
    )
    return net.node("ReduceSum", "wide.sum", [numbers, net.integers(1)], keepdims=0)


def _fields(net: SequenceBuilder, shape: _Shape) -> str:
    indices = net.integer_input("fields", (1, shape.fields), Indices((shape.field_rows,)))
    starts = net.constant("fields.starts", np.arange(shape.fields, dtype=np.int64)[None] * shape.field_rows)
    table = net.weight("fields.weight", shape.fields * shape.field_rows, shape.width)
    rows = net.node("Gather", "fields.rows", [table, net.add("fields.indices", indices, starts)], axis=0)
    return net.reshape("fields.flat", rows, 0, shape.fields * shape.width)


def _text(net: SequenceBuilder, name: str, kind: str, shape: _Shape) -> str:
    """The last state of the recurrent layer that reads the words."""
    indices = net.integer_input(name, (1, shape.words), Indices((shape.vocabulary,)))
    rows = net.node(
        "Gather", f"{name}.rows", [net.weight(f"{name}.weight", shape.vocabulary, shape.states), indices], axis=0
    )
    steps = net.transpose(f"{name}.steps", rows, 1, 0, 2)
    gates = {"LSTM": 4, "GRU": 3}[kind] * shape.states
    weights = [
        net.weight(f"{name}.input", 1, gates, shape.states),
        net.weight(f"{name}.state", 1, gates, shape.states),
        net.weight(f"{name}.bias", 1, 2 * gates),
    ]
    settings = {"linear_before_reset": 1} if kind == "GRU" else {}
    outputs = ["", f"{name}.last"]
    state = net.node(kind, f"{name}.{kind.lower()}", [steps, *weights], outputs, hidden_size=shape.states, **settings)
    return net.node("Squeeze", f"{name}.read", [state, net.integers(0)])


NETWORKS = topologies(_topology, FULL, MINI)
