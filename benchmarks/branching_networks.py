"""Networks with independent parts, as CPU + GPU schedulers are judged on: built here, with seeded weights.

wide_and_deep   a linear model over many features, a deep one over a few, a convolutional tower over an image and a
                recurrent one over a text; one head reads them all
siamese         two recurrent towers of the same weights over two texts, and the distance of what they say
mt_dnn          a transformer encoder that all tasks share, then a head for each of four tasks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["NETWORKS", "mt_dnn", "siamese", "wide_and_deep"]

OPSET = 18
BATCH = 1


class _Builder:
    """Nodes in order, named by their outputs; weights are drawn with the scale that keeps values near 1."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rng = np.random.default_rng(sum(name.encode()))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, npt.NDArray[np.generic]] = {}
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def node(self, op_type: str, inputs: Sequence[str], name: str, outputs: Sequence[str] = (), **settings: Any) -> str:
        made = list(outputs) or [name]
        self.nodes.append(helper.make_node(op_type, inputs, made, name, **settings))
        return next(output for output in made if output)

    def weights(self, name: str, *shape: int, fan_in: int) -> str:
        if name not in self.constants:
            drawn = self.rng.standard_normal(shape) / np.sqrt(fan_in)
            self.constants[name] = drawn.astype(np.float32)
        return name

    def integers(self, name: str, *values: int) -> str:
        self.constants[name] = np.array(values, np.int64)
        return name

    def dense(self, x: str, inputs: int, outputs: int, name: str, activation: str = "Relu") -> str:
        weights = self.weights(f"{name}.w", inputs, outputs, fan_in=inputs)
        bias = self.weights(f"{name}.b", outputs, fan_in=100)
        y = self.node("Add", [self.node("MatMul", [x, weights], f"{name}.product"), bias], name)
        return self.node(activation, [y], f"{name}.{activation.lower()}") if activation else y

    def convolution(self, x: str, inputs: int, outputs: int, name: str, stride: int = 1) -> str:
        weights = self.weights(f"{name}.w", outputs, inputs, 3, 3, fan_in=9 * inputs)
        y = self.node("Conv", [x, weights], name, pads=[1, 1, 1, 1], strides=[stride, stride])
        return self.node("Relu", [y], f"{name}.relu")

    def recurrence(self, x: str, inputs: int, hidden: int, name: str, weights: str) -> str:
        """A GRU over (steps, batch, inputs); all its states, (steps, batch, hidden)."""
        w = self.weights(f"{weights}.w", 1, 3 * hidden, inputs, fan_in=inputs)
        r = self.weights(f"{weights}.r", 1, 3 * hidden, hidden, fan_in=hidden)
        states = self.node("GRU", [x, w, r], name, [f"{name}.states"], hidden_size=hidden)
        axis = self.integers("one", 1)
        return self.node("Squeeze", [states, axis], f"{name}.squeezed")

    def last_state(self, x: str, name: str) -> str:
        """(steps, batch, hidden) to (batch, hidden)."""
        last = self.node("Gather", [x, self.integers("last", -1)], name, axis=0)
        return self.node("Squeeze", [last, self.integers("zero", 0)], f"{name}.squeezed")

    def model(self, *outputs: str) -> onnx.ModelProto:
        declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, declared, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def wide_and_deep() -> onnx.ModelProto:
    """Four independent parts of different kinds, joined at the end."""
    net = _Builder("wide_and_deep")
    wide = net.dense(net.input("crossed", BATCH, 8192), 8192, 64, "wide", "")
    deep = net.input("features", BATCH, 1024)
    for number in range(3):
        deep = net.dense(deep, 1024, 1024, f"deep{number}")
    image, channels = net.input("image", BATCH, 3, 112, 112), 3
    for number, outputs in enumerate((32, 64, 64, 128, 128)):
        image = net.convolution(image, channels, outputs, f"image{number}", 2 if number % 2 else 1)
        channels = outputs
    seen = net.node("GlobalAveragePool", [image], "image.pool")
    seen = net.node("Flatten", [seen], "image.flat")
    text = net.input("text", 96, BATCH, 512)
    for number in range(2):
        text = net.recurrence(text, 512, 512, f"text{number}", f"text{number}")
    read = net.last_state(text, "text.last")
    joined = net.node("Concat", [wide, deep, seen, read], "joined", axis=1)
    head = net.dense(joined, 64 + 1024 + channels + 512, 512, "head0")
    return net.model(net.dense(head, 512, 16, "head1", ""))


