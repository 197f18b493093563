"""One plan made of several: the choice of a plan for each part of the network, and these parts joined.

    plans, cycles of each layer in each --dynamic programming over layers, the plan there as state--> SegmentDivision
    plans, layers at which one gives way to the next --groups and steps of each part--> Plan

A layer costs what the cost model expects of its steps, in proportion to the cycles of the whole plan, or what was
measured. A value that crosses a border lies in the staging memory, or in the main one where that has no room, and its
readers on the other side take it from there tile by tile: the next plan needs on other cores what one plan holds on
some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise

from hw_models.errors import ModelError, PlanError, size_text
from partitioner.context.plan_context import PlanContext
from partitioner.cost.cost_model import PlanCost
from partitioner.cost.transfer_cost import TransferCosts
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group, Plan
from partitioner.ir.steps import MoveStep, RunStep, Step
from partitioner.ir.value_lifetimes import WaitingValue, own_names, waiting_values
from partitioner.memory.memory_plan import fit_layout
from partitioner.memory.no_plan import NoPlan, catch_forbidden, require_plan
from partitioner.planners.levels import SEGMENTS, Segment, WholePlanner


@dataclass(frozen=True, slots=True)
class PlanPart:
    """Layers from `first` to before `end`, by index, as in `plan`."""

    plan: Plan
    first: int
    end: int


def in_segments(ctx: PlanContext, segments: Sequence[Segment], plans: Mapping[WholePlanner, Plan]) -> Plan:
    """The plan of these segments, made from the plans of the whole network by planner. Raises ModelError for segments
    that do not cover the network in the order of its layers, PlanError for one that would cut a group, and DoesNotFit.
    """
    index = {layer.name: number for number, layer in enumerate(ctx.layers)}
    starts = [index.get(segment.first, -1) for segment in segments]
    if not starts or starts[0] or any(before >= after for before, after in pairwise(starts)):
        raise ModelError(
            "segments",
            needs=f"layers of {ctx.graph.name} in their order, {ctx.layers[0].name} first",
            has=", ".join(segment.first for segment in segments) or "none",
        )
    ends = (*starts[1:], len(ctx.layers))
    parts = [
        PlanPart(plans[segment.planner], first, end) for segment, first, end in zip(segments, starts, ends, strict=True)
    ]
    for part, segment in zip(parts, segments, strict=True):
        whole = cut_points(ctx.layers, part.plan)
        if odd := [cut for cut in (part.first, part.end) if cut not in whole]:
            name = ctx.layers[odd[0]].name
            raise PlanError(
                f"the segment of {segment.planner.name} from {segment.first}",
                needs="borders between groups",
                has=f"a group of {segment.planner.name} that goes on at {name}",
                change=f"begin a segment where {segment.planner.name} begins a group",
            )
    return require_plan(fit_segments(ctx, parts))


def cut_points(layers: Sequence[Layer], plan: Plan) -> frozenset[int]:
    """Indices of layers before which a plan can be cut: no group has layers on both sides."""
    index = {layer.name: number for number, layer in enumerate(layers)}
    crossed: set[int] = set()
    for group in plan.groups:
        found = [index[layer.name] for layer in group.layers]
        crossed.update(range(min(found) + 1, max(found) + 1))
    return frozenset(range(len(layers) + 1)) - crossed


def border_values(graph: Graph, layers: Sequence[Layer], cuts: Iterable[int]) -> dict[str, int]:
    """Values made before a cut and read after it, under any name, with their bytes, in the order in which they are
    made."""
    points = tuple(cuts)
    return {
        value.name: value.size_bytes
        for value in waiting_values(graph, layers)
        if not value.leaves and any(value.made < cut <= value.last for cut in points)
    }


def fit_segments(ctx: PlanContext, parts: Sequence[PlanPart]) -> Plan | NoPlan:
    """The plan of these parts, which cover all layers in order and end at `cut_points` of their plans. Values at
    borders go to the main memory, the largest first, until everything fits; otherwise the missing room is returned."""
    borders = border_values(ctx.graph, ctx.layers, (part.first for part in parts[1:]))
    staged = [] if not ctx.roles.has_staging else sorted(borders, key=lambda name: borders[name])
    while True:
        scopes = {name: ctx.roles.staging if name in staged else ctx.roles.main for name in borders}
        layout = catch_forbidden(partial(fit_layout, plan := _joined(ctx, parts, scopes), ctx))
        if not isinstance(layout, NoPlan):
            return plan
        if not staged:
            return layout
        staged.pop()


def _joined(ctx: PlanContext, parts: Sequence[PlanPart], scopes: Mapping[str, str]) -> Plan:
    own = own_names(ctx.graph, ctx.layers)
    border = {name: scopes[own.get(name, name)] for name in (*scopes, *own) if own.get(name, name) in scopes}
    groups: list[Group] = []
    steps: list[Step] = []
    reasons: list[Decision] = []
    pinned: list[str] = []
    for part in parts:
        layers = {layer.name for layer in ctx.layers[part.first : part.end]}
        inside = {group.name: group for group in part.plan.groups if group.layers[0].name in layers}
        groups += inside.values()
        for step in part.plan.steps:
            if step.group in inside and not (isinstance(step, MoveStep) and step.tensor in border):
                steps.append(_with_border(step, inside[step.group].output, border))
        known = _names(ctx.graph, inside.values())
        reasons += (decision for decision in part.plan.decisions if decision.subject in known)
        pinned += (name for name in part.plan.pinned if name in known)
    return replace(
        parts[0].plan,
        level=SEGMENTS,
        groups=tuple(groups),
        steps=tuple(steps),
        decisions=(*_border_decisions(ctx, scopes), *dict.fromkeys(reasons)),
        pinned=tuple(name for name in dict.fromkeys(pinned) if pinned.count(name) == 1),
    )


def _border_decisions(ctx: PlanContext, scopes: Mapping[str, str]) -> Iterator[Decision]:
    for name, scope in scopes.items():
        size = size_text(ctx.graph.by_name[name].size_bytes)
        yield Decision(name, f"between segments in {scope}", f"{size} that segments of different levels make and read")


def _with_border(step: Step, output: str, border: Mapping[str, str]) -> Step:
    if isinstance(step, MoveStep):
        return step
    scope = border.get(output, step.scope)
    if isinstance(step, RunStep):
        return replace(step, scope=scope, exports=tuple((name, border.get(name, to)) for name, to in step.exports))
    return replace(step, scope=scope)


def _names(graph: Graph, groups: Iterable[Group]) -> frozenset[str]:
    """Names of groups, layers, operators and values of some groups."""
    found: set[str] = set()
    for group in groups:
        found.add(group.name)
        for layer in group.layers:
            found |= {layer.name, layer.output, *layer.ops, *layer.inputs(graph)}
    return frozenset(found)


# The choice of a plan for each part.


@dataclass(frozen=True, slots=True)
class Column:
    """A whole plan as a choice for each layer: `until[i]` are its cycles before layer i, `cuts` the layers before which
    it may end, `local` the values of which it keeps parts on cores."""

    until: tuple[float, ...]
    cuts: frozenset[int]
    local: frozenset[str]

    def cycles(self, first: int, end: int) -> float:
        """Cycles of the layers from `first` to before `end`."""
        return self.until[end] - self.until[first]


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Layers from `first` to before `end`, taken from the column with that number."""

    first: int
    end: int
    column: int


