"""Language models that keep keys and values: one pass over new tokens behind those that are cached.

    ids [batch, sequence], begin [batch] --table--> layers that write rows `begin` on of their caches --norm--> x table
        -->  token [batch, sequence], present.N.key, present.N.value [batch, group, room, element]

The same file is the first pass over a text (prefill, `begin` 0) and each step after it (one token). Rows see the rows
at or before their own place, so what stands after them in a cache does not matter. After the published configurations
of Qwen3-0.6B, Llama 3.2 1B and Gemma 3 270M; in ONNX's operators of set 24: RMSNormalization, RotaryEmbedding,
TensorScatter, and Attention over what a cache holds. The tables of words are the last factors as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import numpy as np
import onnx

from dsa_sched.zoo.meanings.declared_meanings import Indices, Range
from dsa_sched.zoo.topologies.gpt2 import WORD_GAIN
from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.sequence_builder import SequenceBuilder

OPSET = 24
"""First operator set with TensorScatter and with attention over lengths."""


@dataclass(frozen=True, slots=True)
class Turning:
    """Rotation by place: pair i of n turns by `base` ^ (-i / n) per place. Where `slower` is more than 1, pairs that
    turn less than `few` times in `known` places turn that much slower, and those between `few` and `many` in part."""

    base: float
    slower: float = 1.0
    known: int = 8192
    few: float = 1.0
    many: float = 4.0

    def speeds(self, pairs: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Angle per place of each pair."""
        plain = self.base ** -(np.arange(pairs) / pairs)
        kept = np.clip((self.known * plain / (2 * pi) - self.few) / (self.many - self.few), 0.0, 1.0)
        return np.asarray(plain * (kept + (1 - kept) / self.slower))


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """`layers` of `width`; `heads` of queries share `groups` of keys and values of `depth`; the MLP has `inner` values.
    Of a cache there are `room` rows. `normed` queries and keys have norms of their own.

    With a `window`, all but each `period`-th layer see only so many places back, and turn by `near`; their results are
    normed before they are added, too.
    """

    name: str
    words: int
    layers: int
    width: int
    heads: int
    groups: int
    depth: int
    inner: int
    room: int
    turning: Turning
    epsilon: float = 1e-6
    normed: bool = False
    window: int = 0
    period: int = 6
    near: Turning = Turning(1e4)
    dtype: type[np.floating[Any]] = np.float32

    def sees_all(self, layer: int) -> bool:
        return not self.window or layer % self.period == self.period - 1


QWEN = DecoderShape(
    "qwen3_0_6b", 151_936, 28, 1024, 16, 8, 128, 3072, 2048, Turning(1e6), normed=True, dtype=np.float16
)
"""28 layers of 1024, 596 million parameters."""
LLAMA = DecoderShape(
    "llama3_2_1b", 128_256, 16, 2048, 32, 8, 64, 8192, 2048, Turning(5e5, slower=32.0), epsilon=1e-5, dtype=np.float16
)
"""16 layers of 2048, 1,236 million parameters."""
GEMMA = DecoderShape(
    "gemma3_270m", 262_144, 18, 640, 4, 1, 256, 2048, 2048, Turning(1e6), normed=True, window=512, dtype=np.float16
)
"""18 layers of 640, 268 million parameters, most of them in the table of words."""
QWEN_MINI = DecoderShape("qwen3-mini", 96, 2, 64, 4, 2, 16, 96, 96, Turning(1e4), normed=True)
LLAMA_MINI = DecoderShape(
    "llama3_2-mini", 96, 2, 64, 4, 2, 16, 128, 96, Turning(1e3, slower=4.0, known=64), epsilon=1e-5
)
GEMMA_MINI = DecoderShape("gemma3-mini", 128, 2, 40, 4, 1, 16, 96, 96, Turning(1e4), normed=True, window=16, period=2)


