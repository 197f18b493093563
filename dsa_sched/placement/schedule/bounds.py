"""Times that no schedule of a problem can go below, from which the "distance from the bound" is measured.

    Problem --heads, tails--> the longest way through the network
            --GLOP-----------> devices as fractions: loads of machines, wires and resources, and ways with their copies

Both are relaxations: a value finds every wire on its way free, and a task may be cut into fractions on several
machines. A copy is counted on a way where the machines of its two ends cannot be the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsa_sched.placement.model.problem import NOT_ACCEPTED, Problem
from hw_models.errors import PlacementError

MOST_FLOWS = 20_000
"""Edges x machines x machines up to which the linear programme has copies; beyond, only loads and work on the way."""

ROUNDING = 1e-6
"""Relative rounding error: the linear programme is solved in floating point, and its answer is lowered by this much."""


def heads(problem: Problem) -> NDArray[np.float64]:
    """Task x machine: no earlier can the task start there. Infinite where it is refused."""
    graph, work, copy = problem.graph, _work(problem), problem.copy_ns
    head = np.where(np.isinf(work), np.inf, 0.0)
    for task, reads in enumerate(graph.reads):
        for value in reads:
            ended = head[graph.producers[value]] + work[graph.producers[value]]
            head[task] = np.maximum(head[task], (ended[:, None] + copy[value]).min(axis=0))
    return head


def tails(problem: Problem) -> NDArray[np.float64]:
    """Task x machine: time that is left at least after the task ends there. 0 for tasks that nothing waits for."""
    graph, work, copy = problem.graph, _work(problem), problem.copy_ns
    tail = np.zeros(work.shape)
    for task in reversed(range(len(tail))):
        for value in graph.writes[task]:
            for other in graph.consumers[value]:
                behind = (copy[value] + (work[other] + tail[other])[None, :]).min(axis=1)
                tail[task] = np.maximum(tail[task], behind)
    return tail


def _work(problem: Problem) -> NDArray[np.float64]:
    return np.where(problem.work_ns == NOT_ACCEPTED, np.inf, problem.work_ns.astype(float))


def through(problem: Problem) -> NDArray[np.float64]:
    """Task x machine: the longest way through the network with the task there and each other task on the machine that
    is best for this way alone. Infinite where the task is refused.
    """
    return heads(problem) + _work(problem) + tails(problem)


def path_bound_ns(problem: Problem) -> int:
    """The longest way through the network, each task on the machine that is best for this way alone."""
    return int(through(problem).min(axis=1).max(initial=0))


def load_bound_ns(problem: Problem) -> int:
    """The least makespan when tasks may be cut in fractions over machines (GLOP, in floating point, rounded down).

    Streams of a machine share its load, and where they contend also its resources: in a nanosecond a machine gives out
    one nanosecond of each. Raises PlacementError if the solver fails, which a sound problem does not make it do.
    """
    from ortools.linear_solver import pywraplp  # a second to import, and only needed here

    solver = pywraplp.Solver.CreateSolver("GLOP")
    unit = float(max(1, path_bound_ns(problem)))
    part = [{machine: solver.NumVar(0.0, 1.0, "") for machine in own} for own in problem.accepted]
    built = _Fractions(solver, problem, unit, solver.NumVar(0.0, solver.infinity(), "makespan"), part)
    for own in part:
        solver.Add(solver.Sum(list(own.values())) == 1.0)
    for machine in range(len(problem.machines)):
        built.add_load(machine)
    built.add_ways()
    solver.Minimize(built.makespan)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        raise PlacementError("bound", needs="a linear programme that can be solved")
    least = float(solver.Objective().Value()) * unit * (1 - ROUNDING)
    return max(0, math.floor(least) if any(problem.contended) else math.ceil(least))


@dataclass(frozen=True)
class _Fractions:
    """The linear programme. `part[task][machine]` is a fraction of the task; times are in `unit` ns."""

    solver: Any
    problem: Problem
    unit: float
    makespan: Any
    part: list[dict[int, Any]]

    def add_load(self, machine: int) -> None:
        """Add that the work of a machine fits in the makespan, and so does its use of each resource."""
        problem, solver = self.problem, self.solver
        work = {
            task: problem.work_ns[task, machine] / self.unit for task, own in enumerate(self.part) if machine in own
        }
        load = solver.Sum([length * self.part[task][machine] for task, length in work.items()])
        solver.Add(load <= problem.machines[machine].streams * self.makespan)
        if problem.contended[machine]:
            shares = [row[machine] for row in problem.costs.shares]
            for resource in range(len(shares[0])):
                used = [length * shares[task][resource] * self.part[task][machine] for task, length in work.items()]
                solver.Add(solver.Sum(used) <= self.makespan)

    def add_ways(self) -> None:
        """Add that tasks start after what they read is made and copied, and that the copies fit on their wires."""
        problem, solver = self.problem, self.solver
        graph, work = problem.graph, problem.work_ns / self.unit
        start = [solver.NumVar(0.0, solver.infinity(), "") for _ in self.part]
        taken = [solver.Sum([work[task, m] * x for m, x in own.items()]) for task, own in enumerate(self.part)]
        with_copies = sum(map(len, graph.consumers)) * len(problem.machines) ** 2 <= MOST_FLOWS
        wires: dict[str, list[Any]] = {}
        for value, (maker, readers) in enumerate(zip(graph.producers, graph.consumers, strict=True)):
            sent: dict[tuple[int, int], Any] = {}
            for reader in readers:
                flows = self._flows(maker, reader) if with_copies else {}
                travel = solver.Sum([problem.copy_ns[(value, *way)] / self.unit * flow for way, flow in flows.items()])
                solver.Add(start[reader] >= start[maker] + taken[maker] + travel)
                for way, flow in flows.items():
                    solver.Add(sent.setdefault(way, solver.NumVar(0.0, 1.0, "")) >= flow)
            for way, once in sent.items():
                if way in problem.route:
                    length = problem.copy_ns[(value, *way)] / self.unit
                    wires.setdefault(problem.route[way].wire, []).append(length * once)
        for carried in wires.values():
            solver.Add(solver.Sum(carried) <= self.makespan)
        for begun, length in zip(start, taken, strict=True):
            solver.Add(self.makespan >= begun + length)

    def _flows(self, maker: int, reader: int) -> dict[tuple[int, int], Any]:
        """Fraction of a task on one machine that is read by a fraction of another on the same or another machine."""
        solver, sources, targets = self.solver, self.part[maker], self.part[reader]
        flows = {(a, b): solver.NumVar(0.0, 1.0, "") for a in sources for b in targets}
        for a, x in sources.items():
            solver.Add(solver.Sum([flows[a, b] for b in targets]) == x)
        for b, x in targets.items():
            solver.Add(solver.Sum([flows[a, b] for a in sources]) == x)
        return flows


def lower_bound_ns(problem: Problem) -> int:
    """The better of the two bounds; a fraction of a second for hundreds of tasks."""
    return max(path_bound_ns(problem), load_bound_ns(problem))
