"""Small float networks, and what onnxruntime's quantiser makes of them in four styles; drawn weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from benchmarks.quantised_styles import STYLES

__all__ = ["STYLES", "Array", "convolutions", "encoder", "graph_kinds", "quantised_file"]

Array = npt.NDArray[np.generic]


class _Drawn(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, model: onnx.ModelProto) -> None:
        random = np.random.default_rng(5)
        (item,) = model.graph.input
        shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        self.left: Iterator[dict[str, Array]] = iter([{item.name: random.normal(size=shape).astype(np.float32)}] * 2)

    def get_next(self) -> dict[str, Array] | None:
        return next(self.left, None)


def quantised_file(model: onnx.ModelProto, style: str, folder: Path) -> Path:
    """The file that onnxruntime's quantiser writes."""
    plain, path = folder / "plain.onnx", folder / "quantised.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), plain)
    options = {"quant_format": QuantFormat.QDQ, "weight_type": QuantType.QInt8, **STYLES[style]}
    quantize_static(plain, path, _Drawn(model), **options)
    return path


def graph_kinds(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


def _model(
    nodes: list[onnx.NodeProto], x: tuple[int, ...], y: tuple[int, ...], weights: Mapping[str, Array]
) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", x), ("y", y))]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], stored)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model


def _drawn(random: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    return np.asarray(random.normal(size=shape) / np.sqrt(np.prod(shape[1:])), np.float32)


def convolutions() -> onnx.ModelProto:
    """A stem of three channels, a depthwise and a pointwise convolution, a residual sum, a mean and classes, odd in
    number."""
    random = np.random.default_rng(3)
    weights: dict[str, Array] = {
        "w1": _drawn(random, 8, 3, 3, 3), "w2": _drawn(random, 8, 1, 3, 3), "w3": _drawn(random, 8, 8, 1, 1),
        "w4": _drawn(random, 8, 5), "b1": _drawn(random, 8), "b3": _drawn(random, 8), "b4": _drawn(random, 5),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], name="stem", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["ar"], name="stem.relu"),
        helper.make_node("Conv", ["ar", "w2"], ["d"], name="depthwise", pads=[1] * 4, group=8),
        helper.make_node("Conv", ["d", "w3", "b3"], ["p"], name="pointwise"),
        helper.make_node("Add", ["p", "ar"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["m"], name="maximum", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["m"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], name="classes"),
    ]
    return _model(nodes, (1, 3, 12, 12), (1, 5), weights)


def encoder() -> onnx.ModelProto:
    """One head of attention with its products of computed factors, a norm, and a product per word."""
    random = np.random.default_rng(4)
    weights: dict[str, Array] = {
        "wq": _drawn(random, 16, 16).T.copy(), "wk": _drawn(random, 16, 16).T.copy(), "w": _drawn(random, 16, 16),
        "scale": np.ones(16, np.float32), "shift": np.zeros(16, np.float32), "root": np.array(0.25, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"], name="queries"),
        helper.make_node("MatMul", ["x", "wk"], ["k"], name="keys"),
        helper.make_node("Transpose", ["k"], ["kt"], name="turned", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["l"], name="likeness"),
        helper.make_node("Mul", ["l", "root"], ["ls"], name="scaled"),
        helper.make_node("Softmax", ["ls"], ["p"], name="shares", axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["v"], name="mixed"),
        helper.make_node("Add", ["v", "x"], ["s"], name="sum"),
        helper.make_node("LayerNormalization", ["s", "scale", "shift"], ["n"], name="norm", axis=-1),
        helper.make_node("MatMul", ["n", "w"], ["y"], name="last"),
    ]
    return _model(nodes, (1, 6, 16), (1, 6, 16), weights)
