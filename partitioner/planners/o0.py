"""One group per layer: the base of levels O0, O1 and O2, and O0 itself.

graph --layers--> groups --bind--> steps, every output in the main memory (O0: what TVM would make)
"""

from __future__ import annotations

from collections.abc import Iterable

from partitioner.context.batch_slices import batch_of
from partitioner.context.plan_context import GraphContext, PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group, Plan
from partitioner.ir.regions import full_box
from partitioner.ir.steps import Binding, RunStep, Step, ViewStep
from partitioner.ir.target import AcceptingTarget
from partitioner.tiling.core_partition import bind


def in_main(ctx: PlanContext) -> Plan:
    """Plan of level O0: one kernel per layer, every output in the main memory, every layer on the cores that make it
    fastest."""
    reasons = list(ctx.layer_decisions)
    steps: list[Step] = []
    known: dict[int, tuple[Binding, float]] = {}
    for layer in ctx.layers:
        if layer.is_view(ctx.graph):
            steps.append(view_step(ctx.graph, layer, ctx.roles.main))
            continue
        step, reason = bound_step(ctx, layer, ctx.roles.main, known)
        steps.append(step)
        reasons.append(reason)
    return layer_plan(ctx, "O0", steps, reasons)


def plan_of(
    ctx: GraphContext[AcceptingTarget],
    level: str,
    groups: Iterable[Group],
    steps: Iterable[Step],
    decisions: Iterable[Decision],
) -> Plan:
    """A plan of the context's graph for one cluster of its chip."""
    graph = ctx.graph
    return Plan(
        graph.name, level, graph.hash, ctx.chip.hash, batch_of(graph), tuple(groups), tuple(steps), tuple(decisions)
    )


def layer_plan(ctx: PlanContext, level: str, steps: Iterable[Step], decisions: Iterable[Decision]) -> Plan:
    """A plan with one group per layer."""
    return plan_of(ctx, level, (Group(layer.name, (layer,)) for layer in ctx.layers), steps, decisions)


def views_alone(ctx: PlanContext, level: str) -> Plan | None:
    """The plan of a graph that computes nothing; None for others."""
    if not all(layer.is_view(ctx.graph) for layer in ctx.layers):
        return None
    steps = [view_step(ctx.graph, layer, ctx.roles.main) for layer in ctx.layers]
    return layer_plan(ctx, level, steps, ctx.layer_decisions)


def view_step(graph: Graph, layer: Layer, scope: str) -> ViewStep:
    """Step that gives the same bytes another name; no core has to do anything."""
    return ViewStep(layer.name, full_box(graph.by_name[layer.output].shape), scope)


def bound_step(
    ctx: PlanContext, layer: Layer, scope: str, known: dict[int, tuple[Binding, float]]
) -> tuple[RunStep, Decision]:
    """A layer as its own kernel on the cores that are done soonest; `known` remembers the bindings of similar
    layers."""
    box = full_box(ctx.graph.by_name[layer.output].shape)
    alike = ctx.likeness(layer).kind
    if alike not in known:
        known[alike] = bind(ctx, layer, box)
    binding, cycles = known[alike]
    decision = Decision(layer.name, f"bound to {len(binding.cores)} cores as {list(binding.pieces)}",
                        f"the slowest core needs about {cycles:.0f} cycles, fewest of all cuts")  # fmt: skip
    return RunStep(layer.name, 0, box, scope, binding), decision
