"""Speed of the executor of PTX: `python benchmarks/ptx_speed.py [--json FILE] [--profile]`.

CUTLASS's convolution of ResNet-50's second stage (28 x 28 x 128 -> 128, 3 x 3, four images: 462 million
multiply-accumulates) and a product of 512 x 512 x 512 by wgmma, each on one core with all checks on.

Keys of the JSON object, for each kernel:

    macs               multiply-accumulates of matrix instructions, those of ragged edges included
    cpu_s              processor time of the launch, best of the repetitions; decoding included
    macs_per_s         the ratio
    batches, steps     batches of thread blocks, and instructions, each once a batch
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before numpy is loaded: the figures are of one core

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.output import add_outputs, at_least_one, keep  # noqa: E402
from benchmarks.ptx_cases.convolutions import Shape, conv2d_launches, problem, run_conv2d  # noqa: E402
from benchmarks.ptx_cases.products import wgmma_error  # noqa: E402
from codegen.cutlass.emission.nvcc import find_nvcc  # noqa: E402
from codegen.cutlass.ptx import Statistics, parse  # noqa: E402

__all__ = ["main", "measure"]

KERNELS: Final = Path(__file__).parent / "ptx_cases" / "kernels"
SHAPE: Final = Shape(4, 28, 28, 128, 128, 3, 3, 1, 1)
PRODUCT: Final = (512, 512, 512)


def measure(run: Callable[[], Statistics], repetitions: int) -> dict[str, Any]:
    """Processor time of the best of some runs."""
    best, done = float("inf"), run()
    for _ in range(repetitions):
        start = time.process_time()
        done = run()
        best = min(best, time.process_time() - start)
    return {
        "macs": done.macs,
        "cpu_s": round(best, 3),
        "macs_per_s": round(done.macs / best),
        "batches": done.batches,
        "steps": done.steps,
    }


def main() -> int:
    """Runs both kernels; 0 where both are right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--repeat", type=at_least_one, default=2)
    parser.add_argument("--cache", type=Path, help="a folder for compiled kernels")
    parser.add_argument("--profile", action="store_true", help="also where the time of the convolution goes")
    add_outputs(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compiler = find_nvcc(options.cache or Path(folder))
        conv = conv2d_launches(compiler, (KERNELS / "conv2d.cu").read_text(encoding="utf-8"))
        product = parse(compiler.ptx((KERNELS / "gemm_wgmma.cu").read_text(encoding="utf-8"), "90a"))
    case, (given,) = problem(SHAPE, 1), conv.parameters((SHAPE,))

    def convolution() -> Statistics:
        result, done = run_conv2d(conv, given, case)
        if not bool((abs(result - case.exact) <= case.allowed).all()):
            raise SystemExit("the convolution is wrong")
        return done

    def multiply() -> Statistics:
        error, done = wgmma_error(product, "gemm_kk", PRODUCT)
        if error > 1:
            raise SystemExit("the product is wrong")
        return done

    if options.profile:
        profile = cProfile.Profile()
        profile.runcall(convolution)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    figures = {"conv2d": measure(convolution, options.repeat), "gemm_kk": measure(multiply, options.repeat)}
    for name, row in figures.items():
        print(
            f"{name:8} {row['macs'] / 1e6:7.1f} million MACs, {row['cpu_s']:6.2f} s, "
            f"{row['macs_per_s'] / 1e6:6.1f} million a second"
        )
    keep(options, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
