"""Schedules: what runs where and when. A method decides a `TaskPlacement`; the simulator makes a `Schedule` from it.

Placement(machine, stream, order, stage) --simulate--> Schedule(runs, copies, stages) --verify_schedule--> sound
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from dsa_sched.placement.model.problem import NOT_ACCEPTED, Problem
from hw_models.errors import PlacementError
from partitioner.ir.text import format_line

ROUNDING = 1e-9
"""Relative rounding error of a long time that is the sum of many parts."""

SLACK_NS = 1e-3
"""Rounding error, in ns, of times on machines whose streams slow each other down; elsewhere times are whole."""


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """The decisions, by task number. `order` has every task once, producers first: streams work tasks off in it.

    With `stage`, a task starts only when all tasks of lower stages are over. `copies` (value, target machine) is the
    order in which wires carry values; without it, in the order in which they are made.
    """

    machine: tuple[int, ...]
    stream: tuple[int, ...]
    order: tuple[int, ...]
    stage: tuple[int, ...] | None = None
    copies: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A task on a stream of a machine. Times are nanoseconds from the start; whole, except where streams contend."""

    task: str
    machine: str
    stream: int
    start_ns: float
    end_ns: float


@dataclass(frozen=True, slots=True)
class ValueCopy:
    """A value on its way between machines."""

    value: str
    source: str
    target: str
    start_ns: float
    end_ns: float


@dataclass(frozen=True)
class Schedule:
    """Runs and copies in the order of their starts. `stages` are the tasks of each stage, empty without stages."""

    graph: str
    machines: tuple[str, ...]
    runs: tuple[TaskRun, ...]
    copies: tuple[ValueCopy, ...]
    stages: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def makespan_ns(self) -> float:
        """When the last task is over."""
        return max((run.end_ns for run in self.runs), default=0)

    @cached_property
    def run_of(self) -> dict[str, TaskRun]:
        """Task name -> its run."""
        return {run.task: run for run in self.runs}

    def busy_ns(self, machine: str) -> float:
        """Time in which at least one stream of a machine works."""
        total, seen = 0.0, 0.0
        for run in sorted((run for run in self.runs if run.machine == machine), key=lambda run: run.start_ns):
            total += max(0.0, run.end_ns - max(run.start_ns, seen))
            seen = max(seen, run.end_ns)
        return total

    def __str__(self) -> str:
        lines = [format_line("schedule", ("graph", self.graph), ("machines", self.machines))]
        for run in self.runs:
            where = (("task", run.task), ("machine", run.machine), ("stream", run.stream))
            lines.append("  " + format_line("run", *where, *_times(run)))
        for copy in self.copies:
            way = (("value", copy.value), ("source", copy.source), ("target", copy.target))
            lines.append("  " + format_line("copy", *way, *_times(copy)))
        lines += ["  " + format_line("stage", ("tasks", tasks)) for tasks in self.stages]
        return "\n".join(lines) + "\n"


def _times(item: TaskRun | ValueCopy) -> tuple[tuple[str, float], ...]:
    def plain(time: float) -> float:
        return int(time) if time == int(time) else time

    return ("start_ns", plain(item.start_ns)), ("end_ns", plain(item.end_ns))


def single_machine(problem: Problem, machine: int) -> TaskPlacement | None:
    """Placement of everything on one machine and one stream, in the order of the graph; the ends stay on the host. None
    where the machine does not accept every task.
    """
    tasks = problem.graph.tasks
    places = tuple(0 if task.is_end else machine for task in tasks)
    if any(place not in accepted for place, accepted in zip(places, problem.accepted, strict=True)):
        return None
    return TaskPlacement(places, (0,) * len(tasks), tuple(range(len(tasks))))


def verify_schedule(schedule: Schedule, problem: Problem) -> None:
    """Check that every task runs once, on a device that accepts it, for as long as its work takes next to what other
    streams run, one at a time per stream; that what it reads is there before it starts; that wires carry one value at a
    time; and that stages follow each other, with their barriers. Raises PlacementError.

    It is independent of the simulator, so that each checks the other.
    """
    graph = problem.graph
    number = {machine.name: place for place, machine in enumerate(problem.machines)}
    if sorted(run.task for run in schedule.runs) != sorted(graph.number):
        raise PlacementError(f"schedule of {graph.name}", needs="every task of the graph, once")
    streams: dict[tuple[str, int], list[TaskRun | ValueCopy]] = {}
    for run in schedule.runs:
        task, machine = graph.number[run.task], number.get(run.machine, -1)
        work = int(problem.work_ns[task, machine]) if machine >= 0 else NOT_ACCEPTED
        if work == NOT_ACCEPTED or not 0 <= run.stream < problem.machines[machine].streams:
            raise PlacementError(f"task {run.task}", needs="a device and stream that accept it", has=str(run))
        taken = run.end_ns - run.start_ns
        alone = problem.contended[machine] or abs(taken - work) <= SLACK_NS
        if run.start_ns < 0 or taken < work - SLACK_NS or not alone:
            raise PlacementError(f"task {run.task}", needs=f"{work} ns of work", has=f"{taken} ns")
        streams.setdefault((run.machine, run.stream), []).append(run)
    for (name, stream), items in streams.items():
        _one_at_a_time(f"{name} stream {stream}", items)
    for machine, contended in enumerate(problem.contended):
        if contended:
            _verify_shared(schedule, problem, machine)
    arrived = _arrivals(schedule, problem, number)
    for value, producer, consumers in zip(graph.values, graph.producers, graph.consumers, strict=True):
        made = schedule.run_of[graph.tasks[producer].name]
        for consumer in consumers:
            run = schedule.run_of[graph.tasks[consumer].name]
            there = made.end_ns if run.machine == made.machine else arrived.get((value.name, run.machine))
            if there is None or run.start_ns < there - SLACK_NS:
                raise PlacementError(f"task {run.task}", needs=f"{value.name} on {run.machine} first", has=str(run))
    _verify_stages(schedule, problem)


