"""Copies in flight: DMA and icmov data land later than the instruction that started them.

A transfer keeps its pieces (source and destination boxes) until the machine lets it land. With shadow bytes its source
is marked LEAVING and its destination ARRIVING meanwhile, so that an access that would race is detected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from codegen.neuralscale.simulator.memory import shadow
from codegen.neuralscale.simulator.memory.faults import SimulationFault
from codegen.neuralscale.simulator.memory.memory import Bank, SimulatedMemory


@dataclass(frozen=True, slots=True)
class MovedPiece:
    """A piece of `rows` rows of `row_bytes`; the source rows are `source_stride` apart, the destination is packed."""

    source: Bank
    source_start: int
    destination: Bank
    destination_start: int
    rows: int
    row_bytes: int
    source_stride: int

    @property
    def source_span(self) -> int:
        """Bytes from the first to the last that is read."""
        return self.source_stride * (self.rows - 1) + self.row_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes moved."""
        return self.rows * self.row_bytes


def _copy(piece: MovedPiece) -> None:
    length, stride = piece.row_bytes, piece.source_stride
    source, target = piece.source.data, piece.destination.data
    if piece.rows == 1 or stride == length:
        first, total = piece.source_start, piece.size_bytes
        target[piece.destination_start : piece.destination_start + total] = source[first : first + total]
        return
    span = source[piece.source_start : piece.source_start + piece.source_span]
    packed = target[piece.destination_start : piece.destination_start + piece.size_bytes]
    if stride > 0 and span.size == piece.source_span and not np.may_share_memory(span, packed):
        packed.reshape(piece.rows, length)[:] = as_strided(span, (piece.rows, length), (stride, 1), writeable=False)
        return
    for row in range(piece.rows):
        first, to = piece.source_start + row * stride, piece.destination_start + row * length
        target[to : to + length] = source[first : first + length]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryTransfer:
    """Pieces that move in order and land together. `what` names it in messages; `hart` is the issuing hart of icmov."""

    what: str
    pieces: tuple[MovedPiece, ...]
    hart: int = -1

    def copy(self) -> None:
        """Move the bytes now."""
        for piece in self.pieces:
            _copy(piece)

    def check_and_mark(self, memory: SimulatedMemory) -> None:
        """Mark the pieces as in flight.

        Raises `SimulationFault` when a source is unwritten or an earlier transfer in flight is in the way. Pieces move
        in order, so a piece may use what an earlier piece of the same transfer wrote.
        """
        for number, piece in enumerate(self.pieces):
            if not any(_meet(piece, earlier) for earlier in self.pieces[:number]):
                self._check(memory, piece)
            self._mark(piece)

    def _check(self, memory: SimulatedMemory, piece: MovedPiece) -> None:
        at = shadow.scan(*_source(piece), shadow.READ_MASK, shadow.WRITTEN)
        if at >= 0:
            raise complaint(memory, piece.source, at, f"{self.what} reads")
        at = shadow.scan(*_target(piece), shadow.WRITE_MASK, shadow.NOTHING)
        if at >= 0:
            raise complaint(memory, piece.destination, at, f"{self.what} writes")

    def _mark(self, piece: MovedPiece) -> None:
        shadow.mark(*_source(piece), shadow.NOTHING, shadow.LEAVING)
        shadow.mark(*_target(piece), shadow.NOTHING, shadow.ARRIVING)

    def mark(self) -> None:
        """Mark source and destination as in flight."""
        for piece in self.pieces:
            self._mark(piece)

    def unmark(self) -> None:
        """Remove the marks; the destination is written."""
        for piece in self.pieces:
            shadow.mark(*_source(piece), shadow.LEAVING, shadow.NOTHING)
            shadow.mark(*_target(piece), shadow.ARRIVING, shadow.WRITTEN)


_Box = tuple[NDArray[np.uint8], int, int, int, int]


def _source(piece: MovedPiece) -> _Box:
    return piece.source.shadow, piece.source_start, piece.rows, piece.row_bytes, piece.source_stride


def _target(piece: MovedPiece) -> _Box:
    return piece.destination.shadow, piece.destination_start, 1, piece.size_bytes, piece.size_bytes


def _meet(later: MovedPiece, earlier: MovedPiece) -> bool:
    """Whether a later piece touches bytes that an earlier one writes, or overwrites bytes that it reads."""

    def overlap(a: Bank, a_start: int, a_bytes: int, b: Bank, b_start: int, b_bytes: int) -> bool:
        return a.data is b.data and a_start < b_start + b_bytes and b_start < a_start + a_bytes

    written = (earlier.destination, earlier.destination_start, earlier.size_bytes)
    read = (earlier.source, earlier.source_start, earlier.source_span)
    reads_written = overlap(later.source, later.source_start, later.source_span, *written)
    target = (later.destination, later.destination_start, later.size_bytes)
    return reads_written or overlap(*target, *written) or overlap(*target, *read)


def complaint(memory: SimulatedMemory, bank: Bank, at: int, action: str) -> SimulationFault:
    """The fault for a bad byte at offset `at` of `bank`: unwritten, or part of a transfer in flight."""
    flags = int(bank.shadow[at])
    name, address, core = memory.describe(at) if bank.data is memory.bytes else ("high memory", at, None)
    place = f"{name} {address:#x}" + (f" of core {core}" if core is not None else "")
    if flags & int(shadow.ARRIVING):
        return SimulationFault("race", f"{action} {place}, the destination of a transfer still in flight")
    if flags & int(shadow.LEAVING):
        return SimulationFault("race", f"{action} {place}, the source of a transfer still in flight")
    return SimulationFault("poison", f"{action} {place}, which nothing has written")


class Flight:
    """All transfers of a machine that have not landed; keeps their shadow marks right."""

    def __init__(self, memory: SimulatedMemory, moved: Callable[[MemoryTransfer], None]) -> None:
        self._memory = memory
        self._moved = moved
        self._transfers: list[MemoryTransfer] = []

    def depart(self, transfer: MemoryTransfer) -> None:
        """Take a transfer into flight. Raises `SimulationFault` on a race or an unwritten source when tracking."""
        if self._memory.tracked:
            transfer.check_and_mark(self._memory)
        self._transfers.append(transfer)

    def land(self, transfer: MemoryTransfer) -> None:
        """Move the data and remove the marks, except where another transfer in flight needs them."""
        self._transfers.remove(transfer)
        transfer.copy()
        self._moved(transfer)
        if self._memory.tracked:
            transfer.unmark()
            for other in self._transfers:
                other.mark()
