"""Run kernels: `launch(module, kernel, grid, block, params, memory)`.

    module = parse(text);  memory = GlobalMemory();  x = memory.allocate(array);  y = memory.allocate(size_bytes)
    launch(module, "name", grid, block, parameters(kernel, x, y, 100), memory, seed=1)
    memory.load(y, np.float16, shape)

CTAs run in batches, in an order drawn from `seed`.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass

import numpy as np

from codegen.cutlass.ptx.machine import PtxMachine
from codegen.cutlass.ptx.state.active import WARP
from codegen.cutlass.ptx.state.global_memory import GlobalMemory
from codegen.cutlass.ptx.state.layout import SymbolLayout, cell_bytes, layout_of
from codegen.cutlass.ptx.state.special import Geometry
from codegen.cutlass.ptx.text.errors import PtxError, PtxLimits
from codegen.cutlass.ptx.text.module import Module, PtxKernel

WITHOUT_SHARED = 4
"""Factor of the threads of a batch where no order of accesses to shared memory is kept: numpy's best array lengths."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of a launch. `steps` are instructions, counted once per batch; `macs` those of matrix instructions;
    `lines` the executed lines of the text."""

    batches: int
    steps: int
    macs: int
    lines: frozenset[int]


def parameters(kernel: PtxKernel, *values: int | float | bytes) -> bytes:
    """The parameter block, with one value per parameter. Raises PtxError where a value does not fit."""
    if len(values) != len(kernel.parameters):
        raise PtxError(f"has {len(kernel.parameters)} parameters, {len(values)} are given", kernel=kernel.name)
    block = bytearray(kernel.parameter_bytes)
    for parameter, value in zip(kernel.parameters, values, strict=True):
        size = parameter.size_bytes
        match value:
            case bytes():
                data = value
            case float():
                data = struct.pack("<f" if size == 4 else "<d", value)
            case _:
                data = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        if len(data) != size:
            raise PtxError(f"parameter {parameter.name} has {size} bytes, {len(data)} are given", kernel=kernel.name)
        block[parameter.offset_bytes : parameter.offset_bytes + size] = data
    return bytes(block)


def launch(
    module: Module,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    params: bytes,
    memory: GlobalMemory,
    seed: int = 0,
    *,
    shared_bytes: int = 0,
    limits: PtxLimits | None = None,
    proxy_fences: bool = True,
) -> Statistics:
    """Run all CTAs of a launch on `memory`. `shared_bytes` is the dynamic shared memory of a CTA.

    `proxy_fences` says whether `wgmma` needs `fence.proxy.async` after writes, as PTX requires; CUTLASS 3's mainloops
    of `cp.async` have no such fence.

    Raises PtxError for an impossible launch, UnsupportedPtx for an opcode that the executor lacks, KernelFault for
    undefined behaviour; each names the kernel, and the line where there is one.
    """
    limits = limits or PtxLimits()
    if kernel not in module.kernels:
        raise PtxError(f"the module has no kernel {kernel}; it has {', '.join(sorted(module.kernels)) or 'none'}")
    entry = module.kernels[kernel]
    geometry = Geometry(grid, block)
    _check(entry, geometry, params, limits)
    layout = layout_of(module, entry, memory, shared_bytes, limits)
    order = np.random.default_rng(seed)
    numbers = order.permutation(geometry.ctas)
    size = min(_batch(entry, geometry, layout, limits), geometry.ctas)
    counts: Counter[str] = Counter()
    machine = PtxMachine(entry, geometry, size, layout, np.frombuffer(params, np.uint8), memory, limits, order,
                      proxy_fences=proxy_fences, counts=counts)  # fmt: skip
    batches = 0
    for first in range(0, geometry.ctas, size):
        machine.run(numbers[first : first + size].tolist())
        batches += 1
    return Statistics(batches, counts["steps"], counts["macs"], machine.lines())


def _check(kernel: PtxKernel, geometry: Geometry, params: bytes, limits: PtxLimits) -> None:
    if min(*geometry.grid, *geometry.block) < 1:
        raise PtxError(f"a launch of {geometry.grid} blocks of {geometry.block} threads", kernel=kernel.name)
    most = min(limits.max_threads_per_block, kernel.max_threads or limits.max_threads_per_block)
    if geometry.threads > most:
        raise PtxError(
            f"launched with {geometry.threads} threads per block, at most {most} are possible", kernel=kernel.name
        )
    if geometry.ctas > limits.max_blocks:
        raise PtxError(f"launched with {geometry.ctas} blocks, at most {limits.max_blocks} are run", kernel=kernel.name)
    if len(params) != kernel.parameter_bytes:
        raise PtxError(f"needs {kernel.parameter_bytes} bytes of parameters, has {len(params)}", kernel=kernel.name)


def _batch(kernel: PtxKernel, geometry: Geometry, layout: SymbolLayout, limits: PtxLimits) -> int:
    """Number of CTAs of a batch: about `batch_threads` threads, and no more than the bound on memory allows."""
    threads = geometry.warps * WARP
    cells = layout.shared_bytes // cell_bytes(kernel)
    each = (
        threads * (8 * len(kernel.registers) + layout.local_bytes)
        + layout.shared_bytes
        + cells * (9 + 4 * geometry.warps)
    )
    if each > limits.batch_bytes:
        raise PtxError(
            f"one block needs {each} bytes of host memory, at most {limits.batch_bytes} may be used",
            kernel=kernel.name,
        )
    most = limits.batch_threads if layout.shared_bytes else WITHOUT_SHARED * limits.batch_threads
    return max(1, min(most // threads, limits.batch_bytes // max(each, 1)))
