"""Descriptions of products as strided batches, followed with numpy: they find the matrices that broadcasting finds."""

from __future__ import annotations

from itertools import product as positions
from pathlib import Path

import numpy as np
import pytest

from codegen.cutlass.families.matrix.products import BatchAxis, Product, product_of
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

Shape = tuple[int, ...]


def described(left: Shape, right: Shape, folder: Path, *, weights: bool = False) -> Product:
    b = ModelBuilder()
    b.node("MatMul", b.input(*left), b.weights(*right) if weights else b.input(*right), outputs=["y"])
    plan = plan_model(b.save(folder, "y"), "a100", CompileOptions(O0()))
    assert isinstance(plan, PlannedKernels)
    (group,) = (group for group in plan.plan.groups if group.kernel)
    return product_of(KernelWork(plan.context.graph, group.layers, plan.context.chip))


def followed(shape: Product, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Results one after the other, each of the matrices that the steps lead to."""
    a = left.reshape(shape.matrices_a, shape.rows, shape.depth)
    b = right.reshape(shape.matrices_b, shape.depth, shape.columns)
    results = []
    for at in positions(*(range(axis.extent) for axis in shape.batch)):
        first = sum(i * axis.step_a for i, axis in zip(at, shape.batch, strict=True))
        second = sum(i * axis.step_b for i, axis in zip(at, shape.batch, strict=True))
        results.append(a[first] @ b[second])
    return np.stack(results)


SHAPES = (
    ((4, 6), (6, 5), ()),
    ((3, 4, 6), (6, 5), ()),
    ((2, 3, 4, 6), (1, 1, 6, 5), ()),
    ((3, 4, 6), (3, 6, 5), ((3, 1, 1),)),
    ((2, 3, 4, 6), (2, 3, 6, 5), ((6, 1, 1),)),
    ((4, 6), (3, 6, 5), ((3, 0, 1),)),
    ((2, 3, 4, 6), (2, 1, 6, 5), ((2, 1, 1),)),
    ((2, 1, 4, 6), (2, 3, 6, 5), ((2, 1, 3), (3, 0, 1))),
    ((2, 1, 4, 6), (1, 3, 6, 5), ((2, 1, 0), (3, 0, 1))),
    ((2, 3, 2, 4, 6), (2, 1, 2, 6, 5), ((2, 6, 2), (3, 2, 0), (2, 1, 1))),
    ((1, 3, 1, 4, 6), (2, 1, 1, 6, 5), ((2, 0, 1),)),
)


@pytest.mark.parametrize(("left", "right", "batch"), SHAPES)
def test_steps_lead_to_the_matrices_of_broadcasting(
    left: Shape, right: Shape, batch: tuple[Shape, ...], tmp_path: Path
) -> None:
    found = described(left, right, tmp_path)
    assert found.batch == tuple(BatchAxis(*axis) for axis in batch)
    random = np.random.default_rng(1)
    a, b = random.integers(-9, 9, left), random.integers(-9, 9, right)
    np.testing.assert_array_equal(followed(found, a, b).reshape((a @ b).shape), a @ b)


@pytest.mark.parametrize(
    ("depth", "columns", "weights", "read_depth", "pitch"),
    [
        (64, 24, False, 64, 24),
        (63, 24, False, 64, 24),
        (6, 10, False, 6, 10),
        (6, 10, True, 6, 16),
        (5, 7, False, 8, 8),
    ],
)
def test_odd_extents_are_padded_and_constants_always(
    depth: int, columns: int, weights: bool, read_depth: int, pitch: int, tmp_path: Path
) -> None:
    found = described((4, depth), (depth, columns), tmp_path, weights=weights)
    assert (found.read_depth, found.pitch_b) == (read_depth, pitch)
    assert found.pads_a == (read_depth != depth)
    assert found.pads_b == ((read_depth, pitch) != (depth, columns))
