"""Times of stages: the interface between the search and any source of times.

    StreamStage(groups, merged) --a cost source--> ns

The search asks only for these. `StageContention` is the simulator's rule, compiled; a source that measures on a device
is another class with the same function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dsa_sched.placement.model.problem import Problem
from hw_models.errors import PlacementError

Masks = NDArray[np.uint64]

ROUNDING_NS = 1e-6
"""Work below this, in ns, counts as rounding, as in the simulator."""


@dataclass(frozen=True, slots=True)
class StreamStage:
    """Task numbers, in order: a stream each group. A merged stage has one group, whose tasks run as one operator.

    After the `last` one there is nothing that a barrier would be for.
    """

    groups: tuple[tuple[int, ...], ...]
    merged: bool = False
    last: bool = False

    @property
    def tasks(self) -> tuple[int, ...]:
        """All tasks of the stage, by number."""
        return tuple(sorted(task for group in self.groups for task in group))


class StageCosts(Protocol):
    """Source of the time of a stage, including the barrier after it."""

    def stage_ns(self, stage: StreamStage) -> float: ...


@dataclass(frozen=True)
class StageContention:
    """Costs of a stage on one machine of a problem as `simulate` has them, and of the barrier over its streams, if
    there are several. Merged stages cost what the problem's `merging` gives.
    """

    problem: Problem
    machine: int

    @cached_property
    def work_ns(self) -> NDArray[np.float64]:
        return self.problem.work_ns[:, self.machine].astype(np.float64)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Task x resource; no resources where streams do not contend."""
        count = len(self.problem.graph.tasks)
        if not self.problem.contended[self.machine]:
            return np.zeros((count, 0))
        return np.array([row[self.machine] for row in self.problem.costs.shares], np.float64).reshape(count, -1)

    @property
    def barrier_ns(self) -> int:
        return self.problem.machines[self.machine].stage_ns

    def stage_ns(self, stage: StreamStage) -> float:
        """Raises PlacementError for merged operators that nothing prices."""
        if stage.merged and len(stage.tasks) > 1:
            merging = self.problem.merging
            found = merging.merged(stage.tasks) if merging is not None else None
            if found is None:
                raise PlacementError("merged operators", needs="a cost source that prices them")
            return float(found.work_ns[self.machine])
        tasks = np.array([task for group in stage.groups for task in group], np.int64)
        first = np.cumsum([0, *map(len, stage.groups)])
        barrier_ns = self.barrier_ns if len(stage.groups) > 1 and not stage.last else 0
        return float(_stage_ns(tasks, first, self.work_ns, self.shares)) + barrier_ns

    def prices_ns(self, part: tuple[int, ...], closure: Masks, masks: Masks, *, last: bool) -> NDArray[np.float64]:
        """Prices of concurrent stages given as masks over the tasks of a part."""
        tasks = np.array(part, np.int64)
        found: NDArray[np.float64] = _prices(
            masks, closure, self.work_ns[tasks], self.shares[tasks], 0 if last else self.barrier_ns
        )
        return found


def stage_prices(
    costs: StageCosts, part: tuple[int, ...], closure: Masks, masks: Masks, concurrent: int, *, last: bool = False
) -> NDArray[np.float64]:
    """Prices of endings of a part; those from `concurrent` on are merged. One pass over masks where the source can."""
    known = np.zeros(0)
    if isinstance(costs, StageContention):
        known = costs.prices_ns(part, closure, masks[:concurrent], last=last)
    others = [
        costs.stage_ns(stage_of(part, closure, int(masks[number]), merged=number >= concurrent, last=last))
        for number in range(len(known), len(masks))
    ]
    return np.append(known, others)


def stage_of(part: tuple[int, ...], closure: Masks, mask: int, *, merged: bool, last: bool = False) -> StreamStage:
    """The stage for a mask over the tasks of a part."""
    if merged:
        return StreamStage((_tasks(part, mask),), merged=True, last=last)
    groups = []
    while mask:
        head = (mask & -mask).bit_length() - 1
        group = int(closure[head]) & mask
        groups.append(_tasks(part, group))
        mask &= ~group
    return StreamStage(tuple(groups), last=last)


def _tasks(part: tuple[int, ...], mask: int) -> tuple[int, ...]:
    return tuple(task for place, task in enumerate(part) if mask >> place & 1)


_CACHED = {"cache": True, "nogil": True, "error_model": "numpy", "boundscheck": False}


@njit(**_CACHED)
def _stage_ns(tasks: Any, first: Any, work: Any, shares: Any) -> Any:
    """Time of a stage. Group g is `tasks[first[g]:first[g + 1]]`, which run in sequence; groups run side by side, all
    slowed by the most demanded resource. As in `simulate`, time advances from one end of a task to the next.
    """
    groups = first.size - 1
    current = first[:-1].copy()
    left = np.zeros(groups, np.float64)
    running = 0
    for group in range(groups):
        if current[group] < first[group + 1]:
            left[group] = work[tasks[current[group]]]
            running += 1
    now = 0.0
    while running:
        slowdown = 1.0
        for resource in range(shares.shape[1]):
            asked = 0.0
            for group in range(groups):
                if current[group] < first[group + 1]:
                    asked += shares[tasks[current[group]], resource]
            slowdown = max(slowdown, asked)
        least = np.inf
        for group in range(groups):
            if current[group] < first[group + 1]:
                least = min(least, left[group])
        least = max(least, 0.0)
        now += least * slowdown
        for group in range(groups):
            if current[group] < first[group + 1]:
                left[group] -= least
                if left[group] <= ROUNDING_NS:
                    current[group] += 1
                    if current[group] < first[group + 1]:
                        left[group] = work[tasks[current[group]]]
                    else:
                        running -= 1
    return now


@njit(**_CACHED)
def _prices(masks: Any, closure: Any, work: Any, shares: Any, barrier_ns: Any) -> Any:
    """`_stage_ns` plus barrier for every mask: each head that is in no group yet makes one, with the tasks after it."""
    count = closure.size
    prices = np.empty(masks.size, np.float64)
    tasks = np.empty(count, np.int64)
    first = np.zeros(count + 1, np.int64)
    one = np.uint64(1)
    for number in range(masks.size):
        rest = masks[number]
        placed, groups = 0, 0
        for head in range(count):
            if not (rest >> np.uint64(head)) & one:
                continue
            group = closure[head] & rest
            for task in range(head, count):
                if (group >> np.uint64(task)) & one:
                    tasks[placed] = task
                    placed += 1
            rest &= ~group
            groups += 1
            first[groups] = placed
        prices[number] = _stage_ns(tasks, first[: groups + 1], work, shares)
        if groups > 1:
            prices[number] += barrier_ns
    return prices
