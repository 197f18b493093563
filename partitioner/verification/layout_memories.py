"""All memories while a layout is walked: what is written where, and whether the needed data are there.

    write(core, value, place) --> overwrites;   require(core, value, place, box) --> what lies there, or PlanError

Places of views are found under the names of the values that they rename.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hw_models.chip import Chip
from hw_models.errors import PlanError
from hw_models.memory_parts import part_bytes, part_start
from partitioner.ir.graph import Graph
from partitioner.ir.regions import Box, box_size, box_text, full_box, holds, input_boxes
from partitioner.memory.memory_plan_types import SHARED, Layout, Place
from partitioner.verification.coverage import covered
from partitioner.verification.memory_contents import Contents, Written


@dataclass(slots=True)
class Memories:
    """Contents of memories by name and core (or SHARED); `stored` are the boxes of values that the main memory holds.
    `phase` numbers events; events with the same number happen at the same time."""

    layout: Layout
    graph: Graph
    chip: Chip
    contents: dict[tuple[str, int], Contents] = field(default_factory=dict)
    stored: dict[str, list[Box]] = field(default_factory=dict)
    phase: int = 0
    bounds: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def require(self, who: str, core: int, name: str, place: Place, read: Box) -> Written | None:
        """Require that all of `read` lies at a place. Raises PlanError saying what is there instead."""
        if not holds(place.box, read):
            raise self.lacks(who, core, name, place, read, f"{box_text(place.box)} there")
        if not box_size(read):
            return None
        memory = self._memory(core, place.memory)
        source, box, wanted = name, place.box, read
        while True:
            item_bytes = self.graph.by_name[source].item_bytes
            run = memory.find(source, box, place.offset_bytes, item_bytes)
            if run is not None:
                if not (wanted in run.filled or covered(wanted, run.filled)):
                    has = ", ".join(map(box_text, run.filled)) or "none of it"
                    raise self.lacks(who, core, name, place, read, f"{has} written there")
                return run
            op = self.graph.producer.get(source)
            if op is None or not op.is_view:
                break
            box, wanted = (input_boxes(self.graph, op, {source: named})[op.inputs[0]] for named in (box, wanted))
            source = op.inputs[0]
        over = memory.lost.get(name) or memory.lost.get(source)
        raise self.lacks(who, core, name, place, read, f"{over} on its bytes" if over else "nothing written there")

    def run_at(self, core: int, name: str, place: Place) -> Written | None:
        """The data put at a place of a value, under the value's own name; None where nothing of it lies there."""
        item_bytes = self.graph.by_name[name].item_bytes
        return self._memory(core, place.memory).find(name, place.box, place.offset_bytes, item_bytes)

    def require_whole(self, who: str, name: str, place: Place) -> None:
        """Require the whole value in the main memory, where a place always stands for a whole value at an unknown
        address. Raises PlanError."""
        if place.offset_bytes or place.box != full_box(self.graph.by_name[name].shape):
            raise self.lacks(
                who, SHARED, name, place, full_box(self.graph.by_name[name].shape), "a part of it or an offset"
            )

    def is_stored(self, name: str, box: Box) -> bool:
        """Whether the main memory holds a box of a value, or of the source of a view."""
        while not covered(box, self.stored.get(name, ())):
            op = self.graph.producer.get(name)
            if op is None or not op.is_view:
                return False
            name, box = op.inputs[0], input_boxes(self.graph, op, {name: box})[op.inputs[0]]
        return True

    def write(self, core: int, name: str, place: Place, filled: tuple[Box, ...], writer: str) -> None:
        """Write boxes of a value to a place, in which nothing else may be at the time. Raises PlanError."""
        size = box_size(place.box) * self.graph.by_name[name].item_bytes
        part = self.layout.local.part if place.memory == self.layout.local.memory else ""
        low, high, unit = self.bounds_of(place.memory, part)
        what = f"{box_text(place.box)} of {name} at {place.memory}@{place.offset_bytes}+{size}"
        if place.offset_bytes < low or place.offset_bytes + size > high:
            self.require_inside(writer, what, (place.offset_bytes, size), (low, high))
        if place.offset_bytes % unit:
            raise PlanError(f"layout of {writer}", needs=f"an offset that is a multiple of {unit}", has=what)
        written = Written(place.offset_bytes, place.offset_bytes + size, name, place.box, filled, writer, self.phase)
        self.put(core, place.memory, written)

    def put(self, core: int, memory: str, written: Written) -> None:
        """Mark bytes as used. Raises PlanError where something else uses some of them at the same time."""
        if clash := self._memory(core, memory).write(written):
            raise PlanError(
                f"layout of {where(written.writer, core)}",
                needs=f"bytes of its own at {memory}@{written.low}+{written.high - written.low}",
                has=f"{clash.writer} at {memory}@{clash.low}+{clash.high - clash.low} at the same time",
            )

    def _memory(self, core: int, memory: str) -> Contents:
        key = (memory, core)
        found = self.contents.get(key)
        if found is None:
            found = self.contents[key] = Contents()
        return found

    def bounds_of(self, memory: str, part: str) -> tuple[int, int, int]:
        """First byte of a part of a memory, one past its last byte, and the alignment of offsets."""
        key = f"{memory}/{part}"
        if key not in self.bounds:
            start = part_start(self.chip, memory, part)
            end = start + part_bytes(self.chip, memory, part)
            self.bounds[key] = start, end, self.chip.memory(memory).alignment_bytes
        return self.bounds[key]

    def require_inside(self, who: str, what: str, run: tuple[int, int], bounds: tuple[int, int]) -> None:
        """Require that a run (offset, bytes) lies inside bounds (first byte, one past the last byte). Raises
        PlanError."""
        if run[0] < bounds[0] or run[0] + run[1] > bounds[1]:
            raise PlanError(f"layout of {who}", needs=f"bytes {bounds[0]} to {bounds[1]}", has=what)

    def lacks(self, who: str, core: int, name: str, place: Place, read: Box, has: str) -> PlanError:
        """The error for a place that holds something else than the needed data."""
        return PlanError(where(who, core), needs=f"{box_text(read)} of {name} at {self.said(name, place)}", has=has)

    def said(self, name: str, place: Place) -> str:
        """`memory@offset+bytes`."""
        size = box_size(place.box) * self.graph.by_name[name].item_bytes
        return f"{place.memory}@{place.offset_bytes}+{size}"


def where(who: str, core: int) -> str:
    """Subject of a message, with the core."""
    return who if core == SHARED else f"{who}, core {core}"
