"""Layers by wgmma whose depth is divided among blocks, against float64: drawn shapes, every tile and number of parts,
the same bits in any order of blocks; offered and chosen where whole tiles leave cores idle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

import hw_models
from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.families.registry import offered
from codegen.cutlass.families.wgmma.split_layer import SPLIT_LAYER
from codegen.cutlass.families.wgmma.wgmma_layer import WGMMA_LAYER
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import TargetError
from partitioner.ir.kernels import Kernel, read_kernel
from partitioner.planners.levels import O0
from tests.codegen.cutlass.chains.chain_models import ACTIVATIONS, executed, judged_chain, work_of
from tests.codegen.cutlass.families.networks import Network, judged
from tests.codegen.cutlass.families.test_wgmma_layer import DISTANCE, finished, on_cores, one_layer
from tests.small_models import save


def drawn_convolution(draw: Random, seed: int) -> onnx.ModelProto:
    """Few pixels, many channels: windows, strides, dilations and pads of every kind."""
    taps = draw.choice(((1, 1), (3, 3), (draw.randint(1, 5), draw.randint(1, 5))))
    strides, dilations = ([draw.choice((1, 1, 2)) for _ in range(2)] for _ in range(2))
    pads = [draw.randint(0, taps[axis] // 2) for axis in (0, 1, 0, 1)]
    reach = [dilations[axis] * (taps[axis] - 1) + 1 for axis in (0, 1)]
    steps = draw.randint(6, 20)
    batch, channels, filters = draw.randint(1, 2), max(48, 64 * steps // (taps[0] * taps[1])), 8 * draw.randint(1, 20)
    channels += 8 * draw.randint(0, 7) - channels % 8
    image = [draw.randint(reach[axis], reach[axis] + 7) for axis in (0, 1)]
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
    rows, depth, columns = draw.choice((1, draw.randint(2, 150))), 8 * draw.randint(48, 130), 8 * draw.randint(1, 30)
    net = Network([("x", (rows, depth))], seed)
    y = net.add("MatMul", "x", net.drawn(depth, columns, scale=float(depth) ** -0.5))
    y = net.add("Add", y, net.drawn(columns)) if draw.random() < 0.7 else y
    return finished(net, y, draw.choice(ACTIVATIONS), "")


def right(seed: int, folder: Path, compiler: Compiler) -> None:
    draw = Random(f"split layer {seed}")
    model = drawn_product(draw, seed) if seed % 3 == 2 else drawn_convolution(draw, seed)
    work, constants = work_of(model, folder, "h200")
    offers = SPLIT_LAYER.offers(on_cores(work, draw.choice((24, 60, 132))))
    holds(on_cores(work, 132), constants, draw.choice(offers), compiler, seed)


def holds(work: KernelWork, constants: Any, kernel: Kernel, compiler: Compiler, seed: int = 0) -> None:
    found = judged_chain(SPLIT_LAYER, work, constants, kernel, compiler, seed)
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


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("shape", "filters", "kernel"), [((1, 1160, 9, 7), 168, 1), ((1, 136, 7, 11), 72, 3)], ids=["1x1", "3x3"]
)
def test_every_tile(
    shape: tuple[int, int, int, int], filters: int, kernel: int, tmp_path: Path, compiler: Compiler
) -> None:
    """Of each tile the fewest and the most parts, so that rings of stages go round, and are not filled."""
    work, constants = work_of(one_layer(shape, filters, kernel, pads=[kernel // 2] * 4), tmp_path, "h200")
    for tile in WGMMA_LAYER.offers(work):
        named = dict(tile.parameters)
        for parts in (2, 5):
            given = replace(tile, template="split_layer", parameters=(*named.items(), ("parts", parts)))
            holds(work, constants, given, compiler)


def test_equal_bits_in_any_order_of_blocks(tmp_path: Path, compiler: Compiler) -> None:
    """Sums of other parts first would round otherwise."""
    work, constants = work_of(one_layer((1, 1024, 5, 5), 96, 1), tmp_path, "h200")
    kernel = max(SPLIT_LAYER.offers(work), key=lambda offer: int(dict(offer.parameters)["parts"]))
    assert int(dict(kernel.parameters)["parts"]) > 3
    x = np.random.default_rng(0).standard_normal(work.shape("x")).astype(np.float16)
    stored = [executed(SPLIT_LAYER, work, constants, kernel, compiler, {"x": x}, order).tobytes() for order in range(3)]
    assert stored[0] == stored[1] == stored[2]


@pytest.mark.commit
def test_through_the_artifact(tmp_path: Path) -> None:
    """A convolution of one image with a sum, from the list and files that are shipped: the planner has split it."""
    net = Network([("x", (1, 2048, 3, 5)), ("r", (1, 40, 3, 5))])
    y = net.add("Relu", net.add("Add", net.conv("x", 40, 1), "r"))
    model = net.model(y)
    planned = plan_model(save(model, tmp_path / "net.onnx"), "h200", CompileOptions(O0()))
    assert [read_kernel(group.kernel)[0] for group in planned.plan.groups] == ["split_layer"]
    assert judged(model, tmp_path, "h200").failures == ()


def offers_of(model: onnx.ModelProto, folder: Path) -> tuple[KernelWork, tuple[Kernel, ...]]:
    work, _ = work_of(model, folder, "h200")
    return work, tuple(kernel for kernel in offered(work) if kernel.template == "split_layer")


@pytest.mark.parametrize(
    ("shape", "filters", "kernel"),
    [((8, 256, 28, 28), 512, 3), ((1, 512, 40, 40), 2048, 1), ((1, 320, 7, 7), 64, 1)],
    ids=["every core has a tile", "so by small tiles", "too few steps"],
)
def test_where_nothing_is_to_be_split(
    shape: tuple[int, int, int, int], filters: int, kernel: int, tmp_path: Path
) -> None:
    _, kernels = offers_of(one_layer(shape, filters, kernel), tmp_path)
    assert kernels == ()


def test_rates_of_other_templates_must_promise_more_than_their_error(tmp_path: Path) -> None:
    """A product that is expected to be a little faster in parts stays whole where no layer in parts was measured."""
    lines = (
        (Path(hw_models.__file__).parent / "chips" / "h200.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    )
    chip = tmp_path / "unmeasured.yaml"
    chip.write_text("".join(line for line in lines if "split_layer" not in line), encoding="utf-8")
    net = Network([("x", (576, 1536))])
    model = net.model(net.add("MatMul", "x", net.constant(np.full((1536, 512), 0.1))))
    work, _ = work_of(model, tmp_path, str(chip))
    fastest, whole = (
        min((kernel for kernel in offered(work) if kernel.template == template), key=lambda kernel: kernel.seconds)
        for template in ("split_layer", "wgmma_layer")
    )
    assert fastest.seconds < whole.seconds < fastest.seconds * (1 + fastest.error)
    planned = plan_model(tmp_path / "net.onnx", str(chip), CompileOptions(O0()))
    assert [group.kernel for group in planned.plan.groups] == [whole.text]


def test_no_core_computes_two_parts_and_each_has_several_steps(tmp_path: Path) -> None:
    work, kernels = offers_of(one_layer((1, 512, 7, 7), 512, 3, pads=[1] * 4), tmp_path)
    assert len(kernels) > 4
    for kernel in kernels:
        (blocks,) = kernel.blocks
        parts = int(dict(kernel.parameters)["parts"])
        assert blocks <= work.chip.cores_per_cluster
        assert blocks % parts == 0
        assert 72 // parts >= 3


def test_floors_have_what_parts_move(tmp_path: Path) -> None:
    """Twice through the L2, and as many steps as the longest part has."""
    work, kernels = offers_of(one_layer((1, 512, 7, 7), 512, 3, pads=[1] * 4), tmp_path)
    whole = {offer.parameters: offer for offer in offered(work) if offer.template == "wgmma_layer"}
    bandwidth = (work.chip.memory("L2").bandwidth_bytes_per_cycle or 0.0) * work.chip.clock_hz
    for kernel in kernels:
        parts = int(dict(kernel.parameters)["parts"])
        split, one = ({f.name: f.seconds for f in k.floors} for k in (kernel, whole[kernel.parameters[:-1]]))
        assert split["L2"] - one["L2"] == pytest.approx(2 * 4 * parts * 49 * 512 / bandwidth)
        assert split["tensor"] == pytest.approx(one["tensor"] * -(-72 // parts) / 72)
        assert split["HBM"] == one["HBM"]
        assert kernel.seconds >= 2 * kernel.launch_seconds + max(split.values())


def test_parameters_that_were_not_offered(tmp_path: Path) -> None:
    work, constants = work_of(one_layer((1, 512, 7, 7), 64, 1), tmp_path, "h200")
    with pytest.raises(TargetError, match="needs the parameters that it was offered with"):
        SPLIT_LAYER.launches(work, {"tile": "64x64", "parts": 3}, constants)
