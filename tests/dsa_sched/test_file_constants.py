"""Damage between reading the file and the graph is caught: constants are worked out anew from the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend import load, load_model
from dsa_sched.frontend.network import constant_folding
from dsa_sched.frontend.network.network import Network, Value
from dsa_sched.frontend.network.terms import Term, from_file, number
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.bisect import bisect, failing_check
from dsa_sched.verification.file_constants import compare_constants, initializer, worked_out
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.verify import VerifyOptions, verify_model
from dsa_sched.zoo import seeded_inputs
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import classifier

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]
Damage = Callable[[Floats], Floats]
OPTIONS = VerifyOptions(samples=64)


def small_classifier(folder: Path) -> Path:
    path = folder / "small.onnx"
    path.write_bytes(classifier().SerializeToString())
    return path


def preactivated(folder: Path) -> Path:
    """Batch norm, Relu and convolution, padded and not: scales move into weights, shifts into biases."""
    builder = ModelBuilder()
    y = builder.input(1, 8, 10, 10)
    for pad in (1, 0):
        statistics = (builder.weights(8), builder.constant(builder.random.uniform(0.1, 1.0, 8)))
        y = builder.node(
            "BatchNormalization", y, builder.constant(np.geomspace(0.02, 1.6, 8)), builder.weights(8), *statistics
        )
        weights, bias = builder.weights(8, 8, 3, 3), builder.weights(8)
        y = builder.node("Conv", builder.node("Relu", y), weights, bias, pads=[pad] * 4)
        y = builder.node("MaxPool", y, kernel_shape=[2, 2])
    return builder.save(folder, y)


def folded(folder: Path) -> Path:
    """Grouped and plain convolutions with batch norm, factor and shift behind, then a flattened map times a matrix."""
    builder = ModelBuilder()
    y = builder.node("Conv", builder.input(1, 6, 8, 8), builder.weights(12, 3, 3, 3), builder.weights(12), group=2)
    statistics = (builder.weights(12), builder.constant(builder.random.uniform(0.1, 1.0, 12)))
    y = builder.node("BatchNormalization", y, builder.weights(12), builder.weights(12), *statistics)
    y = builder.node("Mul", builder.node("Relu", y), builder.weights(12, 1, 1))
    y = builder.node("Sub", y, builder.weights(12, 1, 1))
    y = builder.node("Relu", builder.node("Conv", y, builder.weights(8, 12, 3, 3), builder.weights(8)))
    y = builder.node("Flatten", y)
    y = builder.node("Gemm", y, builder.weights(5, 128), builder.weights(5), transB=1, alpha=0.5, beta=2.0)
    return builder.save(folder, y)


NETWORKS: Mapping[Callable[[Path], Path], tuple[str, str, str]] = {
    small_classifier: ("w2", "b1", "w2"),
    preactivated: ("c10", "c11", "c4"),
    folded: ("c0", "c1", "c8"),
}
"""By network: weights that are damaged, a bias, and square kernels."""


def at(array: Floats, position: int, change: Callable[[float], float]) -> Floats:
    result = array.copy()
    result.flat[position] = change(result.flat[position])
    return result


def one_sign(array: Floats) -> Floats:
    return at(array, int(np.argsort(np.abs(array), axis=None)[array.size // 2]), lambda weight: -weight)


def one_zeroed(array: Floats) -> Floats:
    return at(array, int(np.argsort(np.abs(array), axis=None)[array.size // 2]), lambda _weight: 0.0)


def largest_doubled(array: Floats) -> Floats:
    return at(array, int(np.abs(array).argmax()), lambda weight: 2 * weight)


def all_scaled(array: Floats) -> Floats:
    return array * 1.01


def one_bias_dropped(array: Floats) -> Floats:
    return at(array, 3, lambda _bias: 0.0)


def two_channels_swapped(array: Floats) -> Floats:
    return array[[1, 0, *range(2, len(array))]]


def kernel_transposed(array: Floats) -> Floats:
    return array.swapaxes(2, 3)


DAMAGES: Mapping[Damage, int] = {
    one_sign: 0,
    one_zeroed: 0,
    largest_doubled: 0,
    all_scaled: 0,
    one_bias_dropped: 1,
    two_channels_swapped: 0,
    kernel_transposed: 2,
}
"""What is done, and to which of a network's constants."""


