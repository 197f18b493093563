"""Stages as placements: which task runs in which stage on which stream, in the terms of the problem.

stages (task numbers) --placed--> Problem (with merged tasks), Placement
"""

from __future__ import annotations

from collections.abc import Sequence

from dsa_sched.placement.ios.blocks import Part
from dsa_sched.placement.ios.costs import StreamStage
from dsa_sched.placement.ios.merging import merged_problem
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.model.task_graph import INPUTS, TaskGraph
from dsa_sched.placement.schedule.schedule import TaskPlacement

GREEDY_STREAMS = 10
"""Number of streams of the greedy baseline, as in the paper's code."""


def sequential_stages(part: Part) -> list[StreamStage]:
    """One task per stage."""
    return [StreamStage(((task,),)) for task in part]


def greedy_stages(graph: TaskGraph, part: Part, streams: int) -> list[StreamStage]:
    """All ready tasks in one stage, dealt over at most ten streams: a wavefront."""
    inside = set(part)
    level: dict[int, int] = {}
    for task in part:
        level[task] = 1 + max((level[other] for other in graph.predecessors[task] if other in inside), default=-1)
    fronts: list[list[int]] = [[] for _ in range(1 + max(level.values(), default=-1))]
    for task in part:
        fronts[level[task]].append(task)
    most = min(streams, GREEDY_STREAMS)
    return [
        StreamStage(tuple(tuple(front[stream::most]) for stream in range(min(most, len(front))))) for front in fronts
    ]


def placed(problem: Problem, machine: int, stages: Sequence[StreamStage]) -> tuple[Problem, TaskPlacement]:
    """All tasks on one machine, each group of a stage on a stream; the ends on the host, in the first and last stage.

    With merged stages, the returned problem is one with merged tasks.
    """
    merged = [stage.tasks for stage in stages if stage.merged and len(stage.tasks) > 1]
    made, members = merged_problem(problem, merged) if merged else (problem, _alone(problem))
    task_of = {old: new for new, olds in enumerate(members) for old in olds}
    count = len(made.graph.tasks)
    machines, streams, stage_of = [machine] * count, [0] * count, [0] * count
    order: list[int] = []
    for number, stage in enumerate(stages):
        for stream, group in enumerate(stage.groups):
            for task in dict.fromkeys(task_of[old] for old in group):
                streams[task], stage_of[task] = stream, number
                order.append(task)
    for number, task_ in enumerate(made.graph.tasks):
        if task_.is_end:
            machines[number] = 0
            first = task_.name == INPUTS
            stage_of[number] = 0 if first else max(0, len(stages) - 1)
            order.insert(0 if first else len(order), number)
    return made, TaskPlacement(tuple(machines), tuple(streams), tuple(order), tuple(stage_of))


def _alone(problem: Problem) -> tuple[tuple[int, ...], ...]:
    return tuple((task,) for task in range(len(problem.graph.tasks)))
