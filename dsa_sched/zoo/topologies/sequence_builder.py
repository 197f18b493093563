"""Writing transformers and recurrent networks as PyTorch's exporter does: layers on sequences [N, T, C].

linear(x, 768, 3072), layer_norm(x), attention(x, ...)  -->  MatMul and Add, LayerNormalization, Reshape, Transpose, ...

Batch and length stay open: a Reshape copies the batch (0) and finds the length (-1), so that one file serves any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dsa_sched.zoo.topologies.node_builder import NodeBuilder

OPSET = 20
"""First operator set with Gelu."""


@dataclass(frozen=True, slots=True)
class Attention:
    """`width` channels in `heads`. `biases` says which of query, key, value, output have one. Queries are drawn `focus`
    times as large: scores then differ between places, as trained ones do, and the result is not just a mean over all
    places.
    """

    width: int
    heads: int
    biases: str = "qkvo"
    focus: float = 2.0

    @property
    def depth(self) -> int:
        """Channels of one head."""
        return self.width // self.heads


Masked = Callable[[str, str], str]
"""Function from a node name and scores to masked scores."""


class SequenceBuilder(NodeBuilder):
    """Nodes on sequences. Layers are called by the names that their weights have."""

    def __init__(self, name: str, opset: int = OPSET, dtype: npt.DTypeLike = np.float32) -> None:
        super().__init__(name, opset, dtype)

    def linear(self, name: str, x: str, inside: int, outside: int, bias: bool = True, gain: float = 1.0) -> str:
        """`gain` is that of the weights."""
        product = self.node("MatMul", f"{name}.matmul", [x, self.weight(f"{name}.weight", inside, outside, gain=gain)])
        return self.add(name, product, self.weight(f"{name}.bias", outside)) if bias else product

    def dense(self, name: str, x: str, inside: int, outside: int, gain: float = 1.0) -> str:
        """The layer on [N, C]: a Gemm with weights as PyTorch keeps them."""
        constants = [self.weight(f"{name}.weight", outside, inside, gain=gain), self.weight(f"{name}.bias", outside)]
        return self.node("Gemm", name, [x, *constants], transB=1)

    def layer_norm(self, name: str, x: str, width: int, epsilon: float = 1e-5) -> str:
        constants = [self.weight(f"{name}.weight", width), self.weight(f"{name}.bias", width)]
        return self.node("LayerNormalization", name, [x, *constants], axis=-1, epsilon=epsilon)

    def window(
        self, name: str, x: str, inside: int, outside: int, kernel: int, stride: int = 1, pads: int = 0, groups: int = 1
    ) -> str:
        """A convolution of images [N, C, H, W], with a bias."""
        return self._conv(name, x, (outside, inside // groups), (kernel, kernel), stride, pads, groups)

    def line(
        self, name: str, x: str, inside: int, outside: int, kernel: int, stride: int = 1, pads: int = 0, groups: int = 1
    ) -> str:
        """A convolution of sequences [N, C, T], with a bias."""
        return self._conv(name, x, (outside, inside // groups), (kernel,), stride, pads, groups)

    def add(self, name: str, x: str, y: str) -> str:
        return self.node("Add", name, [x, y])

    def gelu(self, name: str, x: str) -> str:
        """Exact."""
        return self.node("Gelu", name, [x])

    def silu(self, name: str, x: str) -> str:
        return self.node("Mul", name, [x, self.node("Sigmoid", f"{name}.sigmoid", [x])])

    def reshape(self, name: str, x: str, *extents: int) -> str:
        """Reshape; 0 copies an extent, -1 takes the rest."""
        return self.node("Reshape", name, [x, self.integers(*extents)])

    def transpose(self, name: str, x: str, *order: int) -> str:
        return self.node("Transpose", name, [x], perm=list(order))

    def slice(self, name: str, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        bounds = [self.integers(start), self.integers(end), self.integers(axis)]
        return self.node("Slice", name, [x, *bounds, *([self.integers(step)] if step != 1 else [])])

    def feed_forward(self, name: str, x: str, width: int, hidden: int, inner: str = "fc1", outer: str = "fc2") -> str:
        """Wider, GELU, narrower."""
        wide = self.gelu(f"{name}.gelu", self.linear(f"{name}.{inner}", x, width, hidden))
        return self.linear(f"{name}.{outer}", wide, hidden, width)

    def heads(self, name: str, x: str, kind: Attention) -> str:
        """[N, T, C] to [N, heads, T, depth]."""
        parts = self.reshape(f"{name}.heads", x, 0, -1, kind.heads, kind.depth)
        return self.transpose(f"{name}.turned", parts, 0, 2, 1, 3)

    def attention(self, name: str, x: str, kind: Attention, masked: Masked | None = None) -> str:
        """Self-attention: every place gets the values of others, weighted by how well its query matches their keys."""
        projected = (self._projected(name, part, x, kind) for part in ("query", "key", "value"))
        query, key, value = (self.heads(f"{name}.{part}", made, kind) for part, made in projected)
        root = self.number(kind.depth**-0.25)
        query = self.node("Mul", f"{name}.query.scaled", [query, root])
        turned = self.transpose(f"{name}.key.columns", key, 0, 1, 3, 2)
        scores = self.node("MatMul", f"{name}.scores", [query, self.node("Mul", f"{name}.key.scaled", [turned, root])])
        scores = masked(f"{name}.masked", scores) if masked else scores
        return self.attended(name, scores, value, kind)

    def attended(self, name: str, scores: str, value: str, kind: Attention) -> str:
        """Softmax of the scores, the values by it, all heads side by side, and the last product."""
        shares = self.node("Softmax", f"{name}.softmax", [scores], axis=-1)
        seen = self.node("MatMul", f"{name}.values", [shares, value])
        joined = self.transpose(f"{name}.values.turned", seen, 0, 2, 1, 3)
        joined = self.reshape(f"{name}.joined", joined, 0, -1, kind.width)
        return self.linear(f"{name}.output", joined, kind.width, kind.width, "o" in kind.biases)

    def _conv(
        self, name: str, x: str, channels: tuple[int, int], kernel: tuple[int, ...], stride: int, pads: int, groups: int
    ) -> str:
        axes = len(kernel)
        settings: dict[str, Any] = {
            "kernel_shape": [*kernel],
            "strides": [stride] * axes,
            "pads": [pads] * 2 * axes,
            "group": groups,
        }
        constants = [self.weight(f"{name}.weight", *channels, *kernel), self.weight(f"{name}.bias", channels[0])]
        return self.node("Conv", name, [x, *constants], **settings)

    def _projected(self, name: str, part: str, x: str, kind: Attention) -> tuple[str, str]:
        gain = kind.focus if part == "query" else 1.0
        return part, self.linear(f"{name}.{part}", x, kind.width, kind.width, part[0] in kind.biases, gain)
