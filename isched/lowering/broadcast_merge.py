"""Constants that several cores bring at the same time: one read of the shared memory serves them all.

tiles of each core with work --all of them read the same bytes for their tiles of one number--> loads done together
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from isched.program.program import Instr


@dataclass(frozen=True, slots=True)
class TileCode:
    """The instructions of one tile: what brings its constants, and the rest."""

    constants: tuple[Instr, ...]
    work: tuple[Instr, ...]


def together(
    codes: Mapping[int, Sequence[TileCode]], broadcast: Callable[[Instr, tuple[int, ...]], Instr]
) -> dict[int, list[TileCode]]:
    """The tiles of each core that has any, with one broadcast where they all bring the same constants for tiles of one
    number.

    They meet at every broadcast, so all must come to the same ones in the same order: these are made only where each of
    them reads the same bytes. Cores without tiles take no part."""
    cores = tuple(codes)
    result = {core: list(tiles) for core, tiles in codes.items()}
    done: dict[int, tuple[Instr, ...]] = {}  # by identity: tiles mostly share the tuples of their constants
    for number in range(min(map(len, codes.values()), default=0) if len(cores) > 1 else 0):
        tiles = [codes[core][number] for core in cores]
        distinct = {id(tile.constants): tile.constants for tile in tiles}
        if len({tuple([instr.reads for instr in constants]) for constants in distinct.values()}) > 1:
            continue
        for key, constants in distinct.items():
            if key not in done:
                done[key] = tuple([broadcast(instr, cores) for instr in constants])
        for core, tile in zip(cores, tiles, strict=True):
            result[core][number] = TileCode(done[id(tile.constants)], tile.work)
    return result
