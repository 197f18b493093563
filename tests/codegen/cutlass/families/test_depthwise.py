"""Depthwise convolutions of drawn shapes, with every length of strip that is offered, executed from the PTX that is
shipped and held to what fp32 sums may be off; what the family leaves to others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen.cutlass.families.registry import FAMILIES
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import compile_plan, plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from hw_models.errors import TargetError
from partitioner.ir.kernels import Kernel, read_kernel
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.branches import Branches, Executed, executed, saved
from tests.dsa_sched.frontend.numpy_graph import reference_values

Draw = np.random.Generator

AT_O0 = CompileOptions(O0())


def depthwise(b: Branches, *shape: int, taps: tuple[int, ...], bias: bool = True, **attributes: Any) -> str:
    channels = shape[1]
    operands = [b.constant(b.halves(channels, 1, *taps))] + [b.constant(b.halves(channels))] * bias
    return b.node("Conv", b.input(*shape), *operands, group=channels, **attributes)


def drawn(b: Branches, draw: Draw) -> tuple[str, int]:
    """A convolution along one or two axes that has an output, and the terms of its sums; some with a sum and an
    activation behind it."""
    rank, channels = int(draw.integers(1, 3)), 8 * int(draw.choice([1, 2, 3, 5, 12]))
    taps = tuple(draw.choice([1, 2, 3, 5, 7, 31] if rank == 1 else [1, 2, 3, 5, 7], rank).tolist())
    dilations = draw.integers(1, 4, rank).tolist()
    pads = [int(draw.integers(0, extent)) for extent in (*taps, *taps)]
    least = [max(1, 1 + d * (t - 1) - p) for d, t, p in zip(dilations, taps, pads, strict=False)]
    shape = [extent + int(draw.integers(0, 12)) for extent in least]
    y = depthwise(
        b,
        int(draw.integers(1, 4)),
        channels,
        *shape,
        taps=taps,
        bias=bool(draw.integers(2)),
        strides=draw.integers(1, 4, rank).tolist(),
        dilations=dilations,
        pads=pads,
    )
    return y, int(np.prod(taps)) + 1


def planned(b: Branches, folder: Path, chip: str = "a100") -> PlannedKernels:
    found = plan_model(saved(b, folder), chip, AT_O0)
    assert isinstance(found, PlannedKernels)
    return found


def offered(plan: PlannedKernels, index: int = 0) -> tuple[Kernel, ...]:
    ctx = plan.context
    return ctx.target.kernels(ctx.graph, plan.plan.groups[index].layers, ctx.chip)


def forced(b: Branches, plan: PlannedKernels, which: int) -> Executed:
    """Every layer by the kernel of that number among those that are offered for it, or by the last one."""
    groups = tuple(
        replace(group, kernel=(kernels := offered(plan, index))[min(which, len(kernels) - 1)].text)
        for index, group in enumerate(plan.plan.groups)
    )
    compiled = compile_plan(replace(plan, plan=replace(plan.plan, groups=groups)), AT_O0)
    absolute = {name: np.abs(array) for name, array in b.inputs.items()}
    return Executed(
        compiled,
        compiled.artifact.run(b.inputs),
        reference_values(b.model(), b.inputs),
        reference_values(b.model(absolute=True), absolute),
    )


def right(found: Executed, outputs: dict[str, int]) -> None:
    assert {name: found.kernels(name) for name in outputs} == {name: {"depthwise"} for name in outputs}
    errors = {name: found.beyond(name, terms) for name, terms in outputs.items()}
    assert {name: error for name, error in errors.items() if not error <= 1} == {}


@pytest.mark.parametrize(
    ("count", "seed"), [(6, 0), *(pytest.param(10, seed, marks=pytest.mark.nightly) for seed in range(1, 6))]
)
def test_drawn_shapes_are_right(count: int, seed: int, tmp_path: Path) -> None:
    b, draw = Branches(seed=1000 * seed), np.random.default_rng(seed)
    outputs = dict(drawn(b, draw) for _ in range(count))
    right(executed(b, tmp_path), outputs)


@pytest.mark.parametrize("which", [0, *(pytest.param(number, marks=pytest.mark.nightly) for number in range(1, 5))])
def test_every_length_of_strip_is_right(which: int, tmp_path: Path) -> None:
    """Rows that strips do not fill, windows beyond all four edges, rows of the window in a loop and unrolled."""
    b = Branches()
    outputs = {
        depthwise(b, 2, 40, 5, 13, taps=(3, 3), pads=[2, 1, 0, 2]): 10,
        depthwise(b, 1, 16, 9, 21, taps=(7, 7), pads=[3] * 4): 50,
        depthwise(b, 1, 24, 7, 30, taps=(3, 5), strides=[1, 2], dilations=[2, 3], bias=False): 16,
        depthwise(b, 2, 16, 37, taps=(31,), pads=[15, 15]): 32,
    }
    right(forced(b, planned(b, tmp_path), which), outputs)


def test_strips_are_offered_that_rows_fill(tmp_path: Path) -> None:
    b = Branches()
    for width in (1, 4, 20):
        depthwise(b, 1, 8, 3, width, taps=(3, 1))
    plan = planned(b, tmp_path, "h200")
    strips = [sorted(int(dict(kernel.parameters)["strip"]) for kernel in offered(plan, at)) for at in range(3)]
    assert strips == [[1], [1, 2, 4, 7], [1, 2, 4, 7, 8]]


def test_what_follows_is_computed_in_every_output_of_a_strip(tmp_path: Path) -> None:
    b = Branches()
    x = b.input(2, 16, 6, 11)
    made = b.node("Conv", x, b.constant(b.halves(16, 1, 3, 3)), group=16, pads=[1] * 4, out=False)
    outputs = {b.node("Relu", b.node("Add", made, x, out=False)): 14}
    right(forced(b, planned(b, tmp_path), 1), outputs)


@pytest.mark.parametrize(
    ("shape", "taps", "attributes"),
    [
        ((1, 12, 9, 9), (3, 3), {}),
        ((1, 8, 4, 5, 3), (2, 2, 2), {}),
        ((1, 8, 1, 400), (1, 64), {}),
        ((1, 8, 1, 2000), (1, 3), {"dilations": [1, 200]}),
    ],
)
def test_other_shapes_are_left_to_other_kernels(
    shape: tuple[int, ...], taps: tuple[int, ...], attributes: dict[str, Any], tmp_path: Path
) -> None:
    b = Branches()
    depthwise(b, *shape, taps=taps, **attributes)
    assert {kernel.template for kernel in offered(planned(b, tmp_path))} == {"direct_conv"}


def test_strips_that_were_never_offered_are_refused(tmp_path: Path) -> None:
    b = Branches()
    depthwise(b, 1, 8, 3, 4, taps=(3, 1))
    plan = planned(b, tmp_path)
    work = KernelWork(plan.context.graph, plan.plan.groups[0].layers, plan.context.chip)
    assert read_kernel(plan.plan.groups[0].kernel)[0] == "depthwise"
    with pytest.raises(TargetError, match=r"kernel depthwise .*needs strips of 1, 2, 4, 7.*has strip=8"):
        FAMILIES["depthwise"].launches(work, {"strip": 8, "vector": 8}, plan.context.constants)
