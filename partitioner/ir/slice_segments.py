"""Segments of a plan of whole groups: groups of which each is cut along the batch and which run slice by slice.

    a0 b0 c0 a1 b1 c1 d e     steps, by group and instance     -->  segment (a, b, c) in 2 slices, then d, then e

Between two groups of a segment only one slice of a value is alive at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hw_models.errors import PlanError
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Group, Plan
from partitioner.ir.regions import Box, full_box


@dataclass(frozen=True)
class SliceSegment:
    """Slots of a plan's steps, from `first` to `last`, in which `groups` run `count` times, a slice each; views stand
    in the first slice alone. Outside of segments a group is one by itself, with a count of 1."""

    first: int
    last: int
    groups: tuple[Group, ...]
    count: int


def batch_points(batch: int, count: int) -> tuple[int, ...]:
    """Cut points of a batch for slices of equal size."""
    return tuple(batch // count * number for number in range(count + 1))


def slice_box(group: Group, shape: tuple[int, ...], instance: int) -> Box:
    """The part of the group's output, of this shape, that a slice computes."""
    if slices_of(group) == 1:
        return full_box(shape)
    points = dict(group.split.cuts)[0]
    return ((points[instance], points[instance + 1]), *full_box(shape[1:]))


def slices_of(group: Group) -> int:
    """Number of slices of the batch into which a group of a plan of whole groups is cut; 1 for a whole one."""
    return group.split.instances


def slice_segments(plan: Plan) -> tuple[SliceSegment, ...]:
    """The steps in order: segments, and groups by themselves. Raises PlanError for slices in any other order than
    one slice of all groups of a segment after the other."""
    return tuple(_segments(plan))


def _segments(plan: Plan) -> Iterator[SliceSegment]:
    slot = 0
    while slot < len(plan.steps):
        group = plan.group_by_name[plan.steps[slot].group]
        count = slices_of(group)
        if count == 1:
            yield SliceSegment(slot, slot, (group,), 1)
            slot += 1
            continue
        first = slot
        groups = [group]
        slot += 1
        while slot < len(plan.steps) and plan.steps[slot].group != group.name:
            groups.append(plan.group_by_name[plan.steps[slot].group])
            slot += 1
        cut = [each.name for each in groups if each.kernel]
        needs = f"{count} slices of {', '.join(cut)}, one after the other"
        if (count - 1) * len(cut) > len(plan.steps) - slot:
            raise PlanError(f"step {group.name}", needs=needs, has="fewer")
        wanted = [(name, instance) for instance in range(1, count) for name in cut]
        found = [(step.group, step.instance) for step in plan.steps[slot : slot + len(wanted)]]
        for own, due in zip(found, wanted, strict=True):
            if own != due:
                raise PlanError(f"step {group.name}", needs=needs, has=f"slice {own[1]} of {own[0]}")
        if any(slices_of(each) != count for each in groups if each.kernel):
            raise PlanError(f"step {group.name}", needs=needs, has="groups in other numbers of slices")
        slot += len(wanted)
        yield SliceSegment(first, slot - 1, tuple(groups), count)


def kept_slices(plan: Plan, graph: Graph, roots: Mapping[str, str]) -> dict[str, SliceSegment]:
    """The values, by the names of what owns their bytes, that only groups of one segment make and read: of each, one
    slice needs a place. `roots` has the owner of each value's bytes."""
    home = {group.name: segment for segment in slice_segments(plan) for group in segment.groups if segment.count > 1}
    found: dict[str, SliceSegment] = {}
    for group in plan.groups:
        if group.kernel and group.name in home:
            found |= {roots[name]: home[group.name] for name in group.outputs(graph)}
    ends = {roots[name] for name in graph.outputs}
    for group in plan.groups:
        for name in group.inputs(graph):
            owner = roots[name]
            if owner in found and home.get(group.name) is not found[owner]:
                del found[owner]
    return {name: segment for name, segment in found.items() if name not in ends}
