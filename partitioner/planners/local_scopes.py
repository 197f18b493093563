"""Level O2: values in the cores' own memories where their readers find them there, else in the staging memory, else in
the main one.

    bindings --values by cycles saved for each byte and step--> local values, moves --> what is left as at O1 --> Plan

A value stays with the cores that made it if there is room until its last reader, in addition to the room for the tiles
of all layers that run meanwhile. A reader that needs parts from other cores gets them by a `redistribute` step. Tiling
itself says what the tiles need: a value for which some layer finds no tile, or loses more cycles than the value saves,
goes to the next memory outward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hw_models.errors import size_text
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.regions import Box, box_shape, box_size
from partitioner.ir.value_lifetimes import WaitingValue, activations
from partitioner.memory.offset_assignment import Item, largest_gap, pack
from partitioner.ordering.scope_assignment import LOCAL, STAGING, Lifetime, assign_scopes, never_local_bytes
from partitioner.planners.core_binding import Binder, Closeness, LayerBinding
from partitioner.tiling.buffer_aliasing import FreeRegions, Residents
from partitioner.tiling.tiling import piece_cycles, workspace_bytes

RESERVE_DIVISOR = 16
"""Divisor of the local memory: the part left to tiles at first. What they really need is asked afterwards."""

ROUNDS_ONE_BY_ONE = 12
"""Number of first rounds in which values that cost more than they save leave one at a time, since one that leaves may
help the others; afterwards, as happens in deep networks, all those leave at once that never live at the same time."""


@dataclass(frozen=True, slots=True)
class ScopeMove:
    """A move before layer `reader` runs: its cores get their boxes of what it reads as `name`, `size_bytes` on a core
    at most, and `buffer_bytes` in the shared memory meanwhile."""

    value: str
    reader: int
    name: str
    boxes: Mapping[int, Box]
    size_bytes: int
    buffer_bytes: int


@dataclass
class LocalScopes:
    """State of the choice: the `kept` values by name."""

    ctx: PlanContext
    binder: Binder
    bound: Mapping[int, LayerBinding]
    buffer_bound: int
    kept: dict[str, Closeness] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    worth: dict[str, float] = field(default_factory=dict)

    @property
    def capacity(self) -> int:
        return self.ctx.roles.local_bytes

    def choose(self, banned: Mapping[str, str]) -> None:
        """Choose the values that save most cycles as far as their bytes fit; values that then find room in the shared
        memory are counted too. `banned` values are left out, for the reasons given."""
        self.kept, self.reasons = {}, dict(banned)
        candidates: dict[str, Closeness] = {}
        for value in self.binder.values.values():
            close = self._candidate(value.name)
            if close is not None:
                candidates[value.name] = close
        waiting = [value for value in self.binder.values.values() if not value.leaves and value.readers]
        lives = [self._lifetime(value, candidates.get(value.name)) for value in waiting]
        room = self.capacity - self.capacity // RESERVE_DIVISOR
        shared = self.buffer_bound - self.buffer_bound // RESERVE_DIVISOR
        scopes = assign_scopes(lives, [room] * (2 * len(self.ctx.layers)), shared)
        staged = [0] * (2 * len(self.ctx.layers))
        for life, scope in zip(lives, scopes, strict=True):
            for slot in range(life.first, life.last + 1) if scope == STAGING else ():
                staged[slot] += life.staging_bytes
        used = [0] * (2 * len(self.ctx.layers))
        chosen = []
        for value, life, scope in zip(waiting, lives, scopes, strict=True):
            if value.name in candidates:
                full = max(staged[life.first : life.last + 1]) + life.staging_bytes > shared
                self.worth[value.name] = float(life.main_cost if full else life.staging_cost)
                if scope == LOCAL:
                    chosen.append(candidates[value.name])
                else:
                    self.reasons[value.name] = (
                        f"{size_text(life.local_bytes)} of a core for {value.last - value.made} layers would save "
                        f"about {self.worth[value.name]:.0f} cycles; others save more in {size_text(room)}"
                    )
        for close in sorted(chosen, key=lambda c: (-self._density(c), c.value.made)):
            self._try(close, used)

    def _lifetime(self, value: WaitingValue, close: Closeness | None) -> Lifetime:
        """A value for the choice among memories; there are two slots per layer, as in `_try`. Costs are cycles."""
        size, readers = value.size_bytes, len(value.readers)
        kept = close.cycles if close is not None else 0.0
        main = self.binder.transfers.main_cycles(value.size_bytes, readers)
        last = self._last(close) if close is not None else 2 * value.last + 1
        local_bytes = close.core_bytes if close is not None else never_local_bytes(self.capacity)
        staging_cost = int(kept if size <= self.buffer_bound else kept + main)
        return Lifetime(2 * value.made + 1, last, local_bytes, size, staging_cost, int(kept + main))

    def mend(self) -> None:
        """Remove values for which tiles or packing find no room, until all others have it."""
        rounds = 0
        while odd := self._misfits(apart=rounds >= ROUNDS_ONE_BY_ONE):
            for name, reason in odd.items():
                self._drop(name, reason)
            rounds += 1

    def moves(self) -> tuple[ScopeMove, ...]:
        """Moves in the order of the readers."""
        found = []
        for close in self.kept.values():
            item_bytes = self.ctx.graph.by_name[close.value.name].item_bytes
            for reader, name, boxes in close.moved:
                size = max(map(box_size, boxes.values())) * item_bytes
                found.append(ScopeMove(close.value.name, reader, name, boxes, size, close.value.size_bytes))
        order = {name: position for position, name in enumerate(self.kept)}
        return tuple(sorted(found, key=lambda move: (move.reader, order[move.value])))

    def slots(self) -> tuple[int | ScopeMove, ...]:
        """Event of each slot of time: a layer by its index, or a move; views take none."""
        before: dict[int, list[ScopeMove]] = {}
        for move in self.moves():
            before.setdefault(move.reader, []).append(move)
        found: list[int | ScopeMove] = []
        for index in sorted(self.bound):
            found += [*before.get(index, ()), index]
        return tuple(found)

    def decisions(self) -> tuple[Decision, ...]:
        memory = self.ctx.roles.local.memory
        found = []
        for close in self.kept.values():
            value = close.value
            readers = ", ".join(dict.fromkeys(self.ctx.layers[reader].name for reader, _, _ in close.moved))
            moved = f", {readers} after a redistribution" if readers else ""
            reason = (
                f"{size_text(close.core_bytes)} of a core for {value.last - value.made} layers save about "
                f"{self.worth[value.name]:.0f} cycles{moved}"
            )
            found.append((value.made, Decision(value.name, f"kept in {memory}", reason)))
        for name, reason in self.reasons.items():
            found.append((self.binder.values[name].made, Decision(name, f"not kept in {memory}", reason)))
        return tuple(decision for _, decision in sorted(found, key=lambda entry: entry[0]))

    # One value.

    def _candidate(self, name: str) -> Closeness | None:
        value = self.binder.values[name]
        if name in self.reasons or value.leaves or not value.readers:
            return None
        boxes = self.bound[value.made].boxes
        close = self.binder.closeness(value, self.bound)
        if close.core_bytes > self.capacity:
            self.reasons[name] = f"{size_text(close.core_bytes)} of a core, which has {size_text(self.capacity)}"
        elif not self.binder.may_stay(value, boxes):
            self.reasons[name] = (
                f"{size_text(close.core_bytes)} of a core's {size_text(self.capacity)} leave too little to tiles"
                if close.core_bytes > self.binder.most_bytes
                else "its parts on the cores are not boxes of its views"
            )
        elif close.cycles <= 0:
            self.reasons[name] = "moving its parts to the cores of its readers takes as long as the shared memory"
        elif close.moved and value.size_bytes > self.buffer_bound:
            self.reasons[name] = (
                f"moving it between cores takes a buffer of {size_text(value.size_bytes)}, "
                f"there are {size_text(self.buffer_bound)}"
            )
        else:
            return close
        return None

    def _try(self, close: Closeness, used: list[int]) -> None:
        """Keep a value if it fits. There are two slots per layer: one for the layer's moves and one for the layer."""
        wanted = dict.fromkeys(range(2 * close.value.made + 1, self._last(close) + 1), close.core_bytes)
        item_bytes = self.ctx.graph.by_name[close.value.name].item_bytes
        for reader, _, boxes in close.moved:
            for slot in (2 * reader, 2 * reader + 1):
                wanted[slot] = wanted.get(slot, 0) + max(map(box_size, boxes.values())) * item_bytes
        bound = self.capacity - self.capacity // RESERVE_DIVISOR
        peak = max(used[slot] + size for slot, size in wanted.items())
        if peak > bound:
            name = close.value.name
            self.reasons[name] = (
                f"needs {size_text(close.core_bytes)} of a core next to values that save more per byte; "
                f"together {size_text(peak)} of {size_text(bound)}"
            )
            return
        for slot, size in wanted.items():
            used[slot] += size
        self.kept[close.value.name] = close

    def _last(self, close: Closeness) -> int:
        """The last slot (of two per layer) in which the value itself is needed."""
        moved = {(reader, name) for reader, name, _ in close.moved}
        needs = self.binder.needs(close.value, self.bound)
        return max(2 * reader + ((reader, name) not in moved) for reader, name, _ in needs)

    def _drop(self, name: str, reason: str) -> None:
        if name in self.kept:
            del self.kept[name]
            self.reasons[name] = reason

    # All of them together, as the layout will see them.

    def _misfits(self, apart: bool) -> dict[str, str]:
        """Values that must go, and the reasons: at most one for each slot in which something does not fit. Of values
        that slow others down, the first one goes, and with `apart` also those that share no slot with it or with each
        other."""
        slots = self.slots()
        items = self._items(slots)
        if not items:
            return {}
        residents = {index: tuple(self._residents(index)) for index in slots if isinstance(index, int)}
        unit = self.ctx.chip.memory(self.ctx.roles.local.memory).alignment_bytes
        wanted = self._wanted(slots, residents)
        if isinstance(wanted, Infeasible):
            return {}  # some layer fits nowhere, whatever stays; the layout will report it
        packing = pack(list(items), self.capacity, unit, wanted)
        if packing.late is not None:
            late = packing.late
            name = self._least(range(late.first, late.last + 1), items)
            return {name: "found no contiguous place next to the others"}
        busy: dict[int, list[tuple[int, int]]] = {}
        for item in items:
            for slot in range(item.first, item.last + 1):
                busy.setdefault(slot, []).append((packing.offsets[item.name], -(-item.size_bytes // unit) * unit))
        odd: dict[str, str] = {}
        lost: dict[str, float] = {}
        when: dict[str, set[int]] = {}
        start = self.ctx.roles.local_start_bytes
        for slot, taken in busy.items():
            index = slots[slot]
            if isinstance(index, ScopeMove):
                continue
            layer = self.ctx.layers[index]
            offset, gap = largest_gap(taken, self.capacity)
            room: FreeRegions = {self.ctx.roles.local: (offset + start, gap)}
            for box, held in residents[index]:
                here, free = piece_cycles(self.ctx, layer, box, held, room), piece_cycles(self.ctx, layer, box, held)
                if isinstance(here, Infeasible) or isinstance(free, Infeasible):
                    name = self._least(range(slot, slot + 1), items)
                    odd[name] = f"left {layer.name} only {size_text(gap)} of a core for its tiles"
                    break
                slower = here - free
                if slower > 0 and box == self._largest(index):
                    for name in self._alive(range(slot, slot + 1), items):
                        lost[name] = lost.get(name, 0.0) + slower
                        when.setdefault(name, set()).add(slot)
        if not odd:
            gone: set[int] = set()
            for name, cycles in lost.items():
                if cycles > self.worth[name] and (not odd or (apart and gone.isdisjoint(when[name]))):
                    gone |= when[name]
                    odd[name] = (
                        f"saves about {self.worth[name]:.0f} cycles, but smaller tiles of the layers that run "
                        f"meanwhile cost {cycles:.0f}"
                    )
        return odd

    def _largest(self, index: int) -> Box:
        return max(self.bound[index].boxes.values(), key=box_size)

    def _items(self, slots: Sequence[int | ScopeMove]) -> dict[Item, str]:
        """Items in a core's memory, each with the value of which it is a part, in the order in which they come
        there."""
        at = {index: slot for slot, index in enumerate(slots) if isinstance(index, int)}
        moved = {(m.value, m.reader, m.name): slot for slot, m in enumerate(slots) if isinstance(m, ScopeMove)}
        items: dict[Item, str] = {}
        for close in self.kept.values():
            value = close.value
            ends = [
                moved.get((value.name, reader, name), at[reader])
                for reader, name, _ in self.binder.needs(value, self.bound)
            ]
            items[Item(value.name, at[value.made], max(ends), close.core_bytes)] = value.name
        for slot, move in enumerate(slots):
            if isinstance(move, ScopeMove):
                items[Item(f"{move.value} moved in slot {slot}", slot, at[move.reader], move.size_bytes)] = move.value
        return dict(sorted(items.items(), key=lambda entry: entry[0].first))

    def _residents(self, index: int) -> Iterator[tuple[Box, Residents]]:
        """For each core, but only once per shape: the box that it computes and the residents of its memory
        meanwhile."""
        layer, bound = self.ctx.layers[index], self.bound[index]
        moved: dict[str, Mapping[int, Box]] = {}
        for close in self.kept.values():
            moved |= {name: boxes for reader, name, boxes in close.moved if reader == index}
        seen = set()
        for core, box in bound.boxes.items():
            held: dict[str, Box] = {}
            for name in (*activations(self.ctx.graph, layer), layer.output):
                own = self.binder.own.get(name, name)
                if own in self.kept:
                    value = self.binder.values[own]
                    if name in moved:
                        if core in moved[name]:
                            held[name] = self.ctx.reads(layer, box)[name]
                    elif core in self.bound[value.made].boxes:
                        held[name] = self.binder.in_view(name, self.bound[value.made].boxes[core])
            key = (box_shape(box), tuple((name, box_shape(b)) for name, b in held.items()))
            if key not in seen:
                seen.add(key)
                yield box, Residents(held, self.ctx.roles.local.part)

    def _wanted(
        self, slots: Sequence[int | ScopeMove], residents: Mapping[int, Sequence[tuple[Box, Residents]]]
    ) -> dict[int, int] | Infeasible:
        """Bytes wanted in each slot, as the layout asks for them: the workspace of the first of the largest boxes, at
        most half of the memory."""
        wanted = {}
        for slot, index in enumerate(slots):
            if isinstance(index, int):
                box, held = max(residents[index], key=lambda entry: box_size(entry[0]))
                used = workspace_bytes(self.ctx, self.ctx.layers[index], box, held)
                if isinstance(used, Infeasible):
                    return used
                wanted[slot] = min(self.capacity // 2, used)
        return wanted

    def _alive(self, span: range, items: Mapping[Item, str]) -> list[str]:
        live = (name for item, name in items.items() if item.first < span.stop and span.start <= item.last)
        return list(dict.fromkeys(live))

    def _least(self, span: range, items: Mapping[Item, str]) -> str:
        return min(self._alive(span, items), key=lambda name: (self._density(self.kept[name]), name))

    def _density(self, close: Closeness) -> float:
        """Cycles saved per byte of a core and layer."""
        value = close.value
        return self.worth[value.name] / (close.core_bytes * (value.last - value.made + 1))
