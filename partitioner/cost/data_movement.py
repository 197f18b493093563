"""The walk behind `partitioner.cost.traffic`: every move of a laid-out step, in the order of lowering.

    LayerLayout --pins, rounds, tiles, exchange, stores--> Move, Move, ... and cycles of every engine
    MoveLayout  --own memory, shared places, buffer-->     Move, Move, ...

What a tile really loads and what cores hand on is said by `partitioner.tiling.tile_loads`, to lowering too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from hw_models.cost import transfer_cycles, vector_cycles
from partitioner.context.plan_context import PlanContext
from partitioner.ir.plan import Step
from partitioner.ir.regions import Box, box_size, common, holds
from partitioner.ir.target import Load
from partitioner.memory.memory_plan import SHARED, LayerLayout, Layout, MoveLayout, Place, Store
from partitioner.tiling.buffer_aliasing import Residents
from partitioner.tiling.staging_rounds import Round, Stage, Staged
from partitioner.tiling.tile_loads import TileFetch, relay, tile_fetches
from partitioner.tiling.tiling import piece_tiles

__all__ = ["Busy", "Counting", "Move", "Way", "sums"]

Key = TypeVar("Key")

Busy = dict[str, float]
"""Engine -> cycles."""

Way = tuple[str, str]
"""(memory that is read, memory that is written)."""

HALF_BYTES = 2
"""The vector engine copies elements of half precision, as the kernels do."""


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes of one value by one way. A way from a core's memory into itself is a copy inside the core."""

    tensor: str
    way: Way
    size_bytes: int


