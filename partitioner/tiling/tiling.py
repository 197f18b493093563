"""Tiling: rounds that fit the shared buffer, tiles that fit a core's local memories.

    output box --rounds--> what the LLB holds at once --binding--> a core's piece --tiles--> what L1 and IM hold at once

Outer axes (images, then rows) are cut before inner ones, the channel axis apart from them, because cutting channels
reloads the input and cutting rows reloads the weights. Among the cuts that fit, the one with the fewest cycles by the
cost model wins, for both loop orders; a layer that does not fit is refused with the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from hw_models.chip import Chip
from hw_models.cost import copy_cycles
from hw_models.errors import required
from hw_models.infeasible import Infeasible, LayerSubject, Lever
from hw_models.memory_parts import aligned, aligned_in, part_bytes, part_start, place_in, place_of
from partitioner.context.plan_context import PlanContext
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size
from partitioner.ir.target import TileBuffer, TileWork
from partitioner.tiling.buffer_aliasing import NOTHING, Fit, FreeRegions, Residents, fit
from partitioner.tiling.core_partition import (
    broadcast_cycles,
    cut_axis,
    cut_granularity,
    load_cycles,
    piece_boxes,
    store_cycles,
)

Sizes = dict[tuple[str, str, str], int]
"""(buffer, memory, physical part) -> bytes."""

EVERYWHERE: FreeRegions = {}
"""No limit on where tile buffers lie in their memories."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Cuts of each axis at multiples of `granularity`; with `channels_outer` the last axis is the outer loop."""

    counts: tuple[int, ...]
    granularity: tuple[int, ...]
    channels_outer: bool = False


def tile_boxes(box: Box, tiling: Tiling) -> tuple[Box, ...]:
    """The tiles of a box in the order in which they run."""
    boxes = piece_boxes(box, tiling.counts, tiling.granularity)
    return tuple(sorted(boxes, key=lambda b: (b[-1], b))) if tiling.channels_outer else boxes


def buffer_sizes(buffers: Iterable[Sequence[TileBuffer]]) -> Sizes:
    """Size of each buffer so that every one of several tiles, given by their buffers, finds room in it."""
    sizes: Sizes = {}
    for tile in buffers:
        for buffer in tile:
            key = (buffer.name, buffer.memory, buffer.part)
            sizes[key] = max(sizes.get(key, 0), buffer.size_bytes)
    return sizes


def demand_bytes(chip: Chip, sizes: Sizes) -> dict[tuple[str, str], int]:
    """Bytes that buffers need in each (memory, physical part), alignment included."""
    demand: dict[tuple[str, str], int] = {}
    for (_, memory, part), size in sizes.items():
        described = chip.memory(memory)
        place = place_in(described, part)
        demand[place] = demand.get(place, 0) + aligned_in(described, size)
    return demand


def place_buffers(
    chip: Chip, sizes: Sizes, free_regions: FreeRegions = EVERYWHERE, from_end: frozenset[tuple[str, str]] = frozenset()
) -> dict[str, int]:
    """Offsets of buffers in their memories, one after the other in each part or in its free region; in the parts
    `from_end` (memory, part) from the end towards the start."""
    used: dict[tuple[str, str], int] = {}
    offsets: dict[str, int] = {}
    for (name, memory, part), size_bytes in sizes.items():
        place = place_of(chip, memory, part)
        start, size = bounds_of(chip, place, free_regions)
        before = used.get(place, 0)
        used[place] = before + aligned(chip, memory, size_bytes)
        unit = chip.memory(memory).alignment_bytes
        offsets[name] = start + size // unit * unit - used[place] if place in from_end else start + before
    return offsets


def bounds_of(chip: Chip, place: tuple[str, str], free_regions: FreeRegions) -> tuple[int, int]:
    """Offset and bytes of the region of a (memory, part) for buffers."""
    return free_regions[place] if place in free_regions else (part_start(chip, *place), part_bytes(chip, *place))


@dataclass(frozen=True, slots=True)
class Overflow:
    """Buffers need `demand_bytes` of a memory, or a part of it, that has `room_bytes` for them."""

    memory: str
    part: str
    demand_bytes: int
    room_bytes: int

    @property
    def missing_bytes(self) -> int:
        return self.demand_bytes - self.room_bytes


