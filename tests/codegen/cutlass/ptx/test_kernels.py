"""Whole kernels as nvcc compiles them, against numpy in float64."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen.cutlass.ptx import Fault, FaultKind, GlobalMemory, Limits, Module, launch, parameters
from tests.codegen.cutlass.convolutions import SHAPES, Conv2d, Shape, bound, problem, run_conv2d

Array: TypeAlias = NDArray[Any]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
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
        run_conv2d(conv2d, given, case, seed, Limits(batch_threads=threads))[0]
        for seed, threads in ((0, 4096), (1, 128), (2, 384))
    ]
    assert all(np.array_equal(results[0].view(np.uint16), other.view(np.uint16)) for other in results[1:])


def test_a_result_that_is_too_small_is_noticed(conv2d: Conv2d) -> None:
    case = problem(SHAPES[4], 3)
    shared, grid, threads, params = conv2d.parameters((case.shape,))[0]
    memory = GlobalMemory()
    for mark, array in zip((0x1111, 0x2222, 0x3333), (case.image, case.filters, case.bias), strict=True):
        params = params.replace((mark << 48).to_bytes(8, "little"), memory.allocate(array).to_bytes(8, "little"))
    small = memory.allocate(2 * case.exact.size - 16, "result")
    params = params.replace((0x4444 << 48).to_bytes(8, "little"), small.to_bytes(8, "little"))
    with pytest.raises(Fault, match=r"kernel conv2d, line \d+: out of bounds: writes .* bytes into result of") as caught:
        launch(conv2d.module, "conv2d", grid, (threads, 1, 1), params, memory, shared_bytes=shared)
    assert caught.value.kind is FaultKind.OUT_OF_BOUNDS


@pytest.mark.parametrize("kernel", ["gemm_kk", "gemm_mm", "gemm_km", "gemm_rk", "gemm_rm"])
@pytest.mark.parametrize("size", [(128, 64, 64), (200, 136, 152), (64, 8, 24)])
def test_wgmma_product(gemm: Module, kernel: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    rng = np.random.default_rng(4)
    a = (rng.standard_normal((m, k)) / k**0.5).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    result = wgmma_product(gemm, kernel, a, b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    allowed = bound(wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b), k)
    assert (np.abs(result - wide_a @ wide_b) <= allowed).all()


def wgmma_product(module: Module, kernel: str, a: Array, b: Array, seed: int = 0) -> Array:
    """a (m x k) times b (k x n) in the layouts that the kernel's name says: k-major, or mn-major."""
    (m, k), n = a.shape, b.shape[1]
    memory = GlobalMemory()
    left = memory.allocate(a if kernel[-2] in "kr" else np.ascontiguousarray(a.T), "a")
    right = memory.allocate(b if kernel[-1] == "m" else np.ascontiguousarray(b.T), "b")
    result = memory.allocate(2 * m * n, "c")
    params = parameters(module.kernels[kernel], left, right, result, m, n, k)
    grid = (-(-m // 128), -(-n // 64), 1)
    launch(module, kernel, grid, (256, 1, 1), params, memory, seed, shared_bytes=2 * 192 * 128)
    return memory.load(result, np.float16, (m, n))


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
    n, h, w, c = 2, 9, 12, 24
    x = np.random.default_rng(7).standard_normal((n, h, w, c)).astype(np.float16)
    p, q = (h + 1) // 2, (w + 1) // 2
    memory = GlobalMemory()
    size = n * p * q * c * 2
    places = [memory.allocate(x), memory.allocate(size), memory.allocate(size)]
    given = parameters(simple.kernels["pool"], *places, n, h, w, c, p, q)
    threads = n * p * q * c // 8
    launch(simple, "pool", (-(-threads // 96), 1, 1), (96, 1, 1), given, memory, seed=3)
    padded = np.full((n, h + 2, w + 2, c), np.nan)
    padded[:, 1:-1, 1:-1] = x
    windows = np.stack([padded[:, r : r + 2 * p : 2, s : s + 2 * q : 2][:, :p, :q] for r in range(3) for s in range(3)])
    np.testing.assert_array_equal(memory.load(places[1], np.float16, (n, p, q, c)), np.nanmax(windows, axis=0))
    mean = memory.load(places[2], np.float16, (n, p, q, c)).astype(np.float64)
    assert (np.abs(mean - np.nanmean(windows, axis=0)) <= 2.0**-11 * np.abs(mean) + 2.0**-20).all()


@pytest.mark.parametrize(("columns", "threads"), [(1000, 128), (7, 32), (129, 96)])
def test_softmax_by_shuffles(simple: Module, columns: int, threads: int) -> None:
    x = np.random.default_rng(8).standard_normal((5, columns)).astype(np.float16) * np.float16(4)
    memory = GlobalMemory()
    places = [memory.allocate(x), memory.allocate(x.nbytes)]
    given = parameters(simple.kernels["softmax"], *places, columns)
    launch(simple, "softmax", (5, 1, 1), (threads, 1, 1), given, memory)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    exact = wide / wide.sum(axis=1, keepdims=True)
    result = memory.load(places[1], np.float16, x.shape)
    assert (np.abs(result - exact) <= 2.0**-10 * exact + 2.0**-24).all()


def test_warps_that_hand_over_by_named_barriers(simple: Module) -> None:
    """A producer and three consumers run different code: neither may wait for the other where their ways meet."""
    x = np.random.default_rng(9).standard_normal((3, 7, 96)).astype(np.float32)
    memory = GlobalMemory()
    places = [memory.allocate(x), memory.allocate(3 * 96 * 4)]
    for seed in range(4):
        launch(simple, "pipeline", (3, 1, 1), (128, 1, 1), parameters(simple.kernels["pipeline"], *places, 7), memory, seed)
        np.testing.assert_allclose(memory.load(places[1], np.float32, (3, 96)), x.sum(axis=1), rtol=1e-5, atol=1e-5)
