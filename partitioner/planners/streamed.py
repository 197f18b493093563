"""Level streamed: as O2, for networks whose constants are a large part of what moves.

graph --cuts for which constants come once, by broadcast, while cores compute--> bindings, scopes as O2 has them
      --hidden values without room--> their rows in several instances
      --what a layer would bring again for each part of its channels--> copies in the cores' memories --> Plan

O2 weighs a cut as if each core brought its constants by itself and waited for them. Where a cluster has rows enough for
all cores, as in the layers of a transformer, each core can take some rows of all channels: then one broadcast brings a
constant to all of them, hidden by the products of the constants before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hw_models.cost import transfer_cycles
from hw_models.errors import size_text
from hw_models.infeasible import Infeasible, LayerSubject, ValueSubject
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group, Plan
from partitioner.ir.regions import Box, box_size, full_box
from partitioner.ir.steps import MoveStep, RunStep, Step
from partitioner.memory.memory_plan import fit_layout
from partitioner.memory.memory_plan_types import FOR_SCHEDULING, PLAIN
from partitioner.planners.levels import Streamed
from partitioner.planners.o2 import kept_in_cores
from partitioner.planners.part_instances import with_part_instances
from partitioner.tiling.core_partition import broadcast_cycles, load_cycles, store_cycles
from partitioner.tiling.core_regions import core_boxes


def in_streams(ctx: PlanContext) -> Plan:
    """Plan of level streamed. Where not even O0 can be laid out, lowering the plan reports it."""
    plan = kept_in_cores(ctx, Streamed.name, streamed_cycles)
    return _with_copies(ctx, with_part_instances(ctx, plan))


def streamed_cycles(ctx: PlanContext, layer: Layer, box: Box) -> float:
    """Cycles of a core for `box` of the layer's output, with constants hidden by engine work as far as possible: a
    constant that is read whole comes to all cores at once, and none comes faster than the main memory gives it."""
    graph, chip, work = ctx.graph, ctx.chip, ctx.work(layer, box)
    values = constants = from_main = 0.0
    read: dict[str, int] = {}
    loads = tuple(dict.fromkeys(load for step in work.passes for load in step.loads))
    for load in loads:
        read[load.tensor] = read.get(load.tensor, 0) + box_size(load.box)
    for load in loads:
        tensor = graph.by_name[load.tensor]
        if not tensor.constant:
            values += load_cycles(chip, work.local, tensor, load.box)
        elif read[load.tensor] >= box_size(full_box(tensor.shape)):
            constants += broadcast_cycles(chip, work.local, tensor, load.box)
        else:
            constants += load_cycles(chip, work.local, tensor, load.box)
    if ctx.roles.has_staging:
        size_bytes = sum(graph.by_name[name].size_bytes for name in read if graph.by_name[name].constant)
        from_main = transfer_cycles(chip, ctx.roles.main, ctx.roles.staging, size_bytes) if size_bytes else 0.0
    engines = sum(cycles for _, cycles in work.engine_cycles)
    stored = store_cycles(chip, work.local, graph.by_name[layer.output], box)
    return max(engines, constants, from_main) + values + stored


def _with_copies(ctx: PlanContext, plan: Plan) -> Plan:
    """The plan with copies of values that its layers would bring again for each part of their channels, as far as there
    is room left; copies that find no room are dropped first."""
    copies = list(_wanted(ctx, plan))
    while copies:
        attempt = _copied(plan, copies)
        layouts = [fit_layout(attempt, ctx, options) for options in (PLAIN, FOR_SCHEDULING)]
        missing = [layout for layout in layouts if isinstance(layout, Infeasible)]
        if not missing:
            return replace(attempt, decisions=(*plan.decisions, *_reasons(ctx, copies)))
        copies = _without(plan, copies, missing[0])
    return plan


def _wanted(ctx: PlanContext, plan: Plan) -> Iterator[MoveStep]:
    """Moves for values in the staging memory of which a multiplying layer reads the same part for any of its
    channels."""
    scopes: dict[str, set[str]] = {}
    for step in plan.steps:
        if not isinstance(step, MoveStep):
            scopes.setdefault(plan.group_by_name[step.group].output, set()).add(step.scope)
    moved = {(step.group, step.tensor) for step in plan.steps if isinstance(step, MoveStep)}
    for step in plan.steps:
        if not isinstance(step, RunStep) or not ctx.roles.has_staging:
            continue
        group = plan.group_by_name[step.group]
        for name in group.inputs(ctx.graph):
            if (
                scopes.get(name) == {ctx.roles.staging}
                and (group.name, name) not in moved
                and _again(ctx, group, step, name)
            ):
                box = full_box(ctx.graph.by_name[name].shape)
                yield MoveStep("copy", group.name, step.instance, box, ctx.roles.local.memory, step.binding, name)


def _again(ctx: PlanContext, group: Group, step: RunStep, name: str) -> bool:
    """Whether some multiplying layer of the group reads a whole value for each part of its channels."""
    cores = core_boxes(ctx, group, step)
    for layer in group.layers:
        if name in layer.inputs(ctx.graph) and layer.anchor(ctx.graph).macs:
            boxes = [core.computed[layer.output] for core in cores if layer.output in core.computed]
            if boxes and all(_whole_for_any_channel(ctx, layer, box, name) for box in boxes):
                return True
    return False


def _whole_for_any_channel(ctx: PlanContext, layer: Layer, box: Box, name: str) -> bool:
    """Whether the layer reads the same box of a value for each half of its channels as for all of them."""
    low, high = box[-1]
    if high - low < 2:
        return False
    middle = (low + high) // 2
    halves = ((*box[:-1], (low, middle)), (*box[:-1], (middle, high)))
    read = ctx.reads(layer, box).get(name)
    return read is not None and all(ctx.reads(layer, half).get(name) == read for half in halves)


def _copied(plan: Plan, copies: list[MoveStep]) -> Plan:
    before: dict[tuple[str, int], list[Step]] = {}
    for copy in copies:
        before.setdefault((copy.group, copy.instance), []).append(copy)
    steps: list[Step] = []
    for step in plan.steps:
        steps += before.pop((step.group, step.instance), []) if isinstance(step, RunStep) else []
        steps.append(step)
    return replace(plan, steps=tuple(steps))


def _without(plan: Plan, copies: list[MoveStep], missing: Infeasible) -> list[MoveStep]:
    """The copies left when something found no room: without the layer's own copies, or those of the value, or else
    without any."""
    match missing.subject:
        case LayerSubject(name):
            of_layer = {group.name for group in plan.groups if name in {layer.name for layer in group.layers}}
            left = [copy for copy in copies if copy.group not in of_layer]
        case ValueSubject(name):
            left = [copy for copy in copies if copy.tensor != name]
        case _:
            left = []
    return left if len(left) < len(copies) else []


def _reasons(ctx: PlanContext, copies: list[MoveStep]) -> Iterator[Decision]:
    for group, tensor in dict.fromkeys((copy.group, copy.tensor) for copy in copies):
        size = size_text(ctx.graph.by_name[tensor].size_bytes)
        reason = f"{size} that it would load again for each part of its channels"
        yield Decision(group, f"reads {tensor} from a copy in {ctx.roles.local.memory}", reason)
