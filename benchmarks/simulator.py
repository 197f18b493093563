"""Speed of the simulator: `python benchmarks/simulator.py [--json FILE]`.

The work is the 56x56x64 -> 64, 3x3, padded convolution of ResNet-50 (115.6 million fp16 multiply-accumulates) on
seeded data that hold denormals and infinities, on one host core. The slow model of `codegen.neuralscale.emulation`
computes the first output rows of the same convolution in the same run, and both must agree bit for bit.

Keys of the JSON object (rates are per second, times in seconds):

    host_cpu, python, numpy, numba       where the figures come from
    conv_macs                            multiply-accumulates of the whole convolution
    conv_denormals, conv_infinities      how many operands (image and weights) are denormal, infinite
    mme_macs_per_s                       `mme.meconv`, best of five calls
    slow_macs_per_s                      `emulation.conv` on the first output rows, one call
    mme_over_slow                        ratio of the two
    x8_macs_per_s                        `mme.meconv_x8` (int8 -> int32), best of five calls
    vme_adds_per_s, vme_products_per_s   `vme.binary` on the whole image, best of five calls
    jit_compile_s                        first `mme.meconv` of a fresh process with an empty compile cache, less a
                                         later call
    jit_cached_s                         the same in a second process, which finds the cache filled
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt

from codegen.neuralscale import emulation
from codegen.neuralscale.simulator import mme, vme

Bits = npt.NDArray[np.uint16]

KERNEL = (3, 3)
PADDING = (1, 1, 1, 1)
SLOW_ROWS = 2  # output rows that the slow model computes


def conv_operands() -> tuple[Bits, Bits]:
    """A seeded image [56, 56, 64] and weights [576, 64], with denormals and infinities among them."""
    random = np.random.default_rng(20)

    def spread(*shape: int) -> Bits:
        values = random.standard_normal(shape) * 10.0 ** random.uniform(-6.0, 0.5, shape)
        return values.astype(np.float16).view(np.uint16)

    image, weights = spread(56, 56, 64), spread(576, 64)
    for y, x in random.integers(0, 56, (100, 2)):
        image[y, x, random.integers(64)] = random.choice([0x7C00, 0xFC00])
    weights[100, 7] = 0x7C00
    return image, weights


def denormals(bits: Bits) -> int:
    return int(np.count_nonzero(((bits & 0x7C00) == 0) & ((bits & 0x3FF) != 0)))


def infinities(bits: Bits) -> int:
    return int(np.count_nonzero((bits & 0x7FFF) == 0x7C00))


def best_seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """The shortest of several calls, after one that may compile."""
    call()
    return min(seconds(call) for _ in range(repeats))


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure_matrix_engine() -> dict[str, Any]:
    """Rates of the fast kernel, of the slow model on a part of the same work, and of the int8 kernel."""
    image, weights = conv_operands()
    macs = 56 * 56 * weights.size
    fast_s = best_seconds(lambda: mme.meconv(image, weights, KERNEL, 1, 1, PADDING))

    rows = image[: SLOW_ROWS + 1]  # the first output rows see one row more of the image, and the padding above it
    start = time.perf_counter()
    expected = emulation.conv(
        emulation.from_bits(rows), emulation.from_bits(weights), KERNEL, stride=1, dilation=1, padding=(1, 0, 1, 1)
    )
    slow_s = time.perf_counter() - start
    slow_rate = expected.size * weights.shape[0] / slow_s
    if not np.array_equal(mme.meconv(image, weights, KERNEL, 1, 1, PADDING)[:SLOW_ROWS], emulation.to_bits(expected)):
        raise SystemExit("benchmark: the fast kernel and the slow model disagree")

    image8, weights8 = image.astype(np.int8), weights.astype(np.int8)
    x8_s = best_seconds(lambda: mme.meconv_x8(image8, weights8, KERNEL, 1, 1, PADDING))
    return {
        "conv_macs": macs,
        "conv_denormals": denormals(image) + denormals(weights),
        "conv_infinities": infinities(image) + infinities(weights),
        "mme_macs_per_s": macs / fast_s,
        "slow_macs_per_s": slow_rate,
        "mme_over_slow": macs / fast_s / slow_rate,
        "x8_macs_per_s": macs / x8_s,
    }


def measure_vector_engine() -> dict[str, Any]:
    """Element-wise rates on the whole image."""
    image, _ = conv_operands()
    return {
        "vme_adds_per_s": image.size / best_seconds(lambda: vme.binary("add", image, image)),
        "vme_products_per_s": image.size / best_seconds(lambda: vme.binary("mul", image, image)),
    }


def measure_jit() -> dict[str, Any]:
    """First-call costs in two fresh processes that share a compile cache, empty at first."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, str(Path(__file__).resolve()), "--first-call"]
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        costs = [
            float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
            for _ in range(2)
        ]
    return {"jit_compile_s": costs[0], "jit_cached_s": costs[1]}


def first_call_cost() -> float:
    image, weights = conv_operands()
    first = seconds(lambda: mme.meconv(image, weights, KERNEL, 1, 1, PADDING))
    return first - best_seconds(lambda: mme.meconv(image, weights, KERNEL, 1, 1, PADDING))


def host() -> dict[str, Any]:
    return {
        "host_cpu": llvmlite.binding.get_host_cpu_name(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def table(figures: dict[str, Any]) -> str:
    """One line a key: rates in millions a second, times in seconds."""

    def shown(key: str, value: Any) -> str:
        if key.endswith("_per_s"):
            return f"{value / 1e6:,.1f} M/s"
        return f"{value:.3f} s" if key.endswith("_s") else f"{value:,.0f}" if isinstance(value, float) else str(value)

    return "\n".join(f"{key:22} {shown(key, value):>20}" for key, value in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the simulator's arithmetic.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument("--first-call", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_call:
        print(first_call_cost())
        return
    figures = {**host(), **measure_matrix_engine(), **measure_vector_engine(), **measure_jit()}
    print(table(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
