"""What the run-time itself takes: to go on to the next task, and to bring a value to another device of the host.

    chains of tasks that do nothing --run for real--> dispatch; latency + bytes / bandwidth --> HandingOver

Devices that compute on values in the host's memory all have the same copies: one fit serves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from dsa_sched.devices.device import Array
from dsa_sched.placement.model.problem import CostTable, Machine, Problem, Route
from dsa_sched.placement.model.task_graph import Task, TaskGraph, TaskValue
from dsa_sched.placement.schedule.run_time import Executor
from dsa_sched.placement.schedule.schedule import TaskPlacement

SIZES_BYTES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22)
HOPS, RUNS = 10, 20


@dataclass(frozen=True, slots=True)
class HandingOver:
    """`dispatch_ns` is between two tasks of a device; a copy takes its latency and bytes over bandwidth."""

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
    """Of a chain whose tasks hand on one value, on one device or back and forth between two."""
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
