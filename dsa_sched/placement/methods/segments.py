"""Networks as rows of segments that are searched separately: one schedule tells how long every segment takes.

    TaskGraph --cuts--> tasks that all before lead to and all after come from; segments end with them
    evaluated rows --keep--> Pools (the best genes of each segment, by the device that its cut before ran on)
    Pools --breed_segments--> children: of each segment one of its best, changed

After a cut, every stream and every wire is free, whatever came before, and only the cut's result is read. So the time
that the list scheduler finds for a segment depends only on its own genes and the device of the cut before it, and the
makespan is the sum: an evaluation of one row judges a change in each of its segments. Devices that are alike
(`pruning.device_classes`) have one pool: its genes are those of the device with the lowest number, and are exchanged
when they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dsa_sched.placement.methods.genetic_ops import canonical, change, random_below, random_number
from dsa_sched.placement.model.task_graph import TaskGraph

UNKNOWN = np.iinfo(np.int64).max // 4
"""Time from a device on if it is not known."""


def cuts(graph: TaskGraph) -> NDArray[np.int64]:
    """The last task of each segment, in order; the last is that of the graph.

    A task is a cut if nothing that is made before it is read after it, and every task after it reads something: then
    all tasks before lead to it, and all tasks after come from it.
    """
    count = len(graph.tasks)
    last_reader = np.arange(count)
    for maker, readers in zip(graph.producers, graph.consumers, strict=True):
        last_reader[maker] = max(last_reader[maker], *readers) if readers else count
    reach = np.concatenate([[0], np.maximum.accumulate(last_reader)[:-1]])
    sources = [task for task, before in enumerate(graph.predecessors) if not before]
    first = max(sources, default=0)
    found = [task for task in range(first, count - 1) if reach[task] <= task]
    return np.array([*found, count - 1], np.int64)


def longest(last: NDArray[np.int64]) -> int:
    """Tasks of the longest segment."""
    return int(np.diff(last, prepend=-1).max())


@dataclass(frozen=True)
class Pools:
    """The best genes of each segment: segment x device of the cut before x place. `genes`, `priorities` and `paths` are
    device x place x task, and a segment has its tasks' columns. `rest` is the least known time from the start of a
    segment to the end, by that device."""

    last: NDArray[np.int64]
    took_ns: NDArray[np.int64]
    out: NDArray[np.int64]
    count: NDArray[np.int64]
    genes: NDArray[np.int64]
    priorities: NDArray[np.float64]
    paths: NDArray[np.int8]
    rest: NDArray[np.int64]

    @staticmethod
    def of(last: NDArray[np.int64], machines: int, places: int) -> Pools:
        """Empty ones."""
        shape, tasks = (len(last), machines, places), int(last[-1]) + 1
        return Pools(
            last,
            np.full(shape, UNKNOWN, np.int64),
            np.zeros(shape, np.int64),
            np.zeros(shape[:2], np.int64),
            np.zeros((machines, places, tasks), np.int64),
            np.zeros((machines, places, tasks)),
            np.zeros((machines, places, tasks), np.int8),
            np.zeros((len(last) + 1, machines), np.int64),
        )

    @property
    def arrays(self) -> Any:
        """For the compiled functions."""
        return (
            self.last, self.took_ns, self.out, self.count, self.genes, self.priorities, self.paths, self.rest,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _exchanged(machine: int, one: int, other: int) -> Any:
    if machine == one:
        return other
    return one if machine == other else machine


@njit(cache=True, nogil=True)
def rest_of(space: Any, pools: Any) -> None:
    """Fill `rest`, from the end. A device with unknown times counts as good as the best one."""
    last, took, out, count, rest, kind = pools[0], pools[1], pools[2], pools[3], pools[7], space[6]
    rest[len(last)] = 0
    for segment in range(len(last) - 1, -1, -1):
        rest[segment] = UNKNOWN
        for machine in range(count.shape[1]):
            for place in range(count[segment, machine]):
                behind = rest[segment + 1, kind[out[segment, machine, place]]]
                rest[segment, machine] = min(rest[segment, machine], took[segment, machine, place] + behind)
        least = rest[segment].min()
        for machine in range(count.shape[1]):
            if rest[segment, machine] == UNKNOWN:
                rest[segment, machine] = least


@njit(cache=True, nogil=True)
def keep(
    space: Any,
    pools: Any,
    genes: NDArray[np.int64],
    priorities: NDArray[np.float64],
    paths: NDArray[np.int8],
    ends: NDArray[np.int64],
) -> None:
    """Take the segments of evaluated rows into their pools: of equal times the youngest stays, else the best do."""
    last, took, out, count, own_genes, own_priorities, own_paths, rest = pools
    kind = space[6]
    for row in range(len(genes)):
        first, began, machine = 0, 0, 0
        for segment in range(len(last)):
            end = last[segment] + 1
            one = kind[machine]
            length, size = ends[row, segment] - began, count[segment, one]
            made = _exchanged(genes[row, end - 1], machine, one)
            key = length + rest[segment + 1, kind[made]]
            chosen, worst = -1, key
            for place in range(size):
                other = took[segment, one, place] + rest[segment + 1, kind[out[segment, one, place]]]
                if took[segment, one, place] == length and out[segment, one, place] == made:
                    chosen = place
                    break
                if size == took.shape[2] and other > worst:
                    chosen, worst = place, other
            if chosen < 0 and size < took.shape[2]:
                chosen = size
                count[segment, one] += 1
            if chosen >= 0:
                took[segment, one, chosen], out[segment, one, chosen] = length, made
                for task in range(first, end):
                    own_genes[one, chosen, task] = _exchanged(genes[row, task], machine, one)
                    own_priorities[one, chosen, task] = priorities[row, task]
                    if len(paths):
                        own_paths[one, chosen, task] = paths[row, task]
            first, began, machine = end, ends[row, segment], genes[row, end - 1]


@njit(cache=True, nogil=True)
def _parent(space: Any, pools: Any, segment: int, machine: int, rounds: int, state: NDArray[np.uint64]) -> Any:
    """Place of the best of `rounds` individuals drawn from a pool that is not empty; of all of it if `rounds` is 0."""
    took, out, count, rest, kind = pools[1], pools[2], pools[3], pools[7], space[6]
    size = count[segment, machine]
    best, least = -1, UNKNOWN
    for turn in range(rounds if rounds > 0 else size):
        place = random_below(size, state) if rounds > 0 else turn
        key = took[segment, machine, place] + rest[segment + 1, kind[out[segment, machine, place]]]
        if best < 0 or key < least:
            best, least = place, key
    return best


@njit(cache=True, nogil=True)
def breed_segments(
    space: Any,
    pools: Any,
    rates: NDArray[np.float64],
    best: bool,
    state: NDArray[np.uint64],
    new_genes: NDArray[np.int64],
    new_priorities: NDArray[np.float64],
) -> None:
    """Fill the children: of each segment a parent, crossed with another and changed. `rates` are those of `Rates` from
    `crossover` to `segment_share`. With `best`, the first child is put together of the best segments, unchanged."""
    last, count, genes, priorities, paths = pools[0], pools[3], pools[4], pools[5], pools[6]
    kind, tasks = space[6], genes.shape[2]
    folds = len(space[8]) > 0 or (kind != np.arange(len(kind))).any()
    path = np.zeros(tasks, np.int8)
    for child in range(len(new_genes)):
        gene, priority = new_genes[child], new_priorities[child]
        exact = best and child == 0
        always = random_below(len(last), state)
        first, machine = 0, 0
        for segment in range(len(last)):
            end = last[segment] + 1
            one = kind[machine]
            own = one
            if count[segment, own] == 0:
                own = random_below(len(kind), state)
                while count[segment, own] == 0:
                    own = (own + 1) % len(kind)
            parent = _parent(space, pools, segment, own, 0 if exact else np.int64(rates[4]), state)
            for task in range(first, end):
                gene[task] = genes[own, parent, task]
                priority[task] = priorities[own, parent, task]
                path[task] = paths[own, parent, task]
            if not exact and random_number(state) < rates[0]:
                other = _parent(space, pools, segment, own, np.int64(rates[4]), state)
                one_end = first + random_below(end - first, state)
                other_end = first + random_below(end - first + 1, state)
                for task in range(min(one_end, other_end), max(one_end, other_end)):
                    gene[task] = genes[own, other, task]
                    priority[task] = priorities[own, other, task]
            if own == one:
                for task in range(first, end):
                    gene[task] = _exchanged(gene[task], one, machine)
            if not exact and (segment == always or random_number(state) < rates[5]):
                while True:
                    change(space, gene, priority, path, rates[2], rates[3], first, end, state)
                    if random_number(state) >= rates[1]:
                        break
            first = end
            machine = gene[end - 1] if gene[end - 1] >= 0 else genes[own, parent, end - 1]
        if folds:
            canonical(space, gene, priority)
