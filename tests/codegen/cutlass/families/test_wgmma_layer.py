"""Single layers by wgmma, against float64: drawn convolutions and products, every tile, blocks of several tiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.families.registry import offered
from codegen.cutlass.families.wgmma.wgmma_layer import WGMMA_LAYER, packed_filters
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import TargetError
from partitioner.ir.kernels import Kernel, read_kernel
from partitioner.planners.levels import O0
from tests.codegen.cutlass.chains.chain_models import ACTIVATIONS, judged_chain, work_of
from tests.codegen.cutlass.families.networks import Network, judged
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import save

DISTANCE = 2.0**-11
"""A rounding to fp16 at its farthest, over all elements: what is left out or added by mistake makes more."""


def finished(net: Network, y: str, activation: str, summed: str) -> onnx.ModelProto:
    """The activation after y, or after its sum with a map of its shape."""
    y = net.add("Add", y, summed) if summed else y
    if not activation:
        return net.model(y)
    return net.model(net.relu6(y) if activation == "Clip" else net.add(activation, y))


def drawn_convolution(draw: Random, seed: int) -> onnx.ModelProto:
    """Ragged images, windows, strides, dilations and pads of every kind; every second one is 1x1 or 3x3."""
    taps = draw.choice(((1, 1), (3, 3), (draw.randint(1, 5), draw.randint(1, 5))))
    strides, dilations = ([draw.choice((1, 1, 2)) for _ in range(2)] for _ in range(2))
    pads = [draw.randint(0, taps[axis] // 2) for axis in (0, 1, 0, 1)]
    reach = [dilations[axis] * (taps[axis] - 1) + 1 for axis in (0, 1)]
    batch, channels, filters = draw.randint(1, 2), 8 * draw.randint(1, 20), 8 * draw.randint(1, 18)
    image = [draw.randint(reach[axis], 14) for axis in (0, 1)]
    net = Network([("x", (batch, channels, image[0], image[1]))], seed)
    windows = {"strides": strides, "dilations": dilations, "pads": pads}
    y = net.conv("x", filters, taps, bias=draw.random() < 0.7, **windows)
    summed = ""
    if draw.random() < 0.5:
        rows, columns = ((image[k] + pads[k] + pads[2 + k] - reach[k]) // strides[k] + 1 for k in range(2))
        net.inputs.append(("r", (batch, filters, rows, columns)))
        summed = "r"
    return finished(net, y, draw.choice(ACTIVATIONS), summed)


def drawn_product(draw: Random, seed: int) -> onnx.ModelProto:
    rows, depth, columns = draw.randint(1, 300), 8 * draw.randint(1, 30), 8 * draw.randint(1, 30)
    net = Network([("x", (rows, depth))], seed)
    y = net.add("MatMul", "x", net.drawn(depth, columns, scale=float(depth) ** -0.5))
    y = net.add("Add", y, net.drawn(columns)) if draw.random() < 0.7 else y
    return finished(net, y, draw.choice(ACTIVATIONS), "")


def on_cores(work: KernelWork, cores: int) -> KernelWork:
    """The work on an H200 of so few cores that blocks compute several tiles."""
    return replace(work, chip=work.chip.model_copy(update={"cores_per_cluster": cores}))


def right(seed: int, folder: Path, compiler: Compiler) -> None:
    draw = Random(f"wgmma layer {seed}")
    model = drawn_product(draw, seed) if seed % 4 == 3 else drawn_convolution(draw, seed)
    work, constants = work_of(model, folder, "h200")
    work = on_cores(work, draw.choice((1, 2, 132)))
    holds(work, constants, draw.choice(WGMMA_LAYER.offers(work)), compiler, seed)


def holds(work: KernelWork, constants: Any, kernel: Kernel, compiler: Compiler, seed: int = 0) -> None:
    found = judged_chain(WGMMA_LAYER, work, constants, kernel, compiler, seed)
    assert found.worst <= 1
    assert found.distance <= DISTANCE


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.commit
def test_drawn_layers(seed: int, tmp_path: Path, compiler: Compiler) -> None:
    right(seed, tmp_path, compiler)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 56))
def test_more_drawn_layers(seed: int, tmp_path: Path, compiler: Compiler) -> None:
    right(seed, tmp_path, compiler)


def one_layer(shape: tuple[int, int, int, int], filters: int, kernel: int, **windows: Any) -> onnx.ModelProto:
    net = Network([("x", shape)])
    return net.model(net.add("Relu", net.conv("x", filters, kernel, **windows)))


@pytest.mark.nightly
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "filters", "kernel"), [((2, 200, 17, 19), 328, 1), ((2, 72, 13, 15), 200, 3)], ids=["1x1", "3x3"]
)
def test_every_tile_many_times(
    shape: tuple[int, int, int, int], filters: int, kernel: int, cores: int, tmp_path: Path, compiler: Compiler
) -> None:
    """Rings of stages go round several times, and groups take turns."""
    model = one_layer(shape, filters, kernel, pads=[kernel // 2] * 4)
    work, constants = work_of(model, tmp_path, "h200")
    few = on_cores(work, cores)
    for offer in WGMMA_LAYER.offers(few):
        holds(few, constants, offer, compiler)


@pytest.mark.commit
def test_a_stage_holds_filters_in_exchanged_units() -> None:
    """Unit u of row r lies at u ^ r % 8; steps go through the taps of 64 channels before the next 64. Of 32 filters row
    8 j + 2 q + e has filter 8 q + 2 j + e."""
    filters = np.arange(40 * 3 * 72, dtype=np.uint16).reshape(40, 3, 72)
    packed = np.frombuffer(packed_filters(filters, 32), np.uint16).reshape(2, 6, 32, 8, 8)
    np.testing.assert_array_equal(packed[0, 1, 17, 2 ^ 1], filters[5, 1, 16:24])
    np.testing.assert_array_equal(packed[1, 5, 25, 0 ^ 1], filters[39, 2, 64:72])
    assert not packed[1, :, np.arange(32) % 8 >= 2].any()
    assert not packed[0, 3, 0, 1:].any()


@pytest.mark.parametrize(
    ("channels", "filters", "windows"),
    [(12, 16, {}), (16, 12, {}), (16, 16, {"group": 2}), (8, 8, {"kernel": (1, 16)}), (3, 64, {})],
)
def test_what_the_template_does_not_take(channels: int, filters: int, windows: dict[str, Any], tmp_path: Path) -> None:
    """Channels that cannot be copied eight at a time, groups, and more taps of a row than a mask has bits."""
    given = {"kernel": 3} | windows
    net = Network([("x", (1, channels, 20, 20))])
    work, _ = work_of(net.model(net.conv("x", filters, given.pop("kernel"), **given)), tmp_path, "h200")
    assert WGMMA_LAYER.offers(work) == ()


@pytest.mark.commit
def test_through_the_artifact(tmp_path: Path) -> None:
    """A convolution with a sum, from the list and files that are shipped."""
    net = Network([("x", (2, 64, 9, 9)), ("r", (2, 72, 9, 9))])
    y = net.add("Relu", net.add("Add", net.conv("x", 72, 3, pads=[1, 1, 1, 1]), "r"))
    report = judged(net.model(y), tmp_path, "h200")
    assert report.failures == ()


def test_factors_that_are_no_constants(tmp_path: Path) -> None:
    builder = ModelBuilder()
    builder.node("MatMul", builder.input(64, 64), builder.input(64, 64), outputs=["y"])
    planned = plan_model(builder.save(tmp_path, "y"), "h200", CompileOptions(O0()))
    assert [read_kernel(group.kernel)[0] for group in planned.plan.groups] == ["gemm"]


@pytest.mark.parametrize(("chip", "template"), [("h200", "wgmma_layer"), ("h100", "wgmma_layer"), ("a100", "conv2d")])
def test_chips_that_have_wgmma_use_it(chip: str, template: str, tmp_path: Path) -> None:
    model = one_layer((8, 256, 28, 28), 128, 3, pads=[1, 1, 1, 1])
    planned = plan_model(save(model, tmp_path / "net.onnx"), chip, CompileOptions(O0()))
    assert [read_kernel(group.kernel)[0] for group in planned.plan.groups] == [template]


def test_what_is_offered_fits_the_chip(tmp_path: Path) -> None:
    work, _ = work_of(one_layer((8, 256, 28, 28), 512, 3), tmp_path, "h200")
    simt = work.chip.simt
    kernels = [kernel for kernel in offered(work) if kernel.template == "wgmma_layer"]
    assert len(kernels) == len(WGMMA_LAYER.offers(work)) > 6
    for kernel in kernels:
        occupied = dict(kernel.resources)
        assert occupied["registers"] * occupied["threads"] <= simt.registers_per_core
        assert occupied["shared_bytes"] <= simt.shared_bytes_per_block


def test_parameters_that_were_not_offered(tmp_path: Path) -> None:
    work, constants = work_of(one_layer((1, 64, 9, 9), 64, 1), tmp_path, "h200")
    with pytest.raises(TargetError, match="needs the parameters that it was offered with"):
        WGMMA_LAYER.launches(work, {"tile": "128x48"}, constants)
