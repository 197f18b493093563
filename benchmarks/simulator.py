"""Speed of the simulator: `python benchmarks/simulator.py [--json FILE]`.

The work is the 56x56x64 -> 64, 3x3, padded convolution of ResNet-50 (115.6 million fp16 multiply-accumulates) on
seeded data that hold denormals and infinities, on one host core. The slow model of
`codegen.neuralscale.emulation.arithmetic` computes the first output rows of the same convolution in the same run, and
both must agree bit for bit.

Keys of the JSON object (rates are per second, times in seconds):

    host_cpu, python, numpy, numba       where the figures come from
    conv_macs                            multiply-accumulates of the whole convolution
    conv_denormals, conv_infinities      how many operands (image and weights) are denormal, infinite
    mme_macs_per_s                       `mme.meconv`, best of five calls
    slow_macs_per_s                      `emulation.conv` on the first output rows, one call
    mme_over_slow                        ratio of the two
    x8_macs_per_s                        `mme.meconv_x8` (int8 -> int32), best of five calls
    vme_adds_per_s, vme_products_per_s   `vme.binary` on the whole image, best of five calls
    iss_poison_macs_per_s                the convolution as a program of two meconv instructions, executed by the whole
                                         simulator with poison on, loading and checking included, best of five runs
    iss_macs_per_s                       the same without poison
    scalar_poison_instructions_per_s     a loop of nine RV32IM instructions with loads and stores, poison on
    scalar_instructions_per_s            the same without poison
    jit_compile_s                        first `mme.meconv` of a fresh process with an empty compile cache, less a
                                         later call (importing compiles nothing of it)
    jit_cached_s                         the same in a second process, which finds the cache filled
    import_compile_s, import_cached_s    importing the machine, whose instruction loop compiles on import, likewise
"""

from __future__ import annotations

import argparse
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.output import keep, output_file
from codegen.neuralscale.asm.assembler import Item, Label, assemble, branch, load_immediate
from codegen.neuralscale.emulation import arithmetic as emulation
from codegen.neuralscale.isa.csr import csr
from codegen.neuralscale.isa.table import instruction
from codegen.neuralscale.simulator.arithmetic import mme, vme
from codegen.neuralscale.simulator.machine import simulate
from codegen.neuralscale.simulator.options import InitialBytes, SimulationOptions, SimulationResult
from codegen.riscv.elf_format import ElfSymbol
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes

Bits = npt.NDArray[np.uint16]

KERNEL = (3, 3)
PADDING = (1, 1, 1, 1)
SLOW_ROWS = 2  # output rows that the slow model computes

CODE, COUNTER_DATA, TOHOST = 0x10_0000, 0x20_0000, 0x30_0000
L1, L1_WEIGHTS, L1_RESULT, IM = 0xC000_0000, 0xC008_0000, 0xC00A_0000, 0xC040_0000
LOOPS = 5_000_000
T0, T1, T2, A0, A1, A2 = 5, 6, 7, 10, 11, 12


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


def program(items: list[Item]) -> bytes:
    """An ELF that runs the items and stores 0 as its exit code."""
    ending = [*load_immediate(T0, TOHOST), instruction("addi", T1, 0, 1), instruction("sw", T1, 0, T0)]
    segments = [
        ElfSegment(".text", CODE, (assemble([*items, *ending], CODE),), SegmentFlags.READ_EXECUTE),
        ElfSegment(".tohost", TOHOST, (bytes(16),), SegmentFlags.READ_WRITE),
    ]
    return elf_bytes(CODE, segments, [ElfSymbol("tohost", TOHOST)])


