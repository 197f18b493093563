"""The check of places in the main memory for kernels that are whole groups: what a kernel reads is still there.

plan, graph, placements --steps in order, who holds which bytes--> nothing, or PlanError that names the step

Kernels run one after the other, but the blocks of one run in any order: so no kernel may write where it reads. Groups
in slices of the batch leave one slice after the other, either all of a value, each in its place, or one at a time in
the place of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hw_models.errors import PlanError
from isched.program.program import TensorPlacement
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Group, Plan
from partitioner.ir.slice_segments import slices_of
from partitioner.ir.steps import ViewStep
from partitioner.memory.main_memory_check import roots


def verify_places(plan: Plan, graph: Graph, placements: tuple[TensorPlacement, ...]) -> None:
    """Raises PlanError unless every value that a kernel reads lies where it was written, or placed before the start,
    with nothing written over it since, and every output is there at the end."""
    named = roots(graph)
    own = {place.tensor: place for place in placements if place.kind not in ("probe", "alias")}
    copies = {place.of: place for place in placements if place.kind == "probe"}
    held = {name: own[name] for name in own if graph.by_name[name].constant or name in graph.inputs}
    held |= {place.tensor: place for place in copies.values()}
    _require_apart(held.values())
    slices: dict[str, int] = {}
    for step in plan.steps:
        group = plan.group_by_name[step.group]
        if isinstance(step, ViewStep):
            continue
        read = [copies[name].tensor if name in copies else named[name] for name in _read(group, graph)]
        for name in read:
            if name not in held:
                raise PlanError(
                    f"step {step.group}", needs=f"{name}, which it reads", has="bytes that another value overwrote"
                )
            if slices.get(name, step.instance) != step.instance:
                has = f"slice {slices[name]} of it in its place"
                raise PlanError(f"step {step.group}", needs=f"slice {step.instance} of {name}, which it reads", has=has)
        for name in group.outputs(graph):
            place = own[named[name]]
            if place.size_bytes < graph.by_name[name].size_bytes:
                _require_slice(place, graph, group)
                slices[named[name]] = step.instance
            elif step.instance and named[name] not in held:
                has = "bytes that another value overwrote"
                raise PlanError(f"step {step.group}", needs=f"earlier slices of {name} in their place", has=has)
            over = [other for other in held if other != named[name] and _meet(held[other], place)]
            if reads := sorted(set(over) & set(read)):
                raise PlanError(
                    f"step {step.group}", needs=f"{name} on other bytes than what it reads", has=f"{reads[0]} there"
                )
            held = {other: kept for other, kept in held.items() if other not in over} | {named[name]: place}
    for name in graph.outputs:
        if named[name] not in held or own[named[name]].size_bytes < graph.by_name[name].size_bytes:
            raise PlanError(
                f"plan {plan.name}", needs=f"the output {name} at the end", has="bytes that another value overwrote"
            )


def _require_slice(place: TensorPlacement, graph: Graph, group: Group) -> None:
    """Require that a place that is smaller than its value has room for a slice of the group that makes it."""
    needed = graph.by_name[place.tensor].size_bytes // slices_of(group)
    if slices_of(group) == 1 or place.size_bytes != needed:
        needs = f"{needed} bytes for {place.tensor}"
        raise PlanError(f"group {group.name}", needs=needs, has=f"a place of {place.size_bytes}")


def _read(group: Group, graph: Graph) -> Iterable[str]:
    """Values that the kernel of a group reads, constants too."""
    made = {layer.output for layer in group.layers}
    return dict.fromkeys(name for layer in group.layers for name in layer.inputs(graph) if name not in made)


def _meet(a: TensorPlacement, b: TensorPlacement) -> bool:
    below, above = a.offset_bytes + a.size_bytes <= b.offset_bytes, b.offset_bytes + b.size_bytes <= a.offset_bytes
    return a.memory == b.memory and not (below or above)


def _require_apart(places: Iterable[TensorPlacement]) -> None:
    """Require that no two tensors placed before the start share bytes."""
    ordered = sorted(places, key=lambda place: (place.memory, place.offset_bytes))
    for first, second in pairwise(ordered):
        if _meet(first, second):
            raise PlanError(first.tensor, needs="bytes of its own", has=f"{second.tensor} there too")
