"""Lowering: a plan that is laid out becomes one instruction stream for each core, with addresses.

    step --> layers --> rounds --> [main -> staging] barrier [staging -> local, compute, back] barrier [staging -> main]

Where everything lies is said by `partitioner.memory.memory_plan`. One core issues the DMA, all cores work on their
boxes tile by tile. What is resident in a core's memory is used where it lies or moved inside the core; nothing is
loaded twice in a row: a buffer that already holds a box keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hw_models.errors import PlanError
from isched.lowering.broadcast_merge import TileCode, together
from isched.lowering.main_memory_allocation import place_tensors
from isched.lowering.staging_schedule import Turn, turns_of
from isched.lowering.strided_copies import copies, packed_copies
from isched.lowering.tile_code import LowerContext, tile_code
from isched.program.program import Instr, Placement, Program, Stream
from isched.program.target import Copy
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.ir.regions import Box, box_size, common, full_box, holds
from partitioner.ir.target import Load
from partitioner.memory.memory_plan import (
    SHARED,
    LayerLayout,
    Layout,
    LayoutOptions,
    MoveLayout,
    Place,
    Store,
    lay_out,
)
from partitioner.tiling.buffer_aliasing import Fit, Residents
from partitioner.tiling.tile_loads import TileFetch, in_first_half, relay, tile_fetches
from partitioner.tiling.tiling import piece_tiles

__all__ = ["lower_layout", "lower_plan"]

NOWHERE: frozenset[tuple[str, str]] = frozenset()

MOST_INSTRUCTIONS = 1_000_000
"""A program of more is refused while it is being made: no code space holds it, and hours would pass."""


@dataclass(slots=True)
class _Lowering:
    """What the steps of one plan share while their instructions are collected."""

    ctx: LowerContext
    layout: Layout
    placement: dict[str, Placement]
    reads: dict[str, Placement]
    streams: list[list[Instr]]
    overlap: bool
    turn: Turn | None = None
    brought: dict[object, tuple[Instr, ...]] = field(default_factory=dict)
    """Of this turn: instructions that bring constants, which are the same on all cores."""
    from_end: dict[int, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """By core, the parts of memories whose end was not used by the last tile: the next one begins there."""
    leaving: list[tuple[int, int]] = field(default_factory=list)
    """Bytes of the staging memory that are on their way out, which only core 0 knows to be over before a barrier."""

    def barrier(self, source: str) -> None:
        self.leaving = []
        for stream in self.streams:
            stream.append(self.ctx.target.synchronise(source))

    def copies(self, wanted: list[Copy], source: str) -> tuple[Instr, ...]:
        """Instructions that move what is wanted."""
        return self.ctx.target.copy(tuple(wanted), source, self.ctx.chip) if wanted else ()

    def copy(self, core: int, wanted: list[Copy], source: str) -> None:
        self.streams[core].extend(self.copies(wanted, source))

    def item_bytes(self, tensor: str) -> int:
        return self.ctx.graph.by_name[tensor].item_bytes

    def in_main(self, tensor: str, placements: Mapping[str, Placement]) -> Place:
        """The whole of a value in the main memory."""
        return Place(self.ctx.main, placements[tensor].offset_bytes, full_box(self.ctx.graph.by_name[tensor].shape))


def lower_plan(
    plan: Plan,
    ctx: LowerContext,
    base_bytes: int,
    isolated: bool = False,
    overlap: bool = False,
    keep_values: bool = False,
    apart: bool = True,
) -> Program:
    """Lay a plan out and lower it: for callers that need no layout. With `overlap`, addresses leave room for running
    ahead; unless `apart` is false, what lives in layers that follow each other has places of its own then, where there
    is room. Raises PlanError and DoesNotFit as `lay_out` and `lower_layout` do."""
    layout = lay_out(plan, ctx, LayoutOptions(rounds_ahead=overlap, buffers_apart=overlap and apart))
    return lower_layout(layout, ctx, base_bytes, isolated, keep_values)


def lower_layout(
    layout: Layout, ctx: LowerContext, base_bytes: int, isolated: bool = False, keep_values: bool = False
) -> Program:
    """The program of one cluster; tensors lie in the main memory from `base_bytes` on. Where the layout stages rounds
    ahead, tile buffers change place too, so that a scheduler can let loads run ahead of computation.

    With `keep_values` every value that reaches the main memory has a place of its own there and can be read after the
    run; else values take turns. With `isolated`, each layer reads copies of its inputs (placements of kind `probe`, to
    be filled by whoever runs the program) instead of what the layers before it wrote: every layer can then be judged by
    itself in one run. That needs a plan which keeps every value in the main memory.
    Raises DoesNotFit naming the layer or tensor, the demand and the bound.
    """
    overlap = layout.options.rounds_ahead
    placements = place_tensors(ctx, base_bytes, layout, keep_values or isolated, isolated)
    by_name = {p.tensor: p for p in placements if p.kind != "probe"}
    reads = by_name | {p.of: p for p in placements if p.kind == "probe"}
    streams: list[list[Instr]] = [[] for _ in range(ctx.chip.cores_per_cluster)]
    state = _Lowering(ctx, layout, by_name, reads, streams, overlap)
    for turn in turns_of(layout, ctx.chip, overlap):
        if isinstance(turn, Turn):
            _lower_turn(state, turn)
        else:
            _lower_move(state, turn)
    streams_of = tuple(Stream(core, tuple(instrs)) for core, instrs in enumerate(state.streams))
    return Program(ctx.graph.name, ctx.chip.name, 0, ctx.target.barrier, placements, streams_of)


def _lower_turn(state: _Lowering, turn: Turn) -> None:
    """What comes from the main memory is staged, all cores work on their boxes, what goes there is taken away."""
    layer, entry, stage = turn.entry.layer, turn.entry, turn.stage
    pins = [name for name in layer.inputs(state.ctx.graph) if name in state.layout.pinned]
    if turn.number == 0:
        _load_pins(state, entry, pins)
    shared = bool(stage.inputs or stage.outputs or entry.sources or entry.destination or pins)
    _bring(state, turn)
    if shared:
        state.barrier(layer.name)
    codes = {
        core: _lower_piece(state, turn, number)
        for number, core in enumerate(entry.cores)
        if number < len(turn.round.boxes) and box_size(turn.round.boxes[number])
    }
    for core, tiles in (together(codes, state.ctx.target.broadcast) if state.overlap else codes).items():
        state.streams[core].extend(instr for tile in tiles for instr in (*tile.constants, *tile.work))
        _require_size(state, layer)
    if shared:
        state.barrier(layer.name)
    _store_outputs(state, turn)
    if turn.last and entry.exchange is not None:
        _exchange(state, entry, entry.exchange)
    for store in entry.stores if turn.last else ():
        _store_resident(state, entry, store)


def _load_pins(state: _Lowering, entry: LayerLayout, pins: list[str]) -> None:
    """Constants that stay in the staging memory come there before their first use."""
    wanted: list[Copy] = []
    for name in pins:
        place, first = state.layout.pinned[name]
        if first == entry.slot:
            wanted += copies(state.in_main(name, state.reads), place, place.box, state.item_bytes(name))
    state.copy(0, wanted, entry.layer.name)


def _require_size(state: _Lowering, layer: Layer) -> None:
    count = sum(len(stream) for stream in state.streams)
    if count > MOST_INSTRUCTIONS:
        raise PlanError(
            f"layer {layer.name}",
            needs=f"at most {MOST_INSTRUCTIONS:,} instructions up to here",
            has=f"{count:,}",
            change="use a smaller batch or smaller tensors",
        )


def _bring(state: _Lowering, turn: Turn) -> None:
    """Stage what a turn reads and the one before it has not left there."""
    wanted = [
        copy
        for staged in turn.stage.inputs
        if staged not in turn.kept
        for copy in packed_copies(
            state.in_main(staged.tensor, state.reads),
            turn.place(staged),
            staged.box,
            state.item_bytes(staged.tensor),
            at_source=False,
        )
    ]
    state.copy(0, wanted, turn.entry.layer.name)


def _store_outputs(state: _Lowering, turn: Turn) -> None:
    """What the round computed, from the staging area to the main memory."""
    name = turn.entry.layer.output
    if not turn.stage.outputs:
        return
    main = state.in_main(name, state.placement)
    wanted = [
        copy
        for staged in turn.stage.outputs
        for copy in packed_copies(turn.place(staged), main, staged.box, state.item_bytes(name), at_source=True)
    ]
    state.copy(0, wanted, turn.entry.layer.name)
    state.leaving.append((turn.base_bytes, turn.end_bytes))


def _lower_piece(state: _Lowering, turn: Turn, number: int) -> list[TileCode]:
    """The tiles of one core's box in one round."""
    if state.turn is not turn:
        state.turn, state.brought = turn, {}
    entry = turn.entry
    layer, here = entry.layer, entry.residents[number]
    residents = Residents({name: place.box for name, place in here.items()}, state.layout.local.part)
    tiles = piece_tiles(state.ctx, layer, turn.round.boxes[number], residents, entry.room, state.overlap)
    core = entry.cores[number]
    fetches = list(
        tile_fetches(state.ctx.chip, layer, tiles, entry.room, state.overlap, state.from_end.get(core, NOWHERE))
    )
    if state.overlap:
        state.from_end[core] = in_first_half(state.ctx.chip, fetches[-1], entry.room)
    return [code for fetch in fetches for code in _tile(state, turn, fetch, here)]


