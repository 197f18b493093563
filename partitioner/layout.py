"""Where everything of a plan lies: boxes of every core, what stays local, places in local and staging memory, rounds.

    Plan --walk, slot by slot--> what is held where from when to when --pack--> offsets --rounds, tiles--> Layout

Planner and lowering ask the same function, so a plan that is laid out here is one that can be lowered. A slot is one
layer of one instance, one exchange between cores, one store or one move. Nothing here is an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hw_models.chip import Chip
from hw_models.errors import DoesNotFit, PlanError
from hw_models.routes import main_memory, staging_memory
from partitioner.binding import cut_quanta
from partitioner.graph import Graph
from partitioner.instance import CoreBoxes, Reads, core_boxes
from partitioner.layers import Layer
from partitioner.packing import Item, Packing, largest_gap, pack, peak_bytes
from partitioner.plan import MOVES, Group, Plan, Step
from partitioner.regions import Box, box_size, common, empty_box, full_box, holds, input_boxes, join, view_box
from partitioner.residency import Residents, Room, run_offset
from partitioner.rounds import Round, Stage, Stager, own_rounds, shared_rounds
from partitioner.target import PlanTarget
from partitioner.tiling import Tiler, part_bytes, part_start, place_of

__all__ = ["SHARED", "LayerLayout", "Layout", "Local", "MoveLayout", "Place", "Store", "lay_out", "local_part"]

SHARED = -1
"""Stands for the core where a place is in a memory that all cores share."""


@dataclass(frozen=True, slots=True)
class Place:
    """A dense `box` of a value from `offset_bytes` of `memory` on. In the main memory the box is the whole value, and
    the offset that of its placement, which is not the plan's to know: 0 stands for it."""

    memory: str
    offset_bytes: int
    box: Box


@dataclass(frozen=True, slots=True)
class Store:
    """A value that stays local and also leaves: the part that each core owns, where to, and where it is staged on its
    way to the main memory."""

    tensor: str
    owned: tuple[Box, ...]
    destination: Place
    buffer: Place | None


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """One layer of one instance: by core (in the order of the binding) the box that it computes and the `residents`,
    values in its local memory. `sources` are shared places of values that are read from there. The output goes to
    `destination` where it does not stay local. Tile buffers lie in `room`, rounds are staged in `staging` (offset and
    bytes)."""

    layer: Layer
    slot: int
    boxes: tuple[Box, ...]
    residents: tuple[Mapping[str, Place], ...]
    sources: Mapping[str, tuple[Place, ...]]
    destination: Place | None
    exchange: Place | None
    stores: tuple[Store, ...]
    room: Room
    staging: tuple[int, int]
    rounds: tuple[tuple[Round, Stage], ...]


@dataclass(frozen=True, slots=True)
class MoveLayout:
    """A move: (core, place to fill), from (core or SHARED, place, its part to give), through `buffer` between cores."""

    targets: tuple[tuple[int, Place], ...]
    sources: tuple[tuple[int, Place, Box], ...]
    buffer: Place | None


@dataclass(frozen=True, slots=True)
class Local:
    """The cores' memory that tensors can stay in, and the physical part of it."""

    memory: str
    part: str


@dataclass(frozen=True)
class Layout:
    """One entry a step of the plan: its layers (views have none), or its move. `main` names the values that are stored
    in the main memory, `pinned` the constants that stay in the staging memory, with the slot of their first use."""

    steps: tuple[tuple[LayerLayout, ...] | MoveLayout, ...]
    main: frozenset[str]
    pinned: Mapping[str, tuple[Place, int]]
    local: Local
    staging: str
    peaks: Mapping[str, int]
    """Bytes in use at once in the local memory of a core and in the staging memory, tile buffers not counted."""


