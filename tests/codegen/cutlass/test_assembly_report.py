"""What ptxas says of kernels, read, from its words and from nvcc itself."""

from __future__ import annotations

import pytest

from benchmarks.lab.assembly_report import Taken, read_report
from codegen.cutlass.emission.nvcc import Compiler, NvccError

WORDS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
    48 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 48 bytes cumulative stack size, 8192 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_80'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers, 352 bytes cmem[0]
"""

KERNELS = r"""
extern "C" __global__ void plain(float* y) { y[threadIdx.x] = threadIdx.x; }
extern "C" __global__ void __launch_bounds__(1024, 2) crowded(const float* x, float* y) {
  __shared__ float kept[1024];
  float held[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) held[i] = x[threadIdx.x + 1024 * i];
  kept[threadIdx.x] = held[0];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 64; ++i)
    y[threadIdx.x + 1024 * i] = held[i] * held[(i * 37 + 11) % 64] + kept[1023 - threadIdx.x];
}
"""


def test_words_of_ptxas_are_read() -> None:
    assert read_report(WORDS) == {"first": Taken(64, 44, 48, 8192), "second": Taken(10, 0, 0, 0)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ptxas info    : 0 bytes gmem\n", "names no kernel"),
        (WORDS.replace("Used 10 registers", "Used some registers"), "nothing of the registers of second"),
        (WORDS.replace("48 bytes stack frame", "no stack frame"), "nothing of the registers of first"),
    ],
)
def test_other_words_are_refused(words: str, said: str) -> None:
    with pytest.raises(NvccError, match=said):
        read_report(words)


@pytest.mark.parametrize("architecture", ["80", "90a"])
def test_nvcc_reports_spills_and_shared_memory(compiler: Compiler, architecture: str) -> None:
    found = read_report(compiler.assembly_report(compiler.ptx(KERNELS, architecture), architecture))
    plain, crowded = found["plain"], found["crowded"]
    assert (plain.spilled_bytes, plain.shared_bytes) == (0, 0)
    assert 0 < plain.registers < 32
    assert crowded.registers == 32  # of 65,536 for 2,048 threads
    assert crowded.spilled_bytes > 0
    assert crowded.stack_bytes > 0
    assert crowded.shared_bytes >= 4096
