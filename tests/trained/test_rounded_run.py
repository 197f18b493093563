"""The reference of the trained networks: without rounding it is onnxruntime, with it values are numbers of fp16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.trained import recurrence
from tests.trained.fp16_sums import convolution, summed
from tests.trained.rounded_run import RangeLeft, RoundedRun, rounded

Array = npt.NDArray[Any]


def drawn(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def model_of(node: onnx.NodeProto, inputs: dict[str, Array], constants: dict[str, Array]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def reference(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("LSTM", {"direction": "bidirectional"}),
        ("GRU", {"direction": "bidirectional", "linear_before_reset": 1}),
        ("GRU", {"direction": "reverse"}),
    ],
)
def test_a_recurrence_without_rounding_is_onnxruntimes(op_type: str, attributes: dict[str, Any]) -> None:
    gates, size, count = (4 if op_type == "LSTM" else 3), 5, (2 if attributes["direction"] == "bidirectional" else 1)
    feed = {"x": drawn(7, 2, 3), "h": drawn(count, 2, size)}
    weights = {"w": drawn(count, gates * size, 3), "r": drawn(count, gates * size, size)}
    weights["b"] = drawn(count, 2 * gates * size)
    names = ["x", "w", "r", "b", "", "h"]
    outputs = ["y", "last", "cell"] if op_type == "LSTM" else ["y", "last"]
    node = helper.make_node(op_type, names, outputs, hidden_size=size, **attributes)
    step = {"LSTM": recurrence.lstm, "GRU": recurrence.gru}[op_type]
    values = feed | weights
    found = step(node, [values.get(name) for name in names], lambda array: array, np.matmul)
    for ours, theirs in zip(found, reference(model_of(node, feed, weights), feed), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [1, 2, 0, 1], "strides": [2, 1], "dilations": [1, 2]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"group": 2},
    ],
)
def test_a_convolution_in_fp16_sums_is_onnxruntimes_but_for_rounding(attributes: dict[str, Any]) -> None:
    x, w = rounded(drawn(1, 4, 9, 8)), rounded(drawn(6, 4 // attributes.get("group", 1), 3, 3))
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    (exact,) = reference(model_of(node, {"x": x}, {"w": w}), {"x": x})
    error = np.linalg.norm(convolution(node, [x, w]) - exact) / np.linalg.norm(exact)
    assert 1e-4 < error < 2e-3


def test_sums_round_halfway_away_from_zero_and_go_to_two_accumulators() -> None:
    """2048 + 1 lies halfway between numbers of fp16, where to even would be 2048 and 2052."""
    ones = np.ones((4, 1), np.float32)
    assert summed(np.array([[2048, 0, 1, 0]], np.float32), ones).item() == 2050
    assert summed(np.array([[2048, 1, 0, 1]], np.float32), ones).item() == 2050
    assert summed(np.array([[-2050, 0, -1, 0]], np.float32), ones).item() == -2052


def test_values_are_rounded_where_they_are_stored() -> None:
    node = helper.make_node("Mul", ["x", "c"], ["y"])
    x, constant = drawn(100), np.array(1.1, np.float32)
    (found,) = RoundedRun(model_of(node, {"x": x}, {"c": constant}))({"x": x}).values()
    narrow = x.astype(np.float16).astype(np.float32) * np.float32(np.float16(1.1))
    np.testing.assert_array_equal(found, narrow.astype(np.float16).astype(np.float32))


def test_leaving_the_range_is_said() -> None:
    """300 * 300 is beyond fp16; what becomes zero in it has an infinite logarithm."""
    for op_type, value in (("Mul", 300.0), ("Log", 0.0)):
        operands = ["x", "x"] if op_type == "Mul" else ["x"]
        x = np.full(3, value, np.float32)
        model = model_of(helper.make_node(op_type, operands, ["y"]), {"x": x}, {})
        with pytest.raises(RangeLeft):
            RoundedRun(model)({"x": x})
        RoundedRun(model, range_kept=True)({"x": x})


def test_eleven_bits_with_the_range_of_float32_are_those_of_fp16_where_both_reach() -> None:
    values = drawn(1000)
    np.testing.assert_array_equal(rounded(values, range_kept=True), rounded(values))
    assert rounded(np.array([1e-12], np.float32), range_kept=True).item() == pytest.approx(1e-12, rel=2**-11)
