"""A check of the main memory before there is a plan: tensors that every plan keeps there from start to end.

    graph, chip --constants, inputs, outputs--> DoesNotFit where these alone are more than the main memory

Planning takes time and memory that grow with the batch, so a graph that no plan can hold is refused before it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hw_models.errors import DoesNotFit
from hw_models.infeasible import GraphSubject, Holder, Infeasible, Lever
from partitioner.context.plan_context import GraphContext
from partitioner.ir.graph import Graph
from partitioner.ir.target import AcceptingTarget


def require_main_room(ctx: GraphContext[AcceptingTarget]) -> None:
    """Raises DoesNotFit, before any planning, for a graph that no plan can fit into the main memory."""
    graph = ctx.graph
    named = roots(graph)
    ends = {named[name] for name in graph.outputs}
    kept = [t.name for t in graph.tensors if t.constant or t.name in graph.inputs or t.name in ends]
    demand_bytes = sum(graph.by_name[name].size_bytes for name in kept)
    if demand_bytes > ctx.chip.memory(ctx.roles.main).size_bytes:
        raise DoesNotFit(main_overflow(ctx, demand_bytes, held_throughout(graph, kept)))


def roots(graph: Graph) -> Mapping[str, str]:
    """For each tensor, the one that owns its bytes: itself, the source of its view, or the input whose next value it
    is."""
    found = {tensor.name: tensor.name for tensor in graph.tensors}
    for op in graph.ops:
        if op.is_view:
            found[op.outputs[0]] = found[op.inputs[0]]
    return found | graph.in_place


def held_throughout(graph: Graph, names: Iterable[str]) -> list[Holder]:
    """Tensors that keep a place of their own."""
    return [Holder(name, graph.by_name[name].size_bytes, "the start", "the end") for name in names]


def main_overflow(ctx: GraphContext[AcceptingTarget], demand_bytes: int, holders: Iterable[Holder]) -> Infeasible:
    """Demand above the size of the main memory, with its holders."""
    graph, main = ctx.graph, ctx.roles.main
    largest = max(graph.tensors, key=lambda tensor: tensor.size_bytes)
    return Infeasible(
        GraphSubject(graph.name, largest.name),
        main,
        "",
        demand_bytes=demand_bytes,
        room_bytes=ctx.chip.memory(main).size_bytes,
        levers=(Lever.SMALLER_BATCH, Lever.LARGER_MEMORY),
        holders=tuple(holders),
    )
