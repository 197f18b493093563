"""Problems with times that were taken on the devices themselves.

    TaskModel + Scenario + devices --compile each part, profile it--> Problem, and why devices refuse what they refuse

Every part is compiled for each device by that device's own compiler and timed there alone. Times are kept by content,
if a cache is given; refusals are not. Simulated devices give the time of their clock. The run-time's own time, to go on
to the next task and to bring a value to another device of the host, is measured with chains of tasks that do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from statistics import median

import numpy as np

from dsa_sched.devices.device import Array, CompiledPart, Device, Refused, drawn_feeds
from dsa_sched.io.cost_cache import CostCache
from dsa_sched.placement.methods.duet import duet_compiled
from dsa_sched.placement.methods.registry import Outcome, Search, finished
from dsa_sched.placement.model.from_onnx import TaskModel, TaskPart
from dsa_sched.placement.model.pricing import require_homes
from dsa_sched.placement.model.problem import NOT_ACCEPTED, CostTable, Machine, Problem, Route
from dsa_sched.placement.model.scenario import Scenario
from dsa_sched.placement.model.task_graph import Task, TaskGraph, TaskValue
from dsa_sched.placement.schedule.run_time import Executor
from dsa_sched.placement.schedule.schedule import TaskPlacement, single_machine
from hw_models.errors import PlacementError
from partitioner.ir.decisions import Decision

SIZES_BYTES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22)
HOPS, RUNS = 10, 20


@dataclass(frozen=True, slots=True)
class HandingOver:
    """Times of the run-time: `dispatch_ns` between two tasks of a device; copies take latency and bytes / bandwidth."""

    dispatch_ns: int
    latency_ns: int
    bytes_per_second: int


@lru_cache(maxsize=1)
def measured_handing_over() -> HandingOver:
    """Timed once a process, the shortest of several runs."""
    dispatch = _hop_ns(SIZES_BYTES[0], away=False)
    times = [max(1, _hop_ns(size, away=True) - dispatch) for size in SIZES_BYTES]
    return fitted(SIZES_BYTES, times, dispatch)


def _hop_ns(size_bytes: int, *, away: bool) -> int:
    """Time per task of a chain that hands on one value, on one device or back and forth between two."""
    names = [f"t{number}" for number in range(HOPS + 1)]
    values = tuple(TaskValue(a, a, (b,), size_bytes) for a, b in pairwise(names))
    graph = TaskGraph("chain", tuple(Task(name, (name,)) for name in names), values)
    routes = tuple(Route(a, b, 0, 10**9, f"{a} to {b}") for a, b in (("a", "b"), ("b", "a")))
    costs = CostTable((Machine("a"), Machine("b")), routes, ((1, 1),) * len(names))
    machine = tuple(number % 2 if away else 0 for number in range(len(names)))
    placement = TaskPlacement(machine, (0,) * len(names), tuple(range(len(names))))
    made = np.ones(size_bytes, np.uint8)
    tasks = {number: partial(_give, {name: made}) for number, name in enumerate(names)}
    with Executor(Problem(graph, costs), placement, tasks) as workers:
        shortest = min(workers.run({}).makespan_ns for _ in range(RUNS))
    return round(shortest / HOPS)


def _give(made: Mapping[str, Array], _reads: Mapping[str, Array]) -> Mapping[str, Array]:
    return made


def fitted(sizes_bytes: Sequence[int], times_ns: Sequence[int], dispatch_ns: int = 0) -> HandingOver:
    """Latency and bandwidth with the least sum of relative squares; both stay positive."""
    sizes, times = np.array(sizes_bytes, float), np.array(times_ns, float)
    rows = np.stack([np.ones_like(sizes), sizes]) / times
    latency, per_byte = np.linalg.lstsq(rows.T, np.ones_like(times), rcond=None)[0]
    if latency < 0:
        latency, per_byte = 0.0, float((times / sizes).min())
    if per_byte <= 0:
        latency, per_byte = float(times.min()), 1e-3
    return HandingOver(dispatch_ns, round(latency), max(1, round(1e9 / per_byte)))


Progress = Callable[[str], None]

CONFIRMING_ROUNDS = 10
HOPELESS = 2
"""Largest predicted time of a device alone, relative to the found placement's, at which it is run to compare."""


@dataclass(frozen=True, slots=True)
class Price:
    """Time of a part on a device, or NOT_ACCEPTED and the reason."""

    ns: int
    refusal: str = ""


