"""Parts of a layer's data that lie in a core's local memory already, and what a tile needs in addition.

    tile's buffers + tensors that stay local --> aliases (a buffer is a part of such a tensor) + buffers that need room

A buffer is an alias where the box that the tile needs is one run of bytes of the resident tensor, or rows at a constant
pitch if the template takes a pitch. Otherwise it gets a place of its own and the data are moved inside the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from hw_models.chip import Chip
from partitioner.context.plan_context import PlanContext
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size
from partitioner.ir.target import TileBuffer, TileLoad, TileWork

FreeRegions = Mapping[tuple[str, str], tuple[int, int]]
"""(memory, physical part) -> (offset, bytes) of the region where tile buffers may lie; default: the whole part."""


@dataclass(frozen=True, slots=True)
class Residents:
    """`boxes` of values in the local memory of the core, the layer's output among them where it stays there; `part` is
    the physical part that they lie in."""

    boxes: Mapping[str, Box] = field(default_factory=dict)
    part: str = ""


NOTHING = Residents()


@dataclass(frozen=True, slots=True)
class Alias:
    """A buffer that is a part of a resident tensor, `offset_items` from its start; `pitch_items` from row to row, 0
    where it is dense."""

    tensor: str
    offset_items: int
    pitch_items: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """Use of resident data by a tile: `aliases` by buffer, `spare` buffers that need room, `moves` loads that are moved
    from a resident tensor into a spare buffer; `scatters` is True when the output is moved into its resident tensor."""

    aliases: Mapping[str, Alias]
    spare: tuple[TileBuffer, ...]
    moves: tuple[TileLoad, ...]
    scatters: bool


def run_offset(whole: Box, part: Box) -> int | None:
    """Start of `part` in a dense row-major array over `whole`, in elements, if it is one run of it."""
    if whole == part:
        return 0
    offset, ragged = 0, False
    for (low, high), (start, end) in zip(part, whole, strict=True):
        if ragged and (low, high) != (start, end):
            return None
        ragged = ragged or high - low > 1
        offset = offset * (end - start) + low - start
    return offset


def rows_offset(whole: Box, part: Box) -> tuple[int, int] | None:
    """(offset, pitch) in elements of `part` as rows of its last axis inside a dense array over `whole`, if its rows lie
    at one pitch: the part would be one run except for the last axis."""
    if not part:
        return None
    outer = run_offset(whole[:-1], part[:-1])
    if outer is None or part[-1][0] < whole[-1][0] or part[-1][1] > whole[-1][1]:
        return None
    pitch = whole[-1][1] - whole[-1][0]
    return outer * pitch + part[-1][0] - whole[-1][0], pitch


def fit(ctx: PlanContext, layer: Layer, tile: Box, work: TileWork, residents: Residents) -> Fit:
    """The buffers of a tile's `work` that are parts of resident tensors, and those that need room."""
    if not residents.boxes:
        return Fit({}, work.buffers, (), False)
    loads: dict[str, list[TileLoad]] = {}
    for step in work.passes:
        for load in step.loads:
            loads.setdefault(load.buffer, []).append(load)
    aliases: dict[str, Alias] = {}
    spare: list[TileBuffer] = []
    moves: list[TileLoad] = []
    scatters = False
    for buffer in work.buffers:
        wanted = loads.get(buffer.name, [])
        if buffer.name == work.output and not wanted:
            wanted = [TileLoad(layer.output, tile, buffer.name)]
        held = [load for load in wanted if load.tensor in residents.boxes]
        alias = _alias(ctx, buffer, held, residents) if held and len(held) == len(wanted) else None
        if alias is not None:
            aliases[buffer.name] = alias
            continue
        spare.append(buffer)
        if buffer.name == work.output and layer.output in residents.boxes:
            scatters = True
        elif held:
            moves += held
    return Fit(aliases, tuple(spare), tuple(moves), scatters)


def _alias(ctx: PlanContext, buffer: TileBuffer, loads: list[TileLoad], residents: Residents) -> Alias | None:
    load = loads[0]
    if any(other != load for other in loads[1:]) or not _same_part(ctx.chip, buffer, residents.part):
        return None
    whole = residents.boxes[load.tensor]
    size_bytes = box_size(load.box) * ctx.graph.by_name[load.tensor].item_bytes
    if buffer.size_bytes != size_bytes:
        return None
    offset = run_offset(whole, load.box)
    if offset is not None:
        return Alias(load.tensor, offset)
    rows = rows_offset(whole, load.box) if buffer.strided else None
    if rows is None:
        return None
    return Alias(load.tensor, rows[0], rows[1] if prod(box_shape(load.box)[:-1]) > 1 else 0)


def _same_part(chip: Chip, buffer: TileBuffer, part: str) -> bool:
    memory = chip.memory(buffer.memory)
    return not (memory.buffers and memory.buffers_enforced) or buffer.part == part
