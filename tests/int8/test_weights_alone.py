"""Weights alone in int8: products whose cores convert them, bit for bit as by constants in fp16."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dsa_sched
from benchmarks.decoder_layer import DecoderShape, decoder_layer
from codegen.neuralscale.emulation import arithmetic
from codegen.neuralscale.kernels import dispatch
from codegen.neuralscale.kernels.weight_packing import weight_packing
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.quantisation.prepared import constants_of
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import verify_model
from partitioner.ir.target import WeightPacking, WeightUse
from partitioner.planners.levels import O0, planner_or_auto
from tests.chip_runs import stcp920
from tests.int8.networks import Array
from tests.small_models import save

PACKED = WeightPacking(True, "forced")


def product(
    op_type: str,
    x: tuple[int, ...],
    weights: tuple[int, ...],
    *,
    axis: int | None = None,
    zero: int | None = None,
    smallest: float = 3e-4,
    bias: int = 0,
    **settings: Any,
) -> onnx.ModelProto:
    """One product by weights that are int8 with fp16 scales, or uint8 with a zero point."""
    random = np.random.default_rng(7)
    low, dtype = (-127, np.int8) if zero is None else (0, np.uint8)
    integers = random.integers(low, low + 255, weights).astype(dtype)
    count = 1 if axis is None else weights[axis]
    scale = np.asarray(random.uniform(smallest, 3 * smallest, count), np.float16).astype(np.float32)
    stored: dict[str, Array] = {"q": integers, "s": scale.reshape(()) if axis is None else scale}
    if zero is not None:
        stored["z"] = np.full(stored["s"].shape, zero, np.uint8)
    if bias:
        stored["b"] = random.normal(size=bias).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", [n for n in ("q", "s", "z") if n in stored], ["w"], "dq", axis=axis or 0),
        helper.make_node(op_type, ["x", "w", *(["b"] if bias else [])], ["y"], "product", **settings),
    ]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x), helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(
        nodes, "alone", ends[:1], ends[1:], [numpy_helper.from_array(a, n) for n, a in stored.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inferred: onnx.ModelProto = onnx.shape_inference.infer_shapes(model)
    return inferred


def with_numbers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same product by constants in floating point, each rounded to fp16 as the chip rounds."""
    stored = {name: numpy_helper.to_array(tensor).astype(np.float64) for name, tensor in constants_of(model).items()}
    integers, axis = stored["q"] - stored.get("z", np.zeros(1)).max(), model.graph.node[0].attribute[0].i
    spread = [-1 if each == axis and stored["s"].size > 1 else 1 for each in range(integers.ndim)]
    numbers = arithmetic.mul(integers, stored["s"].reshape(spread)).astype(np.float32)
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    del plain.graph.node[0]
    plain.graph.initializer.append(numpy_helper.from_array(numbers, "w"))
    return plain


def run(model: onnx.ModelProto, folder: Path, level: str) -> tuple[bytes, list[str]]:
    """The stored bits of the result, and the types of the product's operands."""
    made = compile_model(save(model, folder / "alone.onnx"), "stcp920", CompileOptions(planner_or_auto(level)))
    graph = made.model.graph
    op = next(op for op in graph.ops if op.kind in ("matmul", "conv"))
    x = np.random.default_rng(1).normal(size=[dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim])
    result = made.artifact.run({"x": x.astype(np.float32)})["y"]
    return result.tobytes(), [graph.by_name[name].dtype for name in op.inputs]


