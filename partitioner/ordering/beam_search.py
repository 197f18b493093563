"""One window of an order: a beam search over the order of its nodes and the scopes of their outputs together.

    nodes of the window + what waits when it begins --beam: which node next, which outputs give way--> the same after it

An output stays local until there is no room for the node that runs; only then do outputs give way, for their whole
lives. So a partial order never takes back a cost, and of two partial orders with the same nodes, the same waiting
outputs and the staging memory equally full during their lives only the cheaper is kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from partitioner.ordering.cost import Capacity, InstanceGraph

WIDTH = 1000
"""Largest width of the beam; its share of expansions may allow less."""

NARROW = 32
"""Width of the beam below which fewer next nodes, and fewer sets of outputs that may give way, are tried:"""

NEXT, FEW_NEXT = 12, 6
GIVERS, FEW_GIVERS = 8, 4
SETS, FEW_SETS = 24, 4

RISK = 0.5
"""Cost of a byte that waits locally, as a share of the cost of moving it out: of two partial orders, the one with less
waiting locally is better."""


class BeamState(NamedTuple):  # lighter to make than a dataclass, and very many are made
    """A partial order of a window: nodes done (bits of the window) and ready, outputs that wait locally and staged,
    their bytes, the cost so far, the nodes in order, and the staged bytes at each step."""

    done: int
    ready: tuple[int, ...]
    local: frozenset[int]
    staged: frozenset[int]
    local_bytes: int
    staged_bytes: int
    cost: int
    order: tuple[int, ...]
    profile: tuple[int, ...]


class _Places(NamedTuple):
    """Places where the outputs wait after some gave way."""

    local: frozenset[int]
    staged: frozenset[int]
    local_bytes: int
    staged_bytes: int
    cost: int
    profile: tuple[int, ...]


START = BeamState(0, (), frozenset(), frozenset(), 0, 0, 0, (), ())


@dataclass(frozen=True, slots=True)
class WindowProblem:
    """State that all windows share: `rank`, the place of each node in the order that is cut into windows; `last_read`,
    the place of its last consumer; `price`, the rank of its output by bytes moved per byte freed, the best to move out
    first; `risk`, the cost of a byte that waits locally; `scarce` is False where all outputs fit into the staging
    memory together."""

    graph: InstanceGraph
    capacity: Capacity
    rank: tuple[int, ...]
    last_read: tuple[int, ...]
    price: tuple[int, ...]
    risk: float
    scarce: bool


def problem(graph: InstanceGraph, capacity: Capacity, base: Sequence[int]) -> WindowProblem:
    """The problem of improving `base`, a topological order."""

    def price(i: int) -> tuple[float, int]:
        node = graph.nodes[i]
        return node.total_bytes / node.output_bytes if node.output_bytes else inf, -node.output_bytes

    rank, prices = [0] * len(base), [0] * len(base)
    for place, node in enumerate(base):
        rank[node] = place
    for place, node in enumerate(sorted(range(len(base)), key=price)):
        prices[node] = place
    waiting = [node for node, consumers in zip(graph.nodes, graph.consumers, strict=True) if consumers]
    total_bytes = sum(node.total_bytes for node in waiting)
    weight = min(capacity.staging_weight, capacity.main_weight) if capacity.staging_bytes else capacity.main_weight
    return WindowProblem(
        graph,
        capacity,
        rank=tuple(rank),
        last_read=tuple(max((rank[c] for c in found), default=-1) for found in graph.consumers),
        price=tuple(prices),
        risk=RISK * weight * total_bytes / max(1, sum(node.output_bytes for node in waiting)),
        scarce=total_bytes > capacity.staging_bytes,
    )


class OrderWindow:
    """A run of nodes of the given order. `peaks` are the most staged bytes at any step of the life of an output that
    waits locally when the window begins."""

    def __init__(self, problem: WindowProblem, nodes: Sequence[int], peaks: Mapping[int, int], expansions: int) -> None:
        self.graph, self.capacity, self.price, rank = problem.graph, problem.capacity, problem.price, problem.rank
        self.scarce, self.risk = problem.scarce, problem.risk
        self.nodes, self.peaks, self.expansions = nodes, peaks, expansions
        start, end = rank[nodes[0]], rank[nodes[-1]] + 1
        self.bit = bit = {node: 1 << (rank[node] - start) for node in nodes}
        self.needs = dict.fromkeys(nodes, 0)
        self.readers: dict[int, int] = {}
        """For each output whose last reader is in this window, its readers there."""
        for node in nodes:
            for p in self.graph.producers[node]:
                self.needs[node] |= bit.get(p, 0)
                if problem.last_read[p] < end:
                    self.readers[p] = self.readers.get(p, 0) | bit[node]
        self.stages = self.capacity.staging_weight < self.capacity.main_weight
        self.width, self.allowed = WIDTH, float(expansions)

    def search(self, before: BeamState, bound: int | None) -> BeamState | None:
        """The best order found for the window's nodes, with the given one among those tried; None where all of them
        cost `bound` or more."""
        ready = tuple(node for node in self.nodes if not self.needs[node])
        given = before._replace(done=0, ready=ready, order=(), profile=())
        layer = [given]
        left = self.expansions
        self.allowed = left / len(self.nodes)
        self.width = max(1, min(WIDTH, int(self.allowed)))
        for step, node_of_base in enumerate(self.nodes):
            best: dict[tuple[int, frozenset[int], frozenset[int], int], BeamState] = {}
            made = 0
            for state in layer:
                for node in self._next(state):
                    for after in self._run(state, node):
                        made += 1
                        if bound is not None and after.cost >= bound:
                            continue
                        key = (after.done, after.local, after.staged, self._staged_before(after))
                        known = best.get(key)
                        if known is None or after.cost < known.cost:
                            best[key] = after
            left -= made
            self.allowed = left / max(1, len(self.nodes) - step - 1)
            self.width = max(1, min(WIDTH, int(self.allowed * len(layer) / max(1, made))))
            layer = heapq.nsmallest(self.width, best.values(), key=self._rank)
            if bound is None:
                given = min(self._run(given, node_of_base), key=self._rank)
                layer.append(given)
            elif not layer:
                return None
        return min(layer, key=self._rank)

    def _staged_before(self, state: BeamState) -> int:
        """The most staged bytes in the lives of the outputs that wait locally, which may prevent one from being
        staged."""
        if not self.scarce or not state.local or self.width < NARROW:
            return 0
        born = min(state.order.index(output) if output in self.bit else 0 for output in state.local)
        return max(state.profile[born:])

    def _rank(self, state: BeamState) -> float:
        return state.cost + self.risk * state.local_bytes

    def peaks_after(self, state: BeamState) -> dict[int, int]:
        """`peaks` for the window that follows."""
        born = {node: step for step, node in enumerate(state.order)}
        found = {}
        for node in state.local:
            here = max(state.profile[born.get(node, 0) :], default=0)
            found[node] = max(here, self.peaks.get(node, 0))
        return found

    def _next(self, state: BeamState) -> Sequence[int]:
        """Nodes to try next; where there are very many, some of those that have been ready for the longest and the
        shortest time and that need the least room or free the most."""
        most = max(2, min(FEW_NEXT, int(self.allowed))) if self.width < NARROW else NEXT
        ready = state.ready
        if len(ready) <= most:
            return ready
        ready = (*ready[:most], *ready[max(most, len(ready) - most) :])
        nodes = self.graph.nodes
        free = self.capacity.local_bytes - state.local_bytes

        def key(node: int) -> tuple[int, int]:
            own = nodes[node].output_bytes if self.graph.consumers[node] else 0
            done = state.done | self.bit[node]
            given = sum(nodes[p].output_bytes for p in self.graph.producers[node]
                        if p in state.local and self._dead(p, done))  # fmt: skip
            return max(0, nodes[node].work_bytes + own - free), own - given

        return heapq.nsmallest(most, ready, key=key)

    def _dead(self, output: int, done: int) -> bool:
        readers = self.readers.get(output)
        return readers is not None and not readers & ~done

    def _run(self, state: BeamState, node: int) -> Iterator[BeamState]:
        """The states in which `node` has run, one for each way to make room for it."""
        item = self.graph.nodes[node]
        waits = bool(self.graph.consumers[node])
        local_bytes = state.local_bytes + (item.output_bytes if waits else 0)
        local = state.local | {node} if waits else state.local
        done = state.done | self.bit[node]
        dead = [p for p in self.graph.producers[node] if self._dead(p, done)]
        ready = tuple(other for other in state.ready if other != node) + tuple(
            other for other in self.graph.consumers[node] if other in self.bit and not self.needs[other] & ~done
        )
        start = _Places(local, state.staged, local_bytes, state.staged_bytes, state.cost, state.profile)
        for place in self._make_room(state, node, start, local_bytes + item.work_bytes - self.capacity.local_bytes):
            local, staged, local_bytes, staged_bytes, cost, profile = place
            during = staged_bytes
            for p in dead:
                if p in local:
                    local = local - {p}
                    local_bytes -= self.graph.nodes[p].output_bytes
                elif p in staged:
                    staged = staged - {p}
                    staged_bytes -= self.graph.nodes[p].total_bytes
            yield BeamState(
                done, ready, local, staged, local_bytes, staged_bytes, cost, (*state.order, node), (*profile, during)
            )

    def _make_room(self, state: BeamState, node: int, start: _Places, excess_bytes: int) -> Iterator[_Places]:
        if excess_bytes <= 0:
            yield start
            return
        for givers in self._givers(start.local, excess_bytes):
            places = [start]
            for output in givers:
                places = [after for place in places for after in self._put_out(state, node, place, output)]
            yield from places

    def _put_out(self, state: BeamState, node: int, place: _Places, output: int) -> Iterator[_Places]:
        """Places with `output` in the staging memory, if it has had room since the output was made, and in the main
        memory."""
        item = self.graph.nodes[output]
        local, local_bytes = place.local - {output}, place.local_bytes - item.output_bytes
        fits = False
        if self.stages:
            if output == node:
                born = len(state.order)
            elif output in self.bit:
                born = state.order.index(output)
            else:
                born = 0
            earlier, since = place.profile[:born], place.profile[born:]
            peak = max(place.staged_bytes, self.peaks.get(output, 0), *since)
            fits = peak + item.total_bytes <= self.capacity.staging_bytes
            if fits:
                staged_bytes = place.staged_bytes + item.total_bytes
                cost = place.cost + item.total_bytes * self.capacity.staging_weight
                profile = earlier + tuple(used + item.total_bytes for used in since)
                yield _Places(local, place.staged | {output}, local_bytes, staged_bytes, cost, profile)
        if self.scarce or not fits:
            cost = place.cost + item.total_bytes * self.capacity.main_weight
            yield _Places(local, place.staged, local_bytes, place.staged_bytes, cost, place.profile)

    def _givers(self, local: frozenset[int], excess_bytes: int) -> list[tuple[int, ...]]:
        """Sets of outputs to move out, none with an unnecessary output, the cheapest first."""
        nodes = self.graph.nodes
        narrow = self.width < NARROW
        limit = FEW_GIVERS if narrow else GIVERS
        some = heapq.nsmallest(limit, local, key=self.price.__getitem__)
        taken: list[int] = []
        if sum(nodes[o].output_bytes for o in some) < excess_bytes:
            some = sorted(local, key=self.price.__getitem__)
            while len(some) > limit and sum(nodes[o].output_bytes for o in some[:limit]) < excess_bytes:
                first = some.pop(0)
                taken.append(first)
                excess_bytes -= nodes[first].output_bytes
        sets = [(*taken, *rest) for rest in _least_sets(some[:limit], self.graph, excess_bytes)]
        most = max(1, min(FEW_SETS, int(self.allowed / 2))) if narrow else SETS
        return heapq.nsmallest(most, sets, key=lambda found: sum(nodes[o].total_bytes for o in found))


def _least_sets(outputs: Sequence[int], graph: InstanceGraph, excess_bytes: int) -> Iterator[tuple[int, ...]]:
    """All minimal subsets of `outputs` that have `excess_bytes` or more."""
    sizes = [graph.nodes[o].output_bytes for o in outputs]
    stack: list[tuple[int, tuple[int, ...], int]] = [(0, (), 0)]
    while stack:
        position, chosen, total = stack.pop()
        for i in range(position, len(outputs)):
            grown = total + sizes[i]
            if grown < excess_bytes:
                stack.append((i + 1, (*chosen, i), grown))
            elif all(grown - sizes[k] < excess_bytes for k in chosen):
                yield tuple(outputs[k] for k in (*chosen, i))
