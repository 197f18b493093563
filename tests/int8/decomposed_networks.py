"""Small networks whose quantisation is written by operators of one kind or another; drawn weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.int8.networks import Array

SPELLINGS = ("divided", "reciprocal", "clipped first")
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "narrow": (-127, 127), "four bits": (-8, 7)}


@dataclass
class Writer:
    """Nodes and constants of a network in one spelling, `QDQ` or one of those above."""

    spelling: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: dict[str, Array] = field(default_factory=dict)

    def constant(self, array: npt.ArrayLike, name: str, dtype: type[np.generic] = np.float32) -> str:
        self.stored[name] = np.asarray(array, dtype)
        return name

    def add(self, op_type: str, inputs: list[str], y: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [y], name=f"{y}.last", **attributes))
        return y

    def fake(self, x: str, scale: float | Array, integers: str = "int8", zero: int = 0) -> str:
        """The quantised and dequantised value, `{x}_fake`."""
        y, (low, high) = f"{x}_fake", RANGES[integers]
        if self.spelling == "QDQ":
            return self._pair(x, y, np.asarray(scale, np.float32), integers, zero)
        scale = np.asarray(scale, np.float32)
        s, z = self.constant(scale, f"{y}.s"), self.constant(zero, f"{y}.z")
        inverse = self.constant(np.divide(1, scale, dtype=np.float32), f"{y}.inverse")
        if self.spelling == "clipped first":
            bounds = [self.constant(bound - zero, f"{y}.{bound}") for bound in (low, high)]
            divided = self.add("Div", [x, s], f"{y}.divided")
            rounded = self.add("Round", [self.add("Clip", [divided, *bounds], f"{y}.clipped")], f"{y}.rounded")
            return self.add("Mul", [rounded, s], y)
        bounds = [self.constant(bound, f"{y}.{bound}") for bound in (low, high)]
        if self.spelling == "divided":
            rounded = self.add("Round", [self.add("Div", [x, s], f"{y}.divided")], f"{y}.rounded")
            held = self.add("Clip", [self.add("Add", [rounded, z], f"{y}.shifted"), *bounds], f"{y}.clipped")
            return self.add("Mul", [self.add("Sub", [held, z], f"{y}.less"), s], y)
        rounded = self.add("Round", [self.add("Mul", [inverse, x], f"{y}.divided")], f"{y}.rounded")
        held = self.add("Max", [self.add("Add", [z, rounded], f"{y}.shifted"), bounds[0]], f"{y}.least")
        held = self.add("Min", [held, bounds[1]], f"{y}.most")
        kind = TensorProto.UINT8 if integers == "uint8" else TensorProto.INT8
        cast = self.add("Cast", [self.add("Cast", [held], f"{y}.cast", to=kind)], f"{y}.back", to=TensorProto.FLOAT)
        return self.add("Div", [self.add("Sub", [cast, z], f"{y}.less"), inverse], y)

    def _pair(self, x: str, y: str, scale: Array, integers: str, zero: int) -> str:
        dtype: type[np.generic] = np.uint8 if integers == "uint8" else np.int8
        s = self.constant(scale.reshape(-1) if scale.size > 1 else scale.reshape(()), f"{y}_scale")
        z = self.constant(np.full(scale.size, zero) if scale.size > 1 else zero, f"{y}_zero", dtype)
        q, axes = f"{y}_integers", list[int]()
        if x in self.stored:
            units = np.rint(np.divide(self.stored.pop(x), scale)) + zero
            self.constant(np.clip(units, *RANGES[integers]), q, dtype)
            axes += [int(np.argmax(scale.shape))] if scale.size > 1 else []
        else:
            self.nodes.append(helper.make_node("QuantizeLinear", [x, s, z], [q], name=f"{y}.rounded.last"))
        self.nodes.append(helper.make_node("DequantizeLinear", [q, s, z], [y], name=f"{y}.last"))
        self.nodes[-1].attribute.extend(helper.make_attribute("axis", axis) for axis in axes)
        return y

    def model(self, x: tuple[int, ...], outputs: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "decomposed",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in self.stored.items()],
        )
        model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return model


def convolutions(spelling: str, *, integers: str = "int8") -> onnx.ModelProto:
    """Two convolutions with weights per channel and a residual sum of unsigned values."""
    random, writer = np.random.default_rng(8), Writer(spelling)
    for name, shape in {"w1": (8, 4, 3, 3), "w2": (8, 8, 1, 1)}.items():
        writer.constant(random.normal(size=shape) / 4, name)
    writer.constant(random.normal(size=8), "b1")
    x = writer.fake("x", 0.03, integers)
    scales = [np.abs(writer.stored[name]).max(axis=(1, 2, 3), keepdims=True) / 127 for name in ("w1", "w2")]
    weights = [writer.fake(name, scale) for name, scale in zip(("w1", "w2"), scales, strict=True)]
    a = writer.add("Relu", [writer.add("Conv", [x, weights[0], "b1"], "a", pads=[1] * 4)], "ar")
    a = writer.fake(a, 0.02, "uint8")
    b = writer.fake(writer.add("Conv", [a, weights[1]], "b"), 0.04, integers)
    writer.fake(writer.add("Add", [a, b], "s"), 0.05)
    return writer.model((1, 4, 6, 6), {"s_fake": (1, 8, 6, 6)})


def perceptron(spelling: str) -> onnx.ModelProto:
    """Two products with weights per column, those of one turned as exporters of linear layers do, and values with zero
    points."""
    random, writer = np.random.default_rng(9), Writer(spelling)
    for name, shape in {"w1": (12, 16), "w2": (12, 8)}.items():
        writer.constant(random.normal(size=shape) / 4, name)
    x = writer.fake("x", 0.03, "int8", -6)
    scales = [np.abs(writer.stored[name]).max(axis=axis, keepdims=True) / 127 for name, axis in (("w1", 1), ("w2", 0))]
    weights = [writer.fake(name, scale) for name, scale in zip(("w1", "w2"), scales, strict=True)]
    weights[0] = writer.add("Transpose", [weights[0]], "w1t", perm=[1, 0])
    a = writer.fake(writer.add("MatMul", [x, weights[0]], "a"), 0.04, "int8", 10)
    writer.add("MatMul", [a, weights[1]], "y")
    return writer.model((4, 16), {"y": (4, 8)})


def bounded_and_pooled(spelling: str) -> onnx.ModelProto:
    """A convolution whose values are mostly below zero, its Relu and maxima before the rounding, and a product."""
    random, writer = np.random.default_rng(10), Writer(spelling)
    for name, shape in {"w1": (8, 4, 3, 3), "w2": (8, 8, 1, 1)}.items():
        writer.constant(random.normal(size=shape) / 4, name)
    writer.constant(np.full(8, -3.0), "b1")
    weights = [writer.fake(name, 0.01) for name in ("w1", "w2")]
    a = writer.add("Relu", [writer.add("Conv", [writer.fake("x", 0.03), weights[0], "b1"], "a", pads=[1] * 4)], "ar")
    m = writer.add("MaxPool", [writer.fake(a, 0.1)], "m", kernel_shape=[2, 2], strides=[2, 2])
    writer.add("Conv", [writer.fake(m, 0.1), weights[1]], "y")
    return writer.model((1, 4, 12, 12), {"y": (1, 8, 6, 6)})
