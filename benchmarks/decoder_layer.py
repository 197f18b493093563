"""One layer of a decoder that generates a token at a time, shaped like Qwen3-0.6B, with drawn weights.

    x [1, 1, hidden], cosine and sine of the position, keys and values of the tokens before
        --norm, grouped attention with norms of heads, norm, gated product-->
    y [1, 1, hidden], and the token's own row of keys and values

The caller keeps the rows of keys and values, so that no cache is written back. Norms and rotations are spelled as
exporters of PyTorch models write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
SPREAD = 0.02
"""Standard deviation of the weights."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Extents of the layer; the defaults are those of Qwen3-0.6B with 256 tokens. Each of `shared_heads` heads of keys
    and values serves equally many heads of queries."""

    hidden: int = 1024
    inner: int = 3072
    heads: int = 16
    shared_heads: int = 8
    head: int = 128
    past: int = 255

    @property
    def weights(self) -> int:
        """Number of weights of all matrices."""
        attention = 2 * (self.heads + self.shared_heads) * self.head
        return self.hidden * (attention + 3 * self.inner)


def decoder_layer(shape: DecoderShape | None = None, seed: int = 0) -> onnx.ModelProto:
    """The layer as an ONNX model with fp32 weights."""
    return _Writer(shape or DecoderShape(), seed).model()


class _Writer:
    def __init__(self, shape: DecoderShape, seed: int) -> None:
        self.shape, self.random = shape, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        s = self.shape
        queries = s.heads * s.head
        cache = (s.shared_heads, s.past, s.head)
        x = self.norm("before", "x", s.hidden)
        q = self.rotated("q", self.norm("q", self.heads(x, "q", s.heads), s.head))
        self.rotated("k", self.norm("k", self.heads(x, "k", s.shared_heads), s.head), "new_k")
        self.node("Identity", self.heads(x, "v", s.shared_heads), output="new_v")
        groups = self.reshaped(q, s.shared_heads, s.heads // s.shared_heads, s.head)
        k, v = (self.node("Concat", f"past_{name}", f"new_{name}", axis=1) for name in ("k", "v"))
        scores = self.node("MatMul", groups, self.node("Transpose", k, perm=(0, 2, 1)))
        scores = self.node("Mul", scores, self.number(s.head**-0.5))
        attended = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        attended = self.product(self.reshaped(attended, 1, 1, queries), "o", queries, s.hidden)
        x = self.node("Add", "x", attended)
        inner = self.norm("after", x, s.hidden)
        gate = self.product(inner, "gate", s.hidden, s.inner)
        gate = self.node("Mul", gate, self.node("Sigmoid", gate))
        inner = self.node("Mul", gate, self.product(inner, "up", s.hidden, s.inner))
        self.node("Add", x, self.product(inner, "down", s.inner, s.hidden), output="y")
        inputs = {"x": (1, 1, s.hidden), "cos": (s.head,), "sin": (s.head,), "past_k": cache, "past_v": cache}
        outputs = {"y": (1, 1, s.hidden), "new_k": (s.shared_heads, 1, s.head), "new_v": (s.shared_heads, 1, s.head)}
        graph = helper.make_graph(self.nodes, "decoder_layer", _values(inputs), _values(outputs), self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    def node(self, op_type: str, *inputs: str, output: str = "", **settings: Any) -> str:
        """Add a node; return the name of its result."""
        name = f"{op_type.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output or f"{name}_out"], name, **settings))
        return output or f"{name}_out"

    def constant(self, name: str, array: npt.NDArray[np.generic]) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        return self.constant(f"number{len(self.constants)}", np.array(value, np.float32))

    def reshaped(self, x: str, *shape: int) -> str:
        return self.node("Reshape", x, self.constant(f"shape{len(self.constants)}", np.array(shape, np.int64)))

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        weights = self.random.normal(0, SPREAD, (rows, columns)).astype(np.float32)
        return self.node("MatMul", x, self.constant(f"{name}_weight", weights))

    def heads(self, x: str, name: str, heads: int) -> str:
        """A product with a matrix, one row per head."""
        made = self.product(x, name, self.shape.hidden, heads * self.shape.head)
        return self.reshaped(made, heads, 1, self.shape.head)

    def norm(self, name: str, x: str, length: int) -> str:
        gain = self.constant(f"{name}_gain", self.random.uniform(0.5, 1.5, length).astype(np.float32))
        squares = self.node("ReduceMean", self.node("Pow", x, self.number(2.0)), axes=(-1,), keepdims=1)
        root = self.node("Sqrt", self.node("Add", squares, self.number(1e-6)))
        return self.node("Mul", self.node("Div", x, root), gain)

    def rotated(self, name: str, x: str, output: str = "") -> str:
        """The rotation of a position: x * cos + (-second half, first half) * sin."""
        half = self.shape.head // 2
        bounds = [self.constant(f"{name}_bound{at}", np.array([at], np.int64)) for at in (0, half, 2 * half)]
        axis = self.constant(f"{name}_axis", np.array([-1], np.int64))
        first, second = (self.node("Slice", x, *bounds[at : at + 2], axis) for at in (0, 1))
        turned = self.node("Concat", self.node("Neg", second), first, axis=-1)
        return self.node("Add", self.node("Mul", x, "cos"), self.node("Mul", turned, "sin"), output=output)


def _values(shapes: Mapping[str, tuple[int, ...]]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
