"""Constants that stay: those read by several instances or layers are kept in the staging memory while there is room.

plan, layout --free staging bytes while their readers run--> plan with pinned constants
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hw_models.errors import reason_text, size_text
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Group, Plan
from partitioner.memory.memory_plan import fit_layout
from partitioner.memory.memory_plan_types import LayerLayout, Layout

FREE_DIVISOR = 8
"""Divisor of the staging memory: the part that is left to weights and inputs on their way."""


def with_pins(ctx: PlanContext, plan: Plan, layout: Layout) -> Plan:
    """The plan in which constants that several instances of a group, or several layers, read stay in the staging memory
    while there is room next to everything else; the plan itself where there is no such memory."""
    if not ctx.roles.has_staging:
        return plan
    found = _Pins(ctx, layout, [entries for entries in layout.steps if isinstance(entries, tuple)])
    steps = [step for step, entries in zip(plan.steps, layout.steps, strict=True) if isinstance(entries, tuple)]
    spans: dict[str, tuple[int, int]] = {}
    for position, (step, entries) in enumerate(zip(steps, found.entries, strict=True)):
        if entries:
            spans[step.group] = (spans.get(step.group, (position, position))[0], position)
    for group in sorted(plan.groups, key=lambda group: -group.split.instances):
        if group.split.instances > 1 and group.name in spans:
            found.keep_group(group, spans[group.name])
    of_groups = found.plan(plan)
    found.keep_shared()
    kept = found.plan(plan)
    for attempt in dict.fromkeys((kept, of_groups)):
        fitted = fit_layout(attempt, ctx)
        if not isinstance(fitted, Infeasible):
            return attempt
        refused = reason_text(fitted)
    return replace(plan, decisions=(*plan.decisions, Decision("constants", "loaded again by each reader", refused)))


@dataclass
class _Pins:
    """State of the choice: the `pinned` constants, and the bytes that they take at each position of the plan."""

    ctx: PlanContext
    layout: Layout
    entries: Sequence[tuple[LayerLayout, ...]]
    pinned: list[str] = field(default_factory=list)
    reasons: list[Decision] = field(default_factory=list)
    taken: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.taken = [0] * len(self.entries)

    def plan(self, plan: Plan) -> Plan:
        """The plan with the constants pinned so far."""
        return replace(plan, pinned=tuple(sorted(self.pinned)), decisions=(*plan.decisions, *self.reasons))

    def keep_group(self, group: Group, span: tuple[int, int]) -> None:
        """Keep constants that instances of a group read, the largest first, while its instances run."""
        graph = self.ctx.graph
        room = self._room(span)
        names = dict.fromkeys(
            name for layer in group.layers for name in layer.inputs(graph) if graph.by_name[name].constant
        )
        used = self._keep(sorted(names, key=self._size), span, room)
        if used:
            self._say(group.name, used, f"{group.split.instances} instances read them", room)

    def keep_shared(self) -> None:
        """Keep constants that layers of several names read, from the first layer to the last: those with most readers
        first."""
        readers: dict[str, dict[str, int]] = {}
        first: dict[str, int] = {}
        for position, entries in enumerate(self.entries):
            for entry in entries:
                for name in entry.layer.inputs(self.ctx.graph):
                    if self.ctx.graph.by_name[name].constant and name not in self.pinned:
                        readers.setdefault(name, {})[entry.layer.name] = position
                        first.setdefault(name, position)
        shared = [name for name, found in readers.items() if len(found) > 1]
        for name in sorted(shared, key=lambda name: (-len(readers[name]), self._size(name))):
            span = first[name], max(readers[name].values())
            room = self._room(span)
            if used := self._keep([name], span, room):
                self._say(name, used, f"{len(readers[name])} layers read it", room)

    def _size(self, name: str) -> int:
        """Sort key that puts the largest constant first."""
        return -self.ctx.graph.by_name[name].size_bytes

    def _room(self, span: tuple[int, int]) -> int:
        """Bytes that are free at every position of a span."""
        first, last = span
        each = (
            entry.staging[1] - self.taken[position]
            for position in range(first, last + 1)
            for entry in self.entries[position]
        )
        return min(each, default=0) - self.ctx.chip.memory(self.layout.staging).size_bytes // FREE_DIVISOR

    def _keep(self, names: Iterable[str], span: tuple[int, int], room: int) -> int:
        """Pin the constants that fit; return their bytes."""
        used = 0
        for name in names:
            size = self.ctx.graph.by_name[name].size_bytes
            if size > 0 and used + size <= room and name not in self.pinned:
                self.pinned.append(name)
                used += size
        for position in range(span[0], span[1] + 1):
            self.taken[position] += used
        return used

    def _say(self, who: str, used_bytes: int, readers: str, room_bytes: int) -> None:
        kept = f"{size_text(used_bytes)} of constants stay in {self.layout.staging}"
        self.reasons.append(Decision(who, kept, f"{readers}; {size_text(max(0, room_bytes))} are free while they run"))
