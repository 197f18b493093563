"""The search space of IOS: all sets of operators that can remain, and all stages that can end them.

    successors --explore--> Space(states, transitions, endings) --prices of endings--> best sequence of stages

A state is a bit mask of the operators that are not over yet, counted from the end: it is closed under predecessors. An
ending is the set of operators that the last stage of a state runs. Concurrent endings are sets of heads whose
successors within the state are disjoint: each head and its successors are one group, which runs on one stream. Merged
endings are given from outside, as masks; one ends a state when all its operators are sinks of that state.

Every transition is kept, 8 bytes each, so that counting schedules, pricing endings (which may mean to measure them) and
the dynamic programme are separate loops over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsa_sched.placement.ios.loops import cheapest, reached
from dsa_sched.placement.methods.ios_limits import MOST_OPERATORS
from hw_models.errors import PlacementError


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Limits of the search. `group_operators` and `groups` are the paper's r and s; None means no pruning.

    `transitions` ends the exploration of a part that is too wide for it.
    """

    group_operators: int | None = 3
    groups: int | None = 8
    transitions: int = 2_000_000


@dataclass(frozen=True)
class StateSpace:
    """States in the order of falling size, the full one first, the empty one last.

    Transitions of state k are `first[k]` up to `first[k + 1]`: `ending` numbers the stage that is taken off, `target`
    the state that is left. Endings from `concurrent` on are merged ones.
    """

    operators: int
    states: NDArray[np.uint64]
    first: NDArray[np.int64]
    ending: NDArray[np.int32]
    target: NDArray[np.int32]
    endings: NDArray[np.uint64]
    concurrent: int

    @property
    def transitions(self) -> int:
        """Pairs of a state and an ending of it."""
        return len(self.target)

    def best(
        self, prices_ns: NDArray[np.float64], last_ns: NDArray[np.float64] | None = None
    ) -> tuple[float, list[int]]:
        """The least sum of prices of any sequence of stages, and the endings of one such sequence, first stage first.
        With `last_ns`, the last stage has these prices.
        """
        last = prices_ns if last_ns is None else last_ns
        cost, chosen = cheapest(self.first, self.ending, self.target, prices_ns, last)
        stages = []
        place = len(self.states) - 1
        while place:
            transition = int(chosen[place])
            stages.append(int(self.ending[transition]))
            place = int(np.searchsorted(self.first, transition, side="right")) - 1
        return float(cost), stages


def closures(successors: Sequence[Sequence[int]]) -> NDArray[np.uint64]:
    """For each operator, the mask of itself and all that come after it. Operators are in topological order.

    Raises PlacementError for more operators than a mask has bits, and for edges that lead backwards.
    """
    if len(successors) > MOST_OPERATORS:
        raise PlacementError(
            "a part of the network", needs=f"at most {MOST_OPERATORS} operators", has=str(len(successors))
        )
    found = [0] * len(successors)
    for operator in reversed(range(len(successors))):
        found[operator] = 1 << operator
        for after in successors[operator]:
            if not operator < after < len(successors):
                raise PlacementError(f"operator {operator}", needs="successors that come later", has=str(after))
            found[operator] |= found[after]
    return np.array(found, np.uint64)


def explore(
    closure: NDArray[np.uint64], limits: SearchLimits, merges: Sequence[int] = (), *, concurrent: bool = True
) -> StateSpace | None:
    """All reachable states and transitions; None where there are more than `limits.transitions`.

    `merges` are masks of merged endings; without `concurrent`, they are the only endings.
    """
    count = len(closure)
    found = reached(
        closure,
        limits.group_operators or count,
        limits.groups or count,
        np.array(merges, np.uint64),
        concurrent,
        limits.transitions,
    )
    states, order, first, ending, target, endings = found
    if not len(states):
        return None
    rank = np.empty(len(states), np.int32)
    rank[order] = np.arange(len(states), dtype=np.int32)
    own = len(endings)
    ending = np.where(ending < 0, own - 1 - ending, ending).astype(np.int32)
    return StateSpace(
        count, states[order], first, ending, rank[target], np.append(endings, np.array(merges, np.uint64)), own
    )