def plant(monkeypatch: pytest.MonkeyPatch, name: str, damage: Damage) -> None:
    """Damage one constant right after the file is read, before any rewrite."""
    right = constant_folding.fold_constants

    def wrong(model: onnx.ModelProto, values: Mapping[str, Value]) -> Network:
        network = right(model, values)
        if name not in network.constants:  # a part that a bisection cut out
            return network
        old = network.constants[name]
        changed = damage(old.astype(np.float64)).astype(old.dtype)
        assert not np.array_equal(changed, old)
        return replace(network, constants={**network.constants, name: changed})

    monkeypatch.setattr(load, "fold_constants", wrong)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_right_network_holds_the_files_constants(network: Callable[[Path], Path], tmp_path: Path) -> None:
    report = verify_model(network(tmp_path), "stcp920", CompileOptions(O0()), OPTIONS)
    assert report.failures == ()
    assert (report.against_file.undeclared, report.against_file.different) == ((), ())
    assert report.against_file.copied + report.against_file.computed == report.constants


@pytest.mark.spread(5)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.commit
def test_damage_between_file_and_graph_is_caught(
    network: Callable[[Path], Path], damage: Damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, NETWORKS[network][DAMAGES[damage]], damage)
    report = verify_model(network(tmp_path), "stcp920", CompileOptions(O0()), OPTIONS)
    assert any("are not what the file gives" in failure for failure in report.failures)


def test_damage_that_is_caught_by_constants_is_narrowed_to_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "w2", all_scaled)
    path = small_classifier(tmp_path)
    report = verify_model(path, "stcp920", CompileOptions(O0()), OPTIONS)
    check, sentence = failing_check(report)
    assert check == "constants"
    assert sentence.startswith("constant w2: 576 of 576 elements are not what the file gives")
    found = bisect(path, "stcp920", CompileOptions(O0()), OPTIONS, report=report)
    assert found is not None
    assert [node.name for node in found.part.model.graph.node] == ["conv2"]


def test_the_sentence_names_constant_place_numbers_and_rewrite(tmp_path: Path) -> None:
    model = load_model(folded(tmp_path))
    name = next(name for name in model.terms if name.endswith("::alpha"))
    tensor = model.graph.by_name[name]
    constants = dict(model.constants)
    wrong = constants[tensor.constant].copy()
    wrong[3, 2] += np.float16(1)
    constants[tensor.constant] = wrong
    (sentence,) = compare_constants(replace(model, constants=constants), {}, {}).sentences
    assert sentence.startswith(f"constant {name}: 1 of 640 elements are not what the file gives, first at [3, 2]: ")
    assert sentence.endswith("by take((transpose(c10) * 0.5))")


def test_a_constant_that_no_rewrite_declares_is_counted_and_named(tmp_path: Path) -> None:
    model = load_model(small_classifier(tmp_path))
    made = {**model.terms, "w2": from_file("somewhere"), "b1": from_file("c1")}
    result = compare_constants(replace(model, terms={k: v for k, v in made.items() if k != "w1"}), {}, {})
    assert (result.undeclared, result.copied, result.different) == (("w1", "b1", "w2"), 2, ())


def test_what_nodes_make_of_initializers_is_taken_from_the_reference(tmp_path: Path) -> None:
    builder = ModelBuilder()
    weights = builder.node("Exp", builder.weights(6, 4))
    path = builder.save(tmp_path, builder.node("MatMul", builder.input(3, 6), weights))
    model = load_model(path)
    exact = OnnxReference(model.source).values(seeded_inputs(model.source, 1, 0)[0])
    assert compare_constants(model, {}, {}).undeclared == ("v0",)
    result = compare_constants(model, {}, exact)
    assert (result.copied, result.computed, result.undeclared, result.different) == (0, 1, (), ())
    wrong = {**exact, "v0": np.asarray(exact["v0"], np.float64) * 1.01}
    assert compare_constants(model, {}, wrong).different


