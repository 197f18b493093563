"""The layout of a plan: boxes of every core, values that stay local, places in local and staging memory, and rounds.

    Plan --walk, slot by slot--> what is held where from when to when --pack--> offsets --rounds, tiles--> Layout

Planner and lowering call the same function, so a plan that can be laid out here can be lowered. There are no
instructions here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hw_models.errors import required
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.ir.plan import Group, Plan
from partitioner.ir.regions import Box, box_size, full_box, joined
from partitioner.ir.steps import RunStep, Step
from partitioner.memory.fit_diagnostics import holders_at, unplaced
from partitioner.memory.layer_rounds import OutputCut, Rounds, brought_bytes, layer_rounds
from partitioner.memory.liveness import HeldItem, MovedValue, Slot, Walk
from partitioner.memory.memory_plan_types import (
    PLAIN,
    SHARED,
    LayerLayout,
    Layout,
    LayoutOptions,
    MoveLayout,
    Place,
    Store,
)
from partitioner.memory.offset_assignment import Item, Packing, largest_gap, lowest, pack, peak_bytes
from partitioner.tiling.buffer_aliasing import FreeRegions, Residents
from partitioner.tiling.tiling import missing_for_tile, workspace_bytes

ROUNDS_IN_STAGING = 8
"""Number of rounds that would fit the staging memory at once where rounds are staged ahead: the next ones arrive while
one is worked on, the wait for the first round of a layer is short, and data that were read free their place soon."""

CONSTANT_ROUNDS = 12
"""Number of rounds of constants that would fit their own region with `constants_ahead`. Large rounds free their place
late, and each small round costs a barrier: in six encoder networks 12 was the fastest of 8, 10, 12 and 16, or within 2
% of the fastest."""

ITEMS_APART = 2
"""Distance in layers, with `buffers_apart`, between the lives of values that share bytes: a layer's output can be begun
while the two layers before it still read their inputs."""

ROOM_APART = 1
"""Distance in layers, with `buffers_apart`, between tile buffers and the lives of values whose bytes they use."""


REGION_DIVISOR = 4
"""Divisor of the staging memory, with `constants_ahead`: where this part is left, rounds are staged apart from all
values. It holds two of the largest rounds, and data that come ahead of them."""

PACKED_REGION_DIVISOR = 8
"""Divisor of the staging memory that is enough when values are packed as low as possible, which is tried where
`REGION_DIVISOR` leaves no region: room for two rounds of half the region."""


MUCH_LESS = 0.875
"""Largest share of the bytes of small rounds that large rounds may bring to be preferred, with `constants_ahead`: a
layer whose values come from the main memory or go there is then staged below the region, where the free room is larger.
Large rounds wait longer for the first of them."""


Region: TypeAlias = tuple[int, int]
"""Offset and bytes in a memory."""


class _Known(dict[tuple[object, ...], Layout | Infeasible]):
    """Layouts of one compilation, by groups, steps, pinned constants and options."""


def lay_out(plan: Plan, ctx: PlanContext, options: LayoutOptions = PLAIN) -> Layout:
    """Layout of a plan that must be carried out, as by `fit_layout`. Raises DoesNotFit with the layer or value that
    found no room, and PlanError for a plan that contradicts itself."""
    return required(fit_layout(plan, ctx, options))


def fit_layout(plan: Plan, ctx: PlanContext, options: LayoutOptions = PLAIN) -> Layout | Infeasible:
    """Places for all that a plan holds. Made once per compilation: the same request gets the same layout.

    Infeasible names the layer or value that found no room. Raises PlanError for a plan that contradicts itself: a value
    is read that no step left where it is needed.
    """
    return _fitted(plan.groups, plan.steps, plan.pinned, ctx, options)


def fit_group(
    group: Group, steps: tuple[Step, ...], ctx: PlanContext, options: LayoutOptions = PLAIN
) -> Layout | Infeasible:
    """Layout of some steps of one group, without the steps around it: options name the values that those leave in the
    main memory. Raises PlanError as `fit_layout` does."""
    return _fitted((group,), steps, (), ctx, options)


def _fitted(
    groups: tuple[Group, ...],
    steps: tuple[Step, ...],
    pinned: tuple[str, ...],
    ctx: PlanContext,
    options: LayoutOptions,
) -> Layout | Infeasible:
    known = ctx.memo(_Known)
    key = (groups, steps, pinned, options)
    if key not in known:
        known[key] = _placed(walked(groups, steps, ctx, options.in_main, pinned), options)
    return known[key]


def walked(
    groups: tuple[Group, ...],
    steps: tuple[Step, ...],
    ctx: PlanContext,
    in_main: tuple[str, ...] = (),
    pinned: tuple[str, ...] = (),
) -> Walk:
    """The walk over steps of some groups: what they hold, where and for how long; `in_main` as in LayoutOptions. Raises
    PlanError."""
    runs = {(step.group, step.instance): step for step in steps if isinstance(step, RunStep)}
    walk = Walk(ctx, {group.name: group for group in groups}, runs, frozenset(pinned))
    for name in (*ctx.graph.inputs, *in_main):
        walk.keep_in_main(name)
    for step in steps:
        walk.add(step)
    return walk


def _placed(walk: Walk, options: LayoutOptions) -> Layout | Infeasible:
    """Offsets for all items, then rounds and tiles in the room that is left."""
    ctx, chip, graph = walk.ctx, walk.ctx.chip, walk.ctx.graph
    pins: dict[str, str] = {}
    for name, (first, last) in walk.pinned.items():
        size = graph.by_name[name].size_bytes
        key = walk.keep(name, walk.ctx.roles.staging, first, size)
        walk.items[key][1] = last
        pins[name] = key
    items: dict[str, list[Item]] = {memory: [] for memory in (walk.ctx.roles.local.memory, walk.ctx.roles.staging)}
    for key, (first, last, size) in walk.items.items():
        items[walk.memory[key]].append(Item(key, first, last, size))
    offsets: dict[str, int] = {}
    gaps: dict[str, dict[int, Region]] = {}
    peaks: dict[str, int] = {}
    wide: dict[int, Region] = {}
    workspaces = _wanted(walk)
    if isinstance(workspaces, Infeasible):
        return workspaces
    for memory, capacity, wanted in (
        (ctx.roles.local.memory, ctx.roles.local_bytes, workspaces),
        (ctx.roles.staging, chip.memory(ctx.roles.staging).size_bytes, {}),
    ):
        if not memory:
            continue
        unit = chip.memory(memory).alignment_bytes
        packing = pack(items[memory], capacity, unit, wanted, ITEMS_APART if options.buffers_apart else 0)
        region = None
        if options.constants_ahead and memory == ctx.roles.staging:
            packing, region = _with_region(items[memory], packing, capacity, unit)
        if (late := unplaced(walk, memory, items[memory], packing, capacity)) is not None:
            return late
        offsets.update(packing.offsets)
        peaks[memory] = peak_bytes(items[memory])[0]
        clear = ROOM_APART if options.buffers_apart and memory == walk.ctx.roles.local.memory else 0
        gaps[memory] = _gaps(items[memory], packing, capacity, unit, clear, wanted)
        if region is not None:
            below = _gaps(items[memory], packing, region[0], unit, 0, {})
            for slot in range(walk.slot + 1):
                wide[slot] = max(region, below.get(slot, (0, region[0])), key=lambda gap: gap[1])
            gaps[memory] = dict.fromkeys(wide, region)
    places = _Places(walk, offsets)
    steps: list[tuple[LayerLayout, ...] | MoveLayout] = []
    for step in walk.steps:
        if isinstance(step, MovedValue):
            steps.append(places.move(step))
            continue
        layouts = []
        for entry in step:
            offset, size = gaps.get(ctx.roles.local.memory, {}).get(entry.slot, (0, ctx.roles.local_bytes))
            free_regions: FreeRegions = {ctx.roles.local: (offset + ctx.roles.local_start_bytes, size)}
            staging = gaps[ctx.roles.staging].get(entry.slot, (0, chip.memory(ctx.roles.staging).size_bytes))
            regions = (staging, wide.get(entry.slot, staging))
            layout = _layer(walk, places, entry, free_regions, regions, options)
            if isinstance(layout, Infeasible):
                return layout.held_by(holders_at(walk, items.get(layout.memory, ()), entry.slot), entry.slot)
            layouts.append(layout)
        steps.append(tuple(layouts))
    pinned = {
        name: (Place(walk.ctx.roles.staging, offsets[key], full_box(graph.by_name[name].shape)), walk.pinned[name][0])
        for name, key in pins.items()
    }
    item_bytes = {tensor.name: tensor.item_bytes for tensor in graph.tensors}
    stored = frozenset(walk.stored)
    return Layout(tuple(steps), stored, pinned, ctx.roles.local, ctx.roles.staging, peaks, item_bytes, options)


def _wanted(walk: Walk) -> dict[int, int] | Infeasible:
    """Bytes of workspace that each layer would use if all of the local memory were free, at most half of it."""
    if not any(walk.memory[key] == walk.ctx.roles.local.memory for key in walk.items):
        return {}
    half = walk.ctx.roles.local_bytes // 2
    wanted: dict[int, int] = {}
    for step in walk.steps:
        for entry in step if isinstance(step, list) else ():
            number = max(range(len(entry.boxes)), key=lambda n: box_size(entry.boxes[n]))
            residents = _residents(walk, entry, entry.step.binding.cores[number])
            used = workspace_bytes(walk.ctx, entry.layer, entry.boxes[number], residents)
            if isinstance(used, Infeasible):
                return used
            wanted[entry.slot] = min(half, used)
    return wanted


def _gaps(
    items: list[Item], packing: Packing, capacity: int, unit: int, clear: int, wanted: Mapping[int, int]
) -> dict[int, Region]:
    """The workspace of each slot: the largest gap between items. It also avoids items that live up to `clear` slots
    earlier or later where it then still has twice the wanted bytes."""
    live, near = (_busy(items, packing, unit, apart) for apart in (0, clear))
    gaps = {slot: largest_gap(busy, capacity) for slot, busy in live.items()}
    for slot in gaps if clear else ():
        apart = largest_gap(near[slot], capacity)
        if apart[1] >= min(gaps[slot][1], 2 * wanted.get(slot, capacity)):
            gaps[slot] = apart
    return gaps


def _with_region(items: list[Item], packing: Packing, capacity: int, unit: int) -> tuple[Packing, Region | None]:
    """The packing, and the region above all items of a memory, which rounds have to themselves. The packing is the
    given one, or else one that needs the least room. The region is None where both leave too little to rounds."""
    region = _above(items, packing, capacity, unit)
    if region[1] >= capacity // REGION_DIVISOR:
        return packing, region
    low = Packing(lowest(items, unit)[0])
    region = _above(items, low, capacity, unit)
    return (low, region) if region[1] >= capacity // PACKED_REGION_DIVISOR else (packing, None)


def _above(items: list[Item], packing: Packing, capacity: int, unit: int) -> Region:
    """(offset, bytes) of the room above all items of a memory."""
    top = max((packing.offsets[item.name] + item.size_bytes for item in items), default=0)
    start = -(-top // unit) * unit
    return start, capacity - start


def _busy(items: list[Item], packing: Packing, unit: int, apart: int) -> dict[int, list[Region]]:
    """For each slot, the places of items that live in it, or up to `apart` slots from it."""
    busy: dict[int, list[Region]] = {}
    for item in items:
        for slot in range(item.first - apart, item.last + apart + 1):
            busy.setdefault(slot, []).append((packing.offsets[item.name], -(-item.size_bytes // unit) * unit))
    return busy


@dataclass(frozen=True, slots=True)
class _Places:
    """Conversion of items to places."""

    walk: Walk
    offsets: Mapping[str, int]

    def of(self, held: HeldItem, core: int) -> Place:
        begin, box = held.boxes[core]
        if not held.item:
            return Place(held.memory, 0, box)
        base = self.walk.ctx.roles.local_start_bytes if held.memory == self.walk.ctx.roles.local.memory else 0
        return Place(held.memory, base + self.offsets[held.item] + begin, box)

    def buffer(self, entry: tuple[str, Box]) -> Place:
        return Place(self.walk.ctx.roles.staging, self.offsets[entry[0]], entry[1])

    def move(self, move: MovedValue) -> MoveLayout:
        targets = tuple((core, self.of(move.to, core)) for core in move.to.boxes)
        sources = tuple(
            (core, self.of(held, core), held.owned[core])
            for held in move.sources
            for core in held.boxes
            if core in held.owned
        )
        buffer = self.buffer(move.buffer) if move.buffer else None
        return MoveLayout(move.step.group, move.step.instance, move.step.tensor, targets, sources, buffer)


def _residents(walk: Walk, entry: Slot, core: int) -> Residents:
    boxes = {name: held.boxes[core][1] for name, held in entry.local.items() if core in held.boxes}
    return Residents(boxes, walk.ctx.roles.local.part)


def _layer(
    walk: Walk,
    places: _Places,
    entry: Slot,
    free_regions: FreeRegions,
    regions: tuple[Region, Region],
    options: LayoutOptions,
) -> LayerLayout | Infeasible:
    ctx, graph, layer, ids = walk.ctx, walk.ctx.graph, entry.layer, entry.step.binding.cores
    sources = {name: tuple(places.of(held, SHARED) for held in kept) for name, kept in entry.sources.items()}
    destination = places.of(entry.destination, SHARED) if entry.destination else None

    def is_staged(name: str) -> bool:
        if not ctx.roles.has_staging:
            return False
        if graph.by_name[name].constant:
            return name not in walk.pinnable
        return any(place.memory == walk.ctx.roles.main for place in sources.get(name, ()))

    to_main = ctx.roles.has_staging and destination is not None and destination.memory == ctx.roles.main
    staged = frozenset(name for name in layer.inputs(graph) if is_staged(name))
    cut = OutputCut(entry.boxes)
    if len(walk.groups[entry.step.group].layers) == 1 and not entry.local:
        cut = OutputCut(entry.boxes, entry.step.box, entry.step.binding.pieces)

    def rounds_in(room_bytes: int, most_bytes: int) -> Rounds | Infeasible:
        rounds = layer_rounds(ctx, layer, cut, staged, to_main, room_bytes)
        while isinstance(rounds, Infeasible) and room_bytes < most_bytes:
            room_bytes = min(2 * room_bytes, most_bytes)
            rounds = layer_rounds(ctx, layer, cut, staged, to_main, room_bytes)
        return rounds

    through = to_main or any(name in staged for name in sources)
    found = _rounds_in_region(ctx, rounds_in, regions, through, options)
    if isinstance(found, Infeasible):
        return found
    rounds, staging = found
    for number, core in enumerate(ids):
        residents = _residents(walk, entry, core)
        for this_round, _ in rounds:
            if number < len(this_round.boxes) and box_size(this_round.boxes[number]):
                lack = missing_for_tile(ctx, layer, this_round.boxes[number], residents, free_regions)
                if lack is not None:
                    return lack
    return LayerLayout(
        group=entry.step.group,
        instance=entry.step.instance,
        cores=ids,
        layer=layer,
        slot=entry.slot,
        boxes=entry.boxes,
        residents=tuple(
            {name: places.of(held, core) for name, held in entry.local.items() if core in held.boxes} for core in ids
        ),
        sources=sources,
        destination=destination,
        exchange=places.buffer(entry.exchange) if entry.exchange else None,
        stores=tuple(
            Store(
                held.tensor,
                owned,
                places.of(held, SHARED),
                Place(walk.ctx.roles.staging, places.offsets[buffer], joined(owned)) if buffer else None,
            )
            for held, owned, buffer in entry.stores
        ),
        free_regions=free_regions,
        staging=staging,
        rounds=rounds,
    )


def _rounds_in_region(
    ctx: PlanContext,
    rounds_in: Callable[[int, int], Rounds | Infeasible],
    regions: tuple[Region, Region],
    through: bool,
    options: LayoutOptions,
) -> tuple[Rounds, Region] | Infeasible:
    """Rounds, and the one of two regions in which they are staged: the region for all layers or, for layers whose
    values come from the main memory or go there (`through`), the larger free region of the slot. `rounds_in` finds
    rounds for a given room, or for as much more as they need up to a bound."""
    staging, wide = regions
    room_bytes = staging[1]
    if options.rounds_ahead:
        room_bytes = min(room_bytes, ctx.chip.memory(ctx.roles.staging).size_bytes // ROUNDS_IN_STAGING)
    if options.constants_ahead and room_bytes < staging[1]:
        room_bytes = min(room_bytes, staging[1] // (2 if through else CONSTANT_ROUNDS))
    rounds = rounds_in(room_bytes, staging[1])
    if isinstance(rounds, Infeasible) or not through or wide == staging:
        return rounds if isinstance(rounds, Infeasible) else (rounds, staging)
    large = rounds_in(wide[1] // 2, wide[1] // 2)
    if isinstance(large, Infeasible):
        return rounds, staging
    less = brought_bytes(ctx.graph, large) < MUCH_LESS * brought_bytes(ctx.graph, rounds)
    return (large, wide) if less else (rounds, staging)
