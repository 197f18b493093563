"""Chains of convolutions as one kernel, against float64: drawn shapes of each kind, every tile, wide ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.families.fused.convolution_chain import CONVOLUTION_CHAIN
from codegen.cutlass.families.registry import offered
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import TargetError
from partitioner.ir.kernels import read_kernel
from partitioner.planners.levels import O3
from tests.codegen.cutlass.chains.chain_models import convolutions, drawn_chain, judged_chain, work_of
from tests.codegen.cutlass.chains.forced import by_floors
from tests.codegen.cutlass.families.networks import Network, judged
from tests.small_models import save

KINDS = [(1, 3, 1), (3, 1), (3, 3)]
DISTANCE = 2.0**-11
"""A rounding to halves at its farthest, over all elements: what is left out or added by mistake makes more, where the
bound, which allows for the worst order of sums and for every value between to be off by one step, may not notice."""


EVERY_TILE = replace(CONVOLUTION_CHAIN, most_offered=None)
"""The family that offers every tile that fits, not only the fastest few."""


def right(kernels: tuple[int, ...], instruction: str, seed: int, folder: Path, compiler: Compiler) -> None:
    model, draw = drawn_chain(kernels, seed)
    work, constants = work_of(model, folder, "h200" if instruction == "wgmma" else draw.choice(["a100", "h200"]))
    kernels_of_all = EVERY_TILE.offers(work)
    kernel = draw.choice([kernel for kernel in kernels_of_all if dict(kernel.parameters)["by"] == instruction])
    found = judged_chain(EVERY_TILE, work, constants, kernel, compiler, seed)
    assert found.worst <= 1
    assert found.distance <= DISTANCE


@pytest.mark.spread(4)
@pytest.mark.parametrize("instruction", ["mma", "wgmma"])
@pytest.mark.parametrize("kernels", KINDS)
@pytest.mark.commit
def test_drawn_chains(kernels: tuple[int, ...], instruction: str, tmp_path: Path, compiler: Compiler) -> None:
    right(kernels, instruction, 0, tmp_path, compiler)


@pytest.mark.slow(at_commit=1)
@pytest.mark.parametrize("seed", range(1, 10))
@pytest.mark.parametrize("instruction", ["mma", "wgmma"])
@pytest.mark.parametrize("kernels", KINDS)
def test_more_drawn_chains(
    kernels: tuple[int, ...], instruction: str, seed: int, tmp_path: Path, compiler: Compiler
) -> None:
    right(kernels, instruction, seed, tmp_path, compiler)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("shape", "layers", "summed"),
    [
        ((1, 2048, 7, 7), [(512, 1, 1), (512, 3, 1), (2048, 1, 1)], "x"),  # ResNet-50, the last stage
        ((1, 256, 16, 16), [(128, 1, 1), (128, 3, 2), (512, 1, 1)], "other"),  # into the second, a part of the image
        ((1, 256, 14, 14), [(256, 3, 1), (256, 1, 1)], ""),
        ((1, 128, 14, 14), [(128, 3, 1), (128, 3, 1)], "x"),
    ],
)
@pytest.mark.parametrize("chip", ["a100", "h200"])
def test_wide_chains(
    shape: tuple[int, int, int, int],
    layers: list[tuple[int, int, int]],
    summed: str,
    chip: str,
    tmp_path: Path,
    compiler: Compiler,
) -> None:
    work, constants = work_of(convolutions(shape, layers, summed=summed), tmp_path, chip)
    kernel = CONVOLUTION_CHAIN.offers(work)[0]
    found = judged_chain(CONVOLUTION_CHAIN, work, constants, kernel, compiler)
    assert found.worst <= 1
    assert found.distance <= DISTANCE


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("pads", "strides"),
    [([0, 0, 0, 0], [1, 1]), ([0, 0, 1, 1], [2, 2]), ([2, 1, 0, 3], [1, 1]), ([4, 4, 4, 4], [2, 2])],
)
@pytest.mark.commit
def test_any_padding(pads: list[int], strides: list[int], tmp_path: Path, compiler: Compiler) -> None:
    """The 1x1 before takes every second pixel."""
    net = Network([("x", (1, 24, 15, 13))])
    narrow = net.add("Sigmoid", net.conv("x", 16, 1, strides=[2, 2]))
    wide = net.conv(net.add("Relu", net.conv(narrow, 32, 3, pads=pads, strides=strides)), 40, 1)
    work, constants = work_of(net.model(wide), tmp_path, "a100")
    found = judged_chain(CONVOLUTION_CHAIN, work, constants, CONVOLUTION_CHAIN.offers(work)[0], compiler)
    assert found.worst <= 1
    assert found.distance <= DISTANCE


def one_chain() -> onnx.ModelProto:
    return convolutions((2, 32, 11, 13), [(16, 1, 1), (16, 3, 1), (32, 1, 1)], summed="x")


def test_a_network_is_one_chain_by_the_choice_of_the_planner(tmp_path: Path) -> None:
    """By floors, so that kernels that were never measured have no advantage."""
    file, chip = save(one_chain(), tmp_path / "planned.onnx"), by_floors("h200", tmp_path)
    plan = plan_model(file, chip, CompileOptions(O3())).plan
    assert [read_kernel(group.kernel)[0] for group in plan.groups] == ["convolution_chain"]


@pytest.mark.nightly
def test_a_network_that_is_one_chain_agrees_with_onnxruntime(tmp_path: Path) -> None:
    """Through the artifact."""
    model = one_chain()
    assert judged(model, tmp_path, "h200", "O3").failures == ()


@pytest.mark.parametrize(
    "second",
    [
        {"group": 2, "pads": [1, 1, 1, 1]},
        {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
        {"strides": [2, 1], "pads": [1, 1, 1, 1]},
        {"strides": [3, 3], "pads": [1, 1, 1, 1]},
    ],
)
def test_what_the_template_does_not_take(second: dict[str, Any], tmp_path: Path) -> None:
    net = Network([("x", (1, 16, 12, 12))])
    work, _ = work_of(net.model(net.conv(net.conv("x", 32, 1), 16, 3, **second)), tmp_path, "a100")
    assert CONVOLUTION_CHAIN.offers(work) == ()


@pytest.mark.parametrize(("channels", "filters"), [(12, 16), (16, 12)])
def test_channels_are_copied_eight_at_a_time(channels: int, filters: int, tmp_path: Path) -> None:
    model = convolutions((1, channels, 9, 9), [(16, 3, 1), (filters, 1, 1)])
    work, _ = work_of(model, tmp_path, "a100")
    assert CONVOLUTION_CHAIN.offers(work) == ()


def test_values_that_others_read_are_not_inside_a_chain(tmp_path: Path) -> None:
    net = Network([("x", (1, 16, 12, 12))])
    between = net.add("Relu", net.conv("x", 16, 3, pads=[1, 1, 1, 1]))
    last = net.conv(between, 16, 1)
    work, _ = work_of(net.model(last), tmp_path, "a100")
    assert CONVOLUTION_CHAIN.offers(work)
    work, _ = work_of(net.model(last, between), tmp_path, "a100")
    assert CONVOLUTION_CHAIN.offers(work) == ()


def test_parameters_that_were_not_offered(tmp_path: Path) -> None:
    work, constants = work_of(convolutions((1, 16, 9, 9), [(16, 3, 1), (16, 1, 1)]), tmp_path, "a100")
    parameters = dict(CONVOLUTION_CHAIN.offers(work)[0].parameters)
    with pytest.raises(TargetError, match="needs the parameters that it was offered with"):
        CONVOLUTION_CHAIN.launches(work, parameters | {"rows": 10_000}, constants)


@pytest.mark.parametrize("chip", ["a100", "h200"])
def test_what_is_offered_fits_the_chip(chip: str, tmp_path: Path) -> None:
    """Shared memory and registers of as many threads; only a chip with a rate for wgmma is offered it."""
    work, _ = work_of(
        convolutions((8, 1024, 14, 14), [(256, 1, 1), (256, 3, 1), (1024, 1, 1)], summed="x"), tmp_path, chip
    )
    kernels = CONVOLUTION_CHAIN.offers(work)
    assert kernels
    for kernel in kernels:
        occupied, simt = dict(kernel.resources), work.chip.simt
        assert occupied["shared_bytes"] <= simt.shared_bytes_per_block
        assert occupied["registers"] * occupied["threads"] <= simt.registers_per_core
        assert occupied["registers"] <= simt.registers_per_thread
    assert any(dict(kernel.parameters)["by"] == "wgmma" for kernel in kernels) == (chip == "h200")


@pytest.mark.parametrize(
    ("chip", "shape", "layers", "pays"),
    [
        ("h200", (32, 256, 56, 56), [(64, 1, 1), (64, 3, 1), (256, 1, 1)], True),  # bottlenecks of ResNet-50, by stage
        ("h200", (32, 1024, 14, 14), [(256, 1, 1), (256, 3, 1), (1024, 1, 1)], False),
        ("h200", (32, 2048, 7, 7), [(512, 1, 1), (512, 3, 1), (2048, 1, 1)], False),
        ("a100", (64, 64, 56, 56), [(64, 3, 1), (64, 1, 1)], True),
        ("a100", (64, 64, 56, 56), [(64, 3, 1), (64, 3, 1)], False),
        ("a100", (64, 128, 28, 28), [(128, 3, 1), (128, 3, 1)], False),
        ("a100", (64, 256, 14, 14), [(256, 3, 1), (256, 3, 1)], False),
        ("h200", (64, 512, 7, 7), [(512, 3, 1), (512, 3, 1)], False),
    ],
)
def test_whether_a_chain_pays(
    chip: str, shape: tuple[int, int, int, int], layers: list[tuple[int, int, int]], pays: bool, tmp_path: Path
) -> None:
    """By floors, against the fastest kernels of the layers one by one."""
    summed = "x" if len(layers) == 3 else ""
    work, _ = work_of(convolutions(shape, layers, summed=summed), tmp_path, str(by_floors(chip, tmp_path)))
    apart = sum(
        min(kernel.seconds for kernel in offered(KernelWork(work.graph, (layer,), work.chip))) for layer in work.layers
    )
    together = min(kernel.seconds for kernel in offered(work) if kernel.template == "convolution_chain")
    assert (together < apart) == pays
