"""The simulator that judges every method: when the tasks of a placement run, and when values travel.

    Problem + Placement --simulate--> Schedule

Streams run their tasks in order; a task waits for the values that it reads, on its machine. A value leaves for
another machine when it is made, once for all its readers there, and wires carry one value at a time. Tasks on several
streams of a machine whose shares of a resource add up to more than one slow each other down by that sum (`CostTable`).
A stage ends with a barrier over its streams, which costs each machine on which several worked its `stage_ns`; a single
stream is in order anyway.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.schedule.schedule import Schedule, TaskPlacement, TaskRun, ValueCopy
from hw_models.errors import PlacementError


def simulate(problem: Problem, placement: TaskPlacement) -> Schedule:
    """The schedule of a placement. Raises PlacementError for one that is not of this problem or cannot end."""
    _require_sound(problem, placement)
    simulation = _Simulation(problem, placement)
    simulation.run()
    graph, machines = problem.graph, problem.machines
    runs = [
        TaskRun(graph.tasks[task].name, machines[placement.machine[task]].name, placement.stream[task], start, end)
        for task, (start, end) in simulation.ran.items()
    ]
    copies = [
        ValueCopy(graph.values[value].name, machines[source].name, machines[target].name, start, end)
        for value, source, target, start, end in simulation.copied
    ]
    stages: tuple[tuple[str, ...], ...] = ()
    if placement.stage is not None:
        stages = tuple(
            tuple(graph.tasks[task].name for task in placement.order if placement.stage[task] == stage)
            for stage in sorted(set(placement.stage))
        )
    runs.sort(key=lambda run: (run.start_ns, run.end_ns, graph.number[run.task]))
    copies.sort(key=lambda copy: (copy.start_ns, copy.end_ns, copy.value, copy.target))
    return Schedule(graph.name, tuple(machine.name for machine in machines), tuple(runs), tuple(copies), stages)


def _require_sound(problem: Problem, placement: TaskPlacement) -> None:
    count = len(problem.graph.tasks)
    columns = [placement.machine, placement.stream, placement.order]
    columns += [placement.stage] if placement.stage is not None else []
    if any(len(column) != count for column in columns) or sorted(placement.order) != list(range(count)):
        raise PlacementError("placement", needs=f"one entry for each of {count} tasks")
    place = {task: number for number, task in enumerate(placement.order)}
    for task, (machine, stream) in enumerate(zip(placement.machine, placement.stream, strict=True)):
        name = problem.graph.tasks[task].name
        if machine not in problem.accepted[task] or not 0 <= stream < problem.machines[machine].streams:
            raise PlacementError(f"task {name}", needs="a device and stream that accept it", has=f"{machine}, {stream}")
        for before in problem.graph.predecessors[task]:
            stages = placement.stage
            if place[before] > place[task] or (stages is not None and stages[before] > stages[task]):
                raise PlacementError(f"task {name}", needs=f"a place after {problem.graph.tasks[before].name}")


@dataclass
class _Machine:
    """Tasks at work on a machine whose streams contend: task -> work that is left, in ns alone."""

    left: dict[int, float] = field(default_factory=dict)
    since: float = 0.0
    slowdown: float = 1.0
    version: int = 0


class _Simulation:
    """Events in the order of time; everything that ends at one moment ends before anything else starts."""

    def __init__(self, problem: Problem, placement: TaskPlacement) -> None:
        self.problem, self.placement = problem, placement
        graph = problem.graph
        self.place = {task: number for number, task in enumerate(placement.order)}
        self.queues: dict[tuple[int, int], deque[int]] = {}
        for task in placement.order:
            self.queues.setdefault((placement.machine[task], placement.stream[task]), deque()).append(task)
        self.missing = [len(reads) for reads in graph.reads]
        self.stage_left: dict[int, int] = {}
        for stage in placement.stage or ():
            self.stage_left[stage] = self.stage_left.get(stage, 0) + 1
        self.stages = sorted(self.stage_left)
        self.barrier_ns = self._barriers()
        self.opened = 0.0
        self.busy: set[tuple[int, int]] = set()
        self.machines = [_Machine() for _ in problem.machines]
        self.events: list[tuple[float, int, int, int]] = []
        self.wires: dict[str, list[tuple[float, int, int, int]]] = {}
        self.wire_busy: set[str] = set()
        self.wire_order = self._wire_orders()
        self.made: set[int] = set()
        self.ran: dict[int, tuple[float, float]] = {}
        self.started: dict[int, float] = {}
        self.copied: list[tuple[int, int, int, float, float]] = []

    def _wire_orders(self) -> dict[str, deque[tuple[int, int]]] | None:
        """The order in which each wire carries values, if the placement gives one."""
        if self.placement.copies is None:
            return None
        orders: dict[str, deque[tuple[int, int]]] = {}
        for value, target in self.placement.copies:
            source = self.placement.machine[self.problem.graph.producers[value]]
            orders.setdefault(self.problem.route[source, target].wire, deque()).append((value, target))
        return orders

    def _barriers(self) -> dict[int, int]:
        """For each stage, the longest barrier of the machines that have tasks on several streams in it."""
        streams: dict[tuple[int, int], set[int]] = {}
        for task, stage in enumerate(self.placement.stage or ()):
            if not self.problem.graph.tasks[task].is_end:
                streams.setdefault((stage, self.placement.machine[task]), set()).add(self.placement.stream[task])
        found = dict.fromkeys(self.stages, 0)
        for (stage, machine), used in streams.items():
            if len(used) > 1:
                found[stage] = max(found[stage], self.problem.machines[machine].stage_ns)
        return found

    def run(self) -> None:
        now = 0.0
        while True:
            self._start(now)
            if not self.events:
                break
            now = self.events[0][0]
            while self.events and self.events[0][0] <= now:
                _, kind, first, second = heapq.heappop(self.events)
                if kind == _TASK:
                    self._end_task(first, now)
                elif kind == _SHARED:
                    self._end_shared(first, second, now)
                elif kind == _COPY:
                    self._end_copy(first, second, now)
        if len(self.ran) < len(self.placement.order):
            stuck = next(task for task in self.placement.order if task not in self.ran)
            name = self.problem.graph.tasks[stuck].name
            raise PlacementError(f"task {name}", needs="values that arrive", has="an order of copies that never ends")

    def _start(self, now: float) -> None:
        """Start whatever can start now."""
        for stream, queue in self.queues.items():
            if stream not in self.busy and queue and not self.missing[queue[0]] and self._open(queue[0], now):
                self._start_task(queue.popleft(), stream, now)
        for wire, waiting in self.wires.items():
            if waiting and wire not in self.wire_busy:
                self._start_copy(wire, waiting, now)

    def _open(self, task: int, now: float) -> bool:
        """Whether the stage of a task has begun."""
        stages = self.placement.stage
        return stages is None or (stages[task] == self.stages[0] and now >= self.opened)

    def _start_task(self, task: int, stream: tuple[int, int], now: float) -> None:
        machine = stream[0]
        self.busy.add(stream)
        self.started[task] = now
        work = float(self.problem.work_ns[task, machine])
        if self.problem.contended[machine]:
            self._progress(machine, now)
            self.machines[machine].left[task] = work
            self._repace(machine, now)
        else:
            heapq.heappush(self.events, (now + work, _TASK, task, 0))

    def _progress(self, machine: int, now: float) -> None:
        """Subtract the work done since the last change on a machine."""
        state = self.machines[machine]
        for task in state.left:
            state.left[task] -= (now - state.since) / state.slowdown
        state.since = now

    def _repace(self, machine: int, now: float) -> None:
        """Set the pace of the tasks that now share a machine, and when the first of them ends."""
        state = self.machines[machine]
        shares = self.problem.costs.shares
        sums = [sum(parts) for parts in zip(*(shares[task][machine] for task in state.left), strict=True)]
        state.slowdown = max([1.0, *sums])
        state.version += 1
        if state.left:
            least = max(0.0, min(state.left.values()))
            heapq.heappush(self.events, (now + least * state.slowdown, _SHARED, machine, state.version))

    def _end_shared(self, machine: int, version: int, now: float) -> None:
        state = self.machines[machine]
        if version != state.version:
            return  # the pace has changed since
        self._progress(machine, now)
        least = min(state.left.values())
        for task in [task for task, left in state.left.items() if left <= max(least, _ROUNDING_NS)]:
            del state.left[task]
            self._end_task(task, now)
        self._repace(machine, now)

    def _end_task(self, task: int, now: float) -> None:
        graph, machines = self.problem.graph, self.placement.machine
        self.ran[task] = self.started[task], now
        self.busy.discard((machines[task], self.placement.stream[task]))
        for value in graph.writes[task]:
            self.made.add(value)
            elsewhere: dict[int, int] = {}
            for consumer in graph.consumers[value]:
                if machines[consumer] == machines[task]:
                    self.missing[consumer] -= 1
                else:
                    target = machines[consumer]
                    elsewhere[target] = min(elsewhere.get(target, len(self.place)), self.place[consumer])
            for target, place in elsewhere.items():
                wire = self.problem.route[machines[task], target].wire
                heapq.heappush(self.wires.setdefault(wire, []), (now, place, value, target))
        if self.placement.stage is not None:
            self._end_in_stage(task, now)

    def _end_in_stage(self, task: int, now: float) -> None:
        """Count a task off its stage; the last one opens the next, after the barriers."""
        assert self.placement.stage is not None
        stage = self.placement.stage[task]
        self.stage_left[stage] -= 1
        if self.stage_left[stage]:
            return
        self.stages.pop(0)
        self.opened = now + self.barrier_ns[stage]
        heapq.heappush(self.events, (self.opened, _NOTHING, 0, 0))

    def _start_copy(self, wire: str, waiting: list[tuple[float, int, int, int]], now: float) -> None:
        """Start the next value of a wire: the first that waits, or the one whose turn it is by the placement."""
        if self.wire_order is None:
            _, _, value, target = heapq.heappop(waiting)
        else:
            order = self.wire_order.get(wire)
            chosen = next((item for item in waiting if order and item[2:] == order[0]), None)
            if order is None or chosen is None:
                return
            waiting.remove(chosen)
            heapq.heapify(waiting)
            value, target = order.popleft()
        source = self.placement.machine[self.problem.graph.producers[value]]
        end = now + int(self.problem.copy_ns[value, source, target])
        self.copied.append((value, source, target, now, end))
        self.wire_busy.add(wire)
        heapq.heappush(self.events, (end, _COPY, value, target))

    def _end_copy(self, value: int, target: int, now: float) -> None:  # noqa: ARG002 - one signature for all events
        source = self.placement.machine[self.problem.graph.producers[value]]
        self.wire_busy.discard(self.problem.route[source, target].wire)
        for consumer in self.problem.graph.consumers[value]:
            if self.placement.machine[consumer] == target:
                self.missing[consumer] -= 1


_TASK, _SHARED, _COPY, _NOTHING = range(4)

_ROUNDING_NS = 1e-6
"""Work below this, in ns, counts as rounding."""
