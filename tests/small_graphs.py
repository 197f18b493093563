"""Small graphs built by hand, with access maps written out, for tests that should not need ONNX or TVM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from partitioner.ir.access import Access, Full, Grouped, Index, Linear, View
from partitioner.ir.graph import Attribute, Axis, Constants, Graph, LoopNest, Op, Tensor, content_hash, verify_graph

__all__ = ["GraphBuilder", "patches_before_large_values"]

Array = npt.NDArray[np.generic]
Pads = tuple[int, int, int, int]
SOURCE_DTYPES = {"float16": "float32", "int8": "int8"}
"""Types of the values in a file, by their types on the device."""


def axis(name: str, coefficient: int = 1, constant: int = 0, *more: tuple[str, int]) -> Linear:
    return Linear(((name, coefficient), *more), constant)


class GraphBuilder:
    """Collects tensors and operators; every method returns the name of the value it made."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self.tensors: list[Tensor] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.constants: dict[str, Array] = {}

    def build(self, *outputs: str) -> tuple[Graph, Constants]:
        graph = Graph(self.name, tuple(self.inputs), outputs, tuple(self.ops), tuple(self.tensors))
        verify_graph(graph)
        return graph, self.constants

    def shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[name]

    def input(self, name: str, *shape: int, dtype: str = "float16") -> str:
        self.inputs.append(name)
        return self._tensor(name, shape, dtype)

    def constant(self, name: str, array: npt.NDArray[np.generic], dtype: str = "float16") -> str:
        stored = array.astype(dtype)
        key = content_hash(stored)
        self.constants[key] = stored
        self.tensors.append(Tensor(name, stored.shape, dtype, tuple(range(stored.ndim)), SOURCE_DTYPES[dtype], key))
        self.shapes[name] = stored.shape
        return name

    def integers(self, *shape: int, low: int = -128) -> str:
        """A constant of int8 numbers."""
        return self.constant(f"constant{len(self.tensors)}", self.rng.integers(low, 128, shape), "int8")

    def dtype(self, name: str) -> str:
        return next(tensor.dtype for tensor in self.tensors if tensor.name == name)

    def normal(self, *shape: int, scale: float = 1.0) -> str:
        """A constant of normally distributed values."""
        return self.constant(f"constant{len(self.tensors)}", self.rng.normal(0, scale, shape))

    def conv(
        self,
        x: str,
        channels: int,
        kernel: tuple[int, int] = (3, 3),
        stride: int = 1,
        pads: Pads = (1, 1, 1, 1),
        bias: bool = True,
        dilation: int = 1,
        groups: int = 1,
        factor: str = "",
    ) -> str:
        """Of an int8 operand the weights are int8 too, and `factor` is the scale of the sums."""
        n, _, _, c = self.shape(x)
        extents = self._window(x, kernel, stride, pads, dilation)
        name = f"conv{len(self.ops)}"
        shape = (*kernel, c, channels) if groups == 1 else (groups, *kernel, c // groups, channels // groups)
        if self.dtype(x) == "int8":
            inputs = [x, self.integers(*shape), factor]
        else:
            scale = (kernel[0] * kernel[1] * c / groups) ** -0.5
            inputs = [x, self.constant(f"{name}.w", self.rng.normal(0, scale, shape))]
        if bias:
            inputs.append(self.constant(f"{name}.b", self.rng.normal(0, 0.1, (channels,))))
        domain = (Axis("n", n), Axis("y", extents[0]), Axis("x", extents[1]), Axis("f", channels))
        reduce = (Axis("ry", kernel[0], True), Axis("rx", kernel[1], True), Axis("rc", c // groups, True))
        channel: Index = axis("rc") if groups == 1 else Grouped("f", channels // groups, c // groups, "rc")
        spatial = (
            axis("y", stride, -pads[0], ("ry", dilation)),
            axis("x", stride, -pads[1], ("rx", dilation)),
        )
        weights: tuple[Index, ...] = (axis("ry"), axis("rx"), axis("rc"), axis("f"))
        if groups > 1:
            weights = (Full(), axis("ry"), axis("rx"), axis("rc"), Full())
        reads = [Access(x, (axis("n"), *spatial, channel)), Access(inputs[1], weights)]
        reads += [Access(each, (axis("f") if self.shape(each) != (1,) else Linear(),)) for each in inputs[2:]]
        macs = n * extents[0] * extents[1] * channels * kernel[0] * kernel[1] * c // groups
        attributes = (*_window_attributes(kernel, stride, pads, dilation), ("groups", groups))
        return self._op(name, "conv", inputs, (*domain, *reduce), domain, reads, attributes, macs)

    def matmul(self, a: str, b: str, bias: bool = True, factor: str = "") -> str:
        """[..., M, K] x [K, N] or [..., M, K] x [..., K, N]; `factor` is the scale of the sums of int8 operands."""
        *outer, depth = self.shape(a)
        columns = self.shape(b)[-1]
        name = f"matmul{len(self.ops)}"
        inputs = [a, b, *([factor] if factor else [])]
        inputs += [self.constant(f"{name}.b", self.rng.normal(0, 0.1, (columns,)))] if bias else []
        rows = tuple(Axis(f"i{k}", extent) for k, extent in enumerate(outer))
        domain = (*rows, Axis("j", columns))
        left = tuple(axis(a.name) for a in rows)
        leading = left[:-1] if len(self.shape(b)) > 2 else ()
        reads = [Access(a, (*left, axis("k"))), Access(b, (*leading, axis("k"), axis("j")))]
        reads += [Access(each, (axis("j") if self.shape(each) != (1,) else Linear(),)) for each in inputs[2:]]
        macs = int(np.prod(outer)) * columns * depth
        return self._op(name, "matmul", inputs, (*domain, Axis("k", depth, True)), domain, reads, (), macs)

    def pool(
        self,
        kind: str,
        x: str,
        kernel: tuple[int, int],
        stride: int = 1,
        pads: Pads = (0, 0, 0, 0),
        counted: bool = False,
        dilation: int = 1,
    ) -> str:
        """max_pool or average_pool; `counted` says that the padding counts in the divisor."""
        n, _, _, c = self.shape(x)
        extents = self._window(x, kernel, stride, pads, dilation)
        domain = (Axis("n", n), Axis("y", extents[0]), Axis("x", extents[1]), Axis("c", c))
        reduce = (Axis("ry", kernel[0], True), Axis("rx", kernel[1], True))
        spatial = (
            axis("y", stride, -pads[0], ("ry", dilation)),
            axis("x", stride, -pads[1], ("rx", dilation)),
        )
        attributes = (*_window_attributes(kernel, stride, pads, dilation), ("count_include_pad", int(counted)))
        reads = [Access(x, (axis("n"), *spatial, axis("c")))]
        return self._op(f"{kind}{len(self.ops)}", kind, [x], (*domain, *reduce), domain, reads, attributes)

    def softmax(self, x: str, over: int = -1) -> str:
        domain = self._axes(self.shape(x))
        position = over % len(domain)
        indices = tuple(Full() if k == position else axis(a.name) for k, a in enumerate(domain))
        reads = [Access(x, indices)]
        return self._op(f"softmax{len(self.ops)}", "softmax", [x], domain, domain, reads, (("axis", over),))

    def concat(self, over: int, *pieces: str) -> str:
        shape = list(self.shape(pieces[0]))
        shape[over] = sum(self.shape(piece)[over] for piece in pieces)
        domain = self._axes(shape)
        reads, start = [], 0
        for piece in pieces:
            reads.append(Access(piece, tuple(axis(a.name, 1, -start * (k == over)) for k, a in enumerate(domain))))
            start += self.shape(piece)[over]
        return self._op(f"concat{len(self.ops)}", "concat", pieces, domain, domain, reads, (("axis", over),))

    def view(self, x: str, *shape: int) -> str:
        domain = self._axes(shape)
        return self._op(f"view{len(self.ops)}", "view", [x], domain, domain, [View(x)], dtype=self.dtype(x))

    def widen(self, x: str) -> str:
        return self.elementwise("widen", x)

    def narrow(self, x: str, rounding: str = "nearest", centre: int = 0) -> str:
        attributes = ((("centre", centre),) if centre else ()) + (("rounding", rounding),)
        return self.elementwise("narrow", x, attributes=attributes, dtype="int8")

    def add_scaled(self, x: str, y: str, scale: float) -> str:
        return self.elementwise("add_scaled", x, y, attributes=(("scale", scale),))

    def elementwise(
        self,
        kind: str,
        *inputs: str,
        attributes: tuple[tuple[str, Attribute], ...] = (),
        dtype: str = "float16",
    ) -> str:
        """Operands broadcast as in numpy, aligned at the last axis."""
        shape = np.broadcast_shapes(*(self.shape(operand) for operand in inputs))
        domain = self._axes(shape)
        reads = []
        for operand in inputs:
            extents = self.shape(operand)
            lead = len(shape) - len(extents)
            reads.append(
                Access(operand, tuple(axis(f"i{lead + k}") if e > 1 else Linear() for k, e in enumerate(extents)))
            )
        return self._op(f"{kind}{len(self.ops)}", kind, inputs, domain, domain, reads, attributes, dtype=dtype)

    def scale_shift(self, x: str) -> str:
        channels = self.shape(x)[-1]
        return self.elementwise("scale_shift", x, self.normal(channels), self.normal(channels))

    def _op(
        self,
        name: str,
        kind: str,
        inputs: Sequence[str],
        domain: tuple[Axis, ...],
        written: tuple[Axis, ...],
        reads: Sequence[Access | View],
        attributes: tuple[tuple[str, Attribute], ...] = (),
        macs: int = 0,
        dtype: str = "float16",
    ) -> str:
        out = self._tensor(f"{name}.out", tuple(a.extent for a in written), dtype)
        stage = LoopNest(kind, domain, Access(out, tuple(axis(a.name) for a in written)), tuple(reads))
        self.ops.append(Op(name, kind, tuple(inputs), (out,), attributes, (stage,), macs, kind.title()))
        return out

    def _window(self, x: str, kernel: tuple[int, int], stride: int, pads: Pads, dilation: int) -> tuple[int, int]:
        _, height, width, _ = self.shape(x)
        return (
            (height + pads[0] + pads[2] - dilation * (kernel[0] - 1) - 1) // stride + 1,
            (width + pads[1] + pads[3] - dilation * (kernel[1] - 1) - 1) // stride + 1,
        )

    def _axes(self, shape: Sequence[int]) -> tuple[Axis, ...]:
        return tuple(Axis(f"i{k}", extent) for k, extent in enumerate(shape))

    def _tensor(self, name: str, shape: tuple[int, ...], dtype: str = "float16") -> str:
        axes = (0, 2, 3, 1) if len(shape) == 4 else tuple(range(len(shape)))
        self.tensors.append(Tensor(name, shape, dtype, axes, SOURCE_DTYPES[dtype]))
        self.shapes[name] = shape
        return name


def _window_attributes(
    kernel: tuple[int, int], stride: int, pads: Pads, dilation: int
) -> tuple[tuple[str, Attribute], ...]:
    """`pads` is (top, left, bottom, right)."""
    return (
        ("kernel", kernel),
        ("strides", (stride, stride)),
        ("dilations", (dilation, dilation)),
        ("pads", pads),
    )


def patches_before_large_values() -> tuple[Graph, Constants]:
    """Patches of two images, then values that leave constants a small part of a staging memory of 256 KiB: the first
    layer reads the images and runs before these."""
    b = GraphBuilder("patches")
    patches = b.conv(b.input("x", 2, 96, 96, 4), 64, (8, 8), 8, pads=(0, 0, 0, 0))
    wide = b.conv(patches, 256, (1, 1), pads=(0, 0, 0, 0))
    return b.build(b.elementwise("add", wide, b.conv(wide, 256)))
