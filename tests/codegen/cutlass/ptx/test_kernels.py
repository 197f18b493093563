"""Whole kernels as nvcc compiles them, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ptx_cases.convolutions import SHAPES, Conv2d, Shape, problem, run_conv2d
from benchmarks.ptx_cases.cutlass3 import Gemm90, gemm90_error
from benchmarks.ptx_cases.products import pipeline_error, pool_error, softmax_error, wgmma_error
from benchmarks.ptx_cases.tvm_pools import compiled_pool, tvm_pool_error
from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.ptx import FaultKind, GlobalMemory, KernelFault, Module, PtxLimits, launch, parameters


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.commit
def test_cutlass_convolution(conv2d: Conv2d, shape: Shape) -> None:
    case = problem(shape, 1)
    (given,) = conv2d.parameters((shape,))
    result, done = run_conv2d(conv2d, given, case)
    assert (np.abs(result - case.exact) <= case.allowed).all()
    n, p, q, k = shape.result
    assert done.macs >= n * p * q * k * shape.r * shape.s * shape.c


def test_neither_the_order_nor_the_number_of_blocks_at_once_changes_bits(conv2d: Conv2d) -> None:
    case = problem(SHAPES[1], 2)
    (given,) = conv2d.parameters((case.shape,))
    results = [
        run_conv2d(conv2d, given, case, seed, PtxLimits(batch_threads=threads))[0]
        for seed, threads in ((0, 4096), (1, 128), (2, 384))
    ]
    assert all(np.array_equal(results[0].view(np.uint16), other.view(np.uint16)) for other in results[1:])


def test_a_result_that_is_too_small_is_noticed(conv2d: Conv2d) -> None:
    case = problem(SHAPES[4], 3)
    given = conv2d.parameters((case.shape,))[0]
    memory = GlobalMemory()
    places = [memory.allocate(array) for array in (case.image, case.filters, case.bias)]
    params = given.at((*places, memory.allocate(2 * case.exact.size - 16, "result")))
    with pytest.raises(
        KernelFault, match=r"kernel conv2d, line \d+: out of bounds: writes .* bytes into result of"
    ) as caught:
        launch(
            conv2d.module, "conv2d", given.grid, (given.threads, 1, 1), params, memory, shared_bytes=given.shared_bytes
        )
    assert caught.value.kind is FaultKind.OUT_OF_BOUNDS


@pytest.mark.parametrize("kernel", ["gemm_kk", "gemm_mm", "gemm_km", "gemm_rk", "gemm_rm"])
@pytest.mark.parametrize("size", [(128, 64, 64), (200, 136, 152), (64, 8, 24)])
@pytest.mark.commit
def test_wgmma_product(gemm: Module, kernel: str, size: tuple[int, int, int]) -> None:
    error, done = wgmma_error(gemm, kernel, size)
    assert error <= 1
    assert done.macs >= size[0] * size[1] * size[2]


@pytest.mark.nightly  # nvcc takes 40 seconds for CUTLASS 3
@pytest.mark.parametrize("size", [(128, 64, 64), (200, 136, 152), (130, 68, 36), (128, 64, 512)], ids=str)
def test_cutlass_3_product_by_warps_that_load_and_warps_that_multiply(
    gemm_sm90: Gemm90, size: tuple[int, int, int]
) -> None:
    given = gemm_sm90.given(size)
    for seed in range(3):
        error, done = gemm90_error(gemm_sm90.module, given, size, seed)
        assert error <= 1
        assert done.macs >= size[0] * size[1] * size[2]


@pytest.mark.nightly
def test_cutlass_3_has_no_proxy_fence_between_copies_and_products(gemm_sm90: Gemm90) -> None:
    """PTX asks for one between writes of cp.async and reads of wgmma; CUTLASS 4.2's mainloop goes without."""
    size = (128, 64, 64)
    with pytest.raises(KernelFault, match=r"without fence\.proxy\.async in between") as caught:
        gemm90_error(gemm_sm90.module, gemm_sm90.given(size), size, proxy_fences=True)
    assert caught.value.kind is FaultKind.FENCE


def test_elementwise(simple: Module) -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(10_007).astype(np.float16) for _ in range(2))
    memory = GlobalMemory()
    places = [memory.allocate(x), memory.allocate(y), memory.allocate(x.nbytes)]
    launch(simple, "relu_add", (40, 1, 1), (256, 1, 1), parameters(simple.kernels["relu_add"], *places, x.size), memory)
    expected = np.maximum(x.astype(np.float32) + y.astype(np.float32), 0).astype(np.float16)
    np.testing.assert_array_equal(memory.load(places[2], np.float16, x.shape), expected)


def test_pairs_of_halves(simple: Module) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((37, 24)).astype(np.float16)
    scale, bias = (rng.standard_normal(24).astype(np.float16) for _ in range(2))
    memory = GlobalMemory()
    places = [memory.allocate(array) for array in (x, scale, bias, np.zeros_like(x))]
    given = parameters(simple.kernels["scale_bias"], *places, x.size // 2, 12)
    launch(simple, "scale_bias", (2, 1, 1), (64, 1, 1), given, memory)
    exact = x.astype(np.float64) * scale.astype(np.float64) + bias.astype(np.float64)
    np.testing.assert_array_equal(memory.load(places[3], np.float16, x.shape), exact.astype(np.float16))


def test_pooling(simple: Module) -> None:
    assert pool_error(simple, 2, 9, 12, 24)[0] <= 1


@pytest.mark.parametrize("mean", [False, True], ids=["largest", "mean"])
@pytest.mark.parametrize("shape", [(2, 9, 12, 24), (1, 14, 15, 16)], ids=str)
@pytest.mark.commit
def test_pooling_compiled_by_tvm(compiler: Compiler, shape: tuple[int, int, int, int], *, mean: bool) -> None:
    """CUDA source of TVM's own schedules: blocks of 1024 threads for largest values, a block for each mean."""
    pool = compiled_pool(compiler, shape, mean=mean)
    assert len(pool.launches) == (2 if mean else 1)
    for seed in range(2):
        assert tvm_pool_error(pool, seed) <= 1


@pytest.mark.parametrize(("columns", "threads"), [(1000, 128), (7, 32), (129, 96)])
def test_softmax_by_shuffles(simple: Module, columns: int, threads: int) -> None:
    assert softmax_error(simple, 5, columns, threads)[0] <= 1


@pytest.mark.parametrize("seed", range(4))
def test_warps_that_hand_over_by_named_barriers(simple: Module, seed: int) -> None:
    """A producer and three consumers run different code: neither may wait for the other where their ways meet."""
    assert pipeline_error(simple, 3, 7, seed)[0] <= 1
