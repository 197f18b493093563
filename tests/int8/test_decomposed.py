"""Quantisation in primitive operators: the same programs as in QDQ, the same numbers, and what stays in fp16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import dsa_sched
from codegen.neuralscale.kernels.dispatch import WANTS
from dsa_sched.frontend.load import load_model
from dsa_sched.frontend.network.constant_folding import runtime_session
from dsa_sched.frontend.network.refusals import Judge
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import verify_model
from partitioner.planners.levels import O0
from tests.int8.decomposed_networks import SPELLINGS, Writer, convolutions, perceptron
from tests.int8.networks import Array


def program_files(model: onnx.ModelProto, folder: Path) -> dict[str, bytes]:
    """Files of the artifact but for its chip and its manifest, which says which model file it is made of."""
    dsa_sched.compile(model, chip="stcp920", level="O0").save(folder)
    kept = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("manifest.json", "chip.json")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def recognised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model that the compiler reads and verifies by."""
    return load_model(model, judge=Judge(WANTS)).source


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def chain(*replaced: onnx.NodeProto, writer: Writer | None = None, scale: float = 0.05) -> onnx.ModelProto:
    """x -> Div -> Round -> Clip -> Mul -> y, of which some nodes are replaced by those with their results."""
    writer = writer or Writer("divided")
    writer.constant(scale, "s")
    writer.constant(-128, "low")
    writer.constant(127, "high")
    for op_type, inputs, y in (
        ("Div", ["x", "s"], "d"), ("Round", ["d"], "r"), ("Clip", ["r", "low", "high"], "c"), ("Mul", ["c", "s"], "y"),
    ):  # fmt: skip
        news = [node for node in replaced if node.name.split(".")[0] == y]
        if news:
            writer.nodes.extend(news)
        else:
            writer.add(op_type, inputs, y)
    return writer.model((4, 16), {"y": (4, 16)})


@pytest.mark.spread(2)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("build", [convolutions, perceptron])
def test_programs_are_those_of_the_pair(build: Callable[..., onnx.ModelProto], spelling: str, tmp_path: Path) -> None:
    assert {"Round", "Clip", "Max"} & {*operators(build(spelling))}
    files = program_files(build(spelling), tmp_path / "decomposed")
    assert {"graph.txt", "plan.txt", "cluster0/program.elf"} <= {*files}
    assert files == program_files(build("QDQ"), tmp_path / "pair")


@pytest.mark.spread(2)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("build", [convolutions, perceptron])
def test_decomposed_networks_are_right(build: Callable[..., onnx.ModelProto], spelling: str, tmp_path: Path) -> None:
    path = tmp_path / "decomposed.onnx"
    onnx.save(build(spelling), path)
    report = verify_model(path, "stcp920", CompileOptions(O0()))
    assert not report.failures
    assert any(layer.steps is not None for layer in report.layers)


def test_bounds_narrower_than_the_type_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "narrow.onnx"
    onnx.save(convolutions("divided", integers="narrow"), path)
    assert not verify_model(path, "stcp920", CompileOptions(O0())).failures


@pytest.mark.parametrize("build", [convolutions, perceptron])
def test_products_are_of_int8(build: Callable[..., onnx.ModelProto]) -> None:
    graph = load_model(build("divided"), judge=Judge(WANTS)).graph
    products = [op for op in graph.ops if op.kind in ("conv", "matmul")]
    assert [graph.by_name[op.inputs[0]].dtype for op in products] == ["int8"] * 2


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("integers", ["int8", "uint8", "narrow"])
@pytest.mark.parametrize("zero", [0, 4, 5])
def test_the_pair_has_the_numbers_of_the_file(spelling: str, integers: str, zero: int) -> None:
    """Values to both sides of all bounds, ties among them: a scale that is a power of two has them exactly."""
    writer = Writer(spelling)
    writer.fake("x", 0.125, integers, zero)
    x = (np.arange(-2048, 2048) / 32).astype(np.float32).reshape(4, 1024)
    model = writer.model((4, 1024), {"x_fake": (4, 1024)})
    before = _run(model, x)
    after = recognised(model)
    assert [*operators(after)[-2:]] == ["QuantizeLinear", "DequantizeLinear"]
    assert ("Clip" in operators(after)) == (integers == "narrow")
    assert np.array_equal(before, _run(after, x))


def test_weights_have_the_numbers_of_the_file() -> None:
    """Per channel, by a reciprocal that is not that of the scale, and a zero point before Round: all of it constant."""
    random, writer = np.random.default_rng(2), Writer("divided")
    scale = random.uniform(0.01, 0.02, (1, 8))
    writer.constant(random.normal(size=(16, 8)), "w")
    writer.constant(1 / scale * 1.01, "inverse")
    writer.constant(scale, "s")
    for name, number in {"z": 3, "low": -127, "high": 127}.items():
        writer.constant(number, name)
    writer.add("Add", [writer.add("Mul", ["w", "inverse"], "d"), "z"], "a")
    writer.add("Clip", [writer.add("Round", ["a"], "r"), "low", "high"], "c")
    writer.add("Mul", [writer.add("Sub", ["c", "z"], "l"), "s"], "wf")
    writer.add("MatMul", [writer.fake("x", 0.05), "wf"], "y")
    model = writer.model((4, 16), {"y": (4, 8)})
    x = random.normal(size=(4, 16)).astype(np.float32)
    before, after = _run(model, x), recognised(model)
    assert operators(after).count("DequantizeLinear") == 2
    assert np.array_equal(before, _run(after, x))


