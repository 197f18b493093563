"""Expansion of a layout into transfers, computation and barriers: written once, used by lowering, traffic and cost.

    Layout --step by step, round by round--> Begin | Transfers | Compute | Barrier, ... in the order of a program

One core issues the DMA and with it all that enters or leaves the main memory; every core brings what its tiles load.
Where the layout has its rounds ahead, tile buffers have two places and also alternate between the ends of their region.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hw_models.cost import transfer_cycles
from partitioner.context.plan_context import PlanContext
from partitioner.expansion.staging_schedule import StagedRound, staged_rounds
from partitioner.ir.regions import Box, box_size, common, holds
from partitioner.ir.target import TileLoad
from partitioner.memory.memory_plan_types import SHARED, LayerLayout, Layout, MoveLayout, Place, Store
from partitioner.tiling.buffer_aliasing import Residents
from partitioner.tiling.tile_loads import TileFetch, in_first_half, relay, tile_fetches
from partitioner.tiling.tiling import piece_tiles

DMA_CORE = 0
"""Number of the core that issues transfers to and from the main memory."""

NOWHERE: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class InMain:
    """The whole of a value in the main memory, at any address."""

    tensor: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """A `part` of a tensor from one place to another; it may be empty where the places share nothing. With
    `packed_at_source`, boxes are cut so that they are dense there; with False, so that they are dense at the target;
    with None, neither side must be dense."""

    tensor: str
    source: Place | InMain
    target: Place | InMain
    part: Box
    packed_at_source: bool | None = False


@dataclass(frozen=True, slots=True)
class Begin:
    """Beginning of a layer or move, of the step at `position`; the following events belong to it."""

    position: int
    laid: LayerLayout | MoveLayout


@dataclass(frozen=True, slots=True)
class CoreTransfers:
    """Transfers of one core, one after the other. Those of one `operation` (a number) happen side by side as far as
    cores and links allow."""

    operation: int
    core: int
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class TransferPiece:
    """The tiles of one core's box; the core is `cores[number]` of its layer."""

    number: int
    core: int
    tiles: tuple[TileFetch, ...]


