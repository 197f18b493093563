"""Size of a search space of IOS as the paper prints it: the width of a block and the exact number of its schedules.

closures --width--> the largest set of independent operators    StateSpace --schedule_count--> sequences of stages
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dsa_sched.placement.ios.space import StateSpace

LIMBS = 6
"""Number of 64-bit words of a count of schedules: enough for all orders of 62 operators with all choices of stages."""


def schedule_count(space: StateSpace) -> int:
    """Exact number of sequences of stages."""
    words = _paths(space.first, space.target, LIMBS)
    return sum(int(word) << (64 * place) for place, word in enumerate(words))


def width(closure: NDArray[np.uint64]) -> int:
    """Size of the largest set of operators of which none comes after another: all less a matching (Dilworth)."""
    masks = [int(mask) for mask in closure]
    taken: dict[int, int] = {}

    def matched(operator: int, seen: set[int]) -> bool:
        for after in range(operator + 1, len(masks)):
            if masks[operator] >> after & 1 and after not in seen:
                seen.add(after)
                if after not in taken or matched(taken[after], seen):
                    taken[after] = operator
                    return True
        return False

    return len(masks) - sum(matched(operator, set()) for operator in range(len(masks)))


@njit(cache=True, nogil=True, error_model="numpy", boundscheck=False)
def _paths(first: Any, target: Any, limbs: Any) -> Any:
    """Number of paths from the full state to the empty one, in 64-bit words, the lowest first."""
    found = np.zeros((first.size - 1, limbs), np.uint64)
    found[0, 0] = 1
    for state in range(first.size - 1):
        for transition in range(first[state], first[state + 1]):
            after = target[transition]
            carry = np.uint64(0)
            for limb in range(limbs):
                added = found[after, limb] + carry
                carry = np.uint64(added < carry)
                total = added + found[state, limb]
                carry += np.uint64(total < added)
                found[after, limb] = total
    return found[first.size - 2]
