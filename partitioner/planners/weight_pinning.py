"""Constants that stay: weights that several instances read are kept in the staging memory while there is room.

plan, layout --free staging bytes while a group's instances run--> plan with pinned constants
"""

from __future__ import annotations

from dataclasses import replace

from hw_models.errors import reason_text, size_text
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Plan
from partitioner.memory.memory_plan import Layout, fit_layout

__all__ = ["with_pins"]

LEFT_FREE = 8
"""One part in this many of the staging memory is left to weights and inputs on their way."""


def with_pins(ctx: PlanContext, plan: Plan, layout: Layout) -> Plan:
    """Constants that several instances read stay in the staging memory while there is room beside all else."""
    graph = ctx.graph
    steps = [
        (step, entries) for step, entries in zip(plan.steps, layout.steps, strict=True) if isinstance(entries, tuple)
    ]
    spans: dict[str, tuple[int, int]] = {}
    for position, (step, entries) in enumerate(steps):
        if entries:
            spans[step.group] = (spans.get(step.group, (position, position))[0], position)
    reserve = ctx.chip.memory(layout.staging).size_bytes // LEFT_FREE
    pinned: list[str] = []
    reasons: list[Decision] = []
    taken = [0] * len(steps)
    for group in sorted(plan.groups, key=lambda group: -group.split.instances):
        if group.split.instances < 2 or group.name not in spans:
            continue
        first, last = spans[group.name]
        room = (
            min(
                (
                    entry.staging[1] - taken[position]
                    for position in range(first, last + 1)
                    for entry in steps[position][1]
                ),
                default=0,
            )
            - reserve
        )
        names = dict.fromkeys(
            name for layer in group.layers for name in layer.inputs(graph) if graph.by_name[name].constant
        )
        used = 0
        for name in sorted(names, key=lambda name: -graph.by_name[name].size_bytes):
            size = graph.by_name[name].size_bytes
            if size > 0 and used + size <= room and name not in pinned:
                pinned.append(name)
                used += size
        for position in range(first, last + 1):
            taken[position] += used
        if used:
            reasons.append(
                Decision(
                    group.name,
                    f"{size_text(used)} of constants stay in {layout.staging}",
                    f"{group.split.instances} instances read them; {size_text(max(0, room))} are free while they run",
                )
            )
    kept = replace(plan, pinned=tuple(sorted(pinned)), decisions=(*plan.decisions, *reasons))
    found = fit_layout(kept, ctx)
    if isinstance(found, Infeasible):
        again = Decision("constants", "read again by each instance", reason_text(found))
        return replace(plan, decisions=(*plan.decisions, again))
    return kept