@dataclass(frozen=True, slots=True)
class SegmentDivision:
    """Parts that cover all layers in order, and their expected cycles, borders included."""

    parts: tuple[SegmentPart, ...]
    cycles: float


def column_of(ctx: PlanContext, plan: Plan, layer_cycles: Sequence[float]) -> Column:
    """A plan with the cycles of each of its layers."""
    return Column((0.0, *accumulate(layer_cycles)), cut_points(ctx.layers, plan), _local_values(ctx, plan))


def expected_layer_cycles(ctx: PlanContext, plan: Plan, cost: PlanCost, cycles: float) -> tuple[float, ...]:
    """The cycles of a whole plan divided among the layers in proportion to the cost model. The cycles of a group count
    at its last layer: plans are not cut within groups."""
    index = {layer.name: number for number, layer in enumerate(ctx.layers)}
    last = {group.name: max(index[layer.name] for layer in group.layers) for group in plan.groups}
    spent = [0.0] * len(ctx.layers)
    for step in cost.steps:
        spent[last[step.group]] += step.overlapped_cycles
    total = sum(spent)
    return tuple(each * cycles / total if total else 0.0 for each in spent)


def divide(ctx: PlanContext, columns: Sequence[Column], border_weight: float = 1.0) -> SegmentDivision:
    """The cheapest division. The cost of a border counts `border_weight` times: the larger it is, the fewer borders
    there are. Ties go to the division that changes plans less."""
    borders = _Borders(ctx, columns, border_weight)
    count = len(ctx.layers)
    paths: list[tuple[float, tuple[tuple[int, int], ...]]] = [(0.0, ((0, number),)) for number in range(len(columns))]
    for layer in range(count):
        if layer:
            paths = [_entered(paths, columns, borders, layer, number) for number in range(len(columns))]
        paths = [
            (spent + column.cycles(layer, layer + 1), path)
            for (spent, path), column in zip(paths, columns, strict=True)
        ]
    spent, path = min(paths, key=lambda found: (found[0], len(found[1])))
    ends = (*(first for first, _ in path[1:]), count)
    return SegmentDivision(
        tuple(SegmentPart(first, end, number) for (first, number), end in zip(path, ends, strict=True)), spent
    )