CASES: Mapping[str, onnx.ModelProto] = {
    "odd depth": product("MatMul", (3, 33), (33, 46), axis=1),
    "one scale": product("MatMul", (1, 2, 64), (64, 32)),
    "runs": product("MatMul", (1, 2501), (2501, 40), axis=1),
    "rows as columns": product("MatMul", (70, 48), (48, 96), axis=1),
    "uint8 about 128": product("Gemm", (5, 32), (24, 32), axis=0, zero=128, bias=24, transB=1),
    "padded": product("Conv", (2, 7, 9, 9), (10, 7, 3, 3), axis=0, bias=10, pads=[1, 1, 1, 1], strides=[2, 2]),
    "one axis": product("Conv", (1, 6, 20), (8, 6, 3), axis=0, pads=[1, 1]),
    "runs of channels": product("Conv", (1, 300, 3, 3), (6, 300, 3, 3), axis=0),
}


@pytest.mark.spread(6)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("level", ["O0", "O3"])
def test_bits_are_those_of_constants_in_fp16(
    case: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "weight_packing", lambda _use, _chip: PACKED)
    packed, packed_types = run(CASES[case], tmp_path, level)
    plain, plain_types = run(with_numbers(CASES[case]), tmp_path, level)
    assert packed_types[:3] == ["float16", "int8", "float16"]
    assert set(plain_types) == {"float16"}
    assert packed == plain


def turned(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same product of a matrix, whose weights the file has the other way round."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    (q,) = (tensor for tensor in result.graph.initializer if tensor.name == "q")
    q.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(q).T.copy(), "q"))
    dequantise, multiply = result.graph.node
    dequantise.attribute[0].i ^= 1
    multiply.input[1] = "t"
    result.graph.node.insert(1, helper.make_node("Transpose", ["w"], ["t"], "turned", perm=[1, 0]))
    return result


MATRICES = ("odd depth", "runs", "rows as columns", "uint8 about 128")


@pytest.mark.spread(4)
@pytest.mark.parametrize("case", MATRICES)
@pytest.mark.parametrize("packed", [True, False])
def test_weights_that_a_transpose_turns_are_those_weights(
    case: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "weight_packing", lambda _use, _chip: WeightPacking(packed, "forced"))
    assert run(turned(CASES[case]), tmp_path, "O0") == run(CASES[case], tmp_path, "O0")
    report = verify_model(save(turned(CASES[case]), tmp_path / "turned.onnx"), "stcp920", CompileOptions(O0()))
    assert not report.failures


def test_constants_of_dequantised_weights_are_computed_for_every_target(tmp_path: Path) -> None:
    """What computes with dequantised constants alone is computed when the file is read."""
    model = turned(CASES["rows as columns"])
    model.graph.node.insert(2, helper.make_node("Relu", ["t"], ["positive"], "relu"))
    model.graph.node[3].input[1] = "positive"
    for chip in ("stcp920", "h100"):
        made = compile_model(save(model, tmp_path / "alone.onnx"), chip, CompileOptions(O0()))
        assert [op.kind for op in made.model.graph.ops] == ["matmul"]


def test_weights_that_meet_a_vector_are_dequantised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "weight_packing", lambda _use, _chip: PACKED)
    model = product("MatMul", (64,), (64, 32), axis=1)
    assert set(run(model, tmp_path, "O0")[1]) == {"float16"}
    assert verify_model(save(model, tmp_path / "vector.onnx"), "stcp920", CompileOptions(O0())).verdict == "passed"


@pytest.mark.parametrize("columns", [32, 64])
def test_scales_along_what_is_summed_are_judged_by_the_file(columns: int, tmp_path: Path) -> None:
    path = save(product("MatMul", (4, 64), (64, columns), axis=0), tmp_path / "rows.onnx")
    assert verify_model(path, "stcp920", CompileOptions(O0())).verdict == "passed"


