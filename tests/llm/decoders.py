"""Small decoders that generate tokens, with caches of keys and values, in the spellings that users bring.

    ids [item, row], length [item]; caches [item, head, room, element]   -->   next token of each row, caches

`standard` writes ONNX's operators (RotaryEmbedding, TensorScatter, Attention over lengths); `fused` onnxruntime's
(GroupQueryAttention, SkipSimplifiedLayerNormalization). Both have the same weights and mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend.network.spelling import MICROSOFT

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Extents of a decoder, of `room` rows in its caches."""

    layers: int = 2
    words: int = 48
    heads: int = 4
    groups: int = 2
    width: int = 16
    inner: int = 96
    room: int = 32

    @property
    def hidden(self) -> int:
        return self.heads * self.width


@dataclass
class Writer:
    """A graph that is being written, with drawn weights."""

    shape: Decoder
    rows: int | str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)

    def op(self, op_type: str, *operands: str, name: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, operands, [name], name=name, domain=domain, **attributes))
        return name

    def constant(self, array: Array, name: str) -> str:
        self.stored.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def weights(self, name: str, *shape: int) -> str:
        seed = [*name.encode()]
        drawn = np.random.default_rng(seed).normal(size=shape) / np.sqrt(shape[0])
        return self.constant(drawn.astype(np.float32), name)

    def gain(self, name: str) -> str:
        drawn = np.random.default_rng([*name.encode()]).uniform(0.5, 1.5, self.shape.hidden)
        return self.constant(drawn.astype(np.float32), name)

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        return self.op("MatMul", x, self.weights(f"{name}.weight", rows, columns), name=name)

    def cache(self, layer: int, kind: str) -> tuple[str, str]:
        """Names of a cache as an input and as an output."""
        shape = (1, self.shape.groups, self.shape.room, self.shape.width)
        before, after = f"past.{layer}.{kind}", f"present.{layer}.{kind}"
        self.inputs.append(helper.make_tensor_value_info(before, TensorProto.FLOAT, shape))
        self.outputs.append(helper.make_tensor_value_info(after, TensorProto.FLOAT, shape))
        return before, after

    def model(self, *sets: onnx.OperatorSetIdProto) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.stored)
        return helper.make_model(graph, opset_imports=list(sets), ir_version=11)


