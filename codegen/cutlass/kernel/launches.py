"""Launches of compiled sources, with arguments that name tensors: the result of a family of kernels.

    Launch(source, kernel, grid, block, arguments)   a kernel of our own: arguments one by one
    ComputedLaunch(source, kernel, numbers, places)  a CUTLASS kernel: another kernel of its source computes all that

Nothing here knows where tensors lie; `codegen.cutlass.emission.emit` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from partitioner.ir.graph import Op


@dataclass(frozen=True, slots=True)
class Source:
    """CUDA source that is compiled by itself; `name` goes into file names, and `cutlass` says whether it reads
    CUTLASS's headers."""

    name: str
    text: str
    cutlass: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a tensor of the graph plus `plus_bytes`; `written` by the launch, or read."""

    tensor: str
    written: bool = False
    plus_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LayerScratch:
    """Memory that only the launches of one layer share and read, identified by a number within the layer."""

    number: int
    size_bytes: int
    plus_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Data:
    """Constants that are not tensors of the graph, such as weights with padded channels."""

    name: str
    content: bytes


Place: TypeAlias = Address | LayerScratch | Data
Argument: TypeAlias = int | float | tuple[int, ...] | Place
"""Argument of a kernel: integers and floats in the size of the kernel's parameter, several integers as an array of
int32, addresses as 8 bytes."""
Extents: TypeAlias = tuple[int, int, int]


def bias_of(op: Op, filters: int) -> Address | Data:
    """The fp16 bias of a convolution or a product; zeros where it has none."""
    return Address(op.inputs[2]) if len(op.inputs) > 2 else Data(f"{op.name} no bias", bytes(2 * filters))


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

    A second kernel of `source`, `parameters`, takes `numbers` and makes the shared bytes, the grid, the threads of a
    block and the block of parameters, in which `mark(v, i)` stands for `places[i]`."""

    source: Source
    kernel: str
    numbers: tuple[int, ...]
    places: tuple[Place, ...]


def moved(place: Place, plus_bytes: int) -> Place:
    """The place `plus_bytes` further on; data are only read from their start."""
    if not plus_bytes:
        return place
    assert not isinstance(place, Data)
    return replace(place, plus_bytes=place.plus_bytes + plus_bytes)
