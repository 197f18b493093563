"""Lowering: a plan that is laid out becomes one instruction stream per core, with addresses.

    Layout --expand--> transfers, computation, barriers --copies and kernels of the target--> instructions of each core

`partitioner.memory.memory_plan` decides where everything lies, `partitioner.expansion.expansion` what is done in which
order. Data resident in a core's memory are used where they lie or moved inside the core. Constants that several cores
bring at the same time are one read of the shared memory. The number of instructions is estimated while they are made,
because layers that are laid out alike take equally many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hw_models.errors import PlanError
from isched.lowering.main_memory_allocation import place_tensors
from isched.lowering.row_lookups import looked_up_when_read, row_runs
from isched.lowering.strided_copies import copies, packed_copies
from isched.lowering.tile_code import LowerContext, tile_code
from isched.program.program import Instr, Program, Stream, TensorPlacement
from isched.program.shared_constants import NOT_SHARED, SharedConstants
from isched.program.target import MemoryCopy, MovesOperands, Prepares, Schedulable
from partitioner.expansion.expansion import (
    DMA_CORE,
    Barrier,
    Begin,
    Compute,
    CoreTransfers,
    InMain,
    Transfer,
    TransferPiece,
    expand,
    read_from,
    written_to,
)
from partitioner.expansion.staging_schedule import StagedRound
from partitioner.ir.graph import Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import box_shape, box_size, full_box
from partitioner.ir.target import TileLoad
from partitioner.memory.memory_plan_types import LayerLayout, Layout, MoveLayout, Place
from partitioner.tiling.buffer_aliasing import Fit
from partitioner.tiling.tile_loads import TileFetch

MOST_INSTRUCTIONS = 1_000_000
"""Largest number of instructions in a program; a larger one is refused while it is being made: no code space holds it,
and lowering it would take hours."""


class ProgramSize:
    """Guard against programs that become too large; it is told when each layer begins, and the instructions so far."""

    def __init__(self, layout: Layout, ctx: LowerContext) -> None:
        self._ctx = ctx
        entries = (entry for step in layout.steps if not isinstance(step, MoveLayout) for entry in step)
        self._to_come = Counter(map(self._kind, entries))
        self._taken: dict[Hashable, int] = {}
        self._now: tuple[Hashable, int] | None = None

    def begin(self, laid: LayerLayout | MoveLayout, count: int) -> None:
        """Begin another layer or move after `count` instructions. Raises PlanError if those still to come are too
        many."""
        if self._now is not None:
            kind, before = self._now
            self._taken[kind] = count - before
            self._to_come[kind] -= 1
            expected = count + sum(self._to_come[each] * taken for each, taken in self._taken.items())
            if expected > MOST_INSTRUCTIONS:
                raise _refusal("the program", f"about {expected:,}, by layers that are alike")
        self._now = None if isinstance(laid, MoveLayout) else (self._kind(laid), count)

    def require(self, layer: Layer, count: int) -> None:
        """Raises PlanError if the instructions up to this layer are too many."""
        if count > MOST_INSTRUCTIONS:
            raise _refusal(f"layer {layer.name}", f"{count:,}")

    def _kind(self, entry: LayerLayout) -> Hashable:
        likeness = self._ctx.likeness(entry.layer)
        held = (frozenset(likeness.to_first.get(name, name) for name in places) for places in entry.residents)
        memory = "" if entry.destination is None else entry.destination.memory
        return likeness.kind, tuple(map(box_shape, entry.boxes)), tuple(held), memory, len(entry.rounds)


def _refusal(who: str, has: str) -> PlanError:
    change = "use a smaller batch or smaller tensors"
    return PlanError(who, needs=f"at most {MOST_INSTRUCTIONS:,} instructions", has=has, change=change)


@dataclass(frozen=True, slots=True)
class TileCode:
    """The instructions of one tile: those that bring its constants, and the rest."""

    constants: tuple[Instr, ...]
    work: tuple[Instr, ...]


def together(
    codes: Mapping[int, Sequence[TileCode]], broadcast: Callable[[Instr, tuple[int, ...]], Instr]
) -> dict[int, list[TileCode]]:
    """The tiles of each core that has any, with one broadcast where all of these cores bring the same constants for
    tiles of the same number.

    Cores meet at every broadcast, so all must reach the same ones in the same order: broadcasts are made only where
    each core reads the same bytes. Cores without tiles take no part."""
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


@dataclass(slots=True)
class _Lowering:
    """State that the steps of one plan share while their instructions are collected."""

    ctx: LowerContext
    layout: Layout
    placement: dict[str, TensorPlacement]
    reads: dict[str, TensorPlacement]
    streams: list[list[Instr]]
    lookups: Mapping[str, Op]
    """Lookups, by their results, of which a layer reads the rows from the table."""
    size: ProgramSize

    @property
    def count(self) -> int:
        """Instructions so far."""
        return sum(map(len, self.streams))

    def barrier(self, source: str) -> None:
        for stream in self.streams:
            stream.append(self.ctx.target.synchronise(source))

    def copies(self, wanted: list[MemoryCopy], source: str) -> tuple[Instr, ...]:
        """Instructions that make the wanted copies."""
        return self.ctx.target.copy(tuple(wanted), source, self.ctx.chip) if wanted else ()

    def copy(self, core: int, wanted: list[MemoryCopy], source: str) -> None:
        self.streams[core].extend(self.copies(wanted, source))

    def item_bytes(self, tensor: str) -> int:
        return self.ctx.graph.by_name[tensor].item_bytes

    @property
    def places(self) -> dict[str, int]:
        """Offsets in the main memory."""
        return {name: placement.offset_bytes for name, placement in self.placement.items()}

    def in_main(self, tensor: str, placements: Mapping[str, TensorPlacement]) -> Place:
        """The whole of a value in the main memory."""
        return Place(
            self.ctx.roles.main, placements[tensor].offset_bytes, full_box(self.ctx.graph.by_name[tensor].shape)
        )


def lower_layout(
    layout: Layout,
    ctx: LowerContext,
    base_bytes: int,
    isolated: bool = False,
    keep_values: bool = False,
    shared: SharedConstants = NOT_SHARED,
) -> Program:
    """The program of one cluster; tensors lie in the main memory from `base_bytes` on, constants that are `shared` with
    other programs where these have them. Where the layout stages rounds ahead, tile buffers also alternate between
    places, so that a scheduler can let loads run ahead of computation.

    With `keep_values` every value that reaches the main memory has a place of its own there and can be read after the
    run, including looked-up rows that otherwise go directly from their table to a layer; without it, values share
    memory by lifetime. With `isolated`, each layer reads copies of its inputs (placements of kind `probe`, to be filled
    by whoever runs the program) instead of the results of the layers before it: every layer can then be judged by
    itself in one run. That needs a plan which keeps every value in the main memory. Raises DoesNotFit naming the layer
    or tensor, the demand and the bound, and PlanError for a program of too many instructions.
    """
    lookups = looked_up_when_read(layout, ctx)
    absent = frozenset(lookups) if not keep_values and not isolated else frozenset()
    placements = place_tensors(ctx, base_bytes, layout, keep_values or isolated, isolated, absent, shared)
    by_name = {p.tensor: p for p in placements if p.kind != "probe"}
    reads = by_name | {p.of: p for p in placements if p.kind == "probe"}
    streams: list[list[Instr]] = [[] for _ in range(ctx.chip.cores_per_cluster)]
    state = _Lowering(ctx, layout, by_name, reads, streams, lookups, ProgramSize(layout, ctx))
    _words(state, tuple(op for op in ctx.graph.prepared if op.outputs[0] not in absent))
    source = ""
    for event in expand(layout, ctx):
        match event:
            case Begin(laid=laid):
                state.size.begin(laid, state.count)
                source = laid.group if isinstance(laid, MoveLayout) else laid.layer.name
            case CoreTransfers():
                rows, others = _apart(state, event.transfers)
                state.streams[event.core].extend(instr for moved in rows for instr in _look_up(state, moved, source))
                state.copy(event.core, [copy for moved in others for copy in _transfer(state, moved)], source)
            case Compute():
                _compute(state, event)
            case Barrier():
                state.barrier(source)
    if ctx.graph.concluded:
        state.barrier(source)
        _words(state, ctx.graph.concluded)
    streams_of = tuple(Stream(core, tuple(instrs)) for core, instrs in enumerate(state.streams))
    return Program(ctx.graph.name, ctx.chip.name, 0, ctx.target.barrier, placements, streams_of)


def _words(state: _Lowering, ops: tuple[Op, ...]) -> None:
    """Emit the operators done in the main memory before or after all layers, on the core that does them; the others
    wait."""
    ctx = state.ctx
    if not ops:
        return
    assert isinstance(ctx.target, Prepares)  # else the graph would have been made without
    places, touched = state.places, False
    for op in ops:
        instrs = ctx.target.prepare(ctx.graph, op, places, ctx.chip)
        if touched and any(instr.starts for instr in instrs):  # only a barrier orders a transfer after these
            state.barrier(op.name)
            touched = False
        touched |= any(instr.writes and not instr.starts for instr in instrs)
        state.streams[DMA_CORE].extend(instrs)
    state.barrier(ops[-1].name)


def _apart(state: _Lowering, transfers: tuple[Transfer, ...]) -> tuple[list[Transfer], list[Transfer]]:
    """Transfers of rows that are looked up when they are read, and transfers that are copied."""
    rows: list[Transfer] = []
    others: list[Transfer] = []
    for moved in transfers:
        looked_up = moved.tensor in state.lookups and isinstance(moved.source, InMain)
        (rows if looked_up else others).append(moved)
    return rows, others


def _look_up(state: _Lowering, moved: Transfer, source: str) -> tuple[Instr, ...]:
    """Instructions that bring the rows of one transfer."""
    ctx, op = state.ctx, state.lookups[moved.tensor]
    assert isinstance(ctx.target, Prepares)  # else the graph would have been made without
    assert isinstance(moved.target, Place)  # data from the main memory are staged
    runs = row_runs(ctx.graph, op, moved.target)
    return ctx.target.look_up(ctx.graph, op, state.places, runs, source, ctx.chip)


def _transfer(state: _Lowering, moved: Transfer) -> list[MemoryCopy]:
    """Copies of one transfer. The source in the main memory may be a copy made for this reader only (a probe)."""
    if not box_size(moved.part):
        return []
    source = state.in_main(moved.tensor, state.reads) if isinstance(moved.source, InMain) else moved.source
    target = state.in_main(moved.tensor, state.placement) if isinstance(moved.target, InMain) else moved.target
    item_bytes = state.item_bytes(moved.tensor)
    if moved.packed_at_source is None:
        return copies(source, target, moved.part, item_bytes)
    return packed_copies(source, target, moved.part, item_bytes, moved.packed_at_source)


def _compute(state: _Lowering, event: Compute) -> None:
    """The tiles of all cores in one round. Constants are brought by the same instructions on all cores."""
    layer = event.staged_round.entry.layer
    brought: dict[object, tuple[Instr, ...]] = {}
    codes = {
        piece.core: [code for tile in piece.tiles for code in _tile(state, event.staged_round, piece, tile, brought)]
        for piece in event.pieces
    }
    target = state.ctx.target
    if state.layout.options.rounds_ahead and isinstance(target, Schedulable):
        codes = together(codes, target.broadcast)
    for core, tiles in codes.items():
        state.streams[core].extend(instr for tile in tiles for instr in (*tile.constants, *tile.work))
        state.size.require(layer, state.count)


def _tile(
    state: _Lowering,
    staged_round: StagedRound,
    piece: TransferPiece,
    tile: TileFetch,
    brought: dict[object, tuple[Instr, ...]],
) -> Iterator[TileCode]:
    """The instructions of one tile, separately for each pass: the loads of a pass may come while the pass before
    computes. `brought` remembers instructions that bring constants."""
    layer, work, here = staged_round.entry.layer, tile.work, staged_round.entry.residents[piece.number]
    if isinstance(state.ctx.target, MovesOperands):
        yield _moving_tile(state, state.ctx.target, staged_round, tile, here)
        return
    memory = {buffer.name: buffer.memory for buffer in work.buffers}
    for number, (spare, loads) in enumerate(zip(tile.offsets, tile.loads, strict=True)):
        offsets, pitches = _offsets(state, spare, tile.used, here)
        if number == 0 or spare != tile.offsets[number - 1]:
            passes = tile_code(state.ctx, layer, tile.box, offsets, pitches)

        def moves(wanted: list[TileLoad], offsets: Mapping[str, int] = offsets) -> tuple[Instr, ...]:
            places = ((load, Place(memory[load.buffer], offsets[load.buffer], load.box)) for load in wanted)
            copies = [copy for load, place in places for copy in _load(state, staged_round, load, place, here)]
            return state.copies(copies, layer.name)

        fixed = [load for load in loads if state.ctx.graph.by_name[load.tensor].constant]
        key = tuple([(load, offsets[load.buffer]) for load in fixed])
        constants = brought.get(key)
        if constants is None:
            constants = moves(fixed)
            if not any(load.tensor in here for load in fixed):
                brought[key] = constants
        others = moves([load for load in loads if not state.ctx.graph.by_name[load.tensor].constant])
        instrs = list(passes[number])
        if tile.stored and number == len(tile.loads) - 1:
            source = Place(work.local, offsets[work.output], tile.box)
            to = _located(state, layer.output, written_to(staged_round, tile.box, here), state.placement)
            item_bytes = state.item_bytes(layer.output)
            instrs += state.copies(packed_copies(source, to, tile.box, item_bytes, at_source=True), layer.name)
        yield TileCode(constants, (*others, *instrs))


def _moving_tile(
    state: _Lowering, target: MovesOperands, staged_round: StagedRound, tile: TileFetch, here: Mapping[str, Place]
) -> TileCode:
    """The instructions of a tile that moves its data itself; values that stay in the core lie `here`."""
    ctx, layer, work = state.ctx, staged_round.entry.layer, tile.work
    loads = {load.tensor: load for step in work.passes for load in step.loads}
    operands = {
        name: _located(state, name, read_from(state.layout, staged_round, load, here)[0][0], state.reads)
        for name, load in loads.items()
    }
    result = _located(state, layer.output, written_to(staged_round, tile.box, here), state.placement)
    held = frozenset(loads) - {load.tensor for step in tile.loads for load in step}
    offsets, _ = _offsets(state, tile.offsets[0], tile.used, here)
    instrs = target.lower_moving(ctx.graph, ctx.constants, layer, tile.box, offsets, operands, result, ctx.chip, held)
    return TileCode((), instrs)


def _located(state: _Lowering, tensor: str, place: Place, placements: Mapping[str, TensorPlacement]) -> Place:
    """The place of a tensor, or of a part of it; the whole of it where it lies in the main memory."""
    return state.in_main(tensor, placements) if place.memory == state.ctx.roles.main else place


def _offsets(
    state: _Lowering, spare: Mapping[str, int], used: Fit, here: Mapping[str, Place]
) -> tuple[dict[str, int], dict[str, int]]:
    """Offsets of the buffers of a tile, and the pitches of those that are rows of a wider tensor."""
    offsets, pitches = dict(spare), {}
    for buffer, alias in used.aliases.items():
        item_bytes = state.item_bytes(alias.tensor)
        offsets[buffer] = here[alias.tensor].offset_bytes + alias.offset_items * item_bytes
        if alias.pitch_items:
            pitches[buffer] = alias.pitch_items * item_bytes
    return offsets, pitches


def _load(
    state: _Lowering, staged_round: StagedRound, load: TileLoad, to: Place, here: Mapping[str, Place]
) -> list[MemoryCopy]:
    """Copies that fill a buffer."""
    item_bytes = state.item_bytes(load.tensor)
    return [
        copy
        for place, part in read_from(state.layout, staged_round, load, here)
        if box_size(part)
        for copy in packed_copies(
            _located(state, load.tensor, place, state.reads), to, part, item_bytes, at_source=False
        )
    ]
