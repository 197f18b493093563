"""The compiled loops of the search space: the functions of `space.py`, on arrays.

closures, limits --reached--> states, transitions, endings; transitions --cheapest--> costs
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_CACHED = {"cache": True, "nogil": True, "error_model": "numpy", "boundscheck": False}


@njit(**_CACHED)
def _ones(mask: Any) -> Any:
    """Number of bits of a mask that are set."""
    mask = mask - ((mask >> np.uint64(1)) & np.uint64(0x5555555555555555))
    mask = (mask & np.uint64(0x3333333333333333)) + ((mask >> np.uint64(2)) & np.uint64(0x3333333333333333))
    mask = (mask + (mask >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((mask * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(**_CACHED)
def _place(table: Any, masks: Any, mask: Any) -> Any:
    """Place of a mask in the hash table, or the free place where it belongs."""
    last = table.size - 1
    place = np.int64((mask * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & last
    while table[place] >= 0 and masks[table[place]] != mask:
        place = (place + 1) & last
    return place


@njit(**_CACHED)
def _longer(items: Any) -> Any:
    """The items with room for twice as many."""
    more = np.empty(2 * items.size, items.dtype)
    more[: items.size] = items
    return more


@njit(**_CACHED)
def _rehashed(masks: Any) -> Any:
    """A table for all of `masks`, half full at most when twice as many are there."""
    wider = np.full(4 * masks.size, np.int64(-1))
    for number in range(masks.size // 2):
        wider[_place(wider, masks, masks[number])] = number
    return wider


@njit(**_CACHED)
def _endings(state: Any, closure: Any, group_operators: Any, groups: Any, most: Any, found: Any) -> Any:
    """Concurrent endings of a state, (masks, their number); the number is -1 when there are more than `most`.

    The function walks over sets of heads in order. For each depth, `used` is what its heads take together, and `open_`
    has a bit for each later head that takes nothing of that.
    """
    one = np.uint64(1)
    items = np.empty(closure.size, np.uint64)
    count = 0
    for operator in range(closure.size):
        if (state >> np.uint64(operator)) & one:
            item = closure[operator] & state
            if _ones(item) <= group_operators:
                items[count] = item
                count += 1
    apart = np.zeros(count, np.uint64)
    for number in range(count):
        for other in range(number + 1, count):
            if not items[number] & items[other]:
                apart[number] |= one << np.uint64(other)
    open_ = np.zeros(count + 1, np.uint64)
    used = np.zeros(count + 1, np.uint64)
    open_[0] = (one << np.uint64(count)) - one
    made, depth = 0, 0
    while depth >= 0:
        lowest = open_[depth] & (~open_[depth] + one)
        if not lowest:
            depth -= 1
            continue
        open_[depth] ^= lowest
        if made == found.size:
            if made > most:
                return found, -1
            found = _longer(found)
        number = _ones(lowest - one)
        found[made] = used[depth] | items[number]
        made += 1
        if depth + 1 < groups:
            depth += 1
            used[depth] = found[made - 1]
            open_[depth] = open_[depth - 1] & apart[number]
    return found, made


@njit(**_CACHED)
def _sinks(state: Any, closure: Any) -> Any:
    """Operators of a state after which nothing of it comes."""
    found = np.uint64(0)
    for operator in range(closure.size):
        bit = np.uint64(1) << np.uint64(operator)
        if state & bit and closure[operator] & state == bit:
            found |= bit
    return found


@njit(**_CACHED)
def reached(closure: Any, group_operators: Any, groups: Any, merges: Any, concurrent: Any, most: Any) -> Any:
    """States by decreasing size; those of one size are a list linked by `behind`."""
    count = closure.size
    states = np.empty(1024, np.uint64)
    behind = np.empty(1024, np.int64)
    state_table = np.full(4096, np.int64(-1))
    endings = np.empty(1024, np.uint64)
    ending_table = np.full(4096, np.int64(-1))
    state_count, ending_count, transitions, done = 0, 0, 0, 0
    order = np.empty(1024, np.int64)
    first = np.zeros(1025, np.int64)
    ending_of = np.empty(1024, np.int32)
    target_of = np.empty(1024, np.int32)
    buffer = np.empty(1024, np.uint64)
    head = np.full(count + 1, np.int64(-1))
    full = (np.uint64(1) << np.uint64(count)) - np.uint64(1)
    states[0] = full
    behind[0] = -1
    state_table[_place(state_table, states, full)] = 0
    state_count = 1
    head[count] = 0
    nothing = np.empty(0, np.int64)
    for level in range(count, -1, -1):
        current = head[level]
        while current >= 0:
            if done == order.size:
                order = _longer(order)
                first = _longer(first)
            order[done] = current
            state = states[current]
            made = 0
            if concurrent:
                buffer, made = _endings(state, closure, group_operators, groups, most, buffer)
            sinks = _sinks(state, closure) if merges.size else np.uint64(0)
            if made < 0 or transitions + made > most:
                return states[:0], nothing, nothing, ending_of[:0], target_of[:0], endings[:0]
            for number in range(made + merges.size):
                if number < made:
                    ending = buffer[number]
                    place = _place(ending_table, endings, ending)
                    if ending_table[place] < 0:
                        ending_table[place] = ending_count
                        endings[ending_count] = ending
                        ending_count += 1
                        if ending_count == endings.size:
                            endings = _longer(endings)
                            ending_table = _rehashed(endings)
                            place = _place(ending_table, endings, ending)
                    ending_number = ending_table[place]
                else:
                    ending = merges[number - made]
                    if ending & ~sinks:
                        continue
                    ending_number = made - number - 1
                rest = state & ~ending
                place = _place(state_table, states, rest)
                if state_table[place] < 0:
                    size = _ones(rest)
                    state_table[place] = state_count
                    states[state_count] = rest
                    behind[state_count] = head[size]
                    head[size] = state_count
                    state_count += 1
                    if state_count == states.size:
                        states = _longer(states)
                        behind = _longer(behind)
                        state_table = _rehashed(states)
                        place = _place(state_table, states, rest)
                if transitions == target_of.size:
                    target_of = _longer(target_of)
                    ending_of = _longer(ending_of)
                target_of[transitions] = state_table[place]
                ending_of[transitions] = ending_number
                transitions += 1
            done += 1
            first[done] = transitions
            current = behind[current]
    return (
        states[:state_count],
        order[:done],
        first[: done + 1],
        ending_of[:transitions],
        target_of[:transitions],
        endings[:ending_count],
    )


@njit(**_CACHED)
def cheapest(first: Any, ending: Any, target: Any, prices: Any, last: Any) -> Any:
    """The least cost of the empty state, and for each state the transition by which it is reached at its least cost."""
    cost = np.full(first.size - 1, np.inf)
    chosen = np.full(first.size - 1, np.int64(-1))
    cost[0] = 0.0
    for state in range(first.size - 1):
        for transition in range(first[state], first[state + 1]):
            after = target[transition]
            price = cost[state] + (prices[ending[transition]] if state else last[ending[transition]])
            if price < cost[after]:
                cost[after] = price
                chosen[after] = transition
    return cost[first.size - 2], chosen