@pytest.mark.parametrize("case", ["runs", "padded"])
def test_products_are_judged_by_bits_and_by_the_file(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "weight_packing", lambda _use, _chip: PACKED)
    path = save(CASES[case], tmp_path / "alone.onnx")
    report = verify_model(path, "stcp920", CompileOptions(planner_or_auto("O3")))
    assert not report.failures
    assert all(layer.samples and not layer.samples_wrong for layer in report.layers)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (product("MatMul", (1, 64), (64, 32), axis=1, zero=3), "more than eight bits"),
        (product("MatMul", (1, 64), (64, 32), axis=1, smallest=2e-5), "float16 has fewer digits"),
        (product("MatMul", (1, 64), (64, 31), axis=1), "31 columns"),
        (product("Conv", (1, 4, 8, 8), (4, 1, 3, 3), axis=0, group=4), "has groups"),
        (product("Conv", (1, 4, 64, 64), (8, 4, 3, 3), axis=0), "cycles from int8"),
    ],
)
def test_other_weights_are_dequantised_and_the_reason_is_recorded(
    model: onnx.ModelProto, reason: str, tmp_path: Path
) -> None:
    made = compile_model(save(model, tmp_path / "alone.onnx"), "stcp920", CompileOptions(O0()))
    assert {tensor.dtype for tensor in made.model.graph.tensors} == {"float16"}
    assert made.artifact.manifest.origin is not None
    (decision,) = made.artifact.manifest.origin.decisions
    assert (decision.subject, decision.verdict) == ("product", "weights are dequantised when the file is read")
    assert reason in decision.reason


def test_few_rows_are_bound_by_bytes_and_many_or_few_weights_are_not() -> None:
    chip = stcp920()
    few, many = (weight_packing(WeightUse(rows * 1024, rows, 1024, 3072), chip) for rows in (1, 4096))
    small = weight_packing(WeightUse(48, 1, 48, 48), chip)
    assert (few.packed, many.packed, small.packed) == (True, False, False)
    assert "116,575 cycles from int8 and 233,083 from fp16 where loading overlaps" in few.reason


@pytest.mark.commit
def test_the_scales_of_a_decoder_layer_are_numbers_of_fp16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(decoder_layer(DecoderShape(64, 192, 4, 2, 16, 7)), tmp_path / "layer.onnx")
    quantised = dsa_sched.quantize(path, weights_only=True, inputs=1)
    assert 0 < quantised.relative_l2 < 0.01
    stored = {name: numpy_helper.to_array(tensor) for name, tensor in constants_of(quantised.model).items()}
    scales = [array for name, array in stored.items() if name.endswith("_scale")]
    assert len(scales) == 7
    assert all(np.array_equal(scale, scale.astype(np.float16)) for scale in scales)
    monkeypatch.setattr(dispatch, "weight_packing", lambda _use, _chip: PACKED)
    report = verify_model(save(quantised.model, path), "stcp920", CompileOptions(O0()))
    assert not report.failures
    assert len([layer for layer in report.layers if "IntegerMatMul" in layer.operators]) == 7


@pytest.mark.parametrize("spelling", ["int16", "blocks"])
def test_integers_that_no_kernel_takes_are_numbers(spelling: str, tmp_path: Path) -> None:
    """Weights of sixteen bits, and scales in blocks: dequantised when the file is read."""
    random = np.random.default_rng(3)
    if spelling == "int16":
        stored: dict[str, Array] = {
            "q": random.integers(-9000, 9000, (16, 8)).astype(np.int16), "s": np.array(1e-4, np.float32),
        }  # fmt: skip
        node = helper.make_node("DequantizeLinear", ["q", "s"], ["numbers"])
    else:
        stored = {
            "q": random.integers(-90, 90, (16, 8)).astype(np.int8),
            "s": random.uniform(0.01, 0.02, (4, 8)).astype(np.float32),
        }
        node = helper.make_node("DequantizeLinear", ["q", "s"], ["numbers"], axis=0, block_size=4)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, size)) for name, size in (("x", 16), ("y", 8))]
    constants = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    nodes = [node, helper.make_node("MatMul", ["x", "numbers"], ["y"])]
    graph = helper.make_graph(nodes, "numbers", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert verify_model(save(model, tmp_path / "net.onnx"), "stcp920", CompileOptions(O0())).failures == ()
