"""ONNX nodes that move data, reduce axes or resize: from the file through the compiler to bits, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend import load_model
from hw_models.errors import ModelError
from tests.chip_runs import compile_graph

Constant = npt.NDArray[np.generic]


def node(op_type: str, *inputs: str, outputs: Sequence[str] = ("y",), **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), list(outputs), **attributes)


def integers(*values: int) -> Constant:
    return np.array(values, np.int64)


def check(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    shape: tuple[int, ...],
    constants: Mapping[str, Constant],
    opset: int = 18,
    tolerance: float = 0.0,
    outputs: Sequence[str] = ("y",),
) -> list[str]:
    """Outputs equal onnxruntime's within `tolerance`, every layer its emulation; returns the kinds of operators."""
    graph = helper.make_graph(
        list(nodes),
        "movement",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(proto), folder / "model.onnx")
    x = np.random.default_rng(0).normal(0, 1, shape).astype(np.float16).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = session.run(list(outputs), {"x": x})
    model = load_model(folder / "model.onnx")
    compiled = compile_graph(model.graph, model.constants)
    device = np.ascontiguousarray(x.transpose(model.graph.by_name["x"].axes).astype(np.float16))
    stored = compiled.run({"x": device.view(np.uint16)})
    for name, (got, emulated) in compiled.expected(stored).items():
        np.testing.assert_array_equal(got, emulated, err_msg=name)
    for name, value in zip(outputs, wanted, strict=True):
        result = stored[name].view(np.float16).astype(np.float64)
        result = result.transpose(np.argsort(model.graph.by_name[name].axes))
        assert float(np.linalg.norm(result - value)) <= tolerance * float(np.linalg.norm(value)), name
    return [op.kind for op in model.graph.ops]


def test_split_becomes_slices(tmp_path: Path) -> None:
    nodes = [node("Split", "x", "s", outputs=("a", "b"), axis=1), node("Concat", "b", "a", axis=1)]
    assert check(tmp_path, nodes, (1, 8, 5, 6), {"s": integers(3, 5)}) == ["slice", "slice", "concat"]


def test_every_output_of_a_split_may_leave_the_network(tmp_path: Path) -> None:
    check(
        tmp_path, [node("Split", "x", outputs=("y", "z"), axis=2, num_outputs=2)], (1, 8, 6, 6), {}, outputs=("y", "z")
    )


@pytest.mark.parametrize(
    ("indices", "kinds"),
    [
        (np.array(-1, np.int64), ["slice", "view"]),
        (integers(7, 5, 3), ["slice"]),
        (integers(2, 2), ["take"]),
        (integers(6, 0, 3, -2), ["take"]),
        (np.array([[1, 0], [5, 5]], np.int64), ["take", "view"]),
    ],
)
def test_gather_of_constant_indices(tmp_path: Path, indices: Constant, kinds: list[str]) -> None:
    assert check(tmp_path, [node("Gather", "x", "i", axis=1)], (2, 8, 6), {"i": indices}) == kinds


def test_gathered_channels_stay_innermost(tmp_path: Path) -> None:
    """No transpose between the pools and the operator that takes channels."""
    nodes = [
        node("MaxPool", "x", outputs=("a",), kernel_shape=[2, 2]),
        node("Gather", "a", "i", outputs=("b",), axis=1),
        node("MaxPool", "b", kernel_shape=[2, 2]),
    ]
    assert check(tmp_path, nodes, (1, 8, 6, 5), {"i": integers(7, 0, 3, 3)}) == ["max_pool", "take", "max_pool"]


def test_index_beyond_the_axis_is_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node("Gather", "x", "i", axis=1)],
        "beyond",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 2))],
        [numpy_helper.from_array(integers(3, 8), "i")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="index 8 of an axis of 8 elements"):
        load_model(tmp_path / "m.onnx")


