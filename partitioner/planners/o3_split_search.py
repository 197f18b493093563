"""Split and core mapping of groups: for a run of layers the coarsest cut whose instances fit, and their spread.

    layers, cut --spread over the cores, laid out alone--> Prepared, or Infeasible with the numbers

A group is tried as one instance alone, with its inputs in the main memory: lowering can run everything that fits this
way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from math import prod

from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group, Split
from partitioner.ir.regions import Box
from partitioner.ir.steps import Binding, RunStep
from partitioner.memory.memory_plan import fit_group, walked
from partitioner.memory.memory_plan_types import Layout, LayoutOptions
from partitioner.memory.no_plan import NoPlan, catch_forbidden
from partitioner.memory.spilling import spill_one
from partitioner.planners.o3_core_mapping import Spread, Spreader
from partitioner.tiling.core_partition import cut_axis
from partitioner.tiling.core_regions import instance_box
from partitioner.tiling.tiling import cut_counts

GROWTH = (4, 3)
MOST_TYPICAL = 6
"""Number of instances of a group that are laid out to see whether all fit."""

MOST_TRIES = 4
"""Largest number of cuts tried for several layers, each with a third more instances than the one before. Where the
fewest instances by the footprint do not fit, scratch and weights take the room, and smaller groups help more than finer
cuts."""


ROOM_DIVISOR = 4
"""Divisor of the local memory: the part that tiles need to be large enough."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A group with its cut and spread. `local_bytes` are held on a core while the fullest instance runs alone."""

    group: Group
    spread: Spread
    layout: Layout
    spills: tuple[Decision, ...] = ()

    @property
    def local_bytes(self) -> int:
        return self.layout.peaks.get(self.layout.local.memory, 0)