def overflow(chip: Chip, sizes: Sizes, free_regions: FreeRegions = EVERYWHERE) -> Overflow | None:
    """The first memory, or part of one, that buffers overflow; None when they fit."""
    for (memory, part), demand in demand_bytes(chip, sizes).items():
        bound = free_regions[memory, part][1] if (memory, part) in free_regions else part_bytes(chip, memory, part)
        if demand > bound:
            return Overflow(memory, part, demand, bound)
    return None


def choose_tiles(
    ctx: PlanContext,
    layer: Layer,
    piece: Box,
    residents: Residents = NOTHING,
    free_regions: FreeRegions = EVERYWHERE,
    cheapest: bool = True,
    rounds: int = 0,
) -> tuple[Tiling, float] | Infeasible:
    """The tiling of a core's piece with the fewest cycles when nothing overlaps, and these cycles; without `cheapest`,
    the first tiling that fits and no cycles, which is many times faster.

    With `rounds`, tiles overlap, including those of this many similar rounds: constants come by broadcast, and the
    cycles are those of the busiest engine, with this round's share of the other engines' work for one tile before and
    after all. Moving is hidden too where every buffer finds a second place.

    Values in `residents` are in the core's memory already; other buffers find places in `free_regions`. Channels are
    cut at multiples of the matrix array; where even one array's width does not fit (a long reduction fills the weight
    buffer), at any multiple that the target allows. Infeasible when the smallest tile is too large.
    """
    chip = ctx.chip
    best: tuple[float, int, Tiling] | None = None
    closest: Overflow | None = None
    for granularity in dict.fromkeys((cut_granularity(ctx, layer, piece), ctx.target.granularity(ctx.graph, layer))):
        for counts, work, used, lack in _candidates(ctx, layer, piece, granularity, residents, free_regions, rounds):
            over = lack
            if lack is not None and rounds:  # perhaps of second places alone
                over = overflow(chip, _spare_sizes(used, False), free_regions)
            if over is not None:
                if closest is None or over.missing_bytes < closest.missing_bytes:
                    closest = over
                continue
            if not cheapest:
                return Tiling(counts, granularity), 0.0
            double = rounds > 0 and lack is None
            found = _cycles(ctx, layer, piece, counts, granularity, work, used, rounds > 0)
            for channels_outer, (engines, moving) in zip((False, True), found, strict=True):
                cycles = sum(engines) + moving
                if rounds:
                    together = (*engines, moving) if double else engines
                    steps = rounds * prod(counts) * max(len(work.passes), work.steps)
                    cycles -= (sum(together) - max(together)) * (1 - 1 / steps)
                if best is None or (cycles, prod(counts)) < best[:2]:
                    best = (cycles, prod(counts), Tiling(counts, granularity, channels_outer))
        if best is not None:
            return best[2], best[0]
    assert closest is not None  # every candidate overflowed something
    return no_tile(layer, closest)


def _candidates(
    ctx: PlanContext,
    layer: Layer,
    piece: Box,
    granularity: tuple[int, ...],
    residents: Residents,
    free_regions: FreeRegions,
    rounds: int,
) -> Iterator[tuple[tuple[int, ...], TileWork, Fit, Overflow | None]]:
    """For each cut of the channels the cuts of the outer axes, coarse to fine, up to the first that fits: the last one,
    which lacks no room. With `rounds`, that counts second places of buffers, too."""
    for inner in cut_counts(piece[-1], granularity[-1]):
        for outer in outer_counts(piece, granularity):
            counts = (*outer, inner)
            tile = middle(piece, counts, granularity)
            work = ctx.work(layer, tile)
            used = fit(ctx, layer, tile, work, residents)
            lack = overflow(ctx.chip, _spare_sizes(used, rounds * prod(counts) > 1), free_regions)
            yield counts, work, used, lack
            if lack is None:
                break


def _spare_sizes(used: Fit, twice: bool) -> Sizes:
    """Bytes of the buffers that are not part of a resident tensor; with `twice`, each has a second place, except for
    those that are used briefly."""
    sizes = buffer_sizes((used.spare,))
    if twice:
        brief = {buffer.name for buffer in used.spare if buffer.briefly}
        for (name, memory, part), size in tuple(sizes.items()):
            if name not in brief:
                sizes[second_place(name), memory, part] = size
    return sizes


