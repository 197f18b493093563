"""Level O3: groups as large as local memory allows, cut into instances, ordered so that data stay close.

    layers --grouping--> groups --cut, spread--> instances --order, scopes--> steps --layout--> Plan

Each stage is a module of its own; this one puts them together and mends what the layout refuses: a value that finds no
room goes to the next memory outward, a group whose instances do not fit is cut finer or in two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hw_models.chip import Chip
from hw_models.errors import DoesNotFit, UserError, size_text
from hw_models.routes import main_memory, staging_memory
from partitioner.decisions import Decision
from partitioner.graph import Graph
from partitioner.grouping import group_layers_into_subgraphs
from partitioner.halo import halo_veto
from partitioner.instance import CoreBoxes
from partitioner.layers import Layer, group_layers
from partitioner.layout import Layout, lay_out
from partitioner.ordering import choose_order
from partitioner.ordering_cost import InstanceGraph, Node, Room
from partitioner.plan import Binding, Group, Plan, Step, verify_plan
from partitioner.regions import Box, box_size, common, empty_box, full_box, holds, join
from partitioner.split import SplitOptions, Splitter
from partitioner.target import PlanTarget
from partitioner.workshop import Prepared, Workshop

__all__ = ["plan_instances"]

STAGING_SHARES = 8
"""Room for waiting values is tried in steps of one part in this many of the staging memory; constants that stay leave
as much for those on their way."""

LESS_ROOM = (3, 4)
"""A group that finds no room is grouped again for this share of the capacity."""


@dataclass(frozen=True, slots=True)
class _Instance:
    """An instance of a prepared group (None for a view) with what each of its cores does."""

    group: Group
    prepared: Prepared | None
    step: Step
    cores: tuple[CoreBoxes, ...]


def plan_instances(graph: Graph, chip: Chip, target: PlanTarget) -> Plan:
    """The plan of level O3. Raises DoesNotFit when even single layers find no room however they are cut."""
    layers, decisions = group_layers(graph, target.can_trail)
    workshop = Workshop.of(graph, chip, target)
    made, reasons = _groups(workshop, layers, workshop.local_bytes * chip.cores_per_cluster)
    decisions = (*decisions, *reasons)
    instances = _instances(workshop, made)
    return _ordered_plan(workshop, instances, decisions)


def _groups(
    workshop: Workshop, layers: tuple[Layer, ...], capacity_bytes: int
) -> tuple[list[Prepared | Layer], list[Decision]]:
    """Groups by the published patterns for a capacity, each cut as coarsely as it really fits. One that fits with no
    cut is grouped again as if there were less room."""
    graph = workshop.graph
    splitter = Splitter(workshop.footprints, capacity_bytes, SplitOptions(uneven=True, most_axes=2), workshop.quanta)
    too_much_twice = halo_veto(workshop.footprints, splitter.best, workshop.chip, workshop.local.memory)
    groups, decisions = group_layers_into_subgraphs(
        graph, layers, splitter.best, lambda found: _ends_badly(graph, found) or too_much_twice(found)
    )
    reasons = list(decisions)
    made: list[Prepared | Layer] = []
    for group in groups:
        if all(layer.anchor(graph).kind == "view" for layer in group):
            made += group
            continue
        best = splitter.best(group)
        try:
            prepared = workshop.coarsest(group, best.instances if best else 1)
        except UserError as error:
            if len(group) == 1:
                raise
            smaller = capacity_bytes * LESS_ROOM[0] // LESS_ROOM[1]
            reasons.append(Decision(group[-1].name, f"grouped again for {size_text(smaller)}", str(error)))
            parts, more = _groups(workshop, group, smaller)
            made += parts
            reasons += more
            continue
        count = prepared.group.split.instances
        held = f"{size_text(prepared.local_bytes)} on a core beside tile buffers"
        reasons.append(Decision(prepared.group.name, f"{count} instances", f"the fewest that find room: {held}"))
        reasons += prepared.spread.decisions
        made.append(prepared)
    return made, reasons


def _ends_badly(graph: Graph, layers: tuple[Layer, ...]) -> str | None:
    if layers[-1].anchor(graph).kind == "view":
        return f"{layers[-1].name} is a view: a group ends with what it computes"
    return None


def _instances(workshop: Workshop, made: list[Prepared | Layer]) -> list[_Instance]:
    graph, staging = workshop.graph, main_memory(workshop.chip)
    instances: list[_Instance] = []
    for entry in made:
        if isinstance(entry, Layer):
            box = full_box(graph.by_name[entry.output].shape)
            step = Step("view", entry.name, 0, box, staging, Binding((1,) * len(box), (0,)))
            instances.append(_Instance(Group(entry.name, (entry,)), None, step, ()))
            continue
        for number in range(entry.group.split.instances):
            step = workshop.run_step(entry.group, entry.spread, number, staging)
            instances.append(_Instance(entry.group, entry, step, workshop.cores(entry.group, step)))
    return instances


def _needs(graph: Graph, instance: _Instance) -> dict[str, Box]:
    """What an instance reads of each value from outside, all cores together."""
    if instance.prepared is None:
        return {name: full_box(graph.by_name[name].shape) for name in instance.group.inputs(graph)}
    needs: dict[str, Box] = {}
    for name in instance.group.inputs(graph):
        for part in instance.cores:
            if name in part.needed:
                needs[name] = join(needs[name], part.needed[name]) if name in needs else part.needed[name]
    return needs


def _gives(graph: Graph, instance: _Instance) -> dict[str, Box]:
    """What an instance gives of each output of its group."""
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
class _Flow:
    """Instances and what flows between them: for each reader and value the makers that it reads, and the ends of all
    edges; `nodes` are what ordering must know."""

    instances: tuple[_Instance, ...]
    nodes: tuple[Node, ...]
    sources: dict[tuple[int, str], tuple[int, ...]]
    needs: tuple[dict[str, Box], ...]
    forced: frozenset[int]

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        return tuple(dict.fromkeys((n, reader) for (reader, _), found in self.sources.items() for n in found))


def _flow(workshop: Workshop, instances: list[_Instance]) -> _Flow:
    """Edges where a reader's box meets what a maker gives; redundant ones never come to be."""
    graph = workshop.graph
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
        if name in graph.outputs or any(op.kind == "view" and op.name not in inside for op in graph.consumers[name])
        for number in numbers
    }
    nodes = tuple(
        Node(
            f"{instance.group.name}.{instance.step.instance}",
            min(workshop.local_bytes, instance.prepared.local_bytes) if instance.prepared else 0,
            _core_bytes(graph, instance),
            sum(box_size(box) * graph.by_name[name].item_bytes for name, box in given.items()),
        )
        for instance, given in zip(instances, gives, strict=True)
    )
    return _Flow(tuple(instances), nodes, sources, needs, frozenset(forced))