@dataclass(frozen=True)
class SplitSearch:
    """Groups that were tried, and the spreads of their instances; with a `policy`, values that find no room on the
    cores are spilled by it."""

    ctx: PlanContext
    spreader: Spreader
    policy: str | None = None
    tried: dict[tuple[tuple[str, ...], Split], Prepared | NoPlan] = field(default_factory=dict)

    def granularity(self, layer: Layer) -> tuple[int, ...]:
        """Multiples at which the layer's output may be cut; a view may be cut wherever its shape allows."""
        if layer.is_view(self.ctx.graph):
            return (1,) * len(self.ctx.graph.by_name[layer.output].shape)
        return self.ctx.target.granularity(self.ctx.graph, layer)

    def splits(self, layers: tuple[Layer, ...]) -> Iterator[Split]:
        """Cuts of the group's output from coarse to fine: the outermost axis down to its units, then the next one too;
        the last axis is left to the cores."""
        shape, granularity = self.ctx.graph.by_name[layers[-1].output].shape, self.granularity(layers[-1])
        outer: tuple[tuple[int, tuple[int, ...]], ...] = ()
        yield Split()
        for axis in range(len(shape) - 1):
            cut: tuple[int, tuple[int, ...]] | None = None
            for count in islice(cut_counts((0, shape[axis]), granularity[axis]), 1, None):
                points = (0, *(high for _, high in cut_axis(0, shape[axis], count, granularity[axis])))
                if cut != (axis, points):
                    cut = (axis, points)
                    yield Split((*outer, cut))
            outer = (*outer, cut) if cut else outer

    def prepare(self, layers: tuple[Layer, ...], split: Split) -> Prepared | NoPlan:
        """One instance laid out alone; the result is Forbidden for a cut that a view or output does not allow."""
        key = (tuple(layer.name for layer in layers), split)
        if key not in self.tried:
            self.tried[key] = catch_forbidden(lambda: self._prepare(layers, split))
        return self.tried[key]

    def roomy(self, layers: tuple[Layer, ...], least: int) -> Prepared | NoPlan:
        """The group with the fewest instances that leave at least a `ROOM_DIVISOR`-th of the local memory to tiles. For
        targets of which inputs and outputs of a group never lie there; the footprint's number, `least`, counts these:
        no more than twice as many are tried for room. Where none fits, the reason of the last try."""
        room = self.ctx.roles.local_bytes - self.ctx.roles.local_bytes // ROOM_DIVISOR
        found = self.coarsest(layers, 1)
        if not isinstance(found, Prepared):
            found = self.coarsest(layers, least)
        while isinstance(found, Prepared) and found.local_bytes > room and found.group.split.instances < 2 * least:
            finer = self.coarsest(layers, found.group.split.instances + 1)
            if not isinstance(finer, Prepared):
                break
            found = finer
        return found

    def coarsest(self, layers: tuple[Layer, ...], least: int = 1) -> Prepared | NoPlan:
        """The group with the fewest instances, `least` or a few more, that find room; a single layer may be cut as
        finely as necessary. Where none fits, the reason of the last try."""
        found: Prepared | NoPlan | None = None
        splits = tuple(self.splits(layers))
        least = min(least, splits[-1].instances)
        tried = wanted = 0
        for split in splits:
            if split.instances < max(least, wanted):
                continue
            found = self.prepare(layers, split)
            if isinstance(found, Prepared):
                return found
            tried, wanted = tried + 1, -(-split.instances * GROWTH[0] // GROWTH[1])
            if len(layers) > 1 and tried == MOST_TRIES:
                break
        assert found is not None  # the finest cut is always tried
        return found

    def run_step(self, group: Group, spread: Spread, instance: int, scope: str) -> RunStep:
        """The step that runs an instance on the first cores: as many as its output or an exchange has pieces."""
        box = instance_box(self.ctx.graph, group, group.output, instance)
        most = max(prod(pieces) for pieces in (spread.pieces, *(exchange.pieces for exchange in group.exchanges)))
        cores = min(self.ctx.chip.cores_per_cluster, most)
        exports = tuple((name, scope) for name in group.outputs(self.ctx.graph) if name != group.output)
        return RunStep(group.name, instance, box, scope, Binding(spread.pieces, tuple(range(cores))), exports)

    def _typical(self, layers: tuple[Layer, ...], split: Split) -> tuple[int, ...]:
        """Instances that stand for all: one where images are cut evenly and each instance reads only its own; else the
        first, the last and some in between, as where images are padded."""
        lengths = {high - low for _, points in split.cuts for low, high in pairwise(points)}
        images = len(lengths) == 1 and all(axis == 0 for axis, _ in split.cuts)
        if split.instances == 1 or (images and self.ctx.footprints.along(layers, 0).is_linear):
            return (split.instances // 2,)
        last = split.instances - 1
        return tuple(sorted({last * part // (MOST_TYPICAL - 1) for part in range(MOST_TYPICAL)}))

    def _prepare(self, layers: tuple[Layer, ...], split: Split) -> Prepared | Infeasible:
        ordered = self.ctx.footprints.ordered(layers)
        group = Group(layers[-1].name, ordered, split)
        middle = split.instances // 2
        box: Box = instance_box(self.ctx.graph, group, group.output, middle)
        spread = self.spreader.spread(group.name, ordered, box)
        group = replace(group, exchanges=spread.exchanges)
        spills: list[Decision] = []
        while True:
            layout = self._laid_out(group, spread)
            if not isinstance(layout, Infeasible):
                self._require_whole_views(group, spread)
                return Prepared(group, spread, layout, tuple(spills))
            if self.policy is None:
                return layout
            walk = walked((group,), self._alone(group, spread), self.ctx, group.inputs(self.ctx.graph))
            found = spill_one(walk, group, spread.pieces, layout, self.policy)
            if found is None:
                return layout
            group, reason = found
            spills.append(reason)

    def _alone(self, group: Group, spread: Spread) -> tuple[RunStep, ...]:
        """Typical instances of a group, everything outside it in the main memory."""
        numbers = self._typical(group.layers, group.split)
        return tuple(self.run_step(group, spread, number, self.ctx.roles.main) for number in numbers)

    def _require_whole_views(self, group: Group, spread: Spread) -> None:
        """Raises PlanError where an instance that no typical one stands for cuts what a view of the group renames."""
        graph = self.ctx.graph
        inside = {layer.output for layer in group.layers}
        views = [layer for layer in group.layers if layer.is_view(graph)]
        if not any(layer.anchor(graph).inputs[0] in inside for layer in views):
            return
        typical = self._typical(group.layers, group.split)
        if len(typical) == 1:
            return
        others = sorted(set(range(group.split.instances)) - set(typical))
        steps = tuple(self.run_step(group, spread, number, self.ctx.roles.main) for number in others)
        walked((group,), steps, self.ctx, group.inputs(graph))

    def _laid_out(self, group: Group, spread: Spread) -> Layout | Infeasible:
        options = LayoutOptions(in_main=group.inputs(self.ctx.graph))
        return fit_group(group, self._alone(group, spread), self.ctx, options)
