"""Kernels for the executor's tests, compiled once a session; nvcc's results stay in pytest's cache between runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.ptx_cases.convolutions import Conv2d, conv2d_launches
from benchmarks.ptx_cases.cutlass3 import Gemm90, gemm90_launches
from codegen.cutlass.emission.nvcc import Compiler, find_nvcc
from codegen.cutlass.ptx import Module, parse

KERNELS = Path(__file__).parents[3] / "benchmarks" / "ptx_cases" / "kernels"


@pytest.fixture(scope="session")
def compiler(request: pytest.FixtureRequest) -> Compiler:
    """nvcc is a test dependency: where it is missing, this fails and says what to install."""
    assert request.config.cache is not None
    return find_nvcc(request.config.cache.mkdir("nvcc"))


@pytest.fixture(scope="session")
def simple_ptx(compiler: Compiler) -> str:
    """Text of the kernels without matrix instructions."""
    return compiler.ptx((KERNELS / "simple.cu").read_text(encoding="utf-8"), "80", name="simple.cu")


@pytest.fixture(scope="session")
def simple(simple_ptx: str) -> Module:
    """Element-wise, pooling, softmax, a pipeline of warps."""
    return parse(simple_ptx)


@pytest.fixture(scope="session")
def gemm_ptx(compiler: Compiler) -> str:
    """Text of the wgmma products."""
    return compiler.ptx((KERNELS / "gemm_wgmma.cu").read_text(encoding="utf-8"), "90a", name="gemm_wgmma.cu")


@pytest.fixture(scope="session")
def gemm(gemm_ptx: str) -> Module:
    """Products by wgmma of every layout."""
    return parse(gemm_ptx)


@pytest.fixture(scope="session")
def conv2d(compiler: Compiler) -> Conv2d:
    """CUTLASS's convolution, and how its launches look."""
    return conv2d_launches(compiler, (KERNELS / "conv2d.cu").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def gemm_sm90(compiler: Compiler) -> Gemm90:
    """CUTLASS 3's product, and how its launches look."""
    return gemm90_launches(compiler, (KERNELS / "gemm_sm90.cu").read_text(encoding="utf-8"))
