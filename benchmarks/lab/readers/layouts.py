"""Layouts from their text form (`str(layout)`), which may come from strangers: bounded, and refused by line.

    step, layer, here, round, ... lines --parse_layout--> Layout

Sizes in the text must be those that follow from boxes. Whether a layout makes sense is for
`partitioner.verification.verify_layout` to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from partitioner.context.memory_roles import Local
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size
from partitioner.ir.text import Fields, Json, TextError, as_int, as_ints, as_list, as_names, parse_lines
from partitioner.memory.memory_plan_types import LayerLayout, Layout, LayoutOptions, MoveLayout, Place, Store
from partitioner.tiling.staging_rounds import Round, Staged, StagingRound

__all__ = ["parse_layout"]

MOST_DIGITS = 18
"""Of a number in a place or box: below 2^63, and quickly read."""

MOST_RANK = 64
"""Axes of a box."""

PLACE = re.compile(r"(?P<memory>.*)@(?P<offset>[0-9]+)\+(?P<bytes>[0-9]+) (?P<box>\[.*\])", re.DOTALL)
STAGED = re.compile(r"\+(?P<offset>[0-9]+)\+(?P<bytes>[0-9]+) (?P<box>\[.*\])")


@dataclass(slots=True)
class _Block:
    """A step while its lines are read: those of the step itself, and of its layers each with its own."""

    number: int
    tag: str
    fields: Fields
    lines: list[tuple[int, str, Fields]] = field(default_factory=list)
    layers: list[_Block] = field(default_factory=list)


@dataclass(slots=True)
class _Header:
    """What stands before the steps."""

    fields: Fields | None = None
    main: frozenset[str] = frozenset()
    peaks: dict[str, int] = field(default_factory=dict)
    pinned: dict[str, tuple[Place, int]] = field(default_factory=dict)
    item_bytes: dict[str, int] = field(default_factory=dict)


def parse_layout(text: str) -> Layout:
    """The converse of `str(layout)`. Raises TextError naming the line. (A ValueError in a line becomes one.)"""
    header = _Header()
    blocks: list[_Block] = []
    for number, tag, fields in parse_lines(text):
        with _Reading(number, tag):
            match tag:
                case "layout" | "elements" | "main" | "peak" | "pinned":
                    _read_header(header, tag, fields)
                case "step" | "move":
                    if as_int(fields["number"]) != len(blocks):
                        raise ValueError(f"number {fields['number']} of step {len(blocks)}")
                    blocks.append(_Block(number, tag, fields))
                case "layer":
                    blocks[-1].layers.append(_Block(number, tag, fields))
                case "from" | "to":
                    blocks[-1].lines.append((number, tag, fields))
                case "here" | "source" | "destination" | "exchange" | "store" | "round":
                    blocks[-1].layers[-1].lines.append((number, tag, fields))
                case _:
                    raise TextError(who=f"line {number}", needs="layout, a step, a layer or a line of these", has=tag)
    if header.fields is None:
        raise TextError(who="text", needs="a layout line", has="none")
    with _Reading(1, "layout"):
        fields = header.fields
        options = LayoutOptions(
            _flag(fields["rounds_ahead"]),
            _flag(fields["buffers_apart"]),
            as_names(fields["in_main"]),
            _flag(fields.get("constants_ahead", False)),
        )
        local = Local(str(fields["local"]), str(fields["part"]))
        staging = str(fields["staging"])
    steps = tuple(_step(header, block) for block in blocks)
    return Layout(steps, header.main, header.pinned, local, staging, header.peaks, header.item_bytes, options)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Turns what a damaged line raises into a TextError that names it."""

    number: int
    tag: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, KeyError | IndexError | TypeError | ValueError) and not isinstance(error, TextError):
            raise TextError(who=f"line {self.number}", needs=f"a complete {self.tag} line", has=repr(error)) from error


def _read_header(header: _Header, tag: str, fields: Fields) -> None:
    match tag:
        case "layout":
            header.fields = fields
        case "elements":
            header.item_bytes.update(dict.fromkeys(as_names(fields["tensors"]), as_int(fields["bytes"])))
        case "main":
            header.main = frozenset(as_names(fields["tensors"]))
        case "peak":
            header.peaks[str(fields["memory"])] = as_int(fields["bytes"])
        case "pinned":
            name = str(fields["tensor"])
            header.pinned[name] = _read_place(header, name, fields["place"]), as_int(fields["slot"])


def _step(header: _Header, block: _Block) -> tuple[LayerLayout, ...] | MoveLayout:
    with _Reading(block.number, block.tag):
        if block.tag == "move":
            return _move(header, block)
        if not block.layers:
            return ()
        group, instance = str(block.fields["group"]), as_int(block.fields["instance"])
    return tuple(_layer(header, layer, group, instance) for layer in block.layers)