def _ordered_plan(workshop: Workshop, instances: list[_Instance], decisions: tuple[Decision, ...]) -> Plan:
    """Order, scopes and steps; where the layout refuses, less may wait in local memories and then in staging."""
    chip = workshop.chip
    flow = _flow(workshop, instances)
    main = main_memory(chip)
    staging = staging_memory(chip, workshop.local.memory)
    reasons = list(decisions)
    kept = 0 if staging == main else chip.memory(staging).size_bytes
    for waiting, staging_bytes in _attempts(kept):
        room = Room(workshop.local_bytes, staging_bytes)
        choice = choose_order(InstanceGraph(_waiting_nodes(flow, waiting, room), flow.edges), room)
        costs = ", ".join(f"{found.name} {found.cost}" for found in choice.candidates)
        names = {"local": workshop.local.memory, "staging": staging, "main": main}
        scopes = [main if n in flow.forced else names[scope] for n, scope in enumerate(choice.best.scopes)]
        _agree(flow, scopes, main)
        chosen = Decision(
            "order",
            choice.best.name,
            f"weighted bytes that wait outside local memories; {waiting} may wait in {workshop.local.memory}, "
            f"others in {size_text(staging_bytes)} of {staging}: {costs}",
        )
        plan = _plan(workshop, flow, choice.best.order, scopes, (*reasons, chosen))
        try:
            layout = lay_out(plan, workshop.graph, chip, workshop.target, workshop.tiler)
        except UserError as error:
            refusal = error
            reasons.append(Decision("order", "tried again with less room for waiting values", str(error)))
            continue
        verify_plan(plan, workshop.graph, chip)
        return _with_pins(workshop, plan, layout)
    raise refusal


ALL, IN_PLACE, NONE = "all values", "values whose readers use them in place", "no values"


def _attempts(staging_bytes: int) -> Iterator[tuple[str, int]]:
    """What may wait in local memories, and the room in staging: all there is first, then less and less."""
    yield ALL, staging_bytes
    yield IN_PLACE, staging_bytes
    for part in range(STAGING_SHARES, -1, -1):
        yield NONE, staging_bytes * part // STAGING_SHARES


def _waiting_nodes(flow: _Flow, waiting: str, room: Room) -> tuple[Node, ...]:
    """The nodes as ordering sees them: an output that may not wait locally is larger than any local memory."""
    if waiting == ALL:
        return flow.nodes
    moved = set(range(len(flow.nodes)))
    if waiting == IN_PLACE:
        in_place = dict.fromkeys(moved, True)
        for (reader, name), found in flow.sources.items():
            for n in found:
                in_place[n] &= _in_place(flow, found, flow.instances[reader], name)
        moved = {n for n in moved if not in_place[n]}
    return tuple(
        replace(node, output_bytes=room.local_bytes + 1) if n in moved else node for n, node in enumerate(flow.nodes)
    )


