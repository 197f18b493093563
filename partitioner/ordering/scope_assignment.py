"""Scopes of waiting outputs: which stay in the local memory, which go to the staging memory and which to the main one.

    lifetimes of outputs in a given order + room at each step --> a scope for each of them, of the least cost

An output keeps one scope for its whole life, so this is the choice of a heaviest set of intervals under a capacity that
changes with time (unsplittable flow on a path, hard in general), twice: local memory, then staging memory. A sweep that
remembers all choices still open is exact and cheap while few outputs compete; several greedy rules replace it where it
would be expensive.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

Scope = Literal["local", "staging", "main"]
LOCAL: Scope = "local"
STAGING: Scope = "staging"
MAIN: Scope = "main"

OPEN_CHOICES = 15_000
"""Number of partial choices after which the exact sweep gives up; about 20 ms."""

MANY = 1000
"""Number of competing outputs above which fewer greedy rules are combined, and the exact sweep gives up sooner."""

ROUNDS = 2
"""Number of times that the greedy rules are told which outputs ended in the main memory, and so cost more than
assumed."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """An output that waits from step `first` to step `last`, both included: `local_bytes` where it is local,
    `staging_bytes` where it is staged, and its costs of being staged and of being in the main memory."""

    first: int
    last: int
    local_bytes: int
    staging_bytes: int
    staging_cost: int
    main_cost: int


def never_local_bytes(capacity_bytes: int) -> int:
    """A value of `local_bytes`, above the capacity, for an output that may not wait in a local memory of that
    capacity."""
    return capacity_bytes + 1


def scope_cost(lifetimes: Sequence[Lifetime], scopes: Sequence[Scope]) -> int:
    """Sum of the costs of the outputs that are not local."""
    cost = 0
    for life, scope in zip(lifetimes, scopes, strict=True):
        if scope != LOCAL:
            cost += life.staging_cost if scope == STAGING else life.main_cost
    return cost


def assign_scopes(
    lifetimes: Sequence[Lifetime], free_bytes: Sequence[int], staging_bytes: int, open_choices: int = OPEN_CHOICES
) -> tuple[Scope, ...]:
    """One scope for each of `lifetimes`, where `free_bytes` are free in the local memory at each step.

    They cost the least possible unless so many outputs compete that the sweep reached `open_choices` partial choices.
    """
    contested = _contested(lifetimes, free_bytes)
    scopes: list[Scope] = [LOCAL] * len(lifetimes)
    if contested:
        few = [lifetimes[i] for i in contested]
        greedy = _greedy(few, free_bytes, staging_bytes)
        if len(few) > MANY:
            open_choices //= 4
        exact = _exact(few, free_bytes, staging_bytes, scope_cost(few, greedy), open_choices)
        for i, scope in zip(contested, exact or greedy, strict=True):
            scopes[i] = scope
    return tuple(scopes)


def _contested(lifetimes: Sequence[Lifetime], free_bytes: Sequence[int]) -> list[int]:
    """Indices of the outputs alive at a step at which not all living ones fit; the others stay local at no cost."""
    overflows = np.cumsum(np.concatenate(([0], _load(lifetimes, len(free_bytes)) > np.asarray(free_bytes))))
    return [i for i, life in enumerate(lifetimes) if overflows[life.last + 1] > overflows[life.first]]


def _load(
    lifetimes: Sequence[Lifetime], steps: int, staging: bool = False
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes of all outputs together at each step, were all of them local (staged)."""
    change = np.zeros(steps + 1, np.int64)
    for life in lifetimes:
        size_bytes = life.staging_bytes if staging else life.local_bytes
        change[life.first] += size_bytes
        change[life.last + 1] -= size_bytes
    return np.cumsum(change[:-1])


# The greedy rules.


