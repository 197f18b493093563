"""Problems with prices by what the devices' own compilers make of each task, or by rooflines.

    TaskModel + Scenario + devices --compile each part, profile it--> Problem, and why devices refuse what they refuse

A part that is compiled is timed alone: on a real device by runs, on a simulated one by its clock. Times are kept by
content, if a cache is given; refusals are not. The run-time's own time, to go on to the next task and to bring a value
to another device of the host, is measured with chains of tasks that do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Literal

import numpy as np

from dsa_sched.devices.device import Array, CompiledPart, Device, Refused, drawn_feeds
from dsa_sched.devices.opening import open_chips, open_devices
from dsa_sched.io.cost_cache import CostCache
from dsa_sched.placement.methods.large_parts import ends_and_work, proven_bound_ns, work_tasks
from dsa_sched.placement.methods.registry import Outcome, finished
from dsa_sched.placement.model.from_onnx import TaskModel, TaskPart
from dsa_sched.placement.model.pricing import require_homes, roofline_group_ns, roofline_of
from dsa_sched.placement.model.problem import NOT_ACCEPTED, CostTable, Machine, Problem, Route, regrouped
from dsa_sched.placement.model.scenario import ChipDevice, Roofline, RooflineDevice, Scenario
from dsa_sched.placement.model.scenario import Device as DeviceEntry
from dsa_sched.placement.model.task_graph import Task, TaskGraph, TaskValue, group_order, grouped
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


PriceMode = Literal["compiled", "estimated", "measured"]
"""Source of prices: chips by what is compiled for them and other devices by rooflines; all by rooflines; all by what is
compiled for them and timed there."""


@dataclass(frozen=True, slots=True)
class Price:
    """Time of a task on a device, or NOT_ACCEPTED, and its shares of the device's resources."""

    ns: int
    shares: tuple[float, float] = (0.0, 0.0)


REFUSED = Price(NOT_ACCEPTED)

MOST_SAID = 10
"""Largest number of tasks of a problem that progress names while they are priced."""


