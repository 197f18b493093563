"""The order in which sub-graph instances run, so that their outputs can wait in the local memory.

    instance graph + capacity --several methods, one judge--> the cheapest order, and what the others cost

Breadth first and depth first are those of GraphTurbo (OSDI 2023, Algorithm 3), which announces heaviest first as future
work. Post-order is the rule of Liu (1987) for trees. A search starts from the best of these: windows of that order are
reordered one after the other, several times. So the choice is never worse than any of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from partitioner.ordering.beam_search import START, OrderWindow, problem
from partitioner.ordering.cost import Capacity, InstanceGraph, Ordered, evaluate, refuse_too_large, weighed

PASSES = ((40, 0), (24, 0), (24, 12))
"""Nodes of a window, and of the first window where that is shorter, for each pass over the order: borders of the first
pass lie inside windows of the next."""

ONE_PASS = 3000
"""Number of nodes above which only one pass, with short windows, is made."""

EXPANSIONS = 20_000
"""Number of partial orders made in all passes together, which determines the width of the beam. About 0.2 s."""

Method = Callable[[InstanceGraph], tuple[int, ...]]


def breadth_first(graph: InstanceGraph) -> tuple[int, ...]:
    """Order in which the first ready node runs first; nodes without producers by index."""
    missing = [len(found) for found in graph.producers]
    order = [i for i, count in enumerate(missing) if count == 0]
    for node in order:  # grows while it is read
        for consumer in graph.consumers[node]:
            missing[consumer] -= 1
            if missing[consumer] == 0:
                order.append(consumer)
    return tuple(order)


def depth_first(graph: InstanceGraph) -> tuple[int, ...]:
    """Order of GraphTurbo's Algorithm 3: of the ready nodes, the one that was seen last, where a consumer is seen when
    the first of its producers has run."""
    missing = [len(found) for found in graph.producers]
    seen = [i for i, count in enumerate(missing) if count == 0]
    place = {node: position for position, node in enumerate(seen)}
    latest = [-position for position in place.values()]
    heapq.heapify(latest)
    order: list[int] = []
    while latest:
        node = seen[-heapq.heappop(latest)]
        order.append(node)
        for consumer in graph.consumers[node]:
            if consumer not in place:
                place[consumer] = len(seen)
                seen.append(consumer)
            missing[consumer] -= 1
            if missing[consumer] == 0:
                heapq.heappush(latest, -place[consumer])
    return tuple(order)


def heaviest_first(graph: InstanceGraph) -> tuple[int, ...]:
    """Order that takes, of the ready nodes, the one with the largest footprint: its work, its output and its inputs."""
    nodes = graph.nodes

    def footprint(i: int) -> int:
        return nodes[i].work_bytes + nodes[i].output_bytes + sum(nodes[p].output_bytes for p in graph.producers[i])

    missing = [len(found) for found in graph.producers]
    heaviest = [(-footprint(i), i) for i, count in enumerate(missing) if count == 0]
    heapq.heapify(heaviest)
    order: list[int] = []
    while heaviest:
        _, node = heapq.heappop(heaviest)
        order.append(node)
        for consumer in graph.consumers[node]:
            missing[consumer] -= 1
            if missing[consumer] == 0:
                heapq.heappush(heaviest, (-footprint(consumer), consumer))
    return tuple(order)


def post_order(graph: InstanceGraph) -> tuple[int, ...]:
    """Order with producers right before the node that needs them, first the one that takes the most room beyond what it
    leaves waiting; it has the lowest peak among such orders where the graph is a tree (Liu 1987)."""
    nodes = graph.nodes
    peak = [0] * len(nodes)
    sorted_producers: list[list[int]] = [[] for _ in nodes]
    for i in breadth_first(graph):
        before = sorted(graph.producers[i], key=lambda p: (nodes[p].output_bytes - peak[p], p))
        sorted_producers[i] = before
        held = 0
        for p in before:
            peak[i] = max(peak[i], held + peak[p])
            held += nodes[p].output_bytes
        peak[i] = max(peak[i], held + nodes[i].work_bytes + nodes[i].output_bytes)
    order: list[int] = []
    done = [False] * len(nodes)
    sinks = [i for i, found in enumerate(graph.consumers) if not found]
    stack = [(i, False) for i in sorted(sinks, key=lambda i: (peak[i], -i))]
    while stack:
        node, expanded = stack.pop()
        if done[node]:
            continue
        if expanded:
            done[node] = True
            order.append(node)
        else:
            stack.append((node, True))
            stack += [(p, False) for p in reversed(sorted_producers[node]) if not done[p]]
    return tuple(order)


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "breadth first": breadth_first,
        "depth first": depth_first,
        "heaviest first": heaviest_first,
        "post-order": post_order,
    }
)


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


@dataclass(frozen=True, slots=True)
class OrderChoice:
    """The cheapest order, and one candidate for each method that ran."""

    best: Ordered
    candidates: tuple[Ordered, ...]


def choose_order(graph: InstanceGraph, capacity: Capacity, expansions: int = EXPANSIONS) -> OrderChoice:
    """The cheapest order that any method finds; `expansions` is the budget of the search, about 10 us each. Raises
    DoesNotFit for an instance that can never run."""
    refuse_too_large(graph, capacity)
    graph = weighed(graph, capacity)
    candidates = [evaluate(graph, capacity, method(graph), name) for name, method in METHODS.items()]
    best = min(candidates, key=lambda found: found.cost)
    found = searched(graph, capacity, best, expansions)
    if found is not best:
        candidates.append(found)
    return OrderChoice(found, tuple(candidates))
