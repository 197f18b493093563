"""Level `astitch`: memory-bound operators stitched into kernels, compute-bound layers alone (after AStitch, ASPLOS'22).

    layers --runs of neighbours that only move and map data--> groups --binding, layout--> Plan

A second baseline: what is gained by keeping the results of cheap operators in the cores' memories without cutting
anything into instances. A stitched group holds whole values, so one that does not fit is cut in two until its parts do.
What leaves a group goes to the main memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hw_models.errors import size_text
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.fusion.kernel_sets import in_order
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.operators import Trait, kind_names
from partitioner.ir.plan import Group, Plan
from partitioner.ir.regions import full_box
from partitioner.ir.steps import Binding, RunStep, ViewStep
from partitioner.ir.value_lifetimes import activations
from partitioner.memory.memory_plan import fit_group
from partitioner.memory.memory_plan_types import LayoutOptions
from partitioner.memory.no_plan import NoPlan, catch_forbidden, reason_of
from partitioner.planners.o0 import bound_step, plan_of, view_step
from partitioner.tiling.core_partition import bind
from partitioner.tiling.core_regions import core_boxes

COMPUTE_BOUND_KINDS = kind_names(Trait.PRODUCTS)
"""Kinds of anchors that multiply: their layers are never stitched."""


def stitched(ctx: PlanContext) -> Plan:
    """Plan of level `astitch`."""
    graph, layers = ctx.graph, ctx.layers
    stitcher = _Stitcher(ctx, list(ctx.layer_decisions))
    parts = [part for members in neighbours(graph, layers) for part in stitcher.parts(members)]
    by_layers = {group.layers: (group, step) for _, group, step in sorted(parts, key=lambda part: part[0])}
    chosen = [by_layers[found] for found in in_order(graph, list(by_layers))]
    groups, steps = [group for group, _ in chosen], [step for _, step in chosen]
    return plan_of(ctx, "astitch", groups, steps, stitcher.decisions)


def neighbours(graph: Graph, layers: Sequence[Layer]) -> tuple[tuple[int, ...], ...]:
    """Sets of layers, by index, that can each become one kernel: memory-bound ones that read each other, where no layer
    outside a set lies on a path from one of its layers to another. Compute-bound layers are sets of their own."""
    home = _Homes()
    at = {layer.output: index for index, layer in enumerate(layers)}
    for index, layer in enumerate(layers):
        before = [at[name] for name in activations(graph, layer) if name in at]
        home.add(index, before)
        if not _memory_bound(graph, layer):
            continue
        for producer in sorted(before, reverse=True):
            if _memory_bound(graph, layers[producer]):
                home.merge(producer, index)
    return home.sets()


def _memory_bound(graph: Graph, layer: Layer) -> bool:
    """Whether the layer may be stitched. A layer that nobody reads stays alone: no group would compute it."""
    read = layer.output in graph.outputs or bool(graph.consumers[layer.output])
    return read and layer.anchor(graph).kind not in COMPUTE_BOUND_KINDS


class _Homes:
    """Disjoint sets of layers, the graph between them, and for each set all sets that lead to it, as bits."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.members: dict[int, list[int]] = {}
        self.before: dict[int, int] = {}

    def add(self, index: int, producers: Sequence[int]) -> None:
        """A layer in a set of its own, later than all others."""
        self.of[index] = index
        self.members[index] = [index]
        self.before[index] = 0
        for producer in {self.of[p] for p in producers}:
            self.before[index] |= self.before[producer] | 1 << producer

    def merge(self, early: int, late: int) -> bool:
        """Join the sets of two layers, unless a third set lies between them; return whether they were joined."""
        a, b = self.of[early], self.of[late]
        if a == b:
            return True
        between = any(
            c not in (a, b)
            and (
                (self.before[b] >> c & 1 and self.before[c] >> a & 1)
                or (self.before[a] >> c & 1 and self.before[c] >> b & 1)
            )
            for c in self.members
        )
        if between:
            return False
        for member in self.members.pop(b):
            self.of[member] = a
            self.members[a].append(member)
        both = (self.before[a] | self.before.pop(b)) & ~(1 << a | 1 << b)
        self.before[a] = both
        for c, known in self.before.items():
            if c != a and known & (1 << a | 1 << b):
                self.before[c] = (known & ~(1 << b)) | both | 1 << a
        return True

    def sets(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(sorted(members)) for members in self.members.values())


Part = tuple[tuple[int, ...], Group, RunStep | ViewStep]
"""Layers by index, their group, and the step that runs it."""


