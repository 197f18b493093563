"""Post-training quantisation: what is quantised, what it computes, what the report and the search say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

import dsa_sched
from dsa_sched.cli import cli
from dsa_sched.quantisation.prepared import prepared
from hw_models.errors import ModelError
from tests.quantisation.quantisable_models import SHAPE, attention, convolution, lookup, residual, tied
from tests.repo.test_docs import documented_keys
from tests.small_models import one_node, save

Array = npt.NDArray[Any]
QUANTISE, DEQUANTISE = "QuantizeLinear", "DequantizeLinear"


def run(model: onnx.ModelProto, x: Array, *names: str) -> list[Array]:
    """Values of a network as its nodes say, without fused operators."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    if names:
        del shown.graph.output[:]
        shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def drawn(count: int, shape: tuple[int, ...] = SHAPE) -> list[Array]:
    random = np.random.default_rng(5)
    return [random.normal(size=shape).astype(np.float32) for _ in range(count)]


def node(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    found: onnx.NodeProto
    (found,) = (each for each in model.graph.node if each.name == name)
    return found


def producers(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {output: each for each in model.graph.node for output in each.output}


def reads_integers(model: onnx.ModelProto, name: str) -> bool:
    """Whether the first operand of a node is a dequantised value."""
    maker = producers(model).get(node(model, name).input[0])
    return maker is not None and maker.op_type == DEQUANTISE


def constants(model: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def relative(got: Array, wanted: Array) -> float:
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three input sets."""
    place = tmp_path_factory.mktemp("inputs")
    for number, x in enumerate(drawn(3)):
        np.savez(place / f"{number}.npz", x=x)
    return place


@pytest.fixture(scope="module")
def plain(folder: Path) -> Any:
    return dsa_sched.quantize(residual(), calibrate=folder)


def test_the_quantised_network_is_near_the_one_in_floating_point(plain: Any) -> None:
    for x in drawn(3):
        (wanted,), (got,) = run(residual(), x), run(plain.model, x)
        assert 0 < relative(got, wanted) < 0.05
    onnx.checker.check_model(plain.model, full_check=True)


@pytest.mark.parametrize("opset", [11, 17])
def test_preparing_a_network_changes_nothing_but_rounding(opset: int) -> None:
    source = residual(opset)
    model = prepared(source, "residual")
    assert {each.op_type for each in model.graph.node}.isdisjoint({"BatchNormalization", "Dropout", "Sum"})
    assert min(item.version for item in model.opset_import if not item.domain) >= 13
    (x,) = drawn(1)
    np.testing.assert_allclose(run(model, x)[0], run(source, x)[0], rtol=1e-4, atol=1e-5)


def test_activations_and_weights_are_symmetric_and_biases_int32(plain: Any) -> None:
    model, held = plain.model, constants(plain.model)
    for each in model.graph.node:
        if each.op_type in (QUANTISE, DEQUANTISE):
            assert not np.any(held[each.input[2]])
            assert held[each.input[2]].dtype in (np.int8, np.int32)
    weights = [producers(model)[node(model, name).input[1]] for name in ("conv1", "fc")]
    assert [held[each.input[0]].dtype for each in weights] == [np.int8, np.int8]
    assert [held[each.input[1]].shape for each in weights] == [(4,), (6,)]
    bias = producers(model)[node(model, "fc").input[2]]
    assert held[bias.input[0]].dtype == np.int32
    x_scale = held[producers(model)[node(model, "fc").input[0]].input[1]]
    np.testing.assert_allclose(held[bias.input[1]], x_scale * held[weights[1].input[1]], rtol=1e-6)


def doubly_rounded(model: onnx.ModelProto) -> Iterator[str]:
    """Activations that read a value which was rounded for them alone, and roundings before and after one."""
    made = producers(model)
    for each in model.graph.node:
        if each.op_type in ("Relu", "Clip") and made[each.input[0]].op_type == DEQUANTISE:
            yield each.name


def test_a_value_is_rounded_once_and_after_its_activation(plain: Any) -> None:
    model = plain.model
    assert list(doubly_rounded(model)) == []
    made = producers(model)
    rounded = {
        made[each.input[0]].op_type for each in model.graph.node if each.op_type == QUANTISE and each.input[0] in made
    }
    assert rounded == {"Clip", "Relu", "MaxPool", "Concat", "GlobalAveragePool", "Flatten"}
    product, other = node(model, "sum").input  # what a product makes for the sum alone is not rounded before
    assert product == "n2"
    assert made[made[other].input[0]].input[0] == "r1"
    assert made["y"].op_type == "Gemm"


def test_joined_values_and_values_that_move_have_one_scale(plain: Any) -> None:
    model, held = plain.model, constants(plain.model)
    scale = {each.input[0]: float(held[each.input[1]]) for each in model.graph.node if each.op_type == QUANTISE}
    assert scale["r3"] == scale["r4"] == scale["j"]
    assert scale["r2"] == scale["p"]
    largest = max(float(np.abs(value).max()) for x in drawn(3) for value in run(residual(), x, "r3", "r4"))
    assert scale["j"] == pytest.approx(largest / 127, rel=1e-5)


def test_all_weights_of_a_layer_may_have_one_scale(folder: Path, plain: Any) -> None:
    """No less exact than a whole layer allows, and no other value is rounded otherwise."""
    result = dsa_sched.quantize(residual(), calibrate=folder, per_layer=True)
    scales = [
        {each.name: constants(model)[each.input[1]] for each in model.graph.node if each.op_type == DEQUANTISE}
        for model in (result.model, plain.model)
    ]
    assert all(scale.size == 1 for scale in scales[0].values())
    assert any(scale.size > 1 for scale in scales[1].values())
    assert plain.relative_l2 <= result.relative_l2 < 0.1


def test_norms_and_sums_of_floating_point_read_values_before_rounding(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=drawn(1, (6, 8))[0])
    model = dsa_sched.quantize(attention(), calibrate=tmp_path / "x.npz").model
    assert all(reads_integers(model, name) for name in ("query", "key", "value", "scores", "mix"))
    assert list(node(model, "add").input) == ["mixed", "n"]
    assert list(node(model, "softmax").input) == ["scores"]


@pytest.mark.parametrize(
    ("keep", "in_float"),
    [(["Gemm"], {"fc"}), (["conv3", "Add"], {"conv3", "sum"}), (["norm1"], {"conv1"})],
)
def test_layers_are_kept_in_floating_point_by_type_and_by_name(
    folder: Path, keep: list[str], in_float: set[str]
) -> None:
    result = dsa_sched.quantize(residual(), calibrate=folder, keep_float=keep)
    assert in_float <= set(result.float_layers)
    held = constants(result.model)
    for name in in_float - {"sum"}:
        assert held[node(result.model, name).input[1]].dtype == np.float32
    assert reads_integers(result.model, "conv2")


def test_weights_that_several_operators_read_are_quantised_for_each_as_it_needs_them() -> None:
    result = dsa_sched.quantize(tied(), calibrate="seeded", inputs=2, keep_float=["kept"])
    model, held, made = result.model, constants(result.model), producers(result.model)
    plain, turned = (made[node(model, name).input[1]] for name in ("plain", "turned"))
    assert [each.attribute[0].i for each in (plain, turned)] == [1, 0]
    for name in ("kept", "gate"):
        np.testing.assert_array_equal(held[node(model, name).input[1]], constants(tied())["w"])
    assert 0 < result.relative_l2 < 0.05
    onnx.checker.check_model(model, full_check=True)


def test_weights_alone_are_quantised(folder: Path) -> None:
    result = dsa_sched.quantize(residual(), weights_only=True)
    assert QUANTISE not in {each.op_type for each in result.model.graph.node}
    held, made = constants(result.model), producers(result.model)
    for name in ("conv1", "conv2", "conv3", "conv4", "fc"):
        assert held[made[node(result.model, name).input[1]].input[0]].dtype == np.int8
    assert held[node(result.model, "fc").input[2]].dtype == np.float32
    assert 0 < result.relative_l2 < 0.02
    assert {layer["operator"] for layer in result.to_dict()["layers"]} == {"Conv", "Gemm"}
    assert dsa_sched.quantize(residual(), calibrate=folder, weights_only=True).to_dict()["inputs"] == 3


def test_the_report_is_what_numpy_finds(plain: Any) -> None:
    layer = next(each for each in plain.to_dict()["layers"] if each["name"] == "conv1")
    assert (layer["value"], layer["in_float"]) == ("r1", False)
    wanted = np.concatenate([run(residual(), x, "r1")[0] for x in drawn(3)]).astype(np.float64)
    before = np.concatenate([run(plain.model, x, "r1")[0] for x in drawn(3)])
    units = np.rint(before / np.float32(layer["scale"]))
    got = np.clip(units, -128, 127) * np.float32(layer["scale"])
    assert layer["scale"] == pytest.approx(wanted.max() / 127, rel=1e-5)
    assert layer["relative_l2"] == pytest.approx(relative(got, wanted), rel=1e-5)
    assert layer["snr_db"] == pytest.approx(-20 * np.log10(relative(got, wanted)), rel=1e-5)
    assert layer["saturated"] == np.mean(units > 127)


def test_the_error_of_the_outputs_is_that_of_all_inputs(plain: Any) -> None:
    wanted = np.concatenate([run(residual(), x)[0] for x in drawn(3)])
    got = np.concatenate([run(plain.model, x)[0] for x in drawn(3)])
    (output,) = plain.to_dict()["outputs"]
    assert output["name"] == "y"
    assert output["relative_l2"] == pytest.approx(relative(got, wanted), rel=1e-4)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
@pytest.mark.commit
def test_other_methods_leave_outliers_out(tmp_path: Path, method: str) -> None:
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    x[0, 0, 0, 0] = 1000.0
    np.savez(tmp_path / "x.npz", x=x)
    scales = []
    for each in ("minmax", method):
        model = dsa_sched.quantize(convolution(), calibrate=tmp_path, method=each).model
        scales.append(float(constants(model)[node(model, "x_QuantizeLinear").input[1]]))
    assert scales[0] == pytest.approx(1000 / 127)
    assert scales[1] < scales[0]


def test_a_search_keeps_its_bound_with_few_layers_in_floating_point(plain: Any, folder: Path) -> None:
    bound = plain.relative_l2 / 2
    said: list[str] = []
    result = dsa_sched.quantize(residual(), calibrate=folder, bound=bound, progress=said.append)
    search = result.to_dict()["search"]
    assert result.relative_l2 <= bound
    assert search["error"] == pytest.approx(result.relative_l2, rel=1e-3)
    assert 0 < len(search["kept"]) < len(result.to_dict()["layers"])
    assert set(search["kept"]) <= set(result.float_layers)
    errors = [layer["error"] for layer in search["ranking"]]
    assert errors == sorted(errors, reverse=True)
    counts = [step["float_layers"] for step in search["curve"]]
    assert counts == sorted(set(counts))
    assert counts[0] == 0
    assert any(step.startswith("ranking layers") for step in said)
    wanted = np.concatenate([run(residual(), x)[0] for x in drawn(3)])
    assert relative(np.concatenate([run(result.model, x)[0] for x in drawn(3)]), wanted) <= bound * 1.001


def test_a_search_with_a_wide_bound_keeps_nothing(folder: Path) -> None:
    result = dsa_sched.quantize(residual(), calibrate=folder, bound=0.5)
    assert (result.float_layers, result.to_dict()["search"]["kept"]) == ((), [])


def test_a_bound_that_no_layer_keeps_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"bound 1e-09: needs a bound within which a layer can be quantised; has an"):
        dsa_sched.quantize(residual(), calibrate=folder, bound=1e-9)


def test_the_model_in_memory_stays_as_it_is(folder: Path) -> None:
    model = residual()
    dsa_sched.quantize(model, calibrate=folder)
    assert model == residual()


def test_the_result_compiles_to_integer_products(folder: Path, tmp_path: Path) -> None:
    result = dsa_sched.quantize(convolution(), calibrate=folder)
    result.save(tmp_path / "int8.onnx")
    artifact = dsa_sched.compile(tmp_path / "int8.onnx", "stcp920", level="O0")
    kinds = {op.kind: op for op in artifact.graph.ops}
    assert artifact.graph.by_name[kinds["conv"].inputs[0]].dtype == "int8"
    (x,) = drawn(1)
    assert relative(np.asarray(artifact.run({"x": x})["y"]), run(result.model, x)[0]) < 0.02


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"calibrate: needs a folder of \.npz files, an \.npz file, or the word seeded; has none"),
        ({"calibrate": "nowhere"}, r"calibrate nowhere: needs a folder .*; has no such file or folder"),
        ({"calibrate": "seeded", "keep_float": ["conv"]}, r"keep_float conv: needs .*; did you mean Conv\?"),
        ({"calibrate": "seeded", "keep_float": ["xyz"]}, r"keep_float xyz: needs .*; its types are Add, BatchNorm"),
        ({"calibrate": "seeded", "method": "mean"}, r"method: needs one of minmax, entropy, percentile; has mean"),
        ({"calibrate": "seeded", "bound": 0.0}, r"bound: needs a number above 0; has 0"),
        ({"calibrate": "seeded", "inputs": 0}, r"inputs: needs at least 1; has 0"),
        (
            {"calibrate": "seeded", "keep_float": ["Conv", "Gemm"]},
            r"residual: needs an operator that can be quantised: Conv, Gemm, MatMul.*; has 5, which keep_float",
        ),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        dsa_sched.quantize(residual(), **options)


def test_an_empty_folder_and_arrays_of_other_shapes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"needs at least one \.npz file, .*; has none; write them with numpy\.savez"):
        dsa_sched.quantize(residual(), calibrate=tmp_path)
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 4, 8, 9), np.float32))
    with pytest.raises(ModelError, match=r"x\.npz: needs the arrays x \[1, 4, 8, 8\]; has x \[1, 4, 8, 9\]"):
        dsa_sched.quantize(residual(), calibrate=tmp_path)


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, method: str) -> None:
    np.savez(tmp_path / "x.npz", x=np.full(SHAPE, np.inf, np.float32))
    with pytest.raises(ModelError, match=r"needs finite numbers for all calibration inputs"):
        dsa_sched.quantize(residual(), calibrate=tmp_path, method=method)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_are_not_finite_stay_in_floating_point(number: float) -> None:
    model = residual()
    (weights,) = (tensor for tensor in model.graph.initializer if tensor.name == node(model, "conv2").input[1])
    array = numpy_helper.to_array(weights).copy()
    array.reshape(-1)[3] = number
    weights.CopyFrom(numpy_helper.from_array(array, weights.name))
    result = dsa_sched.quantize(model, weights_only=True)
    held = constants(result.model)
    assert held[node(result.model, "conv2").input[1]].dtype == np.float32


def test_networks_without_layers_to_quantise_are_refused(plain: Any) -> None:
    with pytest.raises(ModelError, match=r"one_node: needs an operator that can be quantised: .*; has none"):
        dsa_sched.quantize(one_node("Sigmoid"), calibrate="seeded")
    with pytest.raises(ModelError, match=r"needs a network in floating point; has DequantizeLinear; it is quantised"):
        dsa_sched.quantize(plain.model, calibrate="seeded")


def test_drawn_inputs_that_are_refused_ask_for_others() -> None:
    with pytest.raises(ModelError, match=r"needs drawn inputs that onnxruntime accepts; .*; give some with calibrate"):
        dsa_sched.quantize(lookup(), calibrate="seeded")


def test_a_file_that_no_reader_takes_is_not_written(
    plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsa_sched.quantisation.quantise.LARGEST_FILE_BYTES", 1000)
    with pytest.raises(ModelError, match=r"int8\.onnx: needs at most 1000 bytes; has "):
        plain.save(tmp_path / "int8.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_network_whose_outputs_are_integers_is_refused() -> None:
    model = residual()
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["most"], axis=1, keepdims=0))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("most", TensorProto.INT64, [1]))
    with pytest.raises(ModelError, match=r"needs an output in floating point, .*; has integers alone"):
        dsa_sched.quantize(model, calibrate="seeded")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["quantize", *map(str, arguments)])


def test_the_command_writes_a_network_and_a_report(folder: Path, plain: Any, tmp_path: Path) -> None:
    model, out, report = save(residual(), tmp_path / "net.onnx"), tmp_path / "int8.onnx", tmp_path / "report.json"
    done = invoke(model, "--calibrate", folder, "--json", report, "-o", out)
    assert done.exit_code == 0, done.output
    assert "net.onnx: 8 of 8 layers in int8, calibrated by minmax, 3 inputs" in done.output
    assert "output y: relative L2 error" in done.output
    assert onnx.load(out).graph == plain.model.graph
    written = json.loads(report.read_text())
    assert written | {"model": "residual"} == plain.to_dict()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["int8.onnx", "net.onnx", "report.json"]


def test_the_command_searches(folder: Path, plain: Any, tmp_path: Path) -> None:
    model, out = save(residual(), tmp_path / "net.onnx"), tmp_path / "int8.onnx"
    bound = plain.relative_l2 / 2
    done = invoke(model, "--calibrate", folder, "--search", "--bound", bound, "-o", out)
    assert done.exit_code == 0, done.output
    assert "in floating point keep the bound" in done.output
    assert "kept in floating point: " in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--calibrate", "seeded", "--search"], "--search and --bound belong together"),
        (["--calibrate", "seeded", "--bound", "0.1"], "--search and --bound belong together"),
        ([], "--calibrate is needed"),
    ],
)
def test_options_that_belong_together(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = invoke(save(residual(), tmp_path / "net.onnx"), *arguments, "-o", tmp_path / "out.onnx")
    assert done.exit_code == 2
    assert said in done.output
    assert not (tmp_path / "out.onnx").exists()


def test_the_model_itself_is_not_overwritten(tmp_path: Path) -> None:
    model = save(residual(), tmp_path / "net.onnx")
    done = invoke(model, "--calibrate", "seeded", "-o", model)
    assert done.exit_code == 2
    assert onnx.load(model) == residual()


def test_every_key_of_the_report_is_documented(plain: Any, folder: Path) -> None:
    found = dsa_sched.quantize(residual(), calibrate=folder, bound=plain.relative_l2 / 2).to_dict()
    entries = [found, found["layers"][0], found["outputs"][0], found["search"]]
    entries += [found["search"]["ranking"][0], found["search"]["curve"][0], found["search"]["steps"][0]]
    assert {key for entry in entries for key in entry} - documented_keys("quantize") == set()
