"""The compiled list scheduler: from genes (a device and a priority per task) to times. All searches decode by it.

    genes + priorities --decode--> starts on lanes --Decoder.placement--> Placement --simulate--> the same makespan

A lane is a stream of a machine or a wire. Of the tasks whose producers are placed, the one of highest priority goes
next: the values that it lacks on its machine take the earliest gaps of their wires, then the task takes the earliest
gap of a stream there. A task without a device gene takes the machine where it ends first (plus its bias, for PEFT).
This is list scheduling with insertion, with wires as resources. Streams never slow each other down here: where they do
(`Problem.contended`), the makespan is an estimate and `simulate` has the last word.

Everything starts as early as the items before it on its lane and what it waits for allow, so `simulate` of the same
orders gives the same times to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.schedule.schedule import TaskPlacement

Tables = tuple[NDArray[np.int64], ...]

BY_DATA, BY_COPY, BY_LANE = 1, 2, 3
"""What the start of a task on the critical path waited for: a value made there, one that was copied, a busy stream."""

FREE = -1
"""The device gene of a task that goes where it ends first."""

_START, _END, _ITEM = range(3)
"""Rows of the items of lanes. Items are tasks, then copies (value x target machine)."""

_RUN_START, _RUN_END, _ON, _LANE, _RUN_TURN = range(5)
"""Rows of the runs, by task: times, machine, lane, and the turn in which it was decided."""

_LEAVE, _ARRIVE, _COPY_TURN = range(3)
"""Rows of the copies, by value and target machine; one that was never made arrives at -1."""


@njit(cache=True, nogil=True)
def _before(priority: NDArray[np.float64], one: int, other: int) -> Any:
    return priority[one] > priority[other] or (priority[one] == priority[other] and one < other)


@njit(cache=True, nogil=True)
def _push(heap: NDArray[np.int64], size: int, priority: NDArray[np.float64], task: int) -> Any:
    place = size
    heap[place] = task
    while place > 0:
        parent = (place - 1) >> 1
        if not _before(priority, heap[place], heap[parent]):
            break
        heap[place], heap[parent] = heap[parent], heap[place]
        place = parent
    return size + 1


@njit(cache=True, nogil=True)
def _pop(heap: NDArray[np.int64], size: int, priority: NDArray[np.float64]) -> Any:
    """The task of highest priority, and how many are left."""
    top = heap[0]
    size -= 1
    heap[0] = heap[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            return top, size
        if child + 1 < size and _before(priority, heap[child + 1], heap[child]):
            child += 1
        if not _before(priority, heap[child], heap[place]):
            return top, size
        heap[place], heap[child] = heap[child], heap[place]
        place = child


@njit(cache=True, nogil=True)
def _fit(lanes: NDArray[np.int64], counts: NDArray[np.int64], lane: int, ready: int, length: int) -> Any:
    """The earliest start from `ready` on in which the lane is free for `length`, and its place among the items."""
    count = counts[lane]
    place = count
    while place > 0 and lanes[_END, lane, place - 1] > ready:
        place -= 1
    start = ready
    while place < count and lanes[_START, lane, place] < start + length:
        start = lanes[_END, lane, place]
        place += 1
    return start, place


@njit(cache=True, nogil=True)
def _put(
    lanes: NDArray[np.int64], counts: NDArray[np.int64], lane: int, place: int, start: int, end: int, item: int
) -> None:
    for later in range(counts[lane], place, -1):
        for row in range(3):
            lanes[row, lane, later] = lanes[row, lane, later - 1]
    lanes[_START, lane, place] = start
    lanes[_END, lane, place] = end
    lanes[_ITEM, lane, place] = item
    counts[lane] += 1


@njit(cache=True, nogil=True)
def _bring(
    tables: Any,
    lanes: NDArray[np.int64],
    counts: NDArray[np.int64],
    runs: NDArray[np.int64],
    copies: NDArray[np.int64],
    wanted: NDArray[np.int64],
    undo: NDArray[np.int64],
    reads: int,
    machine: int,
) -> Any:
    """Copy what a task lacks on a machine; returns when all of it is there, and the number of copies (for
    `_take_back`).

    `wanted` has the values in the order in which they are made.
    """
    producer, copy_ns, wire = tables[3], tables[7], tables[9]
    tasks, machines = runs.shape[1], copy_ns.shape[1]
    ready, made = 0, 0
    for number in range(reads):
        value = wanted[number]
        source = runs[_ON, producer[value]]
        there = runs[_RUN_END, producer[value]]
        if source != machine:
            if copies[_ARRIVE, value, machine] < 0:
                lane = wire[source, machine]
                length = copy_ns[value, source, machine]
                start, place = _fit(lanes, counts, lane, there, length)
                _put(lanes, counts, lane, place, start, start + length, tasks + value * machines + machine)
                copies[_LEAVE, value, machine] = start
                copies[_ARRIVE, value, machine] = start + length
                undo[made, 0], undo[made, 1], undo[made, 2] = value, lane, place
                made += 1
            there = copies[_ARRIVE, value, machine]
        ready = max(ready, there)
    return ready, made


@njit(cache=True, nogil=True)
def _take_back(
    lanes: NDArray[np.int64],
    counts: NDArray[np.int64],
    copies: NDArray[np.int64],
    undo: NDArray[np.int64],
    made: int,
    machine: int,
) -> None:
    for number in range(made - 1, -1, -1):
        lane = undo[number, 1]
        copies[_ARRIVE, undo[number, 0], machine] = -1
        counts[lane] -= 1
        for later in range(undo[number, 2], counts[lane]):
            for row in range(3):
                lanes[row, lane, later] = lanes[row, lane, later + 1]


@njit(cache=True, nogil=True)
def _stream(
    lanes: NDArray[np.int64],
    counts: NDArray[np.int64],
    lane_from: NDArray[np.int64],
    machine: int,
    ready: int,
    length: int,
) -> Any:
    """The stream of a machine in which a task starts first: its lane, the start, and the place in the lane."""
    best, best_lane, best_place = -1, -1, -1
    for lane in range(lane_from[machine], lane_from[machine + 1]):
        start, place = _fit(lanes, counts, lane, ready, length)
        if best < 0 or start < best:
            best, best_lane, best_place = start, lane, place
    return best_lane, best, best_place


@njit(cache=True, nogil=True)
def _sort_reads(tables: Any, runs: NDArray[np.int64], task: int, wanted: NDArray[np.int64]) -> Any:
    """Write the values that a task reads into `wanted`, in the order in which they are made; returns their number."""
    reads_from, reads, producer = tables[1], tables[2], tables[3]
    first, last = reads_from[task], reads_from[task + 1]
    for number in range(first, last):
        place = number - first
        made = runs[_RUN_END, producer[reads[number]]]
        while place > 0 and runs[_RUN_END, producer[wanted[place - 1]]] > made:
            wanted[place] = wanted[place - 1]
            place -= 1
        wanted[place] = reads[number]
    return last - first


@njit(cache=True, nogil=True)
def decode(
    tables: Any, room: Any, gene: NDArray[np.int64], priority: NDArray[np.float64], bias: NDArray[np.float64]
) -> Any:
    """Fill `room` with the list schedule of the genes. The makespan in ns."""
    work, after_from, after, before, lane_from = tables[0], tables[4], tables[5], tables[6], tables[8]
    lanes, runs, copies, counts, heap, missing, wanted, undo, _ = room
    counts[:] = 0
    copies[_ARRIVE] = -1
    missing[:] = before
    size, turn, makespan = 0, 0, 0
    for task in range(len(work)):
        if missing[task] == 0:
            size = _push(heap, size, priority, task)
    while size:
        task, size = _pop(heap, size, priority)
        reads = _sort_reads(tables, runs, task, wanted)
        # Every candidate machine is tried and left again; the chosen one is entered once more, for good.
        first, last = (gene[task], gene[task] + 1) if gene[task] >= 0 else (0, work.shape[1])
        machine, best = first, np.inf
        for trial in range(first, last + 1):
            other = trial if trial < last else machine
            if (last - first == 1 and trial < last) or work[task, other] < 0:
                continue
            ready, made = _bring(tables, lanes, counts, runs, copies, wanted, undo, reads, other)
            lane, start, place = _stream(lanes, counts, lane_from, other, ready, work[task, other])
            if trial < last:
                _take_back(lanes, counts, copies, undo, made, other)
                score = start + work[task, other] + bias[task, other]
                if score < best:
                    best, machine = score, other
                continue
            end = start + work[task, other]
            for number in range(made):
                copies[_COPY_TURN, undo[number, 0], other] = turn
                turn += 1
            _put(lanes, counts, lane, place, start, end, task)
            runs[_ON, task], runs[_LANE, task], runs[_RUN_TURN, task] = other, lane, turn
            runs[_RUN_START, task], runs[_RUN_END, task] = start, end
            turn += 1
            makespan = max(makespan, end)
        for number in range(after_from[task], after_from[task + 1]):
            missing[after[number]] -= 1
            if missing[after[number]] == 0:
                size = _push(heap, size, priority, after[number])
    return makespan


@njit(cache=True, nogil=True)
def _trace(tables: Any, room: Any, code: NDArray[np.int8]) -> None:
    """Walk back from the end along what each start waited for. `code` gets this for each task of the critical path."""
    reads_from, reads, producer = tables[1], tables[2], tables[3]
    lanes, runs, copies, counts, previous = room[0], room[1], room[2], room[3], room[8]
    tasks, machines = runs.shape[1], copies.shape[2]
    for lane in range(len(counts)):
        for place in range(counts[lane]):
            item = lanes[_ITEM, lane, place]
            follows = place > 0 and lanes[_END, lane, place - 1] == lanes[_START, lane, place]
            previous[item] = lanes[_ITEM, lane, place - 1] if follows else -1
    code[:] = 0
    item = np.argmax(runs[_RUN_END])
    for _ in range(len(previous)):
        if item < tasks:
            start = runs[_RUN_START, item]
            following, why = previous[item], BY_LANE
            for number in range(reads_from[item], reads_from[item + 1]):
                value = reads[number]
                if runs[_ON, producer[value]] == runs[_ON, item]:
                    if runs[_RUN_END, producer[value]] == start:
                        following, why = producer[value], BY_DATA
                elif copies[_ARRIVE, value, runs[_ON, item]] == start and why != BY_DATA:
                    following, why = tasks + value * machines + runs[_ON, item], BY_COPY
            code[item] = why
        else:
            value, target = (item - tasks) // machines, (item - tasks) % machines
            start = copies[_LEAVE, value, target]
            following = producer[value] if runs[_RUN_END, producer[value]] == start else previous[item]
        if start == 0 or following < 0:
            return
        item = following


@njit(cache=True, nogil=True)
def evaluate(
    tables: Any,
    room: Any,
    genes: NDArray[np.int64],
    priorities: NDArray[np.float64],
    bias: NDArray[np.float64],
    makespans: NDArray[np.int64],
    paths: NDArray[np.int8],
    watched: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    """Makespans and critical paths of rows of genes; FREE genes become the choices made for them. `paths` may
    be empty when none are wanted. `ends` gets the ends of the tasks in `watched`.
    """
    for row in range(len(genes)):
        makespans[row] = decode(tables, room, genes[row], priorities[row], bias)
        genes[row] = room[1][_ON]
        for place in range(len(watched)):
            ends[row, place] = room[1][_RUN_END, watched[place]]
        if len(paths):
            _trace(tables, room, paths[row])


def offsets(rows: tuple[tuple[int, ...], ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows in sequence: where each begins (and the last ends), and all of them."""
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return ends, np.array([item for row in rows for item in row], np.int64)