@dataclass
class Profiler:
    """Prices of tasks of one model on the devices of one scenario; compiled parts are kept for running.

    Tasks on a device with a roofline are priced by it, others by what the device's compiler makes of them.
    """

    tasks: TaskModel
    scenario: Scenario
    devices: tuple[Device | None, ...]
    rooflines: tuple[Roofline | None, ...] = ()
    cache: CostCache | None = None
    progress: Progress = lambda _step: None
    refusals: dict[tuple[str, str], str] = field(default_factory=dict)
    """(task, device) -> reason of the refusal; of a large part only where the device takes each of its layers."""
    _refused: dict[str, set[str]] = field(default_factory=dict)
    """device -> nodes of layers that it refuses."""
    _parts: dict[tuple[str, ...], TaskPart] = field(default_factory=dict)
    _compiled: dict[tuple[str, str, str], CompiledPart] = field(default_factory=dict)
    _prices: dict[tuple[str, str], int] = field(default_factory=dict)

    @staticmethod
    def of(tasks: TaskModel, scenario: Scenario, mode: PriceMode, *, run: bool = False) -> Profiler:
        """A profiler whose devices can be priced in this mode, and be run with `run`.

        Raises PlacementError for a device without a roofline that needs one, and for one that has to be there and is
        not.
        """
        devices = open_devices(scenario) if run or mode == "measured" else open_chips(scenario)
        rooflines = (roofline_of(device) if _has_roofline_price(device, mode) else None for device in scenario.devices)
        return Profiler(tasks, scenario, devices, tuple(rooflines))

    def problem(self, groups: Sequence[Sequence[int]] | None = None) -> Problem:
        """The problem of the model's tasks, or of groups of them, each compiled as one.

        Raises PlacementError naming the tasks that no device accepts, see `require_homes`.
        """
        layers = self.tasks.graph
        own = groups if groups is not None else [(layer,) for layer in range(len(layers.tasks))]
        members = tuple(tuple(sorted(own[group])) for group in group_order(layers, own))
        graph = grouped(layers, own)
        rows = self._rows(graph)
        work = tuple(tuple(price.ns for price in row) for row in rows)
        require_homes(graph, work, self.refusals)
        machines = self.scenario.machines()
        contended = any(machine.streams > 1 for machine in machines) and any(self.rooflines)
        shares = tuple(tuple(price.shares for price in row) for row in rows) if contended else ()
        costs = CostTable(machines, self._routes(), work, shares, self.source)
        return Problem(graph, costs, price_groups=regrouped(self.problem, members))

    @property
    def source(self) -> str:
        """Source of the prices, device by device, in words."""
        said: dict[str, list[str]] = {}
        for machine, device, roofline in self._columns():
            if roofline is not None:
                said.setdefault("roofline", []).append(machine)
            elif device is not None:
                said.setdefault(device.time_source, []).append(machine)
        return "; ".join(f"{', '.join(names)} by {source}" for source, names in said.items())

    @property
    def optimistic_devices(self) -> tuple[str, ...]:
        """Devices that rooflines price where others are priced by what is compiled for them."""
        columns = list(self._columns())
        compiled = any(device is not None and roofline is None for _, device, roofline in columns)
        return tuple(name for name, _, roofline in columns if roofline is not None and compiled)

    def _columns(self) -> Iterator[tuple[str, Device | None, Roofline | None]]:
        rooflines = self.rooflines or (None,) * len(self.devices)
        names = (device.name for device in self.scenario.devices)
        return zip(names, self.devices, rooflines, strict=True)

    def confirmed(self, found: Outcome) -> Outcome:
        """A placement of several tasks on real devices compared, by runs, with the whole network on each device alone.

        The fastest stays, by the median of the placement and the shortest run of each device alone, run in turns:
        prices are of parts by themselves, and devices of one host share its caches and memory. The processor's time of
        each task decides where devices work in the threads of their workers, so that other work on the machine does
        not.
        """
        if work_tasks(found.problem) == 1 or any(device is not None and device.simulated for device in self.devices):
            return found
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
        return replace(
            found,
            problem=chosen.problem,
            placement=chosen.placement,
            schedule=chosen.schedule,
            bound_ns=found.bound_ns if best == 0 else proven_bound_ns(chosen.problem),
            decisions=decisions,
        )

    def _alone(self) -> list[Outcome]:
        """The whole network as one task, on each device that accepts it."""
        ends, work = ends_and_work(self.tasks.graph)
        try:
            problem = self.problem([*ends, work])
        except PlacementError:
            return []  # none accepts it as a whole
        placements = [single_machine(problem, machine) for machine in range(len(self.devices))]
        return [finished("alone", problem, placement) for placement in placements if placement is not None]

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
        key = part.hash, device.name, device.identity
        if key not in self._compiled:
            self._compiled[key] = device.compile(part)
        return self._compiled[key]

    def _rows(self, graph: TaskGraph) -> list[tuple[Price, ...]]:
        """A row per task, with its price on each device."""
        rows = []
        work = len(ends_and_work(graph)[1])
        for number, task in enumerate(graph.tasks):
            if task.is_end:
                rows.append((Price(0), *[REFUSED] * (len(self.devices) - 1)))
                continue
            place = f"task {number} of {work}" if (number - 1) % ceil(work / MOST_SAID) == 0 else ""
            rows.append(tuple(self._price(task, *column, place) for column in self._columns()))
        return rows

    def _price(self, task: Task, machine: str, device: Device | None, roofline: Roofline | None, place: str) -> Price:
        whole = len(task.nodes) == len(self.tasks.network.nodes)  # a compiler may accept what it refuses in parts
        refused = not self._refused.get(machine, set()).isdisjoint(task.nodes)
        if (device is None and roofline is None) or (refused and not whole):
            return REFUSED
        reason = device.accepts(self.part(task)) if device is not None else None
        if reason is None and roofline is not None:
            ns, shares = roofline_group_ns(self.tasks.work(task.nodes), roofline)
            return Price(ns, shares)
        if reason is None and device is not None:
            try:
                return Price(self._profiled_ns(task, device, place))
            except Refused as error:
                reason = str(error) or "refused"
        if not refused:
            self.refusals[task.name, machine] = reason or ""
        if task.name in self.tasks.graph.number:
            self._refused.setdefault(machine, set()).update(task.nodes)
        return REFUSED

    def _profiled_ns(self, task: Task, device: Device, place: str) -> int:
        """The device's own time, its launch, and for a real device the run-time's time to start a task. Raises
        Refused.
        """
        part = self.part(task)
        key = part.structure, device.identity
        known = self._prices.get(key)
        if known is None and self.cache:
            known = self.cache.find(*key)
        if known is None:
            if place:
                self.progress(f"compiling {task.name} for {device.name} ({place})")
            known = device.profile(self._compile(part, device))
            if self.cache:
                self.cache.keep(*key, known)
        self._prices[key] = known
        return known + device.launch_ns + (0 if device.simulated else measured_handing_over().dispatch_ns)

    def _routes(self) -> tuple[Route, ...]:
        """Routes of the scenario, with the numbers of timed copies where links ask for it and both ends are real."""
        real = {device.name for device in self.devices if device is not None and not device.simulated}
        asked = self.scenario.measured_pairs()
        ends = ((route, (route.source, route.target)) for route in self.scenario.routes())
        return tuple(_timed(route) if pair in asked and real.issuperset(pair) else route for route, pair in ends)


def _has_roofline_price(device: DeviceEntry, mode: PriceMode) -> bool:
    match mode:
        case "estimated":
            return True
        case "compiled":
            return not isinstance(device, ChipDevice)
        case "measured":
            return isinstance(device, RooflineDevice)


def _where(outcome: Outcome) -> str:
    """The devices that work in an outcome."""
    graph = outcome.problem.graph
    work = [run for run in outcome.schedule.runs if not graph.tasks[graph.number[run.task]].is_end]
    return " and ".join(dict.fromkeys(run.machine for run in work))


def _timed(route: Route) -> Route:
    found = measured_handing_over()
    return replace(route, latency_ns=found.latency_ns, bytes_per_second=found.bytes_per_second)