def conv_program() -> bytes:
    """The convolution in two tiles of 28 output rows, since IM holds 256 KiB: meconv into IM, mov.m into L1."""
    items: list[Item] = []

    def write(name: str, value: int) -> None:
        items.extend(load_immediate(T0, value))
        items.append(instruction("csrrw", 0, csr(name).number, T0))

    write("conv_Depth_in", 64)
    write("conv_Depth_out", 64)
    write("conv_S_kernel", 0)
    write("conv_kernel", 0x0303_0101)
    write("conv_FM_in", 56 << 16 | 29)
    write("conv_FM_out", 56 << 16 | 28)
    write("shape_s1", 64 << 16 | 56 * 28)
    write("stride_s", 0)
    write("stride_d", 0)
    row_bytes = 56 * 64 * 2
    for tile in range(2):
        write("conv_padding", 0x0001_0101 if tile else 0x0100_0101)
        items.extend(load_immediate(A1, L1 + tile * 27 * row_bytes))
        items.extend(load_immediate(A2, L1_WEIGHTS))
        items.extend(load_immediate(A0, IM))
        items.append(instruction("meconv.mm", A0, A1, A2))
        items.extend(load_immediate(A1, L1_RESULT + tile * 28 * row_bytes))
        items.append(instruction("mov.m", A1, A0))
    return program(items)


def loop_program() -> bytes:
    """LOOPS times nine instructions, among them a load, a store and a multiplication."""
    x8, x9, x18 = 8, 9, 18
    return program(
        [
            *load_immediate(T1, LOOPS),
            *load_immediate(T2, COUNTER_DATA),
            Label("loop"),
            instruction("lw", x8, 0, T2),
            instruction("add", x9, x9, x8),
            instruction("addi", x9, x9, 3),
            instruction("sw", x9, 4, T2),
            instruction("xor", x18, x9, x8),
            instruction("slli", x18, x18, 2),
            instruction("mul", x18, x18, x9),
            instruction("addi", T1, T1, -1),
            branch("bne", T1, 0, "loop"),
        ]
    )


def run(elf: bytes, loads: tuple[InitialBytes, ...], poison: bool) -> SimulationResult:
    result = simulate(elf, SimulationOptions(loads=loads, poison=poison))
    if result.fault is not None or result.exit_code:
        raise SystemExit(f"benchmark: the program failed: {result.fault or result.exit_code}")
    return result


def measure_programs() -> dict[str, Any]:
    """Whole programs through the whole simulator."""
    image, weights = conv_operands()
    macs = 56 * 56 * weights.size
    elf = conv_program()
    loads = (InitialBytes(L1, image.tobytes()), InitialBytes(L1_WEIGHTS, weights.tobytes()))
    expected = mme.meconv(image, weights, KERNEL, 1, 1, PADDING).tobytes()
    if run(elf, loads, poison=True).read(L1_RESULT, len(expected)) != expected:
        raise SystemExit("benchmark: the program and the kernel disagree")
    loop, word = loop_program(), (InitialBytes(COUNTER_DATA, bytes(4)),)
    count = run(loop, word, poison=True).counts.instructions
    return {
        "iss_poison_macs_per_s": macs / best_seconds(lambda: run(elf, loads, poison=True)),
        "iss_macs_per_s": macs / best_seconds(lambda: run(elf, loads, poison=False)),
        "scalar_poison_instructions_per_s": count / best_seconds(lambda: run(loop, word, poison=True)),
        "scalar_instructions_per_s": count / best_seconds(lambda: run(loop, word, poison=False)),
    }


def measure_jit() -> dict[str, Any]:
    """First-call costs in two fresh processes that share a compile cache, empty at first."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, str(Path(__file__).resolve()), "--first-call"]
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        module = "codegen.neuralscale.simulator.machine"
        script = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"

        def cost(command: list[str]) -> float:
            return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)

        imports = [cost([sys.executable, "-c", script]) for _ in range(2)]
        costs = [cost(command) for _ in range(2)]
    return {
        "jit_compile_s": costs[0],
        "jit_cached_s": costs[1],
        "import_compile_s": imports[0],
        "import_cached_s": imports[1],
    }


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

    return "\n".join(f"{key:34} {shown(key, value):>20}" for key, value in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the simulator.")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument("--first-call", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_call:
        print(first_call_cost())
        return
    figures = {**host(), **measure_matrix_engine(), **measure_vector_engine(), **measure_programs(), **measure_jit()}
    print(table(figures))
    keep(options, figures)


if __name__ == "__main__":
    main()
