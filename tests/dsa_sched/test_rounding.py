"""What rounding makes of the reference: near what fp16 really does, and nothing where that is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto

from dsa_sched.verification.floors import stored_type
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.rounded_network import LONGEST_AVERAGE
from dsa_sched.verification.rounding import RoundedReference
from dsa_sched.verification.tolerances import judge_layer
from partitioner.ir.graph import Graph, Tensor
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

Array = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
UNIT = 2.0**-11


def rounded(
    model: onnx.ModelProto,
    feed: dict[str, Array],
    cut: frozenset[str] = frozenset(),
    together: bool = False,
    stored: str = "float16",
) -> tuple[dict[str, Array], dict[str, Array]]:
    """All values of the reference and of the rounded one."""
    exact = OnnxReference(model).values(feed)
    wanted = frozenset(name for node in model.graph.node for name in node.output)
    found = RoundedReference(model, exact, wanted, stored, cut).values(exact, together)
    return cast(dict[str, Array], exact), cast(dict[str, Array], found)


def moves(exact: Array, found: Array) -> float:
    """Root mean square of what rounding moves."""
    return float(np.sqrt(np.mean(np.square(found.astype(np.float64) - exact.astype(np.float64)))))


def halves(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float16).astype(np.float32)


def summed_in_half(products: Floats) -> Floats:
    """Sums over the last axis, each step rounded to fp16."""
    total = np.zeros(products.shape[:-1], np.float16)
    for step in range(products.shape[-1]):
        total = (total.astype(np.float64) + products[..., step]).astype(np.float16)
    return total.astype(np.float64)


@pytest.mark.parametrize("length", [4, 64, 1024])
def test_products_move_as_a_sum_kept_in_half_does(length: int) -> None:
    builder = ModelBuilder()
    weights = halves(length, 32, seed=1)
    y = builder.node("MatMul", builder.input(48, length), builder.constant(weights))
    x = halves(48, length)
    exact, found = rounded(builder.model(y), {"x0": x})
    really = summed_in_half(x.astype(np.float64)[:, None, :] * weights.T.astype(np.float64)[None]) - exact[y]
    assert moves(exact[y], found[y]) == pytest.approx(float(np.sqrt(np.mean(np.square(really)))), rel=0.35)


def test_a_convolution_with_a_bias_that_cancels_moves_as_its_sum_does() -> None:
    """The result is about zero, the sums on the way are not."""
    builder = ModelBuilder()
    w, b = builder.constant(np.full((1, 64, 1, 1), 0.5)), builder.constant([-32.0])
    y = builder.node("Conv", builder.input(1, 64, 20, 20), w, b)
    x = (1 + 0.05 * halves(1, 64, 20, 20)).astype(np.float16).astype(np.float32)
    exact, found = rounded(builder.model(y), {"x0": x})
    really = summed_in_half(np.moveaxis(x, 1, -1).astype(np.float64) / 2) - 32 - exact[y][:, 0]
    assert float(np.abs(exact[y]).mean()) < 0.5
    assert moves(exact[y], found[y]) == pytest.approx(float(np.sqrt(np.mean(np.square(really)))), rel=0.5)


def test_a_mean_of_neighbours_that_cancel_moves_as_the_sum_of_their_sizes() -> None:
    builder = ModelBuilder()
    y = builder.node("GlobalAveragePool", builder.input(1, 8, 30, 30))
    waves = np.sin(np.arange(900) / 900 * 2 * np.pi)[None, None].reshape(1, 1, 30, 30)
    x = (waves * np.arange(1, 9).reshape(1, 8, 1, 1)).astype(np.float16).astype(np.float32)
    exact, found = rounded(builder.model(y), {"x0": x})
    sizes = np.abs(x).mean(axis=(2, 3), keepdims=True)
    assert float(np.abs(exact[y]).max()) < 1e-3
    expected = UNIT / 18**0.5 * LONGEST_AVERAGE**0.5 * sizes  # u/sqrt(6) * sqrt(K/3)
    np.testing.assert_allclose(np.abs(found[y] - exact[y]), expected, rtol=0.05)


def test_rounding_does_not_explain_a_long_mean_that_leaves_a_tenth_out() -> None:
    builder = ModelBuilder()
    y = builder.node("ReduceMean", builder.input(64, 4_000), builder.integers(1))
    x = halves(64, 4_000)
    exact, found = rounded(builder.model(y), {"x0": x})
    whole, _ = judge_layer(x[:, :3_600].mean(axis=1, keepdims=True), exact[y], found[y], 1)
    assert not whole.passed
    right, _ = judge_layer(x.astype(np.float16).mean(axis=1, keepdims=True, dtype=np.float32), exact[y], found[y], 1)
    assert right.passed


def test_a_batch_norm_that_takes_a_large_mean_away_moves_as_that_mean_does() -> None:
    builder = ModelBuilder()
    ones, means = builder.constant(np.ones(4)), builder.constant(np.full(4, 100.0))
    y = builder.node("BatchNormalization", builder.input(1, 4, 9, 9), ones, builder.constant(np.zeros(4)), means, ones)
    exact, found = rounded(builder.model(y), {"x0": (100 + halves(1, 4, 9, 9)).astype(np.float16).astype(np.float32)})
    assert moves(exact[y], found[y]) == pytest.approx(UNIT / 6**0.5 * 100 * 2**0.5, rel=0.2)


@pytest.mark.parametrize("function", ["Tanh", "Sigmoid", "Erf", "Elu", "Softplus"])
def test_a_function_moves_as_the_correctly_rounded_one_does(function: str) -> None:
    """Near zero too, where a difference of numbers about one is off by more."""
    builder = ModelBuilder()
    y = builder.node(function, builder.input(1, 64))
    exact, found = rounded(builder.model(y), {"x0": (halves(1, 64) / 64).astype(np.float16).astype(np.float32)})
    assert moves(exact[y], found[y]) == pytest.approx(UNIT / 6**0.5 * float(np.sqrt(np.mean(exact[y] ** 2))), rel=0.05)


@pytest.mark.parametrize("norm", ["LayerNormalization", "InstanceNormalization"])
def test_a_norm_moves_as_its_scale_does(norm: str) -> None:
    """A small scale makes small errors: numbers about one are multiplied by it."""
    for scale in (1.0, 2.0**-9):
        builder = ModelBuilder()
        extent = 16 if norm == "LayerNormalization" else 3
        gain, bias = builder.constant(np.full(extent, scale)), builder.constant(np.zeros(extent))
        y = builder.node(norm, builder.input(2, 3, 8, 16), gain, bias)
        exact, found = rounded(builder.model(y), {"x0": halves(2, 3, 8, 16)})
        error = moves(exact[y], found[y]) / scale
        assert error == pytest.approx(8 * UNIT / 6**0.5 * 2**0.5, rel=0.05)  # of what is stored, and of one


MOVING: dict[str, Callable[[ModelBuilder, str], str]] = {
    "Relu": lambda b, x: b.node("Relu", x),
    "MaxPool": lambda b, x: b.node("MaxPool", x, kernel_shape=[2, 2]),
    "Concat": lambda b, x: b.node("Concat", x, x, axis=1),
    "Transpose": lambda b, x: b.node("Transpose", x, perm=[0, 2, 3, 1]),
    "Reshape": lambda b, x: b.node("Reshape", x, b.integers(1, -1)),
    "Clip": lambda b, x: b.node("Clip", x, b.constant(-0.5), b.constant(0.5)),
}


@pytest.mark.parametrize("operator", MOVING)
def test_what_only_moves_numbers_rounds_nothing(operator: str) -> None:
    builder = ModelBuilder()
    y = MOVING[operator](builder, builder.input(1, 3, 8, 8))
    exact, found = rounded(builder.model(y), {"x0": halves(1, 3, 8, 8)})
    np.testing.assert_array_equal(exact[y], found[y])


def test_a_shape_that_is_taken_of_a_computed_value_is_taken_of_the_rounded_one() -> None:
    """As exporters do before a Reshape."""
    builder = ModelBuilder()
    x = builder.node("Mul", builder.input(2, 8), builder.constant(halves(8, seed=1)))
    flat = builder.node("Reshape", builder.node("Sqrt", builder.node("Abs", x)), builder.integers(-1))
    y = builder.node("Reshape", flat, builder.node("Shape", x))
    exact, found = rounded(builder.model(y), {"x0": halves(2, 8)})
    assert found[y].shape == exact[y].shape
    assert moves(exact[y], found[y]) > 0


def test_a_mask_that_is_a_product_closes_what_it_closes_and_no_more() -> None:
    """(1 - mask) times the least single, as exporters write it: squares of such a number are infinite, and next to
    nothing times it is anything but nothing."""
    builder = ModelBuilder()
    scores, mask = builder.input(3, 6), builder.input(1, 6)
    least = builder.constant(float(np.finfo(np.float32).min))
    closed = builder.node("Mul", builder.node("Sub", builder.constant(1.0), mask), least)
    weights = builder.node("Softmax", builder.node("Add", scores, closed))
    given = np.array([[1, 1, 1, 1, 0, 0]], np.float32)
    exact, found = rounded(builder.model(weights), {"x0": halves(3, 6), "x1": given})
    assert (np.abs(found[weights][:, 4:]) < 2.0**-24).all()
    assert 0 < moves(exact[weights], found[weights]) < 10 * UNIT


def test_inputs_and_constants_are_rounded() -> None:
    builder = ModelBuilder()
    y = builder.node("Max", builder.input(1, 2), builder.constant([[0.1, 0.3]]))
    exact, found = rounded(builder.model(y), {"x0": np.array([[0.7, -1]], np.float32)})
    np.testing.assert_array_equal(found[y], np.array([[0.7, 0.3]], np.float16).astype(np.float32))
    assert not np.array_equal(exact[y], found[y])


def test_values_behind_a_cut_do_not_know_what_rounding_did_before_it() -> None:
    builder = ModelBuilder()
    first = builder.node("Mul", builder.input(1, 500), builder.constant(np.full(500, 1.3)))
    last = builder.node("Mul", first, builder.constant(np.full(500, 1.7)))
    for _ in range(20):
        last = builder.node("Mul", last, builder.constant(np.full(500, 1.1)))
    model, feed = builder.model(last), {"x0": halves(1, 500)}
    every = frozenset(name for node in model.graph.node for name in node.output)
    (exact, through), (_, alone) = rounded(model, feed), rounded(model, feed, every)
    assert moves(exact[last], through[last]) > 2.5 * moves(exact[last], alone[last]) > 0


def test_errors_of_one_sign_add_up_where_others_cancel() -> None:
    builder = ModelBuilder()
    y = builder.node("GlobalAveragePool", builder.node("Sqrt", builder.input(1, 4, 16, 16)))
    model, feed = builder.model(y), {"x0": (1 + np.abs(halves(1, 4, 16, 16))).astype(np.float16).astype(np.float32)}
    (exact, apart), (_, together) = rounded(model, feed), rounded(model, feed, together=True)
    root = model.graph.node[0].output[0]
    assert moves(exact[root], apart[root]) == pytest.approx(moves(exact[root], together[root]), rel=0.1)
    assert np.all(together[root] > exact[root])


@pytest.mark.parametrize(("dtype", "kind"), [(TensorProto.DOUBLE, np.float64), (TensorProto.FLOAT16, np.float16)])
def test_other_floating_types_are_rounded_too(dtype: int, kind: type[np.floating]) -> None:
    builder = ModelBuilder()
    x = builder.input(4, 64, dtype=dtype)
    y = builder.node("MatMul", x, builder.constant(halves(64, 16, seed=2), dtype=kind))
    exact, found = rounded(builder.model(y, dtype=dtype), {x: halves(4, 64).astype(kind)})
    assert found[y].dtype == kind
    assert 1e-3 < moves(exact[y], found[y]) < 1e-1


def test_an_old_gemm_and_one_with_factors_are_rounded() -> None:
    for opset in (9, 17):
        builder = ModelBuilder(opset=opset)
        bias = builder.weights(6)
        y = builder.node("Gemm", builder.input(8, 40), builder.weights(6, 40), bias, transB=1, alpha=0.5, beta=2.0)
        exact, found = rounded(builder.model(y), {"x0": halves(8, 40)})
        assert UNIT < moves(exact[y], found[y]) / float(np.std(exact[y])) < 20 * UNIT


def test_what_is_stored_in_singles_is_moved_by_their_last_bits() -> None:
    """The same sum is off by 2^-13 of what it is off in halves, the ratio of their steps."""
    builder = ModelBuilder()
    y = builder.node("MatMul", builder.input(8, 64), builder.weights(64, 32))
    feed = {"x0": halves(8, 64)}
    moved = []
    for stored in ("float16", "float32"):
        exact, found = rounded(builder.model(y), feed, stored=stored)
        moved.append(moves(exact[y], found[y]))
    assert moved[1] == pytest.approx(moved[0] * 2.0**-13, rel=0.35)


def test_the_type_that_rounds_most_is_taken() -> None:
    def graph(*dtypes: str) -> Graph:
        return Graph("g", (), (), (), tuple(Tensor(f"t{n}", (1,), d, (0,), d) for n, d in enumerate(dtypes)))

    assert stored_type(graph("float32", "float16", "int64")) == "float16"
    assert stored_type(graph("float32", "int8")) == "float32"


def test_results_below_the_smallest_normal_number_may_become_zero() -> None:
    builder = ModelBuilder()
    y = builder.node("Sigmoid", builder.input(1, 64))
    exact, found = rounded(builder.model(y), {"x0": np.full((1, 64), -12.0, np.float32)})
    assert moves(exact[y], found[y]) == pytest.approx(float(exact[y].max()), rel=0.05)
    exact, found = rounded(builder.model(y), {"x0": np.full((1, 64), -9.0, np.float32)})
    assert moves(exact[y], found[y]) < 1e-3 * float(exact[y].max())


def jumping(builder: ModelBuilder, x: str, jump: str) -> str:
    """A function that jumps at 1, in numbers."""
    if jump == "ThresholdedRelu":
        return builder.node(jump, x, alpha=1.0)
    if jump == "Less":
        return builder.node("Cast", builder.node(jump, x, builder.constant(1.0)), to=TensorProto.FLOAT)
    return builder.node(jump, x)


@pytest.mark.parametrize("opset", [12, 13, 18])
def test_a_softmax_may_miss_exponentials_below_the_smallest_normal_number(opset: int) -> None:
    """Of thousands of entries they are a few hundredths of the sum, which no device adds that makes zero of each."""
    builder = ModelBuilder(opset=opset)
    y = builder.node("Softmax", builder.input(1, 4096), axis=1)
    x = np.full((1, 4096), -11.5, np.float32)
    x[0, 7] = 0
    exact, found = rounded(builder.model(y), {"x0": x})
    tail = 1 - float(exact[y][0, 7])
    assert 0.03 < tail < 0.06
    assert abs(float(found[y][0, 7] / exact[y][0, 7]) - 1) == pytest.approx(tail, rel=0.1)
    exact, found = rounded(builder.model(y), {"x0": x[:, :1].repeat(4096, 1)})
    assert np.abs(found[y] / exact[y] - 1).max() < 0.01


@pytest.mark.parametrize("jump", ["ThresholdedRelu", "Less", "Floor"])
def test_an_element_at_a_jump_may_be_on_either_side(jump: str) -> None:
    """Unless it is exactly there: integers that are compared or rounded down stay what they are."""
    builder = ModelBuilder()
    y = jumping(builder, builder.node("Add", builder.input(1, 4), builder.constant([3.5, 4.5, 1.0, 1.0])), jump)
    exact, found = rounded(builder.model(y), {"x0": np.array([[0, 0, 5e-4, -5e-4]], np.float32)})
    off = np.abs(found[y].astype(np.float64) - exact[y])[0]
    assert (off[:2] <= 0.01).all()
    assert (off[2:] >= 0.99).all()
    builder = ModelBuilder()
    y = jumping(builder, builder.input(1, 4), jump)
    exact, found = rounded(builder.model(y), {"x0": np.array([[0, 1, 2, 3]], np.float32)})
    assert (np.abs(found[y] - exact[y]) <= 0.01).all()


def test_rounding_adds_up_over_the_steps_of_a_recurrent_network() -> None:
    moved = []
    for steps in (4, 64):
        builder = ModelBuilder()
        y = builder.node(
            "LSTM", builder.input(steps, 1, 2), builder.weights(1, 16, 2), builder.weights(1, 16, 4), hidden_size=4
        )
        exact, found = rounded(builder.model(y), {"x0": halves(steps, 1, 2)})
        moved.append(moves(exact[y], found[y]) / float(np.sqrt(np.mean(exact[y] ** 2))))
    assert moved[1] == pytest.approx(4 * moved[0], rel=0.2)
    assert moved[1] == pytest.approx(UNIT / 6**0.5 * (64 * (8 + 6 / 6)) ** 0.5, rel=0.2)
