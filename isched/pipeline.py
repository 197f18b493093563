"""Software pipelining of the tiles of one core: the next tile is loaded and multiplied while this one is finished.

    load 0, multiply 0, finish 0, load 1, multiply 1, finish 1, ...
      --> load 0, multiply 0, load 1, multiply 1, finish 0, load 2, multiply 2, finish 1, ...

The core issues in order, so the order of the stream decides what can overlap. Instructions change places only where
neither writes what the other touches: a result never depends on whether this is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from isched.overlap import overlaps
from isched.program import Instr, Region

__all__ = ["TileCode", "independent", "pipelined", "tile_code"]


@dataclass(frozen=True, slots=True)
class TileCode:
    """The instructions of one tile: what brings its data, up to the last that the matrix engine runs, and the rest."""

    load: tuple[Instr, ...]
    multiply: tuple[Instr, ...]
    finish: tuple[Instr, ...]


def tile_code(load: Sequence[Instr], work: Sequence[Instr], matrix: str) -> TileCode:
    """Cut a tile's instructions after the last one of the engine `matrix`."""
    last = max((position for position, instr in enumerate(work) if instr.engine == matrix), default=-1)
    return TileCode(tuple(load), tuple(work[: last + 1]), tuple(work[last + 1 :]))


def pipelined(tiles: Iterable[TileCode]) -> Iterator[Instr]:
    """The instructions of all tiles in an order that lets engines overlap."""
    waiting: tuple[Instr, ...] = ()
    for tile in tiles:
        # Until now the finish of the tile before waits: it may go after this one's load and multiplication.
        for part in (tile.load, tile.multiply):
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
