"""CUTLASS 3's wgmma product: its launch parameters, its inputs, and its error against numpy in float64.

Warps that load by cp.async hand stages over to warps that multiply, through mbarriers; no TMA. Neither the copies nor
the zeros that ragged edges are cleared with are followed by fence.proxy.async, so that fault is not looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.ptx_cases.convolutions import bound
from benchmarks.ptx_cases.printed_parameters import Given, printed_parameters
from benchmarks.ptx_cases.products import worst
from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.ptx import GlobalMemory, Module, PtxLimits, Statistics, launch, parse

__all__ = ["Gemm90", "gemm90_error", "gemm90_launches"]

KERNEL = "gemm_sm90"


@dataclass(frozen=True, slots=True)
class Gemm90:
    """The kernel, its text, and the program that prints parameters."""

    module: Module
    text: str
    program: bytes

    def given(self, size: tuple[int, int, int]) -> Given:
        """The launch for rows, columns, depth; columns and depth are multiples of 4."""
        (found,) = printed_parameters(self.program, size)
        return found


def gemm90_launches(compiler: Compiler, source: str) -> Gemm90:
    """Compiles kernel and program."""
    text = compiler.ptx(source, "90a", cutlass=True, name="gemm_sm90.cu")
    program = compiler.program("#define PARAMETERS\n" + source, cutlass=True, name="gemm_sm90.cu")
    return Gemm90(parse(text), text, program)


def gemm90_error(
    module: Module,
    given: Given,
    size: tuple[int, int, int],
    seed: int = 0,
    limits: PtxLimits | None = None,
    *,
    proxy_fences: bool = False,
) -> tuple[float, Statistics]:
    """The largest error of a random a b + c in parts of what is allowed; NaN counts as infinite."""
    m, n, k = size
    rng = np.random.default_rng(11)
    a = (rng.standard_normal((m, k)) / k**0.5).astype(np.float16)
    b, c = (rng.standard_normal(shape).astype(np.float16) for shape in ((n, k), (m, n)))
    memory = GlobalMemory()
    places = (
        memory.allocate(a, "a"), memory.allocate(b, "b"), memory.allocate(c, "c"), memory.allocate(2 * m * n, "d"),
    )  # fmt: skip
    done = launch(
        module, KERNEL, given.grid, (given.threads, 1, 1), given.at(places), memory, seed,
        shared_bytes=given.shared_bytes, limits=limits, proxy_fences=proxy_fences,
    )  # fmt: skip
    left, right, addend = (array.astype(np.float64) for array in (a, b.T, c))
    exact = left @ right + addend
    allowed = bound(exact, np.abs(left) @ np.abs(right) + np.abs(addend), k)
    return worst(memory.load(places[3], np.float16, (m, n)), exact, allowed), done
