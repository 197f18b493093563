"""Parameter blocks of CUTLASS's kernels, which only C++ knows how to make: made by a kernel of the same source.

    launches of one source --its kernel `parameters`, on the executor of PTX--> grid, threads, shared bytes, block

CUTLASS writes these constructors for host and device alike, so that no program of the host is compiled, linked and run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen.cutlass.kernel.launches import ComputedLaunch, Source
from codegen.cutlass.ptx import GlobalMemory, Module, PtxError, launch, parameters
from hw_models.errors import TargetError

__all__ = ["ParameterBlock", "parameter_blocks"]

KERNEL = "parameters"
MOST_NUMBERS, MOST_BYTES, HEAD = 32, 4096, 6
"""As in `parameters.cuh`."""


@dataclass(frozen=True, slots=True)
class ParameterBlock:
    """What a launch needs but for addresses, in whose place marks stand."""

    shared_bytes: int
    grid: tuple[int, int, int]
    threads: int
    parameters: bytes


def parameter_blocks(
    launches: Sequence[ComputedLaunch], modules: Mapping[Source, Module]
) -> dict[ComputedLaunch, ParameterBlock]:
    """Of all launches, those of one source at once. Raises TargetError for a kernel whose parameters cannot be made."""
    by_source: dict[Source, dict[ComputedLaunch, None]] = {}
    for each in launches:
        by_source.setdefault(each.source, {})[each] = None
    made: dict[ComputedLaunch, ParameterBlock] = {}
    for source, asked in by_source.items():
        try:
            made.update(zip(asked, _made(list(asked), modules[source]), strict=True))
        except PtxError as error:
            raise TargetError(f"kernel {source.name}", needs="parameters made by a kernel of its source",
                              has=str(error)) from error  # fmt: skip
    return made


def _made(asked: Sequence[ComputedLaunch], module: Module) -> list[ParameterBlock]:
    numbers = np.zeros((len(asked), MOST_NUMBERS), np.int32)
    for row, each in enumerate(asked):
        numbers[row, : len(each.numbers)] = each.numbers
    memory = GlobalMemory()
    given = memory.allocate(numbers.view(np.uint8).reshape(-1), "numbers")
    heads = memory.allocate(np.zeros(4 * HEAD * len(asked), np.uint8), "heads")
    blocks = memory.allocate(np.zeros(MOST_BYTES * len(asked), np.uint8), "parameters")
    if KERNEL not in module.kernels:
        raise PtxError(f"the source has no kernel {KERNEL}")
    called_with = parameters(module.kernels[KERNEL], given, heads, blocks)
    launch(module, KERNEL, (len(asked), 1, 1), (1, 1, 1), called_with, memory)
    told = memory.load(heads, np.int32, (len(asked), HEAD)).tolist()
    made = memory.load(blocks, np.uint8, (len(asked), MOST_BYTES))
    return [
        ParameterBlock(shared, (x, y, z), threads, made[row, :size].tobytes())
        for row, (size, shared, threads, x, y, z) in enumerate(told)
    ]
