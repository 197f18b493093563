"""A norm and the product of its result as one kernel, against float64: drawn shapes, rows as trained networks have
them, every tile; taken where it pays, else apart with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.families.registry import offered
from codegen.cutlass.families.wgmma.norm_product import NORM_PRODUCT, fold
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel, read_kernel
from partitioner.planners.levels import O3
from tests.codegen.cutlass.chains.chain_models import Judged, judged_chain, work_of
from tests.codegen.cutlass.chains.forced import slow_launches
from tests.codegen.cutlass.families.networks import judged
from tests.codegen.cutlass.families.norm_models import (
    INPUTS,
    NORMS,
    drawn_normed_product,
    inputs_like,
    normed_product,
)
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import save

DISTANCE = 2.0**-11
"""A rounding to fp16 at its farthest, over all elements: what is left out or added by mistake makes more."""


def on_cores(work: KernelWork, cores: int) -> KernelWork:
    """The work on an H200 of so few cores that blocks compute several tiles."""
    return replace(work, chip=work.chip.model_copy(update={"cores_per_cluster": cores}))


def found(
    work: KernelWork, constants: Constants, kernel: Kernel, compiler: Compiler, like: str, seed: int = 0
) -> Judged:
    rows = work.anchor.inputs[0]
    given = {rows: inputs_like(like, work.shape(rows), seed)}
    return judged_chain(NORM_PRODUCT, work, constants, kernel, compiler, seed, given)


def right(seed: int, folder: Path, compiler: Compiler) -> None:
    draw = Random(f"norm product {seed}")
    work, constants = work_of(drawn_normed_product(draw, seed), folder, "h200")
    work = on_cores(work, draw.choice((1, 2, 132)))
    kernel = draw.choice(NORM_PRODUCT.offers(work))
    like = list(INPUTS)[seed % len(INPUTS)]
    judged_rows = found(work, constants, kernel, compiler, like, seed)
    assert judged_rows.worst <= 1
    assert judged_rows.distance <= DISTANCE or like == "equal"  # a small epsilon makes much of roundings of means


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.commit
def test_drawn_products(seed: int, tmp_path: Path, compiler: Compiler) -> None:
    right(seed, tmp_path, compiler)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 56))
def test_more_drawn_products(seed: int, tmp_path: Path, compiler: Compiler) -> None:
    right(seed, tmp_path, compiler)


@pytest.mark.spread(2)
@pytest.mark.parametrize("like", INPUTS)
@pytest.mark.parametrize("norm", NORMS)
def test_rows_as_trained_networks_have_them(norm: str, like: str, tmp_path: Path, compiler: Compiler) -> None:
    """As wide as a small transformer, so that sums have many terms."""
    work, constants = work_of(normed_product(norm, 70, 384, 40), tmp_path, "h200")
    kernel = next(offer for offer in NORM_PRODUCT.offers(work) if dict(offer.parameters)["tile"] == "64x32")
    judged_rows = found(work, constants, kernel, compiler, like)
    assert judged_rows.worst <= 1
    assert judged_rows.distance <= DISTANCE


@pytest.mark.nightly
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("norm", NORMS)
def test_every_tile_many_times(norm: str, cores: int, tmp_path: Path, compiler: Compiler) -> None:
    """Rings of stages go round several times, and groups take turns."""
    work, constants = work_of(normed_product(norm, 300, 328, 200, activation="Relu"), tmp_path, "h200")
    few = on_cores(work, cores)
    for offer in NORM_PRODUCT.offers(few):
        assert found(few, constants, offer, compiler, "far").worst <= 1


def lost(scaled: npt.NDArray[np.float64], filters: npt.NDArray[np.generic]) -> float:
    """The largest error of a folded filter over its own size."""
    folded = fold(filters, None, None, None)
    exact = folded.weights.astype(np.float64) * folded.columns[0][:, None]
    return float((np.linalg.norm(exact - scaled, axis=1) / np.linalg.norm(scaled, axis=1)).max())


@pytest.mark.commit
@pytest.mark.parametrize("size", [2.0**-14, 1.0, 60000.0])
def test_filters_of_any_size_keep_their_digits(size: float) -> None:
    filters = (np.random.default_rng(0).uniform(-1, 1, (9, 64)) * size).astype(np.float16)
    assert lost(filters.astype(np.float64), filters) <= 2.0**-11


@pytest.mark.commit
def test_scale_and_shift_go_into_weights_and_biases() -> None:
    random = np.random.default_rng(1)
    filters, bias = random.standard_normal((5, 16)).astype(np.float16), random.standard_normal(5)
    scale, shift, x = random.standard_normal((3, 16))
    folded = fold(filters, scale, shift, bias)
    powers, sums, biases = folded.columns.astype(np.float64)
    centred = x - x.mean()
    products = folded.weights.astype(np.float64) @ x - x.mean() * sums
    np.testing.assert_allclose(products * powers + biases, filters @ (centred * scale + shift) + bias, atol=0.02)
    assert set(np.frexp(powers)[0]) == {0.5}


@pytest.mark.commit
def test_numbers_lie_by_tiles() -> None:
    folded = fold(np.ones((40, 8), np.float16), None, None, np.arange(40.0))
    tiles = np.frombuffer(folded.by_tiles(32), np.float32).reshape(2, 3, 32)
    np.testing.assert_array_equal(tiles[1, 2, :8], np.arange(32, 40))
    assert not tiles[1, :, 8:].any()


@pytest.mark.commit
def test_filters_of_zeros() -> None:
    folded = fold(np.zeros((8, 16), np.float16), np.ones(16), np.ones(16), None)
    assert np.isfinite(folded.columns).all()
    assert not folded.weights.any()


def two_readers(b: ModelBuilder) -> str:
    y = b.node("LayerNormalization", b.input(40, 64), b.weights(64), axis=-1)
    return b.node("Add", b.node("MatMul", y, b.weights(64, 64)), y)


def whole_planes(b: ModelBuilder) -> str:
    y = b.node("LayerNormalization", b.input(5, 8, 64), b.weights(8, 64), axis=1)
    return b.node("MatMul", y, b.weights(64, 64))


def computed_scale(b: ModelBuilder) -> str:
    y = b.node("LayerNormalization", b.input(40, 64), b.input(64), axis=-1)
    return b.node("MatMul", y, b.weights(64, 64))


def activated(b: ModelBuilder) -> str:
    y = b.node("Relu", b.node("LayerNormalization", b.input(40, 64), b.weights(64), axis=-1))
    return b.node("MatMul", y, b.weights(64, 64))


def of_values(b: ModelBuilder) -> str:
    y = b.node("LayerNormalization", b.input(64, 64), b.weights(64), axis=-1)
    return b.node("MatMul", b.input(64, 64), y)


def odd_depth(b: ModelBuilder) -> str:
    y = b.node("LayerNormalization", b.input(40, 60), b.weights(60), axis=-1)
    return b.node("MatMul", y, b.weights(60, 64))


def no_epsilon(b: ModelBuilder) -> str:
    y = b.node("LayerNormalization", b.input(40, 64), b.weights(64), axis=-1, attributes={"epsilon": 0.0})
    return b.node("MatMul", y, b.weights(64, 64))


@pytest.mark.parametrize(
    "build",
    [two_readers, whole_planes, computed_scale, activated, of_values, odd_depth, no_epsilon],
)
def test_what_the_template_does_not_take(build: Callable[[ModelBuilder], str], tmp_path: Path) -> None:
    b = ModelBuilder(opset=23)
    work, _ = work_of(b.model(build(b)), tmp_path, "h200")
    work = replace(work, layers=tuple(layer for layer in work.layers if not layer.is_view(work.graph)))
    assert len(work.layers) == 2
    assert NORM_PRODUCT.offers(work) == ()


def test_a_norm_that_leaves_the_network(tmp_path: Path) -> None:
    b = ModelBuilder(opset=23)
    y = b.node("LayerNormalization", b.input(40, 64), b.weights(64), axis=-1)
    work, _ = work_of(b.model(b.node("MatMul", y, b.weights(64, 64)), y), tmp_path, "h200")
    assert NORM_PRODUCT.offers(work) == ()


def planned(model: onnx.ModelProto, folder: Path, chip: str) -> list[str]:
    plan = plan_model(save(model, folder / "net.onnx"), chip, CompileOptions(O3())).plan
    return [read_kernel(group.kernel)[0] for group in plan.groups if group.kernel]


@pytest.mark.commit
@pytest.mark.parametrize(
    ("chip", "templates"),
    [("h200", ["norm_product"]), ("h100", ["norm_product"]), ("a100", ["lines", "gemm"])],
)
def test_chips_that_have_wgmma_use_it(chip: str, templates: list[str], tmp_path: Path) -> None:
    """A norm and a product of ViT-B/16."""
    model = normed_product("LayerNormalization", 197, 768, 768, activation="Gelu")
    assert planned(model, tmp_path, chip) == templates


def test_the_plan_says_what_both_ways_take(tmp_path: Path) -> None:
    model = normed_product("LayerNormalization", 197, 768, 768)
    plan = plan_model(save(model, tmp_path / "net.onnx"), "h200", CompileOptions(O3())).plan
    (said,) = [each for each in plan.decisions if each.verdict.startswith("one kernel with")]
    assert said.reason.startswith("norm_product(")
    assert " us expected (" in said.reason
    assert "separately they take" in said.reason


@pytest.mark.commit
def test_through_the_artifact(tmp_path: Path) -> None:
    """From the list and files that are shipped, with a residual."""
    model = normed_product("LayerNormalization", 70, 72, 40, activation="Relu", summed=True)
    report = judged(model, tmp_path, "h200", level="O3")
    assert report.failures == ()


@pytest.mark.parametrize("leaves", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_products_that_read_one_norm(leaves: bool, tmp_path: Path) -> None:
    """As gate and width of a feed-forward, of which one may be a result of the network: one kernel, started twice."""
    b = ModelBuilder(opset=23)
    y = b.node("RMSNormalization", b.input(70, 72), b.weights(72), axis=-1)
    gate, wide = (b.node("MatMul", y, b.weights(72, columns)) for columns in (64, 40))
    model = b.model(b.node("Sigmoid", gate), wide) if leaves else b.model(gate, b.node("Relu", wide))
    work, _ = work_of(model, tmp_path, "h200")
    assert {kernel.launches for kernel in NORM_PRODUCT.offers(work)} == {2}
    chip = slow_launches("h200", tmp_path)
    assert planned(model, tmp_path, str(chip)) == ["norm_product"]
    assert judged(model, tmp_path, str(chip), level="O3").failures == ()


def test_a_product_that_adds_another_one(tmp_path: Path) -> None:
    """The other one would be stored nowhere."""
    b = ModelBuilder(opset=23)
    y = b.node("RMSNormalization", b.input(70, 72), b.weights(72), axis=-1)
    first, second = (b.node("MatMul", y, b.weights(72, 64)) for _ in range(2))
    work, _ = work_of(b.model(b.node("Add", first, second)), tmp_path, "h200")
    assert len(work.layers) == 3
    assert NORM_PRODUCT.offers(work) == ()


def test_what_is_offered_fits_the_chip_and_costs_more_than_the_product(tmp_path: Path) -> None:
    work, _ = work_of(normed_product("RMSNormalization", 900, 768, 768), tmp_path, "h200")
    kernels = {kernel.text.partition("(")[2]: kernel for kernel in offered(work)}
    alone = offered(KernelWork(work.graph, work.layers[1:], work.chip))
    plain = {kernel.text.partition("(")[2]: kernel for kernel in alone if kernel.template == "wgmma_layer"}
    assert len(kernels) > 5
    for parameters, kernel in kernels.items():
        assert dict(kernel.resources)["shared_bytes"] <= work.chip.simt.shared_bytes_per_block
        both = (kernel, plain[parameters])
        floors, of_product = ({floor.name: floor.seconds for floor in each.floors} for each in both)
        assert floors["tensor"] > of_product["tensor"]
        assert floors["shared"] > of_product["shared"]


@pytest.mark.parametrize("weight", [np.inf, np.nan])
def test_constants_that_are_not_finite(weight: float, tmp_path: Path) -> None:
    b = ModelBuilder(opset=23)
    scale = np.where(np.arange(64) == 9, weight, 1.0)
    y = b.node("LayerNormalization", b.input(40, 64), b.constant(scale), axis=-1)
    work, constants = work_of(b.model(b.node("MatMul", y, b.weights(64, 64))), tmp_path, "h200")
    with pytest.raises(TargetError, match="layernormalization0: needs finite constants, also of matmul1"):
        NORM_PRODUCT.launches(work, dict(NORM_PRODUCT.offers(work)[0].parameters), constants)


def test_parameters_that_were_not_offered(tmp_path: Path) -> None:
    work, constants = work_of(normed_product("RMSNormalization", 40, 64, 64), tmp_path, "h200")
    with pytest.raises(TargetError, match="needs the parameters that it was offered with"):
        NORM_PRODUCT.launches(work, {"tile": "128x48"}, constants)
