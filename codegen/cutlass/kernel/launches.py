"""What families of kernels make: launches of compiled sources, with arguments that name tensors.

    Launch(source, kernel, grid, block, arguments)   a kernel of our own: arguments one by one
    ComputedLaunch(source, kernel, numbers, places)  a kernel of CUTLASS's: a kernel of its source computes all that

Nothing here knows where tensors lie; `codegen.cutlass.emission.emit` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Source:
    """CUDA source that is compiled by itself; `name` goes into file names; `cutlass` says whether it reads CUTLASS's
    headers."""

    name: str
    text: str
    cutlass: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """Where a tensor of the graph lies, plus `plus_bytes`; `written` by the launch, or read."""

    tensor: str
    written: bool = False
    plus_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LayerScratch:
    """Memory that the launches of one layer share and nobody else reads, by a number of the layer's own."""

    number: int
    size_bytes: int
    plus_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Data:
    """Constants that are no tensor of the graph, such as weights with padded channels."""

    name: str
    content: bytes


Place: TypeAlias = Address | LayerScratch | Data
Argument: TypeAlias = int | float | tuple[int, ...] | Place
"""Integers and floats in the size of the kernel's parameter, several integers as an array of int32, addresses as 8
bytes."""
Extents: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a kernel. `shared_bytes` is dynamic shared memory."""

    source: Source
    kernel: str
    grid: Extents
    block: Extents
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ComputedLaunch:
    """One start of a kernel whose parameter block only C++ knows how to make.

    `source` has a second kernel, `parameters`, that is given `numbers` and makes shared bytes, the grid, the threads of
    a block and the block of parameters, in which `mark(v, i)` stands for `places[i]`."""

    source: Source
    kernel: str
    numbers: tuple[int, ...]
    places: tuple[Place, ...]
