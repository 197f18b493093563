"""Rows written into a cache at places that integers say: work of the scalar core and the DMA.

    new rows in the main memory --> staging memory --chains of descriptors that the scalar core writes--> their places

The cache has regions of equally many rows, of items and heads; each takes pieces of rows that lie next to each other,
and a piece goes where its integer says. Rows that would lie outside of their region are not written: a piece without
any row inside is written over itself, so that every run executes the same instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from codegen.neuralscale.emit.descriptors import CHAIN_SHARE, linear_control
from codegen.neuralscale.emit.memory_map import address_of
from codegen.neuralscale.emit.memory_names import MAIN, STAGING
from codegen.neuralscale.kernels.staged_chunks import INWARD, OUTWARD, buffer_bytes, in_turn
from hw_models.chip import Chip
from isched.program.program import Instr, Region
from partitioner.ir.graph import Graph, Op

SCATTER = "dma.scatter"
"""A chain of descriptors, one per piece, whose destinations the scalar core computes from integers."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Extents of a write: `regions` of `rows` rows, each with `pieces` of `count` rows."""

    regions: int
    rows: int
    pieces: int
    count: int
    row_bytes: int

    @staticmethod
    def of(graph: Graph, op: Op) -> _Rows:
        regions, rows, pieces = (int(op.number(name)) for name in ("regions", "rows", "pieces"))
        row_bytes = graph.by_name[op.inputs[0]].size_bytes // (regions * rows)
        count = graph.by_name[op.inputs[1]].size_bytes // (regions * pieces * row_bytes)
        return _Rows(regions, rows, pieces, count, row_bytes)

    @property
    def region_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def piece_bytes(self) -> int:
        return self.count * self.row_bytes


@dataclass(frozen=True, slots=True)
class _Chunk:
    """`pieces` from number `first` on, of which the rows from `skipped` on, `count` each."""

    first: int
    pieces: int
    skipped: int
    count: int


def row_problem(graph: Graph, op: Op, chip: Chip) -> str | None:
    """Why rows cannot be written; None where they can."""
    size, most = _Rows.of(graph, op).row_bytes, buffer_bytes(chip)
    return f"a row has {size:,} bytes; at most {most:,} are written at a time" if size > most else None


def assigned_rows(graph: Graph, op: Op, places: Mapping[str, int], chip: Chip) -> Iterator[Instr]:
    """The instructions of one core; `places` gives the addresses of tensors in the main memory."""
    own, (cache, update, index) = _Rows.of(graph, op), op.inputs
    chunks = list(_chunks(own, chip))

    def bring(number: int, engine: int, offset: int) -> Instr:
        chunk = chunks[number]
        size, start = chunk.pieces * chunk.count * own.row_bytes, places[update] + _start(own, chunk)
        words = (linear_control(size), address_of(MAIN, start), address_of(STAGING, offset), 0, 0)
        operands = (("engine", engine), ("channel", INWARD), *((f"w{i}", word) for i, word in enumerate(words)))
        reads, writes = (Region(MAIN, start, size),), (Region(STAGING, offset, size),)
        starts = f"dma{engine}.{INWARD}"
        return Instr(chip.dma.engine, "dma.start", operands, reads, writes, 0.0, op.name, starts=starts)

    def leave(number: int, engine: int, offset: int) -> Instr:
        chunk = chunks[number]
        size, start = chunk.pieces * chunk.count * own.row_bytes, places[update] + _start(own, chunk)
        first, last = (piece // own.pieces for piece in (chunk.first, chunk.first + chunk.pieces - 1))
        region = places[cache] + first * own.region_bytes
        indices = Region(MAIN, places[index] + 4 * chunk.first, 4 * chunk.pieces)
        operands = (
            ("engine", engine),
            ("channel", OUTWARD),
            ("index", address_of(MAIN, indices.offset_bytes)),
            ("source", address_of(STAGING, offset)),
            ("home", address_of(MAIN, start)),
            ("destination", address_of(MAIN, region)),
            ("rows", own.rows),
            ("row_bytes", own.row_bytes),
            ("skipped", chunk.skipped),
            ("piece_rows", chunk.count),
            ("region_bytes", own.region_bytes if own.pieces == 1 else 0),
            ("count", chunk.pieces),
        )
        piece, home = chunk.count * own.row_bytes, Region(MAIN, start, size)
        reads = (Region(STAGING, offset, piece, chunk.pieces, piece if chunk.pieces > 1 else 0), indices, home)
        writes = (Region(MAIN, region, (last - first + 1) * own.region_bytes), home)
        starts = f"dma{engine}.{OUTWARD}"
        return Instr(chip.dma.engine, SCATTER, operands, reads, writes, 0.0, op.name, starts=starts)

    shared = own.pieces > 1 or own.piece_bytes > buffer_bytes(chip)  # regions, by chunks
    yield from in_turn(op.name, len(chunks), bring, leave, chip, one_by_one=shared)


def _start(own: _Rows, chunk: _Chunk) -> int:
    """Offset of a chunk's rows among the new ones, in bytes."""
    return chunk.first * own.piece_bytes + chunk.skipped * own.row_bytes


def _chunks(own: _Rows, chip: Chip) -> Iterator[_Chunk]:
    """Pieces of one region, or whole regions of one piece each, as many as a chain and a buffer have room for; where a
    piece is larger than a buffer, parts of one."""
    room = buffer_bytes(chip)
    if own.piece_bytes > room:
        most = room // own.row_bytes
        for piece in range(own.regions * own.pieces):
            for skipped in range(0, own.count, most):
                yield _Chunk(piece, 1, skipped, min(most, own.count - skipped))
        return
    most = max(1, min(chip.dma.max_descriptors // CHAIN_SHARE, room // own.piece_bytes))
    lines = [(0, own.regions)] if own.pieces == 1 else [(r * own.pieces, own.pieces) for r in range(own.regions)]
    for line, length in lines:
        for start in range(0, length, most):
            yield _Chunk(line + start, min(most, length - start), 0, own.count)
