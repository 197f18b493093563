"""GPT-2, small: the first pass over a text (prefill), which ends with the scores of the word that comes next.

    input_ids --table, + positions--> 12 layers in which no word sees later ones --norm, last place--> x table

After Radford, Wu, Child, Luan, Amodei, Sutskever, "Language Models are Unsupervised Multitask Learners" (2019), section
2.3, the smallest of table 2, in the form in which PyTorch's exporter writes the `GPT2LMHeadModel` of transformers:
query, key and value by one Gemm on [N T, C] between Reshapes whose extents are computed, GELU by tanh spelled out, the
mask by a Where, the last product with the table of words. Batch and length are dynamic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from dsa_sched.zoo.meanings.declared_meanings import Indices
from dsa_sched.zoo.topologies.node_builder import TO_THE_END, topologies
from dsa_sched.zoo.topologies.sequence_builder import Attention, SequenceBuilder

LEAST = float(np.finfo(np.float32).min)
WORD_GAIN = 0.125
"""Gain of the table of words, also the last factor: scores of a normalised state are then a few units large."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """`extents` of the input, [batch, length]; rows of the tables of words and positions; layers of `width`."""

    name: str
    extents: tuple[int | str, int | str]
    words: int
    positions: int
    layers: int
    width: int
    heads: int


FULL = _Shape("gpt2", ("batch", "sequence"), 50257, 1024, 12, 768, 12)
"""12 layers of 768, 124.4 million parameters."""
MINI = _Shape("gpt2-mini", (1, 16), 100, 32, 2, 48, 4)
"""Two layers of 48 over 16 words."""


def _topology(shape: _Shape) -> onnx.ModelProto:
    net = SequenceBuilder(shape.name)
    ids = net.integer_input("input_ids", shape.extents, Indices((shape.words,)))
    length = net.node("Shape", "length", [ids], start=1, end=2)
    table = net.weight("words.weight", shape.words, shape.width, gain=WORD_GAIN)
    words = net.node("Gather", "words", [table, ids], axis=0)
    all_places = net.constant("position_ids", np.arange(shape.positions, dtype=np.int64)[None])
    places = net.node("Slice", "places", [all_places, net.integers(0), length, net.integers(1)])
    rows = net.weight("positions.weight", shape.positions, shape.width, gain=WORD_GAIN)
    x = net.add("embedded", words, net.node("Gather", "positions", [rows, places], axis=0))
    earlier = _earlier(net, length, shape)
    for number in range(shape.layers):
        x = _layer(net, f"layer{number}", x, earlier, shape)
    last = net.slice("last", net.layer_norm("norm", x, shape.width), 1, -1, TO_THE_END)
    return net.build(net.node("MatMul", "scores", [last, net.transpose("words.columns", table, 1, 0)]))


def _earlier(net: SequenceBuilder, length: str, shape: _Shape) -> str:
    """[1, 1, T, T]: whether the second place is not later than the first."""
    square = np.tril(np.ones((shape.positions,) * 2, bool))[None, None]
    rows = net.node("Slice", "earlier.rows", [net.constant("causal", square), net.integers(0), length, net.integers(2)])
    return net.node("Slice", "earlier", [rows, net.integers(0), length, net.integers(3)])


def _layer(net: SequenceBuilder, name: str, x: str, earlier: str, shape: _Shape) -> str:
    normed = net.layer_norm(f"{name}.norm1", x, shape.width)
    x = net.add(f"{name}.add1", _attention(net, f"{name}.attention", normed, earlier, shape), x)
    normed = net.layer_norm(f"{name}.norm2", x, shape.width)
    wide = _gelu(net, f"{name}.gelu", _product(net, f"{name}.mlp.wide", normed, shape.width, 4 * shape.width))
    return net.add(f"{name}.add2", x, _product(net, f"{name}.mlp.narrow", wide, 4 * shape.width, shape.width))


def _attention(net: SequenceBuilder, name: str, x: str, earlier: str, shape: _Shape) -> str:
    kind = Attention(shape.width, shape.heads)
    parts = [f"{name}.{part}" for part in ("query", "key", "value")]
    joined = _product(net, f"{name}.qkv", x, shape.width, 3 * shape.width)
    net.node("Split", f"{name}.split", [joined], parts, axis=2, num_outputs=3)
    query, key, value = (net.heads(part, part, kind) for part in parts)
    scores = net.node("MatMul", f"{name}.scores", [query, net.transpose(f"{name}.key.columns", key, 0, 1, 3, 2)])
    scores = net.node("Div", f"{name}.scaled", [scores, net.number(kind.depth**0.5)])
    scores = net.node("Where", f"{name}.masked", [earlier, scores, net.number(LEAST)])
    seen = net.node("MatMul", f"{name}.values", [net.node("Softmax", f"{name}.softmax", [scores], axis=-1), value])
    seen = net.reshape(f"{name}.joined", net.transpose(f"{name}.values.turned", seen, 0, 2, 1, 3), 0, -1, kind.width)
    return _product(net, f"{name}.output", seen, shape.width, shape.width)


def _product(net: SequenceBuilder, name: str, x: str, inside: int, outside: int) -> str:
    """A Gemm on rows, put back into sequences of the length that was there."""
    before = net.node("Shape", f"{name}.extents", [x], start=0, end=2)
    after = net.node("Concat", f"{name}.shape", [before, net.integers(outside)], axis=0)
    rows = net.reshape(f"{name}.rows", x, -1, inside)
    constants = [net.weight(f"{name}.weight", inside, outside), net.weight(f"{name}.bias", outside)]
    product = net.node("Gemm", f"{name}.gemm", [rows, *constants])
    return net.node("Reshape", name, [product, after])


def _gelu(net: SequenceBuilder, name: str, x: str) -> str:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    half = net.node("Mul", f"{name}.half", [x, net.number(0.5)])
    cube = net.node("Mul", f"{name}.cube", [net.node("Pow", f"{name}.pow", [x, net.number(3.0)]), net.number(0.044715)])
    inner = net.node("Mul", f"{name}.inner", [net.add(f"{name}.sum", x, cube), net.number((2 / np.pi) ** 0.5)])
    share = net.add(f"{name}.share", net.node("Tanh", f"{name}.tanh", [inner]), net.number(1.0))
    return net.node("Mul", name, [half, share])


NETWORKS = topologies(_topology, FULL, MINI)
