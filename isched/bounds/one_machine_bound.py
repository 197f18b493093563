"""The inner loop of the bounds: how early each work can start when all that must be over first shares its machines.

    edges, cycles, claims of each machine --starts--> a start for each work, none of them too late

Whatever subset of the works before one we take on a machine: they cannot begin before the earliest of them, the machine
needs the sum of their cycles, and the shortest rest behind any of them follows. The best subset of those that start
late is found for each machine in one pass. Compiled, since every work asks about all before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["starts"]

_SIGNATURE = (
    "float64[::1](int64[::1], int64[::1], float64[::1], float64, int64[::1], uint8[::1], "
    "int64[::1], int64[::1], float64[:, ::1])"
)
HEAD, CYCLES, TAIL = range(3)
"""Rows of `numbers`."""


@njit(_SIGNATURE, cache=True, nogil=True, error_model="numpy", boundscheck=False)
def starts(
    before_from: NDArray[np.int64],
    before: NDArray[np.int64],
    cycles: NDArray[np.float64],
    earliest: float,
    bit: NDArray[np.int64],
    judged: NDArray[np.uint8],
    machine_from: NDArray[np.int64],
    works: NDArray[np.int64],
    numbers: NDArray[np.float64],
) -> Any:
    """Starts of all works, none before `earliest`. `before[before_from[n]:before_from[n + 1]]` are lower than n.

    Claims of machine m are `machine_from[m]` up to `machine_from[m + 1]`, in order of the start that they are known to
    have; `works` says whose they are, `numbers` their head, cycles and tail. `bit[n]` numbers the works with claims, -1
    for the others. Only those that are `judged` look at machines; the others follow from the works before them.
    """
    count = cycles.size
    words = (bit.max() + 64) // 64 if count else 0
    last = np.full(count, -1, np.int64)
    for n in range(count):
        for e in range(before_from[n], before_from[n + 1]):
            last[before[e]] = n
    most = 0
    alive = 0
    ends = np.zeros(count + 1, np.int64)
    for n in range(count):
        if last[n] >= 0:
            alive += 1
            ends[last[n]] += 1
        most = max(most, alive)
        alive -= ends[n]
    masks = np.zeros((most + 2, words), np.uint64)
    free = np.arange(most + 1)
    left = most + 1
    slot = np.zeros(count, np.int64)
    result = np.zeros(count, np.float64)
    one = np.uint64(1)
    scratch = most + 1
    for n in range(count):
        mine = scratch
        if last[n] >= 0:
            left -= 1
            mine = free[left]
        slot[n] = mine
        mask = masks[mine]
        mask[:] = 0
        start = earliest
        for e in range(before_from[n], before_from[n + 1]):
            p = before[e]
            start = max(start, result[p] + cycles[p])
            other = masks[slot[p]]
            for w in range(words):
                mask[w] |= other[w]
            if bit[p] >= 0:
                mask[bit[p] >> 6] |= one << np.uint64(bit[p] & 63)
        for e in range(before_from[n], before_from[n + 1]):
            p = before[e]
            if last[p] == n:
                last[p] = -1
                free[left] = slot[p]
                left += 1
        if judged[n]:
            for m in range(machine_from.size - 1):
                head, total, tail = np.inf, 0.0, np.inf
                for c in range(machine_from[m + 1] - 1, machine_from[m] - 1, -1):
                    p = works[c]
                    b = bit[p]
                    if (mask[b >> 6] >> np.uint64(b & 63)) & one:
                        head = min(head, result[p] + numbers[HEAD, c])
                        total += numbers[CYCLES, c]
                        tail = min(tail, numbers[TAIL, c])
                        start = max(start, head + total + tail)
        result[n] = start
    return result
