"""Groups of layers in instances of given images: a plan of O3 for another batch, applied to this one.

    groups, images of each instance --spread each size, lay it out alone--> instances --order, scopes--> Plan

O3 asks for instances of equal size, so for batches that no power of two divides its rules refuse merges that a
neighbouring batch has. Here the groups are given, and instances of one group may have several sizes, each spread over
the cores in its own way: 12 images are 8, one image per core, and 4, each over two cores. So a batch can also be put
together of parts: 24 images run as 16 and 8 in one program, in which the constants of the second part are read ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from math import prod

from hw_models.errors import ModelError, PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Exchange, Group, Plan, Split
from partitioner.memory.memory_plan import fit_group
from partitioner.memory.memory_plan_types import LayoutOptions
from partitioner.memory.no_plan import Forbidden, NoPlan, catch_forbidden, require_plan
from partitioner.planners.levels import IMAGES, ImageGroup
from partitioner.planners.o3 import MOST_INSTANCES, ordered_plan, require_few
from partitioner.planners.o3_core_mapping import Spread, Spreader
from partitioner.planners.o3_instance_graph import Instance, instances_of
from partitioner.planners.o3_split_search import Prepared, SplitSearch
from partitioner.tiling.core_regions import core_boxes, instance_box


def in_image_groups(ctx: PlanContext, groups: Sequence[ImageGroup]) -> Plan:
    """The plan of these groups. Raises ModelError for groups that are not the network's layers or whose images are not
    the batch, DoesNotFit, and PlanError for a group that cannot be cut this way."""
    _require_whole(ctx, groups)
    return require_plan(fit_image_groups(ctx, groups))


def fit_image_groups(ctx: PlanContext, groups: Sequence[ImageGroup]) -> Plan | NoPlan:
    """The plan of these groups, or the reason why there is none."""
    return _fitted(_Sizes(ctx), groups)


def _fitted(sizes: _Sizes, groups: Sequence[ImageGroup]) -> Plan | NoPlan:
    ctx = sizes.ctx
    instances: list[Instance] = []
    decisions = list(ctx.layer_decisions)
    require_few(ctx.graph, sum(_instances(group) for group in groups))
    for each in groups:
        layers = sizes.layers(each)
        if all(layer.is_view(ctx.graph) for layer in layers):
            instances += instances_of(sizes.search, list(layers))
            continue
        found: dict[int, Prepared] = {}
        for images in dict.fromkeys(each.images):
            prepared = sizes.prepared(each, images)
            if not isinstance(prepared, Prepared):
                return prepared
            found[images] = prepared
        made, reasons = _of_group(sizes, each, found)
        instances += made
        decisions += reasons
    return ordered_plan(ctx, instances, tuple(decisions), IMAGES)


def plan_like(ctx: PlanContext, plan: Plan) -> tuple[tuple[ImageGroup, ...], Plan | NoPlan] | None:
    """The groups of a plan for another batch, each with the division of this batch into instances that takes the fewest
    cycles, none with more images than in that plan; and their plan. None where a group cannot be cut into images, or
    none of its sizes fits."""
    sizes = _Sizes(ctx)
    groups = _groups_like(sizes, plan)
    return None if groups is None else (groups, _fitted(sizes, groups))


def _groups_like(sizes: _Sizes, plan: Plan) -> tuple[ImageGroup, ...] | None:
    ctx = sizes.ctx
    found: list[ImageGroup] = []
    share = ctx.graph.by_name[ctx.graph.inputs[0]].shape[0] if ctx.graph.inputs else 0
    for group in plan.groups:
        names, cuts = tuple(layer.name for layer in group.layers), dict(group.split.cuts)
        inner = tuple((axis, points) for axis, points in group.split.cuts if axis)
        if any(name not in sizes.by_name for name in names):
            return None
        batch = _batch(ctx, group.output)
        if all(sizes.by_name[name].is_view(ctx.graph) for name in names):
            found.append(ImageGroup(names, (batch,)))
            continue
        if batch != share or batch > MOST_INSTANCES:
            return None
        there = cuts.get(0, (0, plan.batch_per_cluster))
        most = min(batch, max(high - low for low, high in pairwise(there)))
        one = ImageGroup(names, (), inner)
        costs = {n: sizes.cycles(one, n) for n in sizes_to_try(batch, most)}
        division = cheapest_division(batch, {n: cost for n, cost in costs.items() if cost is not None})
        if division is None:
            return None
        found.append(replace(one, images=division))
    return tuple(found)


def sizes_to_try(batch: int, most: int) -> tuple[int, ...]:
    """Numbers of images per instance, up to `most`: powers of two, `most` itself and what it leaves of the batch, and
    equal parts."""
    powers = (1 << n for n in range(most.bit_length()))
    found = {*powers, most, batch % most, -(-batch // -(-batch // most))}
    return tuple(sorted(found - {0}))


def cheapest_division(batch: int, costs: Mapping[int, float]) -> tuple[int, ...] | None:
    """A batch as the sum of sizes, each with its cost, of least total cost; ties go to the fewest parts. The largest
    come first. None where no sum is the batch."""
    best: list[tuple[float, int, int] | None] = [(0.0, 0, 0)]
    for total in range(1, batch + 1):
        ways = []
        for size, cost in costs.items():
            before = best[total - size] if size <= total else None
            if before is not None:
                ways.append((before[0] + cost, before[1] + 1, size))
        best.append(min(ways, default=None))
    found: list[int] = []
    while batch and (way := best[batch]) is not None:
        found.append(way[2])
        batch -= way[2]
    return None if batch else tuple(sorted(found, reverse=True))


class _Sizes:
    """Instances of groups by their number of images, each spread and laid out alone, once."""

    def __init__(self, ctx: PlanContext) -> None:
        self.ctx = ctx
        self.by_name = {layer.name: layer for layer in ctx.layers}
        self.search, self.outer = SplitSearch(ctx, Spreader(ctx)), Spreader(ctx, outer_only=True)
        self.known: dict[tuple[ImageGroup, int], Prepared | NoPlan] = {}

    def layers(self, each: ImageGroup) -> tuple[Layer, ...]:
        return tuple(self.by_name[name] for name in each.layers)

    def cycles(self, each: ImageGroup, images: int) -> float | None:
        """Cycles of all instances with this many images, one for each piece of the other axes."""
        prepared = self.prepared(each, images)
        return prepared.spread.cycles * _pieces(each) if isinstance(prepared, Prepared) else None

    def prepared(self, each: ImageGroup, images: int) -> Prepared | NoPlan:
        key = replace(each, images=()), images
        if key not in self.known:
            self.known[key] = catch_forbidden(partial(self._prepare, each, images))
        return self.known[key]

    def _prepare(self, each: ImageGroup, images: int) -> Prepared | NoPlan:
        """The fastest spread of an instance that finds room when it runs alone."""
        ordered = self.ctx.footprints.ordered(self.layers(each))
        batch = _batch(self.ctx, ordered[-1].output)
        points = (0, batch) if images == batch else (0, images, batch)
        split = Split(((0, points), *each.inner) if len(points) > 2 else each.inner)
        group = Group(each.layers[-1], ordered, split)
        if not self.ctx.footprints.along(ordered, 0).is_linear:
            return Forbidden(
                PlanError(
                    f"group {group.name}",
                    needs="images that are computed independently",
                    has="images that depend on each other",
                )
            )
        found: NoPlan | None = None
        middle = _pieces(each) // 2
        for spread in self._spreads(group, middle):
            spreaded = replace(group, exchanges=spread.exchanges)
            numbers = sorted({0, middle, _pieces(each) - 1})
            steps = tuple(self.search.run_step(spreaded, spread, number, self.ctx.roles.main) for number in numbers)
            layout = fit_group(spreaded, steps, self.ctx, LayoutOptions(in_main=group.inputs(self.ctx.graph)))
            if not isinstance(layout, NoPlan):
                return Prepared(spreaded, spread, layout)
            found = layout
        assert found is not None  # there is at least one spread
        return found

    def _spreads(self, group: Group, instance: int) -> Iterator[Spread]:
        """Spreads of an instance over the cores: the one with the fewest cycles, then the one that takes the least
        room."""
        box = instance_box(self.ctx.graph, group, group.output, instance)
        for spreader in (self.search.spreader, self.outer):
            yield spreader.spread(group.name, group.layers, box)


def _of_group(
    sizes: _Sizes, each: ImageGroup, found: dict[int, Prepared]
) -> tuple[list[Instance], tuple[Decision, ...]]:
    """The instances of a group, and the decisions behind them."""
    ctx, first = sizes.ctx, found[each.images[0]].group
    inner = _pieces(each)
    points = (0, *accumulate(each.images))
    split = Split(((0, points), *each.inner) if len(points) > 2 else each.inner)
    numbers = {
        images: tuple(
            n * inner + piece for n, other in enumerate(each.images) if other == images for piece in range(inner)
        )
        for images in found
    }
    exchanges = tuple(
        replace(exchange, instances=numbers[images] if len(found) > 1 else ())
        for images, prepared in found.items()
        for exchange in prepared.group.exchanges
        if isinstance(exchange, Exchange)
    )
    group = replace(first, split=split, exchanges=exchanges)
    instances = []
    for number in range(split.instances):
        one = found[each.images[number // inner]]
        alone = replace(group, exchanges=group.exchanges_of(number))
        step = sizes.search.run_step(alone, one.spread, number, ctx.roles.main)
        instances.append(Instance(group, one, step, core_boxes(ctx, group, step)))
    counts = ", ".join(f"{each.images.count(images)} of {images}" for images in found)
    costs = ", ".join(f"{prepared.spread.cycles:,.0f} for {images}" for images, prepared in found.items())
    made = Decision(group.name, f"instances by their images: {counts}", f"cycles when nothing overlaps: {costs}")
    return instances, (made, *(reason for prepared in found.values() for reason in prepared.spread.decisions))


def _instances(each: ImageGroup) -> int:
    return len(each.images) * _pieces(each)


def _pieces(each: ImageGroup) -> int:
    """Number of instances of the same images."""
    return prod(len(points) - 1 for _, points in each.inner)


def _batch(ctx: PlanContext, output: str) -> int:
    return ctx.graph.by_name[output].shape[0]


def _require_whole(ctx: PlanContext, groups: Sequence[ImageGroup]) -> None:
    names = [name for group in groups for name in group.layers]
    if sorted(names) != sorted(layer.name for layer in ctx.layers):
        raise ModelError(
            "groups of images",
            needs=f"each of the {len(ctx.layers)} layers of {ctx.graph.name} once",
            has=f"{len(names)} layers",
        )
    for group in groups:
        batch = _batch(ctx, {layer.name: layer for layer in ctx.layers}[group.layers[-1]].output)
        if sum(group.images) != batch or min(group.images) < 1:
            raise ModelError(
                f"group {group.layers[-1]}", needs=f"instances of {batch} images in all", has=f"{list(group.images)}"
            )