def second_place(buffer: str) -> str:
    """The name of a buffer's second place."""
    return f"{buffer}'"


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a piece in order, the target's work for each, and the use of resident data by each."""

    boxes: tuple[Box, ...]
    works: tuple[TileWork, ...]
    fits: tuple[Fit, ...]


@dataclass(frozen=True, slots=True)
class TilingChoice:
    """A tiling, the bytes that one of its tiles uses by (memory, part), and its cycles when nothing overlaps."""

    tiling: Tiling
    used_bytes: dict[tuple[str, str], int]
    cycles: float

    def within(self, free_regions: FreeRegions) -> bool:
        """Whether a tile fits the free regions."""
        return all(self.used_bytes.get(place, 0) <= size for place, (_, size) in free_regions.items())


@dataclass(frozen=True)
class _Known:
    """Tilings chosen in one compilation: pieces of one shape with the same residents share one, unless a border made it
    too coarse. The key is layer, shape of the piece, residents, room, and whether the cheapest was wanted."""

    tilings: dict[object, TilingChoice] = field(default_factory=dict)
    alike: dict[object, TilingChoice] = field(default_factory=dict)
    """Tilings by everything that decides them, for layers that differ only in names."""


def piece_tiling(
    ctx: PlanContext, layer: Layer, piece: Box, residents: Residents = NOTHING, free_regions: FreeRegions = EVERYWHERE
) -> Tiling:
    """The tiling of a piece with the fewest cycles. Raises DoesNotFit where no tile finds room."""
    return required(_best(ctx, layer, piece, residents, free_regions)).tiling


def piece_cycles(
    ctx: PlanContext, layer: Layer, piece: Box, residents: Residents = NOTHING, free_regions: FreeRegions = EVERYWHERE
) -> float | Infeasible:
    """Cycles of a piece in the tiling that is chosen, when nothing overlaps."""
    best = _best(ctx, layer, piece, residents, free_regions)
    return best if isinstance(best, Infeasible) else best.cycles


def workspace_bytes(ctx: PlanContext, layer: Layer, piece: Box, residents: Residents) -> int | Infeasible:
    """Bytes of the local memory that the coarsest tile of `piece` uses when all of it is free."""
    free = _known(ctx, layer, piece, residents, EVERYWHERE, False)
    return free if isinstance(free, Infeasible) else free.used_bytes.get(ctx.roles.local, 0)


def missing_for_tile(
    ctx: PlanContext, layer: Layer, piece: Box, residents: Residents, free_regions: FreeRegions
) -> Infeasible | None:
    """The missing room where no tile of the piece fits; None where one does."""
    found = _known(ctx, layer, piece, residents, EVERYWHERE, False)
    if not isinstance(found, Infeasible) and not found.within(free_regions):
        found = _known(ctx, layer, piece, residents, free_regions, False)
    return found if isinstance(found, Infeasible) else None


def piece_tiles(
    ctx: PlanContext,
    layer: Layer,
    piece: Box,
    residents: Residents = NOTHING,
    free_regions: FreeRegions = EVERYWHERE,
    rounds: int = 0,
) -> Tiles:
    """The tiles of a piece, each of which fits. With `rounds`, two places of each buffer fit, where that is possible
    and pays for this many rounds after each other. Raises DoesNotFit."""
    tilings = [piece_tiling(ctx, layer, piece, residents, free_regions)]
    if rounds:
        tilings.insert(0, required(_known(ctx, layer, piece, residents, free_regions, True, rounds)).tiling)
    for tiling in tilings:
        tiles = _cut(ctx, layer, piece, residents, tiling)
        if _all_fit(ctx, tiles, free_regions):
            return tiles
    # The largest tile away from the borders stood for all; if a border makes another one larger, cut finer.
    for tiling in _finer(ctx, layer, piece):
        tiles = _cut(ctx, layer, piece, residents, tiling)
        if _all_fit(ctx, tiles, free_regions):
            return tiles
    return _cut(ctx, layer, piece, residents, tilings[-1])