def lay_out(
    plan: Plan,
    graph: Graph,
    chip: Chip,
    target: PlanTarget,
    tiler: Tiler | None = None,
    given: tuple[str, ...] = (),
) -> Layout:
    """Places for all that a plan holds; `given` names values that are in the main memory before its first step.

    Raises DoesNotFit with the layer or value that found no room, and PlanError for a plan that contradicts itself: a
    value read that no step left where it is wanted.
    """
    tiler = tiler or Tiler.of(graph, target, chip)
    local = local_part(plan, graph, chip, target)
    main = main_memory(chip)
    staging = staging_memory(chip, local.memory) if local.memory else main
    walk = _Walk(graph, chip, target, tiler.reads, local, main, staging, plan)
    for name in (*graph.inputs, *given):
        walk.keep_in_main(name)
    for step in plan.steps:
        walk.add(step)
    return _placed(walk, tiler)


def local_part(plan: Plan, graph: Graph, chip: Chip, target: PlanTarget) -> Local:
    """The memory and part in which the target leaves results of tiles; empty where the plan computes nothing."""
    for group in plan.groups:
        for layer in group.layers:
            if layer.anchor(graph).kind != "view":
                work = target.work(graph, layer, full_box(graph.by_name[layer.output].shape), chip)
                buffer = next(b for b in work.buffers if b.name == work.output)
                return Local(*place_of(chip, buffer.memory, buffer.part))
    return Local("", "")


@dataclass(slots=True)
class _Held:
    """A value, or a part of one, while it is kept. By core (or SHARED) the offset inside its item and the dense box
    that lies there, and the part of it that is this holder's to give."""

    tensor: str
    memory: str
    item: str
    boxes: dict[int, tuple[int, Box]]
    owned: dict[int, Box]


@dataclass(slots=True)
class _Slot:
    """A layer before places are known."""

    layer: Layer
    slot: int
    step: Step
    boxes: tuple[Box, ...]
    local: dict[str, _Held]
    sources: dict[str, tuple[_Held, ...]]
    destination: _Held | None
    exchange: tuple[str, Box] | None = None
    stores: list[tuple[_Held, tuple[Box, ...], str]] = field(default_factory=list)


@dataclass(slots=True)
class _Move:
    """A move before places are known."""

    step: Step
    slot: int
    to: _Held
    sources: tuple[_Held, ...]
    buffer: tuple[str, Box] | None


