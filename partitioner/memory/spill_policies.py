"""Policies of spilling: of the values that a memory holds in a slot, the one that leaves it where they do not all fit.

    values (bytes, slots), the fullest slot, bytes missing there --policy--> the value to spill

GraphTurbo (OSDI 2023) frees each tensor after its last use and spills the one with the longest liveness, not the
largest, to the global buffer and then to DDR. Liveness is read as the number of tasks from a tensor's making to its
last use; ties go to the larger one, then by name. The other policies are there for comparison.

A spilled value is written outward where it is made and read from there by each reader, piece by piece; none of it
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class SpillValue:
    """A value of `size_bytes` that is made in the first of `slots` and read in the others (increasing). A `fixed` one
    stays."""

    name: str
    size_bytes: int
    slots: tuple[int, ...]
    fixed: bool = False

    @property
    def liveness(self) -> int:
        """Slots from the first use to the last."""
        return self.slots[-1] - self.slots[0] + 1

    @property
    def moved_bytes(self) -> int:
        """Bytes written and read in all once the value is spilled."""
        return self.size_bytes * len(self.slots)

    def next_use(self, slot: int) -> int:
        """The first use from `slot` on."""
        return next((use for use in self.slots if use >= slot), self.slots[-1])


Policy = Callable[[Sequence[SpillValue], int, int], SpillValue]
"""(values that are held in a slot, the slot, bytes that are missing there) -> the value to spill."""


def _longest(held: Sequence[SpillValue], _slot: int, _missing: int) -> SpillValue:
    return min(held, key=lambda value: (-value.liveness, -value.size_bytes, value.name))


def _largest(held: Sequence[SpillValue], _slot: int, _missing: int) -> SpillValue:
    return min(held, key=lambda value: (-value.size_bytes, -value.liveness, value.name))


def _furthest(held: Sequence[SpillValue], slot: int, _missing: int) -> SpillValue:
    """The value whose next use is furthest away, as in Belady's page replacement."""
    return min(held, key=lambda value: (-value.next_use(slot), -value.size_bytes, value.name))


def _cheapest(held: Sequence[SpillValue], _slot: int, missing: int) -> SpillValue:
    """Of the values that free enough, the one that moves the fewest bytes; where none does, the one with the fewest
    moved bytes per byte freed."""
    enough = [value for value in held if value.size_bytes >= missing]
    if enough:
        return min(enough, key=lambda value: (value.moved_bytes, -value.liveness, value.name))
    return min(held, key=lambda value: (len(value.slots), -value.size_bytes, value.name))


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {"longest": _longest, "largest": _largest, "furthest": _furthest, "cost": _cheapest}
)
"""Policies by name, the published one first."""
