"""Boxes of each core for one instance: backward from the instance's output through its layers.

    box of the output --binding--> a piece per core --reads, layer by layer, backward--> boxes of all values needed

A layer computes on each core all that the core's later layers read, so neighbours overlap (a halo, computed twice);
where the group names an exchange, the cores compute disjoint pieces instead and fetch the rest from each other. Where a
kernel computes whole lines only (a softmax along its axis), a core that needs a part of them computes all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hw_models.errors import PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group
from partitioner.ir.regions import Box, box_size, full_box, join
from partitioner.ir.steps import RunStep
from partitioner.tiling.core_partition import cut_granularity, piece_boxes


@dataclass(frozen=True, slots=True)
class CoreBoxes:
    """Boxes of one core: `computed`, the box of each layer's output that it computes; `needed`, the box of each value
    that its layers read, including those from outside; `owned`, the part of each output of the group that it gives
    away."""

    computed: Mapping[str, Box]
    needed: Mapping[str, Box]
    owned: Mapping[str, Box]


@dataclass(frozen=True, slots=True)
class _Units:
    """By layer, the units in which a box of its output begins and ends along each axis, 0 for whole lines; () where any
    box can be computed."""

    of_layers: dict[Layer, tuple[int, ...]] = field(default_factory=dict)


def whole_lines(ctx: PlanContext, layer: Layer, box: Box) -> Box:
    """The smallest box that the layer's kernel can compute and that holds `box` of its output: whole lines along some
    axes, whole units of the target's granularity along others."""
    known = ctx.memo(_Units).of_layers
    if layer not in known:
        known[layer] = _units(ctx, layer)
    units = known[layer]
    if not units or box_size(box) == 0:
        return box
    return tuple(
        (low - low % unit, min(extent, -(-high // unit) * unit)) if unit else (0, extent)
        for (low, high), unit, extent in zip(box, units, ctx.graph.by_name[layer.output].shape, strict=True)
    )


def _units(ctx: PlanContext, layer: Layer) -> tuple[int, ...]:
    if layer.is_view(ctx.graph):
        return ()
    whole = ctx.target.whole_axes(ctx.graph, layer)
    granularity = ctx.target.granularity(ctx.graph, layer)
    units = tuple(0 if axis in whole else max(1, unit) for axis, unit in enumerate(granularity))
    return units if set(units) - {1} else ()


def instance_box(graph: Graph, group: Group, tensor: str, instance: int) -> Box:
    """The part of an output of the group that an instance gives away: it is cut in proportion to the cuts of the
    group's own output. Raises PlanError for an output that has no such axis."""
    shape, own = graph.by_name[tensor].shape, graph.by_name[group.output].shape
    box = list(full_box(shape))
    for axis, points in reversed(group.split.cuts):
        count = len(points) - 1
        instance, position = divmod(instance, count)
        same = len(shape) == len(own) or (axis == 0 and shape[0] == own[0])
        if not same:
            raise PlanError(
                f"group {group.name}", needs=f"an axis {axis} of {tensor} to cut along", has=f"shape {list(shape)}"
            )
        low, high = (points[i] * shape[axis] // own[axis] for i in (position, position + 1))
        box[axis] = (low, high)
    return tuple(box)


def core_boxes(ctx: PlanContext, group: Group, step: RunStep) -> tuple[CoreBoxes, ...]:
    """Boxes for each core of the step's binding, in its order."""
    graph = ctx.graph
    cores = len(step.binding.cores)
    layer_of = {layer.output: layer for layer in group.layers}
    owned: list[dict[str, Box]] = [{} for _ in range(cores)]
    for name in group.outputs(graph):
        box = step.box if name == group.output else instance_box(graph, group, name, step.instance)
        pieces = step.binding.pieces if len(step.binding.pieces) == len(box) else (step.binding.pieces[0],)
        pieces = (*pieces, *(1,) * (len(box) - len(pieces)))
        for core, piece in zip(range(cores), _pieces(ctx, layer_of[name], box, pieces), strict=False):
            owned[core][name] = piece
    exchanged = {exchange.tensor: exchange.pieces for exchange in group.exchanges_of(step.instance)}
    needed: list[dict[str, Box]] = [{} for _ in range(cores)]
    computed: list[dict[str, Box]] = [{} for _ in range(cores)]
    for layer in reversed(group.layers):
        name = layer.output
        empty = tuple((0, 0) for _ in graph.by_name[name].shape)
        wanted = [
            whole_lines(ctx, layer, _both(needed[c].get(name, empty), owned[c].get(name, empty))) for c in range(cores)
        ]
        if name in exchanged:
            union = empty
            for box in wanted:
                union = _both(union, box)
            pieces_of = _pieces(ctx, layer, union, exchanged[name])
            wanted = [pieces_of[c] if c < len(pieces_of) else empty for c in range(cores)]
        for c, box in enumerate(wanted):
            if box_size(box) == 0:
                continue
            computed[c][name] = box
            for tensor, read in ctx.reads(layer, box).items():
                if box_size(read) and not graph.by_name[tensor].constant:
                    needed[c][tensor] = _both(needed[c][tensor], read) if tensor in needed[c] else read
    return tuple(CoreBoxes(*boxes) for boxes in zip(computed, needed, owned, strict=True))


def _pieces(ctx: PlanContext, layer: Layer, box: Box, pieces: tuple[int, ...]) -> tuple[Box, ...]:
    if layer.is_view(ctx.graph):
        return piece_boxes(box, pieces, (1,) * len(box))
    return piece_boxes(box, pieces, cut_granularity(ctx, layer, box))


def _both(a: Box, b: Box) -> Box:
    return a if a == b else join(a, b)
