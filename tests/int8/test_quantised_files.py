"""Files of onnxruntime's quantiser, compiled, run on the simulator and judged: each layer by steps, samples by bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.parser import parse_model

from codegen.neuralscale.kernels.dispatch import WANTS
from dsa_sched.frontend.load import load_model
from dsa_sched.frontend.network.refusals import Judge
from dsa_sched.frontend.network.spelling import spell_out
from dsa_sched.frontend.quantised.dialects import QUANTISED
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.exact_integers import with_exact_integers
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.verify import verify_model
from hw_models.errors import ModelError
from partitioner.planners.levels import O0, planner_or_auto
from tests.int8.decomposed_networks import bounded_and_pooled
from tests.int8.networks import STYLES, Array, convolutions, encoder, quantised_file

MOST_STEPS = 1
FEW = 0.06
"""Largest share of all values that may be one step off, with zero points: see docs/int8.md."""


@pytest.mark.spread(3)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.commit
def test_convolutions_are_exact_to_a_step(style: str, level: str, tmp_path: Path) -> None:
    path = quantised_file(convolutions(), style, tmp_path)
    report = verify_model(path, "stcp920", CompileOptions(planner_or_auto(level)))
    steps = [layer.steps for layer in report.layers if layer.steps is not None]
    assert not report.failures
    assert all(layer.samples and not layer.samples_wrong for layer in report.layers)
    assert len(steps) >= 5
    assert max(each.most for each in steps) <= MOST_STEPS  # sums with weights beyond eight bits are exact, too
    assert sum(each.share * each.values for each in steps) <= FEW * sum(each.values for each in steps)


@pytest.mark.spread(2)
@pytest.mark.parametrize("style", STYLES)
def test_encoders_compile_and_are_right(style: str, tmp_path: Path) -> None:
    path = quantised_file(encoder(), style, tmp_path)
    report = verify_model(path, "stcp920", CompileOptions(O0()))
    assert not report.failures
    steps = [layer.steps.most for layer in report.layers if layer.steps is not None]
    assert max(steps) <= 2


def test_maxima_before_the_rounding_are_those_of_the_file(tmp_path: Path) -> None:
    """A layer between its product and the rounding is judged by its numbers, also where a Relu makes nearly all of
    them zero: zero is then zero, and not half a step below it."""
    onnx.save(bounded_and_pooled("QDQ"), path := tmp_path / "pooled.onnx")
    report = verify_model(path, "stcp920", CompileOptions(O0()))
    (bounded,) = [layer for layer in report.layers if layer.name == "a.last"]
    assert bounded.isolated_error is not None
    assert bounded.isolated_error <= bounded.bound
    assert not report.failures


def test_products_are_of_int8_and_a_layer_ends_with_its_integers(tmp_path: Path) -> None:
    """One layer per convolution: product, bound and conversion; the residual sum is one layer too."""
    compiled = compile_model(quantised_file(convolutions(), "uint8", tmp_path), "stcp920", CompileOptions(O0()))
    graph = compiled.model.graph
    products = [op for op in graph.ops if op.kind in ("conv", "matmul")]
    assert [graph.by_name[op.inputs[0]].dtype for op in products] == ["int8"] * len(products)
    layers = {layer.name: [graph.op_by_name[name].kind for name in layer.ops]
              for step in compiled.plan.steps for layer in compiled.plan.group_by_name[step.group].layers}  # fmt: skip
    assert (layers["pointwise"][0], layers["pointwise"][-1]) == ("conv", "narrow")
    assert any({"add_scaled", "relu", "narrow"} & {*kinds} >= {"add_scaled"} for kinds in layers.values())
    assert not any(kinds[0] == "widen" and "max_pool" in kinds for kinds in layers.values())


@pytest.mark.parametrize("build", [convolutions, encoder])
def test_spelled_out_operators_mean_what_the_runtime_computes(
    build: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    """onnxruntime on its own operators against onnxruntime on ours, to a step of rounding."""
    path = quantised_file(build(), "operators", tmp_path)
    original, spelled = onnx.load(path), onnx.load(path)
    spell_out(spelled, QUANTISED)
    onnx.checker.check_model(spelled)
    assert not {node.domain for node in spelled.graph.node} - {""}
    (item,) = original.graph.input
    shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    theirs, ours = (_run(model, x) for model in (original, spelled))
    assert np.allclose(theirs, ours, rtol=0, atol=0.02 * float(np.max(theirs)))


def test_exact_arithmetic_is_that_of_numpy(tmp_path: Path) -> None:
    """One product by hand: sums of integers, float64, ties to even."""
    model = onnx.load(quantised_file(encoder(), "symmetric", tmp_path))
    x = np.random.default_rng(2).normal(size=(1, 6, 16)).astype(np.float32)
    exact = with_exact_integers(model)
    names = ["x_QuantizeLinear_Output", "q_QuantizeLinear_Output"]
    exact.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    qx, qq = onnxruntime.InferenceSession(exact.SerializeToString(), options).run(names, {"x": x})
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    sums = qx.astype(np.int64) @ stored["wq_quantized"].astype(np.int64)
    units = sums * stored["x_scale"].astype(np.float64) * stored["wq_scale"].astype(np.float64) / stored["q_scale"]
    assert np.array_equal(qq, np.clip(np.round(units), -128, 127))
    assert np.array_equal(qx, np.clip(np.round(x / stored["x_scale"].astype(np.float64)), -128, 127))


def test_exact_constants_may_be_beyond_fp32() -> None:
    """-127 steps of 2.68e36, as a quantised mask has them, are beyond fp32; no element of it becomes 0 * infinity."""
    model = parse_model("""<ir_version: 8, opset_import: ["": 17]> masks (float[4] x) => (int8[4] y)
        <float s = {0.25}, int8 z = {0}, int8 m = {-127}, float far = {2.6793887e36}> {
            q = QuantizeLinear(x, s, z)
            a = DequantizeLinear(q, s, z)
            b = DequantizeLinear(m, far, z)
            p = Mul(a, b)
            y = QuantizeLinear(p, far, z)
        }""")
    x = np.array([0, 0.25, -0.5, 1], np.float32)
    assert OnnxReference(model).values({"x": x})["y"].tolist() == [0, -32, 64, -127]


def test_sixteen_bits_and_gpus_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = quantised_file(convolutions(), "symmetric", tmp_path)
    with pytest.raises(ModelError, match="quantised values need kernels of int8"):
        compile_model(path, "a100", CompileOptions())
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name == "x_zero_point":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros((), np.int16), tensor.name))
    model.opset_import[0].version = 21
    onnx.save(model, path)
    with pytest.raises(ModelError, match="int8 or uint8 integers"):
        compile_model(path, "stcp920", CompileOptions(O0()))


def test_weights_alone_become_constants_of_numbers(tmp_path: Path) -> None:
    path = quantised_file(convolutions(), "symmetric", tmp_path)
    model = onnx.load(path)
    stored = {tensor.name for tensor in model.graph.initializer}
    quantised = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    plain = {node.output[0]: quantised[node.input[0]] for node in model.graph.node if node.op_type == "DequantizeLinear"
             and node.input[0] not in stored}  # fmt: skip
    kept = [node for node in model.graph.node if node.output[0] not in {*quantised, *plain}]
    for node in kept:
        for position, name in enumerate(node.input):
            node.input[position] = plain.get(name, name)
    kept[-1].output[0] = "y"
    del model.graph.node[:]
    model.graph.node.extend(kept)
    loaded = load_model(model, judge=Judge(WANTS))
    assert {tensor.dtype for tensor in loaded.graph.tensors} == {"float16"}
    assert "conv" in {op.kind for op in loaded.graph.ops}


def _run(model: onnx.ModelProto, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    return np.asarray(y)