@dataclass(frozen=True)
class Decoder:
    """A problem as flat arrays, and the memory that decoding works in. Not for two threads at once."""

    problem: Problem
    tables: Any
    room: Any
    no_bias: NDArray[np.float64]

    @staticmethod
    def of(problem: Problem) -> Decoder:
        graph, machines = problem.graph, len(problem.machines)
        tasks, values = len(graph.tasks), len(graph.values)
        wires = sorted({route.wire for route in problem.route.values()})
        streams = [machine.streams for machine in problem.machines]
        lane_from = np.cumsum([0, *streams], dtype=np.int64)
        wire = np.full((machines, machines), -1, np.int64)
        for (source, target), route in problem.route.items():
            wire[source, target] = lane_from[-1] + wires.index(route.wire)
        before = np.array([len(others) for others in graph.predecessors], np.int64)
        tables = (
            np.ascontiguousarray(problem.work_ns),
            *offsets(graph.reads),
            np.array(graph.producers, np.int64),
            *offsets(graph.successors),
            before,
            np.ascontiguousarray(problem.copy_ns),
            lane_from,
            wire,
        )
        lanes = int(lane_from[-1]) + len(wires)
        longest = max(tasks, values * (machines - 1)) + 1
        widest = max((len(reads) for reads in graph.reads), default=0) + 1
        room = (
            np.empty((3, lanes, longest), np.int64),  # pages that nothing touches take no memory: most lanes are short
            np.zeros((5, tasks), np.int64),
            np.zeros((3, values, machines), np.int64),
            np.zeros(lanes, np.int64),
            np.zeros(tasks + 1, np.int64),
            np.zeros(tasks, np.int64),
            np.zeros(widest, np.int64),
            np.zeros((widest, 3), np.int64),
            np.full(tasks + values * machines, -1, np.int64),
        )
        return Decoder(problem, tables, room, np.zeros((tasks, machines)))

    def run(
        self,
        gene: NDArray[np.int64],
        priority: NDArray[np.float64],
        bias: NDArray[np.float64] | None = None,
    ) -> int:
        """The makespan of the genes; `placement` and `machine` are then of these. `FREE` genes are chosen by end."""
        return int(decode(self.tables, self.room, gene, priority, self.no_bias if bias is None else bias))

    @property
    def machine(self) -> NDArray[np.int64]:
        """Machine to which each task was decoded."""
        return np.array(self.room[1][_ON])

    @property
    def turns(self) -> NDArray[np.int64]:
        """Turn in which each task was decided: smaller is earlier."""
        return np.array(self.room[1][_RUN_TURN])

    def placement(self) -> TaskPlacement:
        """The placement decoded last, with the order of copies, so that `simulate` gives the same times."""
        start, end, machine, lane, turn = self.room[1]
        leave, arrive, copy_turn = self.room[2]
        order = np.lexsort((turn, end, start))
        stream = lane - self.tables[8][machine]
        values, targets = np.nonzero(arrive >= 0)
        keys = tuple(row[values, targets] for row in (copy_turn, arrive, leave))
        copies = tuple((int(values[n]), int(targets[n])) for n in np.lexsort(keys))
        return TaskPlacement(tuple(machine.tolist()), tuple(stream.tolist()), tuple(order.tolist()), None, copies)

    def evaluate(
        self, genes: NDArray[np.int64], priorities: NDArray[np.float64], *, paths: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Makespans of rows of genes; with `paths`, what each task of their critical paths waited for (else 0)."""
        return self.watch(genes, priorities, np.zeros(0, np.int64), paths=paths)[:2]

    def watch(
        self, genes: NDArray[np.int64], priorities: NDArray[np.float64], watched: NDArray[np.int64], *, paths: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64]]:
        """Like `evaluate`, with an array, row x task, of the ends of the tasks in `watched`."""
        makespans, ends = np.zeros(len(genes), np.int64), np.zeros((len(genes), len(watched)), np.int64)
        codes = np.zeros(genes.shape if paths else (0, 0), np.int8)
        evaluate(self.tables, self.room, genes, priorities, self.no_bias, makespans, codes, watched, ends)
        return makespans, codes, ends
