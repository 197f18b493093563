"""Random valid ONNX models of two to ten nodes, as hypothesis draws them.

Draft(values by name and shape, nodes, constants)  -->  ModelProto with one to three outputs

Each step reads a value that is there (recent ones and old ones alike, so that values are shared) and adds one node
that is valid on its shape; where a drawn operator cannot take the shape, an element-wise one is made instead.
Magnitudes stay moderate: weights are divided by the square root of the length that they are summed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

__all__ = ["models"]

Array = npt.NDArray[np.generic]
Shape = tuple[int, ...]
OPSET = 18
LARGEST_ELEMENTS = 6_000


@dataclass
class Draft:
    """A model while it grows; constants come from a seed, everything else from hypothesis."""

    draw: st.DrawFn
    random: np.random.Generator
    shapes: dict[str, Shape] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)

    def input(self, shape: Shape) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = shape
        return name

    def constant(self, value: Array) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weights(self, *shape: int, length: int = 1) -> str:
        return self.constant(self.random.normal(0, length**-0.5, shape).astype(np.float16).astype(np.float32))

    def add(self, op_type: str, inputs: list[str], *shapes: Shape, **attributes: Any) -> None:
        """One node; a result a shape."""
        start = len(self.shapes)
        outputs = [f"v{start + position}" for position in range(len(shapes))]
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=f"n{len(self.nodes)}", **attributes))
        self.shapes.update(zip(outputs, shapes, strict=True))

    def one_of(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def axis(self, shape: Shape) -> int:
        return self.number(0, len(shape) - 1)


Step = Callable[[Draft, str, Shape], bool]
"""Adds nodes that read a value of a shape; False where it cannot."""


def unary(draft: Draft, x: str, shape: Shape) -> bool:
    op_type = draft.one_of("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "LeakyRelu", "HardSwish", "HardSigmoid", "Clip")
    bounds = [draft.constant(np.array(v, np.float32)) for v in (-0.5, 1.25)] if op_type == "Clip" else []
    draft.add(op_type, [x, *bounds], shape)
    return True


def binary(draft: Draft, x: str, shape: Shape) -> bool:
    """With itself, another value of its shape, a constant, or an input broadcast to it, on either side."""
    kind = draft.one_of("value", "constant", "input")
    met = tuple(extent if draft.draw(st.booleans()) else 1 for extent in shape)
    if kind == "value":
        other = draft.one_of(*(name for name, found in draft.shapes.items() if found == shape))
    elif kind == "constant":
        other = draft.weights(*met[draft.number(0, len(met)) :])
    else:
        other = draft.input(met[draft.number(0, len(met) - 1) :])
    pair = [x, other] if draft.draw(st.booleans()) else [other, x]
    draft.add(draft.one_of("Add", "Sub", "Mul", "Max", "Min"), pair, shape)
    return True


def _window(draft: Draft, shape: Shape) -> tuple[dict[str, Any], Shape]:
    """Attributes of a window over the two axes of images and the extents of its result."""
    stride, dilation = draft.number(1, 3), draft.number(1, 2)
    kernel = [draft.number(1, max(1, min(4, (extent - 1) // dilation + 1))) for extent in shape[2:]]
    spans = [(k - 1) * dilation + 1 for k in kernel]
    pads = [draft.number(0, k - 1) for k in (*kernel, *kernel)]
    extents = [(shape[2 + i] + pads[i] + pads[2 + i] - spans[i]) // stride + 1 for i in range(2)]
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": pads, "kernel_shape": kernel}
    return attributes, tuple(extents)


def conv(draft: Draft, x: str, shape: Shape) -> bool:
    if len(shape) != 4:
        return False
    attributes, extents = _window(draft, shape)
    groups = draft.one_of(*(g for g in (1, 2, 3, 4, shape[1]) if shape[1] % g == 0))
    outputs = groups * draft.number(1, 24 // groups if groups < 24 else 1)
    inside = shape[1] // groups
    w = draft.weights(outputs, inside, *attributes["kernel_shape"], length=inside * prod(attributes["kernel_shape"]))
    bias = [draft.weights(outputs)] if draft.draw(st.booleans()) else []
    draft.add("Conv", [x, w, *bias], (shape[0], outputs, *extents), group=groups, **attributes)
    return True


def pool(draft: Draft, x: str, shape: Shape) -> bool:
    if len(shape) != 4:
        return False
    op_type = draft.one_of("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    if op_type.startswith("Global"):
        draft.add(op_type, [x], (*shape[:2], 1, 1))
        return True
    attributes, extents = _window(draft, shape)
    if op_type == "AveragePool":
        attributes["count_include_pad"] = draft.number(0, 1)
        # onnxruntime divides by another count where a dilated window meets padding that is not counted.
        attributes["pads"] = attributes["pads"] if max(attributes.pop("dilations")) == 1 else [0] * 4
        ends = [attributes["pads"][i] + attributes["pads"][2 + i] - attributes["kernel_shape"][i] for i in range(2)]
        extents = tuple((shape[2 + i] + ends[i]) // attributes["strides"][i] + 1 for i in range(2))
    draft.add(op_type, [x], (*shape[:2], *extents), **attributes)
    return True


def concat(draft: Draft, x: str, shape: Shape) -> bool:
    axis = draft.axis(shape)
    fitting = [
        n for n, s in draft.shapes.items() if len(s) == len(shape) and _without(s, axis) == _without(shape, axis)
    ]
    names = [x, *(draft.one_of(*fitting) for _ in range(draft.number(1, 2)))]
    total = sum(draft.shapes[name][axis] for name in names)
    draft.add("Concat", names, _with(shape, axis, total), axis=axis)
    return True


def split(draft: Draft, x: str, shape: Shape) -> bool:
    axis = draft.axis(shape)
    if shape[axis] < 2:
        return False
    first = draft.number(1, shape[axis] - 1)
    sizes = (first, shape[axis] - first)
    draft.add("Split", [x, draft.integers(*sizes)], *(_with(shape, axis, size) for size in sizes), axis=axis)
    return True


def slice_(draft: Draft, x: str, shape: Shape) -> bool:
    axis = draft.axis(shape)
    step = draft.one_of(1, 2, 3, -1, -2)
    chosen = range(shape[axis])[draft.number(0, shape[axis] - 1) :: step]
    stop = -shape[axis] - 1 if chosen[-1] + step < 0 else chosen[-1] + step
    bounds = [draft.integers(value) for value in (chosen[0], stop, axis, step)]
    draft.add("Slice", [x, *bounds], _with(shape, axis, len(chosen)))
    return True


def pad(draft: Draft, x: str, shape: Shape) -> bool:
    begins, ends = ([draft.number(0, 2) for _ in shape] for _ in range(2))
    value = draft.constant(np.array(draft.one_of(0.0, -1.5), np.float32))
    padded = tuple(b + extent + e for b, extent, e in zip(begins, shape, ends, strict=True))
    draft.add("Pad", [x, draft.integers(*begins, *ends), value], padded)
    return True


def transpose(draft: Draft, x: str, shape: Shape) -> bool:
    perm = draft.draw(st.permutations(range(len(shape))))
    draft.add("Transpose", [x], tuple(shape[axis] for axis in perm), perm=perm)
    return True


def reshape(draft: Draft, x: str, shape: Shape) -> bool:
    """Two axes into one, an axis in two, or everything behind the first."""
    axis = draft.axis(shape)
    factor = draft.one_of(*(f for f in range(1, shape[axis] + 1) if shape[axis] % f == 0))
    whole = (shape[0], prod(shape[1:]))
    parted = (*shape[:axis], factor, shape[axis] // factor, *shape[axis + 1 :])
    joined = (*shape[:axis], prod(shape[axis : axis + 2]), *shape[axis + 2 :])
    target = draft.one_of(*(s for s in (whole, parted, joined) if len(s) <= 5))
    draft.add("Reshape", [x, draft.integers(*target)], target)
    return True


def matmul(draft: Draft, x: str, shape: Shape) -> bool:
    if len(shape) < 2:
        return False
    columns = draft.number(1, 20)
    draft.add("MatMul", [x, draft.weights(shape[-1], columns, length=shape[-1])], (*shape[:-1], columns))
    return True


def gemm(draft: Draft, x: str, shape: Shape) -> bool:
    if len(shape) != 2:
        return False
    columns, across, turned = draft.number(1, 20), draft.number(0, 1), draft.number(0, 1)
    rows, length = (shape[1], shape[0]) if turned else shape
    w = draft.weights(*((columns, length) if across else (length, columns)), length=length)
    bias = [draft.weights(columns)] if draft.draw(st.booleans()) else []
    draft.add("Gemm", [x, w, *bias], (rows, columns), transA=turned, transB=across)
    return True


def reduce(draft: Draft, x: str, shape: Shape) -> bool:
    axes = sorted(draft.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    op_type = draft.one_of("ReduceMean", "ReduceMax", "ReduceSum")
    if op_type == "ReduceSum" and prod(shape[axis] for axis in axes) > 64:
        op_type = "ReduceMean"
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    lost = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
    keep = 1 if not lost else draft.number(0, 1)
    draft.add(op_type, [x, draft.integers(*axes)], kept if keep else lost, keepdims=keep)
    return True


def softmax(draft: Draft, x: str, shape: Shape) -> bool:
    draft.add("Softmax", [x], shape, axis=draft.axis(shape))
    return True


def resize(draft: Draft, x: str, shape: Shape) -> bool:
    if len(shape) != 4:
        return False
    target = tuple(draft.number(max(1, extent // 2), 2 * extent) for extent in shape[2:])
    mode = draft.one_of("nearest", "linear")
    draft.add("Resize", [x, "", "", draft.integers(*shape[:2], *target)], (*shape[:2], *target), mode=mode)
    return True


STEPS: tuple[Step, ...] = (
    conv,
    conv,
    pool,
    unary,
    binary,
    binary,
    concat,
    split,
    slice_,
    pad,
    transpose,
    reshape,
    matmul,
    gemm,
    reduce,
    softmax,
    resize,
)


def _with(shape: Shape, axis: int, extent: int) -> Shape:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """A valid model; what nothing reads is an output, at most three of them, and perhaps a value that is read."""
    draft = Draft(draw, np.random.default_rng(draw(st.integers(0, 1 << 16))))
    rank = draw(st.sampled_from([4, 4, 4, 2, 3]))
    small = st.integers(1, 2)
    extents = {4: (small, st.integers(1, 12), st.integers(1, 14), st.integers(1, 14))}
    draft.input(tuple(draw(extent) for extent in extents.get(rank, (st.integers(1, 12),) * rank)))
    for _ in range(draw(st.integers(2, 10))):
        usable = [name for name, shape in draft.shapes.items() if prod(shape) <= LARGEST_ELEMENTS]
        x = draw(st.sampled_from(usable[-3:] + usable))
        if not draw(st.sampled_from(STEPS))(draft, x, draft.shapes[x]):
            unary(draft, x, draft.shapes[x])
    made = [name for node in draft.nodes for name in node.output]
    read = {name for node in draft.nodes for name in node.input}
    outputs = [name for name in made if name not in read][-3:]
    if draw(st.booleans()):
        outputs = list(dict.fromkeys([*outputs, draw(st.sampled_from(made))]))
    return _model(draft, outputs)


def _model(draft: Draft, outputs: list[str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        draft.nodes,
        "random",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, draft.shapes[name]) for name in draft.inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, draft.shapes[name]) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in draft.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model
