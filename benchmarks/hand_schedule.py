"""The vendor's published hand schedule of ResNet-50 for this chip, as a plan: four stages in 8, 4, 2 and 1 instances.

    ResNet-50 at 16 images a cluster --stage ends, published order and scopes--> Plan --lay_out--> fits or does not

The order, the shapes of the bindings (images, then rows of an image) and the memory of each waiting output are those of
the published table. Which cores hold which images is not: pieces go to cores row-major. Inside a group, values that are
read by windows are exchanged between cores, so that nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from hw_models.chip import Chip
from hw_models.errors import UserError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Exchange, Group, Plan, Split
from partitioner.ir.steps import Binding, MoveStep, RunStep, Step
from partitioner.ir.target import PlanTarget
from partitioner.memory.memory_plan import lay_out
from partitioner.tiling.core_regions import instance_box
from partitioner.verification.verify_plan import verify_plan

__all__ = ["FINER", "PUBLISHED", "Variant", "hand_plans"]

IMAGES = 16
STAGE_ROWS = (56, 28, 14)
"""Rows of the feature maps that end the first three stages."""

PUBLISHED = (8, 4, 2, 1)
FINER = (8, 8, 4, 2)


@dataclass(frozen=True, slots=True)
class Variant:
    """One reading of the schedule. `refusal` says why it cannot run (empty for one that can), `plan` what was tried."""

    name: str
    plan: Plan
    refusal: str


def hand_plans(graph: Graph, chip: Chip, target: PlanTarget) -> tuple[Variant, ...]:
    """The schedule as published, then with all waiting outputs in the shared or the main memory, then cut finer, each
    with groups that end with the stages or behind the first block of the next."""
    ctx = PlanContext(graph, {}, chip, target)
    variants = []
    for ends, blocks in (("at stage ends", 0), ("behind the first block of the next stage", 1)):
        stages = _stages(graph, ctx.layers, blocks)
        for factors in (PUBLISHED, FINER):
            for where, scopes in (
                ("as published", ("LLB", "L1")),
                ("all waiting in LLB", ("LLB", "LLB")),
                ("all waiting in DDR", ("DDR", "DDR")),
            ):
                name = f"{'/'.join(map(str, factors))} {ends}, {where}"
                plan = _plan(ctx, stages, factors, scopes)
                variants.append(Variant(name, plan, _refusal(plan, ctx)))
    return tuple(variants)


def _refusal(plan: Plan, ctx: PlanContext) -> str:
    try:
        verify_plan(plan, ctx)
        lay_out(plan, ctx)
    except UserError as error:
        return str(error)
    return ""


def _stages(graph: Graph, layers: tuple[Layer, ...], blocks: int) -> tuple[tuple[Layer, ...], ...]:
    """Layers in four groups: the first three end with the last feature map of their size, or `blocks` blocks later."""
    sums = [
        number for number, layer in enumerate(layers) if any(graph.op_by_name[name].kind == "add" for name in layer.ops)
    ]
    rows = {number: graph.by_name[layers[number].output].shape[1] for number in sums}
    ends = []
    for extent in STAGE_ROWS:
        last = max(number for number in sums if rows[number] == extent)
        ends.append(sums[sums.index(last) + blocks] + 1)
    return tuple(layers[a:b] for a, b in pairwise((0, *ends, len(layers))))


def _plan(
    ctx: PlanContext, stages: Sequence[tuple[Layer, ...]], factors: Sequence[int], scopes: tuple[str, str]
) -> Plan:
    graph = ctx.graph
    groups: list[Group] = []
    for stage, factor in zip(stages, factors, strict=True):
        ordered = ctx.footprints.ordered(stage)
        split = Split(((0, tuple(IMAGES * i // factor for i in range(factor + 1))),)) if factor > 1 else Split()
        group = Group(ordered[-1].name, ordered, split)
        groups.append(replace(group, exchanges=tuple(_exchanges(graph, group, ctx.chip))))
    steps = tuple(_steps(graph, ctx.chip, groups, scopes))
    return Plan(graph.name, "hand", graph.hash, ctx.chip.hash, IMAGES, tuple(groups), steps, ())


def _pieces(graph: Graph, tensor: str, instances: int, chip: Chip) -> tuple[int, ...]:
    """Images of an instance over the cores; where there are fewer images than cores, rows of each image too."""
    rank = len(graph.by_name[tensor].shape)
    images = min(chip.cores_per_cluster, IMAGES // instances)
    return (images, chip.cores_per_cluster // images, 1, 1) if rank == len(("n", "y", "x", "c")) else (images, 1)


def _exchanges(graph: Graph, group: Group, chip: Chip) -> Iterator[Exchange]:
    """Values of which a core reads rows beyond its own."""
    for layer in group.layers[:-1]:
        pieces = _pieces(graph, layer.output, group.split.instances, chip)
        readers = [other for other in group.layers if layer.output in other.inputs(graph)]
        if pieces[1] > 1 and any(_window(graph, reader) for reader in readers):
            yield Exchange(layer.output, pieces)


def _window(graph: Graph, layer: Layer) -> bool:
    attributes = dict(layer.anchor(graph).attributes)
    return attributes.get("kernel", (1, 1)) != (1, 1)


def _steps(graph: Graph, chip: Chip, groups: Sequence[Group], scopes: tuple[str, str]) -> Iterator[Step]:
    """Depth first: an instance runs as soon as all that it reads is there. Of the instances that one reader gathers all
    but the last wait in the first of `scopes`, the last in the second."""

    def produce(stage: int, number: int) -> Iterator[Step]:
        group = groups[stage]
        box = instance_box(graph, group, group.output, number)
        pieces = _pieces(graph, group.output, group.split.instances, chip)
        binding = Binding(pieces, tuple(range(prod(pieces))))
        last = stage == len(groups) - 1
        wait = "DDR"
        if not last:
            reads = group.split.instances // groups[stage + 1].split.instances
            wait = scopes[0] if number % reads < reads - 1 else scopes[1]
        if stage:
            count = groups[stage - 1].split.instances // group.split.instances
            for before in range(number * count, (number + 1) * count):
                yield from produce(stage - 1, before)
            if scopes[1] == "L1":
                yield MoveStep("concat", group.name, number, box, "L1", binding, groups[stage - 1].output)
        yield RunStep(group.name, number, box, wait, binding)

    for number in range(groups[-1].split.instances):
        yield from produce(len(groups) - 1, number)
