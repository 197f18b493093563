"""The check of a layout, whoever made it: the steps are walked in order over the bytes of every memory.

    Layout --write what is made, read what is wanted--> nothing, or PlanError naming layer, core, value and bytes

Lifetimes are observed, not trusted: whatever a layer reads must lie, written in full, where the layout says, and
nothing else may have been put on those bytes since. Tile buffers, staged rounds, exchange buffers, stores on their way
out and pinned constants count as writes of all the bytes that they may use. The check does not know how places were
found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hw_models.errors import PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.ir.regions import Box, box_size, box_text, common, full_box, holds
from partitioner.ir.steps import MoveStep, RunStep, Step, ViewStep
from partitioner.memory.memory_plan_types import SHARED, LayerLayout, Layout, MoveLayout, Place, Store
from partitioner.tiling.staging_rounds import Staged, StagingRound
from partitioner.verification.coverage import covered
from partitioner.verification.layout_memories import Memories, where
from partitioner.verification.memory_contents import Written


def verify_layout(layout: Layout, plan: Plan, ctx: PlanContext) -> None:
    """Raises PlanError unless the layout has an entry for each step, every place and workspace is aligned and inside
    its part of its memory, nothing that is still read is overwritten, and all that a layer reads or hands on is there.
    Lowering, which cuts tiles, checks whether they fit their workspace.
    """
    check = _Walk(layout, ctx.graph, ctx.roles.main, ctx.reads, Memories(layout, ctx.graph, ctx.chip))
    for name in (*ctx.graph.inputs, *layout.options.in_main):
        check.memories.stored[name] = [full_box(ctx.graph.by_name[name].shape)]
    if len(layout.steps) != len(plan.steps):
        raise PlanError("layout", needs=f"an entry for each of {len(plan.steps)} steps", has=str(len(layout.steps)))
    for step, laid in zip(plan.steps, layout.steps, strict=True):
        check.step(step, laid, plan)
    check.end(plan)


@dataclass(slots=True)
class _Walk:
    """The walk over the steps in order; `slot` is that of the layer before, `written` the values that were stored."""

    layout: Layout
    graph: Graph
    main: str
    reads: Callable[[Layer, Box], Mapping[str, Box]]
    memories: Memories
    written: set[str] = field(default_factory=set)
    slot: int = -1

    # Steps.

    def step(self, step: Step, laid: tuple[LayerLayout, ...] | MoveLayout, plan: Plan) -> None:
        who = f"instance {step.instance} of group {step.group}"
        if isinstance(step, MoveStep) and isinstance(laid, MoveLayout):
            if (laid.group, laid.instance, laid.tensor) != (step.group, step.instance, step.tensor):
                raise PlanError(f"layout of {who}", needs=f"a move of {step.tensor}", has=f"one of {laid.tensor}")
            self._move(laid)
            return
        if isinstance(step, ViewStep) and not laid:
            return
        if not isinstance(step, RunStep) or isinstance(laid, MoveLayout):
            raise PlanError(f"layout of {who}", needs=f"an entry for a {step.kind}", has="one for another kind of step")
        layers = iter(plan.group_by_name[step.group].layers)
        for entry in laid:
            if (entry.group, entry.instance, entry.cores) != (step.group, step.instance, step.binding.cores):
                raise PlanError(f"layout of {who}", needs=f"cores {step.binding.cores}", has=f"{entry.cores}")
            if entry.layer not in layers:
                raise PlanError(f"layout of {who}", needs="layers of the group in order", has=entry.layer.name)
            self._layer(entry)

    def end(self, plan: Plan) -> None:
        """Require that outputs are stored, and that everything named in the main memory was written there."""
        made = {layer.output for group in plan.groups for layer in group.layers}
        for name in self.graph.outputs:
            if name in made and not self.memories.is_stored(name, full_box(self.graph.by_name[name].shape)):
                raise PlanError(
                    "layout", needs=f"all of the output {name} in {self.main}", has="parts that are missing there"
                )
        if odd := self.written ^ self.layout.main:
            raise PlanError(
                "layout",
                needs=f"the values that are stored in {self.main}",
                has=f"differences: {', '.join(sorted(odd))}",
            )

    def _layer(self, entry: LayerLayout) -> None:
        who = f"layer {entry.layer.name}"
        if entry.slot <= self.slot:
            raise PlanError(f"layout of {who}", needs=f"a slot after {self.slot}", has=str(entry.slot))
        self.slot = entry.slot
        self.memories.phase += 1
        inputs = entry.layer.inputs(self.graph)
        for name in inputs:
            place, first = self.layout.pinned.get(name, (None, -1))
            if place is not None and first == entry.slot:
                self.memories.write(SHARED, name, place, (place.box,), f"{name}, which is pinned")
                self.memories.phase += 1
        self._workspace(entry, who)
        self._outputs(entry, who)
        self._cores_read(entry, who, inputs)
        self._rounds(entry, who, inputs)
        if entry.exchange is not None:
            self._exchange(entry, entry.exchange, who)
        for store in entry.stores:
            self._store(entry, store, who)

    def _workspace(self, entry: LayerLayout, who: str) -> None:
        """Check tile buffers on every core, and the area in which rounds are staged."""
        for (memory, part), (offset, size) in entry.free_regions.items():
            if memory and size:
                low, high, _ = self.memories.bounds_of(memory, part)
                self.memories.require_inside(
                    who, f"tile buffers at {memory}@{offset}+{size}", (offset, size), (low, high)
                )
                for core, box in zip(entry.cores, entry.boxes, strict=True):
                    if box_size(box):
                        self.memories.put(
                            core,
                            memory,
                            Written(offset, offset + size, "", (), (), f"tile buffers of {who}", self.memories.phase),
                        )
        most = max((stage.size_bytes for _, stage in entry.rounds), default=0)
        if most:
            memory, (offset, size) = self.layout.staging, entry.staging
            what = f"staged rounds at {memory}@{offset}+{size}"
            self.memories.require_inside(who, what, (offset, max(size, 0)), self.memories.bounds_of(memory, "")[:2])
            self.memories.require_inside(who, f"{most} bytes of a round", (0, most), (0, size))
            self.memories.put(
                SHARED, memory, Written(offset, offset + size, "", (), (), f"rounds of {who}", self.memories.phase)
            )

    def _outputs(self, entry: LayerLayout, who: str) -> None:
        """Write the cores' results to their own memories, or to a shared one."""
        name, filled = entry.layer.output, tuple(box for box in entry.boxes if box_size(box))
        for core, here, box in zip(entry.cores, entry.residents, entry.boxes, strict=True):
            if name in here:
                if not holds(here[name].box, box):
                    raise self.memories.lacks(who, core, name, here[name], box, "a smaller place")
                self.memories.write(core, name, here[name], (box,) if box_size(box) else (), who)
            elif box_size(box) and entry.destination is None:
                raise PlanError(where(who, core), needs=f"a place for {box_text(box)} of {name}", has="none")
        if entry.destination is not None:
            self._leave(name, entry.destination, filled, who)

    def _leave(self, name: str, to: Place, filled: tuple[Box, ...], who: str) -> None:
        """Write boxes of a value to a shared memory."""
        for box in filled:
            if not holds(to.box, box):
                raise self.memories.lacks(who, SHARED, name, to, box, "a smaller place")
        if to.memory == self.main:
            self.memories.require_whole(who, name, to)
            self.written.add(name)
            self.memories.stored.setdefault(name, []).extend(filled)
        else:
            self.memories.write(SHARED, name, to, filled, who)

    # Reads.

    def _cores_read(self, entry: LayerLayout, who: str, inputs: tuple[str, ...]) -> None:
        for core, here, box in zip(entry.cores, entry.residents, entry.boxes, strict=True):
            wanted = self.reads(entry.layer, box) if box_size(box) else {}
            for name in inputs:
                read = wanted.get(name)
                if read is None or not box_size(read):
                    continue
                if name in here:
                    self.memories.require(who, core, name, here[name], read)
                elif name in self.layout.pinned:
                    self.memories.require(who, SHARED, name, self.layout.pinned[name][0], read)
                elif self._staged(entry, name):
                    if not self.graph.by_name[name].constant:
                        self._from_main(who, core, name, entry.sources[name], read)
                else:
                    self._from_sources(who, core, name, entry.sources.get(name, ()), read)

    def _staged(self, entry: LayerLayout, name: str) -> bool:
        """Whether a value that is neither local nor pinned comes from the main memory, round by round."""
        if self.graph.by_name[name].constant:
            return True
        return any(place.memory == self.main for place in entry.sources.get(name, ()))

    def _from_main(self, who: str, core: int, name: str, places: tuple[Place, ...], read: Box) -> None:
        for place in places:
            if place.memory == self.main:
                self.memories.require_whole(who, name, place)
        if not self.memories.is_stored(name, read):
            raise PlanError(
                where(who, core), needs=f"{box_text(read)} of {name} in {self.main}", has="only a part of it there"
            )

    def _from_sources(self, who: str, core: int, name: str, places: tuple[Place, ...], read: Box) -> None:
        parts = [(place, part) for place in places if box_size(part := common(place.box, read))]
        if not covered(read, (part for _, part in parts)):
            has = ", ".join(self.memories.said(name, place) for place in places) or "no place for it"
            raise PlanError(where(who, core), needs=f"{box_text(read)} of {name}", has=has)
        for place, part in parts:
            self.memories.require(who, SHARED, name, place, part)

    def _rounds(self, entry: LayerLayout, who: str, inputs: tuple[str, ...]) -> None:
        """Check that rounds make all boxes of the cores, and that their reads from and stores to the main memory are
        staged where there is a memory in between."""
        between = self.layout.staging != self.main
        local = set().union(*entry.residents) if entry.residents else set()
        staged = [
            name
            for name in inputs
            if between and name not in self.layout.pinned and name not in local and self._staged(entry, name)
        ]
        to_main = between and entry.destination is not None and entry.destination.memory == self.main
        for number, (this_round, stage) in enumerate(entry.rounds):
            self._require_apart(f"round {number} of {who}", stage)
            for box in dict.fromkeys(this_round.boxes if this_round.whole is None else (this_round.whole,)):
                if not box_size(box):
                    continue
                wanted = self.reads(entry.layer, box) if staged else {}
                for name in staged:
                    if box_size(wanted.get(name, ())) and name in wanted:
                        self._require_staged(f"round {number} of {who}", name, wanted[name], stage.inputs)
                if to_main:
                    self._require_staged(f"round {number} of {who}", entry.layer.output, box, stage.outputs)
        shared = [box for this_round, _ in entry.rounds for box in this_round.boxes if this_round.whole is not None]
        for number, box in enumerate(entry.boxes):
            own = [
                this_round.boxes[number]
                for this_round, _ in entry.rounds
                if this_round.whole is None and number < len(this_round.boxes)
            ]
            if not covered(box, own or shared):
                raise PlanError(where(who, entry.cores[number]), needs=f"rounds that make {box_text(box)}", has="a gap")

    def _require_staged(self, who: str, name: str, box: Box, staged: tuple[Staged, ...]) -> None:
        if not any(item.tensor == name and holds(item.box, box) for item in staged):
            has = ", ".join(box_text(item.box) for item in staged if item.tensor == name) or "none of it"
            raise PlanError(who, needs=f"{box_text(box)} of {name} staged", has=has)

    def _require_apart(self, who: str, stage: StagingRound) -> None:
        """Require that the boxes of a round lie one after the other, aligned, inside the bytes that the round takes."""
        unit = self.memories.bounds_of(self.layout.staging, "")[2]
        end = 0
        for item in sorted((*stage.inputs, *stage.outputs), key=lambda item: item.offset_bytes):
            size = box_size(item.box) * self.graph.by_name[item.tensor].item_bytes
            if item.offset_bytes < end or item.offset_bytes % unit or item.offset_bytes + size > stage.size_bytes:
                what = f"{item.tensor} at +{item.offset_bytes}+{size}"
                raise PlanError(
                    who,
                    needs=f"staged boxes that do not overlap, at multiples of {unit}, in {stage.size_bytes} bytes",
                    has=what,
                )
            end = item.offset_bytes + size

    # Handing on.

    def _exchange(self, entry: LayerLayout, buffer: Place, who: str) -> None:
        """Exchange boxes: every core gets the parts of other cores' boxes for which it keeps room."""
        self.memories.phase += 1
        name = entry.layer.output
        given = tuple(part for box in entry.boxes if box_size(part := common(box, buffer.box)))
        self.memories.write(SHARED, name, buffer, given, f"the exchange of {name}")
        for core, here, box in zip(entry.cores, entry.residents, entry.boxes, strict=True):
            if name in here and box_size(here[name].box):
                self.memories.require(who, core, name, here[name], box)
                run = self.memories.run_at(core, name, here[name])  # also of a core that rested and has nothing yet
                if run is not None:
                    run.filled = given if box in given else (*given, box)

    def _store(self, entry: LayerLayout, store: Store, who: str) -> None:
        self.memories.phase += 1
        name, owned = store.tensor, tuple(box for box in store.owned if box_size(box))
        for core, here, box in zip(entry.cores, entry.residents, store.owned, strict=True):
            if box_size(box):
                if name not in here:
                    raise PlanError(where(who, core), needs=f"a place of {name} to store from", has="none")
                self.memories.require(who, core, name, here[name], box)
        if store.buffer is not None:
            for box in owned:
                if not holds(store.buffer.box, box):
                    raise self.memories.lacks(who, SHARED, name, store.buffer, box, "a smaller place")
            self.memories.write(SHARED, name, store.buffer, owned, f"the store of {name}")
        self._leave(name, store.destination, owned, who)

    def _move(self, move: MoveLayout) -> None:
        """Move data: cores get parts from their own memories and from shared ones, and from other cores through the
        buffer."""
        self.memories.phase += 1
        name, who = move.tensor, f"move of {move.tensor} for instance {move.instance} of group {move.group}"
        targets = [(core, place) for core, place in move.targets if box_size(place.box)]
        if move.buffer is not None:
            given = (common(owned, move.buffer.box) for core, _, owned in move.sources if core != SHARED)
            self.memories.write(
                SHARED, name, move.buffer, tuple(box for box in given if box_size(box)), f"the buffer of the {who}"
            )
        for core, place in targets:
            parts: list[Box] = []
            for giver, _, owned in move.sources:
                part = common(owned, place.box)
                if giver not in (core, SHARED):
                    part = common(part, move.buffer.box) if move.buffer is not None else ()
                if part and box_size(part):
                    parts.append(part)
            if not covered(place.box, parts):
                raise self.memories.lacks(who, core, name, place, place.box, "sources of a part of it")
            self.memories.write(core, name, place, (place.box,), who)
        union = [place.box for _, place in targets]
        for giver, place, owned in move.sources:
            if any(box_size(common(owned, box)) for box in union):
                self.memories.require(who, giver, name, place, owned)