@dataclass
class Laboratory:
    """Measures prices of parts of one model on the devices of one scenario; compiled parts are kept for running."""

    tasks: TaskModel
    scenario: Scenario
    devices: tuple[Device | None, ...]
    cache: CostCache | None = None
    progress: Progress = lambda _step: None
    refusals: dict[tuple[str, str], str] = field(default_factory=dict)
    """(task, device) -> reason of the refusal."""
    _parts: dict[tuple[str, ...], TaskPart] = field(default_factory=dict)
    _compiled: dict[tuple[str, str], CompiledPart] = field(default_factory=dict)
    _prices: dict[tuple[str, str], Price] = field(default_factory=dict)

    def problem(self, groups: Sequence[Sequence[int]] | None = None) -> Problem:
        """The problem of the model's tasks, or of groups of them, each compiled as one.

        Raises PlacementError naming the tasks that no device accepts, see `require_homes`.
        """
        tasks = self.tasks if groups is None else self.tasks.with_groups(groups)
        work = tuple(self._row(task) for task in tasks.graph.tasks)
        require_homes(tasks.graph, work, self.refusals)
        costs = CostTable(self.scenario.machines(), self._routes(), work, (), "measured")
        return Problem(tasks.graph, costs)

    def unpriced(self) -> Problem:
        """Problem with the model's tasks, each taking 1 ns on every device that accepts it beforehand.

        Raises PlacementError naming the tasks that no device accepts.
        """
        work = tuple(self._accepting(task) for task in self.tasks.graph.tasks)
        require_homes(self.tasks.graph, work, self.refusals)
        costs = CostTable(self.scenario.machines(), self.scenario.routes(), work, (), "what devices accept")
        return Problem(self.tasks.graph, costs)

    def duet(self, search: Search, *, confirm: bool = True) -> Outcome:
        """DUET with the devices' compilers in the loop: the outcome is for sub-graphs, each compiled as one.

        With `confirm`, a placement of several sub-graphs on real devices is compared, by runs, with the whole network
        on each device alone, and the fastest stays: prices are of parts by themselves, and devices of one host share
        its caches and memory.
        """
        found = duet_compiled(self.unpriced(), self.problem, search)
        simulated = any(device is not None and device.simulated for device in self.devices)
        several = sum(not task.is_end for task in found.problem.graph.tasks) > 1
        return self._confirmed(found) if confirm and several and not simulated else found

    def _confirmed(self, found: Outcome) -> Outcome:
        """The fastest of the found placement, by its median, and of each device alone, by its shortest run, run in
        turns.

        The processor's time of each task decides where devices work in the threads of their workers, so that other
        work on the machine does not.
        """
        candidates = [found, *(each for each in self._alone() if each.makespan_ns < HOPELESS * found.makespan_ns)]
        taken: list[list[float]] = [[] for _ in candidates]
        feeds = drawn_feeds(self.tasks.whole)
        own = all(device is None or device.own_thread for device in self.devices)
        with ExitStack() as stack:
            workers = [stack.enter_context(self.executor(each.problem, each.placement)) for each in candidates]
            for _ in range(CONFIRMING_ROUNDS):
                for number, worker in enumerate(workers):
                    run = worker.run(feeds)
                    taken[number].append(worker.undisturbed_ns(run) if own else run.makespan_ns)
        # Several devices for a gain that is within the noise would be a loss to whoever else needs them.
        judged = [median(taken[0]), *map(min, taken[1:])]
        best = min(reversed(range(len(candidates))), key=judged.__getitem__)
        told = ", ".join(f"{_where(each)} {ns / 1e6:.3f} ms" for each, ns in zip(candidates, judged, strict=True))
        verdict = "confirmed" if best == 0 else f"falls back to {_where(candidates[best])}"
        decisions = (*found.decisions, Decision(found.problem.graph.name, verdict, f"really run: {told}"))
        chosen = candidates[best]
        return replace(found, problem=chosen.problem, placement=chosen.placement, schedule=chosen.schedule,
                       decisions=decisions)  # fmt: skip

    def _alone(self) -> list[Outcome]:
        """The whole network as one task, on each device that accepts it."""
        numbers = range(len(self.tasks.graph.tasks))
        ends = [(number,) for number in numbers if self.tasks.graph.tasks[number].is_end]
        try:
            problem = self.problem([*ends, [n for n in numbers if not self.tasks.graph.tasks[n].is_end]])
        except PlacementError:
            return []  # none accepts it as a whole
        placements = [single_machine(problem, machine) for machine in range(len(self.devices))]
        return [finished("duet", problem, placement) for placement in placements if placement is not None]

    def executor(self, problem: Problem, placement: TaskPlacement) -> Executor:
        """Workers for a placement of a problem of this model, with every task compiled for its device.

        Raises PlacementError naming task and device where one refuses.
        """
        run_task = {}
        for number, task in enumerate(problem.graph.tasks):
            device = self.devices[placement.machine[number]]
            if not task.is_end and device is not None:
                run_task[number] = partial(device.run, self.compiled(task, device))
        simulated = [device is not None and device.simulated for device in self.devices]
        return Executor(problem, placement, run_task, simulated)

    def part(self, task: Task) -> TaskPart:
        if task.nodes not in self._parts:
            self._parts[task.nodes] = self.tasks.part(task)
        return self._parts[task.nodes]

    def compiled(self, task: Task, device: Device) -> CompiledPart:
        """Raises PlacementError naming task and device where it refuses."""
        try:
            return self._compile(self.part(task), device)
        except Refused as error:
            who = f"task {task.name} on device {device.name}"
            raise PlacementError(who, needs="a device that accepts it", has=str(error)) from error

    def _compile(self, part: TaskPart, device: Device) -> CompiledPart:
        key = part.hash, device.name
        if key not in self._compiled:
            self._compiled[key] = device.compile(part)
        return self._compiled[key]

    def _accepting(self, task: Task) -> tuple[int, ...]:
        if task.is_end:
            return self._row(task)
        return tuple(NOT_ACCEPTED if device is None or self._refused(task, device) else 1 for device in self.devices)

    def _refused(self, task: Task, device: Device) -> bool:
        reason = device.accepts(self.part(task))
        if reason is not None:
            self.refusals[task.name, device.name] = reason
        return reason is not None

    def _row(self, task: Task) -> tuple[int, ...]:
        if task.is_end:
            return (0, *[NOT_ACCEPTED] * (len(self.devices) - 1))
        return tuple(NOT_ACCEPTED if device is None else self._run_ns(task, device) for device in self.devices)

    def _run_ns(self, task: Task, device: Device) -> int:
        """The price, plus the run-time's time to start a task on a real device."""
        ns = self._price(task, device).ns
        return ns if ns == NOT_ACCEPTED or device.simulated else ns + measured_handing_over().dispatch_ns

    def _price(self, task: Task, device: Device) -> Price:
        part = self.part(task)
        key = part.hash, device.identity
        if key not in self._prices:
            known = self.cache.find(*key) if self.cache else None
            self._prices[key] = self._measure(part, device) if known is None else Price(known)
            if self.cache and known is None and self._prices[key].ns != NOT_ACCEPTED:
                self.cache.keep(*key, self._prices[key].ns)
        price = self._prices[key]
        if price.ns == NOT_ACCEPTED:
            self.refusals[task.name, device.name] = price.refusal
        return price

    def _measure(self, part: TaskPart, device: Device) -> Price:
        if reason := device.accepts(part):
            return Price(NOT_ACCEPTED, reason)
        self.progress(f"timing {part.task} on {device.name}")
        try:
            return Price(device.profile(self._compile(part, device)))
        except Refused as error:
            return Price(NOT_ACCEPTED, str(error) or "refused")

    def _routes(self) -> tuple[Route, ...]:
        """Routes of the scenario, with the numbers of timed copies where links ask for it and both ends are real."""
        real = {device.name for device in self.devices if device is not None and not device.simulated}
        asked = self.scenario.measured_pairs()
        ends = ((route, (route.source, route.target)) for route in self.scenario.routes())
        return tuple(_timed(route) if pair in asked and real.issuperset(pair) else route for route, pair in ends)


def _where(outcome: Outcome) -> str:
    """The devices that work in an outcome."""
    graph = outcome.problem.graph
    work = [run for run in outcome.schedule.runs if not graph.tasks[graph.number[run.task]].is_end]
    return " and ".join(dict.fromkeys(run.machine for run in work))


def _timed(route: Route) -> Route:
    found = measured_handing_over()
    return replace(route, latency_ns=found.latency_ns, bytes_per_second=found.bytes_per_second)
