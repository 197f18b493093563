"""The types of a layout: places of values, the use of memory by a layer or a move of one step, and the whole layout.

    Layout  --str-->  layout, step, layer, here, round, ... lines

Offsets are bytes in a memory, boxes are dense row-major arrays there. `memory_plan.py` makes these from a plan,
`partitioner.verification.verify_layout` checks them, `partitioner.expansion.expansion` says what a program of them
does. `benchmarks/lab/readers/layouts.py` reads the lines back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from partitioner.context.memory_roles import Local
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size, box_text
from partitioner.ir.text import format_line
from partitioner.tiling.buffer_aliasing import FreeRegions
from partitioner.tiling.staging_rounds import Round, Staged, StagingRound

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
        """The text form: the options, sizes of elements, content of the main memory, then the steps in order, with one
        line per layer, resident value, round or place. A place is written `memory@offset+bytes [low:high, ...]`: its
        first byte, its size and the box of the value that lies there. Sizes follow from boxes; they are for the
        reader."""
        return "\n".join("  " * depth + format_line(tag, *fields) for depth, tag, fields in _lines(self)) + "\n"


Line: TypeAlias = tuple[int, str, tuple[tuple[str, object], ...]]
"""Depth of a line of the text form, its tag and its fields."""


def _lines(layout: Layout) -> Iterator[Line]:
    options = layout.options
    yield 0, "layout", (
        ("rounds_ahead", options.rounds_ahead),
        ("buffers_apart", options.buffers_apart),
        ("in_main", options.in_main),
        *((("constants_ahead", True),) if options.constants_ahead else ()),
        ("local", layout.local.memory),
        ("part", layout.local.part),
        ("staging", layout.staging),
    )  # fmt: skip
    sizes: dict[int, list[str]] = {}
    for name, size in layout.item_bytes.items():
        sizes.setdefault(size, []).append(name)
    for size, names in sorted(sizes.items()):
        yield 1, "elements", (("bytes", size), ("tensors", sorted(names)))
    yield 1, "main", (("tensors", sorted(layout.main)),)
    for memory, peak in layout.peaks.items():
        yield 1, "peak", (("memory", memory), ("bytes", peak))
    for name, (place, slot) in layout.pinned.items():
        yield 1, "pinned", (("tensor", name), ("slot", slot), ("place", _place(layout, name, place)))
    for number, step in enumerate(layout.steps):
        if isinstance(step, MoveLayout):
            yield from _move_lines(layout, number, step)
        else:
            first = (("group", step[0].group), ("instance", step[0].instance)) if step else ()
            yield 1, "step", (("number", number), *first)
            for entry in step:
                yield from _layer_lines(layout, entry)


def _move_lines(layout: Layout, number: int, move: MoveLayout) -> Iterator[Line]:
    name = move.tensor
    reader = ("group", move.group), ("instance", move.instance)
    buffer = (("buffer", _place(layout, name, move.buffer)),) if move.buffer else ()
    yield 1, "move", (("number", number), *reader, ("tensor", name), *buffer)
    for core, place, owned in move.sources:
        yield 2, "from", (("core", core), ("place", _place(layout, name, place)), ("owned", box_text(owned)))
    for core, place in move.targets:
        yield 2, "to", (("core", core), ("place", _place(layout, name, place)))


def _layer_lines(layout: Layout, entry: LayerLayout) -> Iterator[Line]:
    layer, name = entry.layer, entry.layer.output
    yield 2, "layer", (
        ("name", layer.name),
        ("slot", entry.slot),
        ("ops", layer.ops),
        ("output", name),
        ("cores", entry.cores),
        ("boxes", [box_text(box) for box in entry.boxes]),
        ("room", [[memory, part, _span(*span)] for (memory, part), span in entry.free_regions.items()]),
        ("staging", _span(*entry.staging)),
    )  # fmt: skip
    for core, here in zip(entry.cores, entry.residents, strict=True):
        for tensor, place in here.items():
            yield 3, "here", (("core", core), ("tensor", tensor), ("place", _place(layout, tensor, place)))
    for tensor, places in entry.sources.items():
        yield 3, "source", (("tensor", tensor), ("places", [_place(layout, tensor, place) for place in places]))
    if entry.destination is not None:
        yield 3, "destination", (("place", _place(layout, name, entry.destination)),)
    if entry.exchange is not None:
        yield 3, "exchange", (("place", _place(layout, name, entry.exchange)),)
    for store in entry.stores:
        buffer = (("buffer", _place(layout, store.tensor, store.buffer)),) if store.buffer else ()
        destination = _place(layout, store.tensor, store.destination)
        owned = [box_text(box) for box in store.owned]
        yield 3, "store", (("tensor", store.tensor), ("owned", owned), ("destination", destination), *buffer)
    for this_round, stage in entry.rounds:
        whole = (("whole", box_text(this_round.whole)),) if this_round.whole is not None else ()
        staged = (("in", [_staged(layout, item) for item in stage.inputs]),
                  ("out", [_staged(layout, item) for item in stage.outputs]))  # fmt: skip
        sizes = ("loaded_bytes", stage.loaded_bytes), ("size_bytes", stage.size_bytes)
        yield 3, "round", (("boxes", [box_text(box) for box in this_round.boxes]), *whole, *staged, *sizes)


def _span(offset_bytes: int, size_bytes: int) -> str:
    return f"{offset_bytes}+{size_bytes}"


def _place(layout: Layout, tensor: str, place: Place) -> str:
    return f"{place.memory}@{_span(place.offset_bytes, layout.size_bytes(tensor, place))} {box_text(place.box)}"


def _staged(layout: Layout, staged: Staged) -> list[str]:
    size = box_size(staged.box) * layout.item_bytes[staged.tensor]
    return [staged.tensor, f"+{_span(staged.offset_bytes, size)} {box_text(staged.box)}"]
