"""A demand for memory that cannot be met, as a value: planners return it instead of a result and go on trying.

    demand for memory above what there is --> Infeasible(subject, memory, part, slot, demand, room, levers, holders)

Everything that a planner decides by is a field. `hw_models.errors` makes words of it when a person reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum


class HeldRole(Enum):
    """The held part of a value: the value itself, or a copy in shared memory while it is moved, exchanged or stored."""

    VALUE = ""
    BUFFER = "buffer"
    EXCHANGE = "exchange"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class LayerSubject:
    """The working data of a layer that find no room; with `smallest_tile`, however finely the layer is cut."""

    name: str
    smallest_tile: bool = False


@dataclass(frozen=True, slots=True)
class ValueSubject:
    """A value of a plan, or a copy of it."""

    name: str
    role: HeldRole = HeldRole.VALUE


@dataclass(frozen=True, slots=True)
class SlotSubject:
    """A value that is to be held in a slot, where no plan describes the slot."""

    name: str
    slot: int


@dataclass(frozen=True, slots=True)
class InstanceSubject:
    """An instance of a group."""

    name: str


@dataclass(frozen=True, slots=True)
class GraphSubject:
    """A whole graph, and the largest of its tensors."""

    name: str
    largest_tensor: str


@dataclass(frozen=True, slots=True)
class ProgramSubject:
    """The machine code of a program."""

    name: str


Subject = LayerSubject | ValueSubject | SlotSubject | InstanceSubject | GraphSubject | ProgramSubject


class Lever(Enum):
    """A change that would lower the demand or raise the bound, in words; `{memory}` stands for the memory in
    question."""

    LARGER_MEMORY = "a chip with more {memory}"
    MORE_LOCAL_MEMORY = "a chip with more local memory"
    SMALLER_BATCH = "a smaller batch"
    SMALLER_INPUT = "a smaller batch or input"
    FEWER_CHANNELS = "an operator with fewer channels"
    SMALLER_PIECES = "smaller pieces"
    FINER_CUT = "more instances or smaller groups"
    MORE_INSTANCES = "more instances of its group"
    SMALLER_GROUPS = "smaller groups"
    OTHER_LIFETIMES = "lifetimes that leave fewer gaps between places"


@dataclass(frozen=True, slots=True)
class Holder:
    """Owner of some bytes at the moment when something else finds no room; `since` and `until` in words."""

    name: str
    size_bytes: int
    since: str
    until: str
    role: HeldRole = HeldRole.VALUE


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A demand of `subject` for `demand_bytes` of a memory, or of a physical `part` of it, which has `room_bytes`. In a
    layout it happens in `slot`. `levers` are the possible changes, `holders` are what holds the rest at that moment."""

    subject: Subject
    memory: str
    part: str
    demand_bytes: int
    room_bytes: int
    levers: tuple[Lever, ...]
    slot: int | None = None
    holders: tuple[Holder, ...] = ()

    @property
    def missing_bytes(self) -> int:
        return self.demand_bytes - self.room_bytes

    def held_by(self, holders: Iterable[Holder], slot: int) -> Infeasible:
        """A copy that also names the slot of a layout and the holders in it."""
        return replace(self, holders=tuple(holders), slot=slot)
