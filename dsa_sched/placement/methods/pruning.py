"""A smaller space for SPHINX, from the structure of the network: devices that cannot help, tasks that stay together,
devices and branches that are alike.

    Problem + a known makespan --dominated--> fewer devices per task
                               --together---> chains and one-device regions as single tasks (coarse.py)
                               --device_classes, interchangeable_tasks--> those whose exchange changes nothing

The first and the third are safe: for every placement that they leave out, one that stays is as good, or it is no better
than the known one. The second is safe for a chain alone (`_apart_is_no_better`), not for one that shares devices with
others: a schedule may be lost that cuts a chain only because a device is busy. So SPHINX searches on with single tasks
where it ends with the coarse ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dsa_sched.placement.methods.coarsening import Coarse, coarse
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.schedule.bounds import through

Options = tuple[tuple[int, ...], ...]

MOST_MACHINES = 12
"""Largest number of machines for which exchanges of devices are looked for."""


def dominated(problem: Problem, known_ns: float) -> Options | None:
    """The devices of each task with which a schedule may be shorter than a known one: the longest way through the task
    there is shorter, with each other task where it is best for this way. None where a task has none: nothing is
    shorter.
    """
    return shorter(through(problem), known_ns)


def shorter(through_ns: NDArray[np.float64], known_ns: float) -> Options | None:
    """Like `dominated`, for known ways (`bounds.through`)."""
    found = tuple(tuple(np.flatnonzero(row < known_ns).tolist()) for row in through_ns)
    return found if all(found) else None


def together(problem: Problem, options: Options) -> tuple[Coarse, Options]:
    """Chains whose tasks are no better apart, and tasks side by side that have the same one device, as single tasks.

    Works in rounds of pairs until nothing changes. The second result has the devices of the single tasks.
    """
    members = [(task,) for task in range(len(options))]
    found, own = coarse(problem, members), options
    while pairs := _pairs(found.problem, own):
        joined = {task for pair in pairs for task in pair}
        groups = [*pairs, *((task,) for task in range(len(own)) if task not in joined)]
        step = coarse(found.problem, groups)
        own = tuple(
            tuple(machine for machine in own[group[0]] if all(machine in own[task] for task in group))
            for group in step.members
        )
        inner = (tuple(sorted(t for task in group for t in found.members[task])) for group in step.members)
        found = Coarse(step.problem, tuple(inner), tuple(found.values[value] for value in step.values))
    return found, own


def _pairs(problem: Problem, options: Options) -> list[tuple[int, ...]]:
    """Pairs to join, no task in two of them."""
    graph = problem.graph
    before, after = graph.predecessors, graph.successors
    read_ns, written_ns = _travels(problem)
    taken: set[int] = set()
    found: list[tuple[int, ...]] = []
    for task in range(len(options)):
        if task in taken or graph.tasks[task].is_end or len(after[task]) != 1:
            continue
        reader = after[task][0]
        if reader not in taken and not graph.tasks[reader].is_end and set(before[reader]) <= {task, *before[task]}:
            travels = read_ns[task], written_ns[task], written_ns[reader]
            if set(options[task]) & set(options[reader]) and _apart_is_no_better(
                (options[task], options[reader]), (problem.work_ns[task], problem.work_ns[reader]), travels
            ):
                found.append((task, reader))
                taken |= {task, reader}
            continue
        other = next((one for one in before[reader] if one > task and one not in taken), None)
        if other is not None and _side_by_side(problem, options, task, other):
            found.append((task, other))
            taken |= {task, other}
    return found


def _side_by_side(problem: Problem, options: Options, one: int, other: int) -> bool:
    """Whether two tasks read from and are read by the same, and have but one device, the same, which does one at a
    time."""
    graph = problem.graph
    alone = len(options[one]) == 1 and options[one] == options[other] and not graph.tasks[other].is_end
    same = graph.predecessors[one] == graph.predecessors[other] and graph.successors[one] == graph.successors[other]
    return alone and same and problem.machines[options[one][0]].streams == 1


def _travels(problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Task x machine x machine: how long all that a task reads travels, and all that it writes."""
    graph, copy = problem.graph, problem.copy_ns
    read, written = (np.zeros((len(graph.tasks), *copy.shape[1:]), np.int64) for _ in range(2))
    for value, (maker, readers) in enumerate(zip(graph.producers, graph.consumers, strict=True)):
        written[maker] += copy[value] if readers else 0
        read[list(readers)] += copy[value]
    return read, written


def _apart_is_no_better(
    options: tuple[Sequence[int], Sequence[int]],
    work_ns: tuple[NDArray[np.int64], NDArray[np.int64]],
    travels: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
) -> bool:
    """Whether, for any two devices of a chain of two tasks, using one of them for both gives the result no later, and
    where it was asked for: it travels after the chain instead of within, or what the chain reads travels before it.

    `travels` are those of what the first task reads, of what is between the two, and of what the second writes.
    """
    (first, second), (read, within, written) = work_ns, travels
    for here, there in product(*options):
        if here == there:
            continue
        stay = second[here] + written[here, there] <= within[here, there] + second[there]
        leave = read[here, there] + first[there] <= first[here] + within[here, there]
        if not (stay and here in options[1]) and not (leave and there in options[0]):
            return False
    return True


def device_classes(problem: Problem) -> NDArray[np.int64]:
    """A class of each device: exchanging two of a class changes neither times nor which copies share a wire."""
    count = len(problem.machines)
    found = np.arange(count)
    if count <= MOST_MACHINES:
        for machine in range(1, count):  # the first is the host
            found[machine] = next((one for one in range(1, machine) if _exchangeable(problem, one, machine)), machine)
    return found


def _exchangeable(problem: Problem, one: int, other: int) -> bool:
    swap = np.arange(len(problem.machines))
    swap[[one, other]] = other, one
    machines, work, copy = problem.machines, problem.work_ns, problem.copy_ns
    same_kind = (machines[one].streams, machines[one].stage_ns) == (machines[other].streams, machines[other].stage_ns)
    shares = problem.costs.shares
    if not same_kind or any(row[one] != row[other] for row in shares) or (work[:, one] != work[:, other]).any():
        return False
    wires = {wire: number for number, wire in enumerate(sorted({route.wire for route in problem.route.values()}))}
    wire = np.full((len(swap), len(swap)), -1)
    for way, route in problem.route.items():
        wire[way] = wires[route.wire]
    swapped = wire[np.ix_(swap, swap)]
    pairs = set(zip(wire.ravel().tolist(), swapped.ravel().tolist(), strict=True))
    one_to_one = len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    return one_to_one and bool((copy == copy[:, swap][:, :, swap]).all())


def interchangeable_tasks(problem: Problem, options: Options) -> tuple[tuple[int, ...], ...]:
    """Tasks whose exchange changes nothing: they read the same values, take the same times, and their results have the
    same sizes and the same readers.
    """
    graph = problem.graph
    found: dict[object, list[int]] = {}
    for task in range(len(graph.tasks)):
        made = tuple(sorted((graph.values[value].size_bytes, graph.consumers[value]) for value in graph.writes[task]))
        work, shares = problem.costs.work_ns[task], problem.costs.shares[task] if problem.costs.shares else ()
        found.setdefault((graph.reads[task], made, work, shares, options[task]), []).append(task)
    return tuple(tuple(tasks) for tasks in found.values() if len(tasks) > 1)