def _move(header: _Header, block: _Block) -> MoveLayout:
    fields, name = block.fields, str(block.fields["tensor"])
    targets: list[tuple[int, Place]] = []
    sources: list[tuple[int, Place, Box]] = []
    for number, tag, line in block.lines:
        with _Reading(number, tag):
            core, place = as_int(line["core"]), _read_place(header, name, line["place"])
            if tag == "to":
                targets.append((core, place))
            else:
                sources.append((core, place, _read_box(line["owned"])))
    buffer = _read_place(header, name, fields["buffer"]) if "buffer" in fields else None
    return MoveLayout(str(fields["group"]), as_int(fields["instance"]), name, tuple(targets), tuple(sources), buffer)


def _layer(header: _Header, block: _Block, group: str, instance: int) -> LayerLayout:
    with _Reading(block.number, block.tag):
        fields = block.fields
        layer = Layer(str(fields["name"]), as_names(fields["ops"]), str(fields["output"]))
        cores = as_ints(fields["cores"])
        slot, boxes = as_int(fields["slot"]), _read_boxes(fields["boxes"])
        free_regions = {(str(memory), str(part)): _read_span(span)
                for memory, part, span in map(as_list, as_list(fields["room"]))}  # fmt: skip
        staging = _read_span(fields["staging"])
    here: dict[int, dict[str, Place]] = {core: {} for core in cores}
    sources: dict[str, tuple[Place, ...]] = {}
    single: dict[str, Place] = {}
    stores: list[Store] = []
    rounds: list[tuple[Round, StagingRound]] = []
    for number, tag, line in block.lines:
        with _Reading(number, tag):
            match tag:
                case "here":
                    name = str(line["tensor"])
                    here[as_int(line["core"])][name] = _read_place(header, name, line["place"])
                case "source":
                    name = str(line["tensor"])
                    sources[name] = tuple(_read_place(header, name, place) for place in as_list(line["places"]))
                case "store":
                    stores.append(_read_store(header, line))
                case "round":
                    rounds.append(_read_round(header, line))
                case _:
                    single[tag] = _read_place(header, layer.output, line["place"])
    return LayerLayout(
        group, instance, cores, layer, slot, boxes, tuple(here[core] for core in cores), sources,
        single.get("destination"), single.get("exchange"), tuple(stores), free_regions, staging, tuple(rounds),
    )  # fmt: skip


def _read_store(header: _Header, line: Fields) -> Store:
    name = str(line["tensor"])
    buffer = _read_place(header, name, line["buffer"]) if "buffer" in line else None
    return Store(name, _read_boxes(line["owned"]), _read_place(header, name, line["destination"]), buffer)


def _read_round(header: _Header, line: Fields) -> tuple[Round, StagingRound]:
    this_round = Round(_read_boxes(line["boxes"]), _read_box(line["whole"]) if "whole" in line else None)
    inputs, outputs = (tuple(_read_staged(header, item) for item in as_list(line[key])) for key in ("in", "out"))
    return this_round, StagingRound(inputs, outputs, as_int(line["loaded_bytes"]), as_int(line["size_bytes"]))


def _read_staged(header: _Header, item: Json) -> Staged:
    name, place = as_names(item)
    found = _matched(STAGED, place)
    box = _read_box(found["box"])
    _require_size(header, name, box, found["bytes"])
    return Staged(name, box, _number(found["offset"]))


def _read_place(header: _Header, tensor: str, value: Json) -> Place:
    found = _matched(PLACE, value)
    box = _read_box(found["box"])
    _require_size(header, tensor, box, found["bytes"])
    return Place(found["memory"], _number(found["offset"]), box)


def _require_size(header: _Header, tensor: str, box: Box, size_bytes: str) -> None:
    needed = box_size(box) * header.item_bytes[tensor]
    if _number(size_bytes) != needed:
        raise ValueError(f"{size_bytes} bytes for {box} of {tensor}, which takes {needed}")


def _matched(pattern: re.Pattern[str], value: Json) -> Mapping[str, str]:
    found = pattern.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"no place: {str(value)[:60]!r}")
    return found.groupdict()


def _read_span(value: Json) -> tuple[int, int]:
    offset, _, size = str(value).partition("+")
    return _number(offset), _number(size)


def _read_boxes(value: Json) -> tuple[Box, ...]:
    return tuple(_read_box(item) for item in as_list(value))


def _read_box(value: Json) -> Box:
    text = str(value)
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError(f"no box: {text[:60]!r}")
    if text == "[]":
        return ()
    intervals = text[1:-1].split(", ", MOST_RANK)
    if len(intervals) > MOST_RANK:
        raise ValueError(f"a box of more than {MOST_RANK} axes")
    return tuple(_interval(interval) for interval in intervals)


def _interval(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    interval = _number(low), _number(high)
    if interval[0] > interval[1]:
        raise ValueError(f"an interval that ends before it begins: {text[:60]!r}")
    return interval


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise ValueError(f"no number of at most {MOST_DIGITS} digits: {text[:60]!r}")
    return int(text)


def _flag(value: Json) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"true or false, not {value!r}")
    return value