def _all_fit(ctx: PlanContext, tiles: Tiles, free_regions: FreeRegions) -> bool:
    each = dict.fromkeys(used.spare for used in tiles.fits)
    return all(overflow(ctx.chip, buffer_sizes((spare,)), free_regions) is None for spare in each)


def _finer(ctx: PlanContext, layer: Layer, piece: Box) -> Iterator[Tiling]:
    """All tilings, coarse to fine."""
    granularity = ctx.target.granularity(ctx.graph, layer)
    for inner in cut_counts(piece[-1], granularity[-1]):
        for outer in outer_counts(piece, granularity):
            yield Tiling((*outer, inner), granularity)


def _cut(ctx: PlanContext, layer: Layer, piece: Box, residents: Residents, tiling: Tiling) -> Tiles:
    boxes = tile_boxes(piece, tiling)
    works = tuple(ctx.work(layer, box) for box in boxes)
    fits = tuple(fit(ctx, layer, box, work, residents) for box, work in zip(boxes, works, strict=True))
    return Tiles(boxes, works, fits)


def _best(
    ctx: PlanContext, layer: Layer, piece: Box, residents: Residents, free_regions: FreeRegions
) -> TilingChoice | Infeasible:
    free = _known(ctx, layer, piece, residents, EVERYWHERE, True)
    if isinstance(free, Infeasible) or free.within(free_regions):
        return free
    return _known(ctx, layer, piece, residents, free_regions, True)


def _known(
    ctx: PlanContext,
    layer: Layer,
    piece: Box,
    residents: Residents,
    free_regions: FreeRegions,
    cheapest: bool,
    rounds: int = 0,
) -> TilingChoice | Infeasible:
    held = tuple(sorted((name, box_shape(box)) for name, box in residents.boxes.items()))
    bounds = tuple(sorted((place, size) for place, (_, size) in free_regions.items()))
    key = (layer, box_shape(piece), held, bounds, cheapest, rounds)
    table = ctx.memo(_Known)
    if key not in table.tilings:
        likeness = ctx.likeness(layer)
        places = tuple(sorted((likeness.to_first.get(name, name), box) for name, box in residents.boxes.items()))
        whole = (likeness.kind, piece, places, residents.part, bounds, cheapest, rounds)
        if whole not in table.alike:
            chosen = choose_tiles(ctx, layer, piece, residents, free_regions, cheapest, rounds)
            if isinstance(chosen, Infeasible):
                return chosen
            tiling, cycles = chosen
            tile = middle(piece, tiling.counts, tiling.granularity)
            used = fit(ctx, layer, tile, ctx.work(layer, tile), residents)
            table.alike[whole] = TilingChoice(tiling, demand_bytes(ctx.chip, buffer_sizes((used.spare,))), cycles)
        table.tilings[key] = table.alike[whole]
    return table.tilings[key]


def no_tile(layer: Layer, over: Overflow) -> Infeasible:
    """The Infeasible for a layer whose smallest tile or round is too large."""
    levers = (Lever.SMALLER_INPUT, Lever.LARGER_MEMORY, Lever.FEWER_CHANNELS)
    subject = LayerSubject(layer.name, smallest_tile=True)
    return Infeasible(subject, over.memory, over.part, over.demand_bytes, over.room_bytes, levers)


