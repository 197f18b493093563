"""Lookups without a result in the main memory: rows go from the table directly to the place where a layer reads them.

    layout --who reads what of a lookup's result--> lookups of which each row is read at most once, whole
    box of such a result, staged --runs of rows--> RowRun, RowRun, ...

Any other lookup is done before all layers, and its result is read like an input.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from isched.lowering.strided_copies import box_regions
from isched.program.target import RowRun
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Graph, Op
from partitioner.ir.regions import Box, box_size
from partitioner.memory.memory_plan_types import Layout, MoveLayout, Place


def looked_up_when_read(layout: Layout, ctx: PlanContext) -> Mapping[str, Op]:
    """Lookups, by the names of their results, that layers read only from the main memory into the staging memory, each
    row at most once and whole."""
    graph = ctx.graph
    found = {op.outputs[0]: op for op in graph.prepared if op.kind == "lookup"}
    if not found or not ctx.roles.has_staging:
        return {}
    others = {name for op in (*graph.prepared, *graph.concluded) for name in op.inputs}
    others.update(graph.outputs, graph.results, (name for op in graph.ops if op.is_view for name in op.inputs))
    read: dict[str, list[Box]] = {}
    for step in layout.steps:
        if isinstance(step, MoveLayout):
            others.add(step.tensor)
            continue
        for entry in step:
            staged = [staged for _, stage in entry.rounds for staged in stage.inputs]
            others.update(entry.sources.keys() - {each.tensor for each in staged})
            for each in staged:
                read.setdefault(each.tensor, []).append(each.box)
    return {name: op for name, op in found.items() if name not in others and _rows_once(graph, op, read.get(name, []))}


def row_runs(graph: Graph, op: Op, place: Place) -> tuple[RowRun, ...]:
    """The rows of a lookup's result in the box of a place in the staging memory, which holds them densely."""
    tensor, inner = graph.by_name[op.outputs[0]], _row_axes(graph, op)
    outer = len(tensor.shape) - inner
    row_bytes = prod(tensor.shape[outer:]) * tensor.item_bytes
    runs: list[RowRun] = []
    offset = place.offset_bytes
    for region in box_regions("", 0, tensor.shape[:outer], place.box[:outer], 1):
        for row in range(region.rows):
            runs.append(RowRun(region.offset_bytes + row * region.stride_bytes, region.row_bytes, offset))
            offset += region.row_bytes * row_bytes
    return tuple(runs)


def _row_axes(graph: Graph, op: Op) -> int:
    """Number of last axes of a lookup's result that are a row of its table, one per index; 0 where a row is not made of
    whole axes."""
    shape = graph.by_name[op.outputs[0]].shape
    size = prod(shape) // prod(graph.by_name[op.inputs[1]].shape)
    for axes in range(1, len(shape)):
        if prod(shape[-axes:]) == size:
            return axes
    return 0


def _rows_once(graph: Graph, op: Op, boxes: list[Box]) -> bool:
    """Whether boxes of the result are whole rows, in total not more than the result has."""
    shape, axes = graph.by_name[op.outputs[0]].shape, _row_axes(graph, op)
    outer = len(shape) - axes
    whole = tuple((0, extent) for extent in shape[outer:])
    return axes > 0 and all(box[outer:] == whole for box in boxes) and sum(map(box_size, boxes)) <= prod(shape)
