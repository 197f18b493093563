"""Which layers of networks of the zoo become one kernel on an H200, 32 images: where it pays and nowhere else.

By floors, as on a GPU whose kernels nobody has measured, and by the rates of the chip file.
"""

from __future__ import annotations

import re
from pathlib import Path
from time import process_time

import pytest

import hw_models
from dsa_sched.analysis.kernel_explanation import explain_kernels
from dsa_sched.frontend import load_model
from dsa_sched.report.kernel_explain import print_kernels
from dsa_sched.stages.targets import judge_of, target_of
from dsa_sched.zoo.drawn_networks import DRAWN
from dsa_sched.zoo.networks import NAMES
from hw_models.loading import load_chip, parse_chip
from partitioner.context.plan_context import GraphContext, KernelContext
from partitioner.ir.graph import Op
from partitioner.ir.kernels import KernelTarget
from partitioner.ir.plan import Plan
from partitioner.planners.kernel_level import kernels_in_place
from partitioner.planners.levels import KERNEL_PLANNERS, FusedKernels, LayerKernels
from partitioner.planners.registry import make_kernel_plan

MOST_SECONDS = 20.0
BOTTLENECK = [(1, 1), (3, 3), (1, 1)]


def context(network: str, batch: int, *, measured: bool = False) -> KernelContext:
    chip = load_chip("h200")
    if not measured:
        text = (Path(hw_models.__file__).parent / "chips" / "h200.yaml").read_text(encoding="utf-8")
        chip = parse_chip(text.partition("  kernels:\n")[0], "floors.yaml")
    target = target_of(chip)
    assert isinstance(target, KernelTarget)
    model = load_model(network, {}, batch, judge_of(chip, target))
    return GraphContext(model.graph, model.constants, chip, target)


def convolutions(plan: Plan, ctx: KernelContext) -> list[list[Op]]:
    """Those of each kernel."""
    found = [[layer.anchor(ctx.graph) for layer in plan.group_by_name[step.group].layers] for step in plan.steps]
    return [ops for ops in found if all(op.kind == "conv" for op in ops)]


def pixels(op: Op, ctx: KernelContext) -> int:
    """Of a row of what the operator makes."""
    return ctx.graph.by_name[op.outputs[0]].shape[2]


def seconds(plan: Plan, ctx: KernelContext) -> float:
    return sum(kernel.seconds for kernel in kernels_in_place(plan, ctx).values())


@pytest.mark.commit
def test_bottlenecks_of_the_first_stage_are_one_kernel_those_of_the_last_two_are_not() -> None:
    ctx = context("resnet50", 32)
    plan = make_kernel_plan(ctx, FusedKernels())
    kernels = convolutions(plan, ctx)
    whole = [ops for ops in kernels if [op.ints("kernel") for op in ops] == BOTTLENECK]
    assert [pixels(ops[1], ctx) for ops in whole].count(56) == 3
    assert all(len(ops) == 1 for ops in kernels if pixels(ops[-1], ctx) <= 14)


@pytest.mark.commit
def test_every_block_of_mobilenet_from_112_to_14_pixels_is_one_kernel() -> None:
    """The first one too, a depthwise and a 1x1 convolution alone."""
    ctx = context("mobilenet_v2", 32)
    plan = make_kernel_plan(ctx, FusedKernels())
    alone = {ops[0].name for ops in convolutions(plan, ctx) if len(ops) == 1}
    depthwise = [op for op in ctx.graph.ops if op.kind == "conv" and op.number("groups") > 1]
    blocks = {op.name.rpartition(".depthwise")[0] for op in depthwise if pixels(op, ctx) >= 14}
    fused = {block for block in blocks if f"{block}.depthwise.conv" not in alone}
    assert len(blocks) == 13
    assert blocks - fused == set()


@pytest.mark.commit
def test_explain_prints_both_ways_of_every_set(capsys: pytest.CaptureFixture[str]) -> None:
    ctx = context("resnet18_tailor", 64)
    plan = make_kernel_plan(ctx, FusedKernels())
    print_kernels(explain_kernels(plan, ctx))
    lines = capsys.readouterr().out.splitlines()
    first, last = lines.index("one kernel or several"), lines.index("decisions")
    said = [line.strip() for line in lines[first + 1 : last] if line]
    assert len(said) > 4
    assert all(
        re.search(r"takes [0-9.]+ us at least \(\w+ binds\), separately they take [0-9.]+ us \(", line) for line in said
    )
    declined = [line for line in said if ": not one kernel with " in line]
    fused = [group for group in plan.groups if len(group.layers) > 1]
    assert len(said) - len(declined) == len(fused) > 0
    slower = [re.search(r"is slower: ([0-9.]+) us against ([0-9.]+) us; .* takes ([0-9.]+)", line) for line in declined]
    assert any(slower)
    assert all(float(found[1]) > float(found[2]) and found[1] == found[3] for found in slower if found)


@pytest.mark.parametrize(
    "network",
    [
        "squeezenet",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("resnet18_tailor", "mobilenet_v2", "inception_v1")
        ),
    ],
)
@pytest.mark.commit
def test_networks_are_never_slower_than_at_o0(network: str) -> None:
    ctx = context(network, 8)
    plans = {level: make_kernel_plan(ctx, KERNEL_PLANNERS[level]()) for level in ("O0", "O3", "auto")}
    assert seconds(plans["O3"], ctx) <= seconds(plans["O0"], ctx)
    assert seconds(plans["auto"], ctx) == seconds(plans["O3"], ctx)


@pytest.mark.nightly
@pytest.mark.parametrize("network", [name for name in NAMES if not name.endswith("-mini") and name not in DRAWN])
@pytest.mark.parametrize("batch", [1, 32])
def test_every_network_is_planned_soon_and_no_slower_than_at_o0(network: str, batch: int) -> None:
    ctx = context(network, batch)
    assert ctx.layers
    start = process_time()
    plan = make_kernel_plan(ctx, FusedKernels())
    assert process_time() - start < MOST_SECONDS
    assert seconds(plan, ctx) <= seconds(make_kernel_plan(ctx, LayerKernels()), ctx)
