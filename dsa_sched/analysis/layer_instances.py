"""The instances of each layer of an artifact: when they run, which part of the layer's output they compute, and where.

Artifact --plan, boxes of the cores--> layer -> its instances in the order in which they run
"""

from __future__ import annotations

from dataclasses import dataclass

from dsa_sched.artifact.format import Artifact
from dsa_sched.pipeline.rebuild import planned_again
from dsa_sched.stages.kernel_stages import PlannedKernels
from partitioner.ir.regions import Box, joined
from partitioner.ir.steps import RunStep
from partitioner.tiling.core_regions import core_boxes

MOST_INSTANCES = 64
"""Largest number of instances of a group that are told one by one."""


@dataclass(frozen=True, slots=True)
class LayerInstance:
    """A layer in an instance of its group: the instance's number, its place in the order in which all instances run,
    the box of the layer's output that its cores compute, what each of them computes, and the memory where it lies."""

    number: int
    place: int
    box: Box
    boxes: tuple[tuple[int, Box], ...]
    lies_in: str


def layer_instances(artifact: Artifact) -> dict[str, tuple[LayerInstance, ...]]:
    """Layer -> its first instances in the order in which they run; those that compute nothing of it are left out.
    Empty for kernels of whole groups. Raises as `planned_again` does."""
    planned = planned_again(artifact)
    if isinstance(planned, PlannedKernels):
        return {}
    context, plan = planned.context, planned.plan
    local = context.roles.local.memory
    found: dict[str, list[LayerInstance]] = {}
    told: dict[str, int] = {}
    for place, step in enumerate(step for step in plan.steps if isinstance(step, RunStep)):
        told[step.group] = told.get(step.group, 0) + 1
        if told[step.group] > MOST_INSTANCES:
            continue
        group = plan.group_by_name[step.group]
        cores = core_boxes(context, group, step)
        scopes = {**dict(step.exports), group.output: step.scope}
        for layer in group.layers:
            pairs = zip(step.binding.cores, cores, strict=True)
            boxes = tuple((core, of.computed[layer.output]) for core, of in pairs if layer.output in of.computed)
            if boxes:
                whole = joined(box for _, box in boxes)
                lies_in = scopes.get(layer.output, local)
                found.setdefault(layer.name, []).append(LayerInstance(step.instance, place, whole, boxes, lies_in))
    return {name: tuple(each) for name, each in found.items()}