def _greedy(lifetimes: Sequence[Lifetime], free_bytes: Sequence[int], staging_bytes: int) -> tuple[Scope, ...]:
    """The cheapest result of the rules; none of them looks at local and staging memory together."""
    staging_free = [staging_bytes] * len(free_bytes)
    can_stage = [life.staging_bytes <= staging_bytes and life.staging_cost < life.main_cost for life in lifetimes]
    saved = [life.staging_cost if can else life.main_cost for life, can in zip(lifetimes, can_stage, strict=True)]
    best: tuple[Scope, ...] = (MAIN,) * len(lifetimes)
    for _ in range(ROUNDS if len(lifetimes) <= MANY else 1):
        locals_found = list(_packings(lifetimes, [life.local_bytes for life in lifetimes], saved, free_bytes))
        if len(lifetimes) > MANY:
            locals_found = [max(locals_found, key=lambda kept: sum(saved[i] for i in kept))]
        for local in locals_found:
            out = [i for i in range(len(lifetimes)) if i not in local and can_stage[i]]
            gained = [lifetimes[i].main_cost - lifetimes[i].staging_cost for i in out]
            sizes = [lifetimes[i].staging_bytes for i in out]
            stagings = _packings([lifetimes[i] for i in out], sizes, gained, staging_free)
            for staged in stagings if len(lifetimes) <= MANY else [next(stagings)]:
                scopes = [LOCAL if i in local else MAIN for i in range(len(lifetimes))]
                for k in staged:
                    scopes[out[k]] = STAGING
                best = min(best, tuple(scopes), key=lambda found: scope_cost(lifetimes, found))
        if MAIN not in best:
            break
        saved = [
            life.main_cost if scope == MAIN else value
            for life, scope, value in zip(lifetimes, best, saved, strict=True)
        ]
    return best


def _packings(
    lives: Sequence[Lifetime], sizes: Sequence[int], values: Sequence[int], free_bytes: Sequence[int]
) -> Iterator[frozenset[int]]:
    """Sets of `lives` that fit together: by value per byte and step, by value per byte, and by the shortest life."""
    rules: tuple[Callable[[int], tuple[float, ...]], ...] = (
        lambda i: (values[i] / max(1, sizes[i] * (lives[i].last - lives[i].first + 1)),),
        lambda i: (values[i] / max(1, sizes[i]),),
        lambda i: (-(lives[i].last - lives[i].first), values[i]),
    )
    for rule in rules:
        keys = [rule(i) for i in range(len(lives))]
        yield _packed(lives, sizes, keys, free_bytes)


def _packed(
    lives: Sequence[Lifetime], sizes: Sequence[int], keys: Sequence[tuple[float, ...]], free_bytes: Sequence[int]
) -> frozenset[int]:
    """Take outputs in the order of their first step, remove the one with the least key where they do not fit, and take
    back at the end those that still fit, largest key first."""
    kept: set[int] = set()
    by_key: list[tuple[tuple[float, ...], int]] = []
    by_last: list[tuple[int, int]] = []
    used = 0
    starts = sorted(range(len(lives)), key=lambda i: lives[i].first)
    position = 0
    for step, free in enumerate(free_bytes):
        while by_last and by_last[0][0] < step:
            _, i = heapq.heappop(by_last)
            used -= sizes[i] if i in kept else 0
        while position < len(starts) and lives[starts[position]].first == step:
            i = starts[position]
            position += 1
            kept.add(i)
            used += sizes[i]
            heapq.heappush(by_key, (keys[i], i))
            heapq.heappush(by_last, (lives[i].last, i))
        while used > free:
            _, i = heapq.heappop(by_key)
            if lives[i].last >= step:
                kept.remove(i)
                used -= sizes[i]
    room = np.asarray(free_bytes, np.int64)
    change = np.zeros(len(room) + 1, np.int64)
    for i in kept:
        change[lives[i].first] += sizes[i]
        change[lives[i].last + 1] -= sizes[i]
    room = room - np.cumsum(change[:-1])
    out = np.array([i for i in range(len(lives)) if i not in kept], np.int64)
    ends = np.array([(lives[i].first, lives[i].last) for i in out], np.int64).reshape(-1, 2)
    may_fit = np.array([sizes[i] for i in out], np.int64) <= room[ends].min(axis=1)
    for i in sorted(map(int, out[may_fit]), key=lambda i: (keys[i], -i), reverse=True):
        span = slice(lives[i].first, lives[i].last + 1)
        if sizes[i] <= room[span].min():
            room[span] -= sizes[i]
            kept.add(i)
    return frozenset(kept)


# The exact sweep.


class _Choice(NamedTuple):  # lighter to make than a dataclass, and very many are made
    """The choice so far: the cost, bytes of the living local and staged outputs, and the last output that was moved
    out, with the choice before it."""

    cost: int
    local_bytes: int
    staged_bytes: int
    put_out: tuple[int, Scope] | None
    before: _Choice | None


