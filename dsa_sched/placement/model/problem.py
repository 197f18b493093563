"""A placement problem: a task graph, the devices it may run on, and the costs there.

Times are whole nanoseconds, so that methods, the simulator and an exact solver agree to the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dsa_sched.placement.model.task_graph import TaskGraph, verify_task_graph
from hw_models.errors import PlacementError
from partitioner.ir.text import format_line

NOT_ACCEPTED = -1
"""The time of a task on a device that cannot run it."""

NANOSECONDS = 1_000_000_000

MOST_MACHINES = 64
MOST_STREAMS = 64
"""Largest number of streams of a machine."""

LONGEST_NS = 2**53
"""Largest sum in ns of all work and all copies in sequence: up to here, floating-point numbers represent all integers.
It is 104 days.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A device as methods see it: `streams` tasks at a time; a barrier over several streams costs `stage_ns`."""

    name: str
    streams: int = 1
    stage_ns: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """A way from one machine to another. Routes with the same `wire` carry one value at a time in all."""

    source: str
    target: str
    latency_ns: int
    bytes_per_second: int
    wire: str

    def copy_ns(self, size_bytes: int) -> int:
        """Latency, and bytes over bandwidth rounded up."""
        return self.latency_ns + -(-size_bytes * NANOSECONDS // self.bytes_per_second)


@dataclass(frozen=True)
class CostTable:
    """Times of tasks on machines. The first machine is the host, where inputs come from and outputs go.

    `work_ns[task][machine]` is the time alone on the machine, or NOT_ACCEPTED. `shares[task][machine]` says what part
    of each resource of the machine (compute, memory bandwidth; 0 to 1) the task takes while it runs alone: tasks on
    several streams of a machine whose shares of a resource add up to more than 1 slow each other down by that sum.
    Without shares, streams act like separate machines.
    """

    machines: tuple[Machine, ...]
    routes: tuple[Route, ...]
    work_ns: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[tuple[float, ...], ...], ...] = ()
    source: str = field(default="", compare=False)
    """Source of the numbers, in words."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Cost of several tasks as one operator: as in `Task` and in a row of `CostTable`."""

    work_ns: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...] = ()
    macs: int = 0
    constant_bytes: int = 0


class Merging(Protocol):
    """A cost source that knows which tasks can run as one operator, and the cost of that operator."""

    def merged(self, tasks: tuple[int, ...]) -> Merged | None:
        """Cost of the tasks with these numbers as one; None where they cannot be merged."""


Groups = tuple[tuple[int, ...], ...]
"""Groups of task numbers that have every task once."""

PriceGroups = Callable[[Groups], "Problem"]
"""Function that returns the problem in which each group is one task, compiled as one, in the order of `grouped`. Raises
PlacementError where no machine accepts a group."""


@dataclass(frozen=True)
class Problem:
    """A task graph with costs. `work_ns[t, m]`, `copy_ns[v, m, n]` are the same numbers as arrays, for methods.

    Without `merging`, tasks are never merged; without `price_groups`, a group takes what its tasks take together.
    """

    graph: TaskGraph
    costs: CostTable
    merging: Merging | None = field(default=None, compare=False, repr=False)
    price_groups: PriceGroups | None = field(default=None, compare=False, repr=False)

    @property
    def machines(self) -> tuple[Machine, ...]:
        return self.costs.machines

    @cached_property
    def work_ns(self) -> npt.NDArray[np.int64]:
        """Task x machine, NOT_ACCEPTED where a machine cannot run a task."""
        return np.array(self.costs.work_ns, np.int64).reshape(len(self.graph.tasks), len(self.machines))

    @cached_property
    def copy_ns(self) -> npt.NDArray[np.int64]:
        """Copy times in ns: value x machine x machine; 0 where source and target are the same."""
        count = len(self.machines)
        found = np.zeros((len(self.graph.values), count, count), np.int64)
        for (source, target), route in self.route.items():
            found[:, source, target] = [route.copy_ns(value.size_bytes) for value in self.graph.values]
        return found

    @cached_property
    def route(self) -> dict[tuple[int, int], Route]:
        """(machine, machine) -> route."""
        number = {machine.name: place for place, machine in enumerate(self.machines)}
        return {(number[route.source], number[route.target]): route for route in self.costs.routes}

    @cached_property
    def accepted(self) -> tuple[tuple[int, ...], ...]:
        """For each task, the machines that run it."""
        return tuple(tuple(np.flatnonzero(row != NOT_ACCEPTED).tolist()) for row in self.work_ns)

    @cached_property
    def contended(self) -> tuple[bool, ...]:
        """For each machine, whether its streams may slow each other down."""
        return tuple(bool(self.costs.shares) and machine.streams > 1 for machine in self.machines)

    def __str__(self) -> str:
        lines = [str(self.graph).rstrip("\n")]
        for machine in self.machines:
            own = (("name", machine.name), ("streams", machine.streams), ("stage_ns", machine.stage_ns))
            lines.append(format_line("machine", *own))
        for route in self.costs.routes:
            own_route = (("source", route.source), ("target", route.target), ("latency_ns", route.latency_ns))
            speed = (("bytes_per_second", route.bytes_per_second), ("wire", route.wire))
            lines.append(format_line("route", *own_route, *speed))
        for number, (task, work) in enumerate(zip(self.graph.tasks, self.costs.work_ns, strict=True)):
            shares = (("shares", self.costs.shares[number]),) if self.costs.shares else ()
            lines.append(format_line("cost", ("task", task.name), ("work_ns", work), *shares))
        return "\n".join(lines) + "\n"


