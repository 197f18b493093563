"""Instructions of tiles, made once for all that are alike: cores and tiles often differ only by the images they take.

    layer, box --moved to the first image--> work, places of buffers --target, once--> instructions of each pass

`partitioner.context.image_independence` says when tiles are alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from isched.program.program import Instr
from isched.program.target import LowerTarget
from partitioner.context.plan_context import Context
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box

LowerContext: TypeAlias = Context[LowerTarget]
"""The input of lowering: a context whose target makes instructions."""

Code = tuple[tuple[Instr, ...], ...]
"""Instructions of each pass of a tile."""

_Places = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """The instructions of tiles in one compilation, by layer, box, and offsets and pitches of their buffers."""

    codes: dict[tuple[Layer, Box, _Places, _Places], Code] = field(default_factory=dict)


def tile_code(
    ctx: LowerContext, layer: Layer, box: Box, offsets_bytes: Mapping[str, int], pitches_bytes: Mapping[str, int]
) -> Code:
    """Instructions of the target for a box of a layer's output whose buffers lie at these offsets of their memories,
    with rows at these pitches (dense where not named)."""
    first = ctx.at_first_image(layer, box)
    key = (layer, first, tuple(offsets_bytes.items()), tuple(pitches_bytes.items()))
    known = ctx.memo(_Known).codes
    found = known.get(key)
    if found is None:
        work = ctx.work(layer, first)
        found = known[key] = ctx.target.lower(
            ctx.graph, ctx.constants, layer, first, work, offsets_bytes, ctx.chip, pitches_bytes
        )
    return found
