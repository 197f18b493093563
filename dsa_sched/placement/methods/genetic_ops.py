"""The compiled operators of the genetic algorithm, which change genes.

    move          another of the devices that a task may run on
    lead          the same, and some of its neighbours follow
    join          the device of a task that it reads from or that reads from it
    free          the device where it ends first, when it is decoded next
    reprioritise  another priority: a new one, or that of another task
    crossover     a range of tasks, in the order of the graph, as another parent has them

`path_bias` is how often the task that changes is on the critical path of the parent, and the operator answers what the
task waited for there: a value on its way asks for join, a busy stream for move or reprioritise. With 0, tasks and
operators are drawn evenly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dsa_sched.placement.schedule.list_decoder import BY_COPY, BY_LANE, FREE

_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@njit(cache=True, nogil=True)
def random_number(state: NDArray[np.uint64]) -> Any:
    """Random number from 0 to 1 (splitmix64; a numpy generator in compiled code takes seconds to load)."""
    state[0] += _STEP
    mixed = state[0]
    mixed = (mixed ^ (mixed >> _30)) * _FIRST
    mixed = (mixed ^ (mixed >> _27)) * _SECOND
    return np.float64((mixed ^ (mixed >> _31)) >> _11) * 2.0**-53


@njit(cache=True, nogil=True)
def random_below(count: int, state: NDArray[np.uint64]) -> Any:
    return np.int64(random_number(state) * count)


@njit(cache=True, nogil=True)
def _move(space: Any, gene: NDArray[np.int64], task: int, state: NDArray[np.uint64]) -> None:
    option_from, option = space[0], space[1]
    count = option_from[task + 1] - option_from[task]
    if count > 1:
        chosen = option[option_from[task] + random_below(count - 1, state)]
        gene[task] = option[option_from[task + 1] - 1] if chosen == gene[task] else chosen


@njit(cache=True, nogil=True)
def _join(space: Any, gene: NDArray[np.int64], task: int, before: bool, state: NDArray[np.uint64]) -> None:
    """Move the task to the device of a neighbour, if it is an option; `before`: of one that it reads from."""
    option_from, option, near_from, near, near_before = space[0], space[1], space[2], space[3], space[4]
    count = near_before[task] if before else near_from[task + 1] - near_from[task]
    if count == 0:
        return
    other = near[near_from[task] + random_below(count, state)]
    for number in range(option_from[task], option_from[task + 1]):
        if option[number] == gene[other]:
            gene[task] = gene[other]
            return
    for number in range(option_from[other], option_from[other + 1]):
        if option[number] == gene[task]:
            gene[other] = gene[task]
            return


@njit(cache=True, nogil=True)
def _lead(space: Any, gene: NDArray[np.int64], task: int, state: NDArray[np.uint64]) -> None:
    """Move a task; neighbours on the same device follow, one by one, until one does not."""
    option_from, option, near_from, near = space[0], space[1], space[2], space[3]
    before = gene[task]
    _move(space, gene, task, state)
    machine = gene[task]
    while machine != before and random_number(state) < 0.7:
        count = near_from[task + 1] - near_from[task]
        if count == 0:
            return
        other = near[near_from[task] + random_below(count, state)]
        if gene[other] == before:
            for number in range(option_from[other], option_from[other + 1]):
                if option[number] == machine:
                    gene[other] = machine
                    task = other
                    break


@njit(cache=True, nogil=True)
def _reprioritise(priority: NDArray[np.float64], task: int, first: int, end: int, state: NDArray[np.uint64]) -> None:
    if random_number(state) < 0.5:
        priority[task] = random_number(state)
    else:
        other = first + random_below(end - first, state)
        priority[task], priority[other] = priority[other], priority[task]


@njit(cache=True, nogil=True)
def _place(space: Any, gene: NDArray[np.int64], task: int, state: NDArray[np.uint64]) -> None:
    """Apply one of the operators that change devices; each is equally likely."""
    kind = random_below(4, state)
    if kind == 0:
        _move(space, gene, task, state)
    elif kind == 1:
        _join(space, gene, task, False, state)
    elif kind == 2:
        _lead(space, gene, task, state)
    else:
        gene[task] = FREE


@njit(cache=True, nogil=True)
def change(
    space: Any,
    gene: NDArray[np.int64],
    priority: NDArray[np.float64],
    path: NDArray[np.int8],
    path_bias: float,
    reprioritise: float,
    first: int,
    end: int,
    state: NDArray[np.uint64],
) -> None:
    """Apply one change, to a task from `first` to before `end`. Rates are as in `Rates`."""
    free = space[5]
    if len(path) and random_number(state) < path_bias:
        task = first + random_below(end - first, state)
        for _ in range(end - first):  # the next of the critical path, from a random place on
            if path[task] > 0:
                break
            task = task + 1 if task + 1 < end else first
        if path[task] == BY_COPY and random_number(state) < 0.5:
            _join(space, gene, task, True, state)
            return
        if path[task] == BY_LANE and random_number(state) < reprioritise:
            _reprioritise(priority, task, first, end, state)
            return
        _place(space, gene, task, state)
        return
    least, most = np.searchsorted(free, first), np.searchsorted(free, end)
    if least == most or random_number(state) < reprioritise:
        _reprioritise(priority, first + random_below(end - first, state), first, end, state)
        return
    _place(space, gene, free[least + random_below(most - least, state)], state)


@njit(cache=True, nogil=True)
def canonical(space: Any, gene: NDArray[np.int64], priority: NDArray[np.float64]) -> None:
    """Map genes that differ only by an exchange of what is alike to the same genes: devices of a class appear in the
    order of their numbers, and interchangeable tasks have theirs in order.
    """
    kind, group_from, member = space[6], space[7], space[8]
    machines = len(kind)
    name = np.full(machines, -1, np.int64)
    used = np.zeros(machines, np.bool_)
    for task in range(len(gene)):
        machine = gene[task]
        if machine < 0:
            continue
        if name[machine] < 0:
            for other in range(machines):
                if kind[other] == kind[machine] and not used[other]:
                    name[machine] = other
                    used[other] = True
                    break
        gene[task] = name[machine]
    for group in range(len(group_from) - 1):
        for last in range(group_from[group] + 1, group_from[group + 1]):
            place = last
            while place > group_from[group]:
                one, two = member[place - 1], member[place]
                if gene[one] < gene[two] or (gene[one] == gene[two] and priority[one] >= priority[two]):
                    break
                gene[one], gene[two] = gene[two], gene[one]
                priority[one], priority[two] = priority[two], priority[one]
                place -= 1


@njit(cache=True, nogil=True)
def random_rows(
    space: Any, state: NDArray[np.uint64], genes: NDArray[np.int64], priorities: NDArray[np.float64]
) -> None:
    """Any device of those that a task may run on, and any priority."""
    option_from, option = space[0], space[1]
    for row in range(len(genes)):
        for task in range(genes.shape[1]):
            count = option_from[task + 1] - option_from[task]
            genes[row, task] = option[option_from[task] + random_below(count, state)]
            priorities[row, task] = random_number(state)
