"""Random task graphs and machines for tests of placement."""

from __future__ import annotations

import numpy as np

from dsa_sched.placement.model.problem import NOT_ACCEPTED, CostTable, Machine, Problem, Route
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, Task, TaskGraph, TaskValue

__all__ = ["random_problem", "random_task_graph"]


def random_task_graph(seed: int, tasks: int, density: float = 0.3) -> TaskGraph:
    """Tasks between the two ends; each reads some of those before it, and one that reads none reads the inputs."""
    rng = np.random.default_rng(seed)
    names = [f"t{number}" for number in range(tasks)]
    readers: dict[str, list[str]] = {name: [] for name in (INPUTS, *names)}
    for number, name in enumerate(names):
        before = [other for other in names[:number] if rng.random() < density]
        for other in before or [INPUTS]:
            readers[other].append(name)
    for name in names:
        if not readers[name]:
            readers[name].append(OUTPUTS)
    values = [
        TaskValue(f"v{number}", name, tuple(after), int(rng.integers(0, 4000)))
        for number, (name, after) in enumerate(readers.items())
        if after
    ]
    made = [Task(name, (name,), int(rng.integers(1, 10**6))) for name in names]
    return TaskGraph(f"random {seed}", (Task(INPUTS), *made, Task(OUTPUTS)), tuple(values))


def random_problem(
    seed: int, tasks: int = 7, machines: int = 2, streams: int = 1, *, contended: bool = False, refusing: bool = False
) -> Problem:
    """Costs of up to a microsecond, links that take about as long. With `refusing`, some machines refuse tasks."""
    rng = np.random.default_rng((seed, 1))
    graph = random_task_graph(seed, tasks)
    names = [f"m{number}" for number in range(machines)]
    work = rng.integers(1, 1000, (len(graph.tasks), machines))
    if refusing:
        keep = rng.integers(0, machines, len(graph.tasks))
        refused = rng.random(work.shape) < 0.3
        refused[np.arange(len(keep)), keep] = False
        work[refused] = NOT_ACCEPTED
    for number, task in enumerate(graph.tasks):
        if task.is_end:
            work[number] = [0, *[NOT_ACCEPTED] * (machines - 1)]
    shared_wire = bool(rng.integers(0, 2))
    routes = tuple(
        Route(a, b, int(rng.integers(0, 100)), 10_000_000_000, "bus" if shared_wire else f"{a} to {b}")
        for a in names
        for b in names
        if a != b
    )
    shares: tuple[tuple[tuple[float, ...], ...], ...] = ()
    if contended:
        parts = rng.uniform(0.1, 1.0, (len(graph.tasks), machines, 2))
        shares = tuple(tuple(tuple(map(float, own)) for own in row) for row in parts)
    costs = CostTable(
        tuple(Machine(name, streams) for name in names), routes, tuple(tuple(map(int, row)) for row in work), shares
    )
    return Problem(graph, costs)
