"""Runs a placement for real: one worker per stream of a device and one per wire, all at the same time.

    Placement + compiled parts + feeds --Executor--> outputs, and a Schedule of when everything really happened

A worker runs its tasks in the order of the placement, each as soon as its inputs are on its device. Values are copied
by the workers of wires while devices compute. A worker that fails stops all others at their next task, and the run
raises one error that names device and task. A simulated device computes values but does not take the time: if there is
one, the schedule is the simulator's, with the measured times of real devices and wires and the computed times of
simulated ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from queue import SimpleQueue
from threading import Event, Lock, Thread
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.schedule.schedule import Schedule, TaskPlacement, TaskRun, ValueCopy
from dsa_sched.placement.schedule.simulate import simulate
from hw_models.errors import PlacementError

Array = npt.NDArray[Any]

RunTask = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Function that runs a task on its device: values read, by name -> values made, in arrays that stay unchanged."""


@dataclass(frozen=True)
class ScheduleExecution:
    """`outputs` are the values that the network gives out. `accounted` says that the times of the schedule are partly
    those of simulated devices. `worked_ns` is the processor's time of each task in the thread of its worker: all of its
    work where it is done in that thread, without any other work of the machine.
    """

    outputs: Mapping[str, Array]
    schedule: Schedule
    accounted: bool
    worked_ns: Mapping[str, int]

    @property
    def makespan_ns(self) -> float:
        return self.schedule.makespan_ns


@dataclass
class _Attempt:
    """State of one run: the values that are there and those that are missing. Workers change it under the lock."""

    missing: list[int]
    values: dict[tuple[str, int], Array]
    """(value, machine) -> array."""
    lock: Lock = field(default_factory=Lock)
    ready: list[Event] = field(default_factory=list)
    sent: list[SimpleQueue[tuple[int, int] | None]] = field(default_factory=list)
    """For each wire, (value, target) that can leave; None ends the run."""
    finished: SimpleQueue[None] = field(default_factory=SimpleQueue)
    failure: BaseException | None = None
    failed_in: str = ""
    started_ns: int = 0
    ran: dict[int, tuple[int, int]] = field(default_factory=dict)
    worked: dict[int, int] = field(default_factory=dict)
    copied: list[tuple[int, int, int, int]] = field(default_factory=list)

    def now(self) -> int:
        return perf_counter_ns() - self.started_ns

    def fail(self, where: str, error: BaseException) -> None:
        """The first failure counts; everybody wakes up and stops."""
        with self.lock:
            if self.failure is None:
                self.failure, self.failed_in = error, where
        for event in self.ready:
            event.set()
        for queue in self.sent:
            queue.put(None)