def _entered(
    paths: Sequence[tuple[float, tuple[tuple[int, int], ...]]],
    columns: Sequence[Column],
    borders: _Borders,
    layer: int,
    number: int,
) -> tuple[float, tuple[tuple[int, int], ...]]:
    """The cheapest way to have all layers before a layer done and to go on with a column: from the same column, or from
    another."""
    best = paths[number]
    if layer not in columns[number].cuts:
        return best
    for other, (spent, path) in enumerate(paths):
        if other != number and layer in columns[other].cuts:
            cycles = spent + borders.cycles(layer, other, number)
            if cycles < best[0]:
                best = (cycles, (*path, (layer, number)))
    return best


class _Borders:
    """Cost of going from one column to another before a layer."""

    def __init__(self, ctx: PlanContext, columns: Sequence[Column], weight: float) -> None:
        self.ctx, self.columns, self.weight = ctx, columns, weight
        self.transfers = TransferCosts(ctx)
        self.alive: list[list[WaitingValue]] = [[] for _ in range(len(ctx.layers) + 1)]
        for value in waiting_values(ctx.graph, ctx.layers):
            for layer in range(value.made + 1, value.last + 1):
                self.alive[layer].append(value)

    def cycles(self, layer: int, before: int, after: int) -> float:
        spent = 2 * self.ctx.chip.assumed.sync_cycles
        for value in self.alive[layer]:
            one_way = self.transfers.shared_cycles(value.size_bytes)
            readers = sum(reader >= layer for reader in value.readers)
            if value.name in self.columns[before].local:
                spent += one_way
            if value.name in self.columns[after].local:
                spent += readers * one_way
        return self.weight * spent


def _local_values(ctx: PlanContext, plan: Plan) -> frozenset[str]:
    """Outputs of groups of which some instance keeps its part in the cores' own memories."""
    outputs: Mapping[str, str] = {group.name: group.output for group in plan.groups}
    local = ctx.roles.local.memory
    return frozenset(outputs[step.group] for step in plan.steps if isinstance(step, RunStep) and step.scope == local)
