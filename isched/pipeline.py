"""Software pipelining of the tiles of one core: the next tile is loaded and multiplied while this one is finished.

    load 0, multiply 0, finish 0, load 1, multiply 1, finish 1, ...
      --> load 0, multiply 0, load 1, multiply 1, finish 0, load 2, multiply 2, finish 1, ...

The core issues in order, so the order of the stream decides what can overlap. Instructions change places only where
neither writes what the other touches: a result never depends on whether this is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from isched.overlap import overlaps
from isched.program import Instr, Region

__all__ = ["TileCode", "independent", "pipelined", "tile_code", "together"]


@dataclass(frozen=True, slots=True)
class TileCode:
    """The instructions of one tile: what brings its constants and its other data, up to the last that the matrix engine
    runs, and the rest."""

    constants: tuple[Instr, ...]
    load: tuple[Instr, ...]
    multiply: tuple[Instr, ...]
    finish: tuple[Instr, ...]


def tile_code(constants: Sequence[Instr], load: Sequence[Instr], work: Sequence[Instr], matrix: str) -> TileCode:
    """Cut a tile's instructions after the last one of the engine `matrix`."""
    last = max((position for position, instr in enumerate(work) if instr.engine == matrix), default=-1)
    return TileCode(tuple(constants), tuple(load), tuple(work[: last + 1]), tuple(work[last + 1 :]))


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


def pipelined(tiles: Iterable[TileCode]) -> Iterator[Instr]:
    """The instructions of all tiles in an order that lets engines overlap."""
    waiting: tuple[Instr, ...] = ()
    for tile in tiles:
        # Until now the finish of the tile before waits: it may go after this one's load and multiplication.
        for part in ((*tile.constants, *tile.load), tile.multiply):
            if waiting and not independent(waiting, part):
                yield from waiting
                waiting = ()
            yield from part
        yield from waiting
        waiting = tile.finish
    yield from waiting


def independent(a: Sequence[Instr], b: Sequence[Instr]) -> bool:
    """True when neither writes what the other reads or writes, and neither starts or awaits anything."""
    if any(instr.starts or instr.awaits for instr in (*a, *b)):
        return False
    return not (_touch(_writes(a), (*_reads(b), *_writes(b))) or _touch(_writes(b), _reads(a)))


def _reads(instrs: Sequence[Instr]) -> tuple[Region, ...]:
    return tuple(region for instr in instrs for region in instr.reads)


def _writes(instrs: Sequence[Instr]) -> tuple[Region, ...]:
    return tuple(region for instr in instrs for region in instr.writes)


def _touch(some: tuple[Region, ...], others: tuple[Region, ...]) -> bool:
    return any(overlaps(a, b) for a in some for b in others)
