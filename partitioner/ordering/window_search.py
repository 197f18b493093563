"""A better order near a given one: windows of it are reordered one after the other, several times.

    order, cut in windows --beam search in each--> order, judged as a whole

With windows, the time grows only with the number of nodes; borders of the first pass lie inside windows of the next.
"""

from __future__ import annotations

from itertools import pairwise

from partitioner.ordering.beam_search import START, OrderWindow, problem
from partitioner.ordering.cost import Capacity, InstanceGraph, Ordered, evaluate, weighed

PASSES = ((40, 0), (24, 0), (24, 12))
"""Nodes of a window, and of the first window where that is shorter, for each pass over the order."""

ONE_PASS = 3000
"""Number of nodes above which only one pass, with short windows, is made."""

EXPANSIONS = 20_000
"""Number of partial orders made in all passes together, which determines the width of the beam. About 0.2 s."""


def searched(graph: InstanceGraph, capacity: Capacity, start: Ordered, expansions: int = EXPANSIONS) -> Ordered:
    """`start` or a cheaper order near it, for about this many `expansions` of partial orders, some 10 us each."""
    graph, count = weighed(graph, capacity), len(graph.nodes)
    passes = [entry for entry in PASSES if entry == PASSES[0] or entry[0] < count] if count <= ONE_PASS else [PASSES[1]]
    best = start
    for window, first in passes:
        order = _passed(graph, capacity, best, window, first, expansions // len(passes)) if best.cost else None
        if order is not None:
            found = evaluate(graph, capacity, order, "beam")
            best = found if found.cost < best.cost else best
    return best


def _passed(
    graph: InstanceGraph, capacity: Capacity, base: Ordered, window: int, first: int, expansions: int
) -> tuple[int, ...] | None:
    """Another order, found in windows of `base` one after the other; None where none seems cheaper."""
    count = len(base.order)
    whole = problem(graph, capacity, base.order)
    state = START
    order: list[int] = []
    peaks: dict[int, int] = {}
    for low, high in pairwise(sorted({0, *range(first, count, window), count})):
        part = OrderWindow(whole, base.order[low:high], peaks, expansions * (high - low) // count)
        found = part.search(state, base.cost if high - low == count else None)
        if found is None:
            return None
        order += found.order
        peaks = part.peaks_after(found)
        state = found
    return tuple(order) if tuple(order) != base.order else None