def _tile(state: _Lowering, turn: Turn, tile: TileFetch, here: Mapping[str, Place]) -> Iterator[TileCode]:
    """The instructions of one tile, of each pass apart: what a pass loads may come while the one before computes."""
    layer, work = turn.entry.layer, tile.work
    memory = {buffer.name: buffer.memory for buffer in work.buffers}
    for number, (spare, loads) in enumerate(zip(tile.offsets, tile.loads, strict=True)):
        offsets, pitches = _offsets(state, spare, tile.used, here)
        if number == 0 or spare != tile.offsets[number - 1]:
            passes = tile_code(state.ctx, layer, tile.box, offsets, pitches)

        def moves(wanted: list[Load], offsets: Mapping[str, int] = offsets) -> tuple[Instr, ...]:
            places = ((load, Place(memory[load.buffer], offsets[load.buffer], load.box)) for load in wanted)
            return state.copies(
                [copy for load, place in places for copy in _load(state, turn, load, place, here)], layer.name
            )

        fixed = [load for load in loads if state.ctx.graph.by_name[load.tensor].constant]
        key = tuple([(load, offsets[load.buffer]) for load in fixed])
        constants = state.brought.get(key)
        if constants is None:
            constants = moves(fixed)
            if not any(load.tensor in here for load in fixed):
                state.brought[key] = constants
        others = moves([load for load in loads if not state.ctx.graph.by_name[load.tensor].constant])
        instrs = list(passes[number])
        if tile.stored and number == len(tile.loads) - 1:
            source = Place(work.local, offsets[work.output], tile.box)
            instrs += state.copies(_back(state, turn, source, here), layer.name)
        yield TileCode(constants, (*others, *instrs))


