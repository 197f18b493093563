"""Parameter blocks of CUTLASS's kernels, whose layout only C++ knows: a kernel of the same source makes them.

    launches of one source --its kernel `parameters`, on the executor of PTX--> grid, threads, shared bytes, block

CUTLASS writes these constructors for host and device alike, so no host program has to be compiled, linked and run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.cutlass.kernel.launches import ComputedLaunch, Source
from codegen.cutlass.ptx import GlobalMemory, Module, PtxError, launch, parameters
from hw_models.errors import TargetError

KERNEL = "parameters"
MOST_NUMBERS, MOST_BYTES, HEAD = 32, 4096, 6
"""Largest count of numbers, largest size of a block in bytes, and size of the head, as in `parameters.cuh`."""
MARKS = (0x5E5E, 0x2B2B)
MARK_SHIFT = 40
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ParameterMark:
    """A place in a block: byte `at` begins the address of place number `place` of its launch, plus `plus_bytes`."""

    at: int
    place: int
    plus_bytes: int


@dataclass(frozen=True, slots=True)
class ParameterBlock:
    """The data of a launch, with zeros in place of addresses; `marks` says where addresses go."""

    shared_bytes: int
    grid: tuple[int, int, int]
    threads: int
    parameters: bytes
    marks: tuple[ParameterMark, ...]


def parameter_blocks(
    launches: Sequence[ComputedLaunch], modules: Mapping[Source, Module]
) -> dict[ComputedLaunch, ParameterBlock]:
    """The parameter blocks of all launches; those of one source are made together. Raises TargetError for a kernel
    whose parameters cannot be made."""
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
    """The blocks of one source. Each is made with two kinds of marks, so that no number of a network is taken for a
    mark."""
    if KERNEL not in module.kernels:
        raise PtxError(f"the source has no kernel {KERNEL}")
    numbers = np.zeros((2 * len(asked), MOST_NUMBERS + 1), np.uint32)
    for row, each in enumerate(asked):
        numbers[2 * row : 2 * row + 2, : len(each.numbers)] = np.asarray(each.numbers, np.int32).view(np.uint32)
    numbers[0::2, -1], numbers[1::2, -1] = MARKS
    memory = GlobalMemory()
    given = memory.allocate(numbers.view(np.uint8).reshape(-1), "numbers")
    heads = memory.allocate(np.zeros(4 * HEAD * len(numbers), np.uint8), "heads")
    blocks = memory.allocate(np.zeros(MOST_BYTES * len(numbers), np.uint8), "parameters")
    called_with = parameters(module.kernels[KERNEL], given, heads, blocks)
    launch(module, KERNEL, (len(numbers), 1, 1), (1, 1, 1), called_with, memory)
    sizes = memory.load(heads, np.int32, (len(numbers), HEAD)).tolist()
    made = memory.load(blocks, np.uint64, (len(numbers), MOST_BYTES // 8))
    return [_block(each, sizes[2 * row], made[2 * row], made[2 * row + 1]) for row, each in enumerate(asked)]


def _block(asked: ComputedLaunch, sizes: Sequence[int], first: Words, second: Words) -> ParameterBlock:
    """One block; its marks are where `first` and `second` differ by the distance between the two kinds of marks."""
    size, shared, threads, x, y, z = sizes
    found = []
    for at in np.flatnonzero(first != second).tolist():
        number, plus = divmod(int(first[at]) - (MARKS[0] << 48), 1 << MARK_SHIFT)
        if int(first[at]) - int(second[at]) != (MARKS[0] - MARKS[1]) << 48 or not 1 <= number <= len(asked.places):
            raise PtxError(f"kernel {asked.kernel}: byte {8 * at} of its parameters does not begin an address")
        found.append(ParameterMark(8 * at, number - 1, plus))
    block = first.copy()
    block[[mark.at // 8 for mark in found]] = 0
    return ParameterBlock(shared, (x, y, z), threads, block.tobytes()[:size], tuple(found))
