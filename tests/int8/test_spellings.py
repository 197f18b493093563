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
from tests.int8.decomposed_networks import Writer
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


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_integers_of_the_file_are_cut_padded_joined_and_looked_up(kind: type[np.generic], tmp_path: Path) -> None:
    """As onnxruntime's operators on integers leave them: no number stands between what makes and what reads them."""
    zero, model = np.array(9, kind), quantised_model([], {"y": (1, 6, 10), "taken": (1, 2, 8)})
    table = np.arange(40).reshape(5, 8).astype(kind)
    more: dict[str, Array] = {"z": zero, "table": table}
    more |= {"halves": np.array([2, 2], np.int64), "pads": np.array([0, 1, 1, 0, 1, 1], np.int64)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in more.items())
    model.graph.input.append(helper.make_tensor_value_info("index", TensorProto.INT64, (1, 2)))
    del model.graph.node[:]
    model.graph.node.extend(
        [
            helper.make_node("QuantizeLinear", ["x", "xs", "z"], ["q"], name="quantised"),
            helper.make_node("Split", ["q", "halves"], ["q1", "q2"], name="halves", axis=1),
            helper.make_node("Concat", ["q2", "q1"], ["qc"], name="joined", axis=1),
            helper.make_node("Pad", ["qc", "pads", "z"], ["qp"], name="padded"),
            helper.make_node("DequantizeLinear", ["qp", "xs", "z"], ["p"], name="numbers"),
            helper.make_node("Relu", ["p"], ["y"], name="last"),
            helper.make_node("Gather", ["table", "index"], ["qt"], name="looked_up"),
            helper.make_node("DequantizeLinear", ["qt", "xs", "z"], ["taken"], name="taken"),
        ]
    )
    right(model, tmp_path)


def test_a_sum_is_of_integers_where_a_number_multiplies_one_and_one_is_spread(tmp_path: Path) -> None:
    """A mask of numbers that fp16 does not have, as onnxruntime's quantiser leaves that of a text, is in units of its
    grid all the time; the factor may be a constant integer."""
    model = quantised_model([], {"y": (1, 4, 8)})
    more: dict[str, Array] = {"one": np.array(-100, np.int8)}
    more |= {name: np.array(2.0**94, np.float32) for name in ("ms", "os")}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in more.items())
    model.graph.node.extend(
        [
            helper.make_node("ReduceMax", ["x"], ["top"], name="top", keepdims=1, axes=[1]),
            helper.make_node("QuantizeLinear", ["top", "ys", "zero"], ["tq"], name="top.q"),
            helper.make_node("DequantizeLinear", ["tq", "ys", "zero"], ["t"], name="top.d"),
            helper.make_node("DequantizeLinear", ["one", "os"], ["o"], name="one.d"),
            helper.make_node("Mul", ["t", "o"], ["m"], name="mask"),
            helper.make_node("QuantizeLinear", ["m", "ms", "zero"], ["mq"], name="mask.q"),
            helper.make_node("DequantizeLinear", ["mq", "ms", "zero"], ["md"], name="mask.d"),
            helper.make_node("Add", ["d", "md"], ["s"], name="sum"),
            helper.make_node("QuantizeLinear", ["s", "ms", "zero"], ["sq"], name="sum.q"),
            helper.make_node("DequantizeLinear", ["sq", "xs", "zero"], ["y"], name="last"),
        ]
    )
    model.opset_import[0].version = 17
    model.ir_version = 8
    right(model, tmp_path)


@pytest.mark.parametrize("op_type", ["Conv", "MatMul"])
def test_zero_points_cost_no_digits(op_type: str, tmp_path: Path) -> None:
    """Positive weights and a zero point at the end of the range: without it a sum is many times as large as the result,
    and 5 to 8 % of the values would be off if it were taken out after the sum was scaled."""
    random, writer = np.random.default_rng(11), Writer("QDQ")
    conv = op_type == "Conv"
    w = writer.constant(random.uniform(0.2, 1.0, (8, 32, 3, 3) if conv else (288, 8)), "w")
    x = writer.fake("x", 0.02, "uint8", 0)
    weights = writer.fake(w, 1 / 127)
    y = writer.add(op_type, [x, weights], "y", **({"pads": [1] * 4} if conv else {}))
    writer.fake(writer.add("Relu", [y], "r"), 1.5, "uint8", 0)
    shapes = ((1, 32, 12, 12), (1, 8, 12, 12)) if conv else ((64, 288), (64, 8))
    onnx.save(writer.model(shapes[0], {"r_fake": shapes[1]}), path := tmp_path / "zeros.onnx")
    report = verify_model(path, "stcp920", CompileOptions(O0()))
    assert not report.failures
    steps = [layer.steps for layer in report.layers if layer.steps is not None]
    assert steps
    assert max(each.most for each in steps) == 1
    assert max(each.share for each in steps if not each.linked) <= 0.03


def test_a_scale_per_column_of_products_in_several_axes(tmp_path: Path) -> None:
    """QLinearMatMul has one scale per column, whatever the number of axes; a constant of no axes may leave fp16."""
    random = np.random.default_rng(7)
    w = random.integers(-90, 90, (1, 2, 8, 6)).astype(np.int8)
    model = quantised_model([], {"y": (1, 2, 2, 6)})
    del model.graph.node[:]
    more: dict[str, Array] = {"w4": w, "w4z": np.zeros(6, np.int8), "axes": np.array([1, 2, 2, 8], np.int64)}
    more |= {"w4s": np.linspace(0.005, 0.02, 6).astype(np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in more.items())
    model.graph.node.extend(
        [
            helper.make_node("Reshape", ["x", "axes"], ["r"], name="four"),
            helper.make_node("QuantizeLinear", ["r", "xs", "zero"], ["q"], name="quantised"),
            helper.make_node("QLinearMatMul", ["q", "xs", "zero", "w4", "w4s", "w4z", "ys", "zero"], ["qy"], name="m"),
            helper.make_node("DequantizeLinear", ["qy", "ys", "zero"], ["y"], name="last"),
        ]
    )
    right(model, tmp_path)
