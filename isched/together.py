"""Constants that all cores bring at the same time: one read of the shared memory serves them all.

tiles of each core --every core reads the same bytes for its tile of one number--> loads done together
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from isched.program import Instr

__all__ = ["TileCode", "together"]


@dataclass(frozen=True, slots=True)
class TileCode:
    """The instructions of one tile: what brings its constants, and the rest."""

    constants: tuple[Instr, ...]
    work: tuple[Instr, ...]


def together(
    codes: Mapping[int, Sequence[TileCode]], broadcast: Callable[[Instr, tuple[int, ...]], Instr]
) -> dict[int, list[TileCode]]:
    """The tiles of each core, with one broadcast where all cores bring the same constants for tiles of one number.

    The cores meet at every broadcast, so all must come to the same ones in the same order: they are made only where
    every core reads the same bytes."""
    cores = tuple(codes)
    result = {core: list(tiles) for core, tiles in codes.items()}
    for number in range(min(map(len, codes.values()), default=0) if len(cores) > 1 else 0):
        reads = {tuple(instr.reads for instr in codes[core][number].constants) for core in cores}
        if len(reads) == 1:
            for core in cores:
                tile = codes[core][number]
                shared = tuple(broadcast(instr, cores) for instr in tile.constants)
                result[core][number] = replace(tile, constants=shared)
    return result
