"""Norms for inputs of all magnitudes, against float64: scaled by powers of two, offset, constant, not finite.

Every layer's stored bits must be those of the emulation, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import load_model
from dsa_sched.verification.tolerances import LAYER_BOUND, relative_error
from hw_models.errors import ModelError
from isched.hazards.verify_program import verify_program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.planners.levels import planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import Compiled, compile_graph, stcp920

Values = npt.NDArray[np.float64]
Halves = npt.NDArray[np.float16]
Meaning = Callable[[Values, float], Values]


def standardised(x: Values, axes: tuple[int, ...], epsilon: float) -> Values:
    centred = x - x.mean(axes, keepdims=True)
    result: Values = centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + epsilon)
    return result


def by_rms(x: Values, axes: tuple[int, ...], epsilon: float) -> Values:
    result: Values = x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon)
    return result


def vector(seed: int, length: int) -> npt.NDArray[np.float32]:
    values = np.random.default_rng(seed).normal(1, 0.3, length)
    return values.astype(np.float16).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Norm:
    """A model of nodes that read x and constants and write y, and what it computes."""

    shape: tuple[int, ...]
    nodes: Callable[[float], list[onnx.NodeProto]]
    meaning: Meaning
    constants: dict[str, Any] = field(default_factory=dict)
    result: tuple[int, ...] = ()

    def model(self, epsilon: float) -> onnx.ModelProto:
        constants = {"eps": np.float32(epsilon), "two": np.float32(2), **self.constants}
        nodes = self.nodes(epsilon)
        graph = helper.make_graph(
            nodes,
            "norm",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, self.result or self.shape)],
            [
                numpy_helper.from_array(np.asarray(value), name)
                for name, value in constants.items()
                if any(name in node.input for node in nodes)
            ],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)

    def compiled(self, epsilon: float, level: str = "O0") -> Compiled:
        return _compiled(self, epsilon, level)


@cache
def _compiled(norm: Norm, epsilon: float, level: str) -> Compiled:
    """Each once: nearly every test below runs the same few."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(norm.model(epsilon), path)
        loaded = load_model(path)
    if level == "O0":
        return compile_graph(loaded.graph, loaded.constants)
    chip = stcp920()
    plan = make_plan(PlanContext(loaded.graph, loaded.constants, chip, TARGET), planner_of(level))
    program = lower_plan(plan, Context(loaded.graph, loaded.constants, chip, TARGET), TARGET.data_base_bytes)
    verify_program(program, chip)
    return Compiled(loaded.graph, loaded.constants, chip, plan, program)


node = helper.make_node


def one(op_type: str, *inputs: str, outputs: tuple[str, ...] = ("y",), **attributes: Any) -> Any:
    return lambda epsilon: [node(op_type, ["x", *inputs], outputs, **attributes, epsilon=epsilon)]


