"""Small graphs built by hand, with access maps written out, for tests that should not need ONNX or TVM."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from partitioner.access import Access, Index, Linear
from partitioner.graph import Axis, Constants, Graph, Op, Stage, Tensor, content_hash, verify_graph

__all__ = ["GraphBuilder"]

Array = npt.NDArray[np.float16]


def axis(name: str, coefficient: int = 1, constant: int = 0, *more: tuple[str, int]) -> Linear:
    return Linear(((name, coefficient), *more), constant)


class GraphBuilder:
    """Collects tensors and operators; every method returns the name of the value it made."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.constants: dict[str, Array] = {}

    def build(self, *outputs: str) -> tuple[Graph, Constants]:
        graph = Graph(self.name, tuple(self.inputs), outputs, tuple(self.ops), tuple(self.tensors))
        verify_graph(graph)
        return graph, self.constants

    def shape(self, name: str) -> tuple[int, ...]:
        return next(t.shape for t in self.tensors if t.name == name)

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(name)
        return self._tensor(name, shape)

    def constant(self, name: str, array: npt.NDArray[np.float64]) -> str:
        half = array.astype(np.float16)
        key = content_hash(half)
        self.constants[key] = half
        self.tensors.append(Tensor(name, half.shape, axes=tuple(range(half.ndim)), constant=key))
        return name

    def conv(
        self,
        x: str,
        channels: int,
        kernel: tuple[int, int] = (3, 3),
        stride: int = 1,
        pads: tuple[int, int, int, int] = (1, 1, 1, 1),
        bias: bool = True,
    ) -> str:
        n, h, w, c = self.shape(x)
        oh = (h + pads[0] + pads[2] - kernel[0]) // stride + 1
        ow = (w + pads[1] + pads[3] - kernel[1]) // stride + 1
        name = f"conv{len(self.ops)}"
        scale = (kernel[0] * kernel[1] * c) ** -0.5
        inputs = [x, self.constant(f"{name}.w", self.rng.normal(0, scale, (*kernel, c, channels)))]
        if bias:
            inputs.append(self.constant(f"{name}.b", self.rng.normal(0, 0.1, (channels,))))
        out = self._tensor(f"{name}.out", (n, oh, ow, channels))
        domain = (Axis("n", n), Axis("y", oh), Axis("x", ow), Axis("f", channels))
        reduce = (Axis("ry", kernel[0], True), Axis("rx", kernel[1], True), Axis("rc", c, True))
        data = (axis("n"), axis("y", stride, -pads[0], ("ry", 1)), axis("x", stride, -pads[1], ("rx", 1)), axis("rc"))
        weights = (axis("ry"), axis("rx"), axis("rc"), axis("f"))
        reads = [Access(x, data), Access(inputs[1], weights)]
        reads += [Access(inputs[2], (axis("f"),))] if bias else []
        stage = Stage("conv", (*domain, *reduce), Access(out, tuple(axis(a.name) for a in domain)), tuple(reads))
        attributes = (
            ("kernel", kernel),
            ("strides", (stride, stride)),
            ("dilations", (1, 1)),
            ("pads", pads),
            ("groups", 1),
        )
        macs = n * oh * ow * channels * kernel[0] * kernel[1] * c
        self.ops.append(Op(name, "conv", tuple(inputs), (out,), attributes, (stage,), macs, "Conv"))
        return out

    def elementwise(self, kind: str, *inputs: str, attributes: tuple[tuple[str, float], ...] = ()) -> str:
        """Operands broadcast to the shape of the first, aligned at the last axis."""
        name = f"{kind}{len(self.ops)}"
        shape = self.shape(inputs[0])
        out = self._tensor(f"{name}.out", shape)
        domain = tuple(Axis(f"i{k}", extent) for k, extent in enumerate(shape))
        reads = []
        for operand in inputs:
            extents = self.shape(operand)
            lead = len(shape) - len(extents)
            indices: tuple[Index, ...] = tuple(
                axis(f"i{lead + k}") if extent > 1 else Linear() for k, extent in enumerate(extents)
            )
            reads.append(Access(operand, indices))
        stage = Stage(kind, domain, Access(out, tuple(axis(a.name) for a in domain)), tuple(reads))
        self.ops.append(Op(name, kind, inputs, (out,), attributes, (stage,), 0, kind.title()))
        return out

    def _tensor(self, name: str, shape: tuple[int, ...]) -> str:
        axes = (0, 2, 3, 1) if len(shape) == 4 else tuple(range(len(shape)))
        self.tensors.append(Tensor(name, shape, axes=axes))
        return name