@dataclass(frozen=True, slots=True)
class Compute:
    """Work of all cores on one round; without pieces where tiles are not asked for."""

    staged_round: StagedRound
    pieces: tuple[TransferPiece, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A barrier of all cores. One that `drains` is needed only where bytes are reused that may still be on their way
    out."""

    drains: bool = False


Event: TypeAlias = Begin | CoreTransfers | Compute | Barrier


def expand(layout: Layout, ctx: PlanContext, tiles: bool = True) -> Iterator[Event]:
    """All events of a program with this layout, in order; without `tiles`, their loads and stores are left out. Raises
    DoesNotFit for a tile that finds no room."""
    state = _Expansion(layout, ctx, tiles)
    before: object = None
    for position, item in staged_rounds(layout, ctx.chip, layout.options.rounds_ahead):
        laid = item if isinstance(item, MoveLayout) else item.entry
        if laid is not before:
            yield Begin(position, laid)
        before = laid
        yield from state.move(item) if isinstance(item, MoveLayout) else state.staged_round(item)


def read_from(
    layout: Layout, staged_round: StagedRound, load: TileLoad, here: Mapping[str, Place]
) -> Sequence[tuple[Place, Box]]:
    """Places that a tile's load reads, each with the part that it has of it: a value in the core's memory, a pinned
    constant, the staging area, values kept in shared memories, or a constant in the main memory, from which tiles load
    where there is no staging memory. A place in the main memory stands for the whole value, at any address."""
    name = load.tensor
    if name in here:
        return ((here[name], load.box),)
    if name in layout.pinned:
        return ((layout.pinned[name][0], load.box),)
    for staged in staged_round.stage.inputs:
        if staged.tensor == name and holds(staged.box, load.box):
            return ((staged_round.place(staged), load.box),)
    if name not in staged_round.entry.sources:
        return ((Place(layout.staging, 0, load.box), load.box),)
    return [(place, common(place.box, load.box)) for place in staged_round.entry.sources[name]]


def written_to(staged_round: StagedRound, box: Box, here: Mapping[str, Place]) -> Place:
    """Destination of a finished tile: the core's own memory, the staging area, or the place where the value is kept."""
    name = staged_round.entry.layer.output
    if name in here:
        return here[name]
    for staged in staged_round.stage.outputs:
        if holds(staged.box, box):
            return staged_round.place(staged)
    assert staged_round.entry.destination is not None  # an output that does not stay local has a destination
    return staged_round.entry.destination


@dataclass(slots=True)
class _Expansion:
    """State that rounds pass on to later ones."""

    layout: Layout
    ctx: PlanContext
    tiles: bool
    operation: int = 0
    from_end: dict[int, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """For each core, the parts of memories whose end the last tile did not use: the next tile begins there."""
    leaving: list[tuple[int, int]] = field(default_factory=list)
    """Places in the staging memory, as (offset, bytes), of data on their way out; before a barrier only the DMA's core
    knows when they have left."""

    def staged_round(self, staged_round: StagedRound) -> Iterator[Event]:
        """Stage data from the main memory, let all cores work on their boxes, and take away results for the main
        memory."""
        entry, stage = staged_round.entry, staged_round.stage
        pins = [name for name in entry.layer.inputs(self.ctx.graph) if name in self.layout.pinned]
        if staged_round.number == 0:
            yield self._together(DMA_CORE, self._pinned(entry, pins))
        shared = bool(stage.inputs or stage.outputs or entry.sources or entry.destination or pins)
        for fetch in staged_round.fetches:
            yield self._together(DMA_CORE, (Transfer(name, InMain(name), place, place.box) for name, place in fetch))
        if shared:
            yield self._barrier()
        yield Compute(staged_round, tuple(self._pieces(staged_round)) if self.tiles else ())
        if shared:
            yield self._barrier()
        if stage.outputs:
            name = entry.layer.output
            yield self._together(DMA_CORE, (
                Transfer(name, staged_round.place(staged), InMain(name), staged.box, packed_at_source=True)
                for staged in stage.outputs
            ))  # fmt: skip
            self.leaving.append((staged_round.base_bytes, staged_round.end_bytes))
        if staged_round.last:
            if entry.exchange is not None:
                yield from self._exchange(entry, entry.exchange)
            for store in entry.stores:
                yield from self._store(entry, store)

    def move(self, move: MoveLayout) -> Iterator[Event]:
        """Bring what a reader's cores need into their memories: from their own, through the buffer from others', from
        shared places."""
        givers = [(core, place, owned) for core, place, owned in move.sources if core != SHARED]
        takers = [(core, target) for core, target in move.targets if box_size(target.box)]
        self.operation += 1
        yield self._barrier()
        for core, target in takers:
            yield CoreTransfers(self.operation, core, tuple([
                Transfer(move.tensor, place, target, common(owned, target.box), None if giver == core else False)
                for giver, place, owned in move.sources
                if giver in (core, SHARED)
            ]))  # fmt: skip
        if move.buffer is not None:
            yield from self._through(move.tensor, move.buffer, givers, takers)
        else:
            yield self._barrier()

    def _barrier(self, drains: bool = False) -> Barrier:
        self.leaving = []
        return Barrier(drains)

    def _together(self, core: int, transfers: Iterator[Transfer]) -> CoreTransfers:
        """Transfers that form an operation of their own."""
        self.operation += 1
        return CoreTransfers(self.operation, core, tuple(transfers))

    def _pinned(self, entry: LayerLayout, names: list[str]) -> Iterator[Transfer]:
        """Bring constants that stay in the staging memory there before their first use."""
        for name in names:
            place, first = self.layout.pinned[name]
            if first == entry.slot:
                yield Transfer(name, InMain(name), place, place.box, None)

    def _pieces(self, staged_round: StagedRound) -> Iterator[TransferPiece]:
        """The tiles of each core that has a box in the round."""
        entry, chip, ahead = staged_round.entry, self.ctx.chip, self.layout.options.rounds_ahead
        for number, (core, box) in enumerate(zip(entry.cores, staged_round.round.boxes, strict=False)):
            if not box_size(box):
                continue
            boxes = {name: place.box for name, place in entry.residents[number].items()}
            residents = Residents(boxes, self.layout.local.part)
            rounds = len(entry.rounds) if ahead else 0
            tiles = piece_tiles(self.ctx, entry.layer, box, residents, entry.free_regions, rounds)
            from_end = self.from_end.get(core, NOWHERE)
            fetches = tuple(tile_fetches(chip, entry.layer, tiles, entry.free_regions, ahead, from_end))
            if ahead:
                self.from_end[core] = in_first_half(chip, fetches[-1], entry.free_regions)
            yield TransferPiece(number, core, fetches)

    def _exchange(self, entry: LayerLayout, buffer: Place) -> Iterator[Event]:
        """Let every core give what others need of its box and fetch what it needs of theirs."""
        name = entry.layer.output
        end = buffer.offset_bytes + self.layout.size_bytes(name, buffer)
        if any(low < end and buffer.offset_bytes < high for low, high in self.leaving):
            yield self._barrier(drains=True)
        each = zip(entry.cores, entry.residents, entry.boxes, strict=True)
        givers = [(core, here[name], box) for core, here, box in each if name in here]
        self.operation += 1
        yield from self._through(name, buffer, givers, [(core, place) for core, place, _ in givers])

    def _through(
        self, name: str, buffer: Place, givers: list[tuple[int, Place, Box]], takers: list[tuple[int, Place]]
    ) -> Iterator[Event]:
        """Let cores give parts of the boxes that they own and take what they lack, through a shared `buffer`.

        A giver is a core, a place in its memory and the box in it that it owns."""
        chip, item_bytes = self.ctx.chip, self.ctx.graph.by_name[name].item_bytes
        link = self.ctx.roles.local.memory, buffer.memory

        def run_cycles(count: int) -> float:
            return transfer_cycles(chip, *link, count * item_bytes, sharers=chip.cores_per_cluster)

        owned = [(core, box) for core, _, box in givers]
        handed = relay(owned, [(core, place.box) for core, place in takers], buffer.box, run_cycles)
        for (core, place, _), parts in zip(givers, handed.given, strict=True):
            given = tuple([Transfer(name, place, buffer, part, packed_at_source=True) for part in parts])
            yield CoreTransfers(self.operation, core, given)
        yield self._barrier()
        for (core, place), parts in zip(takers, handed.taken, strict=True):
            yield CoreTransfers(self.operation, core, tuple([Transfer(name, buffer, place, part) for part in parts]))
        yield self._barrier()

    def _store(self, entry: LayerLayout, store: Store) -> Iterator[Event]:
        """Store a value that also stays local: every core stores the part that it owns."""
        name, to = store.tensor, store.buffer or store.destination
        self.operation += 1
        yield self._barrier()
        for core, here, owned in zip(entry.cores, entry.residents, store.owned, strict=True):
            if box_size(owned):
                moved = Transfer(name, here[name], to, owned, packed_at_source=True)
                yield CoreTransfers(self.operation, core, (moved,))
        yield self._barrier()
        if store.buffer is not None:
            moved = Transfer(name, store.buffer, InMain(name), store.buffer.box, packed_at_source=True)
            yield CoreTransfers(self.operation, DMA_CORE, (moved,))
            yield self._barrier()
