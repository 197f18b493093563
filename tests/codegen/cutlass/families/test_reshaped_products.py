"""Products of joined axes, as exporters write them: drawn, with what follows them in one kernel; those that stay."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from partitioner.ir.kernels import read_kernel
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.networks import judged
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import save


def check_reshaped(seed: int, folder: Path) -> None:
    """A product of joined axes, as exporters write it, has one kernel with what follows it."""
    draw, b = Random(f"reshaped {seed}"), ModelBuilder(seed)
    outer = tuple(draw.randint(1, 5) for _ in range(draw.randint(2, 3)))
    depth, columns, turned = draw.randint(1, 40), draw.randint(2, 40), draw.randint(0, 1)
    x = b.node("Relu", b.input(*outer, depth))
    flat = b.node("Reshape", x, b.integers(-1, depth))
    weights = b.weights(*((columns, depth) if turned else (depth, columns)))
    bias = [b.weights(*draw.choice(((columns,), (1, columns), (1,))))] if draw.random() < 0.7 else []
    made = b.node("Gemm", flat, weights, *bias, transB=turned)
    y = b.node("Reshape", made, b.integers(*outer, columns))
    model = b.model(b.node("Add", b.node("Relu", y), b.input(*outer, columns)))
    chip = ("a100", "h100")[seed % 2]
    groups = plan_model(save(model, folder / "net.onnx"), chip, CompileOptions(O0())).plan.groups
    assert [read_kernel(group.kernel)[0] for group in groups if group.kernel][1:] in (["gemm"], ["product"])
    assert judged(model, folder, chip, samples=256).failures == ()


@pytest.mark.parametrize("seed", range(6))
def test_drawn_products_of_joined_axes(seed: int, tmp_path: Path) -> None:
    check_reshaped(seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 56))
def test_more_drawn_products_of_joined_axes(seed: int, tmp_path: Path) -> None:
    check_reshaped(seed, tmp_path)


def test_reshapes_that_move_columns_stay(tmp_path: Path) -> None:
    """Rows that are longer than those of the value, a product of which another row is read, scaled biases."""
    b = ModelBuilder()
    x = b.node("Relu", b.input(2, 6, 8))
    longer = b.node("Gemm", b.node("Reshape", x, b.integers(6, 16)), b.weights(16, 4))
    apart = b.node("Gemm", b.node("Reshape", x, b.integers(12, 8)), b.weights(8, 4))
    scaled = b.node("Gemm", b.node("Reshape", x, b.integers(12, 8)), b.weights(8, 4), b.weights(4), beta=0.5)
    pieces = (b.node("Reshape", longer, b.integers(2, 3, 4)), b.node("Reshape", apart, b.integers(2, 3, 8)),
              b.node("Reshape", scaled, b.integers(2, 6, 4)))  # fmt: skip
    model = b.model(*(b.node("Sigmoid", y) for y in pieces))
    assert judged(model, tmp_path, samples=256).failures == ()
    groups = plan_model(save(model, tmp_path / "net.onnx"), "a100", CompileOptions(O0())).plan.groups
    assert [read_kernel(group.kernel)[0] for group in groups if group.kernel].count("pointwise") == 4
