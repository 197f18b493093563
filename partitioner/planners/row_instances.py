"""Hidden values that find no room: the two layers around them in several instances of fewer rows.

plan in which a value goes to the main memory and comes back for the next layer
    --rows of both layers in as many instances as let it stay in the cores--> plan whose constants come again instead

A feed-forward block of a transformer makes four times as many values as it reads and gives. Where they do not fit the
cores, they go to the main memory and come back. With half of the rows at a time they fit, and the weights of both
layers come twice, which are fewer bytes where there are many rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from hw_models.errors import size_text
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group, Plan, Split
from partitioner.ir.regions import Box
from partitioner.ir.steps import MoveStep, RunStep, Step, ViewStep
from partitioner.ir.value_lifetimes import own_names
from partitioner.memory.memory_plan import FOR_SCHEDULING, PLAIN, fit_layout
from partitioner.memory.no_plan import NoPlan, unless_forbidden
from partitioner.tiling.core_partition import cut_axis

__all__ = ["fits", "with_row_instances"]

MOST_INSTANCES = 8
"""Of a pair of layers: beyond, their weights come too often to be worth it."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Steps that make and read a hidden value, which nothing else reads."""

    maker: RunStep
    reader: RunStep
    hidden_bytes: int
    constant_bytes: int


def with_row_instances(ctx: PlanContext, plan: Plan) -> Plan:
    """The plan with pairs of layers in the fewest instances for which all of it finds room, where weights that come
    again are fewer bytes of the main memory than the hidden values. Pairs that are alike are treated alike."""
    alike: dict[object, list[_Pair]] = {}
    for pair in _pairs(ctx, plan):
        layers = [layer for step in (pair.maker, pair.reader) for layer in plan.group_by_name[step.group].layers]
        kind = tuple(ctx.likeness(layer).kind for layer in layers)
        alike.setdefault((kind, pair.reader.binding.pieces), []).append(pair)
    for pairs in alike.values():
        plan = next((found for found in _attempts(ctx, plan, pairs) if fits(ctx, found)), plan)
    return plan


def fits(ctx: PlanContext, plan: Plan) -> bool:
    """Whether a plan can be laid out, for work that runs ahead too."""
    layouts = (unless_forbidden(partial(fit_layout, plan, ctx, options)) for options in (PLAIN, FOR_SCHEDULING))
    return not any(isinstance(layout, NoPlan) for layout in layouts)


def _pairs(ctx: PlanContext, plan: Plan) -> Iterator[_Pair]:
    """Runs one behind the other of which the second alone reads what the first leaves in the main memory, of as many
    rows."""
    graph = ctx.graph
    runs = [step for step in plan.steps if isinstance(step, RunStep)]
    taken = ""
    for maker, reader in pairwise(runs):
        first, second = plan.group_by_name[maker.group], plan.group_by_name[reader.group]
        if maker.scope != ctx.main or first.output in graph.outputs or first.name == taken:
            continue
        hidden, made = graph.by_name[first.output], graph.by_name[second.output]
        inside = {name for layer in second.layers for name in layer.ops}
        alone = all(op.name in inside for op in graph.consumers[first.output])
        if not alone or hidden.shape[:-1] != made.shape[:-1] or len(hidden.shape) < 2:
            continue
        taken = second.name
        yield _Pair(maker, reader, hidden.size_bytes, _constant_bytes(ctx, (*first.layers, *second.layers)))


def _constant_bytes(ctx: PlanContext, layers: tuple[Layer, ...]) -> int:
    names = {name for layer in layers for name in layer.inputs(ctx.graph)}
    return sum(ctx.graph.by_name[name].size_bytes for name in names if ctx.graph.by_name[name].constant)


