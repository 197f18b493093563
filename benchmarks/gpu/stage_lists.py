"""Which kernels of a network run side by side: stages found here, by a model, and packed for the streams of a GPU.

    Plan, floors --task graph, shares of memories and units--> sequential, greedy, IOS: stages of groups by stream

A stage ends with a barrier over its streams. What a kernel takes is its floor and its launch; kernels side by side slow
each other down by what they ask of a memory or unit together. That is a model, as in `dsa_sched.placement.ios`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsa_sched.placement.ios.blocks import parts_of
from dsa_sched.placement.ios.costs import StageContention, StreamStage
from dsa_sched.placement.ios.search import PARALLEL, search_stages
from dsa_sched.placement.ios.space import SearchLimits
from dsa_sched.placement.ios.stages import greedy_stages, sequential_stages
from dsa_sched.placement.methods.duet import phases
from dsa_sched.placement.model.problem import CostTable, Machine, Problem
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, Task, TaskGraph, TaskValue
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Plan

__all__ = ["STREAMS", "phase_lists", "stage_lists"]

STREAMS = 4
MOST_TASKS = 24
"""Of a part that is searched as one."""
LIMITS = SearchLimits(3, 8)
BARRIER_NS = 4000
"""As `benchmarks.lab.ios.gpu` takes it."""

StageLists = dict[str, list[list[list[str]]]]
"""Method -> stages, each with its streams, each with its groups in order."""


def stage_lists(plan: Plan, graph: Graph, kernels: Mapping[str, Mapping[str, Any]]) -> StageLists:
    """Empty for a network without branches: no two of its kernels could run side by side."""
    problem = _problem(plan, graph, kernels)
    parts = parts_of(problem.graph, MOST_TASKS)
    whole = tuple(task for part in parts for task in part)
    greedy = [stage for part in parts for stage in greedy_stages(problem.graph, part, STREAMS)]
    if all(len(stage.groups) == 1 for stage in greedy):
        return {}
    ios = search_stages(problem, StageContention(problem, 0), parts, STREAMS, PARALLEL, LIMITS).stages
    found: dict[str, Sequence[StreamStage]] = {"sequential": sequential_stages(whole), "greedy": greedy, "ios": ios}
    names = [task.name for task in problem.graph.tasks]
    return {
        method: [[[names[task] for task in group] for group in stage.groups] for stage in stages]
        for method, stages in found.items()
    }


def phase_lists(plan: Plan, graph: Graph, kernels: Mapping[str, Mapping[str, Any]]) -> list[list[list[str]]]:
    """Phases of a network, as DUET has them: each with its independent paths of groups."""
    tasks = _tasks(plan, graph, kernels)
    names = [task.name for task in tasks.tasks]
    return [[[names[task] for task in path] for path in phase.paths] for phase in phases(tasks)]


def _problem(plan: Plan, graph: Graph, kernels: Mapping[str, Mapping[str, Any]]) -> Problem:
    tasks = _tasks(plan, graph, kernels)
    resources = sorted({name for kernel in kernels.values() for name in kernel["floors_ms"]})
    work, shares = [], []
    for task in tasks.tasks:
        kernel = kernels.get(task.name)
        ms = kernel["launch_ms"] + kernel["floor_ms"] if kernel else 0.0
        used = [kernel["floors_ms"].get(name, 0.0) for name in resources] + [kernel["launch_ms"]] if kernel else []
        work.append((round(1e6 * ms),))
        shares.append((tuple(min(1.0, one / ms) for one in used) if ms else (0.0,) * (len(resources) + 1),))
    machine = Machine("gpu", STREAMS, BARRIER_NS)
    return Problem(tasks, CostTable((machine,), (), tuple(work), tuple(shares), "floors and launches, not measured"))


def _tasks(plan: Plan, graph: Graph, kernels: Mapping[str, Mapping[str, Any]]) -> TaskGraph:
    """A task a kernel, named by its group; a view is what it is a view of."""
    source: dict[str, str] = {}
    made = dict.fromkeys(graph.inputs, INPUTS)
    readers: dict[str, list[str]] = {name: [] for name in graph.inputs}
    tasks = [Task(INPUTS)]
    for step in plan.steps:
        group = plan.group_by_name[step.group]
        read = [source.get(name, name) for name in group.inputs(graph)]
        if group.name not in kernels:
            source[group.output] = read[0]
            continue
        tasks.append(Task(group.name))
        for name in dict.fromkeys(read):
            readers[name].append(group.name)
        for name in group.outputs(graph):
            made[name], readers[name] = group.name, []
    for name in dict.fromkeys(source.get(name, name) for name in graph.outputs):
        readers[name].append(OUTPUTS)
    sizes = graph.by_name
    values = [TaskValue(name, made[name], tuple(after), sizes[name].size_bytes) for name, after in readers.items()]
    return TaskGraph(graph.name, (*tasks, Task(OUTPUTS)), tuple(values))
