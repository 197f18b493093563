"""Scales and shifts of norms go into the products behind them, where these alone read them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.test_unread_rows import ROWS, WIDTH, checked, norm, product


def kinds(b: ModelBuilder, folder: Path, *outputs: str) -> Counter[str]:
    return Counter(op.kind for op in checked(b, folder, *outputs).graph.ops)


def test_several_products_take_them(tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    y = norm(b, b.input(2, ROWS, WIDTH))
    found = kinds(b, tmp_path, product(b, y), product(b, y, 5), b.node("MatMul", y, b.weights(WIDTH, 3)))
    assert found == {"normalise": 1, "matmul": 3}


def test_a_scale_alone(tmp_path: Path) -> None:
    b = ModelBuilder(opset=23)
    y = b.node("RMSNormalization", b.input(2, ROWS, WIDTH), b.constant(b.random.uniform(0.5, 2, WIDTH)))
    assert kinds(b, tmp_path, product(b, y)) == {"normalise": 1, "matmul": 1}


def test_what_the_file_calls_the_norm_follows_from_ours(tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    y = norm(b, b.input(2, ROWS, WIDTH))
    model = checked(b, tmp_path, product(b, y))
    (origin,) = model.origins.values()
    assert origin.name == y
    ours = np.random.default_rng(0).standard_normal((2, ROWS, WIDTH))
    assert np.allclose(origin.to_ours(origin.from_ours(ours)).astype(np.float64), ours)


@pytest.mark.parametrize("case", ["output", "sum", "zero", "small", "left"])
def test_others_stay(case: str, tmp_path: Path) -> None:
    """Read otherwise too; a scale of zero; one that weights lose digits by; the factor on the right."""
    b = ModelBuilder(opset=18)
    scale = b.random.uniform(0.5, 2, WIDTH)
    scale[3] = {"zero": 0.0, "small": 1e-42}.get(case, scale[3])
    y = b.node("LayerNormalization", b.input(2, ROWS, WIDTH), b.constant(scale), b.weights(WIDTH))
    outputs = [b.node("MatMul", b.weights(5, ROWS), y) if case == "left" else product(b, y)]
    outputs += [y] if case == "output" else [b.node("Relu", y)] if case == "sum" else []
    assert kinds(b, tmp_path, *outputs)["mul"] == 1