_Choices = dict[tuple[int, int], _Choice]
"""Choices by the sets (as bits) of living outputs that are local and staged; all else that was chosen matters only by
its cost."""


def _exact(
    lifetimes: Sequence[Lifetime], free_bytes: Sequence[int], staging_bytes: int, bound: int, open_choices: int
) -> tuple[Scope, ...] | None:
    """Scopes that cost the least if that is less than `bound`; None otherwise, and if the sweep gave up."""
    load = _load(lifetimes, len(free_bytes))
    room = np.asarray(free_bytes)
    crowded = [int(step) for step in np.flatnonzero(load > room)]
    starts: dict[int, list[int]] = {}
    for i, life in enumerate(lifetimes):
        starts.setdefault(life.first, []).append(i)
    scarce = int(_load(lifetimes, len(free_bytes), staging=True).max()) > staging_bytes
    choices: _Choices = {(0, 0): _Choice(0, 0, 0, None, None)}
    alive: list[int] = []
    met = 0
    for step in sorted({*starts, *crowded}):
        dead = [i for i in alive if lifetimes[i].last < step]
        if dead:
            choices = _without(choices, dead, lifetimes)
            alive = [i for i in alive if lifetimes[i].last >= step]
        for i in starts.get(step, ()):
            alive.append(i)
            life = lifetimes[i]
            scopes: list[Scope] = [LOCAL] if life.local_bytes <= room[life.first : life.last + 1].min() else []
            scopes += [STAGING] if life.staging_cost < life.main_cost else []
            scopes += [MAIN] if scarce or STAGING not in scopes else []
            choices = _with(choices, i, life, scopes, staging_bytes, bound)
            met += len(choices)
            if met > open_choices:
                return None
        free = free_bytes[step]
        if load[step] > free:
            choices = {key: choice for key, choice in choices.items() if choice.local_bytes <= free}
    if not choices:
        return None
    found: list[Scope] = [LOCAL] * len(lifetimes)
    choice: _Choice | None = min(choices.values(), key=lambda choice: choice.cost)
    while choice is not None:
        if choice.put_out is not None:
            found[choice.put_out[0]] = choice.put_out[1]
        choice = choice.before
    return tuple(found)


def _without(choices: _Choices, dead: Sequence[int], lifetimes: Sequence[Lifetime]) -> _Choices:
    """The cheapest choice for each set that is left without the `dead` outputs."""
    kept: _Choices = {}
    gone = [(1 << i, lifetimes[i].local_bytes, lifetimes[i].staging_bytes) for i in dead]
    for (local, staged), (cost, local_bytes, staged_bytes, put_out, before) in choices.items():
        for bit, freed_local, freed_staged in gone:
            if local & bit:
                local ^= bit
                local_bytes -= freed_local
            elif staged & bit:
                staged ^= bit
                staged_bytes -= freed_staged
        known = kept.get((local, staged))
        if known is None or cost < known.cost:
            kept[local, staged] = _Choice(cost, local_bytes, staged_bytes, put_out, before)
    return kept


def _with(
    choices: _Choices, i: int, life: Lifetime, scopes: Sequence[Scope], staging_bytes: int, bound: int
) -> _Choices:
    """Each choice with output `i` in each of `scopes` that has room and leaves the cost below `bound`."""
    grown: _Choices = {}
    bit = 1 << i
    for (local, staged), choice in choices.items():
        cost, local_bytes, staged_bytes, put_out, before = choice
        for scope in scopes:
            if scope == LOCAL:
                local_after = local_bytes + life.local_bytes
                grown[local | bit, staged] = _Choice(cost, local_after, staged_bytes, put_out, before)
            elif scope == STAGING:
                staged_after = staged_bytes + life.staging_bytes
                if staged_after <= staging_bytes and cost + life.staging_cost < bound:
                    out = _Choice(cost + life.staging_cost, local_bytes, staged_after, (i, STAGING), choice)
                    grown[local, staged | bit] = out
            elif cost + life.main_cost < bound:
                grown[local, staged] = _Choice(cost + life.main_cost, local_bytes, staged_bytes, (i, MAIN), choice)
    return grown