def test_slice_with_steps_backward(tmp_path: Path) -> None:
    bounds = {"s": integers(1, -1), "e": integers(6, -100), "a": integers(1, 2), "t": integers(2, -3)}
    check(tmp_path, [node("Slice", "x", "s", "e", "a", "t")], (1, 8, 9, 7), bounds)


def test_pad_with_a_value(tmp_path: Path) -> None:
    edges = {"p": integers(0, 1, 2, 0, 0, 0, 1, 3), "v": np.array(-2.5, np.float32)}
    check(tmp_path, [node("Pad", "x", "p", "v")], (1, 3, 5, 6), edges)


def test_channel_shuffle(tmp_path: Path) -> None:
    nodes = [
        node("MaxPool", "x", outputs=("a",), kernel_shape=[1, 1]),
        node("Reshape", "a", "s", outputs=("b",)),
        node("Transpose", "b", outputs=("c",), perm=[0, 2, 1, 3, 4]),
        node("Reshape", "c", "t", outputs=("d",)),
        node("MaxPool", "d", kernel_shape=[1, 1]),
    ]
    shapes = {"s": integers(1, 3, 4, 5, 6), "t": integers(1, 12, 5, 6)}
    kinds = check(tmp_path, nodes, (1, 12, 5, 6), shapes)
    assert kinds == ["max_pool", "view", "transpose", "view", "max_pool"]


@pytest.mark.parametrize("axes", [(1,), (-1,), (1, 3), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceSum", "ReduceMax"])
def test_reductions(tmp_path: Path, op_type: str, axes: tuple[int, ...]) -> None:
    nodes = [node(op_type, "x", "a", keepdims=0)]
    check(tmp_path, nodes, (2, 5, 6, 7), {"a": integers(*axes)}, tolerance=0.0 if op_type == "ReduceMax" else 2e-3)


def test_lrn(tmp_path: Path) -> None:
    check(tmp_path, [node("LRN", "x", size=5, alpha=0.01)], (1, 12, 5, 6), {}, tolerance=5e-3)


RULES = ["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"]


@pytest.mark.spread(16)
@pytest.mark.parametrize("factors", [(2.0, 2.0), (1.5, 0.6), (0.3, 3.0)], ids=str)
@pytest.mark.parametrize("coordinates", RULES)
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_resize_to_the_nearest(tmp_path: Path, rounding: str, coordinates: str, factors: tuple[float, float]) -> None:
    """Moved bits, so nothing but equality: ties and factors that do not divide included."""
    scales = {"s": np.array([1, 1, *factors], np.float32)}
    resize = node("Resize", "x", "", "s", coordinate_transformation_mode=coordinates, nearest_mode=rounding)
    check(tmp_path, [resize], (1, 3, 7, 9), scales)


@pytest.mark.parametrize("factors", [(2.0, 2.0), (1.5, 0.6), (0.3, 3.0)], ids=str)
@pytest.mark.parametrize("coordinates", RULES)
def test_resize_linearly(tmp_path: Path, coordinates: str, factors: tuple[float, float]) -> None:
    scales = {"s": np.array([1, 1, *factors], np.float32)}
    resize = node("Resize", "x", "", "s", coordinate_transformation_mode=coordinates, mode="linear")
    check(tmp_path, [resize], (1, 3, 7, 9), scales, tolerance=2e-3)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_older_forms_of_resize(tmp_path: Path, mode: str) -> None:
    tolerance = 0.0 if mode == "nearest" else 2e-3
    check(
        tmp_path,
        [node("Resize", "x", "", "", "s", mode=mode)],
        (1, 3, 7, 9),
        {"s": integers(1, 3, 10, 5)},
        18,
        tolerance,
    )
    for op_type, opset, factors in (("Upsample", 9, (2, 3)), ("Resize", 10, (0.4, 3))):
        scales = {"s": np.array([1, 1, *factors], np.float32)}
        check(tmp_path, [node(op_type, "x", "s", mode=mode)], (1, 3, 7, 9), scales, opset, tolerance)