def _offsets(
    state: _Lowering, spare: Mapping[str, int], used: Fit, here: Mapping[str, Place]
) -> tuple[dict[str, int], dict[str, int]]:
    """Where the buffers of a tile lie, and the pitches of those that are rows of a wider tensor."""
    offsets, pitches = dict(spare), {}
    for buffer, alias in used.aliases.items():
        item_bytes = state.item_bytes(alias.tensor)
        offsets[buffer] = here[alias.tensor].offset_bytes + alias.offset_items * item_bytes
        if alias.pitch_items:
            pitches[buffer] = alias.pitch_items * item_bytes
    return offsets, pitches


def _load(state: _Lowering, turn: Turn, load: Load, to: Place, here: Mapping[str, Place]) -> list[Copy]:
    """Copies that fill a buffer: from a resident value, the staging area, a pinned constant or a value kept there."""
    item_bytes = state.item_bytes(load.tensor)
    if load.tensor in here:
        return packed_copies(here[load.tensor], to, load.box, item_bytes, at_source=False)
    if load.tensor in state.layout.pinned:
        return packed_copies(state.layout.pinned[load.tensor][0], to, load.box, item_bytes, at_source=False)
    for staged in turn.stage.inputs:
        if staged.tensor == load.tensor and holds(staged.box, load.box):
            return packed_copies(turn.place(staged), to, load.box, item_bytes, at_source=False)
    return [
        copy
        for place in turn.entry.sources[load.tensor]
        if box_size(part := common(place.box, load.box))
        for copy in packed_copies(place, to, part, item_bytes, at_source=False)
    ]


