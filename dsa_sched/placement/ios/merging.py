"""Merged problems: several tasks of a problem become one, at the cost that the problem's `merging` gives.

Problem + groups of task numbers --merged_problem--> Problem, members of each of its tasks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from dsa_sched.placement.model.problem import Merged, Problem
from dsa_sched.placement.model.task_graph import group_order, grouped
from hw_models.errors import PlacementError

MOST_OF_A_FAMILY = 10
"""Largest number of tasks of which every subset is tried; a larger family is tried in pieces of this size."""


def merge_candidates(problem: Problem, part: Sequence[int], most: int | None) -> list[tuple[int, ...]]:
    """Sets of two to `most` tasks of a part that the problem's `merging` turns into one; by task number.

    Tasks of one family merge, whichever of them are chosen, so each pair is asked for first.
    """
    if problem.merging is None:
        return []
    families: list[list[int]] = []
    for task in part:
        for family in families:
            if len(family) < MOST_OF_A_FAMILY and problem.merging.merged((family[0], task)) is not None:
                family.append(task)
                break
        else:
            families.append([task])
    return [
        tasks
        for family in families
        for size in range(2, min(len(family), most or len(family)) + 1)
        for tasks in combinations(family, size)
        if problem.merging.merged(tasks) is not None
    ]


def merged_problem(problem: Problem, groups: Sequence[Sequence[int]]) -> tuple[Problem, tuple[tuple[int, ...], ...]]:
    """The problem in which each group is one task. Groups are disjoint; tasks in none of them stay as they are.

    The values that a group makes stay separate, as slices of its one result. Returns also the tasks of each new
    task. Raises PlacementError where a group may not be merged.
    """
    inside = {task for group in groups for task in group}
    alone = [(task,) for task in range(len(problem.graph.tasks)) if task not in inside]
    every = [*map(tuple, groups), *alone]
    graph = grouped(problem.graph, every)
    members = tuple(tuple(sorted(every[group])) for group in group_order(problem.graph, every))
    tasks, work, shares = [], [], []
    for number, old in enumerate(members):
        if len(old) == 1:
            tasks.append(graph.tasks[number])
            work.append(problem.costs.work_ns[old[0]])
            shares.append(problem.costs.shares[old[0]] if problem.costs.shares else ())
            continue
        found = _merged(problem, old)
        made = graph.tasks[number]
        tasks.append(replace(made, macs=found.macs, constant_bytes=found.constant_bytes))
        work.append(found.work_ns)
        shares.append(found.shares)
    costs = replace(problem.costs, work_ns=tuple(work), shares=tuple(shares) if problem.costs.shares else ())
    return Problem(replace(graph, tasks=tuple(tasks)), costs), members


def _merged(problem: Problem, tasks: tuple[int, ...]) -> Merged:
    found = problem.merging.merged(tasks) if problem.merging is not None else None
    if found is None:
        names = ", ".join(problem.graph.tasks[task].name for task in tasks)
        raise PlacementError(f"tasks {names}", needs="a cost source that merges them")
    return found
