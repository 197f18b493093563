"""The walk over a plan's steps: what is held where, from which slot to which, before anything has an address.

    steps, in order --> slots (layers, moves), items (bytes in a memory, first and last slot), values and who holds them

A slot is one layer of one instance, one exchange between cores, one store or one move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hw_models.errors import PlanError
from hw_models.infeasible import HeldRole, ValueSubject
from partitioner.context.plan_context import PlanContext
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Exchange, Group
from partitioner.ir.regions import (
    Box,
    box_size,
    box_text,
    common,
    empty_box,
    exact_view_box,
    full_box,
    holds,
    join,
    joined,
)
from partitioner.ir.steps import MoveStep, RunStep, Step, ViewStep
from partitioner.memory.memory_plan_types import SHARED
from partitioner.tiling.buffer_aliasing import run_offset
from partitioner.tiling.core_regions import CoreBoxes, core_boxes


@dataclass(slots=True)
class HeldItem:
    """A value, or a part of one, while it is kept. For each core (or SHARED): the offset inside its item, the dense box
    that lies there, and the part of the box that this holder gives to others."""

    tensor: str
    memory: str
    item: str
    boxes: dict[int, tuple[int, Box]]
    owned: dict[int, Box]


@dataclass(slots=True)
class Slot:
    """A layer before places are known."""

    layer: Layer
    slot: int
    step: RunStep
    boxes: tuple[Box, ...]
    local: dict[str, HeldItem]
    sources: dict[str, tuple[HeldItem, ...]]
    destination: HeldItem | None
    exchange: tuple[str, Box] | None = None
    stores: list[tuple[HeldItem, tuple[Box, ...], str]] = field(default_factory=list)


@dataclass(slots=True)
class MovedValue:
    """A move before places are known."""

    step: MoveStep
    slot: int
    to: HeldItem
    sources: tuple[HeldItem, ...]
    buffer: tuple[str, Box] | None


@dataclass(slots=True)
class Walk:
    """Record of what is held while the steps are walked in order. `runs` are all run steps, by group and instance;
    `pinnable` are the constants that shall stay in the staging memory."""

    ctx: PlanContext
    groups: Mapping[str, Group]
    runs: Mapping[tuple[str, int], RunStep]
    pinnable: frozenset[str] = frozenset()
    slot: int = 0
    items: dict[str, list[int]] = field(default_factory=dict)  # name -> first, last, bytes
    memory: dict[str, str] = field(default_factory=dict)
    subjects: dict[str, ValueSubject] = field(default_factory=dict)  # by item: its value and role
    values: dict[str, list[HeldItem]] = field(default_factory=dict)
    moved: dict[tuple[str, int, str], HeldItem] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    pinned: dict[str, list[int]] = field(default_factory=dict)
    steps: list[list[Slot] | MovedValue] = field(default_factory=list)
    boxes: dict[tuple[str, int], tuple[CoreBoxes, ...]] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        group = self.groups[step.group]
        match step:
            case RunStep():
                self.steps.append(self._run(step, group))
            case ViewStep():
                self._view(group.layers[0])
                self.steps.append([])
            case MoveStep():
                self.steps.append(self._move(step, group))

    # What is held.

    def keep(self, name: str, memory: str, first: int, size_bytes: int, role: HeldRole = HeldRole.VALUE) -> str:
        """Add an item for a value or a copy of it; return its name."""
        key = f"{name}.{role.value}#{len(self.items)}" if role.value else f"{name}#{len(self.items)}"
        self.subjects[key] = ValueSubject(name, role)
        self.items[key] = [first, first, size_bytes]
        self.memory[key] = memory
        return key

    def _touch(self, held: HeldItem, slot: int) -> None:
        if held.item:
            self.items[held.item][1] = max(self.items[held.item][1], slot)

    def keep_in_main(self, name: str) -> HeldItem:
        box = full_box(self.ctx.graph.by_name[name].shape)
        held = HeldItem(name, self.ctx.roles.main, "", {SHARED: (0, box)}, {SHARED: box})
        self.values.setdefault(name, []).append(held)
        return held

    def _bytes(self, name: str, box: Box) -> int:
        return box_size(box) * self.ctx.graph.by_name[name].item_bytes

    def _keep_shared(self, name: str, box: Box, slot: int) -> HeldItem:
        key = self.keep(name, self.ctx.roles.staging, slot, self._bytes(name, box))
        return HeldItem(name, self.ctx.roles.staging, key, {SHARED: (0, box)}, {SHARED: box})

    def _keep_local(self, name: str, boxes: Mapping[int, Box], owned: Mapping[int, Box], slot: int) -> HeldItem:
        size = max((self._bytes(name, box) for box in boxes.values()), default=0)
        key = self.keep(name, self.ctx.roles.local.memory, slot, size)
        return HeldItem(
            name, self.ctx.roles.local.memory, key, {core: (0, box) for core, box in boxes.items()}, dict(owned)
        )

    def find(self, name: str, needs: Mapping[int, Box], reader: tuple[str, int]) -> HeldItem | tuple[HeldItem, ...]:
        """Holder of what the cores need of a value: in their own memories, or in shared ones. Raises PlanError where no
        memory holds it."""
        if (*reader, name) in self.moved:
            return self.moved.pop((*reader, name))
        for held in self.values.get(name, ()):
            if held.memory == self.ctx.roles.local.memory and all(
                core in held.boxes and holds(held.boxes[core][1], box) for core, box in needs.items()
            ):
                return held
        if not any(map(box_size, needs.values())):
            return ()  # an instance that consists of padding only
        shared = tuple(
            held
            for held in self.values.get(name, ())
            if held.memory != self.ctx.roles.local.memory
            and any(box_size(common(box, held.owned[SHARED])) for box in needs.values())
        )
        for memory in (self.ctx.roles.staging, self.ctx.roles.main):
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

    def core_boxes(self, step: RunStep | MoveStep, group: Group) -> tuple[CoreBoxes, ...]:
        key = (step.group, step.instance)
        if key not in self.boxes:
            self.boxes[key] = core_boxes(self.ctx, group, self.runs[key])
        return self.boxes[key]

    def _view(self, layer: Layer) -> None:
        """Register a view: other names for the held parts of its source."""
        op = layer.anchor(self.ctx.graph)
        for held in self.values.get(op.inputs[0], ()):
            if held.memory == self.ctx.roles.main:
                self.keep_in_main(layer.output)
                continue
            boxes = {core: (start, self._renamed(layer, box)) for core, (start, box) in held.boxes.items()}
            owned = {core: self._renamed(layer, box) for core, box in held.owned.items()}
            self.values.setdefault(layer.output, []).append(
                HeldItem(layer.output, held.memory, held.item, boxes, owned)
            )

    def _renamed(self, layer: Layer, box: Box) -> Box:
        """The box of a view that holds exactly the elements of a box of its source."""
        renamed = exact_view_box(self.ctx.graph, layer.anchor(self.ctx.graph), box)
        if renamed is None:
            raise PlanError(
                f"view {layer.name}", needs="a box with exactly the elements of its source's", has=box_text(box)
            )
        return renamed

    def _move(self, step: MoveStep, group: Group) -> MovedValue:
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
            if held.memory == self.ctx.roles.main:
                raise PlanError(
                    f"{step.kind} of {name}",
                    needs=f"parts in {self.ctx.roles.staging} or closer",
                    has=self.ctx.roles.main,
                )
            self._touch(held, slot)
        across = any(
            held.memory == self.ctx.roles.local.memory and core != reader_core and box_size(common(box, owned))
            for held in sources
            for core, owned in held.owned.items()
            for reader_core, box in needs.items()
        )
        buffer = None
        if across:
            kept = (held for held in sources if held.memory == self.ctx.roles.local.memory)
            union = joined(tuple(owned for held in kept for owned in held.owned.values()))
            buffer = (self.keep(name, self.ctx.roles.staging, slot, self._bytes(name, union), HeldRole.BUFFER), union)
        to = self._keep_local(name, needs, needs, slot)
        self.moved[(*reader, name)] = to
        return MovedValue(step, slot, to, sources, buffer)

    def _run(self, step: RunStep, group: Group) -> list[Slot]:
        cores = self.core_boxes(step, group)
        found = group.exchanges_of(step.instance)
        exchanged = frozenset(exchange.tensor for exchange in found if isinstance(exchange, Exchange))
        spilled = {spill.tensor: spill.scope for spill in group.spills}
        scopes = {**dict(step.exports), group.output: step.scope}
        outputs = group.outputs(self.ctx.graph)
        slots, after = self._slots(group, exchanged, outputs, scopes, cores)
        last = self._last_reads(group, slots)
        local, sources = self._inputs(step, group, cores, last)
        result: list[Slot] = []
        for layer in group.layers:
            name = layer.output
            empty = empty_box(len(self.ctx.graph.by_name[name].shape))
            boxes = tuple(part.computed.get(name, empty) for part in cores)
            read_by_none = not any(map(box_size, boxes))  # readers leave this part of it out, as a slice may
            if layer.is_view(self.ctx.graph):
                if not read_by_none:
                    self._inner_view(layer, step.binding.cores, cores, local, sources)
                continue
            self._note_pinned(layer, slots[name])
            if read_by_none:
                continue
            owned = tuple(part.owned.get(name, empty) for part in cores)
            entry = Slot(layer, slots[name], step, boxes, {}, {}, None)
            scope = scopes.get(name, self.ctx.roles.local.memory) if name in outputs else self.ctx.roles.local.memory
            done = after.get(name, entry.slot)
            if name not in spilled and (scope == self.ctx.roles.local.memory or _stays(name, cores)):
                local[name] = self._stay(entry, cores, owned)
                self._touch(local[name], max(last.get(name, entry.slot), done))
            if name in exchanged:
                union = joined(boxes)
                size = self._bytes(name, union)
                entry.exchange = (
                    self.keep(name, self.ctx.roles.staging, entry.slot + 1, size, HeldRole.EXCHANGE),
                    union,
                )
            if name in outputs:
                self._leave(entry, name, scope, owned, local, done)
            read = {name}.union(*(self.ctx.reads(layer, box) for box in boxes if box_size(box)))
            entry.local = {tensor: held for tensor, held in local.items() if tensor in read}
            entry.sources = {tensor: held for tensor, held in sources.items() if tensor in read}
            if name in spilled:
                sources[name] = (self._spill(entry, spilled[name], last.get(name, entry.slot)),)
            result.append(entry)
        return result

    def _inputs(
        self, step: RunStep, group: Group, cores: tuple[CoreBoxes, ...], last: Mapping[str, int]
    ) -> tuple[dict[str, HeldItem], dict[str, tuple[HeldItem, ...]]]:
        """Holders of the values that the group reads from outside: in local memories, and in shared ones. They are held
        until the last read."""
        local: dict[str, HeldItem] = {}
        sources: dict[str, tuple[HeldItem, ...]] = {}
        for name in group.inputs(self.ctx.graph):
            each = zip(step.binding.cores, cores, strict=True)
            found = self.find(
                name,
                {core: part.needed[name] for core, part in each if name in part.needed},
                (step.group, step.instance),
            )
            if isinstance(found, HeldItem):
                local[name] = found
            else:
                sources[name] = found
            for held in (found,) if isinstance(found, HeldItem) else found:
                self._touch(held, last[name])
        return local, sources

    def _stay(self, entry: Slot, cores: tuple[CoreBoxes, ...], owned: tuple[Box, ...]) -> HeldItem:
        """Keep a layer's output on every core that computes or needs a part of it."""
        name, ids = entry.layer.output, entry.step.binding.cores
        kept = {
            core: join(box, part.needed.get(name, box))
            for core, box, part in zip(ids, entry.boxes, cores, strict=True)
            if box_size(box) or name in part.needed
        }
        given = {core: box for core, box in zip(ids, owned, strict=True) if box_size(box)}
        return self._keep_local(name, kept, given, entry.slot)

    def _spill(self, entry: Slot, scope: str, last: int) -> HeldItem:
        """Send a value of the group that no core keeps to a shared memory, from which it is read."""
        name = entry.layer.output
        if scope == self.ctx.roles.main:
            self.stored.add(name)
            box = full_box(self.ctx.graph.by_name[name].shape)
            held = HeldItem(name, self.ctx.roles.main, "", {SHARED: (0, box)}, {SHARED: joined(entry.boxes)})
        else:
            held = self._keep_shared(name, joined(entry.boxes), entry.slot)
            self._touch(held, last)
        entry.destination = held
        return held

    def _leave(
        self, entry: Slot, name: str, scope: str, owned: tuple[Box, ...], local: dict[str, HeldItem], slot: int
    ) -> None:
        """Send an output of the group to its scope, directly or from the local memories where it is needed too."""
        if scope == self.ctx.roles.local.memory:
            self.values.setdefault(name, []).append(local[name])
            return
        whole = joined(owned)
        if scope == self.ctx.roles.main:
            self.stored.add(name)
            held = next((h for h in self.values.get(name, ()) if h.memory == self.ctx.roles.main), None)
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
        stored = scope == self.ctx.roles.main
        buffer = (
            self.keep(name, self.ctx.roles.staging, slot, self._bytes(name, whole), HeldRole.STORE) if stored else ""
        )
        entry.stores.append((held, owned, buffer))

    def _slots(
        self,
        group: Group,
        exchanged: frozenset[str],
        outputs: tuple[str, ...],
        scopes: Mapping[str, str],
        cores: tuple[CoreBoxes, ...],
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The slot of each layer, by its output, and the slot in which its output is stored where this comes later."""
        slots: dict[str, int] = {}
        after: dict[str, int] = {}
        for layer in group.layers:
            name = layer.output
            slots[name] = self.slot
            if layer.is_view(self.ctx.graph):
                continue
            self.slot += 1
            if name in exchanged:
                after[name] = self.slot
                self.slot += 1
            if name in outputs and _stays(name, cores) and scopes.get(name) != self.ctx.roles.local.memory:
                after[name] = self.slot
                self.slot += 1
        return slots, after

    def _last_reads(self, group: Group, slots: Mapping[str, int]) -> dict[str, int]:
        """The last slot in which each value is read inside the group; the source of a view is read when the view is."""
        last: dict[str, int] = {}
        for layer in reversed(group.layers):
            view = layer.is_view(self.ctx.graph)
            slot = last.get(layer.output, slots[layer.output]) if view else slots[layer.output]
            for name in layer.inputs(self.ctx.graph):
                last[name] = max(last.get(name, 0), slot)
        return last

    def _inner_view(
        self,
        layer: Layer,
        ids: tuple[int, ...],
        cores: tuple[CoreBoxes, ...],
        local: dict[str, HeldItem],
        sources: dict[str, tuple[HeldItem, ...]],
    ) -> None:
        """Register a view inside a group: the same bytes of the local memories, or of the shared places, under its
        name."""
        source, name = layer.anchor(self.ctx.graph).inputs[0], layer.output
        if source not in local:
            renamed = []
            for held in sources[source]:
                if held.memory == self.ctx.roles.main:
                    box = full_box(self.ctx.graph.by_name[name].shape)
                    renamed.append(HeldItem(name, self.ctx.roles.main, "", {SHARED: (0, box)}, {SHARED: box}))
                else:
                    start, box = held.boxes[SHARED]
                    box = self._renamed(layer, box)
                    renamed.append(HeldItem(name, held.memory, held.item, {SHARED: (start, box)}, {SHARED: box}))
            sources[name] = tuple(renamed)
            return
        held = local[source]
        boxes: dict[int, tuple[int, Box]] = {}
        for core, part in zip(ids, cores, strict=True):
            if name not in part.computed:
                continue
            box = part.computed[name]
            read = self.ctx.reads(layer, box)[source]
            start, whole = held.boxes[core]
            run = run_offset(whole, read)
            if run is None or box_size(read) != box_size(box):
                raise PlanError(
                    f"view {layer.name}", needs="a box with exactly the elements of its source's", has=box_text(read)
                )
            boxes[core] = (start + run * self.ctx.graph.by_name[name].item_bytes, box)
        owned = {core: part.owned[name] for core, part in zip(ids, cores, strict=True) if name in part.owned}
        local[name] = HeldItem(name, held.memory, held.item, boxes, owned)

    def _note_pinned(self, layer: Layer, slot: int) -> None:
        for name in layer.inputs(self.ctx.graph):
            if name in self.pinnable:
                self.pinned.setdefault(name, [slot, slot])[1] = slot


def _stays(name: str, cores: tuple[CoreBoxes, ...]) -> bool:
    """Whether cores keep a value that they compute: some core reads it, or computes more of it than it gives away."""
    return any(
        name in part.needed or (name in part.owned and part.computed.get(name) != part.owned[name]) for part in cores
    )
