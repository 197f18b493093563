"""Coarser problems: groups of tasks that stay together, and the way back to single tasks.

Problem + groups --coarse--> Coarse(problem of groups) --a method--> Placement --expanded--> Placement of all tasks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dsa_sched.placement.model.problem import NOT_ACCEPTED, Problem
from dsa_sched.placement.model.task_graph import group_order, grouped
from dsa_sched.placement.schedule.schedule import TaskPlacement


@dataclass(frozen=True)
class Coarse:
    """`problem` has a task for each group; `members[n]` are the tasks of its n-th, in order, and `values[n]` is the
    value that its n-th value is in the problem that it was made of."""

    problem: Problem
    members: tuple[tuple[int, ...], ...]
    values: tuple[int, ...]


def coarse(problem: Problem, groups: Sequence[Sequence[int]]) -> Coarse:
    """Groups of task numbers, which cover every task once, as tasks. A group costs the sum of its tasks, and a machine
    accepts it if it accepts all of them. Raises PlacementError as `grouped` does.
    """
    graph = grouped(problem.graph, groups)
    members = tuple(tuple(sorted(groups[group])) for group in group_order(problem.graph, groups))
    work = tuple(tuple(_work_ns(problem, tasks, machine) for machine in _machines(problem)) for tasks in members)
    shares = problem.costs.shares and tuple(
        tuple(_shares(problem, tasks, machine) for machine in _machines(problem)) for tasks in members
    )
    values = tuple(problem.graph.value_number[value.name] for value in graph.values)
    return Coarse(Problem(graph, replace(problem.costs, work_ns=work, shares=shares)), members, values)


def _machines(problem: Problem) -> range:
    return range(len(problem.machines))


def _work_ns(problem: Problem, tasks: Sequence[int], machine: int) -> int:
    times = [problem.costs.work_ns[task][machine] for task in tasks]
    return NOT_ACCEPTED if NOT_ACCEPTED in times else sum(times)


def _shares(problem: Problem, tasks: Sequence[int], machine: int) -> tuple[float, ...]:
    """Average share of each resource that the tasks take over their time."""
    times = [max(0, problem.costs.work_ns[task][machine]) for task in tasks]
    rows = [problem.costs.shares[task][machine] for task in tasks]
    whole = sum(times)
    if not whole:
        return tuple(map(max, zip(*rows, strict=True)))
    weighted = (
        sum(part * time for part, time in zip(parts, times, strict=True)) / whole for parts in zip(*rows, strict=True)
    )
    return tuple(min(1.0, part) for part in weighted)


def expanded(found: Coarse, placement: TaskPlacement) -> TaskPlacement:
    """The placement of groups as one of their tasks. Values are made no later, so wires can keep their order."""
    count = sum(map(len, found.members))
    machine, stream, stage = [0] * count, [0] * count, [0] * count
    for group, tasks in enumerate(found.members):
        for task in tasks:
            machine[task], stream[task] = placement.machine[group], placement.stream[group]
            stage[task] = placement.stage[group] if placement.stage is not None else 0
    order = tuple(task for group in placement.order for task in found.members[group])
    stages = tuple(stage) if placement.stage is not None else None
    copies = placement.copies and tuple((found.values[value], target) for value, target in placement.copies)
    return TaskPlacement(tuple(machine), tuple(stream), order, stages, copies)
