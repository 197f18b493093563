"""The reach of one layer: access maps as terms, one for each end of what a piece of the layer's output reads.

    layer, axis of its output  -->  for each value read: its matched axis and [low(c), high(c')) along it

Where two axes of a value follow the cut axis, the first one is taken. Axes that run backward (a negative coefficient)
and inner axes of a reshape are read whole: more than what is needed, never less.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from partitioner.footprint.interval_bounds import (
    ClampTerm,
    Guard,
    IntervalSpan,
    Reach,
    after,
    can_be_empty,
    compose,
    constant,
    join_reaches,
    reduced,
    whole_reach,
)
from partitioner.ir.access import Access, Full, Grouped, Index, Linear, Scaled, View, index_axes
from partitioner.ir.graph import Graph, LoopNest, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import matching_runs


def layer_reaches(graph: Graph, layer: Layer, axis: int) -> dict[str, Reach]:
    """The reach of each value that the layer reads, constants excepted, in cut points of `axis` of the layer's
    output."""
    extent = graph.by_name[layer.output].shape[axis]
    ends = IntervalSpan((ClampTerm(low=0, high=extent),), (ClampTerm(low=0, high=extent),))
    reaches: dict[str, Reach] = {layer.output: Reach(axis, (ends,))}
    for name in reversed(layer.ops):
        _through_op(graph, graph.op_by_name[name], reaches, extent)
    return {name: reaches[name] for name in layer.inputs(graph) if name in reaches and not graph.by_name[name].constant}


def _through_op(graph: Graph, op: Op, reaches: dict[str, Reach], extent: int) -> None:
    shapes = {name: graph.by_name[name].shape for name in (*op.inputs, *op.outputs)}
    for stage in op.stages:
        shapes.setdefault(stage.writes.tensor, _written_shape(stage))
    for stage in reversed(op.stages):
        written = reaches.get(stage.writes.tensor)
        if written is None:
            continue
        for access in stage.reads:
            if access.tensor in graph.by_name and graph.by_name[access.tensor].constant:
                continue
            shape = shapes[access.tensor]
            through = _read_reach(stage, access, shape, shapes[stage.writes.tensor], written.axis)
            reach = compose(written, through, extent)
            if access.tensor in reaches:
                reach = join_reaches(reaches[access.tensor], reach, shape, extent)
            reaches[access.tensor] = reach


def _written_shape(stage: LoopNest) -> tuple[int, ...]:
    extents = {axis.name: axis.extent for axis in stage.domain}
    return tuple(
        sum(c * (extents[name] - 1) for name, c in index.terms) + index.constant + 1
        for index in stage.writes.indices
        if isinstance(index, Linear)
    )


def _read_reach(
    stage: LoopNest, access: Access | View, shape: tuple[int, ...], written_shape: tuple[int, ...], axis: int
) -> Reach:
    """The reach of one read of one stage, in cut points of axis `axis` of the tensor that the stage writes."""
    if not shape:
        return Reach(0, (IntervalSpan((constant(0),), (constant(1),)),))
    if not written_shape:  # one number of all, such as the largest of a softmax over the only axis
        return whole_reach(shape[0])
    if isinstance(access, View):
        return _view_reach(shape, written_shape, axis)
    match stage.writes.indices[axis]:
        case Linear(terms=((name, 1),), constant=shift):
            pass
        case _:
            return whole_reach(shape[0])
    ranges = {a.name: a.extent for a in stage.domain}
    inside = ClampTerm(addend=-shift, low=0, high=ranges[name])
    for position, (index, extent) in enumerate(zip(access.indices, shape, strict=True)):
        if name not in index_axes(index):
            continue
        ends = _index_terms(index, name, ranges, extent)
        if ends is None:
            continue
        low, high = (after(term, inside) for term in ends)
        guards: tuple[Guard, ...] = ((IntervalSpan((low,), (high,)),), (IntervalSpan((inside,), (inside,)),))
        guards = tuple(guard for guard in guards if can_be_empty(guard, written_shape[axis]))
        return Reach(position, (IntervalSpan((low,), (high,), guards),))
    return whole_reach(shape[0])


def _index_terms(index: Index, name: str, ranges: dict[str, int], extent: int) -> tuple[ClampTerm, ClampTerm] | None:
    """Both ends of an index expression, clipped at the tensor, where `name` alone is cut; None where it runs backward.

    The second term is in the end of the half-open range: the last point is one less.
    """
    match index:
        case Linear():
            coefficient = sum(c for axis, c in index.terms if axis == name)
            others = [(c, ranges[axis] - 1) for axis, c in index.terms if axis != name]
            low = index.constant + sum(min(0, c * last) for c, last in others)
            high = index.constant + sum(max(0, c * last) for c, last in others) + 1
            if coefficient <= 0:
                return None
            return (
                ClampTerm(coefficient, low, low=0, high=extent),
                ClampTerm(coefficient, high - coefficient, low=0, high=extent),
            )
        case Grouped(axis=axis, per_group=per_group, size=size):
            if axis != name:
                return None
            inner = ranges[index.offset] if index.offset else 1
            low_end, high_end = ClampTerm(1, 0, per_group, size), ClampTerm(1, -1, per_group, size, inner)
            return reduced(replace(low_end, low=0, high=extent)), reduced(replace(high_end, low=0, high=extent))
        case Scaled(numerator=p, denominator=q):
            inside = ClampTerm(low=0, high=extent - 1)
            low_end, high_end = ClampTerm(p, 0, q, 1, index.low), ClampTerm(p, q - 1 - p, q, 1, index.high)
            return after(inside, reduced(low_end)), after(ClampTerm(1, 1), after(inside, reduced(high_end)))
        case Full():
            return None


def _view_reach(shape: tuple[int, ...], written_shape: tuple[int, ...], axis: int) -> Reach:
    """The leading axis of a run of axes that keeps its elements together; inner axes of a run are read whole."""
    for sources, targets in matching_runs(shape, written_shape) or ():
        if axis not in targets:
            continue
        outer = [written_shape[t] for t in targets if t < axis]
        longer = [s for s in sources if shape[s] > 1]
        if not longer or prod(outer) > 1:
            break
        inner_written = prod(written_shape[t] for t in targets if t > axis)
        inner_source = prod(shape[s] for s in sources if s > longer[0])
        extent = shape[longer[0]]
        low = reduced(ClampTerm(inner_written, 0, inner_source, low=0, high=extent))
        high = reduced(ClampTerm(inner_written, -1, inner_source, 1, 1, 0, extent))
        return Reach(longer[0], (IntervalSpan((low,), (high,)),))
    return whole_reach(shape[0])
