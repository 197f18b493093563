"""Holders of the memory where something found no room in a layout.

walk, items of a memory, slots in question --fullest of them--> holders: value, bytes, since when, until when
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hw_models.infeasible import Holder, Infeasible, Lever
from partitioner.memory.liveness import MovedValue, Walk
from partitioner.memory.offset_assignment import Item, Packing, peak_bytes


def unplaced(
    walk: Walk, memory: str, items: Sequence[Item], packing: Packing, capacity_bytes: int
) -> Infeasible | None:
    """The item for which a packing has no room, at the fullest moment of its life; None where all found room."""
    late = packing.late
    if late is None:
        return None
    live = [item for item in items if item.first <= late.last and late.first <= item.last]
    clipped = [Item(i.name, max(i.first, late.first), min(i.last, late.last), i.size_bytes) for i in live]
    peak, slot = peak_bytes(clipped)
    gaps = () if peak > capacity_bytes else (Lever.OTHER_LIFETIMES,)
    return Infeasible(
        walk.subjects[late.name],
        memory,
        walk.ctx.roles.local.part if memory == walk.ctx.roles.local.memory else "",
        demand_bytes=max(peak, packing.offsets[late.name] + late.size_bytes),
        room_bytes=capacity_bytes,
        levers=(Lever.FINER_CUT, Lever.LARGER_MEMORY, *gaps),
        slot=slot,
        holders=holders_at(walk, live, slot),
    )


def holders_at(walk: Walk, items: Iterable[Item], slot: int) -> tuple[Holder, ...]:
    """The items that are held in a slot, from the layer or move that brings them to the last that needs them."""
    names = _names(walk)
    return tuple(
        Holder(value.name, item.size_bytes, names[item.first], names[item.last], value.role)
        for item in items
        if item.first <= slot <= item.last and item.size_bytes
        for value in (walk.subjects[item.name],)
    )


def _names(walk: Walk) -> dict[int, str]:
    """The event of each slot, in words; an exchange or store belongs to the layer before it."""
    names: dict[int, str] = {}
    groups = walk.groups
    for step in walk.steps:
        if isinstance(step, MovedValue):
            names[step.slot] = f"{step.step.kind} of {step.step.tensor}"
            continue
        for entry in step:
            count = groups[entry.step.group].split.instances
            which = f" (instance {entry.step.instance} of {count})" if count > 1 else ""
            names[entry.slot] = f"{entry.layer.name}{which}"
    for slot in range(walk.slot + 1):
        names.setdefault(slot, names.get(slot - 1, "the start"))
    return names
