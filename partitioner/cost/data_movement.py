"""The sum behind `partitioner.cost.traffic`: bytes, engine cycles and barriers of a layer or a move.

    Transfers, Compute, Barrier of one layer or move --added up--> Move, Move, ..., cycles by engine, barriers

`partitioner.expansion.expansion` says what happens in which order, for this module and for lowering.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from hw_models.cost import copy_cycles, copy_engine, transfer_cycles
from partitioner.context.plan_context import PlanContext
from partitioner.expansion.expansion import (
    Barrier,
    Compute,
    CoreTransfers,
    InMain,
    TransferPiece,
    read_from,
    written_to,
)
from partitioner.expansion.staging_schedule import StagedRound
from partitioner.ir.graph import DTYPE_BYTES
from partitioner.ir.regions import box_size
from partitioner.memory.memory_plan_types import Layout, Place

Key = TypeVar("Key")

Busy = dict[str, float]
"""Engine -> cycles."""

Way = tuple[str, str]
"""(memory that is read, memory that is written)."""


@dataclass(frozen=True, slots=True)
class DataMove:
    """Bytes of one value from one memory to another; both may be a core's own memory: a copy inside the core."""

    tensor: str
    way: Way
    size_bytes: int


@dataclass(slots=True)
class Counted:
    """Totals so far in one layer or move. Transfers of one operation run side by side: each pair of memories counts
    once, at its whole bandwidth. For each engine, the core with the most work in a round counts."""

    ctx: PlanContext
    layout: Layout
    moves: list[DataMove] = field(default_factory=list)
    busy: Busy = field(default_factory=dict)
    barriers: int = 0
    operation: int = 0
    ways: dict[tuple[Way, str], int] = field(default_factory=dict)
    """Bytes of the current operation, by pair of memories and copied dtype."""

    def add(self, event: CoreTransfers | Compute | Barrier) -> None:
        """Add the next event."""
        match event:
            case CoreTransfers():
                if event.operation != self.operation:
                    self.end_operation()
                    self.operation = event.operation
                for moved in event.transfers:
                    way = self._memory(moved.source), self._memory(moved.target)
                    move = self._move(moved.tensor, way, box_size(moved.part))
                    self.moves.append(move)
                    key = way, self._copied(move)
                    self.ways[key] = self.ways.get(key, 0) + move.size_bytes
            case Compute():
                self.end_operation()
                self._compute(event)
            case Barrier():
                self.barriers += not event.drains

    def end_operation(self) -> None:
        for (way, dtype), size in self.ways.items():
            if size:
                self._spend(self.busy, way, size, 1, dtype)
        self.ways = {}

    def _compute(self, event: Compute) -> None:
        most: Busy = {}
        for piece in event.pieces:
            own: Busy = {}
            for tile in piece.tiles:
                for engine, cycles in tile.work.engine_cycles:
                    own[engine] = own.get(engine, 0.0) + cycles
            for move in self._piece_moves(event.staged_round, piece):
                self._spend(own, move.way, move.size_bytes, len(event.staged_round.round.boxes), self._copied(move))
                self.moves.append(move)
            most = {engine: max(most.get(engine, 0.0), own.get(engine, 0.0)) for engine in {**most, **own}}
        for engine, cycles in most.items():
            self.busy[engine] = self.busy.get(engine, 0.0) + cycles

    def _piece_moves(self, staged_round: StagedRound, piece: TransferPiece) -> Iterator[DataMove]:
        """Loads and stores of the tiles of one core's box in one round."""
        here = staged_round.entry.residents[piece.number]
        for tile in piece.tiles:
            memory = {buffer.name: buffer.memory for buffer in tile.work.buffers}
            for loads in tile.loads:
                for load in loads:
                    for place, part in read_from(self.layout, staged_round, load, here):
                        yield self._move(load.tensor, (place.memory, memory[load.buffer]), box_size(part))
            if tile.stored:
                to = written_to(staged_round, tile.box, here)
                yield self._move(staged_round.entry.layer.output, (tile.work.local, to.memory), box_size(tile.box))

    def _move(self, tensor: str, way: Way, elements: int) -> DataMove:
        return DataMove(tensor, way, elements * self.layout.item_bytes[tensor])

    def _memory(self, place: Place | InMain) -> str:
        return self.ctx.roles.main if isinstance(place, InMain) else place.memory

    def _copied(self, move: DataMove) -> str:
        """The dtype that an engine copies; for bytes on a link it does not matter."""
        source, destination = move.way
        return self.ctx.graph.by_name[move.tensor].dtype if source == destination else ""

    def _spend(self, busy: Busy, way: Way, size_bytes: int, sharers: int, dtype: str) -> None:
        """Add the cycles of one dense move; inside one memory, elements of `dtype` are copied."""
        source, destination = way
        if source == destination == self.ctx.roles.main:
            return
        if source != destination:
            engine = self.ctx.chip.link(source, destination).engine
            cycles = transfer_cycles(self.ctx.chip, source, destination, size_bytes, sharers=sharers)
        else:
            item_bytes = DTYPE_BYTES[dtype]
            engine = copy_engine(self.ctx.chip, source)
            cycles = copy_cycles(self.ctx.chip, source, size_bytes // item_bytes, dtype, item_bytes)
        busy[engine] = busy.get(engine, 0.0) + cycles


def sums(pairs: Iterable[tuple[Key, int]]) -> dict[Key, int]:
    """Numbers added up by key."""
    total: Counter[Key] = Counter()
    for key, number in pairs:
        total[key] += number
    return dict(total)
