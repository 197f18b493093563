"""Random placements of a problem, good and bad ones."""

from __future__ import annotations

import numpy as np

from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.schedule.schedule import TaskPlacement

__all__ = ["random_placement"]


def random_placement(problem: Problem, seed: int, *, staged: bool = False) -> TaskPlacement:
    """Random machines and streams among those that accept a task, in a random order with producers first."""
    rng = np.random.default_rng((seed, 2))
    machine = tuple(int(rng.choice(accepted)) for accepted in problem.accepted)
    stream = tuple(int(rng.integers(0, problem.machines[number].streams)) for number in machine)
    depth: list[float] = []
    for before in problem.graph.predecessors:
        depth.append(max((depth[other] for other in before), default=0.0) + float(rng.random()))
    order = tuple(sorted(range(len(depth)), key=depth.__getitem__))
    stage = tuple(int(d) for d in depth) if staged else None
    return TaskPlacement(machine, stream, order, stage)
