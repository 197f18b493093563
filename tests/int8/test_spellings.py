"""Networks with quantised values that no quantiser writes, but files may have, against exact arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import verify_model
from partitioner.planners.levels import O0
from tests.int8.networks import Array

GRIDS = {"xs": 0.03, "ys": 0.05, "ws": 0.01, "zs": 0.08}


def quantised_model(nodes: list[onnx.NodeProto], outputs: dict[str, tuple[int, ...]], zero: int = 0) -> onnx.ModelProto:
    """A model of `x` (1, 4, 8) whose first node quantises it, with grids of one zero point but for weights."""
    random = np.random.default_rng(6)
    stored: dict[str, Array] = {name: np.array(scale, np.float32) for name, scale in GRIDS.items()}
    stored |= {"zero": np.array(zero, np.int8), "w": random.integers(-127, 128, (4, 6)).astype(np.int8)}
    stored |= {"b": np.linspace(-1, 1, 6).astype(np.float32), "free": random.normal(size=(4, 6)).astype(np.float32)}
    first = [
        helper.make_node("QuantizeLinear", ["x", "xs", "zero"], ["q"], name="quantised"),
        helper.make_node("DequantizeLinear", ["q", "xs", "zero"], ["d"], name="numbers"),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"], name="weights"),
    ]
    graph = helper.make_graph(
        [*first, *nodes],
        "spelled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 8))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def right(model: onnx.ModelProto, folder: Path) -> None:
    path = folder / "spelled.onnx"
    onnx.save(model, path)
    report = verify_model(path, "stcp920", CompileOptions(O0()))
    assert not report.failures
    assert all(layer.samples and not layer.samples_wrong for layer in report.layers)


@pytest.mark.parametrize("zero", [0, -5])
def test_moved_integers_are_read_by_a_product_of_numbers_and_one_of_integers(zero: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["d"], ["t"], name="turned", perm=[0, 2, 1]),
        helper.make_node("Tanh", ["t"], ["f"], name="computed"),
        helper.make_node("MatMul", ["t", "free"], ["plain"], name="of_numbers"),
        helper.make_node("MatMul", ["t", "wd"], ["m"], name="of_integers"),
        helper.make_node("Add", ["m", "b"], ["y"], name="biased"),
    ]
    right(quantised_model(nodes, {"y": (1, 8, 6), "plain": (1, 8, 6), "f": (1, 8, 4)}, zero), tmp_path)


def test_a_sum_of_a_product_and_integers_is_rounded_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["d"], ["t"], name="turned", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "wd"], ["m"], name="product"),
        helper.make_node("QuantizeLinear", ["r", "ys", "zero"], ["rq"], name="other.quantised"),
        helper.make_node("DequantizeLinear", ["rq", "ys", "zero"], ["rd"], name="other"),
        helper.make_node("Add", ["m", "rd"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["sr"], name="bound"),
        helper.make_node("QuantizeLinear", ["sr", "zs", "zero"], ["zq"], name="sum.quantised"),
        helper.make_node("DequantizeLinear", ["zq", "zs", "zero"], ["y"], name="sum.numbers"),
    ]
    before = helper.make_node("MatMul", ["t", "free"], ["r"], name="beside")
    right(quantised_model([nodes[0], before, *nodes[1:]], {"y": (1, 8, 6)}), tmp_path)


def test_integers_of_the_file_leave_as_they_are(tmp_path: Path) -> None:
    """An output of type int8 that a sum of integers also reads."""
    nodes = [
        helper.make_node("Add", ["d", "d"], ["s"], name="doubled"),
        helper.make_node("QuantizeLinear", ["s", "zs", "zero"], ["zq"], name="sum.quantised"),
        helper.make_node("DequantizeLinear", ["zq", "zs", "zero"], ["y"], name="sum.numbers"),
    ]
    model = quantised_model(nodes, {"y": (1, 4, 8)})
    model.graph.output.append(helper.make_tensor_value_info("q", TensorProto.INT8, (1, 4, 8)))
    right(model, tmp_path)
