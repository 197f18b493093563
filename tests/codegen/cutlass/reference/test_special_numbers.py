"""Infinities, NaN, overflow, the smallest halves; and kinds that no ONNX model of ours has by itself."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.cutlass.kernel.expressions import BINARY, UNARY
from codegen.cutlass.reference import JUDGEMENT, KINDS, REFERENCE, Evaluated, emulate, evaluate
from codegen.judgement import Bound, Doubles
from hw_models.errors import TargetError
from partitioner.ir.graph import Attribute
from partitioner.ir.operators import ELEMENTWISE_KINDS
from tests.codegen.cutlass.reference.fed_layers import FRONTEND, by_hand, evaluated

INF, NAN = np.inf, np.nan
WINDOW: dict[str, Attribute] = {"kernel": (2, 2), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 1, 1)}


def one(kind: str, *operands: object, shape: tuple[int, ...] = (), **attributes: Attribute) -> Evaluated:
    arrays = [np.asarray(x, np.float16) for x in operands]
    found = by_hand(kind, arrays, shape or arrays[0].shape, **attributes)
    return evaluated(found, found.layers[0])


def certain(found: Evaluated) -> list[float]:
    """The numbers, of which none is off."""
    assert (found.error == 0).all()
    return [float(number) for number in found.numbers.reshape(-1)]


def test_every_kind_of_a_layer_is_known() -> None:
    assert {*UNARY, *BINARY, "scale_shift"} == ELEMENTWISE_KINDS & KINDS


def test_an_unknown_kind_is_told() -> None:
    with pytest.raises(
        TargetError, match=r"operator wavelet: needs a kind that the GPU's reference evaluates; has wavelet"
    ):
        one("wavelet", [1.0])


def test_maxima_ignore_nothing() -> None:
    assert str(certain(one("relu", [NAN, -INF, INF, -1.0]))) == "[nan, 0.0, inf, 0.0]"
    assert str(certain(one("max", [NAN, -INF, 1.0], [1.0, -INF, INF]))) == "[nan, -inf, inf]"
    assert str(certain(one("reduce_max", [[1.0, NAN], [-INF, -INF]], shape=(2, 1), axes=(1,)))) == "[nan, -inf]"
    pooled = one("max_pool", np.array([[1, NAN], [-INF, INF]]).reshape(1, 2, 2, 1), shape=(1, 2, 2, 1), **WINDOW)
    assert str(certain(pooled)) == "[nan, nan, inf, inf]"


def test_functions_of_infinities() -> None:
    assert certain(one("exp", [-INF, INF, 0.0])) == [0.0, INF, 1.0]
    assert certain(one("sigmoid", [-INF])) == [0.0]
    assert one("sigmoid", [INF, -65504.0]).numbers.tolist() == [1.0, 0.0]
    assert one("tanh", [INF, -INF]).numbers.tolist() == [1.0, -1.0]
    assert certain(one("reciprocal", [0.0, -0.0])) == [INF, -INF]
    assert str(certain(one("sqrt", [-1.0, INF]))) == "[nan, inf]"
    assert str(certain(one("log", [0.0, -1.0]))) == "[-inf, nan]"
    assert one("softplus", [65504.0, -65504.0]).numbers.tolist() == [65504.0, 0.0]


def test_sums_with_infinities() -> None:
    found = one("matmul", [[1.0, INF], [INF, -INF], [0.0, INF]], [[1.0], [0.5]], shape=(3, 1))
    assert str(certain(found)) == "[inf, nan, inf]"
    assert str(certain(one("matmul", [[INF]], [[0.0]]))) == "[nan]"
    soft = one("softmax", [[-INF, 1.0, 1.0], [INF, 1.0, -INF]], axis=1)
    assert np.allclose(soft.numbers, [[0, 0.5, 0.5], [NAN, NAN, NAN]], equal_nan=True)
    assert soft.error[1].tolist() == [0, 0, 0]
    norm = one("rms_norm", [[INF, 1.0], [3.0, 4.0]], [1.0, 1.0], axes=(1,), epsilon=0.0)
    assert str(norm.numbers[0].tolist()) == "[nan, 0.0]"
    assert norm.error[0].tolist() == [0.0, 0.0]


def allowed(kind: str, *operands: object, **attributes: Attribute) -> Doubles:
    arrays = [np.asarray(x, np.float16) for x in operands]
    found = by_hand(kind, arrays, arrays[0].shape, **attributes)
    return FRONTEND.allowed(found.sampled(found.layers[0]))


def test_what_is_infinite_must_be_stored_so() -> None:
    assert allowed("neg", [INF, NAN]).tolist() == [0.0, 0.0]


def test_the_bound_of_a_number_that_is_only_moved_is_half_a_step() -> None:
    assert allowed("neg", [1.0, 0.0, 3.0]).tolist() == [2**-11 + 2**-25, 2**-25, 3 * 2**-11 + 2**-25]


def test_the_bound_of_a_sum_is_that_of_the_judgement() -> None:
    """2^-11 |y| + 2^-25 + K 2^-23 sum |a b|, and half a step of that for what y may be larger."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 8, 8)).astype(np.float16)
    found = by_hand("matmul", [a, b], (8, 8))
    magnitudes = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    sums = a.astype(np.float64) @ b.astype(np.float64)
    plain = 2**-11 * np.abs(sums) + 2**-25 + 8 * 2**-23 * magnitudes
    ours = FRONTEND.allowed(found.sampled(found.layers[0])).reshape(8, 8)
    assert np.allclose(ours, plain + 2**-11 * 8 * 2**-23 * magnitudes, rtol=1e-12)