def regrouped(price: PriceGroups, members: Groups) -> PriceGroups:
    """Function that prices groups of tasks that are themselves groups: `members` has what `price` calls tasks."""

    def priced(groups: Groups) -> Problem:
        return price(tuple(tuple(task for group in own for task in members[group]) for own in groups))

    return priced


def verify_problem(problem: Problem) -> None:
    """A sound graph, costs of the right extents, a route between any two machines, a machine for every task.

    Raises PlacementError, which names every task that no device accepts.
    """
    graph, costs = problem.graph, problem.costs
    verify_task_graph(graph)
    names = [machine.name for machine in costs.machines]
    if not 0 < len(names) <= MOST_MACHINES or len(set(names)) != len(names):
        raise PlacementError("devices", needs=f"1 to {MOST_MACHINES} of them with unique names", has=", ".join(names))
    for machine in costs.machines:
        if not 1 <= machine.streams <= MOST_STREAMS or machine.stage_ns < 0:
            needs = f"1 to {MOST_STREAMS} streams and barriers that take no less than no time"
            raise PlacementError(f"device {machine.name}", needs=needs, has=str(machine))
    shape = (len(graph.tasks), len(names))
    rows = costs.work_ns, *([costs.shares] if costs.shares else [])
    if any(len(table) != shape[0] or any(len(row) != shape[1] for row in table) for table in rows):
        raise PlacementError("cost table", needs=f"{shape[0]} tasks x {shape[1]} devices")
    if any(time < NOT_ACCEPTED for row in costs.work_ns for time in row):
        raise PlacementError("cost table", needs="times from 0 on")
    if any(not 0 <= part <= 1 for row in costs.shares for shares in row for part in shares):
        raise PlacementError("cost table", needs="shares from 0 to 1")
    pairs = [(route.source, route.target) for route in costs.routes]
    wanted = [(source, target) for source in names for target in names if source != target]
    if sorted(pairs) != sorted(wanted):
        missing = ", ".join(f"{source} to {target}" for source, target in wanted if (source, target) not in pairs)
        raise PlacementError("links", needs="one route between any two devices", has=f"none for {missing or 'some'}")
    if any(route.bytes_per_second < 1 or route.latency_ns < 0 for route in costs.routes):
        raise PlacementError("links", needs="a positive bandwidth and a latency from 0 on")
    if _longest_ns(problem) > LONGEST_NS:
        raise PlacementError("cost table", needs="at most 104 days of work and copies", has="more")
    if homeless := [task.name for task, machines in zip(graph.tasks, problem.accepted, strict=True) if not machines]:
        raise PlacementError(
            "tasks " + ", ".join(homeless[:8]) + (f" and {len(homeless) - 8} more" if len(homeless) > 8 else ""),
            needs="a device that accepts them",
            has=f"none of {', '.join(names)}",
        )


def _longest_ns(problem: Problem) -> int:
    """Sum of every task on its slowest device in a separate stage, and every value on the slowest way everywhere."""
    costs, values = problem.costs, problem.graph.values
    size_bytes = sum(value.size_bytes for value in values)
    slowest: dict[str, int] = {}
    for route in costs.routes:
        whole = len(values) * (route.latency_ns + 1) + size_bytes * NANOSECONDS // route.bytes_per_second
        slowest[route.target] = max(whole, slowest.get(route.target, 0))
    barriers = len(costs.work_ns) * max(machine.stage_ns for machine in costs.machines)
    return sum(max(0, *row) for row in costs.work_ns) + barriers + sum(slowest.values())
