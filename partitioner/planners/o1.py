"""Level O1: which values wait in the staging memory of a cluster and which go to the main memory.

    O0 plan --values by bytes saved for each byte and step--> scopes --> O1 plan

A value has one scope for its whole life. One that stays takes room from all layers that run meanwhile: their rounds
become smaller and load more often. So a value stays only if the saved bytes outweigh those that are loaded again,
counted by the rounds that the layout will choose. Inputs and outputs of the network lie in the main memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hw_models.errors import size_text
from hw_models.memory_parts import aligned
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.ir.regions import Box
from partitioner.ir.steps import RunStep, Step
from partitioner.ir.value_lifetimes import WaitingValue, activations, own_names, waiting_values
from partitioner.memory.offset_assignment import Item, largest_gap, pack
from partitioner.planners.o0 import in_main
from partitioner.tiling.staging_traffic import StagedBytes

PASSES = 3
"""Largest number of times that refused values are asked again: their cost may have changed when others stay."""


def in_staging(ctx: PlanContext) -> Plan:
    """Plan of level O1. On a chip without a level between main and local memories this is O0."""
    base = in_main(ctx)
    if not ctx.roles.has_staging:
        return replace(base, level="O1")
    graph, layers = ctx.graph, ctx.layers
    chosen = Staging(ctx, runs_of(base.steps), StagedBytes(ctx), run_slots(graph, layers))
    chosen.choose(value for value in waiting_values(graph, layers) if not value.leaves)
    decisions = (*base.decisions, *chosen.decisions())
    return replace(
        with_scopes(base, graph, dict.fromkeys(chosen.kept, ctx.roles.staging)), level="O1", decisions=decisions
    )


def runs_of(steps: Sequence[Step]) -> dict[int, RunStep]:
    """Run steps of layers that compute, by the layer's index; there is one step per layer."""
    return {index: step for index, step in enumerate(steps) if isinstance(step, RunStep)}


def run_slots(graph: Graph, layers: Sequence[Layer]) -> tuple[int | None, ...]:
    """The layer that runs in each slot of time; views take none."""
    return tuple(index for index, layer in enumerate(layers) if not layer.is_view(graph))


def with_scopes(plan: Plan, graph: Graph, scopes: Mapping[str, str]) -> Plan:
    """The plan with changed scopes for some values; a view lies where the value lies that it names."""
    own = own_names(graph, [group.layers[0] for group in plan.groups])
    steps = []
    for step in plan.steps:
        output = plan.group_by_name[step.group].output
        steps.append(replace(step, scope=scopes.get(own.get(output, output), step.scope)))
    return replace(plan, steps=tuple(steps))


@dataclass(slots=True)
class _Refusal:
    """Reason why a value does not stay."""

    value: WaitingValue
    reason: str


