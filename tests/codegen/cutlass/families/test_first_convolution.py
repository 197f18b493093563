"""First convolutions by wgmma, against float64: drawn layers, infinities that no window reads, all widths of copies."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.families.registry import offered
from codegen.cutlass.families.wgmma.first_convolution import FIRST_CONVOLUTION
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import Data, Launch
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel, read_kernel
from partitioner.planners.levels import O0
from tests.codegen.cutlass.chains.chain_models import ACTIVATIONS, judged_chain, work_of
from tests.codegen.cutlass.families.networks import Network, judged
from tests.small_models import save

DISTANCE = 2.0**-11
"""A rounding to fp16 at its farthest, over all elements: what is left out or added by mistake makes more."""
LEFT_ALONE = (np.inf, -np.inf, np.nan)
"""What pixels are that no window reads, and that empty slots find beside a window."""


def drawn_layer(layer: Random, draw: Random, seed: int) -> onnx.ModelProto:
    """Channels, taps, strides and what decides the source by `layer`, the map and the other pads by `draw`."""
    channels, filters = layer.choice((1, 2, 3, 3, 4)), 8 * layer.choice((1, 3, 4, 5, 8, 9, 16, 18))
    taps = [layer.randint(1, 7) for _ in range(2)]
    strides = [layer.randint(1, 4), layer.choice((2, 4) if channels % 2 else (1, 2, 3, 4))]
    left, width_step = layer.randint(0, taps[1] - 1), layer.choice((8, 2, 1))
    pads = [draw.randint(0, taps[0] - 1), left, draw.randint(0, taps[0] - 1), draw.randint(0, taps[1] - 1)]
    height = draw.randint(max(1, taps[0] - pads[0] - pads[2]), 18)
    width = width_step * draw.randint(1, 24 // width_step) if width_step > 1 else 7 + 2 * draw.randint(0, 8)
    batch = draw.randint(1, 3)
    net = Network([("x", (batch, channels, height, width))], seed)
    y = net.conv("x", filters, tuple(taps), bias=layer.random() < 0.7, strides=strides, pads=pads)
    if layer.random() < 0.5:
        extents = [(height + pads[0] + pads[2] - taps[0]) // strides[0] + 1]
        extents.append((width + pads[1] + pads[3] - taps[1]) // strides[1] + 1)
        net.inputs.append(("r", (batch, filters, *extents)))
        y = net.add("Add", y, "r")
    activation = layer.choice(ACTIVATIONS)
    if activation:
        y = net.relu6(y) if activation == "Clip" else net.add(activation, y)
    return net.model(y)


def drawn_image(work: KernelWork, seed: int) -> npt.NDArray[np.float16]:
    """Pixels that no window reads are infinities or NaN."""
    op, drawn = work.anchor, np.random.default_rng(seed)
    shape, result = work.shape(op.inputs[0]), work.shape(op.outputs[0])
    taps, strides, pads = (op.ints(name) for name in ("kernel", "strides", "pads"))
    reached = [
        np.isin(
            np.arange(shape[1 + axis]),
            np.add.outer(np.arange(result[1 + axis]) * strides[axis] - pads[axis], np.arange(taps[axis])),
        )
        for axis in (0, 1)
    ]
    read = reached[0][:, None, None] & reached[1][:, None]
    values = drawn.standard_normal(shape)
    return np.where(read, values, drawn.choice(LEFT_ALONE, shape)).astype(np.float16)


def holds(work: KernelWork, constants: Constants, kernel: Kernel, compiler: Compiler, seed: int = 0) -> None:
    given = {work.anchor.inputs[0]: drawn_image(work, seed)}
    found = judged_chain(FIRST_CONVOLUTION, work, constants, kernel, compiler, seed, given)
    assert found.worst <= 1
    assert found.distance <= DISTANCE


def right(layer: int, seed: int, folder: Path, compiler: Compiler) -> None:
    draw = Random(f"first convolution {seed}")
    work, constants = work_of(drawn_layer(Random(f"first layer {layer}"), draw, seed), folder, "h200")
    holds(work, constants, draw.choice(FIRST_CONVOLUTION.offers(work)), compiler, seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.commit
def test_drawn_layers(seed: int, tmp_path: Path, compiler: Compiler) -> None:
    """Two maps for each of three layers, whose rows are copied by 16 bytes, by 4 and by 2."""
    right((44, 16, 6)[seed // 2], seed, tmp_path, compiler)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 56))
def test_more_drawn_layers(seed: int, tmp_path: Path, compiler: Compiler) -> None:
    right(seed, seed, tmp_path, compiler)


def one_layer(shape: tuple[int, int, int, int], filters: int, kernel: int, **windows: Any) -> onnx.ModelProto:
    net = Network([("x", shape)])
    return net.model(net.add("Relu", net.conv("x", filters, kernel, **windows)))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("shape", "filters", "kernel", "stride"),
    [((2, 3, 37, 40), 72, 7, 2), ((1, 3, 50, 51), 96, 11, 4), ((1, 4, 20, 23), 256, 3, 1), ((2, 1, 15, 17), 8, 5, 2)],
)
def test_every_tile_that_is_offered(
    shape: tuple[int, int, int, int], filters: int, kernel: int, stride: int, tmp_path: Path, compiler: Compiler
) -> None:
    model = one_layer(shape, filters, kernel, strides=[stride, stride], pads=[kernel // 2] * 4)
    work, constants = work_of(model, tmp_path, "h200")
    for offer in FIRST_CONVOLUTION.offers(work):
        holds(work, constants, offer, compiler)


@pytest.mark.commit
def test_filters_lie_in_planes_of_eight_slots(tmp_path: Path) -> None:
    """A window of 7 pixels of 3 channels that begins 9 halves before its row has an empty slot before the first. Of 32
    filters column 8 j + 2 q + e is filter 8 q + 2 j + e."""
    work, constants = work_of(one_layer((1, 3, 16, 16), 40, 7, strides=[2, 2], pads=[3] * 4), tmp_path, "h200")
    kernel = next(each for each in FIRST_CONVOLUTION.offers(work) if dict(each.parameters)["filters"] == 64)
    (launch,) = FIRST_CONVOLUTION.launches(work, dict(kernel.parameters), constants)
    assert isinstance(launch, Launch)
    (content,) = [place.content for place in launch.arguments if isinstance(place, Data)]
    columns = [f // 32 * 32 + f % 8 // 2 * 8 + f % 32 // 8 * 2 + f % 2 for f in range(64)]
    packed = np.frombuffer(content, np.float16).reshape(20, 64, 8).transpose(1, 0, 2).reshape(64, 160)[columns]
    rows = packed[:40, :154].reshape(40, 7, 22)
    given = constants[work.graph.by_name[work.anchor.inputs[1]].constant].reshape(40, 7, 21)
    np.testing.assert_array_equal(rows[:, :, 1:], given)
    assert not rows[:, :, 0].any()
    assert not packed[40:].any()
    assert not packed[:, 154:].any()


@pytest.mark.parametrize(
    ("channels", "filters", "windows"),
    [
        (5, 16, {}),
        (3, 16, {}),
        (4, 12, {}),
        (4, 264, {}),
        (4, 16, {"group": 2}),
        (4, 16, {"dilations": [1, 2]}),
        (4, 16, {"kernel": (1, 12)}),
    ],
)
def test_what_the_template_does_not_take(channels: int, filters: int, windows: dict[str, Any], tmp_path: Path) -> None:
    """More channels, windows that begin at odd halves, filters that are no units or too many, groups, dilated or large
    windows."""
    given = {"kernel": 3} | windows
    net = Network([("x", (1, channels, 20, 24))])
    work, _ = work_of(net.model(net.conv("x", filters, given.pop("kernel"), **given)), tmp_path, "h200")
    assert FIRST_CONVOLUTION.offers(work) == ()


@pytest.mark.parametrize(
    ("chip", "template"), [("h200", "first_convolution"), ("h100", "first_convolution"), ("a100", "conv2d")]
)
def test_chips_that_have_wgmma_use_it(chip: str, template: str, tmp_path: Path) -> None:
    model = one_layer((8, 3, 224, 224), 64, 7, strides=[2, 2], pads=[3] * 4)
    planned = plan_model(save(model, tmp_path / "net.onnx"), chip, CompileOptions(O0()))
    (group,) = planned.plan.groups
    assert read_kernel(group.kernel)[0] == template


@pytest.mark.commit
def test_through_the_artifact(tmp_path: Path) -> None:
    """From the list and files that are shipped."""
    model = one_layer((2, 3, 32, 32), 32, 3, strides=[2, 2], pads=[0, 0, 1, 1])
    assert judged(model, tmp_path, "h200").failures == ()


def test_parts_of_rows_that_do_not_fit(tmp_path: Path) -> None:
    """A row of 60,000 pixels is computed in parts, all of which fit a block of the chip."""
    work, _ = work_of(one_layer((1, 4, 8, 60_000), 32, 3), tmp_path, "h200")
    kernels = [kernel for kernel in offered(work) if kernel.template == "first_convolution"]
    assert len(kernels) == len(FIRST_CONVOLUTION.offers(work)) > 1
    for kernel in kernels:
        occupied = dict(kernel.resources)
        assert occupied["shared_bytes"] <= work.chip.simt.shared_bytes_per_block
        assert occupied["registers"] * occupied["threads"] <= work.chip.simt.registers_per_core


def test_parameters_that_were_not_offered(tmp_path: Path) -> None:
    work, constants = work_of(one_layer((1, 4, 9, 9), 64, 1), tmp_path, "h200")
    with pytest.raises(TargetError, match="needs the parameters that it was offered with"):
        FIRST_CONVOLUTION.launches(work, {"rows": 3, "pixels": 9, "filters": 64}, constants)
