"""Engines and memories that bind a plan, for how long, and for how much of that time the others have work.

    groups with their floors --what_binds--> for each that binds: its groups, their cycles, work of the others meanwhile

The others wait when they have no work: a group takes at least as long as what binds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from partitioner.cost.roofline import Floor, binding_floor


class Floored(Protocol):
    """A group of a plan, or a segment."""

    @property
    def name(self) -> str: ...

    @property
    def floors(self) -> tuple[Floor, ...]: ...


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Work of an engine or memory."""

    name: str
    cycles: float


@dataclass(frozen=True, slots=True)
class BindingEngine:
    """`name` is an engine or memory that binds `groups` for `cycles` together, the group that takes longest first;
    `others` is the work of each other one there, the most first."""

    name: str
    groups: tuple[str, ...]
    cycles: float
    others: tuple[EngineLoad, ...]


def what_binds(groups: Sequence[Floored]) -> tuple[BindingEngine, ...]:
    """Engines and memories that bind any group, the one with the most cycles first; idle groups are left out."""
    bound: dict[str, list[Floored]] = {}
    for group in sorted(groups, key=lambda group: -_cycles(group)):
        if _cycles(group):
            bound.setdefault(binding_floor(group.floors).name, []).append(group)
    found = (_bound(name, members) for name, members in bound.items())
    return tuple(sorted(found, key=lambda each: (-each.cycles, each.name)))


def _cycles(group: Floored) -> float:
    return max((floor.cycles for floor in group.floors), default=0.0)


def _bound(name: str, groups: Sequence[Floored]) -> BindingEngine:
    others: dict[str, float] = {}
    for floor in (floor for group in groups for floor in group.floors if floor.name != name and floor.cycles):
        others[floor.name] = others.get(floor.name, 0.0) + floor.cycles
    ordered = tuple(EngineLoad(*item) for item in sorted(others.items(), key=lambda item: (-item[1], item[0])))
    return BindingEngine(name, tuple(group.name for group in groups), sum(map(_cycles, groups)), ordered)
