"""A folder as emission writes it, for the tests of who runs it: two launches, written here by hand.

x, a constant --scale_add--> v (a range of the arena) --reverse, by dynamic shared memory--> y
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.cutlass.emission.binary_list import binary_list
from codegen.cutlass.emission.launch_list import launch_list_text, read_launch_list
from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.runner import runner_files
from codegen.cutlass.runner.runner import (
    DataFile,
    LaunchEntry,
    LaunchList,
    LaunchTensor,
    ModuleEntry,
    Relocation,
)

ROWS, COLUMNS = 3, 40
SHARED_BYTES = 64 << 10
FACTOR = 0.5
SKIPPED_BYTES = 48
"""The constant starts behind these bytes of its tensor: they must not be read."""

SOURCE = """
#include <cuda_fp16.h>

extern "C" __global__ void scale_add(const half* x, const half* c, half* y, int n, float factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2half(__half2float(x[i]) * factor + __half2float(c[i]));
}

// One block a row; the row lies at the end of the shared memory that the launch asks for.
extern "C" __global__ void reverse(const half* x, half* y, int columns, int shared_bytes) {
  extern __shared__ half part[];
  half* row = part + shared_bytes / 2 - columns;
  const int i = threadIdx.x;
  if (i < columns) row[i] = x[blockIdx.x * columns + i];
  __syncthreads();
  if (i < columns) y[blockIdx.x * columns + i] = row[columns - 1 - i];
}
"""


@dataclass(frozen=True)
class Kernels:
    """`SOURCE`, compiled."""

    ptx: str
    cubin: bytes


def compiled(compiler: Compiler) -> Kernels:
    return Kernels(compiler.ptx(SOURCE, "80", name="small_network"), compiler.cubin(SOURCE, "80", name="small_network"))


def launch_list() -> LaunchList:
    """Launches of the network, with the arena laid out as x, y, v, c."""
    size = 2 * ROWS * COLUMNS
    aligned = -(-size // 256) * 256

    def tensor(
        name: str, role: Any, at: int, size_bytes: int = size, shape: tuple[int, ...] = (ROWS, COLUMNS)
    ) -> LaunchTensor:
        return LaunchTensor(
            name=name, role=role, dtype="float16", shape=shape, layout=(0, 1), offset=at * aligned, bytes=size_bytes
        )  # fmt: skip

    def relocations(*pairs: tuple[int, int]) -> tuple[Relocation, ...]:
        return tuple(
            Relocation(at=8 * k, tensor=number, plus=plus) for k, (number, plus) in enumerate(pairs)
        )  # fmt: skip

    return LaunchList(
        format="dsa-sched-launches/1",
        architecture="sm_80",
        arena_bytes=5 * aligned,
        tensors=(
            tensor("x/in", "input", 0),
            tensor("y", "output", 1),
            tensor("v", "value", 2),
            tensor("c", "constant", 3, SKIPPED_BYTES + size, (SKIPPED_BYTES // 2 + ROWS * COLUMNS,)),
        ),
        data=(DataFile(file="data/c.bin", offset=3 * aligned, bytes=SKIPPED_BYTES + size),),
        modules=(ModuleEntry(source="kernels/two.cu", ptx="kernels/two.ptx", cubin="kernels/two.cubin"),),
        launches=(
            LaunchEntry(
                layer="Scale/1", module=0, kernel="scale_add", grid=(4, 1, 1), block=(32, 1, 1),
                parameters=(bytes(24) + struct.pack("<if", ROWS * COLUMNS, FACTOR)).hex(),
                relocations=relocations((0, 0), (3, SKIPPED_BYTES), (2, 0)),
            ),
            LaunchEntry(
                layer="Reverse", module=0, kernel="reverse", grid=(ROWS, 1, 1), block=(64, 1, 1),
                shared_bytes=SHARED_BYTES,
                parameters=(bytes(16) + struct.pack("<ii", COLUMNS, SHARED_BYTES)).hex(),
                relocations=relocations((2, 0), (1, 0)),
            ),
        ),
    )  # fmt: skip


def constant() -> NDArray[np.float16]:
    """What is added."""
    return np.linspace(-2, 2, ROWS * COLUMNS).astype(np.float16).reshape(ROWS, COLUMNS)


def example() -> NDArray[np.float16]:
    """An input."""
    return np.random.default_rng(7).standard_normal((ROWS, COLUMNS)).astype(np.float16)


def expected(x: NDArray[np.float16]) -> NDArray[np.float16]:
    """The output: one rounding of an fp32 result, exactly."""
    both = x.astype(np.float32) * np.float32(FACTOR) + constant().astype(np.float32)
    return both.astype(np.float16)[:, ::-1]


def write_network(folder: Path, kernels: Kernels) -> Path:
    """Everything that a cluster's folder has."""
    for name in ("data", "kernels"):
        (folder / name).mkdir(parents=True)
    write_lists(folder, json.loads(launch_list_text(launch_list())))
    skipped = np.full(SKIPPED_BYTES // 2, np.nan, np.float16)
    (folder / "data" / "c.bin").write_bytes(skipped.tobytes() + constant().tobytes())
    (folder / "kernels" / "two.cu").write_text(SOURCE)
    (folder / "kernels" / "two.ptx").write_text(kernels.ptx)
    (folder / "kernels" / "two.cubin").write_bytes(kernels.cubin)
    for name, data in runner_files().items():
        (folder / name).write_bytes(data)
    return folder


def write_lists(folder: Path, value: object) -> None:
    """A list of launches, as JSON and as records."""
    text = json.dumps(value).encode()
    (folder / "launches.json").write_bytes(text)
    (folder / "launches.bin").write_bytes(binary_list(read_launch_list(text)))


def save_input(path: Path) -> None:
    """The example as a file of arrays."""
    arrays: dict[str, Any] = {"x/in": example()}
    np.savez(path, **arrays)
