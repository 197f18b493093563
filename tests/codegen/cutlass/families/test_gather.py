"""Lookups by integers that are inputs: drawn shapes, negative indices, and those that no row has."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from onnx import TensorProto

from dsa_sched.pipeline.driver import compile_model, plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import UserError
from partitioner.ir.kernels import read_kernel
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

AT_O0 = CompileOptions(O0())


def check_drawn(seed: int, folder: Path) -> None:
    draw, b = Random(f"gather {seed}"), ModelBuilder(seed)
    last = draw.choice((8, 24, draw.randint(1, 30)))
    table = (*(draw.randint(1, 20) for _ in range(draw.randint(0, 2))), last)
    axis = draw.randrange(len(table))
    indices = b.input(
        *(draw.randint(1, 9) for _ in range(draw.randint(1, 2))),
        name="ids",
        dtype=draw.choice((TensorProto.INT64, TensorProto.INT32)),
    )
    y = b.node("Gather", b.weights(*table) if draw.random() < 0.6 else b.input(*table), indices, axis=axis)
    path = b.save(folder, b.node("Relu", y))
    found = plan_model(path, "a100", AT_O0).plan.groups
    assert [read_kernel(group.kernel)[0] for group in found if group.kernel] == ["gather"]
    assert verify_model(path, ("a100", "h100")[seed % 2], AT_O0, VerifyOptions(samples=512)).failures == ()


@pytest.mark.parametrize("seed", range(6))
def test_drawn_lookups(seed: int, tmp_path: Path) -> None:
    check_drawn(seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 56))
def test_more_drawn_lookups(seed: int, tmp_path: Path) -> None:
    check_drawn(seed, tmp_path)


def test_indices_count_from_both_ends_and_stay_inside(tmp_path: Path) -> None:
    """Others are refused before anything runs."""
    b = ModelBuilder()
    table = np.arange(40).reshape(5, 8)
    y = b.node("Gather", b.constant(table), b.input(4, name="ids", dtype=TensorProto.INT64))
    artifact = compile_model(b.save(tmp_path, y), "a100", AT_O0).artifact
    (found,) = artifact.run({"ids": np.array([0, -1, 4, -5])}).values()
    np.testing.assert_array_equal(found, table[[0, -1, 4, -5]])
    with pytest.raises(UserError, match="ids"):
        artifact.run({"ids": np.array([0, 5, 1, 1])})
