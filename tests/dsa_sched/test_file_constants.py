"""Damage between reading the file and the graph is caught: constants are worked out anew from the file's initializers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.bisect import bisect, failing_check
from dsa_sched.driver import CompileOptions
from dsa_sched.file_constants import compare_constants, initializer, worked_out
from dsa_sched.frontend import load, load_model
from dsa_sched.frontend.network import Network, Value
from dsa_sched.frontend.terms import Term, from_file, number
from dsa_sched.reference import Reference
from dsa_sched.verify import VerifyOptions, verify_model
from dsa_sched.zoo import seeded_inputs
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
    """Grouped and plain convolutions with batch norms, factors and shifts behind, then a flattened map times a matrix."""
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


NETWORKS = {
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
    right = load.fold_constants

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
    report = verify_model(network(tmp_path), "stcp920", CompileOptions(), OPTIONS)
    assert report.failures == ()
    assert (report.against_file.undeclared, report.against_file.different) == ((), ())
    assert report.against_file.copied + report.against_file.computed == report.constants


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_between_file_and_graph_is_caught(
    network: Callable[[Path], Path], damage: Damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, NETWORKS[network][DAMAGES[damage]], damage)
    report = verify_model(network(tmp_path), "stcp920", CompileOptions(), OPTIONS)
    assert any("are not what the file gives" in failure for failure in report.failures)