def siamese() -> onnx.ModelProto:
    """Two towers with the same weights over two inputs; the distance of what they end with."""
    net = _Builder("siamese")
    ends = []
    for side in ("left", "right"):
        x = net.input(side, 128, BATCH, 384)
        for number in range(3):
            x = net.recurrence(x, 384, 384, f"{side}{number}", f"tower{number}")
        x = net.last_state(x, f"{side}.last")
        weights = net.weights("tower.w", 384, 128, fan_in=384)
        ends.append(net.node("MatMul", [x, weights], f"{side}.end"))
    apart = net.node("Abs", [net.node("Sub", ends, "difference")], "distance")
    return net.model(net.dense(apart, 128, 1, "score", "Sigmoid"))


WORDS, WIDTH, HEADS = 192, 384, 6


def mt_dnn() -> onnx.ModelProto:
    """Three transformer layers for all tasks, then one more layer and a classifier for each of four."""
    net = _Builder("mt_dnn")
    x = net.input("words", WORDS, WIDTH)
    for number in range(3):
        x = _transformer_layer(net, x, f"layer{number}")
    outputs = []
    for task in range(4):
        own = _transformer_layer(net, x, f"task{task}")
        mean = net.node("ReduceMean", [own, net.integers("zero", 0)], f"task{task}.mean", keepdims=1)
        outputs.append(net.dense(mean, WIDTH, 3, f"task{task}.classes", ""))
    return net.model(*outputs)


def _transformer_layer(net: _Builder, x: str, name: str) -> str:
    """Attention over (words, width), then two dense layers; both added to what they read and normalised."""
    parts = []
    for part in ("query", "key", "value"):
        y = net.dense(x, WIDTH, WIDTH, f"{name}.{part}", "")
        y = net.node("Reshape", [y, net.integers("by_head", WORDS, HEADS, WIDTH // HEADS)], f"{name}.{part}.heads")
        order = [1, 2, 0] if part == "key" else [1, 0, 2]
        parts.append(net.node("Transpose", [y], f"{name}.{part}.turned", perm=order))
    scores = net.node("MatMul", parts[:2], f"{name}.scores")
    net.constants["root"] = np.float32(1 / np.sqrt(WIDTH // HEADS)).reshape(1)
    scores = net.node("Softmax", [net.node("Mul", [scores, "root"], f"{name}.scaled")], f"{name}.softmax", axis=-1)
    seen = net.node("MatMul", [scores, parts[2]], f"{name}.seen")
    seen = net.node("Transpose", [seen], f"{name}.seen.turned", perm=[1, 0, 2])
    seen = net.node("Reshape", [seen, net.integers("flat", WORDS, WIDTH)], f"{name}.seen.flat")
    x = _normalised(net, x, net.dense(seen, WIDTH, WIDTH, f"{name}.out", ""), f"{name}.attended")
    wide = net.dense(x, WIDTH, 4 * WIDTH, f"{name}.wide")
    return _normalised(net, x, net.dense(wide, 4 * WIDTH, WIDTH, f"{name}.narrow", ""), f"{name}.end")


def _normalised(net: _Builder, x: str, y: str, name: str) -> str:
    net.constants["unit"] = np.ones(WIDTH, np.float32)
    return net.node("LayerNormalization", [net.node("Add", [x, y], f"{name}.sum"), "unit"], name, axis=-1)


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType(
    {"wide_and_deep": wide_and_deep, "siamese": siamese, "mt_dnn": mt_dnn}
)