def _back(state: _Lowering, turn: Turn, source: Place, here: Mapping[str, Place]) -> list[Copy]:
    """Copies of a finished tile: to the resident output, to the staging area, or to where the value is kept."""
    name = turn.entry.layer.output
    item_bytes = state.item_bytes(name)
    if name in here:
        return packed_copies(source, here[name], source.box, item_bytes, at_source=True)
    for staged in turn.stage.outputs:
        if holds(staged.box, source.box):
            return packed_copies(source, turn.place(staged), source.box, item_bytes, at_source=True)
    assert turn.entry.destination is not None  # an output that stays nowhere local goes somewhere
    return packed_copies(source, turn.entry.destination, source.box, item_bytes, at_source=True)


def _exchange(state: _Lowering, entry: LayerLayout, buffer: Place) -> None:
    """Every core gives what others need of its box and fetches what it needs of theirs."""
    name = entry.layer.output
    start = buffer.offset_bytes
    end = start + box_size(buffer.box) * state.item_bytes(name)
    if any(low < end and start < high for low, high in state.leaving):
        state.barrier(entry.layer.name)
    each = zip(entry.cores, entry.residents, entry.boxes, strict=True)
    givers = [(core, here[name], box) for core, here, box in each if name in here]
    takers = [(core, place) for core, place, _ in givers]
    _through(state, name, entry.layer.name, buffer, givers, takers)


def _through(
    state: _Lowering,
    name: str,
    source: str,
    buffer: Place,
    givers: list[tuple[int, Place, Box]],
    takers: list[tuple[int, Place]],
) -> None:
    """Cores give parts of the boxes that they own and take what they lack, through a shared `buffer`.

    A giver is a core, a place in its memory and the box in it that it owns."""
    item_bytes = state.item_bytes(name)
    handed = relay([(core, box) for core, _, box in givers], [(core, place.box) for core, place in takers], buffer.box)
    for (giver, place, _), parts in zip(givers, handed.given, strict=True):
        wanted = [copy for part in parts for copy in packed_copies(place, buffer, part, item_bytes, at_source=True)]
        state.copy(giver, wanted, source)
    state.barrier(source)
    for (core, place), parts in zip(takers, handed.taken, strict=True):
        wanted = [copy for part in parts for copy in packed_copies(buffer, place, part, item_bytes, at_source=False)]
        state.copy(core, wanted, source)
    state.barrier(source)


def _store_resident(state: _Lowering, entry: LayerLayout, store: Store) -> None:
    """A value that stays local leaves too: every core stores the part that it owns."""
    name = store.tensor
    item_bytes = state.item_bytes(name)
    to = store.buffer or store.destination
    state.barrier(entry.layer.name)
    for core, here, owned in zip(entry.cores, entry.residents, store.owned, strict=True):
        if box_size(owned):
            state.copy(core, packed_copies(here[name], to, owned, item_bytes, at_source=True), entry.layer.name)
    state.barrier(entry.layer.name)
    if store.buffer is not None:
        main = state.in_main(name, state.placement)
        state.copy(0, packed_copies(store.buffer, main, store.buffer.box, item_bytes, at_source=True), entry.layer.name)
        state.barrier(entry.layer.name)


def _lower_move(state: _Lowering, move: MoveLayout) -> None:
    """What a reader's cores need, into their memories: from their own, through the buffer from others', from shared
    places."""
    name, source = move.tensor, move.group
    item_bytes = state.item_bytes(name)
    givers = [(core, place, owned) for core, place, owned in move.sources if core != SHARED]
    takers = [(core, target) for core, target in move.targets if box_size(target.box)]
    state.barrier(source)
    for core, target in takers:
        wanted = [
            copy
            for giver, place, owned in move.sources
            if giver in (core, SHARED) and box_size(part := common(owned, target.box))
            for copy in (
                copies(place, target, part, item_bytes)
                if giver == core
                else packed_copies(place, target, part, item_bytes, at_source=False)
            )
        ]
        state.copy(core, wanted, source)
    if move.buffer is not None:
        _through(state, name, source, move.buffer, givers, takers)
    else:
        state.barrier(source)