def _cycles(
    ctx: PlanContext,
    layer: Layer,
    piece: Box,
    counts: tuple[int, ...],
    granularity: tuple[int, ...],
    work: TileWork,
    used: Fit,
    broadcasts: bool,
) -> tuple[tuple[tuple[float, ...], float], tuple[tuple[float, ...], float]]:
    """Work of all tiles by engine, and cycles of moves: their stores, and each load as often as its box changes; with
    the channels as the inner loop and as the outer one. Resident data cost nothing where a buffer is a part of them,
    else a move inside the core."""
    graph, chip = ctx.graph, ctx.chip
    intervals = [cut_axis(low, high, n, q) for (low, high), n, q in zip(piece, counts, granularity, strict=True)]
    inner = len(intervals[-1])
    outer = prod(len(axis) for axis in intervals[:-1])
    sample = middle(piece, counts, granularity)
    if work.output in used.aliases:
        store = 0.0
    elif used.scatters:
        store = _copy_cycles(ctx, layer.output, sample)
    else:
        store = store_cycles(chip, work.local, graph.by_name[layer.output], sample)
    engines = tuple(inner * outer * cycles for _, cycles in work.engine_cycles)
    rows_outer = channels_outer = inner * outer * store
    first = tuple(axis[0] for axis in intervals)
    start = _load_boxes(ctx.work(layer, first))
    last_channels = (*first[:-1], intervals[-1][-1])
    across = _load_boxes(ctx.work(layer, last_channels)) if inner > 1 else start
    last_rows = (*(axis[-1] for axis in intervals[:-1]), first[-1])
    along = _load_boxes(ctx.work(layer, last_rows)) if outer > 1 else start
    moved = {load.buffer for load in used.moves}
    for buffer, loads in _load_boxes(work).items():
        if buffer in used.aliases:
            continue
        once = 0.0
        for tensor, box in loads:
            if buffer in moved:
                once += _copy_cycles(ctx, tensor, box)
            else:
                shared = broadcasts and bool(graph.by_name[tensor].constant)
                once += (broadcast_cycles if shared else load_cycles)(chip, work.local, graph.by_name[tensor], box)
        by_rows, by_channels = start.get(buffer) != along.get(buffer), start.get(buffer) != across.get(buffer)
        always_again = len(loads) > 1
        rows_outer += once * _times(outer, by_rows, inner, by_channels, always_again)
        channels_outer += once * _times(inner, by_channels, outer, by_rows, always_again)
    return (engines, rows_outer), (engines, channels_outer)


def _copy_cycles(ctx: PlanContext, name: str, box: Box) -> float:
    """Cycles of a move inside the core."""
    tensor = ctx.graph.by_name[name]
    return copy_cycles(ctx.chip, ctx.roles.local.memory, box_size(box), tensor.dtype, tensor.item_bytes)


def _times(slow: int, on_slow: bool, fast: int, on_fast: bool, always: bool) -> int:
    """Number of loads of a box in two nested loops, when a box that is there already is kept."""
    if (on_fast and fast > 1) or always:
        return slow * fast
    return slow if on_slow else 1


def _load_boxes(work: TileWork) -> dict[str, tuple[tuple[str, Box], ...]]:
    """Contents loaded into each buffer, one after the other."""
    boxes: dict[str, tuple[tuple[str, Box], ...]] = {}
    for load in dict.fromkeys(load for step in work.passes for load in step.loads):
        boxes[load.buffer] = (*boxes.get(load.buffer, ()), (load.tensor, load.box))
    return boxes


def cut_counts(interval: tuple[int, int], granule: int) -> Iterator[int]:
    """Numbers of parts to try: 1 to 8, then in steps of about an eighth, up to one granule per piece."""
    units = -(-(interval[1] - interval[0]) // granule) if granule else 1
    count = 1
    while count < units:
        yield count
        count += max(1, count // 8)
    yield units


def outer_counts(box: Box, granularity: tuple[int, ...], pieces: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Numbers of parts of all axes but the last; the outermost axis is cut to single units before the next is cut at
    all. With `pieces`, only as far as each part still has this many of them along each axis."""
    most = [-(-(high - low) // q) if q else 1 for (low, high), q in zip(box[:-1], granularity[:-1], strict=True)]
    if pieces:
        most = [max(1, units // number) for units, number in zip(most, pieces[:-1], strict=True)]
    yield (1,) * len(most)
    for axis in range(len(most)):
        for count in cut_counts(box[axis], granularity[axis]):
            if 1 < count <= most[axis]:
                yield (*most[:axis], count, *(1,) * (len(most) - axis - 1))


def middle(box: Box, counts: tuple[int, ...], granularity: tuple[int, ...]) -> Box:
    """The largest piece of each axis, away from the borders where possible: the one that needs most."""
    middle = []
    for (low, high), count, granule in zip(box, counts, granularity, strict=True):
        if count == 1:
            middle.append((low, high))
            continue
        pieces = cut_axis(low, high, count, granule)
        centre = len(pieces) // 2
        middle.append(max(pieces, key=lambda p, c=pieces[centre]: (p[1] - p[0], -abs(p[0] - c[0]))))  # type: ignore[misc]
    return tuple(middle)
