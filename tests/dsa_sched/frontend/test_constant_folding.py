"""Nodes on constants alone: computed as onnxruntime does, by ONNX's reference where that refuses, else told why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from dsa_sched.frontend import load_model
from hw_models.errors import ModelError
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.reference_runs import drawn, reference, require_near


def resized(b: ModelBuilder) -> str:
    """A constant resized to extents that nodes make of its shape."""
    weights = b.weights(1, 2, 4, 4)
    batch = b.node("Slice", b.node("Shape", weights), b.integers(0), b.integers(2), b.integers(0))
    sizes = b.node("Concat", batch, b.integers(6, 6), axis=0)
    return b.node("Resize", weights, "", "", sizes, mode="linear")


def test_a_constant_is_resized(tmp_path: Path) -> None:
    b = ModelBuilder()
    require_near(b.model(b.node("Add", b.input(1, 2, 6, 6), resized(b))), tmp_path)


@pytest.mark.parametrize("opset", [18, 9])
def test_one_bad_node_spoils_no_other(opset: int, tmp_path: Path) -> None:
    """onnxruntime has no LRN of fp64, which ONNX's reference computes; the file in fp32 says what is right."""

    def model(dtype: type[np.generic]) -> onnx.ModelProto:
        b = ModelBuilder(opset=opset)
        numbers = b.constant(b.random.random((1, 4, 2, 2)), dtype=dtype)
        scaled = b.node("Cast", b.node("LRN", numbers, size=3), to=TensorProto.FLOAT)
        mean = b.node("ReduceMean", b.weights(1, 4, 2, 2))
        return b.model(b.node("Add", b.node("Mul", b.input(1, 4, 2, 2), mean), scaled))

    plain = model(np.float32)
    feed = drawn(plain)
    require_near(model(np.float64), tmp_path, feed=feed, wanted=reference(plain, feed))


def test_sizes_that_follow_from_numbers(tmp_path: Path) -> None:
    """NonZero of a constant mask: where it is true."""
    b = ModelBuilder()
    mask = b.constant([True, False, True, True], dtype=np.bool_)
    places = b.node("Squeeze", b.node("NonZero", mask), b.integers(0))
    require_near(b.model(b.node("Gather", b.input(3, 4), places, axis=1)), tmp_path)


def test_what_nobody_computes_is_told_with_the_reason(tmp_path: Path) -> None:
    b = ModelBuilder()
    table = b.node("Gather", b.weights(3, 2), b.integers(7))
    y = b.node("Add", b.input(1, 2), table)
    with pytest.raises(ModelError, match=r"Gather gather0 \(3x2, 1\): .* could not compute it: .*indices"):
        load_model(b.save(tmp_path, y))
