"""The inner loop of the bounds: the earliest start of each work, when all works that must be over first share its
machines.

    edges, cycles, claims of each machine --starts--> a start for each work, none of them too late

Take any subset of the works before one on a machine: they cannot begin before the earliest of them, the machine needs
the sum of their cycles, and the shortest tail of any of them follows. For each machine, the best subset of those that
start late is found in one pass from the latest claim backwards. The pass ends where earlier claims cannot raise the
bound, even if all of them belonged to works before this one. That limit is kept in a tree over blocks of claims, so
that a work looks at a few blocks and not at the whole program before it. It is compiled, since every work asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]
Numbers = NDArray[np.float64]
Words = NDArray[np.uint64]

_SIGNATURE = (
    "float64[::1](int64[::1], int64[::1], float64[::1], float64, int64[::1], uint8[::1], "
    "int64[::1], int64[::1], float64[:, ::1])"
)
HEAD, CYCLES, TAIL = range(3)
"""Rows of `numbers`."""

ONE = np.uint64(1)

BLOCK = 32
"""Number of claims looked at before the tree is asked again whether earlier ones can raise the bound."""

TOLERANCE_CYCLES = 1e-6
"""Cycles by which a start may be lower because sums are added up in another order."""


@njit(cache=True, nogil=True, boundscheck=False)
def _last_readers(before_from: Indices, before: Indices, count: int) -> Any:
    """The last work that comes after each work; -1 where there is none."""
    last = np.full(count, -1, np.int64)
    for n in range(count):
        for e in range(before_from[n], before_from[n + 1]):
            last[before[e]] = n
    return last


@njit(cache=True, nogil=True, boundscheck=False)
def _slots(before_from: Indices, before: Indices, last: Indices) -> Any:
    """Slot in which each work keeps the set of all works before it until its last reader has seen it, and the number of
    slots; the last slot is for the works that nobody asks."""
    slot = np.full(last.size, -1, np.int64)
    free = np.zeros(last.size, np.int64)
    left = 0
    most = 0
    for n in range(last.size):
        if last[n] >= 0:
            if left:
                left -= 1
                slot[n] = free[left]
            else:
                slot[n] = most
                most += 1
        for e in range(before_from[n], before_from[n + 1]):
            p = before[e]
            if last[p] == n:
                free[left] = slot[p]
                left += 1
    for n in range(last.size):
        if slot[n] < 0:
            slot[n] = most
    return slot, most + 1


@njit(cache=True, nogil=True, boundscheck=False)
def _claims_of(works: Indices, count: int) -> Any:
    """Claims of work n: `claims[first[n]:first[n + 1]]`."""
    first = np.zeros(count + 1, np.int64)
    for c in range(works.size):
        first[works[c] + 1] += 1
    for n in range(count):
        first[n + 1] += first[n]
    place = first[:-1].copy()
    claims = np.zeros(works.size, np.int64)
    for c in range(works.size):
        claims[place[works[c]]] = c
        place[works[c]] += 1
    return first, claims


@njit(cache=True, nogil=True, boundscheck=False)
def _trees(machine_from: Indices) -> Any:
    """Beginning of the tree of each machine: node 1 is the whole, 2n and 2n + 1 are the two parts of node n, and the
    second half of all nodes are blocks of claims."""
    tree_from = np.zeros(machine_from.size, np.int64)
    for m in range(machine_from.size - 1):
        leaves = 1
        while leaves * BLOCK < machine_from[m + 1] - machine_from[m]:
            leaves *= 2
        tree_from[m + 1] = tree_from[m] + 2 * leaves
    return tree_from


@njit(cache=True, nogil=True, boundscheck=False)
def _over(sums: Numbers, best: Numbers, node: int) -> Any:
    """Earliest time at which a machine is done with all known claims up to the end of a block: the latest of the times
    that the start of a claim and all cycles from it on give."""
    total = sums[node]
    found = best[node]
    while node > 1:
        if node & 1:
            found = max(found, best[node - 1] + total)
            total += sums[node - 1]
        node >>= 1
    return found


@njit(cache=True, nogil=True, boundscheck=False)
def _raised(
    start: float, mask: Words, bit: Indices, works: Indices, numbers: Numbers, result: Numbers, sums: Numbers,
    best: Numbers,
) -> Any:  # fmt: skip
    """Start of a work that comes after those of `mask`, as raised by one machine with these claims and this tree."""
    head, total, tail = np.inf, 0.0, np.inf
    for block in range((works.size - 1) // BLOCK, -1, -1):
        leaf = best.size // 2 + block
        if best[leaf] == -np.inf:
            continue
        if _over(sums, best, leaf) + total + tail <= start + TOLERANCE_CYCLES:
            break
        for c in range(min((block + 1) * BLOCK, works.size) - 1, block * BLOCK - 1, -1):
            p = works[c]
            b = bit[p]
            if (mask[b >> 6] >> np.uint64(b & 63)) & ONE:
                head = min(head, result[p] + numbers[HEAD, c])
                total += numbers[CYCLES, c]
                tail = min(tail, numbers[TAIL, c])
                start = max(start, head + total + tail)
    return start


@njit(cache=True, nogil=True, boundscheck=False)
def _enter(
    n: int, claim: int, works: Indices, numbers: Numbers, result: Numbers, last: Indices, sums: Numbers, best: Numbers
) -> None:
    """Enter a claim once its work n and all works before it are known: its block in the machine's tree, and all nodes
    above."""
    block = claim // BLOCK
    total, found = 0.0, -np.inf
    for c in range(min((block + 1) * BLOCK, works.size) - 1, block * BLOCK - 1, -1):
        p = works[c]
        if p <= n and last[p] >= 0:
            total += numbers[CYCLES, c]
            found = max(found, result[p] + numbers[HEAD, c] + total)
    node = best.size // 2 + block
    sums[node], best[node] = total, found
    while node > 1:
        node >>= 1
        left, right = 2 * node, 2 * node + 1
        sums[node] = sums[left] + sums[right]
        best[node] = max(best[left] + sums[right], best[right])


@njit(_SIGNATURE, cache=True, nogil=True, error_model="numpy", boundscheck=False)
def starts(
    before_from: Indices,
    before: Indices,
    cycles: Numbers,
    earliest: float,
    bit: Indices,
    judged: Bytes,
    machine_from: Indices,
    works: Indices,
    numbers: Numbers,
) -> Any:
    """Starts of all works, none before `earliest`. `before[before_from[n]:before_from[n + 1]]` are lower than n.

    Claims of machine m are `machine_from[m]` up to `machine_from[m + 1]`, in order of their known start; `works` gives
    the work of each claim, `numbers` its head, cycles and tail. `bit[n]` numbers the works with claims; it is -1 for
    the others. Only works that are `judged` look at machines; the others follow from the works before them.
    """
    count = cycles.size
    last = _last_readers(before_from, before, count)
    slot, slots = _slots(before_from, before, last)
    masks = np.zeros((slots, (bit.max() + 64) // 64 if count else 0), np.uint64)
    claims_from, claims = _claims_of(works, count)
    tree_from = _trees(machine_from)
    sums = np.zeros(tree_from[-1], np.float64)
    best = np.full(tree_from[-1], -np.inf)
    result = np.zeros(count, np.float64)
    for n in range(count):
        mask = masks[slot[n]]
        mask[:] = 0
        start = earliest
        for e in range(before_from[n], before_from[n + 1]):
            p = before[e]
            start = max(start, result[p] + cycles[p])
            other = masks[slot[p]]
            for w in range(mask.size):
                mask[w] |= other[w]
            if bit[p] >= 0:
                mask[bit[p] >> 6] |= ONE << np.uint64(bit[p] & 63)
        if judged[n]:
            for m in range(machine_from.size - 1):
                first, end, tree, tree_end = machine_from[m], machine_from[m + 1], tree_from[m], tree_from[m + 1]
                start = _raised(start, mask, bit, works[first:end], numbers[:, first:end], result, sums[tree:tree_end],
                                best[tree:tree_end])  # fmt: skip
        result[n] = start
        if last[n] >= 0:  # else nothing comes after it
            for i in range(claims_from[n], claims_from[n + 1]):
                m = np.searchsorted(machine_from, claims[i], side="right") - 1
                first, end, tree, tree_end = machine_from[m], machine_from[m + 1], tree_from[m], tree_from[m + 1]
                _enter(n, claims[i] - first, works[first:end], numbers[:, first:end], result, last, sums[tree:tree_end],
                       best[tree:tree_end])  # fmt: skip
    return result
