"""The part to which an operator belongs: a stage of the network, or a group of the plan.

    Graph --pixel_stages--> operator -> stage
    Plan --plan_groups--> operator -> group
    Artifact --artifact_parts--> either, from the texts in its folder

A stage is all operators whose outputs have the same number of pixels per item, so stages end where the network
down-samples, and do not depend on level, group or chip. In a channels-last output, pixels are all axes but the
outermost and the innermost; an output without such axes (a classifier's vector) counts as one pixel. A stage is called
by the extents of its first operator's output, for example 56x56.
"""

from __future__ import annotations

from math import prod

from codegen.target import symbol_of
from dsa_sched.artifact.format import GRAPH_FILE, PLAN_FILE, Artifact
from hw_models.errors import TargetError
from partitioner.ir.graph import Graph
from partitioner.ir.graph_text import parse_graph
from partitioner.ir.plan import Plan, parse_plan


def pixel_stages(graph: Graph) -> dict[str, str]:
    """Operator -> stage, in the order of the graph."""
    names: dict[int, str] = {}
    stages = {}
    for op in graph.ops:
        extents = graph.by_name[op.outputs[0]].shape[1:-1]
        pixels = prod(extents)
        stages[op.name] = names.setdefault(pixels, "x".join(map(str, extents)) if extents else "1")
    return stages


def plan_groups(plan: Plan) -> dict[str, str]:
    """Operator -> group, in the order of the plan."""
    return {name: group.name for group in plan.groups for layer in group.layers for name in layer.ops}


def artifact_parts(artifact: Artifact, by: str, name: str) -> dict[str, str]:
    """Operator -> `stage` or `group` (as `by` says) of an artifact. The keys include the names that symbols of its
    machine code have; where several operators share one, it is the first one's. Raises TargetError for what it does not
    hold.
    """
    file = GRAPH_FILE if by == "stage" else PLAN_FILE
    if file not in artifact.texts:
        raise TargetError(name, needs=f"{file}, which says the {by} of an operator", has="none", change="compile again")
    text = artifact.texts[file].decode()
    parts = pixel_stages(parse_graph(text)) if by == "stage" else plan_groups(parse_plan(text))
    known = dict(parts)
    for operator, part in parts.items():
        known.setdefault(symbol_of(operator), part)
    return known
