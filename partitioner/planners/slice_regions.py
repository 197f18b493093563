"""Where slices of the batch could pay: ranges of groups in which as much could stay in the cache as launches cost.

    run of the whole batch, count --least seconds of each group in slices--> ranges, from one group to before another

This is a bound that asks for no kernels of a slice, so that covers of slices are made only where they could be taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from partitioner.fusion.cache_hits import MARGIN, NOTHING, GroupWork, KernelRun
from partitioner.fusion.kernel_sets import bits
from partitioner.ir.kernels import Kernel
from partitioner.planners.kernel_offers import KernelOffers


def slice_regions(run: KernelRun, offers: KernelOffers, excluded: int, count: int) -> tuple[tuple[int, int], ...]:
    """Ranges of groups, from one to before another, in which slices could save more than the error of rates: as if
    all that a kernel exchanges would be found in the cache, and waves were as full as before."""
    gains = [_largest_gain(work, hits, offers, count) for work, hits in run.groups()]
    costs = [work.cost(hits) for work, hits in run.groups()]
    blocked = [bool(work.members & excluded) or not has_rates(work, hits) for work, hits in run.groups()]
    allowed = [-inf if no else gain for gain, no in zip(gains, blocked, strict=True)]
    found = sorted(_ranges(allowed, costs))
    layers = [len(work.layers) for work, _ in run.groups()]
    return tuple((first, last) for first, last in found if sum(layers[first:last]) > 1)


def _ranges(gains: Sequence[float], costs: Sequence[float]) -> Iterator[tuple[int, int]]:
    """The range of largest sum, and such ranges on both sides of it, while they gain more than MARGIN of their cost."""
    left = [(0, len(gains))]
    while left:
        low, high = left.pop()
        best, first, last = _largest_range(gains, low, high)
        if best > MARGIN * sum(costs[first:last]):
            yield first, last
            left += [(low, first), (last, high)]


def _largest_range(gains: Sequence[float], low: int, high: int) -> tuple[float, int, int]:
    """The largest sum of neighbours, above 0, and the first of them and the one behind the last."""
    best, first, last, total, start = 0.0, low, low, 0.0, low
    for number in range(low, high):
        if total <= 0:
            total, start = 0.0, number
        total += gains[number]
        if total > best:
            best, first, last = total, start, number + 1
    return best, first, last


def _largest_gain(work: GroupWork, hits: frozenset[str], offers: KernelOffers, count: int) -> float:
    if not work.kernels:
        return 0.0
    apart = [offers.alone(number) for number in bits(work.members)]
    return work.cost(hits) - min(_least((work,), count, offers), _least(apart, count, offers))


def has_rates(work: GroupWork, hits: frozenset[str] = NOTHING) -> bool:
    """Whether the best kernel is one of those that were measured."""
    return not work.kernels or work.best(hits).measured is not None


def _least(works: Sequence[GroupWork], count: int, offers: KernelOffers) -> float:
    """Seconds that these kernels take at least in slices."""
    constants = {tensor.name for tensor in offers.ctx.graph.tensors if tensor.constant}
    total = 0.0
    for work in works:
        room = offers.cache.room_bytes if offers.cache else 0.0
        fits = sum(work.moved.values()) < count * room
        best = work.best(frozenset(work.moved) - constants if fits else NOTHING)
        total += replace(best, launches=count * best.launches).seconds
    return total


def starts(kernel: Kernel) -> float:
    """Seconds of its launches and starts."""
    return kernel.launches * (kernel.launch_seconds + (kernel.measured.start_seconds if kernel.measured else 0.0))


def starts_of(work: GroupWork, hits: frozenset[str]) -> float:
    """Seconds of launches and starts of the best kernel; 0 for a view."""
    return starts(work.best(hits)) if work.kernels else 0.0