def _with_pins(workshop: Workshop, plan: Plan, layout: Layout) -> Plan:
    """Constants that several instances read stay in the staging memory while there is room beside all else."""
    graph = workshop.graph
    steps = [
        (step, entries) for step, entries in zip(plan.steps, layout.steps, strict=True) if isinstance(entries, tuple)
    ]
    spans: dict[str, tuple[int, int]] = {}
    for position, (step, entries) in enumerate(steps):
        if entries:
            spans[step.group] = (spans.get(step.group, (position, position))[0], position)
    reserve = workshop.chip.memory(layout.staging).size_bytes // STAGING_SHARES
    pinned: list[str] = []
    reasons: list[Decision] = []
    taken = [0] * len(steps)
    for group in sorted(plan.groups, key=lambda group: -group.split.instances):
        if group.split.instances < 2 or group.name not in spans:
            continue
        first, last = spans[group.name]
        room = (
            min(
                (
                    entry.staging[1] - taken[position]
                    for position in range(first, last + 1)
                    for entry in steps[position][1]
                ),
                default=0,
            )
            - reserve
        )
        names = dict.fromkeys(
            name for layer in group.layers for name in layer.inputs(graph) if graph.by_name[name].constant
        )
        used = 0
        for name in sorted(names, key=lambda name: -graph.by_name[name].size_bytes):
            size = graph.by_name[name].size_bytes
            if size > 0 and used + size <= room and name not in pinned:
                pinned.append(name)
                used += size
        for position in range(first, last + 1):
            taken[position] += used
        if used:
            reasons.append(
                Decision(
                    group.name,
                    f"{size_text(used)} of constants stay in {layout.staging}",
                    f"{group.split.instances} instances read them; {size_text(max(0, room))} are free while they run",
                )
            )
    kept = replace(plan, pinned=tuple(sorted(pinned)), decisions=(*plan.decisions, *reasons))
    try:
        lay_out(kept, graph, workshop.chip, workshop.target, workshop.tiler)
    except DoesNotFit as error:
        return replace(
            plan, decisions=(*plan.decisions, Decision("constants", "read again by each instance", str(error)))
        )
    return kept


def _agree(flow: _Flow, scopes: list[str], main: str) -> None:
    """What one reader reads of one value is all in the main memory or none of it."""
    changed = True
    while changed:
        changed = False
        for found in flow.sources.values():
            if any(scopes[n] == main for n in found) and not all(scopes[n] == main for n in found):
                for n in found:
                    scopes[n] = main
                changed = True


def _core_bytes(graph: Graph, instance: _Instance) -> int:
    return max(
        (
            sum(box_size(box) * graph.by_name[name].item_bytes for name, box in part.owned.items())
            for part in instance.cores
        ),
        default=0,
    )


def _plan(
    workshop: Workshop, flow: _Flow, order: tuple[int, ...], scopes: list[str], decisions: tuple[Decision, ...]
) -> Plan:
    """Steps in order; a reader of values that wait in local memories is preceded by moves, unless they are in place."""
    graph, main, local = workshop.graph, main_memory(workshop.chip), workshop.local.memory
    groups = tuple({instance.group.name: instance.group for instance in flow.instances}.values())
    steps: list[Step] = []
    for number in order:
        instance = flow.instances[number]
        for name, box in flow.needs[number].items():
            found = flow.sources[number, name]
            if any(scopes[n] == local for n in found) and not _in_place(flow, found, instance, name):
                kind = (
                    "concat"
                    if len(found) > 1
                    else "redistribute"
                    if flow.nodes[found[0]].total_bytes == _size(graph, name, box)
                    else "split"
                )
                steps.append(replace(instance.step, kind=kind, box=box, scope=local, tensor=name, exports=()))
        exports = tuple((name, main) for name, _ in instance.step.exports)
        steps.append(replace(instance.step, scope=scopes[number], exports=exports))
    shape = graph.by_name[graph.inputs[0]].shape if graph.inputs else ()
    batch = shape[0] if shape else 1
    return Plan(graph.name, "O3", graph.hash, workshop.chip.hash, batch, groups, tuple(steps), decisions)


def _size(graph: Graph, name: str, box: Box) -> int:
    return box_size(box) * graph.by_name[name].item_bytes


def _in_place(flow: _Flow, found: tuple[int, ...], reader: _Instance, name: str) -> bool:
    """True when each core of the reader made itself all that it reads."""
    if len(found) != 1 or flow.instances[found[0]].step.binding.cores[: len(reader.cores)] != reader.step.binding.cores:
        return False
    makers = flow.instances[found[0]].cores
    return all(
        name not in mine.needed or (name in its.owned and holds(its.owned[name], mine.needed[name]))
        for mine, its in zip(reader.cores, makers, strict=False)
    )
