"""Instances of all groups and the data that flow between them: the graph that is ordered.

    groups, cut and spread --> one instance per piece --> edges where what one reads meets what another gives

Two instances of connected groups have no edge where one does not read what the other gives (other images, say).
"""

from __future__ import annotations

from dataclasses import dataclass

from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group
from partitioner.ir.regions import Box, box_size, common, empty_box, full_box, holds, join
from partitioner.ir.steps import RunStep, ViewStep
from partitioner.ordering.cost import InstanceNode
from partitioner.planners.o0 import view_step
from partitioner.planners.o3_split_search import Prepared, SplitSearch
from partitioner.tiling.core_regions import CoreBoxes, core_boxes


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a prepared group (None for a view) with the boxes of each of its cores."""

    group: Group
    prepared: Prepared | None
    step: RunStep | ViewStep
    cores: tuple[CoreBoxes, ...]


def instances_of(search: SplitSearch, made: list[Prepared | Layer]) -> list[Instance]:
    graph, main = search.ctx.graph, search.ctx.roles.main
    instances: list[Instance] = []
    for entry in made:
        if isinstance(entry, Layer):
            instances.append(Instance(Group(entry.name, (entry,)), None, view_step(graph, entry, main), ()))
            continue
        for number in range(entry.group.split.instances):
            step = search.run_step(entry.group, entry.spread, number, main)
            instances.append(Instance(entry.group, entry, step, core_boxes(search.ctx, entry.group, step)))
    return instances


def _needs(graph: Graph, instance: Instance) -> dict[str, Box]:
    """The box of each outside value that an instance reads, all cores together."""
    if instance.prepared is None:
        return {name: full_box(graph.by_name[name].shape) for name in instance.group.inputs(graph)}
    needs: dict[str, Box] = {}
    for name in instance.group.inputs(graph):
        for part in instance.cores:
            if name in part.needed:
                needs[name] = join(needs[name], part.needed[name]) if name in needs else part.needed[name]
    return needs


def _gives(graph: Graph, instance: Instance) -> dict[str, Box]:
    """The box of each output of its group that an instance gives."""
    if instance.prepared is None:
        return {instance.group.output: instance.step.box}
    gives: dict[str, Box] = {}
    for name in instance.group.outputs(graph):
        box = empty_box(len(graph.by_name[name].shape))
        for part in instance.cores:
            if name in part.owned:
                box = join(box, part.owned[name])
        gives[name] = box
    return gives


@dataclass(frozen=True, slots=True)
class InstanceFlow:
    """Instances and the data that flow between them: for each reader and value the makers that it reads, and the ends
    of all edges; `nodes` hold what ordering must know."""

    instances: tuple[Instance, ...]
    nodes: tuple[InstanceNode, ...]
    sources: dict[tuple[int, str], tuple[int, ...]]
    needs: tuple[dict[str, Box], ...]
    forced: frozenset[int]

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        return tuple(dict.fromkeys((n, reader) for (reader, _), found in self.sources.items() for n in found))


def flow_of(ctx: PlanContext, instances: list[Instance]) -> InstanceFlow:
    """The flow, with an edge where a reader's box meets the box that a maker gives; redundant edges are not made."""
    graph = ctx.graph
    gives = [_gives(graph, instance) for instance in instances]
    needs = tuple(_needs(graph, instance) for instance in instances)
    makers: dict[str, list[int]] = {}
    for number, given in enumerate(gives):
        for name in given:
            makers.setdefault(name, []).append(number)
    sources = {
        (number, name): tuple(maker for maker in makers.get(name, ()) if box_size(common(gives[maker][name], box)))
        for number, needed in enumerate(needs)
        for name, box in needed.items()
    }
    inside = {op for i in instances if i.prepared is not None for layer in i.group.layers for op in layer.ops}
    forced = {
        number
        for name, numbers in makers.items()
        if name in graph.outputs or any(op.is_view and op.name not in inside for op in graph.consumers[name])
        for number in numbers
    }
    nodes = tuple(
        InstanceNode(
            f"{instance.group.name}.{instance.step.instance}",
            min(ctx.roles.local_bytes, instance.prepared.local_bytes) if instance.prepared else 0,
            _core_bytes(graph, instance),
            sum(box_size(box) * graph.by_name[name].item_bytes for name, box in given.items()),
        )
        for instance, given in zip(instances, gives, strict=True)
    )
    return InstanceFlow(tuple(instances), nodes, sources, needs, frozenset(forced))


def _core_bytes(graph: Graph, instance: Instance) -> int:
    return max(
        (
            sum(box_size(box) * graph.by_name[name].item_bytes for name, box in part.owned.items())
            for part in instance.cores
        ),
        default=0,
    )


def in_place(flow: InstanceFlow, found: tuple[int, ...], reader: Instance, name: str) -> bool:
    """Whether each core of the reader itself made everything that it reads."""
    if len(found) != 1:
        return False
    made, read = flow.instances[found[0]].step, reader.step
    if isinstance(read, ViewStep):
        return False
    if isinstance(made, ViewStep):  # no core made it: one core that reads it alone finds it where its source lies
        return read.binding.cores == (0,)
    if made.binding.cores[: len(reader.cores)] != read.binding.cores:
        return False
    makers = flow.instances[found[0]].cores
    return all(
        name not in mine.needed or (name in its.owned and holds(its.owned[name], mine.needed[name]))
        for mine, its in zip(reader.cores, makers, strict=False)
    )