def test_sums_of_the_reference_are_known_up_to_its_order(tmp_path: Path) -> None:
    """A product of initializers: where the runtime adds in another order than when it was folded, float32 steps of the
    largest sums make other halves of small ones, which is no damage; a thousandth of a number is."""
    builder = ModelBuilder()
    product = builder.node("MatMul", builder.weights(100, 256), builder.weights(256, 64))
    model = load_model(builder.save(tmp_path, builder.node("Add", builder.input(100, 64), product)))
    exact = OnnxReference(model.source).values(seeded_inputs(model.source, 1, 0)[0])
    sums = np.asarray(exact[product], np.float64)
    steps = np.random.default_rng(0).integers(-1, 2, sums.shape) * 2.0**-23 * np.abs(sums).max()
    assert compare_constants(model, {}, {**exact, product: sums + steps}).different == ()
    assert compare_constants(model, {}, {**exact, product: sums * 1.001}).different


def test_numbers_beyond_the_range_are_the_largest_one(tmp_path: Path) -> None:
    builder = ModelBuilder()
    weights = builder.constant(np.array([[1e6, -1e6], [65_504.0, 1e-9]]))
    model = load_model(builder.save(tmp_path, builder.node("MatMul", builder.input(3, 2), weights)))
    result = compare_constants(model, {}, {})
    assert (result.copied, result.different) == (1, ())


def test_infinite_constants_stay_infinite(tmp_path: Path) -> None:
    """A mask of minus infinity is none of the largest number: what it is added to is no number of the device."""
    builder = ModelBuilder()
    mask = builder.constant(np.triu(np.full((4, 4), -np.inf), 1))
    path = builder.save(tmp_path, builder.node("Softmax", builder.node("Add", builder.input(2, 4, 4), mask), axis=-1))
    report = verify_model(path, "stcp920", CompileOptions(O0()), OPTIONS)
    assert report.failures == ()
    assert report.warnings == ()


@pytest.mark.parametrize("alpha", [np.inf, np.nan])
def test_attributes_that_are_not_finite_are_compared_too(alpha: float, tmp_path: Path) -> None:
    builder = ModelBuilder()
    model = load_model(builder.save(tmp_path, builder.node("Elu", builder.input(2, 4), alpha=alpha)))
    assert compare_constants(model, {}, {}).different == ()


def leaves(name: str) -> Array:
    return {"a": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), "b": np.array([4.0, 9.0], np.float32)}[name]


@pytest.mark.parametrize(
    ("term", "value", "text"),
    [
        (from_file("a").transpose(1, 0), [[1, 3], [2, 4]], "transpose(a)"),
        (from_file("a").take((1, 0)), [[3, 4], [1, 2]], "take(a)"),
        (from_file("a").reshape(-1), [1, 2, 3, 4], "reshape(a)"),
        (from_file("a").sum((0,)), [4, 6], "sum(a)"),
        ((from_file("b").root() - number(1)) / from_file("a"), [[1, 1], [1 / 3, 0.5]], "((root(b) - 1) / a)"),
        (number(1 / 3).rounded("float16"), float(np.float16(1 / 3)), "float16(0.333333)"),
        (number(2).broadcast(2) + from_file("b") * number(-1), [-2, -7], "(broadcast(2) + (b * -1))"),
    ],
)
def test_terms_are_worked_out_and_shown(term: Term, value: object, text: str) -> None:
    np.testing.assert_allclose(np.asarray(worked_out(term, leaves), np.float64), np.array(value), rtol=1e-15)
    assert str(term) == text


def test_thousands_of_steps_in_a_row_are_worked_out_and_their_text_is_short() -> None:
    term = number(0)
    for _ in range(5_000):
        term = term + from_file("b")
    np.testing.assert_array_equal(worked_out(term, leaves), [20_000, 45_000])
    assert 10 < len(str(term)) <= 160


KINDS = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT8, TensorProto.UINT8,
    TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL,
)  # fmt: skip


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_initializers_are_read_as_onnx_reads_them(kind: int, raw: bool) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(helper.tensor_dtype_to_np_dtype(kind))
    if array.dtype.kind == "f":
        array = array * array.dtype.type(-1.7)
    tensor = numpy_helper.from_array(array, "t")
    if not raw:
        tensor = helper.make_tensor("t", kind, array.shape, array.reshape(-1).tolist())
    assert tensor.HasField("raw_data") == raw
    found = initializer(tensor)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, numpy_helper.to_array(tensor))


def test_bfloat16_is_read_as_float32() -> None:
    tensor = helper.make_tensor("t", TensorProto.BFLOAT16, [3], [1.5, -2.0, 0.0078125])
    found = initializer(tensor)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array([1.5, -2.0, 0.0078125], np.float32))
