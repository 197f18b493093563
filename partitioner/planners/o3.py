"""Level O3: groups as large as local memory allows, cut into instances, ordered so that data stay close.

    layers --grouping--> groups --cut, spread--> instances --order, scopes--> steps --layout--> Plan

Each stage is a module of its own; this one puts them together and mends a plan that the layout refuses: a value that
finds no room goes to the next memory outward, a group whose instances do not fit is cut finer or in two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hw_models.errors import PlanError, reason_text, size_text
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.cost.cost_model import plan_cycles
from partitioner.fusion.grouping import group_layers_into_subgraphs
from partitioner.fusion.halo import halo_veto
from partitioner.fusion.split_factor import SplitOptions, Splitter
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.ir.regions import Box, box_size
from partitioner.ir.steps import MoveKind, MoveStep, RunStep, Step
from partitioner.ir.target import KeepsSome
from partitioner.memory.memory_plan import fit_layout
from partitioner.memory.memory_plan_types import Layout
from partitioner.memory.no_plan import NoPlan, catch_forbidden, reason_of, require_plan
from partitioner.ordering.cost import Capacity, InstanceGraph, InstanceNode, too_large
from partitioner.ordering.methods import choose_order
from partitioner.planners.o0 import plan_of, views_alone
from partitioner.planners.o3_core_mapping import Spreader
from partitioner.planners.o3_instance_graph import Instance, InstanceFlow, flow_of, in_place, instances_of
from partitioner.planners.o3_split_search import Prepared, SplitSearch
from partitioner.planners.weight_pinning import with_pins

STAGING_STEP_DIVISOR = 8
"""Divisor of the staging memory: the step in which the room for waiting values is tried."""

LESS_ROOM = (3, 4)
"""Share of the capacity (numerator, denominator) for which a group that finds no room is grouped again."""

MOST_INSTANCES = 4096
"""Largest number of instances in a plan: each has its own instructions, and takes tens of milliseconds and half a MiB
to plan."""

BEST_POLICY = "cost"
"""Name of the policy that moves the fewest bytes in `benchmarks/allocation.py` wherever little is missing."""


def plan_instances(ctx: PlanContext, policy: str | None = None) -> Plan:
    """The plan of level O3, with a `policy` of spilling (of `spill_policies.POLICIES`) or none. Raises DoesNotFit when
    even single layers find no room however they are cut, and PlanError for a layer that may not be cut so, or for more
    than `MOST_INSTANCES`."""
    return require_plan(fit_instances(ctx, policy))


def plan_with_worthwhile_spills(ctx: PlanContext) -> Plan:
    """The plan with or without spills, whichever takes fewer cycles. Raises DoesNotFit where neither plan finds
    room."""
    spilling = plan_instances(ctx, BEST_POLICY)
    if not any(group.spills for group in spilling.groups):
        return spilling
    found = fit_instances(ctx)
    if isinstance(found, Infeasible):
        return _decided(spilling, "values are spilled", f"no plan without: {reason_text(found)}")
    cutting = require_plan(found)
    spent, saved = (plan_cycles(plan, ctx).cycles for plan in (spilling, cutting))
    reason = f"{spent:,.0f} cycles with spills, {saved:,.0f} with finer cuts instead"
    if spent < saved:
        return _decided(spilling, "values are spilled", reason)
    return _decided(cutting, "nothing is spilled", reason)


def _decided(plan: Plan, verdict: str, reason: str) -> Plan:
    return replace(plan, decisions=(*plan.decisions, Decision("spilling", verdict, reason)))


def fit_instances(ctx: PlanContext, policy: str | None = None) -> Plan | NoPlan:
    """The plan of level O3, or the reason why even single layers fit in no cut. Raises PlanError for more than
    `MOST_INSTANCES`."""
    if (plan := views_alone(ctx, "O3")) is not None:
        return plan
    search = SplitSearch(ctx, Spreader(ctx), policy)
    grouped = _groups(search, ctx.layers, ctx.roles.local_bytes * ctx.chip.cores_per_cluster)
    if isinstance(grouped, NoPlan):
        return grouped
    made, reasons = grouped
    decisions = (*ctx.layer_decisions, *reasons)
    require_few(ctx.graph, sum(entry.group.split.instances for entry in made if isinstance(entry, Prepared)))
    return ordered_plan(ctx, instances_of(search, made), decisions)


def require_few(graph: Graph, count: int) -> None:
    """Raises PlanError for more than `MOST_INSTANCES`."""
    if count > MOST_INSTANCES:
        raise PlanError(
            f"graph {graph.name}",
            needs=f"at most {MOST_INSTANCES:,} instances",
            has=f"{count:,}",
            change="run the batch in smaller passes (--per-pass), or choose another level",
        )


def _groups(
    search: SplitSearch, layers: tuple[Layer, ...], capacity_bytes: int
) -> tuple[list[Prepared | Layer], list[Decision]] | NoPlan:
    """Groups by the published patterns for a capacity, each cut as coarsely as it really fits. A group that fits in no
    cut is grouped again with a smaller capacity; a single layer that fits in no cut leaves no plan."""
    ctx, graph = search.ctx, search.ctx.graph
    splitter = Splitter(ctx.footprints, capacity_bytes, SplitOptions(uneven=True, most_axes=2), search.granularity)
    too_much_twice = halo_veto(ctx, splitter.best)
    groups, decisions = group_layers_into_subgraphs(
        graph,
        layers,
        splitter.best,
        lambda found: _ends_badly(graph, found) or _leaves(ctx, found) or too_much_twice(found),
    )
    reasons = list(decisions)
    made: list[Prepared | Layer] = []
    for group in groups:
        if all(layer.is_view(graph) for layer in group):
            made += group
            continue
        best = splitter.best(group)
        least = best.instances if best else 1
        prepared = (search.roomy if isinstance(ctx.target, KeepsSome) else search.coarsest)(group, least)
        if isinstance(prepared, NoPlan):
            if len(group) == 1:
                return prepared
            smaller = capacity_bytes * LESS_ROOM[0] // LESS_ROOM[1]
            reasons.append(Decision(group[-1].name, f"grouped again for {size_text(smaller)}", reason_of(prepared)))
            again = _groups(search, group, smaller)
            if isinstance(again, NoPlan):
                return again
            parts, more = again
            made += parts
            reasons += more
            continue
        count = prepared.group.split.instances
        held = f"{size_text(prepared.local_bytes)} on a core in addition to tile buffers"
        reasons.append(Decision(prepared.group.name, f"{count} instances", f"the fewest that find room: {held}"))
        reasons += (*prepared.spread.decisions, *prepared.spills)
        made.append(prepared)
    return made, reasons


def _ends_badly(graph: Graph, layers: tuple[Layer, ...]) -> str | None:
    if layers[-1].is_view(graph):
        return f"{layers[-1].name} is a view: a group ends with what it computes"
    return None


def _leaves(ctx: PlanContext, layers: tuple[Layer, ...]) -> str | None:
    """Why a value between layers of a group does not stay in a core, on targets that keep only some."""
    target = ctx.target
    if not isinstance(target, KeepsSome):
        return None
    for layer in layers[:-1]:
        readers = tuple(reader for reader in layers if layer.output in reader.inputs(ctx.graph))
        if reason := target.keeps(ctx.graph, ctx.constants, layer, readers, ctx.chip):
            return reason
    return None


def ordered_plan(
    ctx: PlanContext, instances: list[Instance], decisions: tuple[Decision, ...], level: str = "O3"
) -> Plan | NoPlan:
    """Order, scopes and steps; where the layout finds no room, less may wait in local memories and then in staging."""
    flow = flow_of(ctx, instances)
    main, staging = ctx.roles.main, ctx.roles.staging
    reasons = list(decisions)
    kept = 0 if staging == main else ctx.chip.memory(staging).size_bytes
    refused: NoPlan | None = None
    for waiting, staging_bytes in _attempts(ctx, kept):
        capacity = Capacity(ctx.roles.local_bytes, staging_bytes)
        ordering = InstanceGraph(_waiting_nodes(flow, waiting), flow.edges)
        if (large := too_large(ordering, capacity)) is not None:
            return large
        choice = choose_order(ordering, capacity)
        costs = ", ".join(f"{found.name} {found.cost}" for found in choice.candidates)
        names = {"local": ctx.roles.local.memory, "staging": staging, "main": main}
        scopes = [main if n in flow.forced else names[scope] for n, scope in enumerate(choice.best.scopes)]
        _agree(flow, scopes, main)
        chosen = Decision(
            "order",
            choice.best.name,
            f"weighted bytes that wait outside local memories; {waiting} may wait in {ctx.roles.local.memory}, "
            f"others in {size_text(staging_bytes)} of {staging}: {costs}",
        )
        plan = _plan(ctx, level, flow, choice.best.order, scopes, (*reasons, chosen))
        layout = _laid_out(ctx, plan)
        if not isinstance(layout, NoPlan):
            return with_pins(ctx, plan, layout)
        refused = layout
        reasons.append(Decision("order", "tried again with less room for waiting values", reason_of(layout)))
    assert refused is not None  # there is at least one attempt
    return refused


def _laid_out(ctx: PlanContext, plan: Plan) -> Layout | NoPlan:
    return catch_forbidden(lambda: fit_layout(plan, ctx))


ALL, IN_PLACE, NONE = "all values", "values whose readers use them in place", "no values"


def _attempts(ctx: PlanContext, staging_bytes: int) -> Iterator[tuple[str, int]]:
    """Values that may wait in local memories between groups, and the room in staging: everything first, then less and
    less. Where a target keeps only some values, those between groups wait outside."""
    if not isinstance(ctx.target, KeepsSome):
        yield ALL, staging_bytes
        yield IN_PLACE, staging_bytes
    for part in range(STAGING_STEP_DIVISOR, -1, -1):
        yield NONE, staging_bytes * part // STAGING_STEP_DIVISOR


def _waiting_nodes(flow: InstanceFlow, waiting: str) -> tuple[InstanceNode, ...]:
    """The nodes as ordering sees them: those whose outputs may wait in local memories are marked."""
    if waiting == ALL:
        return flow.nodes
    moved = set(range(len(flow.nodes)))
    if waiting == IN_PLACE:
        moved = {
            n
            for (reader, name), found in flow.sources.items()
            if not in_place(flow, found, flow.instances[reader], name)
            for n in found
        }
    return tuple(replace(node, may_be_local=n not in moved) for n, node in enumerate(flow.nodes))


def _agree(flow: InstanceFlow, scopes: list[str], main: str) -> None:
    """Change scopes so that the parts of one value read by one reader are all in the main memory or none of them is."""
    changed = True
    while changed:
        changed = False
        for found in flow.sources.values():
            if any(scopes[n] == main for n in found) and not all(scopes[n] == main for n in found):
                for n in found:
                    scopes[n] = main
                changed = True


def _plan(
    ctx: PlanContext,
    level: str,
    flow: InstanceFlow,
    order: tuple[int, ...],
    scopes: list[str],
    decisions: tuple[Decision, ...],
) -> Plan:
    """Steps in order; a reader of values that wait in local memories is preceded by moves, unless they are in place."""
    graph, main, local = ctx.graph, ctx.roles.main, ctx.roles.local.memory
    groups = {instance.group.name: instance.group for instance in flow.instances}.values()
    steps: list[Step] = []
    for number in order:
        instance, step = flow.instances[number], flow.instances[number].step
        if not isinstance(step, RunStep):
            steps.append(replace(step, scope=scopes[number]))
            continue
        for name, box in flow.needs[number].items():
            found = flow.sources[number, name]
            if any(scopes[n] == local for n in found) and not in_place(flow, found, instance, name):
                whole = len(found) == 1 and flow.nodes[found[0]].total_bytes == _size(graph, name, box)
                kind: MoveKind = "concat" if len(found) > 1 else "redistribute" if whole else "split"
                steps.append(MoveStep(kind, step.group, step.instance, box, local, step.binding, name))
        exports = tuple((name, main) for name, _ in step.exports)
        steps.append(replace(step, scope=scopes[number], exports=exports))
    return plan_of(ctx, level, groups, steps, decisions)


def _size(graph: Graph, name: str, box: Box) -> int:
    return box_size(box) * graph.by_name[name].item_bytes
