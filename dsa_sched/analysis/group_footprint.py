"""The memory that one instance of a group needs, in closed form: why the group is cut into as many pieces as it is.

    group cut along one axis --footprint--> worst step, values held there --sympy--> bytes as a function of f and k

f is the number of pieces, k the number of a piece, from 0. Counted are the values of all cores together, as
`partitioner.footprint` counts them: without constants, tile buffers, and elements that several cores hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import sympy

from hw_models.memory_parts import part_bytes
from partitioner.context.plan_context import PlanContext
from partitioner.footprint.footprint import Footprint, cut_pieces
from partitioner.footprint.footprint_symbolic import (
    ClosedForm,
    closed_forms,
    input_bytes,
    recomputed_macs,
    value_at,
)
from partitioner.ir.plan import Group
from partitioner.tiling.core_partition import cut_axis


@dataclass(frozen=True, slots=True)
class HeldValue:
    """Values that share one place, and the bytes that piece k of f needs there."""

    tensors: tuple[str, ...]
    bytes_formula: str


@dataclass(frozen=True, slots=True)
class WorstStep:
    """The step of the piece that holds the most: `step` is an index into the ordered layers of the footprint."""

    pieces: int
    piece: int
    step: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class GroupFootprint:
    """Memory that the pieces of a group hold, and the cost of more pieces.

    `worst` is for the number of pieces that the plan has, `coarser` for one piece fewer; `layer` runs at the step of
    `worst`, where `held` are the values in memory. `room_bytes` is the local memory of all cores. `input_formula` is
    the number of bytes that all pieces read together; `again_formulas` has the multiply-accumulates that layers repeat,
    by layer.
    """

    axis: int
    layer: str
    held: tuple[HeldValue, ...]
    worst: WorstStep
    coarser: WorstStep
    room_bytes: int
    input_formula: str
    again_formulas: Mapping[str, str]


def group_footprint(group: Group, ctx: PlanContext) -> GroupFootprint | None:
    """The footprint of a group with one output that is cut along one axis into nearly equal pieces, else None."""
    cuts = [(axis, points) for axis, points in group.split.cuts if len(points) > 2]
    if len(cuts) != 1 or len(group.outputs(ctx.graph)) != 1 or not ctx.roles.local.memory:
        return None
    ((axis, points),) = cuts
    footprint, pieces = ctx.footprints.along(group.layers, axis), len(points) - 1
    granule = ctx.target.granularity(ctx.graph, group.layers[-1])[axis]
    if cut_axis(0, footprint.extent, pieces, granule) != tuple(pairwise(points)):
        return None
    forms = closed_forms(footprint, granule)
    worst = worst_step(footprint, pieces, granule)
    held = held_values(footprint, forms, worst.step)
    return GroupFootprint(
        axis=axis,
        layer=ctx.footprints.ordered(group.layers)[worst.step].name,
        held=tuple(HeldValue(tensors, str(formula)) for tensors, formula in held.items()),
        worst=worst,
        coarser=worst_step(footprint, pieces - 1, granule),
        room_bytes=part_bytes(ctx.chip, *ctx.roles.local) * ctx.chip.cores_per_cluster,
        input_formula=_text(input_bytes(forms), pieces),
        again_formulas={layer: _text(macs, pieces) for layer, macs in recomputed_macs(footprint, forms).items()},
    )


def worst_step(footprint: Footprint, count: int, granule: int) -> WorstStep:
    """The first step and piece that hold the most bytes when the axis is cut into `count` pieces."""
    cut = cut_pieces(footprint.extent, (count,), granule)
    sizes = {value.tensor: value.piece_bytes(cut) for value in footprint.values}
    held = []
    for step in range(len(footprint.layers)):
        shared = [[sizes[name] for name in place.tensors] for place in footprint.places_at(step)]
        of_piece = np.sum([np.max(place, axis=0) for place in shared], axis=0)
        piece = int(np.argmax(of_piece))
        held.append(WorstStep(count, piece, step, int(of_piece[piece])))
    return max(held, key=lambda found: found.held_bytes)


def held_values(footprint: Footprint, forms: tuple[ClosedForm, ...], step: int) -> dict[tuple[str, ...], sympy.Expr]:
    """The values that share a place at a step, and the bytes of the place; the largest of them counts."""
    by_tensor = {form.tensor: form.piece_bytes for form in forms}
    return {
        place.tensors: sympy.Max(*(by_tensor[name] for name in place.tensors), evaluate=len(place.tensors) == 1)
        for place in footprint.places_at(step)
    }


def _text(total: sympy.Expr, pieces: int) -> str:
    """The formula and its value; the value alone where it is constant or a sum over pieces, which has no short form."""
    value = f"{value_at(total, pieces):,}"
    return value if total.is_Integer or total.atoms(sympy.Sum) else f"{total} = {value}"
