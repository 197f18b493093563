"""Cost of a halo: computing it twice, or cutting the group where it arises.

    layers | value | layers, cut in instances  -->  cycles of recompute, of a cut, and the cheaper one

Pieces of a group read beyond their borders wherever windows overlap, and the layers before compute the overlap once for
each piece. Batch axes have no halo. Every number here is the time of a cluster's cores together, from `hw_models.cost`,
nothing overlapped: good for choosing, not a prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, prod

from hw_models.chip import Chip
from hw_models.cost import matrix_cycles, transfer_cycles, vector_cycles
from hw_models.errors import size_text
from hw_models.parts import VectorEngine
from hw_models.routes import route
from partitioner.context.plan_context import PlanContext
from partitioner.footprint.footprint import Footprint, Footprints, Pieces, cut_pieces, recomputed_elements, totals
from partitioner.fusion.grouping import Allowed, BestSplit
from partitioner.ir.graph import channel_axis, multiplied_dtype
from partitioner.ir.layers import Layer


@dataclass(frozen=True, slots=True)
class HaloCost:
    """Costs in cycles of the two ways to bring `tensor`, made inside a group, to instances that overlap in it. None can
    fetch its halo from another, as they run one after the other.

    `recomputed_macs` is the work that the layers before it do more than once because others follow them in the group;
    `cut_bytes` are the data that leave the cores and come back.
    """

    tensor: str
    pieces: int
    recomputed_macs: int
    cut_bytes: int
    recompute_cycles: float
    cut_cycles: float

    @property
    def is_cut(self) -> bool:
        """Whether a cut takes fewer cycles."""
        return self.cut_cycles < self.recompute_cycles

    def __str__(self) -> str:
        return (
            f"halo of {self.tensor} in {self.pieces} pieces: computing {self.recomputed_macs:,} MACs twice takes about "
            f"{self.recompute_cycles:.0f} cycles, moving {size_text(self.cut_bytes)} off the cores "
            f"and back {self.cut_cycles:.0f}"
        )


def halo_cost(ctx: PlanContext, layers: tuple[Layer, ...], tensor: str, axis: int, pieces: int) -> HaloCost:
    """The cost at `tensor`, the output of one of `layers`, when the group's output is cut in `pieces` along `axis`.
    Raises ChipError when the chip lacks a link to the cores' memory."""
    footprints, chip, local, where = ctx.footprints, ctx.chip, ctx.roles.local.memory, ctx.roles.staging
    footprint = footprints.along(layers, axis)
    cut = cut_pieces(footprint.extent, (pieces,))
    before = _producers(footprints, layers, tensor)
    value = footprint.value(tensor)
    # Work that the layers before would repeat anyway, as a group of their own in equally many pieces.
    alone = footprints.along(before, value.reach.axis)
    extra = _extra_elements(footprint, cut, alone, cut_pieces(alone.extent, (pieces,)))
    macs, engine_cycles = _recompute(footprints, before, dict(footprint.macs), extra, chip)
    reread = sum(extra[v.tensor] * v.item_bytes for v in alone.values if v.external)
    size_bytes = prod(high - low for low, high in value.box) * value.item_bytes
    moved_bytes = int(totals(value.piece_bytes(cut), cut)[0])  # each piece reads its halo again
    off = where if size_bytes <= chip.memory(where).size_bytes else ctx.roles.main
    return HaloCost(
        tensor,
        pieces,
        macs,
        size_bytes + moved_bytes,
        engine_cycles + _moved(chip, where, local, reread),
        _moved(chip, local, off, size_bytes) + _moved(chip, off, local, moved_bytes),
    )


def halo_veto(ctx: PlanContext, best_split: BestSplit) -> Allowed:
    """A veto for `group_layers_into_subgraphs`: it refuses a merge if a cut at some value, which alone connects the
    layers before it with those after it, costs less than the work that instances would repeat."""

    footprints = ctx.footprints

    def allowed(layers: tuple[Layer, ...]) -> str | None:
        splitting = best_split(layers)
        if splitting is None or splitting.instances == 1:
            return None
        for axis, count in splitting.factors:
            if count == 1 or footprints.along(layers, axis).is_linear:
                continue
            for tensor in footprints.waists(layers):
                cost = halo_cost(ctx, layers, tensor, axis, count)
                if cost.recomputed_macs > 0 and cost.is_cut:
                    return str(cost)
        return None

    return allowed


def _producers(footprints: Footprints, layers: tuple[Layer, ...], tensor: str) -> tuple[Layer, ...]:
    """The layers of the group that `tensor` needs, its own included."""
    needed = {tensor}
    for layer in reversed(layers):
        if layer.output in needed:
            needed.update(layer.inputs(footprints.graph))
    return tuple(layer for layer in layers if layer.output in needed)


def _extra_elements(footprint: Footprint, cut: Pieces, alone: Footprint, alone_cut: Pieces) -> dict[str, int]:
    """Elements of each value of `alone` that pieces compute or read more than once only because more layers follow."""
    return {
        value.tensor: max(
            0,
            int(recomputed_elements(footprint.value(value.tensor), cut)[0])
            - int(recomputed_elements(value, alone_cut)[0]),
        )
        for value in alone.values
    }


def _recompute(
    footprints: Footprints, before: tuple[Layer, ...], macs: dict[str, int], extra: dict[str, int], chip: Chip
) -> tuple[int, float]:
    """MACs for `extra` elements of the outputs of `before`, and the engines' cycles for them with all cores at work."""
    cores = chip.cores_per_cluster
    has_vector = any(isinstance(engine, VectorEngine) for engine in chip.engines)
    total, cycles = 0, 0.0
    for layer in before:
        elements = extra[layer.output]
        if elements == 0 or layer.is_view(footprints.graph):
            continue
        tensor = footprints.graph.by_name[layer.output]
        each = macs.get(layer.name, 0)
        if each:
            anchor = layer.anchor(footprints.graph)
            channels, dtype = (
                tensor.shape[channel_axis(tensor, anchor.kind)],
                multiplied_dtype(footprints.graph, anchor),
            )
            cycles += matrix_cycles(chip, ceil(elements / channels / cores), channels, each, dtype)
        passes = len(layer.ops) - bool(each) if has_vector else 0  # else what follows is done while data move
        cycles += vector_cycles(chip, ceil(elements / cores), tensor.dtype, passes) if passes else 0.0
        total += elements * each
    return total, cycles


def _moved(chip: Chip, source: str, destination: str, size_bytes: int) -> float:
    """Cycles when all cores of a cluster move their shares at the same time, link by link."""
    if size_bytes <= 0:
        return 0.0
    way = route(chip, source, destination)
    cycles = 0.0
    for here, there in pairwise(way):
        sharers = chip.cores_per_cluster if "core" in (chip.memory(here).scope, chip.memory(there).scope) else 1
        cycles += transfer_cycles(chip, here, there, ceil(size_bytes / sharers), sharers=sharers)
    return cycles
