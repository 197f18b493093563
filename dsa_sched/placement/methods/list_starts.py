"""First individuals made by list scheduling: the same for every search that begins at list schedules.

Space --list_starts--> HEFT, CPOP, PEFT, and placements that answer them --and shaken ones--> Rows
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsa_sched.placement.methods.list_scheduling import ListRule, list_rules, upward_ranks
from dsa_sched.placement.methods.search_space import DecoderSpace, Rows
from dsa_sched.placement.model.problem import NOT_ACCEPTED
from dsa_sched.placement.schedule.bounds import through
from dsa_sched.placement.schedule.list_decoder import FREE

SHAKEN = 0.3
"""By so much of themselves, ranks of shaken individuals differ at most."""


def list_starts(space: DecoderSpace, ways: NDArray[np.float64] | None = None) -> Rows:
    """List schedules; every task where its longest way through the network is shortest; and every task on one machine,
    or by its way where that refuses it, in the order of the graph where the machine does one at a time. `ways` are
    `bounds.through` of the problem, where they are known."""
    problem = space.problem
    way = (through(problem) if ways is None else ways).argmin(axis=1)
    rank = upward_ranks(problem)
    rules = [*list_rules(problem), ListRule("ways", rank, np.asarray(way, np.int64))]
    for machine, kind in enumerate(problem.machines):
        gene = np.where(problem.work_ns[:, machine] == NOT_ACCEPTED, way, machine)
        rules.append(ListRule("alone", np.arange(len(way), 0.0, -1.0) if kind.streams == 1 else rank, gene))
    return space.listed(rules)


def shaken(space: DecoderSpace, random: NDArray[np.float64]) -> Rows:
    """HEFT with ranks that are a little off: every task goes where it ends first."""
    rank = upward_ranks(space.problem)
    priorities = rank / max(1.0, float(rank.max(initial=0))) * (1 + SHAKEN * (random - 0.5))
    return np.full(priorities.shape, FREE, np.int64), priorities


def stacked(one: Rows, other: Rows) -> Rows:
    """Both, one below the other."""
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])
