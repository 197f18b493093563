"""Constants that several programs find at the same places of one main memory.

    program that is made first --shared_by--> places of its constants by content hash --> programs made later

A constant is an array in the layout of the graph, whatever the plan: tiles read parts of it by strides. So programs of
different plans can read one copy, as long as each is lowered with the same places. No executable holds a shared
constant; whoever starts the programs loads them before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # options name these places, and commands that only read options load nothing heavy
    from isched.program.program import Program, TensorPlacement
    from partitioner.ir.graph import Graph

ALIGNMENT_BYTES = 64
"""Alignment of tensors in the main memory, in bytes: a DDR burst."""


@dataclass(frozen=True)
class SharedConstants:
    """Content hashes of constants with their offsets in bytes from the base of all tensors, and the bytes that they
    take together. The program that is the `first` shares all of its constants, which lie as in a program by itself."""

    places: tuple[tuple[str, int], ...] = ()
    size_bytes: int = 0
    first: bool = False

    def __bool__(self) -> bool:
        return self.first or bool(self.places)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """The offsets by content hash."""
        return dict(self.places)

    def has(self, constant: str) -> bool:
        """Whether a constant, by its content hash, lies outside the executable."""
        return self.first or constant in self.offsets

    def without(self, program: Program, graph: Graph) -> Program:
        """The program as its executable holds it: without the shared constants."""
        if not self:
            return program
        apart = {place.tensor for place, constant in _constants(program, graph) if self.has(constant)}
        return replace(program, placements=tuple(p for p in program.placements if p.tensor not in apart))


NOT_SHARED = SharedConstants()
"""Nothing is shared: a program by itself."""
FIRST = SharedConstants(first=True)
"""All constants of the program are shared."""


def shared_by(program: Program, graph: Graph, base_bytes: int) -> SharedConstants:
    """The constants of a program that is the first, for programs made after it."""
    places: dict[str, int] = {}
    end = base_bytes
    for place, constant in _constants(program, graph):
        places.setdefault(constant, place.offset_bytes - base_bytes)
        end = max(end, place.offset_bytes + place.size_bytes)
    return SharedConstants(tuple(places.items()), -(-(end - base_bytes) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)


def stored(
    program: Program, graph: Graph, base_bytes: int, size_bytes: int, data: Callable[[str], bytes | memoryview]
) -> bytes:
    """The bytes of a first program's constants from the base on, with zeros between them; `data` has those of a
    constant by its content hash."""
    result = bytearray(size_bytes)
    for place, constant in _constants(program, graph):
        start = place.offset_bytes - base_bytes
        result[start : start + place.size_bytes] = data(constant)
    return bytes(result)


def _constants(program: Program, graph: Graph) -> Iterator[tuple[TensorPlacement, str]]:
    return ((place, graph.by_name[place.tensor].constant) for place in program.placements if place.kind == "constant")