class Executor:
    """Workers that are ready to run one placement, as often as asked; they end with its `with` block or by `close`.

    `run_task` has each task that is no end by its number; `simulated` says which machines are simulated. Raises
    PlacementError for a placement that is not of the problem.
    """

    def __init__(
        self,
        problem: Problem,
        placement: TaskPlacement,
        run_task: Mapping[int, RunTask],
        simulated: Sequence[bool] = (),
    ) -> None:
        self._problem, self._placement, self._run_task = problem, placement, run_task
        self._simulated = tuple(simulated) or (False,) * len(problem.machines)
        self.predicted = simulate(problem, placement)
        graph = problem.graph
        self._place = {task: number for number, task in enumerate(placement.order)}
        self._ends = {task for task, made in enumerate(graph.tasks) if made.is_end}
        work = [task for task in placement.order if task not in self._ends]
        streams: dict[tuple[int, int], list[int]] = {}
        for task in work:
            streams.setdefault((placement.machine[task], placement.stream[task]), []).append(task)
        self._after = self._followers()
        self._copies, self._targets = self._wires()
        self._wire_of = {item: wire for wire, items in enumerate(self._copies) for item in items}
        self._buffers: dict[tuple[int, int], Array] = {}
        self._orders: list[SimpleQueue[_Attempt | None]] = []
        self._threads: list[Thread] = []
        # The caller's thread is the worker of one stream: one device alone then costs no change of threads.
        all_streams: list[list[int]] = list(streams.values()) or [[]]
        self._own = all_streams[0]
        for own in all_streams[1:]:
            self._start(self._work_off, own)
        for wire in range(len(self._copies)):
            self._start(self._carry, wire)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, each after its current task."""
        for order in self._orders:
            order.put(None)
        for thread in self._threads:
            thread.join()

    def run(self, feeds: Mapping[str, Array]) -> ScheduleExecution:
        """Raises PlacementError naming the device and the task that failed, or the value that was not given."""
        attempt = self._attempt(feeds)
        graph = self._problem.graph
        attempt.started_ns = perf_counter_ns()
        for task in self._ends:
            if graph.writes[task]:
                self._end_of(attempt, task, 0, 0)
        for order in self._orders:
            order.put(attempt)
        try:
            self._work_off(attempt, self._own)
            for _ in self._orders:
                attempt.finished.get()
        except BaseException as error:  # the user stops the run: the workers stop too
            attempt.fail("the run", error)
            raise
        if isinstance(attempt.failure, KeyboardInterrupt):
            raise attempt.failure
        if attempt.failure is not None:
            needs = "a run to its end"
            has = f"{type(attempt.failure).__name__}: {attempt.failure}"
            raise PlacementError(attempt.failed_in, needs=needs, has=has) from attempt.failure
        return self._execution(attempt)

    def _attempt(self, feeds: Mapping[str, Array]) -> _Attempt:
        graph = self._problem.graph
        missing = [len(graph.reads[task]) for task in range(len(graph.tasks))]
        for followers in self._after.values():
            for task in followers:
                missing[task] += 1
        attempt = _Attempt(missing, {})
        attempt.ready = [Event() for _ in missing]
        attempt.sent = [SimpleQueue() for _ in self._copies]
        for task in self._ends:
            for value in graph.writes[task]:
                name = graph.values[value].name
                if name not in feeds:
                    raise PlacementError(
                        f"input {name}", needs="an array", has=f"arrays for {', '.join(feeds) or 'none'}"
                    )
                attempt.values[name, self._placement.machine[task]] = np.asarray(feeds[name])
        for task, count in enumerate(missing):
            if not count:
                attempt.ready[task].set()
        return attempt

    def _followers(self) -> dict[int, list[int]]:
        """For each last task of a stage, the tasks that may start only when it is over."""
        stages = self._placement.stage
        if stages is None:
            return {}
        levels = sorted(set(stages))
        members = {level: [task for task in self._placement.order if stages[task] == level] for level in levels}
        after: dict[int, list[int]] = {}
        for before, level in pairwise(levels):
            for task in members[before]:
                after[task] = members[level]
        return after

    def _wires(self) -> tuple[list[list[tuple[int, int]]], dict[int, list[tuple[int, int]]]]:
        """For each wire, the (value, target) that it carries, in turn; for each value, its (wire, target)."""
        graph, machine, route = self._problem.graph, self._placement.machine, self._problem.route
        wires: dict[str, int] = {}
        copies: list[list[tuple[int, int]]] = []
        targets: dict[int, list[tuple[int, int]]] = {}
        planned = self._predicted_copies()
        for value, target in planned:
            name = route[machine[graph.producers[value]], target].wire
            wire = wires.setdefault(name, len(wires))
            if wire == len(copies):
                copies.append([])
            copies[wire].append((value, target))
            targets.setdefault(value, []).append((wire, target))
        return copies, targets

    def _predicted_copies(self) -> list[tuple[int, int]]:
        value = self._problem.graph.value_number
        machine = {item.name: number for number, item in enumerate(self._problem.machines)}
        return [(value[copy.value], machine[copy.target]) for copy in self.predicted.copies]

    def _start(self, work: Callable[[_Attempt, Any], None], own: object) -> None:
        order: SimpleQueue[_Attempt | None] = SimpleQueue()

        def loop() -> None:
            while (attempt := order.get()) is not None:
                try:
                    work(attempt, own)
                except BaseException as error:  # a worker never dies: the run reports what happened
                    attempt.fail("the run-time", error)
                attempt.finished.put(None)

        self._orders.append(order)
        thread = Thread(target=loop, name="dsa-sched device or wire", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work_off(self, attempt: _Attempt, own: list[int]) -> None:
        """Run one stream: its tasks in order."""
        graph = self._problem.graph
        for task in own:
            attempt.ready[task].wait()
            if attempt.failure is not None:
                return
            machine = self._placement.machine[task]
            try:
                reads = {
                    graph.values[value].name: attempt.values[graph.values[value].name, machine]
                    for value in graph.reads[task]
                }
                start, worked = attempt.now(), thread_time_ns()
                made = self._run_task[task](reads)
                end, attempt.worked[task] = attempt.now(), thread_time_ns() - worked
                for value in graph.writes[task]:
                    attempt.values[graph.values[value].name, machine] = made[graph.values[value].name]
            except BaseException as error:
                device = self._problem.machines[machine].name
                attempt.fail(f"task {graph.tasks[task].name} on device {device}", error)
                return
            self._end_of(attempt, task, start, end)

    def _end_of(self, attempt: _Attempt, task: int, start: int, end: int) -> None:
        """Tell who waits for a task: readers on its machine, wires, the next stage."""
        graph, machine = self._problem.graph, self._placement.machine
        attempt.ran[task] = start, end
        for value in graph.writes[task]:
            for wire, target in self._targets.get(value, ()):
                attempt.sent[wire].put((value, target))
            for consumer in graph.consumers[value]:
                if machine[consumer] == machine[task]:
                    self._arrived(attempt, consumer)
        for follower in self._after.get(task, ()):
            self._arrived(attempt, follower)

    def _arrived(self, attempt: _Attempt, task: int) -> None:
        with attempt.lock:
            attempt.missing[task] -= 1
            complete = attempt.missing[task] == 0
        if complete and task in self._ends:
            now = attempt.now()
            self._end_of(attempt, task, now, now)
        elif complete:
            attempt.ready[task].set()

    def _carry(self, attempt: _Attempt, wire: int) -> None:
        """Run one wire: values in the order in which they are made, or in that of the placement."""
        in_order = self._placement.copies is not None
        left, waiting = list(self._copies[wire]), list[tuple[int, int]]()
        while left:
            while not waiting or (in_order and left[0] not in waiting):
                item = attempt.sent[wire].get()
                if item is None or attempt.failure is not None:
                    return
                waiting.append(item)
            item = left[0] if in_order else waiting[0]
            waiting.remove(item)
            left.remove(item)
            value, target = item
            try:
                self._copy(attempt, value, target)
            except BaseException as error:
                name = self._problem.graph.values[value].name
                attempt.fail(f"copy of {name} to device {self._problem.machines[target].name}", error)
                return

    def _copy(self, attempt: _Attempt, value: int, target: int) -> None:
        graph, machine = self._problem.graph, self._placement.machine
        name, source = graph.values[value].name, machine[graph.producers[value]]
        array = attempt.values[name, source]
        buffer = self._buffers.get((value, target))
        if buffer is None or buffer.shape != array.shape or buffer.dtype != array.dtype:
            buffer = self._buffers[value, target] = np.empty_like(array, order="C")
        start = attempt.now()
        np.copyto(buffer, array)
        end = attempt.now()
        attempt.copied.append((value, target, start, end))
        attempt.values[name, target] = buffer
        for consumer in graph.consumers[value]:
            if machine[consumer] == target:
                self._arrived(attempt, consumer)

    def _execution(self, attempt: _Attempt) -> ScheduleExecution:
        graph = self._problem.graph
        outputs = {}
        for task in self._ends:
            for value in graph.reads[task]:
                name, machine = graph.values[value].name, self._placement.machine[task]
                array = attempt.values[name, machine]
                # Buffers and inputs are reused, so the outputs belong to the user.
                lent = array is self._buffers.get((value, machine)) or graph.producers[value] in self._ends
                outputs[name] = array.copy() if lent else array
        accounted = any(self._simulated[machine] for machine in self._placement.machine)
        schedule = self._accounted(attempt) if accounted else self._as_it_was(attempt)
        worked = {graph.tasks[task].name: ns for task, ns in attempt.worked.items()}
        return ScheduleExecution(outputs, schedule, accounted, worked)

    def _as_it_was(self, attempt: _Attempt) -> Schedule:
        graph, placement = self._problem.graph, self._placement
        names = tuple(machine.name for machine in self._problem.machines)
        runs = [
            TaskRun(graph.tasks[task].name, names[placement.machine[task]], placement.stream[task], start, end)
            for task, (start, end) in attempt.ran.items()
        ]
        copies = [
            ValueCopy(
                graph.values[value].name, names[placement.machine[graph.producers[value]]], names[target], start, end
            )
            for value, target, start, end in attempt.copied
        ]
        runs.sort(key=lambda run: (run.start_ns, run.end_ns, graph.number[run.task]))
        copies.sort(key=lambda copy: (copy.start_ns, copy.end_ns, copy.value, copy.target))
        return Schedule(graph.name, names, tuple(runs), tuple(copies), self.predicted.stages)

    def undisturbed_ns(self, execution: ScheduleExecution) -> float:
        """Makespan of a run in ns if each task had taken only its `worked_ns`: without the effect of other work on the
        machine, but with the cost of devices sharing caches and memory.
        """
        graph, machine = self._problem.graph, self._placement.machine
        times = {graph.number[name]: ns for name, ns in execution.worked_ns.items()}
        real = {task: ns for task, ns in times.items() if not self._simulated[machine[task]]}
        return simulate(self._with_times(real), self._placement).makespan_ns

    def _with_times(self, times: Mapping[int, int]) -> Problem:
        """The problem with other times of tasks, each on its machine."""
        work = [list(row) for row in self._problem.costs.work_ns]
        for task, ns in times.items():
            work[task][self._placement.machine[task]] = ns
        costs = replace(self._problem.costs, work_ns=tuple(map(tuple, work)))
        return Problem(self._problem.graph, costs)

    def _accounted(self, attempt: _Attempt) -> Schedule:
        """Schedule of the simulator, with the times of tasks on real devices; copies take what their routes give."""
        machine = self._placement.machine
        real = {
            task: end - start
            for task, (start, end) in attempt.ran.items()
            if task not in self._ends and not self._simulated[machine[task]]
        }
        return simulate(self._with_times(real), self._placement)
