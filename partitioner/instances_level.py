"""Level O3: groups as large as local memory allows, cut into instances, ordered so that data stay close.

    layers --grouping--> groups --cut, spread--> instances --order, scopes--> steps --layout--> Plan

Each stage is a module of its own; this one puts them together and mends what the layout refuses: a value that finds no
room goes to the next memory outward, a group whose instances do not fit is cut finer or in two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hw_models.chip import Chip
from hw_models.errors import DoesNotFit, UserError, size_text
from hw_models.routes import main_memory, staging_memory
from partitioner.decisions import Decision
from partitioner.graph import Constants, Graph
from partitioner.grouping import group_layers_into_subgraphs
from partitioner.instance import CoreBoxes
from partitioner.layers import Layer, group_layers
from partitioner.layout import lay_out
from partitioner.ordering import choose_order
from partitioner.ordering_cost import InstanceGraph, Node, Room
from partitioner.plan import Binding, Group, Plan, Step, verify_plan
from partitioner.regions import Box, box_size, common, empty_box, full_box, join
from partitioner.split import SplitOptions, Splitter
from partitioner.target import PlanTarget
from partitioner.workshop import Prepared, Workshop

__all__ = ["plan_instances"]

STAGING_SHARE = 8
"""One part in this many of the staging memory is kept for weights and inputs on their way."""


@dataclass(frozen=True, slots=True)
class _Instance:
    """An instance of a prepared group (None for a view) with what each of its cores does."""

    group: Group
    prepared: Prepared | None
    step: Step
    cores: tuple[CoreBoxes, ...]


def plan_instances(graph: Graph, constants: Constants, chip: Chip, target: PlanTarget) -> Plan:
    """The plan of level O3. Raises DoesNotFit when even single layers find no room however they are cut."""
    del constants
    layers, decisions = group_layers(graph, target.can_trail)
    workshop = Workshop.of(graph, chip, target)
    made, reasons = _groups(workshop, layers)
    decisions = (*decisions, *reasons)
    instances = _instances(workshop, made)
    return _ordered_plan(workshop, instances, decisions)


def _groups(workshop: Workshop, layers: tuple[Layer, ...]) -> tuple[list[Prepared | Layer], tuple[Decision, ...]]:
    """Groups by the published patterns, each cut as coarsely as it fits, or into two groups where no cut does."""
    graph, chip = workshop.graph, workshop.chip
    local = workshop.local_bytes
    splitter = Splitter(
        workshop.footprints, local * chip.cores_per_cluster, SplitOptions(uneven=True, most_axes=2), workshop.quanta
    )
    groups, decisions = group_layers_into_subgraphs(
        graph, layers, splitter.best, lambda _layers: _ends_badly(graph, _layers)
    )
    reasons = list(decisions)
    made: list[Prepared | Layer] = []
    for group in groups:
        made += _fitted(workshop, splitter, group, reasons)
    return made, tuple(reasons)


def _ends_badly(graph: Graph, layers: tuple[Layer, ...]) -> str | None:
    if layers[-1].anchor(graph).kind == "view":
        return f"{layers[-1].name} is a view: a group ends with what it computes"
    return None


def _fitted(
    workshop: Workshop, splitter: Splitter, layers: tuple[Layer, ...], reasons: list[Decision]
) -> list[Prepared | Layer]:
    if all(layer.anchor(workshop.graph).kind == "view" for layer in layers):
        return list(layers)
    try:
        best = splitter.best(layers)
        prepared = workshop.coarsest(layers, best.instances if best else 1)
    except UserError as error:
        if len(layers) == 1:
            raise
        middle = len(layers) // 2
        reasons.append(Decision(layers[-1].name, "group cut in two", str(error)))
        return [
            *_fitted(workshop, splitter, layers[:middle], reasons),
            *_fitted(workshop, splitter, layers[middle:], reasons),
        ]
    reasons.append(
        Decision(prepared.group.name, f"{prepared.group.split.instances} instances",
                 f"the fewest that find room: {size_text(prepared.local_bytes)} on a core beside tile buffers")
    )  # fmt: skip
    reasons.extend(prepared.spread.decisions)
    return [prepared]


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


def _ordered_plan(workshop: Workshop, instances: list[_Instance], decisions: tuple[Decision, ...]) -> Plan:
    """Order, scopes and steps; values that the layout refuses go outward."""
    graph, chip = workshop.graph, workshop.chip
    main = main_memory(chip)
    gives = [_gives(graph, instance) for instance in instances]
    needs = [_needs(graph, instance) for instance in instances]
    makers: dict[str, list[int]] = {}
    for number, given in enumerate(gives):
        for name in given:
            makers.setdefault(name, []).append(number)
    edges: list[tuple[int, int]] = []
    readers: dict[int, list[int]] = {}
    sources: list[tuple[int, ...]] = []
    for number, needed in enumerate(needs):
        for name, box in needed.items():
            found = tuple(maker for maker in makers.get(name, ()) if box_size(common(gives[maker][name], box)))
            sources.append(found)
            edges += [(maker, number) for maker in found]
            for maker in found:
                readers.setdefault(maker, []).append(number)
    local = workshop.local_bytes
    staging = staging_memory(chip, workshop.local.memory)
    nodes = tuple(
        Node(
            f"{instance.group.name}.{instance.step.instance}",
            min(local, instance.prepared.local_bytes) if instance.prepared else 0,
            _core_bytes(graph, instance),
            sum(box_size(box) * graph.by_name[name].item_bytes for name, box in given.items()),
        )
        for instance, given in zip(instances, gives, strict=True)
    )
    room = Room(local, 0 if staging == main else chip.memory(staging).size_bytes * (STAGING_SHARE - 1) // STAGING_SHARE)
    choice = choose_order(InstanceGraph(nodes, tuple(dict.fromkeys(edges))), room)
    costs = ", ".join(f"{found.name} {found.cost}" for found in choice.candidates)
    reasons = [
        *decisions,
        Decision("order", choice.best.name, f"weighted bytes that wait outside local memories: {costs}"),
    ]
    scopes = {
        number: staging if choice.best.scopes[number] in ("local", "staging") and number in readers else main
        for number in range(len(instances))
    }
    for name, numbers in makers.items():
        viewed = any(op.kind == "view" and not _inside(instances, op.name) for op in graph.consumers[name])
        if name in graph.outputs or viewed:
            scopes.update(dict.fromkeys(numbers, main))
    _agree(sources, scopes, main)
    while True:
        plan = _plan(workshop, instances, choice.best.order, scopes, tuple(reasons))
        try:
            lay_out(plan, graph, chip, workshop.target, workshop.tiler)
        except DoesNotFit as error:
            kept = [n for n in range(len(instances)) if scopes[n] == staging]
            if not kept:
                raise
            largest = max(kept, key=lambda n: nodes[n].total_bytes)
            name = instances[largest].group.name
            for number in kept:
                if instances[number].group.name == name:
                    scopes[number] = main
            _agree(sources, scopes, main)
            reasons.append(Decision(name, f"output to {main}", str(error)))
            continue
        break
    verify_plan(plan, graph, chip)
    return plan


def _agree(sources: list[tuple[int, ...]], scopes: dict[int, str], main: str) -> None:
    """What one reader reads of one value lies in one memory: where a part is in the main memory, all of it is."""
    changed = True
    while changed:
        changed = False
        for found in sources:
            if any(scopes[n] == main for n in found) and not all(scopes[n] == main for n in found):
                scopes.update(dict.fromkeys(found, main))
                changed = True


def _inside(instances: list[_Instance], op: str) -> bool:
    """True when `op` belongs to a group that computes something: there a view is resolved in place."""
    for instance in instances:
        if any(op in layer.ops for layer in instance.group.layers):
            return instance.prepared is not None
    return False


def _core_bytes(graph: Graph, instance: _Instance) -> int:
    return max(
        (
            sum(box_size(box) * graph.by_name[name].item_bytes for name, box in part.owned.items())
            for part in instance.cores
        ),
        default=0,
    )


def _plan(
    workshop: Workshop,
    instances: list[_Instance],
    order: tuple[int, ...],
    scopes: dict[int, str],
    decisions: tuple[Decision, ...],
) -> Plan:
    graph = workshop.graph
    groups = tuple({instance.group.name: instance.group for instance in instances}.values())
    steps = []
    for number in order:
        step = instances[number].step
        exports = tuple((name, main_memory(workshop.chip)) for name, _ in step.exports)
        steps.append(replace(step, scope=scopes[number], exports=exports))
    shape = graph.by_name[graph.inputs[0]].shape if graph.inputs else ()
    return Plan(
        graph.name, "O3", graph.hash, workshop.chip.hash, shape[0] if shape else 1, groups, tuple(steps), decisions
    )