def rows(*shape: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    return shape, {"scale": vector(1, shape[-1]), "bias": vector(2, shape[-1])}


def channels(*shape: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    names = ("scale", "bias", "mean", "var")
    return shape, {name: vector(seed, shape[1]) for seed, name in enumerate(names)}


def layer_norm(*shape: int) -> Norm:
    extents, constants = rows(*shape)

    def meaning(x: Values, epsilon: float) -> Values:
        return np.asarray(standardised(x, (-1,), epsilon) * constants["scale"] + constants["bias"])

    return Norm(extents, one("LayerNormalization", "scale", "bias"), meaning, constants)


def rms_norm(*shape: int) -> Norm:
    extents, constants = rows(*shape)
    return Norm(
        extents,
        one("RMSNormalization", "scale"),
        lambda x, epsilon: by_rms(x, (-1,), epsilon) * constants["scale"],
        constants,
    )


def channel_norm(op_type: str, axes: tuple[int, ...], *shape: int) -> Norm:
    extents, constants = channels(*shape)
    spread = (-1, *(1,) * (len(shape) - 2))

    def meaning(x: Values, epsilon: float) -> Values:
        scale, bias = (constants[name].reshape(spread) for name in ("scale", "bias"))
        return np.asarray(standardised(x, axes, epsilon) * scale + bias)

    if op_type == "InstanceNormalization":
        return Norm(extents, one(op_type, "scale", "bias"), meaning, constants)
    nodes = one(op_type, "scale", "bias", "mean", "var", outputs=("y", "m", "v"), training_mode=1)
    return Norm(extents, nodes, meaning, constants)


LAST = {"last": np.array([-1], np.int64)}


def spelled_out_rms(*shape: int, power: bool, order: tuple[str, str]) -> Norm:
    """As exporters write it: a square or a power, and a product with the reciprocal of the root."""

    def nodes(_: float) -> list[onnx.NodeProto]:
        return [
            node("Pow", ["x", "two"], ["q"]) if power else node("Mul", ["x", "x"], ["q"]),
            node("ReduceMean", ["q", "last"], ["m"]),
            node("Add", ["m", "eps"] if power else ["eps", "m"], ["a"]),
            node("Sqrt", ["a"], ["r"]),
            node("Reciprocal", ["r"], ["i"]),
            node("Mul", list(order), ["n"]),
            node("Mul", ["n", "scale"], ["y"]),
        ]

    extents, constants = rows(*shape)
    return Norm(extents, nodes, lambda x, e: by_rms(x, (-1,), e) * constants["scale"], {**constants, **LAST})


def spelled_out_layer_norm(*shape: int) -> Norm:
    def nodes(_: float) -> list[onnx.NodeProto]:
        return [
            node("ReduceMean", ["x", "last"], ["mu"]),
            node("Sub", ["x", "mu"], ["d"]),
            node("Pow", ["d", "two"], ["q"]),
            node("ReduceMean", ["q", "last"], ["v"]),
            node("Add", ["v", "eps"], ["a"]),
            node("Sqrt", ["a"], ["r"]),
            node("Div", ["d", "r"], ["y"]),
        ]

    return Norm(shape, nodes, lambda x, e: standardised(x, (-1,), e), LAST)


def root_of_mean_square(*shape: int) -> Norm:
    """The root by itself, which something else is divided by."""

    def nodes(_: float) -> list[onnx.NodeProto]:
        return [
            node("Mul", ["x", "x"], ["q"]),
            node("ReduceMean", ["q", "last"], ["m"]),
            node("Add", ["m", "eps"], ["a"]),
            node("Sqrt", ["a"], ["r"]),
            node("Relu", ["x"], ["p"]),
            node("Div", ["p", "r"], ["y"]),
        ]

    return Norm(shape, nodes, lambda x, e: np.maximum(x, 0) / np.sqrt((x * x).mean(-1, keepdims=True) + e), LAST)


NORMS = {
    "layer, spelled out": spelled_out_layer_norm(2, 3, 96),
    "root mean square, spelled out": spelled_out_rms(4, 100, power=True, order=("x", "i")),
    "root mean square, by products": spelled_out_rms(2, 2, 300, power=False, order=("i", "x")),
    "root mean square of another value": root_of_mean_square(4, 100),
    "layer, rows of 768": layer_norm(2, 3, 768),
    "layer, short rows": layer_norm(5, 7),
    "layer, long rows": layer_norm(2, 5_000),
    "root mean square": rms_norm(4, 384),
    "root mean square, long rows": rms_norm(1, 2, 4_500),
    "instance": channel_norm("InstanceNormalization", (2, 3), 2, 5, 9, 11),
    "instance, many pixels": channel_norm("InstanceNormalization", (2, 3), 1, 3, 40, 40),
    "instance of rows": channel_norm("InstanceNormalization", (2,), 2, 3, 50),
    "batch": channel_norm("BatchNormalization", (0, 2, 3), 3, 5, 6, 7),
    "batch of rows": channel_norm("BatchNormalization", (0, 2), 3, 5, 30),
    "batch of vectors": channel_norm("BatchNormalization", (0,), 40, 6),
}
WITHOUT_EPSILON = {
    "lp 2": Norm(
        (3, 70, 4),
        lambda _: [node("LpNormalization", ["x"], ["y"], axis=1, p=2)],
        lambda x, _: x / np.sqrt((x * x).sum(1, keepdims=True)),
    ),
    "lp 1": Norm(
        (3, 700),
        lambda _: [node("LpNormalization", ["x"], ["y"], p=1)],
        lambda x, _: x / np.abs(x).sum(1, keepdims=True),
    ),
    "sum of squares": Norm(
        (3, 70, 4),
        lambda _: [node("ReduceL2", ["x", "axes"], ["y"], keepdims=0)],
        lambda x, _: np.sqrt((x * x).sum(1)),
        {"axes": np.array([1], np.int64)},
        (3, 4),
    ),
}


def run(compiled: Compiled, x: Halves) -> Values:
    """The output for x, both in the file's order; stored bits are held against the emulation where all are stored."""
    graph = compiled.graph
    axes = graph.by_name["x"].axes
    stored = compiled.run({"x": np.ascontiguousarray(x.transpose(axes)).view(np.uint16)})
    for name, (got, wanted) in compiled.expected(stored).items():
        np.testing.assert_array_equal(got, wanted, err_msg=name)
    result = stored[graph.outputs[0]].view(np.float16)
    return result.transpose(np.argsort(graph.by_name[graph.outputs[0]].axes)).astype(np.float64)


def drawn(shape: tuple[int, ...], offset: float = 0.4, seed: int = 3) -> Values:
    return np.random.default_rng(seed).normal(offset, 1, shape)


@pytest.mark.spread(2)
@pytest.mark.parametrize("epsilon", [0.0, 1e-5])
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_all_magnitudes(name: str, epsilon: float) -> None:
    norm = NORMS[name]
    compiled = norm.compiled(epsilon)
    for exponent in range(-10, 11, 4 if norm.shape[-1] > 1_000 else 2):
        x = (drawn(norm.shape) * 2.0**exponent).astype(np.float16)
        error = relative_error(run(compiled, x), norm.meaning(x.astype(np.float64), epsilon))
        assert error < LAYER_BOUND, f"2^{exponent}"


@pytest.mark.parametrize("name", WITHOUT_EPSILON)
def test_norms_without_epsilon_of_all_magnitudes(name: str) -> None:
    norm = WITHOUT_EPSILON[name]
    compiled = norm.compiled(0.0)
    for exponent in range(-10, 11, 2):
        x = (drawn(norm.shape) * 2.0**exponent).astype(np.float16)
        error = relative_error(run(compiled, x), norm.meaning(x.astype(np.float64), 0.0))
        assert error < LAYER_BOUND, f"2^{exponent}"


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", ["layer, rows of 768", "root mean square", "instance", "batch", "layer, spelled out"])
def test_without_epsilon_powers_of_two_change_no_bit(name: str) -> None:
    """Of values that scaling by 2^-10 leaves exact: multiples of 2^-14."""
    norm = NORMS[name]
    compiled = norm.compiled(0.0)
    values = np.round(drawn(norm.shape).astype(np.float16).astype(np.float64) * 2**14) / 2**14
    plain = run(compiled, values.astype(np.float16))
    for exponent in (-10, -3, 7, 10, 13):
        x = (values * 2.0**exponent).astype(np.float16)
        assert np.array_equal(x.astype(np.float64), values * 2.0**exponent)
        np.testing.assert_array_equal(run(compiled, x), plain, err_msg=f"2^{exponent}")


@pytest.mark.spread(4)
@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("name", ["layer, rows of 768", "root mean square"])
def test_epsilon_counts_beside_small_rows(name: str, epsilon: float) -> None:
    norm = NORMS[name]
    compiled = norm.compiled(epsilon)
    for exponent in (-14, -9, -6, 0):
        x = (drawn(norm.shape) * 2.0**exponent).astype(np.float16)
        error = relative_error(run(compiled, x), norm.meaning(x.astype(np.float64), epsilon))
        assert error < LAYER_BOUND, f"2^{exponent}"


@pytest.mark.parametrize("name", ["layer, rows of 768", "instance, many pixels", "batch"])
def test_a_mean_much_larger_than_the_deviations(name: str) -> None:
    """Offsets of 10 to 300 deviations, and rows over the whole range of the type."""
    norm = NORMS[name]
    compiled = norm.compiled(1e-5)
    rows = [drawn(norm.shape, offset) for offset in (10.0, -30.0, 100.0, -300.0)]
    wide = np.clip(drawn(norm.shape, 0.0) * 4e4, -65504, 65504)
    for values in (*rows, wide):
        x = values.astype(np.float16)
        assert relative_error(run(compiled, x), norm.meaning(x.astype(np.float64), 1e-5)) < LAYER_BOUND


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    "name", ["layer, rows of 768", "layer, long rows", "layer, spelled out", "instance", "batch of rows"]
)
@pytest.mark.parametrize("value", [0.0, 1e-4, 0.7, -1000.0, 65504.0])
def test_rows_of_equal_values_are_the_bias(name: str, value: float) -> None:
    norm = NORMS[name]
    x = np.full(norm.shape, value, np.float16)
    zeros = norm.meaning(np.zeros(norm.shape), 1e-5)
    np.testing.assert_array_equal(run(norm.compiled(1e-5), x), zeros)
    with np.errstate(invalid="ignore"):
        nothing = norm.meaning(np.zeros(norm.shape), 0.0)
    assert np.isnan(nothing).all()
    assert relative_error(run(norm.compiled(0.0), x), nothing) == 0


def test_rows_of_zeros_have_no_direction() -> None:
    norm = WITHOUT_EPSILON["lp 2"]
    assert not run(norm.compiled(0.0), np.zeros(norm.shape, np.float16)).any()
    rms = NORMS["root mean square"]
    assert not run(rms.compiled(1e-5), np.zeros(rms.shape, np.float16)).any()


@pytest.mark.parametrize("name", ["layer, rows of 768", "root mean square, spelled out"])
def test_an_epsilon_too_small_for_the_type_keeps_rows_of_zeros(name: str) -> None:
    norm, x = NORMS[name], np.zeros(NORMS[name].shape)
    np.testing.assert_array_equal(run(norm.compiled(1e-20), x.astype(np.float16)), norm.meaning(x, 1e-20))


def test_long_rows_of_equal_magnitudes_have_a_norm() -> None:
    """Their sum is 64 times as many as there are."""
    norm = replace(WITHOUT_EPSILON["lp 1"], shape=(2, 3_000))
    x = np.where(drawn(norm.shape, 0.0) < 0, -1.0, 1.0).astype(np.float16)
    assert relative_error(run(norm.compiled(0.0), x), norm.meaning(x.astype(np.float64), 0.0)) < LAYER_BOUND


@pytest.mark.parametrize("epsilon", [np.inf, np.nan, -1.0, 2.0**30])
@pytest.mark.parametrize("name", ["layer, rows of 768", "root mean square", "instance"])
def test_an_epsilon_beyond_the_range_is_refused(name: str, epsilon: float) -> None:
    with pytest.raises(ModelError, match=r"epsilon lie between 0 and 2\^30"):
        load_model(NORMS[name].model(epsilon))


def test_a_spelled_out_norm_with_an_infinite_epsilon_stays_as_it_is() -> None:
    norm = NORMS["root mean square, spelled out"]
    assert not run(norm.compiled(np.inf), np.ones(norm.shape, np.float16)).any()


@pytest.mark.parametrize("name", ["layer, rows of 768", "root mean square"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_spoil_what_they_spoil_in_float64(name: str, value: float) -> None:
    norm = NORMS[name]
    x = drawn(norm.shape).astype(np.float16)
    x.reshape(-1)[5] = value
    with np.errstate(invalid="ignore"):
        wanted = norm.meaning(x.astype(np.float64), 1e-5)
    assert not np.isfinite(wanted).all()
    assert relative_error(run(norm.compiled(1e-5), x), wanted) < LAYER_BOUND


@pytest.mark.parametrize("name", ["layer, rows of 768", "instance, many pixels"])
def test_other_levels_store_the_same(name: str) -> None:
    norm = NORMS[name]
    x = (drawn(norm.shape) * 2.0**10).astype(np.float16)
    plain, fused = norm.compiled(1e-5), norm.compiled(1e-5, "O3")
    graph = fused.graph
    device = {"x": np.ascontiguousarray(x.transpose(graph.by_name["x"].axes)).view(np.uint16)}
    got = outputs(fused, device)
    np.testing.assert_array_equal(got, plain.run(device)[graph.outputs[0]])


def outputs(compiled: Compiled, inputs: dict[str, npt.NDArray[np.uint16]]) -> npt.NDArray[np.uint16]:
    """The first output of a program that does not keep all values."""
    name = compiled.graph.outputs[0]
    places = {p.tensor: (TARGET.address(p.memory, p.offset_bytes), p.size_bytes) for p in compiled.program.placements}
    loads = {places[given][0]: bits.tobytes() for given, bits in inputs.items()}
    memory = TARGET.run(compiled.files, loads, (places[name],), 0).memory
    return np.frombuffer(memory[places[name]], np.uint16).reshape(compiled.graph.by_name[name].shape)
