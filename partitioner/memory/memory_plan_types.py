"""The nouns of a layout: places of values, what a layer or a move of one step uses, all of it together.

Offsets are bytes in a memory, boxes are dense row-major arrays there. `memory_plan.py` makes these from a plan,
lowering turns them into instructions, traffic counts their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from partitioner.context.plan_context import Local
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box
from partitioner.tiling.buffer_aliasing import Room
from partitioner.tiling.staging_rounds import Round, Stage

__all__ = ["SHARED", "LayerLayout", "Layout", "MoveLayout", "Place", "Store"]

SHARED = -1
"""Stands for the core where a place is in a memory that all cores share."""


@dataclass(frozen=True, slots=True)
class Place:
    """A dense `box` of a value from `offset_bytes` of `memory` on. In the main memory the box is the whole value, and
    the offset that of its placement, which is not the plan's to know: 0 stands for it."""

    memory: str
    offset_bytes: int
    box: Box


@dataclass(frozen=True, slots=True)
class Store:
    """A value that stays local and also leaves: the part that each core owns, where to, and where it is staged on its
    way to the main memory."""

    tensor: str
    owned: tuple[Box, ...]
    destination: Place
    buffer: Place | None


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """One layer of one instance: by core (in the order of the binding) the box that it computes and the `residents`,
    values in its local memory. `sources` are shared places of values that are read from there. The output goes to
    `destination` where it does not stay local. Tile buffers lie in `room`, rounds are staged in `staging` (offset and
    bytes)."""

    layer: Layer
    slot: int
    boxes: tuple[Box, ...]
    residents: tuple[Mapping[str, Place], ...]
    sources: Mapping[str, tuple[Place, ...]]
    destination: Place | None
    exchange: Place | None
    stores: tuple[Store, ...]
    room: Room
    staging: tuple[int, int]
    rounds: tuple[tuple[Round, Stage], ...]


@dataclass(frozen=True, slots=True)
class MoveLayout:
    """A move: (core, place to fill), from (core or SHARED, place, its part to give), through `buffer` between cores."""

    targets: tuple[tuple[int, Place], ...]
    sources: tuple[tuple[int, Place, Box], ...]
    buffer: Place | None


@dataclass(frozen=True)
class Layout:
    """One entry a step of the plan: its layers (views have none), or its move. `main` names the values that are stored
    in the main memory, `pinned` the constants that stay in the staging memory, with the slot of their first use."""

    steps: tuple[tuple[LayerLayout, ...] | MoveLayout, ...]
    main: frozenset[str]
    pinned: Mapping[str, tuple[Place, int]]
    local: Local
    staging: str
    peaks: Mapping[str, int]
    """Bytes in use at once in the local memory of a core and in the staging memory, tile buffers not counted."""
