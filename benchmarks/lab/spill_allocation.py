"""Values in a chain of memories, near to far: a value that finds no room in one is spilled to the next, by a policy.

    values (bytes, slots), memories --fullest slot over capacity--> policy spills one --...--pack--> offsets by memory

It compares the policies of `partitioner/memory/spill_policies.py` over whole networks; planning spills inside groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hw_models.errors import DoesNotFit
from hw_models.infeasible import Holder, Infeasible, Lever, SlotSubject
from partitioner.memory.offset_assignment import Item, pack, peak_bytes
from partitioner.memory.spill_policies import Policy, SpillValue


@dataclass(frozen=True, slots=True)
class SpillMemory:
    """A memory that values may be kept in."""

    name: str
    size_bytes: int
    alignment_bytes: int = 1


@dataclass(frozen=True, slots=True)
class SpilledValue:
    """A value that left a memory because `missing_bytes` were missing in a slot."""

    value: SpillValue
    memory: str
    slot: int
    missing_bytes: int


@dataclass(frozen=True)
class SpillAllocation:
    """(memory, offset) by value, and the spilled values in order, with the memory that they left."""

    places: Mapping[str, tuple[str, int]]
    spills: tuple[SpilledValue, ...]

    def moved_bytes(self, memory: str) -> int:
        """Bytes that are written and read because values were spilled from a memory."""
        return sum(spill.value.moved_bytes for spill in self.spills if spill.memory == memory)


def allocate(values: Sequence[SpillValue], memories: Sequence[SpillMemory], policy: Policy) -> SpillAllocation:
    """Places for all values, as near as they fit. Raises DoesNotFit, with the holders, where the last memory is too
    small, or where values that may not be spilled exceed a memory."""
    places: dict[str, tuple[str, int]] = {}
    spills: list[SpilledValue] = []
    left = list(values)
    for number, memory in enumerate(memories):
        spilled: list[SpilledValue] = []
        while True:
            offsets, where = _fit(left, memory)
            if where is None:
                break
            slot, missing = where
            held = [value for value in left if value.slots[0] <= slot <= value.slots[-1]]
            victims = [value for value in held if not value.fixed and value.size_bytes]
            if not victims or number == len(memories) - 1:
                raise DoesNotFit(_infeasible(held, memory, slot, missing))
            spilled.append(SpilledValue(policy(victims, slot, missing), memory.name, slot, missing))
            left.remove(spilled[-1].value)
        places |= {name: (memory.name, offset) for name, offset in offsets.items()}
        spills += spilled
        left = [spill.value for spill in spilled]
    return SpillAllocation(places, tuple(spills))


def _fit(values: Sequence[SpillValue], memory: SpillMemory) -> tuple[Mapping[str, int], tuple[int, int] | None]:
    """Offsets, or the slot and the bytes that are missing there."""
    unit = memory.alignment_bytes
    items = [Item(v.name, v.slots[0], v.slots[-1], -(-v.size_bytes // unit) * unit) for v in values]
    peak, slot = peak_bytes(items)
    if peak > memory.size_bytes:
        return {}, (slot, peak - memory.size_bytes)
    packing = pack(items, memory.size_bytes, unit, {})
    late = packing.late
    if late is None:
        return packing.offsets, None
    live = [Item(i.name, max(i.first, late.first), min(i.last, late.last), i.size_bytes) for i in items]
    _, slot = peak_bytes(i for i in live if i.first <= i.last)
    return {}, (slot, packing.offsets[late.name] + late.size_bytes - memory.size_bytes)


def _infeasible(held: Sequence[SpillValue], memory: SpillMemory, slot: int, missing_bytes: int) -> Infeasible:
    largest = min(held, key=lambda value: (-value.size_bytes, value.name))
    return Infeasible(
        SlotSubject(largest.name, slot),
        memory.name,
        "",
        demand_bytes=memory.size_bytes + missing_bytes,
        room_bytes=memory.size_bytes,
        levers=(Lever.LARGER_MEMORY, Lever.SMALLER_PIECES),
        slot=slot,
        holders=tuple(Holder(v.name, v.size_bytes, f"slot {v.slots[0]}", f"slot {v.slots[-1]}") for v in held),
    )
