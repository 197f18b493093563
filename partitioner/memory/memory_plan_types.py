"""The types of a layout: places of values, the use of memory by a layer or a move of one step, and the whole layout.

Offsets are bytes in a memory, boxes are dense row-major arrays there. `memory_plan.py` makes these from a plan,
`layout_text.py` prints them, `partitioner.verification.verify_layout` checks them, `partitioner.expansion.expansion`
says what a program of them does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from partitioner.context.memory_roles import Local
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size
from partitioner.tiling.buffer_aliasing import FreeRegions
from partitioner.tiling.staging_rounds import Round, StagingRound

SHARED = -1
"""Core number of a place in a memory that all cores share."""


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """Options of a layout. With `rounds_ahead`, rounds are small enough that the next one can be staged while one is
    worked on. With `buffers_apart`, data of layers that follow each other have separate places where there is room.
    Both are for a scheduler that lets work run ahead. With `constants_ahead`, all rounds are staged in one region where
    no value ever lies, if enough of the staging memory is left for that, and constants of several rounds come in one
    transfer: then constants can arrive many layers early. `in_main` names values, in addition to the graph's inputs,
    that are in the main memory before the first step: for plans of a part of a network."""

    rounds_ahead: bool = False
    buffers_apart: bool = False
    in_main: tuple[str, ...] = ()
    constants_ahead: bool = False


PLAIN = LayoutOptions()
"""Options for a program that runs in the order in which it is lowered."""

FOR_SCHEDULING = LayoutOptions(rounds_ahead=True, buffers_apart=True)
"""Options for a program that a scheduler will put into another order."""

FOR_CONSTANTS_AHEAD = LayoutOptions(rounds_ahead=True, buffers_apart=True, constants_ahead=True)
"""Options for a scheduled program whose constants arrive as early as the staging memory has room for them."""


@dataclass(frozen=True, slots=True)
class Place:
    """A dense `box` of a value from `offset_bytes` of `memory` on. In the main memory the box is the whole value, and
    the offset is 0, since the plan does not know where the value is placed there."""

    memory: str
    offset_bytes: int
    box: Box


@dataclass(frozen=True, slots=True)
class Store:
    """A value that stays local and also leaves: the part that each core owns, its destination, and the place where it
    is staged on its way to the main memory."""

    tensor: str
    owned: tuple[Box, ...]
    destination: Place
    buffer: Place | None


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """One layer of one `instance` of a `group`. For each core (`cores`, those of the binding, in its order): the box
    that it computes and the `residents`, values in its local memory. `sources` are shared places of values that are
    read from there. The output goes to `destination` where it does not stay local. Tile buffers lie in `free_regions`,
    rounds are staged in `staging` (offset and bytes)."""

    group: str
    instance: int
    cores: tuple[int, ...]
    layer: Layer
    slot: int
    boxes: tuple[Box, ...]
    residents: tuple[Mapping[str, Place], ...]
    sources: Mapping[str, tuple[Place, ...]]
    destination: Place | None
    exchange: Place | None
    stores: tuple[Store, ...]
    free_regions: FreeRegions
    staging: tuple[int, int]
    rounds: tuple[tuple[Round, StagingRound], ...]


@dataclass(frozen=True, slots=True)
class MoveLayout:
    """A move of `tensor` for an `instance` of a `group`: targets are (core, place to fill), sources are (core or
    SHARED, place, the part that it gives); data between cores go through `buffer`."""

    group: str
    instance: int
    tensor: str
    targets: tuple[tuple[int, Place], ...]
    sources: tuple[tuple[int, Place, Box], ...]
    buffer: Place | None


@dataclass(frozen=True)
class Layout:
    """One entry per step of the plan: its layers (views have none), or its move. `main` names the values that are
    stored in the main memory, `pinned` the constants that stay in the staging memory, with the slot of their first use;
    `options` are those of the layout, `item_bytes` is the size of one element of every tensor."""

    steps: tuple[tuple[LayerLayout, ...] | MoveLayout, ...]
    main: frozenset[str]
    pinned: Mapping[str, tuple[Place, int]]
    local: Local
    staging: str
    peaks: Mapping[str, int]
    """Largest number of bytes in use at once in the local memory of a core and in the staging memory, without tile
    buffers."""
    item_bytes: Mapping[str, int]
    options: LayoutOptions = PLAIN

    def size_bytes(self, tensor: str, place: Place) -> int:
        """Size of a place of a tensor, in bytes."""
        return box_size(place.box) * self.item_bytes[tensor]

    def __str__(self) -> str:
        from partitioner.memory.layout_text import format_layout  # which reads these types

        return format_layout(self)