def _verify_shared(schedule: Schedule, problem: Problem, machine: int) -> None:
    """Check runs on a machine whose streams contend: what each has done, moment by moment, adds up to its work."""
    runs = [run for run in schedule.runs if run.machine == problem.machines[machine].name]
    tasks = {run.task: problem.graph.number[run.task] for run in runs}
    done = dict.fromkeys(tasks, 0.0)
    lasting = [run for run in runs if run.end_ns > run.start_ns]
    changes = [(run.start_ns, 1, run) for run in lasting] + [(run.end_ns, 0, run) for run in lasting]
    active: dict[str, TaskRun] = {}
    since = 0.0
    for now, begins, run in sorted(changes, key=itemgetter(0, 1)):
        shares = (problem.costs.shares[tasks[name]][machine] for name in active)
        slowdown = max([1.0, *map(sum, zip(*shares, strict=True))])
        for name in active:
            done[name] += (now - since) / slowdown
        since = now
        if begins:
            active[run.task] = run
        else:
            del active[run.task]
    for name, task in tasks.items():
        work = int(problem.work_ns[task, machine])
        if abs(done[name] - work) > max(SLACK_NS, ROUNDING * work):
            raise PlacementError(
                f"task {name}", needs=f"{work} ns of work beside the other streams", has=f"{done[name]}"
            )


def _one_at_a_time(who: str, items: Iterable[TaskRun | ValueCopy]) -> None:
    end = 0.0
    for item in sorted(items, key=lambda item: (item.start_ns, item.end_ns)):
        if item.start_ns < end - SLACK_NS:
            raise PlacementError(who, needs="one task or value at a time", has=f"{item} before {end} ns")
        end = max(end, item.end_ns)


def _arrivals(schedule: Schedule, problem: Problem, number: dict[str, int]) -> dict[tuple[str, str], float]:
    """(value, machine) -> time when it is there. Checks that copies carry existing values along routes in turn."""
    graph = problem.graph
    arrived: dict[tuple[str, str], float] = {}
    wires: dict[str, list[TaskRun | ValueCopy]] = {}
    for copy in schedule.copies:
        ends = number.get(copy.source, -1), number.get(copy.target, -1)
        if ends not in problem.route or copy.value not in graph.value_number or (copy.value, copy.target) in arrived:
            raise PlacementError(f"copy of {copy.value}", needs="a value of the graph and a route, once", has=str(copy))
        value = graph.value_number[copy.value]
        made = schedule.run_of[graph.tasks[graph.producers[value]].name]
        if made.machine != copy.source or copy.start_ns < made.end_ns - SLACK_NS:
            raise PlacementError(f"copy of {copy.value}", needs=f"the value, made by {made}", has=str(copy))
        if abs(copy.end_ns - copy.start_ns - int(problem.copy_ns[value, *ends])) > SLACK_NS:
            raise PlacementError(f"copy of {copy.value}", needs=f"{problem.copy_ns[value, *ends]} ns", has=str(copy))
        arrived[copy.value, copy.target] = copy.end_ns
        wires.setdefault(problem.route[ends].wire, []).append(copy)
    for wire, items in wires.items():
        _one_at_a_time(f"wire {wire}", items)
    return arrived


def _verify_stages(schedule: Schedule, problem: Problem) -> None:
    """A stage begins when the one before is over, and the barriers of the machines on which several streams worked."""
    if not schedule.stages:
        return
    if sorted(task for tasks in schedule.stages for task in tasks) != sorted(schedule.run_of):
        raise PlacementError(f"schedule of {schedule.graph}", needs="every task in one stage")
    end = 0.0
    for tasks in schedule.stages:
        runs = [schedule.run_of[task] for task in tasks]
        if any(run.start_ns < end - SLACK_NS for run in runs):
            raise PlacementError(f"stage of {tasks[0]}", needs=f"a start after {end} ns", has=str(runs[0]))
        streams = {
            (run.machine, run.stream) for run in runs if not problem.graph.tasks[problem.graph.number[run.task]].is_end
        }
        worked = [name for name, _ in streams]
        barriers = [machine.stage_ns for machine in problem.machines if worked.count(machine.name) > 1]
        end = max((run.end_ns for run in runs), default=end) + max(barriers, default=0)
