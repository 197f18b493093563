"""The check of places in the main memory for kernels that are whole groups: what a kernel reads is still there.

plan, graph, placements --steps in order, who holds which bytes--> nothing, or PlanError that names the step

Kernels run one after the other, but the blocks of one run in any order: so no kernel may write where it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hw_models.errors import PlanError
from isched.program.program import TensorPlacement
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Group, Plan
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
        for name in group.outputs(graph):
            place = own[named[name]]
            over = [other for other in held if other != named[name] and _meet(held[other], place)]
            if reads := sorted(set(over) & set(read)):
                raise PlanError(
                    f"step {step.group}", needs=f"{name} on other bytes than what it reads", has=f"{reads[0]} there"
                )
            held = {other: kept for other, kept in held.items() if other not in over} | {named[name]: place}
    for name in graph.outputs:
        if named[name] not in held:
            raise PlanError(
                f"plan {plan.name}", needs=f"the output {name} at the end", has="bytes that another value overwrote"
            )


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