def test_scales_may_be_computed_of_constants() -> None:
    writer = Writer("divided")
    writer.constant([0.05], "stored")
    writer.constant(-1, "minus")
    writer.add("Reciprocal", [writer.add("Abs", [writer.add("Neg", ["stored"], "n")], "p")], "inverse")
    model = chain(
        helper.make_node("Mul", ["x", "inverse"], ["d"], name="d.other"),
        helper.make_node("Mul", ["p", "c"], ["y"], name="y.other"),
        writer=writer,
    )
    assert operators(recognised(model))[-2:] == ["QuantizeLinear", "DequantizeLinear"]


def _half_up() -> onnx.ModelProto:
    writer = Writer("divided")
    writer.constant(0.5, "half")
    added = helper.make_node("Add", ["d", "half"], ["h"], name="r.half")
    return chain(added, helper.make_node("Floor", ["h"], ["r"], name="r.other"), writer=writer)


def _read_twice() -> onnx.ModelProto:
    model = chain()
    model.graph.node.append(helper.make_node("Relu", ["r"], ["other"], name="other"))
    model.graph.output.append(helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, (4, 16)))
    return model


def _leaves_inside() -> onnx.ModelProto:
    model = chain()
    model.graph.output.append(helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, (4, 16)))
    return model


def _four_bits() -> onnx.ModelProto:
    writer = Writer("divided")
    writer.fake("x", 0.3, "four bits")
    return writer.model((4, 16), {"x_fake": (4, 16)})


def _computed_scale() -> onnx.ModelProto:
    writer = Writer("divided")
    writer.constant(0.25, "more")
    most = helper.make_node("ReduceMax", ["x"], ["m"], name="d.most", keepdims=1)
    positive = [helper.make_node("Abs", ["m"], ["p"], name="d.abs"), helper.make_node("Add", ["p", "more"], ["t"],
                name="d.more")]  # fmt: skip
    divided = helper.make_node("Div", ["x", "t"], ["d"], name="d.other")
    return chain(most, *positive, divided, helper.make_node("Mul", ["c", "t"], ["y"], name="y.other"), writer=writer)


def _odd_before_rounding() -> onnx.ModelProto:
    writer = Writer("divided")
    writer.constant(3, "z")
    shifted = helper.make_node("Add", ["d", "z"], ["a"], name="r.shifted")
    less = helper.make_node("Sub", ["c", "z"], ["l"], name="y.less")
    last = helper.make_node("Mul", ["l", "s"], ["y"], name="y.other")
    return chain(shifted, helper.make_node("Round", ["a"], ["r"], name="r.other"), less, last, writer=writer)


def _other_factor() -> onnx.ModelProto:
    writer = Writer("divided")
    writer.constant(np.nextafter(np.float32(1) / np.float32(0.05), np.float32(0)), "inverse")
    return chain(helper.make_node("Mul", ["x", "inverse"], ["d"], name="d.other"), writer=writer)


@pytest.mark.parametrize(
    "build",
    [_half_up, _read_twice, _leaves_inside, _four_bits, _computed_scale, _odd_before_rounding, _other_factor],
)
@pytest.mark.commit
def test_what_the_pair_does_not_mean_stays_in_floating_point(
    build: Callable[..., onnx.ModelProto], tmp_path: Path
) -> None:
    assert "QuantizeLinear" not in operators(recognised(build()))
    path = tmp_path / "float.onnx"
    onnx.save(build(), path)
    assert not verify_model(path, "stcp920", CompileOptions(O0())).failures


def test_a_factor_of_two_chains_is_of_one_of_them() -> None:
    """Mul(scale) of one chain is the first node of the next: only one of them is a pair, and nothing is lost."""
    writer = Writer("divided")
    writer.constant(4.0, "t")
    model = chain(scale=0.25, writer=writer)
    again = [("Round", ["y"], "r2"), ("Clip", ["r2", "low", "high"], "c2"), ("Mul", ["c2", "t"], "z")]
    model.graph.node.extend(helper.make_node(op_type, inputs, [y], name=y) for op_type, inputs, y in again)
    model.graph.output[0].name = "z"
    x = np.random.default_rng(1).normal(size=(4, 16)).astype(np.float32)
    before, after = _run(model, x), recognised(model)
    assert operators(after).count("QuantizeLinear") == 1
    assert np.array_equal(before, _run(after, x))


@pytest.mark.parametrize("between", ["Transpose", "Reshape"])
def test_weights_of_a_chain_may_be_moved(between: str, tmp_path: Path) -> None:
    random, writer = np.random.default_rng(3), Writer("divided")
    writer.constant(random.normal(size=(8, 16)), "w")
    writer.constant([16, 8], "shape", np.int64)
    weights = writer.fake("w", 0.02)
    writer.add(between, [weights, "shape"][: 2 if between == "Reshape" else 1], "moved")
    writer.add("MatMul", ["x", "moved"], "y")
    path = tmp_path / "moved.onnx"
    onnx.save(writer.model((4, 16), {"y": (4, 8)}), path)
    assert not verify_model(path, "stcp920", CompileOptions(O0())).failures


def test_the_model_in_memory_keeps_its_chains() -> None:
    """A target without kernels of int8 would refuse the pairs that are compiled in their place."""
    model = convolutions("divided")
    dsa_sched.compile(model, chip="stcp920", level="O0")
    assert operators(model).count("Round")
    assert not {"QuantizeLinear", "DequantizeLinear"} & {*operators(model)}


def test_without_kernels_of_int8_a_chain_stays() -> None:
    """Targets that have none would refuse a quantised network, but may compute the chain."""
    assert operators(load_model(chain()).source).count("Round") == 1


def _run(model: onnx.ModelProto, x: Array) -> Array:
    (y,) = runtime_session(model).run(None, {"x": x})
    return np.asarray(y)