class _Decoder(SequenceBuilder):
    """Nodes of a decoder, and the values that all layers share. It reads the numbers of words, or states in the place
    of words."""

    def __init__(self, shape: DecoderShape, states: bool) -> None:
        super().__init__(shape.name, OPSET, shape.dtype)
        self.shape = shape
        if states:
            self.source = self.input("states", ("batch", "sequence", shape.width))
        else:
            self.source = self.integer_input("ids", ("batch", "sequence"), Indices((shape.words,)))
        self.begin = self.integer_input("begin", ("batch",), Range(0, shape.room // 2))
        rows = self.node("Shape", "rows", [self.source], start=1, end=2)
        self.length = self.node("Add", "length", [self.begin, rows])
        steps = self.node("Range", "steps", [self.index(0), self.node("Squeeze", "row_count", [rows]), self.index(1)])
        first = self.node("Unsqueeze", "first", [self.begin, self.integers(1)])
        self.places = self.node("Add", "places", [first, steps])
        self.presents: list[str] = []
        self.near = self._window() if shape.window else ""

    def rms_norm(self, name: str, x: str, width: int) -> str:
        weight = self.weight(f"{name}.weight", width)
        return self.node("RMSNormalization", name, [x, weight], axis=-1, epsilon=self.shape.epsilon)

    def turned(self, name: str, x: str, turning: Turning) -> str:
        """Heads [batch, head, row, element], rotated by the places of their rows."""
        shape = self.shape
        angles = np.arange(shape.room)[:, None] * turning.speeds(shape.depth // 2)
        tables = {f"{kind}.{turning.base:g}": function(angles) for kind, function in
                  (("cosines", np.cos), ("sines", np.sin))}  # fmt: skip
        made = [self.shared(table, values.astype(shape.dtype)) for table, values in tables.items()]
        return self.node("RotaryEmbedding", name, [x, *made, self.places])

    def apart(self, name: str, x: str, heads: int) -> str:
        """[batch, row, head x element] to [batch, row, head, element]."""
        return self.reshape(name, x, 0, -1, heads, self.shape.depth)

    def kept(self, layer: int, kind: str, new: str) -> str:
        """A cache, with new rows at their places."""
        shape = self.shape
        past = self.input(f"past.{layer}.{kind}", ("batch", shape.groups, shape.room, shape.depth))
        self.presents.append(f"present.{layer}.{kind}")
        return self.node("TensorScatter", self.presents[-1], [past, new, self.begin], axis=-2)

    def _window(self) -> str:
        """[batch, 1, row, column]: whether a column is less than a window before the place of a row."""
        columns = self.constant("columns", np.arange(self.shape.room))
        oldest = self.node("Sub", "oldest", [self.places, self.integers(self.shape.window)])
        oldest = self.node("Unsqueeze", "oldest.rows", [oldest, self.integers(1, 3)])
        return self.node("Greater", "near", [columns, oldest])


def decoder_topology(shape: DecoderShape) -> onnx.ModelProto:
    """The whole network."""
    net = _Decoder(shape, states=False)
    table = net.weight("words.weight", shape.words, shape.width, gain=WORD_GAIN)
    x = net.node("Gather", "words", [table, net.source], axis=0)
    if shape.window:
        x = net.node("Mul", "words.scaled", [x, net.number(sqrt(shape.width))])
    x = _layers(net, x)
    return net.build(_token(net, x, net.transpose("words.columns", table, 1, 0)), *net.presents)


def layers_topology(shape: DecoderShape) -> onnx.ModelProto:
    """The layers alone, from states to states."""
    net = _Decoder(shape, states=True)
    return net.build(_layers(net, net.source), *net.presents)


def head_topology(shape: DecoderShape) -> onnx.ModelProto:
    """What follows the layers: from states to tokens."""
    net = _Decoder(shape, states=True)
    columns = net.weight("words.columns", shape.width, shape.words)
    return net.build(_token(net, net.source, columns))


def _layers(net: _Decoder, x: str) -> str:
    for layer in range(net.shape.layers):
        x = _layer(net, layer, x)
    return x


def _token(net: _Decoder, x: str, columns: str) -> str:
    scores = net.node("MatMul", "scores", [net.rms_norm("norm", x, net.shape.width), columns])
    return net.node("ArgMax", "token", [scores], axis=-1, keepdims=0)


def _layer(net: _Decoder, layer: int, x: str) -> str:
    name, width = f"layer{layer}", net.shape.width
    made = _attention(net, layer, net.rms_norm(f"{name}.norm1", x, width))
    made = net.rms_norm(f"{name}.norm1.after", made, width) if net.shape.window else made
    x = net.add(f"{name}.add1", x, made)
    made = _gated(net, f"{name}.mlp", net.rms_norm(f"{name}.norm2", x, width))
    made = net.rms_norm(f"{name}.norm2.after", made, width) if net.shape.window else made
    return net.add(f"{name}.add2", x, made)


def _attention(net: _Decoder, layer: int, x: str) -> str:
    shape, name = net.shape, f"layer{layer}.attention"
    turning = shape.turning if shape.sees_all(layer) else shape.near
    parts = []
    for part, heads in (("query", shape.heads), ("key", shape.groups), ("value", shape.groups)):
        own = f"{name}.{part}"
        made = net.linear(own, x, shape.width, heads * shape.depth, bias=False)
        made = net.apart(f"{own}.heads", made, heads)
        if shape.normed and part != "value":
            made = net.rms_norm(f"{own}.norm", made, shape.depth)
        made = net.transpose(f"{own}.by_head", made, 0, 2, 1, 3)
        made = made if part == "value" else net.turned(f"{own}.turned", made, turning)
        parts.append(made if part == "query" else net.kept(layer, part, made))
    mask = "" if shape.sees_all(layer) else net.near
    seen = net.node("Attention", name, [*parts, mask, "", "", net.length], is_causal=1)
    joined = net.reshape(
        f"{name}.joined", net.transpose(f"{name}.by_row", seen, 0, 2, 1, 3), 0, -1, shape.heads * shape.depth
    )
    return net.linear(f"{name}.output", joined, shape.heads * shape.depth, shape.width, bias=False)


def _gated(net: _Decoder, name: str, x: str) -> str:
    """The MLP whose one half decides how much of the other passes."""
    shape = net.shape
    gate = net.linear(f"{name}.gate", x, shape.width, shape.inner, bias=False)
    gate = (
        net.node("Gelu", f"{name}.gelu", [gate], approximate="tanh") if shape.window else net.silu(f"{name}.silu", gate)
    )
    both = net.node("Mul", f"{name}.gated", [gate, net.linear(f"{name}.up", x, shape.width, shape.inner, bias=False)])
    return net.linear(f"{name}.down", both, shape.inner, shape.width, bias=False)


NETWORKS = topologies(decoder_topology, QWEN, LLAMA, GEMMA, QWEN_MINI, LLAMA_MINI, GEMMA_MINI)
