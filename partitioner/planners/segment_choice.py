"""Choice of the plan for each part of the network: the cheapest path from the first layer to the last through all
plans.

    plans, cycles of each layer in each --dynamic programming over layers, the plan there as state--> Division

A layer costs what the cost model expects of its steps, in proportion to the cycles of the whole plan, or what was
measured. Where one plan follows another, values that wait on cores go through the staging memory: the plan before
stores its values, and each reader in the plan after loads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from partitioner.context.plan_context import PlanContext
from partitioner.cost.cost_model import PlanCost
from partitioner.cost.transfer_cost import TransferCosts
from partitioner.ir.plan import Plan
from partitioner.ir.steps import RunStep
from partitioner.ir.value_lifetimes import WaitingValue, waiting_values
from partitioner.planners.segments import cut_points


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
        spent[last[step.group]] += step.overlapped_cycles + step.barriers * cost.sync_cycles
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

    def cycles(self, layer: int, before: int, behind: int) -> float:
        spent = 2 * self.ctx.chip.assumed.sync_cycles
        for value in self.alive[layer]:
            one_way = self.transfers.shared_cycles(value.size_bytes)
            readers = sum(reader >= layer for reader in value.readers)
            if value.name in self.columns[before].local:
                spent += one_way
            if value.name in self.columns[behind].local:
                spent += readers * one_way
        return self.weight * spent


def _local_values(ctx: PlanContext, plan: Plan) -> frozenset[str]:
    """Outputs of groups of which some instance keeps its part in the cores' own memories."""
    outputs: Mapping[str, str] = {group.name: group.output for group in plan.groups}
    local = ctx.roles.local.memory
    return frozenset(outputs[step.group] for step in plan.steps if isinstance(step, RunStep) and step.scope == local)
