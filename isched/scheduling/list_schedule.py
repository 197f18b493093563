"""List scheduling of one stream: at each moment, issue the instruction on which the most depends.

    Tasks (what each occupies, what is over before it) --list_schedule--> the order of issue

A core issues one instruction after the other, and each engine has a queue: an instruction that finds its queue full
blocks the core. The search is compiled, since every instruction asks what is ready.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from hw_models.errors import PlanError
from isched.hazards.access_table import Flags, Vector
from isched.hazards.dependences import Pairs

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tasks:
    """The instructions of a stream: scalar cycles to issue each, the number of its unit (-1 for none), its cycles
    there. `depths` are the places of each unit's queue.

    With `drains`, all units are idle when the task issues. `rendezvous` is the number of a rendezvous of all cores,
    `background` the channel of the transfer that the task starts, `awaits` the channel of the transfer that is over
    then; each is -1 for none. `after` pairs a task with those that are over before it issues, `follows` with those that
    are issued before it. Channels and units are numbered from 0."""

    issue: Floats
    unit: Vector
    cycles: Floats
    depths: Vector
    drains: Flags
    rendezvous: Vector
    background: Vector
    awaits: Vector
    after: Pairs
    follows: Pairs


def list_schedule(tasks: Tasks, met: Floats | None) -> tuple[Vector, Floats]:
    """Numbers of the tasks in the order of issue, and the time at which each rendezvous was issued. The next task is
    the one with the longest tail of those that need not wait, else the one that waits least. Rendezvous do not begin
    before the times in `met`. Raises PlanError where tasks wait for each other in a circle."""
    count, after, follows = len(tasks.issue), tasks.after, tasks.follows
    if not count:
        return np.zeros(0, np.int64), np.zeros(0)
    channels = 1 + int(max(tasks.background.max(), tasks.awaits.max()))
    tails = _tails(
        channels, tasks.issue, tasks.unit, tasks.cycles, tasks.background, tasks.awaits,
        *_starting(after.later, after.earlier, count), *_starting(follows.later, follows.earlier, count),
    )  # fmt: skip
    # A task is known by its rank: the one to take first has the lowest.
    ranked = np.lexsort((np.arange(count), -tails))
    rank = np.empty(count, np.int64)
    rank[ranked] = np.arange(count)
    earliest = np.zeros(count)
    if met is not None:
        known = (tasks.rendezvous >= 0) & (tasks.rendezvous < len(met))
        earliest[known] = met[tasks.rendezvous[known]]
    lane = np.where(tasks.unit >= 0, tasks.unit + 2, tasks.drains.astype(np.int64))
    missing = np.bincount(after.later, minlength=count) + np.bincount(follows.later, minlength=count)
    order, begun = _schedule(
        tasks.depths, channels, int(lane.max()) + 1, tasks.issue, tasks.cycles, tasks.unit, tasks.drains,
        tasks.background, tasks.awaits, lane, rank, ranked, missing, earliest,
        *_starting(after.earlier, after.later, count), *_starting(follows.earlier, follows.later, count),
    )  # fmt: skip
    if len(order) < count:
        raise PlanError(
            "the order of a program", needs="instructions that wait for earlier ones", has="some in a circle"
        )
    met_at = np.zeros(int(tasks.rendezvous.max(initial=-1)) + 1)
    meets = tasks.rendezvous >= 0
    met_at[tasks.rendezvous[meets]] = begun[meets]
    return order, met_at


def _starting(of: Vector, to: Vector, count: int) -> tuple[Vector, Vector]:
    """Pairs grouped by their first member: those of n are from `starts[n]` to `starts[n + 1]`."""
    order = np.argsort(of, kind="stable")
    return np.concatenate(([0], np.cumsum(np.bincount(of, minlength=count)))), to[order]


@njit(cache=True, nogil=True)
def _tails(
    channels: int,
    issue: Floats,
    unit: Vector,
    cycles: Floats,
    background: Vector,
    awaits: Vector,
    after_starts: Vector,
    after: Vector,
    follows_starts: Vector,
    follows: Vector,
) -> Floats:  # pragma: no cover - compiled
    """Cycles from the start of each task to the end of all that depends on it."""
    tails = np.zeros(len(issue))
    started = np.zeros(channels, np.int64)  # by channel the number of the wait, counted from 1
    for n in range(len(issue) - 1, -1, -1):
        if background[n] >= 0:
            waits = started[background[n]]
            tails[n] = max(tails[n], cycles[n] + (tails[waits - 1] if waits else 0.0))
        else:
            tails[n] += issue[n] + (cycles[n] if unit[n] >= 0 else 0.0)
        if awaits[n] >= 0:
            started[awaits[n]] = n + 1
        for place in range(after_starts[n], after_starts[n + 1]):
            tails[after[place]] = max(tails[after[place]], tails[n])
        for place in range(follows_starts[n], follows_starts[n + 1]):
            p = follows[place]
            tails[p] = max(tails[p], tails[n] - (cycles[p] if unit[p] >= 0 else 0.0))
    return tails


@njit(cache=True, nogil=True)
def _schedule(
    depths: Vector,
    channels: int,
    lanes: int,
    issue: Floats,
    cycles: Floats,
    unit: Vector,
    drains: Flags,
    background: Vector,
    awaits: Vector,
    lane: Vector,
    rank: Vector,
    ranked: Vector,
    missing: Vector,
    earliest: Floats,
    after_starts: Vector,
    after: Vector,
    follows_starts: Vector,
    follows: Vector,
) -> tuple[Vector, Floats]:  # pragma: no cover - compiled
    """The order, and when each task is issued. Tasks that wait are in a heap by the time at which their wait ends;
    tasks that are ready are in one heap per lane: unit, drain or scalar."""
    count, units = len(issue), max(0, lanes - 2)
    waiting, waits = np.empty(count, np.int64), 0
    free, held = np.empty((lanes, count), np.int64), np.zeros(lanes, np.int64)
    at, none = np.zeros(count), np.zeros(count)  # by rank
    ends = np.zeros((units, max(1, depths.max() if units else 1)))  # the last of each unit's queue, in turn
    sent = np.zeros(units, np.int64)
    left = np.zeros(channels)  # cycles that each transfer would still take alone, at the time `since`
    since = now = 0.0
    order, begun = np.empty(count, np.int64), np.zeros(count)
    for n in range(count):
        if not missing[n]:
            at[rank[n]] = earliest[n]
            waits = _push(waiting, waits, rank[n], at)
    done = 0
    while done < count:
        while waits and at[waiting[0]] <= now:
            taken = waiting[0]
            waits = _pop(waiting, waits, at)
            if awaits[ranked[taken]] >= 0:
                over = since + _shared(left, left[awaits[ranked[taken]]])
                if over > now:  # others have started since, and take their share
                    at[taken] = over
                    waits = _push(waiting, waits, taken, at)
                    continue
            chosen = lane[ranked[taken]]
            held[chosen] = _push(free[chosen], held[chosen], taken, none)
        best = soon = -1
        soonest = 0.0
        for number in range(lanes):
            if not held[number]:
                continue
            task = ranked[free[number, 0]]
            slot = now
            if drains[task]:
                some = False
                for engine in range(units):
                    if sent[engine]:
                        last = ends[engine, (sent[engine] - 1) % depths[engine]]
                        slot = max(slot, last) if some else last
                        some = True
            elif unit[task] >= 0 and sent[unit[task]] >= depths[unit[task]]:
                slot = ends[unit[task], sent[unit[task]] % depths[unit[task]]]
            if slot <= now:
                if best < 0 or free[number, 0] < best:
                    best = free[number, 0]
            elif soon < 0 or slot < soonest or (slot == soonest and free[number, 0] < soon):
                soon, soonest = free[number, 0], slot
        if best < 0 and soon < 0 and not waits:
            break
        if best < 0:
            now = at[waiting[0]] if waits and (soon < 0 or at[waiting[0]] <= soonest) else soonest
            continue
        task = ranked[best]
        held[lane[task]] = _pop(free[lane[task]], held[lane[task]], none)
        order[done] = task
        done += 1
        begun[task] = now
        end = now + issue[task]
        now = end
        if background[task] >= 0:
            _advance(left, end - since)
            since = max(since, end)
            left[background[task]] += cycles[task]
        elif unit[task] >= 0:
            engine = unit[task]
            if sent[engine]:
                end = max(end, ends[engine, (sent[engine] - 1) % depths[engine]])
            end += cycles[task]
            ends[engine, sent[engine] % depths[engine]] = end
            sent[engine] += 1
        for over in range(2):
            starts, following, moment = (after_starts, after, end) if over else (follows_starts, follows, now)
            for place in range(starts[task], starts[task + 1]):
                other = following[place]
                missing[other] -= 1
                earliest[other] = max(earliest[other], moment)
                if not missing[other]:
                    at[rank[other]] = earliest[other]
                    waits = _push(waiting, waits, rank[other], at)
    return order[:done], begun


@njit(cache=True, nogil=True)
def _shared(left: Floats, own: float) -> float:  # pragma: no cover - compiled
    """Cycles until a transfer is over that would take its `own` cycles alone, when all transfers have equal shares."""
    cycles = 0.0
    for other in range(len(left)):
        cycles += min(left[other], own)
    return cycles


@njit(cache=True, nogil=True)
def _advance(left: Floats, cycles: float) -> None:  # pragma: no cover - compiled
    """Update the rest of each transfer after this many cycles."""
    while cycles > 0:
        working, least = 0, 0.0
        for remaining in left:
            if remaining > 0:
                working += 1
                least = remaining if working == 1 else min(least, remaining)
        if not working:
            return
        step = min(least, cycles / working)
        if step <= 0:  # the cycles left by rounding are too few to divide
            return
        for channel in range(len(left)):
            if left[channel] > 0:
                left[channel] = 0.0 if left[channel] <= step else left[channel] - step
        cycles -= step * working


@njit(cache=True, nogil=True)
def _push(heap: Vector, size: int, item: int, keys: Floats) -> int:  # pragma: no cover - compiled
    """Add an item to a heap ordered by key, then by number; return its new size."""
    place = size
    while place:
        above = (place - 1) // 2
        if keys[heap[above]] < keys[item] or (keys[heap[above]] == keys[item] and heap[above] < item):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = item
    return size + 1


@njit(cache=True, nogil=True)
def _pop(heap: Vector, size: int, keys: Floats) -> int:  # pragma: no cover - compiled
    """Remove the first item; return the new size."""
    size -= 1
    item = heap[size]
    place = 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size:
            a, b = heap[below + 1], heap[below]
            if keys[a] < keys[b] or (keys[a] == keys[b] and a < b):
                below += 1
        other = heap[below]
        if keys[item] < keys[other] or (keys[item] == keys[other] and item < other):
            break
        heap[place] = other
        place = below
    heap[place] = item
    return size