@dataclass(frozen=True)
class Counting:
    """Walks a layout as lowering does. Without `tiles`, their loads and stores are left out."""

    ctx: PlanContext
    layout: Layout
    tiles: bool

    def _move(self, tensor: str, source: str, destination: str, elements: int) -> Move:
        return Move(tensor, (source, destination), elements * self.ctx.graph.by_name[tensor].item_bytes)

    def layer(self, step: Step, entry: LayerLayout, busy: Busy) -> Iterator[Move]:
        """Pinned constants, rounds, the exchange, stores of what stays."""
        yield from self.together(self._pins(entry), busy)
        before: tuple[Staged, ...] = ()
        for turn, stage in entry.rounds:
            staging = self.layout.staging
            fresh = [staged for staged in stage.inputs if staged not in before]
            before = stage.inputs
            loaded = [self._move(staged.tensor, self.ctx.main, staging, box_size(staged.box)) for staged in fresh]
            yield from self.together(loaded, busy)
            if self.tiles:
                yield from self._cores(entry, turn, stage, busy)
            stored = [
                self._move(staged.tensor, staging, self.ctx.main, box_size(staged.box)) for staged in stage.outputs
            ]
            yield from self.together(stored, busy)
        if entry.exchange is not None:
            name = entry.layer.output
            each = zip(step.binding.cores, entry.residents, entry.boxes, strict=True)
            givers = [(core, here[name], box) for core, here, box in each if name in here]
            takers = [(core, place) for core, place, _ in givers]
            yield from self.together(self._through(name, entry.exchange, givers, takers), busy)
        for store in entry.stores:
            yield from self.together(self._store(entry, store), busy)

    def _pins(self, entry: LayerLayout) -> Iterator[Move]:
        for name in entry.layer.inputs(self.ctx.graph):
            place, first = self.layout.pinned.get(name, (None, -1))
            if place is not None and first == entry.slot:
                yield self._move(name, self.ctx.main, place.memory, box_size(place.box))

    def together(self, moves: Iterable[Move], busy: Busy) -> list[Move]:
        """Moves of a cluster, side by side: each way counts once, at its whole bandwidth."""
        done = list(moves)
        for way, size in sums((move.way, move.size_bytes) for move in done).items():
            if size:
                self._add(busy, way, size, 1)
        return done

    def _cores(self, entry: LayerLayout, turn: Round, stage: Stage, busy: Busy) -> Iterator[Move]:
        """The pieces of a round; the core that works most on an engine counts for it."""
        most: Busy = {}
        for number, box in enumerate(turn.boxes):
            if box_size(box):
                own: Busy = {}
                moves = list(self._piece(entry, number, box, stage, own))
                for move in moves:
                    self._add(own, move.way, move.size_bytes, len(turn.boxes))
                most = {engine: max(most.get(engine, 0.0), own.get(engine, 0.0)) for engine in {**most, **own}}
                yield from moves
        for engine, cycles in most.items():
            busy[engine] = busy.get(engine, 0.0) + cycles

    def _add(self, busy: Busy, way: Way, size_bytes: int, sharers: int) -> None:
        """Cycles of one dense move; inside one memory the vector engine copies."""
        source, destination = way
        if source == destination == self.ctx.main:
            return
        if source != destination:
            engine = self.ctx.chip.link(source, destination).engine
            cycles = transfer_cycles(self.ctx.chip, source, destination, size_bytes, sharers=sharers)
        else:
            engine, cycles = self.ctx.chip.vector.name, vector_cycles(self.ctx.chip, size_bytes // HALF_BYTES)
        busy[engine] = busy.get(engine, 0.0) + cycles

    def _piece(self, entry: LayerLayout, number: int, box: Box, stage: Stage, busy: Busy) -> Iterator[Move]:
        """Loads and stores of the tiles of one core's box in one round."""
        here = entry.residents[number]
        residents = Residents({name: place.box for name, place in here.items()}, self.layout.local.part)
        tiles = piece_tiles(self.ctx, entry.layer, box, residents, entry.room)
        for tile in tile_fetches(self.ctx.chip, entry.layer, tiles, entry.room):
            for engine, cycles in tile.work.engine_cycles:
                busy[engine] = busy.get(engine, 0.0) + cycles
            memory = {buffer.name: buffer.memory for buffer in tile.work.buffers}
            for loads in tile.loads:
                for load in loads:
                    yield from self._load(entry, stage, load, memory[load.buffer], here)
            if tile.stored:
                yield self._back(entry, stage, tile, here)

    def _load(self, entry: LayerLayout, stage: Stage, load: Load, to: str, here: Mapping[str, Place]) -> Iterator[Move]:
        name = load.tensor
        if name in here:
            yield self._move(name, here[name].memory, to, box_size(load.box))
        elif name in self.layout.pinned or any(s.tensor == name and holds(s.box, load.box) for s in stage.inputs):
            yield self._move(name, self.layout.staging, to, box_size(load.box))
        else:
            for place in entry.sources[name]:
                yield self._move(name, place.memory, to, box_size(common(place.box, load.box)))

    def _back(self, entry: LayerLayout, stage: Stage, tile: TileFetch, here: Mapping[str, Place]) -> Move:
        name = entry.layer.output
        if name in here:
            memory = here[name].memory
        elif any(holds(staged.box, tile.box) for staged in stage.outputs):
            memory = self.layout.staging
        else:
            assert entry.destination is not None  # an output that stays nowhere local goes somewhere
            memory = entry.destination.memory
        return self._move(name, tile.work.local, memory, box_size(tile.box))

    def _store(self, entry: LayerLayout, store: Store) -> Iterator[Move]:
        to = store.buffer or store.destination
        for here, owned in zip(entry.residents, store.owned, strict=True):
            if box_size(owned):
                yield self._move(store.tensor, here[store.tensor].memory, to.memory, box_size(owned))
        if store.buffer is not None:
            yield self._move(store.tensor, store.buffer.memory, self.ctx.main, box_size(store.buffer.box))

    def _through(
        self, name: str, buffer: Place, givers: list[tuple[int, Place, Box]], takers: list[tuple[int, Place]]
    ) -> Iterator[Move]:
        handed = relay(
            [(core, box) for core, _, box in givers], [(core, place.box) for core, place in takers], buffer.box
        )
        for (_, place, _), boxes in zip(givers, handed.given, strict=True):
            yield self._move(name, place.memory, buffer.memory, sum(box_size(box) for box in boxes))
        for (_, place), boxes in zip(takers, handed.taken, strict=True):
            yield self._move(name, buffer.memory, place.memory, sum(box_size(box) for box in boxes))

    def move(self, step: Step, laid: MoveLayout) -> Iterator[Move]:
        """What a move brings: from a core's own memory and shared places, then through the buffer."""
        takers = [(core, place) for core, place in laid.targets if box_size(place.box)]
        for core, target in takers:
            for giver, place, owned in laid.sources:
                if giver in (core, SHARED):
                    yield self._move(step.tensor, place.memory, target.memory, box_size(common(owned, target.box)))
        if laid.buffer is not None:
            givers = [(core, place, owned) for core, place, owned in laid.sources if core != SHARED]
            yield from self._through(step.tensor, laid.buffer, givers, takers)


def sums(pairs: Iterable[tuple[Key, int]]) -> dict[Key, int]:
    """Numbers added up by key."""
    total: Counter[Key] = Counter()
    for key, number in pairs:
        total[key] += number
    return dict(total)