def _attempts(ctx: PlanContext, plan: Plan, pairs: list[_Pair]) -> Iterator[Plan]:
    """The plan with pairs that are alike in more and more instances along the first axis that leaves rows to all cores.
    What they read and make lies in the staging memory, on cores, or else in the main memory."""
    pair = pairs[0]
    box, pieces = pair.reader.box, pair.reader.binding.pieces
    for count in range(2, MOST_INSTANCES + 1):
        if (count - 1) * pair.constant_bytes >= 2 * pair.hidden_bytes:
            return
        long = (axis for axis, (low, high) in enumerate(box[:-1]) if (high - low) // count >= max(1, pieces[axis]))
        axis = next(long, None)
        if axis is None:
            return
        spans = cut_axis(*box[axis], count, 1)
        leave = any(plan.group_by_name[each.reader.group].output in ctx.graph.outputs for each in pairs)
        for brought in ((ctx.main,), (ctx.main, ctx.local.memory), ()):
            for scope in dict.fromkeys((ctx.main,) if leave else (ctx.staging, ctx.main)):
                attempt = plan
                for each in pairs:
                    attempt = _merged(ctx, _from_staging(ctx, attempt, each, brought), each, axis, spans, scope)
                yield _with_views(ctx, attempt)


def _with_views(ctx: PlanContext, plan: Plan) -> Plan:
    """The plan whose views lie where the values lie that they name."""
    own = own_names(ctx.graph, ctx.layers)
    scopes = {plan.group_by_name[s.group].output: s.scope for s in plan.steps if isinstance(s, RunStep)}
    steps: list[Step] = []
    for step in plan.steps:
        output = plan.group_by_name[step.group].output
        viewed = own.get(output, output) if isinstance(step, ViewStep) else ""
        steps.append(replace(step, scope=scopes[viewed]) if viewed in scopes else step)
    return replace(plan, steps=tuple(steps))


def _from_staging(ctx: PlanContext, plan: Plan, pair: _Pair, brought: tuple[str, ...]) -> Plan:
    """The plan in which what the pair reads lies in the staging memory instead of those `brought` from: in the main
    memory, for which there may be room now, or on cores, which are others for parts of the rows."""
    read = {name for step in (pair.maker, pair.reader) for name in plan.group_by_name[step.group].inputs(ctx.graph)}
    steps: list[Step] = []
    for step in plan.steps:
        output = plan.group_by_name[step.group].output
        moved = isinstance(step, RunStep) and step.scope in brought and output in read
        steps.append(replace(step, scope=ctx.staging) if moved and output not in ctx.graph.outputs else step)
    return replace(plan, steps=tuple(steps))


def _merged(
    ctx: PlanContext, plan: Plan, pair: _Pair, axis: int, spans: tuple[tuple[int, int], ...], scope: str
) -> Plan:
    first, second = plan.group_by_name[pair.maker.group], plan.group_by_name[pair.reader.group]
    points = (spans[0][0], *(high for _, high in spans))
    group = Group(second.name, (*first.layers, *second.layers), Split(((axis, points),)))
    box = pair.reader.box
    boxes: list[Box] = [(*box[:axis], span, *box[axis + 1 :]) for span in spans]
    moves = [step for step in plan.steps if isinstance(step, MoveStep) and step.group in (first.name, second.name)]
    steps: list[Step] = []
    for step in plan.steps:
        if step in moves or (isinstance(step, RunStep) and step.group == first.name):
            continue
        if not isinstance(step, RunStep) or step.group != second.name:
            steps.append(step)
            continue
        for number, part in enumerate(boxes):
            for move in moves:
                steps.append(replace(move, group=group.name, instance=number, binding=step.binding))
            steps.append(replace(step, instance=number, box=part, scope=scope))
    groups = tuple(group if each == second else each for each in plan.groups if each != first)
    reason = (
        f"{size_text(pair.hidden_bytes)} of {first.output} stay in {ctx.local.memory}; "
        f"{size_text(pair.constant_bytes)} of constants come {len(spans)} times"
    )
    said = Decision(group.name, f"{len(spans)} instances with {first.name}", reason)
    return replace(plan, groups=groups, steps=tuple(steps), decisions=(*plan.decisions, said))