@dataclass
class Staging:
    """State of the choice: `kept` values by name, bytes `used` in each slot of time; `runs` are the steps of layers
    that compute, by the layer's index.

    `slots` names the layer that runs in each slot, None for a move between cores; `buffers` are bytes that such a slot
    takes. Values in `local` lie in the cores' memories, and layers that touch them keep to the boxes in `own`.
    """

    ctx: PlanContext
    runs: Mapping[int, RunStep]
    traffic: StagedBytes
    slots: Sequence[int | None]
    buffers: Mapping[int, int] = field(default_factory=dict)
    local: frozenset[str] = frozenset()
    own: Mapping[int, tuple[Box, ...]] = field(default_factory=dict)
    kept: dict[str, WaitingValue] = field(default_factory=dict)
    saved: dict[str, int] = field(default_factory=dict)
    refused: dict[str, _Refusal] = field(default_factory=dict)
    used: list[int] = field(init=False)
    names: Mapping[str, str] = field(init=False)
    slot_of: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.used = [self.buffers.get(slot, 0) for slot in range(len(self.slots))]
        self.names = own_names(self.ctx.graph, self.ctx.layers)
        self.slot_of = {index: slot for slot, index in enumerate(self.slots) if index is not None}

    @property
    def capacity(self) -> int:
        return self.ctx.chip.memory(self.ctx.roles.staging).size_bytes

    def _span(self, value: WaitingValue) -> range:
        return range(self.slot_of[value.made], self.slot_of[value.last] + 1)

    def choose(self, values: Iterable[WaitingValue]) -> None:
        """Choose values in the order of saved bytes per byte and step that they take; then remove those that cannot be
        packed."""
        order = sorted(values, key=lambda v: (-_density(v), v.made))
        for _ in range(PASSES):
            kept = len(self.kept)
            for value in order:
                if value.name not in self.kept:
                    self._try(value)
            if len(self.kept) == kept:
                break
        self._pack()

    def decisions(self) -> tuple[Decision, ...]:
        staging = self.ctx.roles.staging
        kept = [
            (value.made, Decision(value.name, f"kept in {staging}",
                      f"{size_text(value.size_bytes)} for {value.last - value.made} layers save "
                      f"{size_text(self.saved[value.name])} of traffic with {self.ctx.roles.main}"))
            for value in self.kept.values()
        ]  # fmt: skip
        refused = [
            (refusal.value.made, Decision(refusal.value.name, f"goes to {self.ctx.roles.main}", refusal.reason))
            for refusal in self.refused.values()
        ]
        return tuple(decision for _, decision in sorted(kept + refused, key=lambda entry: entry[0]))

    # One value.

    def _try(self, value: WaitingValue) -> None:
        size = aligned(self.ctx.chip, self.ctx.roles.staging, value.size_bytes)
        span = self._span(value)
        peak = max(self.used[slot] for slot in span)
        if peak + size > self.capacity:
            free = size_text(max(0, self.capacity - peak))
            needs = f"needs {size_text(size)} of {self.ctx.roles.staging}"
            self._refuse(value, f"{needs}, which has {free} free next to values that save more")
            return
        before = self._bytes(span)
        self._keep(value, size)
        after = self._bytes(span)
        if after is not None and (before is None or after < before):
            self.refused.pop(value.name, None)
            self.saved[value.name] = before - after if before is not None else value.size_bytes
            return
        if after is None:
            slot = next(slot for slot in span if self._slot_bytes(slot) is None)
            crowded = self.ctx.layers[self.slots[slot] or 0].name
            reason = f"next to its {size_text(size)}, layer {crowded} finds no room for staging"
        else:
            reason = (f"staying would cost {size_text(after - (before or 0))} more traffic with {self.ctx.roles.main}: "
                      f"{size_text(size)} less room for staging")  # fmt: skip
        self._drop(value, size)
        self._refuse(value, reason)

    def _keep(self, value: WaitingValue, size: int) -> None:
        self.kept[value.name] = value
        for slot in self._span(value):
            self.used[slot] += size

    def _drop(self, value: WaitingValue, size: int) -> None:
        del self.kept[value.name]
        self.saved.pop(value.name, None)
        for slot in self._span(value):
            self.used[slot] -= size

    def _refuse(self, value: WaitingValue, reason: str) -> None:
        self.refused[value.name] = _Refusal(value, reason)

    # Bytes moved by the layers of some steps.

    def _bytes(self, span: Iterable[int]) -> int | None:
        total = 0
        for slot in span:
            moved = self._slot_bytes(slot)
            if moved is None:
                return None
            total += moved
        return total

    def _slot_bytes(self, slot: int, room: int | None = None) -> int | None:
        index = self.slots[slot]
        if index is None:
            return 0 if self.used[slot] <= self.capacity else None
        layer = self.ctx.layers[index]
        here = self.kept.keys() | self.local
        names = activations(self.ctx.graph, layer)
        from_main = frozenset(name for name in names if self.names.get(name, name) not in here)
        room = self.capacity - self.used[slot] if room is None else room
        to_main = layer.output not in here
        return self.traffic.of(layer, self.runs[index], from_main, to_main, room, self.own.get(index, ()))

    # Places.

    def _pack(self) -> None:
        """Remove values until the rest find places that leave every layer the room that it needs."""
        unit = self.ctx.chip.memory(self.ctx.roles.staging).alignment_bytes
        while self.kept:
            items = [Item(f"{slot}", slot, slot, size) for slot, size in self.buffers.items()]
            for value in self.kept.values():
                span = self._span(value)
                items.append(Item(value.name, span[0], span[-1], value.size_bytes))
            items.sort(key=lambda item: item.first)
            packing = pack(items, self.capacity, unit, {})
            odd: dict[str, str] = {}
            if packing.late is not None:
                live = self._live(range(packing.late.first, packing.late.last + 1))
                odd[live.name] = "found no contiguous place next to the others"
            busy: dict[int, list[tuple[int, int]]] = {}
            for item in items:
                for slot in range(item.first, item.last + 1):
                    busy.setdefault(slot, []).append((packing.offsets[item.name], item.size_bytes))
            for slot, taken in busy.items() if packing.late is None else ():
                gap = largest_gap(taken, self.capacity)[1]
                index = self.slots[slot]
                if index is not None and self._slot_bytes(slot, gap) is None:
                    room = f"left {self.ctx.layers[index].name} only {size_text(gap)} of contiguous room for staging"
                    odd[self._live(range(slot, slot + 1)).name] = room
            if not odd:
                return
            for name, reason in odd.items():
                value = self.kept[name]
                self._drop(value, aligned(self.ctx.chip, self.ctx.roles.staging, value.size_bytes))
                self._refuse(value, reason)

    def _live(self, span: range) -> WaitingValue:
        """The value that saves least among those kept in some slot of a span."""
        live = [v for v in self.kept.values() if self._span(v)[0] < span.stop and span.start <= self._span(v)[-1]]
        return min(live, key=lambda v: (_density(v), v.made))


def _density(value: WaitingValue) -> float:
    """Bytes saved per byte and step: one transfer to the main memory, and one back for each reader."""
    return (1 + len(value.readers)) / (value.last - value.made + 1)
