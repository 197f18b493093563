"""Everything about one group of a plan: layers and boxes of each core, what it reads and keeps, what was decided.

Explained, name --find--> group --> GroupDetail --report.explain--> text or JSON
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from dsa_sched.analysis.explanation import Explained
from dsa_sched.analysis.explanation_data import GroupFacts
from hw_models.errors import ModelError
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Exchange, Group, Plan, Spill
from partitioner.ir.regions import Box, box_size
from partitioner.ir.steps import MoveStep, RunStep, ViewStep
from partitioner.memory.memory_plan_types import LayerLayout

if TYPE_CHECKING:
    from dsa_sched.analysis.group_footprint import GroupFootprint

SUGGESTIONS = 5


@dataclass(frozen=True, slots=True)
class LayerDetail:
    """A layer in one instance: `boxes` of its output by (core, box), empty ones left out; `lies_in` is the memory where
    the output is kept; `again` the part of its multiply-accumulates (or elements) that all instances do again."""

    name: str
    operators: tuple[str, ...]
    kinds: tuple[str, ...]
    output: str
    shape: tuple[int, ...]
    lies_in: str
    boxes: tuple[tuple[int, Box], ...]
    again: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Constant:
    """Weights that the group reads: how often they come from the main memory, 1 where once is enough for all."""

    name: str
    size_bytes: int
    loads: float
    pinned: bool


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A group that makes what this one reads, or reads what it makes: the `values` between them, and why the two are
    not one group, where that was decided.
    """

    name: str
    side: str
    values: tuple[str, ...]
    reasons: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One group for a reader. `steps` are (position in the plan, its run steps and moves); `footprint` is None for a
    group that is not cut along exactly one axis.
    """

    facts: GroupFacts
    footprint: GroupFootprint | None
    layers: tuple[LayerDetail, ...]
    shown_instance: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    exchanges: tuple[Exchange | Spill, ...]
    steps: tuple[tuple[int, RunStep | MoveStep], ...]
    constants: tuple[Constant, ...]
    neighbours: tuple[Neighbour, ...]
    decisions: tuple[Decision, ...]


def detail_of(explained: Explained, name: str) -> GroupDetail:
    """The group called `name`, or the one that holds a layer or operator of that name, or the one with that letter in
    the order of instances. Raises ModelError with names that may have been meant.
    """
    from dsa_sched.analysis.group_footprint import group_footprint  # sympy, which nothing else loads

    group = _find(explained, name)
    facts = next((facts for facts in explained.explanation.groups if facts.name == group.name), None)
    if facts is None:
        raise ModelError(f"--group {name}", needs="a group that computes something", has="a view of other bytes")
    plan, graph = explained.plan, explained.graph
    own = ((n, step) for n, step in enumerate(plan.steps) if step.group == group.name)
    steps = tuple((n, step) for n, step in own if not isinstance(step, ViewStep))
    position, shown = next((n, step) for n, step in steps if isinstance(step, RunStep))
    laid = explained.layout.steps[position]
    entries = laid if isinstance(laid, tuple) else ()
    names = {group.name, *(layer.name for layer in group.layers), *(op for layer in group.layers for op in layer.ops)}
    values = {*group.inputs(graph), *(layer.output for layer in group.layers)}
    neighbours = tuple(_neighbours(explained, group, names))
    of_neighbours = {decision for neighbour in neighbours for decision in neighbour.reasons}
    return GroupDetail(
        facts=facts,
        footprint=group_footprint(group, explained.ctx),
        layers=tuple(_layer(explained, group, shown, entry) for entry in entries),
        shown_instance=shown.instance,
        reads=group.inputs(graph),
        writes=group.outputs(graph),
        exchanges=group.exchanges,
        steps=steps,
        constants=tuple(_constants(explained, group)),
        neighbours=neighbours,
        decisions=tuple(d for d in plan.decisions if d not in of_neighbours and _subjects(d) & (names | values)),
    )


def _find(explained: Explained, name: str) -> Group:
    plan = explained.plan
    if name in plan.group_by_name:
        return plan.group_by_name[name]
    owner = {op: group for group in plan.groups for layer in group.layers for op in layer.ops}
    owner |= {layer.name: group for group in plan.groups for layer in group.layers}
    if name in owner:
        return owner[name]
    by_letter = {facts.letter: facts.name for facts in explained.explanation.groups}
    if name in by_letter:
        return plan.group_by_name[by_letter[name]]
    known = [*plan.group_by_name, *owner]
    lower = {candidate.lower(): candidate for candidate in known}
    near = [lower[match] for match in get_close_matches(name.lower(), lower, SUGGESTIONS, 0.5)]
    some = ", ".join(dict.fromkeys(near)) or ", ".join([*plan.group_by_name][:SUGGESTIONS])
    raise ModelError(
        f"--group {name}",
        needs="a group, a layer or an operator of the model",
        has="none of that name",
        change=f"{'did you mean' if near else 'for example'} {some}{'?' if near else ''}",
    )


def _subjects(decision: Decision) -> set[str]:
    """Names that a decision is about: one, or several joined by plus signs; for `first..last`, both ends."""
    parts = decision.subject.split(" + ")
    return {decision.subject, *parts, *(end for part in parts for end in part.split(".."))}


def _layer(explained: Explained, group: Group, step: RunStep, entry: LayerLayout) -> LayerDetail:
    layer, traffic = entry.layer, explained.traffic
    scopes = {**dict(step.exports), group.output: step.scope}
    elements = sum(part.elements for part in traffic.parts if part.layer == layer.name)
    shape = explained.graph.by_name[layer.output].shape
    once = box_size(tuple((0, extent) for extent in shape))
    return LayerDetail(
        name=layer.name,
        operators=layer.ops,
        kinds=tuple(explained.graph.op_by_name[op].kind for op in layer.ops),
        output=layer.output,
        shape=shape,
        lies_in=scopes.get(layer.output, explained.layout.local.memory),
        boxes=tuple((core, box) for core, box in zip(step.binding.cores, entry.boxes, strict=False) if box_size(box)),
        again=elements / once - 1,
        rounds=len(entry.rounds),
    )


def _constants(explained: Explained, group: Group) -> Iterator[Constant]:
    graph, loaded = explained.graph, explained.traffic.loaded_bytes
    names = dict.fromkeys(name for layer in group.layers for name in layer.inputs(graph))
    for name in names:
        tensor = graph.by_name[name]
        if tensor.constant:
            yield Constant(
                name, tensor.size_bytes, loaded.get(name, 0) / tensor.size_bytes, name in explained.plan.pinned
            )


def _neighbours(explained: Explained, group: Group, names: set[str]) -> Iterator[Neighbour]:
    plan, graph = explained.plan, explained.graph
    owner = {layer.output: other for other in plan.groups for layer in other.layers}
    before: dict[str, list[str]] = {}
    for name in group.inputs(graph):
        if name in owner:
            before.setdefault(owner[name].name, []).append(name)
    after: dict[str, list[str]] = {}
    made = set(group.outputs(graph))
    for other in plan.groups:
        for name in other.inputs(graph):
            if name in made and other.name != group.name:
                after.setdefault(other.name, []).append(name)
    for side, found in (("before", before), ("after", after)):
        for other_name, values in found.items():
            yield Neighbour(other_name, side, tuple(values), tuple(_between(plan, names, other_name)))


def _between(plan: Plan, names: set[str], other: str) -> Iterator[Decision]:
    """Decisions about this group together with another."""
    group = plan.group_by_name[other]
    others = {other, *(layer.name for layer in group.layers), *(op for layer in group.layers for op in layer.ops)}
    for decision in plan.decisions:
        subjects = _subjects(decision)
        if subjects & names and subjects & others:
            yield decision