def decoder(spelling: str, rows: int | str, shape: Decoder = Decoder()) -> onnx.ModelProto:
    """A decoder that reads `rows` tokens at once, in a spelling; a text is a symbolic dimension."""
    w = Writer(shape, rows)
    length_type = TensorProto.INT64 if spelling == "standard" else TensorProto.INT32
    w.inputs.append(helper.make_tensor_value_info("ids", TensorProto.INT64, (1, rows)))
    w.inputs.append(helper.make_tensor_value_info("length", length_type, (1,)))
    if spelling == "fused":
        w.inputs.append(helper.make_tensor_value_info("total", TensorProto.INT32, ()))
    angles = np.arange(shape.room)[:, None] / 100.0 ** (np.arange(shape.width // 2) / (shape.width // 2))
    w.constant(np.cos(angles).astype(np.float32), "cosines")
    w.constant(np.sin(angles).astype(np.float32), "sines")
    x = w.op("Gather", w.weights("words", shape.words, shape.hidden), "ids", name="embedded")
    x = LAYERS[spelling](w, x)
    logits = w.product(x, "logits", shape.hidden, shape.words)
    w.op("ArgMax", logits, name="token", axis=-1, keepdims=0)
    w.outputs.insert(0, helper.make_tensor_value_info("token", TensorProto.INT64, (1, rows)))
    sets = [helper.make_opsetid("", 24 if spelling == "standard" else 21)]
    return w.model(*sets, *([helper.make_opsetid(MICROSOFT, 1)] if spelling == "fused" else []))


def _standard(w: Writer, x: str) -> str:
    shape = w.shape
    _count_rows(w)
    w.op("Sub", "length", "rows", name="begin")
    w.op("Add", "begin", "steps", name="places")
    for layer in range(shape.layers):
        own = f"layer{layer}"
        y = w.op("RMSNormalization", x, w.gain(f"{own}.gain"), name=f"{own}.norm", epsilon=1e-6)
        q, k, v = _projected(w, y, own)
        q, k = (w.op("RotaryEmbedding", each, "cosines", "sines", "places", name=f"{each}.turned", num_heads=heads)
                for each, heads in ((q, shape.heads), (k, shape.groups)))  # fmt: skip
        w.constant(np.array([0, 0, shape.groups, shape.width]), f"{own}.apart")
        present = []
        for kind, new in (("key", k), ("value", v)):
            before, after = w.cache(layer, kind)
            apart = w.op("Reshape", new, f"{own}.apart", name=f"{new}.heads")
            apart = w.op("Transpose", apart, name=f"{new}.by_head", perm=(0, 2, 1, 3))
            present.append(w.op("TensorScatter", before, apart, "begin", name=after, axis=-2))
        w.constant(np.array([0, 0, shape.heads, shape.width]), f"{own}.heads")
        by_head = w.op("Reshape", q, f"{own}.heads", name=f"{q}.heads")
        by_head = w.op("Transpose", by_head, name=f"{q}.by_head", perm=(0, 2, 1, 3))
        y = w.op("Attention", by_head, *present, "", "", "", "length", name=f"{own}.attention", is_causal=1)
        y = w.op("Transpose", y, name=f"{own}.by_row", perm=(0, 2, 1, 3))
        y = w.op("Reshape", y, w.constant(np.array([0, 0, shape.hidden]), f"{own}.joined"), name=f"{own}.flat")
        x = w.op("Add", x, w.product(y, f"{own}.out", shape.hidden, shape.hidden), name=f"{own}.attended")
        y = w.op("RMSNormalization", x, w.gain(f"{own}.gain2"), name=f"{own}.norm2", epsilon=1e-6)
        x = w.op("Add", x, _gated(w, y, own), name=f"{own}.added")
    return w.op("RMSNormalization", x, w.gain("last.gain"), name="last", epsilon=1e-6)


def _count_rows(w: Writer) -> None:
    """The number of rows, and the number of each row."""
    if isinstance(w.rows, int):
        w.constant(np.array(w.rows, np.int64), "rows")
        w.constant(np.arange(w.rows)[None], "steps")
        return
    extent = w.op("Shape", "ids", name="extent", start=1, end=2)
    w.op("Squeeze", extent, w.constant(np.array([0]), "first"), name="rows")
    bounds = [w.constant(np.array(bound, np.int64), name) for bound, name in ((0, "zero"), (1, "step"))]
    numbers = w.op("Range", bounds[0], "rows", bounds[1], name="numbers")
    w.op("Unsqueeze", numbers, "first", name="steps")


def _fused(w: Writer, x: str) -> str:
    shape = w.shape
    y = w.op("SimplifiedLayerNormalization", x, w.gain("layer0.gain"), name="layer0.norm", epsilon=1e-6, axis=-1)
    w.constant(np.array(1, np.int32), "one")
    w.op("Sub", "length", "one", name="length_less")
    for layer in range(shape.layers):
        own = f"layer{layer}"
        q, k, v = _projected(w, y, own)
        caches = [w.cache(layer, kind) for kind in ("key", "value")]
        w.nodes.append(helper.make_node(
            "GroupQueryAttention",
            [q, k, v, *(before for before, _ in caches), "length_less", "total", "cosines", "sines"],
            [f"{own}.flat", *(after for _, after in caches)],
            name=f"{own}.attention", domain=MICROSOFT,
            num_heads=shape.heads, kv_num_heads=shape.groups, do_rotary=1,
        ))  # fmt: skip
        y = w.product(f"{own}.flat", f"{own}.out", shape.hidden, shape.hidden)
        y, x = _skipped(w, x, y, f"{own}.gain2", f"{own}.norm2")
        following = f"layer{layer + 1}" if layer + 1 < shape.layers else "last"
        y, x = _skipped(w, x, _gated(w, y, own), f"{following}.gain", f"{following}.norm")
    return y


def _skipped(w: Writer, x: str, y: str, gain: str, name: str) -> tuple[str, str]:
    """The norm of a sum, and the sum."""
    total = f"{name}.sum"
    w.nodes.append(helper.make_node("SkipSimplifiedLayerNormalization", [x, y, w.gain(gain)], [name, "", "", total],
                                    name=name, domain=MICROSOFT, epsilon=1e-6))  # fmt: skip
    return name, total


def _projected(w: Writer, x: str, own: str) -> tuple[str, str, str]:
    hidden, width = w.shape.hidden, w.shape.width
    q, k, v = (w.product(x, f"{own}.{kind}", hidden, heads * width)
               for kind, heads in (("q", w.shape.heads), ("k", w.shape.groups), ("v", w.shape.groups)))  # fmt: skip
    return q, k, v


def _gated(w: Writer, x: str, own: str) -> str:
    gate, up = (w.product(x, f"{own}.{kind}", w.shape.hidden, w.shape.inner) for kind in ("gate", "up"))
    sigmoid = w.op("Sigmoid", gate, name=f"{own}.sigmoid")
    silu = w.op("Mul", gate, sigmoid, name=f"{own}.silu")
    both = w.op("Mul", silu, up, name=f"{own}.gated")
    return w.product(both, f"{own}.down", w.shape.inner, w.shape.hidden)


LAYERS: Mapping[str, Callable[[Writer, str], str]] = {"standard": _standard, "fused": _fused}


def first_feed(model: onnx.ModelProto) -> dict[str, Array]:
    """Empty caches."""
    return {
        item.name: np.zeros([dim.dim_value for dim in item.type.tensor_type.shape.dim], np.float32)
        for item in model.graph.input
        if item.name.startswith("past.")
    }


def generated(
    run: Callable[[int, dict[str, Array]], Mapping[str, Array]],
    spelling: str,
    ids: list[int],
    steps: int,
    caches: dict[str, Array],
) -> list[int]:
    """Greedy tokens after `ids`: `run` executes the decoder of as many rows as it is given tokens."""
    tokens, new = list[int](), list(ids)
    length = 0
    for _ in range(steps + 1):
        length += len(new)
        kind = np.int64 if spelling == "standard" else np.int32
        feed: dict[str, Array] = {"ids": np.array([new]), "length": np.array([length], kind), **caches}
        if spelling == "fused":
            feed["total"] = np.array(length, np.int32)
        found = run(len(new), feed)
        caches = {name.replace("present", "past"): array for name, array in found.items() if name.startswith("present")}
        new = [int(found["token"][0, -1])]
        tokens += new
    return tokens
