"""The order in which sub-graph instances run, so that their outputs can wait in the local memory.

    instance graph + capacity --several methods, one judge--> the cheapest order, and what the others cost

Breadth first and depth first are those of GraphTurbo (OSDI 2023, Algorithm 3), which announces heaviest first as future
work. Post-order is the rule of Liu (1987) for trees, and a search starts from the best of these. So the choice is never
worse than any of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from partitioner.ordering.cost import Capacity, InstanceGraph, Ordered, evaluate, refuse_too_large, weighed
from partitioner.ordering.cpsat import exact_order
from partitioner.ordering.window_search import EXPANSIONS, searched

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


@dataclass(frozen=True, slots=True)
class OrderChoice:
    """The cheapest order, one candidate for each method that ran, and a lower bound of the cost of all orders."""

    best: Ordered
    candidates: tuple[Ordered, ...]
    bound: int

    @property
    def proven(self) -> bool:
        """Whether no order at all is cheaper than the best."""
        return self.best.cost == self.bound


def choose_order(
    graph: InstanceGraph, capacity: Capacity, expansions: int = EXPANSIONS, exact_limit: float = 0.0
) -> OrderChoice:
    """The cheapest order that any method finds.

    `expansions` is the budget of the search, about 10 us each. Where the best order still costs something and
    `exact_limit` is above 0, the exact method continues from it for at most this many units of its deterministic time,
    each about a second. Raises DoesNotFit for an instance that can never run.
    """
    refuse_too_large(graph, capacity)
    graph = weighed(graph, capacity)
    candidates = [evaluate(graph, capacity, method(graph), name) for name, method in METHODS.items()]
    best = min(candidates, key=lambda found: found.cost)
    found = searched(graph, capacity, best, expansions)
    if found is not best:
        candidates.append(found)
    bound = 0
    if found.cost and exact_limit > 0:
        exact = exact_order(graph, capacity, found, exact_limit)
        bound = exact.bound
        if exact.best is not None:
            candidates.append(exact.best)
            found = min(found, exact.best, key=lambda ordered: ordered.cost)
    return OrderChoice(found, tuple(candidates), bound)