@dataclass(slots=True)
class _Walk:
    """What is held while the steps are walked in order."""

    graph: Graph
    chip: Chip
    target: PlanTarget
    reads: Reads
    local: Local
    main: str
    staging: str
    plan: Plan
    slot: int = 0
    items: dict[str, list[int]] = field(default_factory=dict)  # name -> first, last, bytes
    memory: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[_Held]] = field(default_factory=dict)
    moved: dict[tuple[str, int, str], _Held] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    pinned: dict[str, list[int]] = field(default_factory=dict)
    steps: list[list[_Slot] | _Move] = field(default_factory=list)
    boxes: dict[tuple[str, int], tuple[CoreBoxes, ...]] = field(default_factory=dict)
    runs: dict[tuple[str, int], Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runs = {(step.group, step.instance): step for step in self.plan.steps if step.kind not in MOVES}

    def add(self, step: Step) -> None:
        group = self.plan.group_by_name[step.group]
        if step.kind == "view":
            self._view(step, group)
            self.steps.append([])
        elif step.kind in MOVES:
            self.steps.append(self._move(step, group))
        else:
            self.steps.append(self._run(step, group))

    # What is held.

    def _keep(self, name: str, memory: str, first: int, size_bytes: int) -> str:
        key = f"{name}#{len(self.items)}"
        self.items[key] = [first, first, size_bytes]
        self.memory[key] = memory
        return key

    def _touch(self, held: _Held, slot: int) -> None:
        if held.item:
            self.items[held.item][1] = max(self.items[held.item][1], slot)

    def keep_in_main(self, name: str) -> _Held:
        box = full_box(self.graph.by_name[name].shape)
        held = _Held(name, self.main, "", {SHARED: (0, box)}, {SHARED: box})
        self.values.setdefault(name, []).append(held)
        return held

    def _bytes(self, name: str, box: Box) -> int:
        return box_size(box) * self.graph.by_name[name].item_bytes

    def _keep_shared(self, name: str, box: Box, slot: int) -> _Held:
        key = self._keep(name, self.staging, slot, self._bytes(name, box))
        return _Held(name, self.staging, key, {SHARED: (0, box)}, {SHARED: box})

    def _keep_local(self, name: str, boxes: Mapping[int, Box], owned: Mapping[int, Box], slot: int) -> _Held:
        size = max((self._bytes(name, box) for box in boxes.values()), default=0)
        key = self._keep(name, self.local.memory, slot, size)
        return _Held(name, self.local.memory, key, {core: (0, box) for core, box in boxes.items()}, dict(owned))

    def find(self, name: str, needs: Mapping[int, Box], reader: tuple[str, int]) -> _Held | tuple[_Held, ...]:
        """Where the cores find what they need of a value: in their own memories, or in shared ones."""
        if (*reader, name) in self.moved:
            return self.moved.pop((*reader, name))
        for held in self.values.get(name, ()):
            if held.memory == self.local.memory and all(
                core in held.boxes and holds(held.boxes[core][1], box) for core, box in needs.items()
            ):
                return held
        shared = tuple(
            held
            for held in self.values.get(name, ())
            if held.memory != self.local.memory
            and any(box_size(common(box, held.owned[SHARED])) for box in needs.values())
        )
        for memory in (self.staging, self.main):
            there = tuple(held for held in shared if held.memory == memory)
            if there and all(
                sum(box_size(common(box, held.owned[SHARED])) for held in there) >= box_size(box)
                for box in needs.values()
            ):
                return there
        raise PlanError(
            f"instance {reader[1]} of group {reader[0]}",
            needs=f"{name} in the memories of its cores, or all of it in one shared memory",
            has="parts of it elsewhere" if name in self.values else "no step that computed it before",
        )

    # Steps.

    def core_boxes(self, step: Step, group: Group) -> tuple[CoreBoxes, ...]:
        key = (step.group, step.instance)
        if key not in self.boxes:
            self.boxes[key] = core_boxes(self.graph, group, self.runs[key], self.reads, self.target, self.chip)
        return self.boxes[key]

    def _view(self, step: Step, group: Group) -> None:
        """Other names for what is held of the source."""
        layer = group.layers[0]
        op = layer.anchor(self.graph)
        for held in self.values.get(op.inputs[0], ()):
            if held.memory == self.main:
                self.keep_in_main(layer.output)
                continue
            boxes = {
                core: (start, self._renamed(step, op.inputs[0], layer, box))
                for core, (start, box) in held.boxes.items()
            }
            owned = {core: self._renamed(step, op.inputs[0], layer, box) for core, box in held.owned.items()}
            self.values.setdefault(layer.output, []).append(_Held(layer.output, held.memory, held.item, boxes, owned))

    def _renamed(self, step: Step, source: str, layer: Layer, box: Box) -> Box:
        """The box of a view that holds exactly the elements of a box of its source."""
        op = layer.anchor(self.graph)
        shape, whole = self.graph.by_name[layer.output].shape, self.graph.by_name[source].shape
        renamed = view_box(shape, whole, box)
        if box_size(renamed) != box_size(box) or input_boxes(self.graph, op, {layer.output: renamed})[source] != box:
            raise PlanError(f"view {step.group}", needs="whole parts of its source under another name", has=str(box))
        return renamed

    def _move(self, step: Step, group: Group) -> _Move:
        name, reader = step.tensor, (step.group, step.instance)
        run = self.runs[reader]
        cores = self.core_boxes(step, group)
        needs = {
            core: part.needed[name] for core, part in zip(run.binding.cores, cores, strict=True) if name in part.needed
        }
        slot = self.slot
        self.slot += 1
        sources = tuple(
            held
            for held in self.values.get(name, ())
            if any(box_size(common(box, owned)) for box in needs.values() for owned in held.owned.values())
        )
        for held in sources:
            if held.memory == self.main:
                raise PlanError(f"{step.kind} of {name}", needs=f"parts in {self.staging} or closer", has=self.main)
            self._touch(held, slot)
        across = any(
            held.memory == self.local.memory and core != reader_core and box_size(common(box, owned))
            for held in sources
            for core, owned in held.owned.items()
            for reader_core, box in needs.items()
        )
        buffer = None
        if across:
            kept = (held for held in sources if held.memory == self.local.memory)
            union = _joined(tuple(owned for held in kept for owned in held.owned.values()))
            buffer = (self._keep(f"{name}.buffer", self.staging, slot, self._bytes(name, union)), union)
        to = self._keep_local(name, needs, needs, slot)
        self.moved[(*reader, name)] = to
        return _Move(step, slot, to, sources, buffer)

    def _run(self, step: Step, group: Group) -> list[_Slot]:
        graph, ids = self.graph, step.binding.cores
        cores = self.core_boxes(step, group)
        exchanged = {exchange.tensor for exchange in group.exchanges}
        outputs = group.outputs(graph)
        scopes = {**dict(step.exports), group.output: step.scope}
        slots, after = self._slots(group, exchanged, outputs, scopes, cores)
        last = self._last_reads(group, slots)
        local: dict[str, _Held] = {}
        sources: dict[str, tuple[_Held, ...]] = {}
        for name in group.inputs(graph):
            needs = {core: part.needed[name] for core, part in zip(ids, cores, strict=True) if name in part.needed}
            found = self.find(name, needs, (step.group, step.instance))
            for held in (found,) if isinstance(found, _Held) else found:
                self._touch(held, last[name])
            if isinstance(found, _Held):
                local[name] = found
            else:
                sources[name] = found
        result: list[_Slot] = []
        for layer in group.layers:
            name = layer.output
            slot = slots[name]
            if layer.anchor(graph).kind == "view":
                self._inner_view(layer, ids, cores, local, sources)
                continue
            self._note_pinned(layer, slot)
            boxes = tuple(part.computed.get(name, empty_box(len(graph.by_name[name].shape))) for part in cores)
            entry = _Slot(layer, slot, step, boxes, {}, {}, None)
            owned = tuple(part.owned.get(name, empty_box(len(graph.by_name[name].shape))) for part in cores)
            inner = any(name in part.needed for part in cores)
            scope = scopes.get(name, self.local.memory) if name in outputs else self.local.memory
            if inner or scope == self.local.memory:
                kept = {
                    c: join(b, p.needed.get(name, b))
                    for c, b, p in zip(ids, boxes, cores, strict=True)
                    if box_size(b) or name in p.needed
                }
                local[name] = self._keep_local(
                    name, kept, {c: b for c, b in zip(ids, owned, strict=True) if box_size(b)}, slot
                )
                self._touch(local[name], max(last.get(name, slot), after.get(name, slot)))
            if name in exchanged:
                union = _joined(boxes)
                entry.exchange = (
                    self._keep(f"{name}.exchange", self.staging, slot + 1, self._bytes(name, union)),
                    union,
                )
            if name in outputs:
                self._leave(entry, name, scope, owned, local, after.get(name, slot))
            read = {name}.union(*(self.reads(layer, box) for box in boxes if box_size(box)))
            entry.local = {tensor: held for tensor, held in local.items() if tensor in read}
            entry.sources = {tensor: held for tensor, held in sources.items() if tensor in read}
            result.append(entry)
        return result

    def _leave(
        self, entry: _Slot, name: str, scope: str, owned: tuple[Box, ...], local: dict[str, _Held], slot: int
    ) -> None:
        """An output of the group goes to its scope, directly or from the local memories where it is needed too."""
        if scope == self.local.memory:
            self.values.setdefault(name, []).append(local[name])
            return
        whole = _joined(owned)
        if scope == self.main:
            self.stored.add(name)
            held = next((h for h in self.values.get(name, ()) if h.memory == self.main), None)
            if held is None:
                held = self.keep_in_main(name)
                held.owned[SHARED] = whole
            else:
                held.owned[SHARED] = join(held.owned[SHARED], whole)
        else:
            held = self._keep_shared(name, whole, entry.slot)
            self._touch(held, slot)
            self.values.setdefault(name, []).append(held)
        if name not in local:
            entry.destination = held
            return
        buffer = self._keep(f"{name}.store", self.staging, slot, self._bytes(name, whole)) if scope == self.main else ""
        entry.stores.append((held, owned, buffer))

    def _slots(
        self,
        group: Group,
        exchanged: set[str],
        outputs: tuple[str, ...],
        scopes: Mapping[str, str],
        cores: tuple[CoreBoxes, ...],
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The slot of each layer, by its output, and that in which its output is stored where this comes later."""
        slots: dict[str, int] = {}
        after: dict[str, int] = {}
        for layer in group.layers:
            name = layer.output
            slots[name] = self.slot
            if layer.anchor(self.graph).kind == "view":
                continue
            self.slot += 1
            if name in exchanged:
                after[name] = self.slot
                self.slot += 1
            inner = any(name in part.needed for part in cores)
            if name in outputs and inner and scopes.get(name) != self.local.memory:
                after[name] = self.slot
                self.slot += 1
        return slots, after

    def _last_reads(self, group: Group, slots: Mapping[str, int]) -> dict[str, int]:
        """The last slot in which each value is read inside the group; what a view renames is read when the view is."""
        last: dict[str, int] = {}
        for layer in reversed(group.layers):
            view = layer.anchor(self.graph).kind == "view"
            slot = last.get(layer.output, slots[layer.output]) if view else slots[layer.output]
            for name in layer.inputs(self.graph):
                last[name] = max(last.get(name, 0), slot)
        return last

    def _inner_view(
        self,
        layer: Layer,
        ids: tuple[int, ...],
        cores: tuple[CoreBoxes, ...],
        local: dict[str, _Held],
        sources: dict[str, tuple[_Held, ...]],
    ) -> None:
        """A view inside a group: the same bytes of the local memories, or of the shared places, under its name."""
        source, name = layer.anchor(self.graph).inputs[0], layer.output
        if source not in local:
            step = Step("view", layer.name, 0, (), "", self.plan.steps[0].binding)
            renamed = []
            for held in sources[source]:
                if held.memory == self.main:
                    box = full_box(self.graph.by_name[name].shape)
                    renamed.append(_Held(name, self.main, "", {SHARED: (0, box)}, {SHARED: box}))
                else:
                    start, box = held.boxes[SHARED]
                    box = self._renamed(step, source, layer, box)
                    renamed.append(_Held(name, held.memory, held.item, {SHARED: (start, box)}, {SHARED: box}))
            sources[name] = tuple(renamed)
            return
        held = local[source]
        boxes: dict[int, tuple[int, Box]] = {}
        for core, part in zip(ids, cores, strict=True):
            if name not in part.computed:
                continue
            box = part.computed[name]
            read = self.reads(layer, box)[source]
            start, whole = held.boxes[core]
            run = run_offset(whole, read)
            if run is None or box_size(read) != box_size(box):
                raise PlanError(
                    f"view {layer.name}", needs="whole parts of its source under another name", has=str(read)
                )
            boxes[core] = (start + run * self.graph.by_name[name].item_bytes, box)
        owned = {core: part.owned[name] for core, part in zip(ids, cores, strict=True) if name in part.owned}
        local[name] = _Held(name, held.memory, held.item, boxes, owned)

    def _note_pinned(self, layer: Layer, slot: int) -> None:
        for name in layer.inputs(self.graph):
            if name in self.plan.pinned:
                self.pinned.setdefault(name, [slot, slot])[1] = slot


def _placed(walk: _Walk, tiler: Tiler) -> Layout:
    """Offsets for all items, then rounds and tiles in what is left."""
    chip, graph = walk.chip, walk.graph
    pins: dict[str, str] = {}
    for name, (first, last) in walk.pinned.items():
        size = graph.by_name[name].size_bytes
        key = walk._keep(name, walk.staging, first, size)
        walk.items[key][1] = last
        pins[name] = key
    items: dict[str, list[Item]] = {memory: [] for memory in (walk.local.memory, walk.staging)}
    for key, (first, last, size) in walk.items.items():
        items[walk.memory[key]].append(Item(key, first, last, size))
    start = part_start(chip, walk.local.memory, walk.local.part) if walk.local.memory else 0
    bound = part_bytes(chip, walk.local.memory, walk.local.part) if walk.local.memory else 0
    offsets: dict[str, int] = {}
    gaps: dict[str, dict[int, tuple[int, int]]] = {}
    peaks: dict[str, int] = {}
    for memory, capacity, wanted in (
        (walk.local.memory, bound, _wanted(walk, tiler)),
        (walk.staging, chip.memory(walk.staging).size_bytes, {}),
    ):
        if not memory:
            continue
        unit = chip.memory(memory).alignment_bytes
        packing = pack(items[memory], capacity, unit, wanted)
        _refuse_late(walk, memory, items[memory], packing, capacity)
        offsets.update(packing.offsets)
        peaks[memory] = peak_bytes(items[memory])[0]
        gaps[memory] = _gaps(items[memory], packing, capacity, unit)
    places = _Places(walk, offsets, start)
    steps: list[tuple[LayerLayout, ...] | MoveLayout] = []
    for step in walk.steps:
        if isinstance(step, _Move):
            steps.append(places.move(step))
            continue
        layouts = []
        for entry in step:
            gap = gaps.get(walk.local.memory, {}).get(entry.slot, (0, bound))
            room = {(walk.local.memory, walk.local.part): (gap[0] + start, gap[1])}
            staging = gaps[walk.staging].get(entry.slot, (0, chip.memory(walk.staging).size_bytes))
            layouts.append(_layer(walk, places, entry, room, staging, tiler))
        steps.append(tuple(layouts))
    pinned = {
        name: (Place(walk.staging, offsets[key], full_box(graph.by_name[name].shape)), walk.pinned[name][0])
        for name, key in pins.items()
    }
    return Layout(tuple(steps), frozenset(walk.stored), pinned, walk.local, walk.staging, peaks)


def _wanted(walk: _Walk, tiler: Tiler) -> dict[int, int]:
    """Bytes of workspace that each layer would use if all of the local memory were free, at most half of it."""
    if not any(walk.memory[key] == walk.local.memory for key in walk.items):
        return {}
    half = part_bytes(walk.chip, walk.local.memory, walk.local.part) // 2
    wanted: dict[int, int] = {}
    for step in walk.steps:
        for entry in step if isinstance(step, list) else ():
            number = max(range(len(entry.boxes)), key=lambda n: box_size(entry.boxes[n]))
            residents = _residents(walk, entry, entry.step.binding.cores[number])
            used = tiler.workspace(entry.layer, entry.boxes[number], residents, walk.local.memory, walk.local.part)
            wanted[entry.slot] = min(half, used)
    return wanted


def _gaps(items: list[Item], packing: Packing, capacity: int, unit: int) -> dict[int, tuple[int, int]]:
    live: dict[int, list[tuple[int, int]]] = {}
    for item in items:
        for slot in range(item.first, item.last + 1):
            live.setdefault(slot, []).append((packing.offsets[item.name], -(-item.size_bytes // unit) * unit))
    return {slot: largest_gap(busy, capacity) for slot, busy in live.items()}


def _refuse_late(walk: _Walk, memory: str, items: list[Item], packing: Packing, capacity: int) -> None:
    if packing.late is None:
        return
    late = packing.late
    live = [item for item in items if item.first <= late.last and late.first <= item.last]
    slot_peak, _ = peak_bytes(live)
    holders = sorted(live, key=lambda item: -item.size_bytes)[:4]
    raise DoesNotFit(
        f"value {late.name.split('#')[0]}",
        demand_bytes=max(slot_peak, packing.offsets[late.name] + late.size_bytes),
        bound_bytes=capacity,
        where=memory if memory != walk.local.memory or not walk.local.part else f"{memory} ({walk.local.part} buffer)",
        levers=(
            "more instances or smaller groups",
            f"a chip with more {memory}",
            "room held by " + ", ".join(f"{item.name.split('#')[0]} ({item.size_bytes} bytes)" for item in holders),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Places:
    """Items become places."""

    walk: _Walk
    offsets: Mapping[str, int]
    start: int

    def of(self, held: _Held, core: int) -> Place:
        begin, box = held.boxes[core]
        if not held.item:
            return Place(held.memory, 0, box)
        base = self.start if held.memory == self.walk.local.memory else 0
        return Place(held.memory, base + self.offsets[held.item] + begin, box)

    def buffer(self, entry: tuple[str, Box]) -> Place:
        return Place(self.walk.staging, self.offsets[entry[0]], entry[1])

    def move(self, move: _Move) -> MoveLayout:
        targets = tuple((core, self.of(move.to, core)) for core in move.to.boxes)
        sources = tuple(
            (core, self.of(held, core), held.owned[core])
            for held in move.sources
            for core in held.boxes
            if core in held.owned
        )
        return MoveLayout(targets, sources, self.buffer(move.buffer) if move.buffer else None)


def _residents(walk: _Walk, entry: _Slot, core: int) -> Residents:
    boxes = {name: held.boxes[core][1] for name, held in entry.local.items() if core in held.boxes}
    return Residents(boxes, walk.local.part)


def _layer(
    walk: _Walk, places: _Places, entry: _Slot, room: Room, staging: tuple[int, int], tiler: Tiler
) -> LayerLayout:
    graph, chip, layer, ids = walk.graph, walk.chip, entry.layer, entry.step.binding.cores
    sources = {name: tuple(places.of(held, SHARED) for held in kept) for name, kept in entry.sources.items()}
    destination = places.of(entry.destination, SHARED) if entry.destination else None

    def staged(name: str) -> bool:
        if graph.by_name[name].constant:
            return name not in walk.plan.pinned
        return any(place.memory == walk.main for place in sources.get(name, ()))

    to_main = destination is not None and destination.memory == walk.main
    stager = Stager(graph, layer, chip, walk.reads, walk.staging, staged, to_main, staging[1])
    rounds = _rounds(walk, entry, stager)
    for number, core in enumerate(ids):
        residents = _residents(walk, entry, core)
        for turn in rounds:
            if number < len(turn.boxes) and box_size(turn.boxes[number]):
                tiler.require(layer, turn.boxes[number], residents, room)
    return LayerLayout(
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
                Place(walk.staging, places.offsets[buffer], _joined(owned)) if buffer else None,
            )
            for held, owned, buffer in entry.stores
        ),
        room=room,
        staging=staging,
        rounds=tuple((turn, stager.stage(turn)) for turn in rounds),
    )


def _rounds(walk: _Walk, entry: _Slot, stager: Stager) -> tuple[Round, ...]:
    """Rounds cut at multiples of the matrix array's channels, or wherever the target allows if these do not fit."""
    graph, chip, target, layer = walk.graph, walk.chip, walk.target, entry.layer
    shared = len(walk.plan.group_by_name[entry.step.group].layers) == 1 and not entry.local
    box = entry.step.box if shared else max(entry.boxes, key=box_size)
    wide = cut_quanta(graph, layer, box, target, chip)
    if shared:
        return shared_rounds(stager, box, entry.step.binding.pieces, wide)
    try:
        return own_rounds(stager, entry.boxes, wide)
    except DoesNotFit:
        return own_rounds(stager, entry.boxes, target.quanta(graph, layer))


def _joined(boxes: tuple[Box, ...]) -> Box:
    whole = boxes[0]
    for box in boxes[1:]:
        whole = join(whole, box)
    return whole
