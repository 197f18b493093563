"""The problems of the other kernels: matrix products by wgmma, pooling, softmax, pipelines of warps."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.ptx_cases.convolutions import bound
from codegen.cutlass.ptx import GlobalMemory, Module, PtxLimits, Statistics, launch, parameters

__all__ = ["pipeline_error", "pool_error", "softmax_error", "stream_error", "wgmma_error", "wgmma_product", "worst"]

Array: TypeAlias = NDArray[Any]


def wgmma_product(
    module: Module, kernel: str, a: Array, b: Array, seed: int = 0, limits: PtxLimits | None = None
) -> tuple[Array, Statistics]:
    """a (m x k) times b (k x n) in the layouts that the kernel's name says: k-major, or mn-major."""
    (m, k), n = a.shape, b.shape[1]
    memory = GlobalMemory()
    left = memory.allocate(a if kernel[-2] in "kr" else np.ascontiguousarray(a.T), "a")
    right = memory.allocate(b if kernel[-1] == "m" else np.ascontiguousarray(b.T), "b")
    result = memory.allocate(2 * m * n, "c")
    params = parameters(module.kernels[kernel], left, right, result, m, n, k)
    grid = (-(-m // 128), -(-n // 64), 1)
    done = launch(module, kernel, grid, (256, 1, 1), params, memory, seed, shared_bytes=2 * 192 * 128, limits=limits)
    return memory.load(result, np.float16, (m, n)), done


def wgmma_error(
    module: Module, kernel: str, size: tuple[int, int, int], limits: PtxLimits | None = None
) -> tuple[float, Statistics]:
    """The largest error of a random product, in parts of what is allowed; NaN counts as infinite."""
    m, n, k = size
    rng = np.random.default_rng(4)
    a = (rng.standard_normal((m, k)) / k**0.5).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    result, done = wgmma_product(module, kernel, a, b, limits=limits)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    allowed = bound(wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b), k)
    return worst(result, wide_a @ wide_b, allowed), done


def worst(result: Array, exact: Array, allowed: Array) -> float:
    """The largest error in parts of what is allowed; NaN counts as infinite."""
    share = np.abs(result.astype(np.float64) - exact) / allowed
    return float(np.where(np.isnan(share), np.inf, share).max())


def softmax_error(
    module: Module, rows: int, columns: int, threads: int, limits: PtxLimits | None = None
) -> tuple[float, Statistics]:
    """One block a row."""
    x = np.random.default_rng(8).standard_normal((rows, columns)).astype(np.float16) * np.float16(4)
    memory = GlobalMemory()
    places = [memory.allocate(x, "x"), memory.allocate(x.nbytes, "y")]
    given = parameters(module.kernels["softmax"], *places, columns)
    done = launch(module, "softmax", (rows, 1, 1), (threads, 1, 1), given, memory, limits=limits)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    exact = wide / wide.sum(axis=1, keepdims=True)
    return worst(memory.load(places[1], np.float16, x.shape), exact, 2.0**-10 * exact + 2.0**-24), done


def pipeline_error(
    module: Module, blocks: int, chunks: int, seed: int = 0, limits: PtxLimits | None = None
) -> tuple[float, Statistics]:
    """A warp that writes a ring and three that read it."""
    x = np.random.default_rng(9).standard_normal((blocks, chunks, 96)).astype(np.float32)
    memory = GlobalMemory()
    places = [memory.allocate(x, "x"), memory.allocate(blocks * 96 * 4, "y")]
    given = parameters(module.kernels["pipeline"], *places, chunks)
    done = launch(module, "pipeline", (blocks, 1, 1), (128, 1, 1), given, memory, seed, limits=limits)
    allowed = 2.0**-23 * np.abs(x).sum(axis=1, dtype=np.float64) * chunks
    exact = x.sum(axis=1, dtype=np.float64)
    return worst(memory.load(places[1], np.float32, (blocks, 96)), exact, allowed), done


def stream_error(
    module: Module, blocks: int, chunks: int, seed: int = 0, limits: PtxLimits | None = None
) -> tuple[float, Statistics]:
    """A thread that fills stages by bulk copies and two warps that add up what is there."""
    x = np.random.default_rng(10).standard_normal((blocks, chunks, 2, 256)).astype(np.float16)
    memory = GlobalMemory()
    places = [memory.allocate(x, "x"), memory.allocate(blocks * 256 * 4, "y")]
    given = parameters(module.kernels["stream"], *places, chunks)
    done = launch(module, "stream", (blocks, 1, 1), (96, 1, 1), given, memory, seed, limits=limits)
    wide = x.astype(np.float64)
    exact, allowed = wide.sum(axis=(1, 2)), 2.0**-23 * np.abs(wide).sum(axis=(1, 2)) * 2 * chunks
    return worst(memory.load(places[1], np.float32, (blocks, 256)), exact, allowed), done


def pool_error(
    module: Module, n: int, h: int, w: int, c: int, limits: PtxLimits | None = None
) -> tuple[float, Statistics]:
    """Largest values and means of windows of 3 x 3 at every second place; c is a multiple of 8."""
    x = np.random.default_rng(7).standard_normal((n, h, w, c)).astype(np.float16)
    p, q = (h + 1) // 2, (w + 1) // 2
    memory = GlobalMemory()
    size = n * p * q * c * 2
    places = [memory.allocate(x, "x"), memory.allocate(size, "largest"), memory.allocate(size, "mean")]
    given = parameters(module.kernels["pool"], *places, n, h, w, c, p, q)
    threads = n * p * q * c // 8
    done = launch(module, "pool", (-(-threads // 96), 1, 1), (96, 1, 1), given, memory, seed=3, limits=limits)
    padded = np.full((n, h + 2, w + 2, c), np.nan)
    padded[:, 1:-1, 1:-1] = x
    windows = np.stack([padded[:, r : r + 2 * p : 2, s : s + 2 * q : 2][:, :p, :q] for r in range(3) for s in range(3)])
    largest, mean = np.nanmax(windows, axis=0), np.nanmean(windows, axis=0)
    shape = (n, p, q, c)
    exactly = worst(memory.load(places[1], np.float16, shape), largest, np.full(shape, 2.0**-30))
    about = worst(memory.load(places[2], np.float16, shape), mean, 2.0**-11 * np.abs(mean) + 2.0**-20)
    return max(exactly, about), done
