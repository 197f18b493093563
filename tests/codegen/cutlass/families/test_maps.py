"""Operators that a thread computes by itself, executed from the PTX that is shipped: many in one model, so that nvcc
starts once. Each output is bit for bit the element that was moved, or within what fp32 sums may be off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen.cutlass.families.registry import FAMILIES
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import TargetError
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.branches import Branches, Executed, executed, saved


def _pools(b: Branches) -> dict[str, int]:
    """Outputs of pools, and how many terms their sums have; 0 where elements are chosen."""
    even, odd, line, cube = b.input(2, 16, 9, 7), b.input(3, 5, 8, 6), b.input(2, 6, 11), b.input(1, 8, 5, 4, 6)
    return {
        b.node("MaxPool", even, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 2]): 0,
        b.node("MaxPool", odd, kernel_shape=[2, 3], dilations=[3, 2], strides=[1, 2], ceil_mode=1): 0,
        b.node("MaxPool", line, kernel_shape=[3], strides=[2], pads=[1, 1]): 0,
        b.node("MaxPool", cube, kernel_shape=[2, 3, 2], strides=[2, 1, 1], pads=[0, 1, 1, 1, 1, 0]): 0,
        b.node("AveragePool", even, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 0], ceil_mode=1): 6,
        b.node("AveragePool", odd, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1): 9,
        b.node("AveragePool", line, kernel_shape=[4], strides=[3]): 4,
        b.node("AveragePool", cube, kernel_shape=[2, 2, 3], pads=[1, 0, 1, 0, 0, 1], count_include_pad=1): 12,
    }


def _norms(b: Branches) -> dict[str, int]:
    even, odd, few = b.input(2, 24, 3, 4), b.input(1, 7, 2, 5), b.input(3, 2, 4, 1)
    return {
        b.node("LRN", even, size=5, alpha=0.5, beta=0.75, bias=1.5): 12,
        b.node("LRN", odd, size=3): 10,
        b.node("LRN", even, size=1, alpha=2.0, beta=0.5): 8,
        b.node("LRN", few, size=7, alpha=1e-2, beta=2.0, bias=3.0): 16,
        b.node("LRN", even, size=31, alpha=1.0, beta=1.25): 60,
    }


def _moved(b: Branches) -> list[str]:
    x, flat, deep = b.input(2, 16, 6, 5), b.input(11, 24), b.input(2, 3, 2, 4, 5, 16)
    strange = b.input(1, 8, 2, 2, content=np.resize([np.nan, np.inf, -np.inf, -0.0, 6e-8, 65504], (1, 8, 2, 2)))
    front = [b.integers(*values) for values in ((1, 8), (6, 16), (0, 1))]
    back = [b.integers(*values) for values in ((-1, 20, 2), (-12, 1, 0), (0, 1, 2), (-3, -4, -1))]
    return [
        b.node("Slice", flat, *front),
        b.node("Slice", b.input(11, 24, 4), *back),
        b.node("Slice", x, b.integers(8), b.integers(16), b.integers(1)),
        b.node("Slice", x, b.integers(3), b.integers(4), b.integers(3), b.integers(1 << 40)),
        b.node("Slice", strange, b.integers(1), b.integers(2), b.integers(2)),
        b.node("Pad", flat, b.integers(1, 8, 0, 16), b.number(-2)),
        b.node("Pad", flat, b.integers(0, 3, 2, 5), b.number(np.inf)),
        b.node("Pad", flat, b.integers(-2, -8, 1, 0)),
        b.node("Pad", x, b.integers(0, 0, 2, 1, 0, 0, -1, 3), b.number(0.1)),
        b.node("Gather", flat, b.integers(10, 0, 0, 3), axis=0),
        b.node("Gather", flat, b.integers(5, -1, 7, 7, 0, 2, 1, 23), axis=1),
        b.node("Gather", b.input(3, 9), b.integers(5, 2, 2), axis=1),
        b.node("Gather", x, b.constant(np.array([[4, 0], [1, 2]])), axis=2),
        b.node("Transpose", flat, perm=[1, 0]),
        b.node("Transpose", deep, perm=[4, 1, 3, 0, 2, 5]),
        b.node("Transpose", deep, perm=[5, 4, 3, 2, 1, 0]),
        b.node("Transpose", b.input(2, 3, 40, 17), perm=[0, 2, 3, 1]),
        b.node("Transpose", b.input(2, 33, 7, 5), perm=[0, 2, 3, 1]),
        b.node("Transpose", b.input(3, 35, 40, 33), perm=[0, 3, 2, 1]),
        b.node("Transpose", b.input(2, 17, 3, 2, 18, 2), perm=[4, 5, 2, 3, 0, 1]),
    ]


def _together(b: Branches) -> dict[str, int]:
    """Concatenations, and how many launches each takes."""
    x, y, z = b.input(2, 16, 3, 5), b.input(2, 8, 3, 5), b.input(2, 3, 3, 5)
    many = [b.input(2, extent % 3 + 1) for extent in range(37)]
    wide = [b.input(2, 8 + extent % 2 * 8) for extent in range(17)]
    fixed = b.constant(b.halves(2, 8, 3, 5))
    return {
        b.node("Concat", x, y, x, axis=1): 1,
        b.node("Concat", x, z, z, z, z, axis=1): 1,
        b.node("Concat", y, y, axis=0): 1,
        b.node("Concat", y, fixed, y, axis=-1): 1,
        b.node("Concat", *many, axis=1): 3,
        b.node("Concat", *wide, axis=1): 2,
    }


def _resized(b: Branches) -> dict[str, int]:
    even, odd, line, cube = b.input(2, 8, 5, 7), b.input(1, 3, 6, 4), b.input(1, 4, 9), b.input(1, 8, 3, 4, 2)

    def sizes(*values: int) -> tuple[str, str, str]:
        return "", "", b.integers(*values)

    def scales(*values: float) -> tuple[str, str]:
        return "", b.constant(np.array(values, np.float32))

    found = {}
    for coordinates in ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"):
        given: dict[str, Any] = {"coordinate_transformation_mode": coordinates}
        found[b.node("Resize", even, *sizes(2, 8, 9, 1), mode="linear", **given)] = 16
        found[b.node("Resize", odd, *sizes(1, 3, 4, 9), mode="linear", **given)] = 16
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            found[b.node("Resize", odd, *sizes(1, 3, 4, 9), nearest_mode=rounding, **given)] = 0
    found[b.node("Resize", line, *scales(1, 1, 1.7), mode="linear")] = 8
    found[b.node("Resize", cube, *sizes(1, 8, 5, 4, 3), mode="linear")] = 32
    found[b.node("Resize", cube, *scales(1, 1, 2, 0.6, 1.1))] = 0
    found[b.node("Resize", even, *scales(1, 1, 1.05, 1.05), mode="linear")] = 16
    found[b.node("Resize", even, *scales(1, 1, 2, 1.05), mode="linear")] = 16
    found[b.node("Resize", even, *scales(1, 1, 1.6, 1.1))] = 0
    return found


def _convolutions(b: Branches) -> dict[str, tuple[str, int]]:
    """Outputs, the template that is to compute each, and the terms of its sums."""
    x, y, line, cube = b.input(2, 16, 9, 7), b.input(1, 6, 8, 5), b.input(2, 8, 13), b.input(1, 8, 4, 5, 3)

    def conv(image: str, *weights: int, bias: bool = True, **attributes: Any) -> str:
        operands = [b.constant(b.halves(*weights))] + [b.constant(b.halves(weights[0]))] * bias
        return b.node("Conv", image, *operands, **attributes)

    return {
        conv(x, 16, 1, 3, 3, group=16, pads=[1, 0, 2, 1], strides=[2, 1]): ("depthwise", 10),
        conv(x, 16, 1, 3, 2, group=16, bias=False, dilations=[2, 3]): ("depthwise", 6),
        conv(y, 6, 1, 3, 3, group=6, pads=[1, 1, 1, 1]): ("direct_conv", 10),
        conv(x, 32, 1, 3, 3, group=16, strides=[1, 2]): ("direct_conv", 10),
        conv(y, 18, 1, 2, 2, group=6, bias=False): ("direct_conv", 4),
        conv(y, 16, 3, 3, 3, group=2, pads=[0, 1, 1, 0]): ("direct_conv", 28),
        conv(y, 4, 3, 3, 3, group=2): ("direct_conv", 28),
        conv(x, 24, 2, 3, 3, group=8, bias=False): ("direct_conv", 18),
        conv(x, 1, 16, 3, 3, pads=[1, 1, 1, 1]): ("direct_conv", 145),
        conv(y, 1, 6, 1, 1, bias=False): ("direct_conv", 6),
        conv(line, 1, 8, 3, pads=[2, 1], dilations=[2]): ("direct_conv", 25),
        conv(line, 8, 1, 5, group=8, strides=[2]): ("depthwise", 6),
        conv(cube, 16, 8, 2, 3, 2, pads=[1, 1, 0, 0, 1, 1], strides=[2, 1, 1]): ("direct_conv", 97),
        conv(cube, 8, 1, 3, 3, 3, group=8, pads=[1] * 6): ("direct_conv", 28),
    }


def _followed(b: Branches) -> dict[str, tuple[int, int]]:
    """Layers of a map and element-wise operators behind it, which read operands at the map's positions: terms of their
    sums, and launches."""
    x, y = b.input(2, 16, 6, 5), b.input(2, 8, 6, 5)
    tall, scale = b.input(2, 5, 40, 24), b.constant(np.abs(b.halves(1, 24, 1, 1)))

    def behind(value: str, operand: str) -> str:
        return b.node("Relu", b.node("Add", value, operand, out=False))

    def made(op_type: str, *operands: str, **attributes: Any) -> str:
        return b.node(op_type, *operands, out=False, **attributes)

    depthwise = made("Conv", x, b.constant(b.halves(16, 1, 3, 3)), group=16, pads=[1, 1, 1, 1])
    joined = made("Concat", *([y] * 17), axis=1)
    turned = made("Transpose", tall, perm=[0, 3, 1, 2])
    return {
        behind(depthwise, x): (14, 1),
        behind(joined, b.constant(b.halves(1, 136, 1, 1))): (4, 2),
        behind(b.node("Mul", turned, scale, out=False), b.input(2, 24, 5, 40)): (6, 1),
        behind(made("LRN", x, size=3), x): (16, 1),
        behind(made("Slice", x, b.integers(1), b.integers(9), b.integers(1)), y): (4, 1),
        behind(made("Pad", y, b.integers(0, 5, 0, 0, 0, 3, 0, 0)), x): (4, 1),
        behind(made("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), b.constant(b.halves(1, 1, 6, 5))): (4, 1),
        behind(made("Resize", y, "", "", b.integers(2, 8, 9, 4), mode="linear"), b.constant(b.halves(8, 1, 1))): (
            20,
            1,
        ),
    }


Made = tuple[Executed, dict[str, int]]


@pytest.fixture(scope="module", params=["a100", pytest.param("h200", marks=pytest.mark.nightly)])
def chip(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pools(chip: str, tmp_path_factory: pytest.TempPathFactory) -> Made:
    b = Branches()
    outputs = _pools(b) | _norms(b)
    return executed(b, tmp_path_factory.mktemp("pools"), chip), outputs


@pytest.fixture(scope="module")
def moved(chip: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Executed, list[str], dict[str, int]]:
    b = Branches()
    elements, together = _moved(b), _together(b)
    return executed(b, tmp_path_factory.mktemp("moved"), chip), elements, together


@pytest.fixture(scope="module")
def resized(chip: str, tmp_path_factory: pytest.TempPathFactory) -> Made:
    b = Branches()
    outputs = _resized(b)
    return executed(b, tmp_path_factory.mktemp("resized"), chip, opset=19), outputs


@pytest.fixture(scope="module")
def convolved(chip: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Executed, dict[str, tuple[str, int]]]:
    b = Branches()
    outputs = _convolutions(b)
    return executed(b, tmp_path_factory.mktemp("convolved"), chip), outputs


@pytest.fixture(scope="module")
def followed(chip: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Executed, dict[str, tuple[int, int]]]:
    b = Branches()
    outputs = _followed(b)
    return executed(b, tmp_path_factory.mktemp("followed"), chip), outputs


def _right(made: Made) -> None:
    found, outputs = made
    errors = {name: found.beyond(name, terms) for name, terms in outputs.items() if terms}
    assert {name: error for name, error in errors.items() if error > 1} == {}
    assert [name for name, terms in outputs.items() if not terms and not found.moved(name)] == []


@pytest.mark.commit
def test_pools_and_lrn_of_every_shape_are_right(pools: Made) -> None:
    _right(pools)


@pytest.mark.commit
def test_elements_are_moved_to_where_onnx_says(moved: tuple[Executed, list[str], dict[str, int]]) -> None:
    found, elements, together = moved
    assert [name for name in (*elements, *together) if not found.moved(name)] == []


def test_concatenations_take_a_launch_for_16_inputs(moved: tuple[Executed, list[str], dict[str, int]]) -> None:
    found, _, together = moved
    assert {name: found.launches(name) for name in together} == together


def test_tiles_move_the_last_axis_where_both_axes_are_long(moved: tuple[Executed, list[str], dict[str, int]]) -> None:
    found, elements, _ = moved
    transposes = [name for name in elements if name.startswith("transpose")]
    assert [found.kernels(name) for name in transposes] == [{"movement"}] * 4 + [{"transpose"}] * 3


@pytest.mark.commit
def test_resized_maps_are_right_for_all_coordinates(resized: Made) -> None:
    _right(resized)


def test_the_reference_agrees_on_factors_that_leave_an_extent(tmp_path: Path) -> None:
    b = Branches()
    x = b.input(2, 8, 5, 7)
    for scales in ((1, 1, 2, 1.05), (1, 1, 1.05, 1.05)):
        b.node("Resize", x, "", b.constant(np.array(scales, np.float32)), mode="linear")
        b.node("Resize", x, "", b.constant(np.array(scales, np.float32)))
    assert verify_model(saved(b, tmp_path), "a100", CompileOptions(O0()), VerifyOptions(samples=512)).failures == ()


@pytest.mark.commit
def test_convolutions_that_cutlass_does_not_take_are_right(
    convolved: tuple[Executed, dict[str, tuple[str, int]]],
) -> None:
    found, outputs = convolved
    assert {name: found.kernels(name) for name in outputs} == {name: {of} for name, (of, _) in outputs.items()}
    _right((found, {name: terms for name, (_, terms) in outputs.items()}))


@pytest.mark.commit
def test_what_follows_a_map_is_computed_where_its_elements_lie(
    followed: tuple[Executed, dict[str, tuple[int, int]]],
) -> None:
    found, outputs = followed
    _right((found, {name: terms for name, (terms, _) in outputs.items()}))
    assert {name: found.launches(name) for name in outputs} == {name: count for name, (_, count) in outputs.items()}


def test_the_largest_of_numbers_and_nan_is_nan(tmp_path: Path) -> None:
    b = Branches()
    content = np.resize([1, 2, 3, np.nan, 4, -np.inf, 5, 6, np.inf, 7, 8], (1, 8, 5, 4)).astype(np.float32)
    name = b.node("MaxPool", b.input(1, 8, 5, 4, content=content), kernel_shape=[2, 2])
    windows = np.lib.stride_tricks.sliding_window_view(content, (2, 2), (2, 3))
    np.testing.assert_array_equal(executed(b, tmp_path).found[name], windows.max((4, 5)))


@pytest.mark.commit
def test_operators_may_have_the_names_of_c_functions(tmp_path: Path) -> None:
    b = Branches()
    x = b.input(2, 3, content=1 + np.arange(6).reshape(2, 3) / 4)
    outputs = [b.node(op_type, x) for op_type in ("Abs", "Sqrt", "Exp", "Log", "Erf")]
    outputs.append(b.node("Max", x, b.input(3)))
    found = executed(b, tmp_path)
    assert max(found.beyond(name, 4) for name in outputs) <= 1


def test_softplus_of_large_and_small_numbers(tmp_path: Path) -> None:
    b = Branches()
    content = np.array([-65504, -16.5, -12, -5, -1e-4, 0, 0.5, 12, 300, np.inf, -np.inf, np.nan], np.float16)
    name = b.node("Softplus", b.input(12, content=content))
    with np.errstate(invalid="ignore"):
        wanted = np.logaddexp(0, content.astype(np.float64))
    found = executed(b, tmp_path).found[name].astype(np.float64)
    np.testing.assert_allclose(found, wanted, 2**-11 + 2**-20, 2**-25)


@pytest.mark.parametrize(
    ("template", "parameters", "needs"),
    [
        ("movement", {"vector": 8}, "a vector width that divides the last axis"),
        ("transpose", {}, "two axes that are long"),
    ],
)
def test_launches_that_were_never_offered_are_refused(
    template: str, parameters: dict[str, int | str], needs: str, tmp_path: Path
) -> None:
    b = Branches()
    b.node("Transpose", b.input(3, 7), perm=[1, 0])
    plan = plan_model(saved(b, tmp_path), "a100", CompileOptions(O0()))
    assert isinstance(plan, PlannedKernels)
    work = KernelWork(plan.context.graph, plan.plan.groups[0].layers, plan.context.chip)
    with pytest.raises(TargetError, match=needs):
        FAMILIES[template].launches(work, parameters, plan.model.constants)