def test_numbers_that_fp32_does_not_hold_are_infinite() -> None:
    found = one("exp", [88.5, 89.0, 200.0])
    assert np.isfinite(found.numbers[0])
    assert found.numbers[1:].tolist() == [INF, INF]
    assert found.error[1:].tolist() == [0, 0]


def test_swish_and_a_line_of_our_own() -> None:
    x = np.linspace(-30, 30, 121).astype(np.float16).astype(np.float64)
    found = one("swish", x, alpha=1.5)
    assert np.allclose(found.numbers, x / (1 + np.exp(-1.5 * x)), rtol=1e-9, atol=0)
    lines = [[1.0, 3.0, 2.0], [-2.0, 0.5, 1.0], [-5.0, -1.5, -4.0]]
    assert certain(one("reduce_nearest", lines, shape=(3, 1), axes=(1,))) == [1.0, 0.0, -1.5]
    assert certain(one("reduce_power", lines, shape=(3, 1), axes=(1,), centred=0)) == [16.0, 32.0, 8.0]
    assert certain(one("reduce_power", lines, shape=(3, 1), axes=(1,), centred=1)) == [32.0, 32.0, 16.0]
    small = one("reduce_power", [[0.0, 2.0**-12]], shape=(1, 1), axes=(1,), centred=0)
    assert certain(small) == [2.0**15]


def test_a_power_of_two_next_to_which_fp32_rounds_may_be_its_neighbour() -> None:
    """2048 - 2^-13 has 24 bits and is one number, 2048 - 2^-14 has 25 and is 2048 or less."""
    for low, error in ((2.0**-13, 0.0), (2.0**-14, 64 / 4096)):
        found = one("reduce_power", [[2048.0, low]], shape=(1, 1), axes=(1,), centred=1)
        assert (found.numbers.item(), found.error.item()) == (64 / 2048, error)


def test_a_view_of_one_number_without_axes() -> None:
    found = by_hand("view", [np.array([[2.5]], np.float16)], ())
    assert evaluated(found, found.layers[0]).numbers.tolist() == 2.5
    found = by_hand("view", [np.array(2.5, np.float16)], (1, 1))
    assert evaluated(found, found.layers[0]).numbers.tolist() == [[2.5]]


def test_emulation_gives_the_numbers() -> None:
    found = by_hand("add", [np.array([1, 2], np.float16), np.array([0.25, 2**-20], np.float16)], (2,))
    sampled = found.sampled(found.layers[0])
    numbers = emulate(sampled)
    assert numbers.tolist() == [1.25, 2 + float(np.float16(2**-20))]
    assert isinstance(JUDGEMENT, Bound)
    assert JUDGEMENT.allowed(sampled).tolist() == REFERENCE.allowed(sampled).tolist()
    assert evaluate(sampled).numbers.tolist() == numbers.tolist()
