"""Layers as loops that the accelerator unrolls itself, beside the streams of explicit instructions.

    LoopedLayer --tilings--> parts of a layer --loops--> one loop of the accelerator's own for each --> instructions

The loads of a loop run while the one before it computes, since factors and sums have two places each. Where the whole
depth finds room, a factor that the next loop needs too stays in its half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, MAIN, SCRATCHPAD, ArrayGeometry
from codegen.gemmini.isa.unrolled import PARTS, AcceleratorLoop, Part
from codegen.gemmini.streams.instructions import accelerator_instr
from codegen.gemmini.streams.streams import Item, Unrolled, once
from isched.program.program import Instr, Region

BIAS_BYTES = 4
ENGINES: Mapping[Part, str] = {"added": "load", "load": "load", "compute": "array", "store": "store"}

Touches = Mapping[Part, tuple[tuple[Region, ...], tuple[Region, ...], float]]
"""What each part of a loop reads and writes, and its cycles or bytes; parts that a loop does not have are left out."""


RowT = TypeVar("RowT")
"""What tells the rows of a part: the first one, or its image and that."""

LoopT = TypeVar("LoopT", bound=AcceleratorLoop)
TilingT = TypeVar("TilingT")
"""Extents of one loop; its text says them."""


class LoopedLayer(Protocol, Generic[TilingT, LoopT]):
    """A layer, its tensors at offsets of the main memory, that loops of one kind may do."""

    @property
    def name(self) -> str:
        """The layer's name."""
        ...

    def tilings(self, geometry: ArrayGeometry) -> Iterator[TilingT]:
        """Ways to cut it into loops."""
        ...

    def loops(self, tiling: TilingT, geometry: ArrayGeometry) -> Iterator[LoopT]:
        """Its loops, in order."""
        ...

    def settings(self, geometry: ArrayGeometry) -> tuple[Instr, ...]:
        """What is configured before them."""
        ...

    def touched(self, loop: LoopT, geometry: ArrayGeometry, sums: Region) -> Touches:
        """What a loop reads and writes; `sums` is the half of the accumulator that it has."""
        ...


def loop_items(loop: AcceleratorLoop, geometry: ArrayGeometry) -> tuple[Item, ...]:
    """What the core issues for a loop."""
    return tuple(once(mnemonic, **fields) for mnemonic, fields in loop.operations(geometry.dim))


def looped_instrs(
    layer: LoopedLayer[TilingT, LoopT], tiling: TilingT, geometry: ArrayGeometry, sums_half: int
) -> tuple[tuple[Instr, ...], int]:
    """Instructions of a layer, whose first sums take this half of the accumulator, 0 or 1, and the half after it. The
    first instruction of a loop carries its code."""
    made = [*layer.settings(geometry)]
    half_bytes = geometry.accumulator_rows // 2 * geometry.dim * 4
    for loop in layer.loops(tiling, geometry):
        touched = layer.touched(loop, geometry, Region(ACCUMULATOR, sums_half * half_bytes, half_bytes))
        code = loop_items(loop, geometry)
        for part in (part for part in PARTS if part in touched):
            reads, writes, cycles = touched[part]
            made.append(
                accelerator_instr(ENGINES[part], f"loop.{part}", (*code, Unrolled(part)), reads, writes, cycles,
                                  layer.name)
            )  # fmt: skip
            code = ()
        sums_half = 1 - sums_half if "store" in touched else sums_half
    return tuple(made), sums_half


@dataclass(frozen=True, slots=True)
class LoopTurn(Generic[RowT]):
    """Which part of a layer the next loop has: rows, columns and depth from these on; which of the factors stays where
    it is, the first one or the second one; and the halves of both, 1 or 2."""

    row: RowT
    column: int
    deep: int
    stay: tuple[bool, bool]
    halves: tuple[int, int]


def turns(
    rows: Sequence[RowT], columns: Sequence[int], depths: Sequence[int], rows_inside: bool
) -> Iterator[LoopTurn[RowT]]:
    """Loops over all parts, rows or columns inside. A factor stays while nothing else takes its half: where one loop
    has the whole depth, and the next one needs it too."""
    whole, number = len(depths) == 1, 0
    first, second = whole and not rows_inside, whole and rows_inside
    pairs = (
        [[(row, column) for row in rows] for column in columns]
        if rows_inside
        else [[(row, column) for column in columns] for row in rows]
    )
    for run, inside in enumerate(pairs):
        for turn, (row, column) in enumerate(inside):
            for deep in depths:
                own, kept = 1 + number % 2, 1 + run % 2
                stay = first and turn > 0, second and turn > 0
                yield LoopTurn(row, column, deep, stay, (kept if first else own, kept if second else own))
                number += 1


def local_rows(memory: str, first: int, rows: int, dim: int) -> Region:
    """Rows of a local memory."""
    row_bytes = dim if memory == SCRATCHPAD else 4 * dim
    return Region(memory, first * row_bytes, rows * row_bytes)


def main_rows(address: int, rows: int, row_bytes: int, step: int) -> Region:
    """Rows of the main memory, each `step` bytes after the one before."""
    if rows == 1 or step == row_bytes:
        return Region(MAIN, address - BASE, row_bytes * rows)
    return Region(MAIN, address - BASE, row_bytes, rows, step)


def moved_bytes(regions: Sequence[Region]) -> float:
    """Bytes of regions."""
    return float(sum(region.size_bytes for region in regions))


def powers(extent: int) -> Iterator[int]:
    """Powers of two up to an extent."""
    return (1 << power for power in range(extent.bit_length()))


def equal_parts(extent: int, most: int) -> int:
    """The largest of as few parts as there may be, which are as equal as can be."""
    parts = -(-extent // min(extent, most))
    return -(-extent // parts)
