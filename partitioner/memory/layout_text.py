"""The text form of a layout: one block per step, one line per layer, resident value, round or place.

    Layout  --format_layout-->  step, layer, here, round, ... lines

A place is written `memory@offset+bytes [low:high, ...]`: its first byte, its size and the box of the value that lies
there. Sizes follow from boxes; they are for the reader. `benchmarks/lab/readers/layouts.py` reads the lines back.
"""

from __future__ import annotations

from collections.abc import Iterator

from partitioner.ir.regions import box_size, box_text
from partitioner.ir.text import format_line
from partitioner.memory.memory_plan_types import LayerLayout, Layout, MoveLayout, Place
from partitioner.tiling.staging_rounds import Staged


def format_layout(layout: Layout) -> str:
    """The text form: the options, sizes of elements, content of the main memory, then the steps in order."""
    return "\n".join("  " * depth + format_line(tag, *fields) for depth, tag, fields in _lines(layout)) + "\n"


def _lines(layout: Layout) -> Iterator[tuple[int, str, tuple[tuple[str, object], ...]]]:
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


def _move_lines(
    layout: Layout, number: int, move: MoveLayout
) -> Iterator[tuple[int, str, tuple[tuple[str, object], ...]]]:
    name = move.tensor
    reader = ("group", move.group), ("instance", move.instance)
    buffer = (("buffer", _place(layout, name, move.buffer)),) if move.buffer else ()
    yield 1, "move", (("number", number), *reader, ("tensor", name), *buffer)
    for core, place, owned in move.sources:
        yield 2, "from", (("core", core), ("place", _place(layout, name, place)), ("owned", box_text(owned)))
    for core, place in move.targets:
        yield 2, "to", (("core", core), ("place", _place(layout, name, place)))


def _layer_lines(layout: Layout, entry: LayerLayout) -> Iterator[tuple[int, str, tuple[tuple[str, object], ...]]]:
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
