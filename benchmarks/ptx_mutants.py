"""What the executor of PTX notices: `python benchmarks/ptx_mutants.py [--kernel NAME] [--json FILE]`.

Kernels of CUTLASS 2 and 3 and of tests, which are right, changed in one place each (`benchmarks/ptx_changes.py`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.output import add_outputs, keep
from benchmarks.ptx_cases.convolutions import SHAPES, Conv2d, Shape, conv2d_launches, problem, run_conv2d
from benchmarks.ptx_cases.cutlass3 import Gemm90, gemm90_error, gemm90_launches
from benchmarks.ptx_cases.products import (
    pipeline_error,
    pool_error,
    softmax_error,
    stream_error,
    wgmma_error,
    worst,
)
from benchmarks.ptx_changes import BULK, COPIES, FRAGMENTS, GROUPS, MOVED, PHASES, Case, Error, alone, studied
from codegen.cutlass.emission.nvcc import Compiler, find_nvcc
from codegen.cutlass.ptx import Module, PtxLimits, Statistics
from codegen.cutlass.sources import source_text

__all__ = ["EQUIVALENT", "KERNELS", "LEAST", "cases", "main", "stream_source"]

KERNELS: Final = Path(__file__).parent / "ptx_cases" / "kernels"
LEAST: Final = 60
STEPS: Final = PtxLimits(max_steps=60_000)
"""Far more than any right kernel here needs, so that endless mutants end soon."""

EDGE: Final = "numbers beyond the edge of K meet zeros of the other operand, rows beyond M or N are not stored"
PAIR: Final = "the barriers 3 and 4 stand one after the other with no access of shared memory in between"
TAIL: Final = "loading warps wait for the last stages before they end, for the sake of other blocks of a cluster"
EQUIVALENT: Final[dict[str, str]] = {
    "conv2d: barrier dropped 3": PAIR,
    "conv2d: barrier dropped 4": PAIR,
    "conv2d: barrier moved 4": PAIR,
    "conv2d: barrier moved 5": PAIR,
    "conv2d: commit dropped 4": "cp.async.wait_all follows, which waits for copies in no group too",
    **{f"gemm_kk: copy unbounded {place}": EDGE for place in range(1, 12)},
    **{f"gemm_kk: bound dropped {place}": EDGE for place in (23, 25, 27, 33)},
    "gemm_kk: bound dropped 17": "one step more is fetched, zeros that nobody reads",
    "gemm_sm90: matrix fence dropped 2": "only products touched the sums since the last fence",
    "gemm_sm90: wait not believed 5": "the stage was never used: the phase before the first counts as complete",
    **{f"gemm_sm90: wait not believed {place}": TAIL for place in (7, 8, 9)},
    "pipeline: bound moved 7": "one more arrival at a barrier that nobody waits at any more",
    "pipeline: bound dropped 7": "one more arrival at a barrier that nobody waits at any more",
}


def _conv_error(conv: Conv2d, shapes: tuple[Shape, ...]) -> Error:
    given = conv.parameters(shapes)
    problems = [problem(shape, 5) for shape in shapes]

    def error(module: Module) -> tuple[float, Statistics]:
        largest, lines, steps = 0.0, frozenset[int](), 0
        for launch_, case in zip(given, problems, strict=True):
            result, done = run_conv2d(conv, launch_, case, limits=STEPS, module=module)
            largest = max(largest, worst(result, case.exact, case.allowed))
            lines, steps = lines | done.lines, steps + done.steps
            if largest > 1:
                break
        return largest, Statistics(len(given), steps, 0, lines)

    return error


def cases(folder: Path, kernel: str | None = None) -> Iterator[Case]:
    """All kernels or the one of that name, compiled with results kept in `folder`; what nobody asks for is not."""
    compiler = find_nvcc(folder)
    for names, made in (
        (("softmax", "pipeline", "pool"), _simple_cases),
        (("stream",), _stream_case),
        (("gemm_kk", "gemm_mm", "gemm_rm"), _product_cases),
        (("gemm_sm90",), _gemm90_case),
        (("conv2d",), _conv_case),
    ):
        if kernel is None or kernel in names:
            yield from (case for case in made(compiler) if kernel in (None, case.name))


def _source(name: str) -> str:
    return (KERNELS / name).read_text(encoding="utf-8")


def _simple_cases(compiler: Compiler) -> Iterator[Case]:
    simple = compiler.ptx(_source("simple.cu"), "80", name="simple.cu")
    some = frozenset({"barrier dropped", MOVED, "bound moved", "bound dropped", "shuffle changed"})
    yield Case(
        "softmax", "softmax", alone(simple, "softmax"), lambda m: softmax_error(m, 12, 129, 96, limits=STEPS), some
    )
    yield Case("pipeline", "pipeline", alone(simple, "pipeline"), lambda m: pipeline_error(m, 2, 7, limits=STEPS), some)
    yield Case("pool", "pool", alone(simple, "pool"), lambda m: pool_error(m, 1, 5, 7, 16, limits=STEPS), some)


def _stream_case(compiler: Compiler) -> Iterator[Case]:
    text = compiler.ptx(stream_source(), "90", name="stream.cu")
    yield Case("stream", "stream", text, lambda m: stream_error(m, 2, 7, limits=STEPS), PHASES | BULK)


def stream_source() -> str:
    """The stages that our kernels have, and a kernel that does nothing else."""
    return source_text("common.cuh", "primitives.cuh", "stages.cuh") + _source("stream.cu")


def _product_cases(compiler: Compiler) -> Iterator[Case]:
    product = compiler.ptx(_source("gemm_wgmma.cu"), "90a", name="gemm_wgmma.cu")
    whole = COPIES | GROUPS | {"swizzle dropped", "copy unbounded", "bound dropped"}
    for kernel, kinds in (("gemm_kk", whole), ("gemm_mm", GROUPS), ("gemm_rm", COPIES | GROUPS | FRAGMENTS)):
        yield Case(kernel, kernel, alone(product, kernel), _gemm_error(kernel), kinds)


def _gemm90_case(compiler: Compiler) -> Iterator[Case]:
    gemm90 = gemm90_launches(compiler, _source("gemm_sm90.cu"))
    yield Case(
        "gemm_sm90", "gemm_sm90", gemm90.text, _gemm90_error(gemm90),
        PHASES | {"barrier dropped", "copy dropped"} | GROUPS - {"proxy fence dropped"},
    )  # fmt: skip


def _conv_case(compiler: Compiler) -> Iterator[Case]:
    conv = conv2d_launches(compiler, _source("conv2d.cu"))
    yield Case(
        "conv2d", "conv2d", conv.text, _conv_error(conv, (SHAPES[1], SHAPES[4])),
        COPIES | FRAGMENTS | {"copy unbounded", "store moved"},
    )  # fmt: skip


def _gemm_error(kernel: str) -> Error:
    return lambda module: wgmma_error(module, kernel, (136, 72, 200), limits=STEPS)


def _gemm90_error(gemm: Gemm90) -> Error:
    """Depths of fewer and of more steps than there are stages."""
    sizes = ((136, 72, 100), (64, 64, 512))
    given = [gemm.given(size) for size in sizes]

    def error(module: Module) -> tuple[float, Statistics]:
        largest, lines, steps = 0.0, frozenset[int](), 0
        for launch_, size in zip(given, sizes, strict=True):
            found, done = gemm90_error(module, launch_, size, limits=STEPS)
            largest, lines, steps = max(largest, found), lines | done.lines, steps + done.steps
            if largest > 1:
                break
        return largest, Statistics(len(given), steps, 0, lines)

    return error


def main() -> int:
    """Judges all mutants; 1 where one that is not listed goes unnoticed, or a listed one is noticed after all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--kernel", help="only this one")
    parser.add_argument("--cache", type=Path, help="a folder for compiled kernels")
    add_outputs(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen = cases(options.cache or Path(folder), options.kernel)
        found = studied(chosen, EQUIVALENT, lambda said: print(said, flush=True))
    keep(options, found.figures)
    return found.failed(0 if options.kernel else LEAST)


if __name__ == "__main__":
    sys.exit(main())