@dataclass(slots=True)
class _Stitcher:
    """Conversion of sets of layers to groups that fit."""

    ctx: PlanContext
    decisions: list[Decision]
    known: dict[int, tuple[Binding, float]] = field(default_factory=dict)

    def parts(self, members: tuple[int, ...]) -> list[Part]:
        """One group, or several where it does not fit or has views whose names leave it."""
        if len(members) == 1:
            return [self._alone(members[0])]
        group = Group(self.ctx.layers[members[0]].name, tuple(self.ctx.layers[i] for i in members))
        leaving = set(group.outputs(self.ctx.graph))
        for position, member in enumerate(members):
            layer = self.ctx.layers[member]
            if layer.is_view(self.ctx.graph) and layer.output in leaving:
                halves = (members[:position], (member,), members[position + 1 :])
                return [part for half in halves for part in self._connected(half)]
        found = catch_forbidden(lambda: self._bound(group))
        if isinstance(found, NoPlan):
            middle = len(members) // 2
            at = self.ctx.layers[members[middle]].name
            self.decisions.append(
                Decision(group.name, f"{len(members)} layers not stitched: cut before {at}", reason_of(found))
            )
            return [part for half in (members[:middle], members[middle:]) for part in self._connected(half)]
        step, reason = found
        self.decisions.append(reason)
        return [(members, group, step)]

    def _connected(self, members: tuple[int, ...]) -> list[Part]:
        """Groups for a part of a set, in which some layers may no longer read each other."""
        inside = {self.ctx.layers[i].output: i for i in members}
        home = {i: i for i in members}
        for i in members:
            for name in activations(self.ctx.graph, self.ctx.layers[i]):
                if name in inside and home[inside[name]] != home[i]:
                    gone, stays = home[i], home[inside[name]]
                    home.update({k: stays for k, v in home.items() if v == gone})
        sets = {root: tuple(i for i in members if home[i] == root) for root in dict.fromkeys(home.values())}
        return [part for members_of in sets.values() for part in self.parts(members_of)]

    def _alone(self, index: int) -> Part:
        layer = self.ctx.layers[index]
        group = Group(layer.name, (layer,))
        if layer.is_view(self.ctx.graph):
            return (index,), group, view_step(self.ctx.graph, layer, self.ctx.roles.main)
        step, reason = bound_step(self.ctx, layer, self.ctx.roles.main, self.known)
        self.decisions.append(reason)
        return (index,), group, step

    def _bound(self, group: Group) -> tuple[RunStep, Decision] | Infeasible:
        """The group on the cores that finish all its layers soonest. Raises PlanError for one that may not be cut this
        way."""
        graph, main = self.ctx.graph, self.ctx.roles.main
        outputs = group.outputs(graph)
        exports = tuple((name, main) for name in outputs if name != group.output)
        box = full_box(graph.by_name[group.output].shape)
        blank = RunStep(group.name, 0, box, main, Binding((1,) * len(box), (0,)), exports=exports)
        step = min(
            (replace(blank, binding=binding) for binding in self._bindings(group)), key=lambda s: self._cycles(group, s)
        )
        options = LayoutOptions(in_main=tuple(name for name in group.inputs(graph) if name not in graph.inputs))
        layout = fit_group(group, (step,), self.ctx, options)
        if isinstance(layout, Infeasible):
            return layout
        inside = sum(graph.by_name[layer.output].size_bytes for layer in group.layers if layer.output not in outputs)
        local, pieces = layout.local.memory, list(step.binding.pieces)
        reason = (
            f"{size_text(inside)} stay in {local}, {size_text(layout.peaks[local])} of a core at once; "
            f"bound to {len(step.binding.cores)} cores as {pieces}"
        )
        return step, Decision(group.name, f"stitched: {len(group.layers)} layers, one kernel", reason)

    def _bindings(self, group: Group) -> list[Binding]:
        """The best bindings for each of the layers whose output has as many axes as the group's."""
        rank = len(self.ctx.graph.by_name[group.output].shape)
        found: dict[Binding, None] = {}
        for layer in group.layers:
            shape = self.ctx.graph.by_name[layer.output].shape
            if len(shape) == rank and not layer.is_view(self.ctx.graph):
                found[bind(self.ctx, layer, full_box(shape))[0]] = None
        return list(found)

    def _cycles(self, group: Group, step: RunStep) -> tuple[float, int]:
        """Engine cycles of all layers, each as slow as its slowest core, then the number of cores."""
        graph, cores = self.ctx.graph, core_boxes(self.ctx, group, step)
        total = 0.0
        for layer in group.layers:
            if layer.is_view(graph):
                continue
            boxes = {part.computed[layer.output] for part in cores if layer.output in part.computed}
            works = (self.ctx.work(layer, box) for box in boxes)
            total += max((sum(cycles for _, cycles in work.engine_cycles) for work in works), default=0.0)
        return total, len(step.binding.cores)
