"""Cost of an order of sub-graph instances: the bytes of the outputs that cannot wait in the local memory.

    instance graph + capacity + order --evaluate--> scope of every output, cost

This one function judges all methods of ordering. While a node runs, the local memory holds its work, its output and
every earlier output that stays local and that some node, this one included, has yet to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hw_models.errors import DoesNotFit, PlanError
from hw_models.infeasible import Infeasible, InstanceSubject, Lever
from partitioner.ordering.scope_assignment import MAIN, Lifetime, Scope, assign_scopes, never_local_bytes, scope_cost


@dataclass(frozen=True, slots=True)
class InstanceNode:
    """An instance. `work_bytes` are busy in each core's local memory while it runs, without inputs that wait there and
    without its output; `output_bytes` are those of its output on a core while it waits there; `total_bytes` are
    those of its output over the cluster, which a spill moves. An output that may not be local (`may_be_local`) waits in
    the staging or the main memory, however small it is."""

    name: str
    work_bytes: int
    output_bytes: int
    total_bytes: int
    may_be_local: bool = True

    def __post_init__(self) -> None:
        if min(self.work_bytes, self.output_bytes, self.total_bytes) < 0:
            raise PlanError(f"instance {self.name}", needs="sizes of 0 bytes or more", has=str(self))


@dataclass(frozen=True, slots=True)
class InstanceGraph:
    """`edges` are (index of the producer, index of the consumer). An output that no node reads leaves at once: it never
    waits and costs nothing here. Raises PlanError for edges that are not a directed acyclic graph of these nodes."""

    nodes: tuple[InstanceNode, ...]
    edges: tuple[tuple[int, int], ...]
    producers: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    consumers: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count = len(self.nodes)
        for a, b in self.edges:
            if not (0 <= a < count and 0 <= b < count):
                raise PlanError("instance graph", needs=f"edges between nodes 0 to {count - 1}", has=f"edge {a} -> {b}")
        before: list[list[int]] = [[] for _ in self.nodes]
        after: list[list[int]] = [[] for _ in self.nodes]
        for a, b in dict.fromkeys(self.edges):
            before[b].append(a)
            after[a].append(b)
        object.__setattr__(self, "producers", tuple(map(tuple, before)))
        object.__setattr__(self, "consumers", tuple(map(tuple, after)))
        self._refuse_cycles()

    def _refuse_cycles(self) -> None:
        missing = [len(found) for found in self.producers]
        ready = [i for i, count in enumerate(missing) if count == 0]
        done = 0
        while ready:
            done += 1
            for consumer in self.consumers[ready.pop()]:
                missing[consumer] -= 1
                if missing[consumer] == 0:
                    ready.append(consumer)
        if done < len(self.nodes):
            stuck = ", ".join(node.name for node, count in zip(self.nodes, missing, strict=True) if count)
            raise PlanError("instance graph", needs="no cycles", has=f"a cycle among or before {stuck}")


@dataclass(frozen=True, slots=True)
class Capacity:
    """Where outputs can wait: `local_bytes` on each core, `staging_bytes` of the cluster's shared memory, and the main
    memory, which is always large enough. A byte that waits in staging or main memory costs `staging_weight` or
    `main_weight`: whole numbers, so that sums are exact and equal for all methods; only their ratio matters."""

    local_bytes: int
    staging_bytes: int
    staging_weight: int = 1
    main_weight: int = 4

    def __post_init__(self) -> None:
        if min(self.local_bytes, self.staging_bytes, self.staging_weight, self.main_weight) < 0:
            raise PlanError("capacity", needs="sizes and weights of 0 or more", has=str(self))


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order (indices of nodes), the scope of each node's output (by index, "main" for one that nothing reads), what
    the outputs that are not local cost, and the method that found it."""

    order: tuple[int, ...]
    scopes: tuple[Scope, ...]
    cost: int
    name: str


def weighed(graph: InstanceGraph, capacity: Capacity) -> InstanceGraph:
    """The graph as methods weigh it: an output that may not be local is larger there than the capacity."""
    if all(node.may_be_local for node in graph.nodes):
        return graph
    never = never_local_bytes(capacity.local_bytes)
    nodes = (node if node.may_be_local else replace(node, output_bytes=never) for node in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def too_large(graph: InstanceGraph, capacity: Capacity) -> Infeasible | None:
    """The Infeasible of the largest instance if its own work exceeds the local memory: no order helps."""
    largest = max(graph.nodes, key=lambda node: node.work_bytes, default=None)
    if largest is None or largest.work_bytes <= capacity.local_bytes:
        return None
    levers = (Lever.MORE_INSTANCES, Lever.SMALLER_GROUPS, Lever.MORE_LOCAL_MEMORY)
    subject = InstanceSubject(largest.name)
    return Infeasible(subject, "local memory on a core", "", largest.work_bytes, capacity.local_bytes, levers)


def refuse_too_large(graph: InstanceGraph, capacity: Capacity) -> None:
    """Raises DoesNotFit for an instance that is too large for any order."""
    if (found := too_large(graph, capacity)) is not None:
        raise DoesNotFit(found)


def lifetimes(
    graph: InstanceGraph, capacity: Capacity, order: Sequence[int]
) -> tuple[tuple[int, ...], tuple[Lifetime, ...]]:
    """Nodes whose outputs wait, in the order of their indices, and the lives of these outputs. Raises PlanError where
    `order` is not a topological order of all nodes."""
    step = {node: position for position, node in enumerate(order)}
    if len(order) != len(graph.nodes) or len(step) != len(order) or any(i not in step for i in range(len(order))):
        raise PlanError("order of instances", needs=f"each of {len(graph.nodes)} instances once", has=str(list(order)))
    waiting: list[int] = []
    lives: list[Lifetime] = []
    for i, (node, consumers) in enumerate(zip(graph.nodes, graph.consumers, strict=True)):
        if not consumers:
            continue
        first, reads = step[i], [step[consumer] for consumer in consumers]
        if min(reads) < first:
            raise PlanError("order of instances", needs="producers before consumers", has=f"{node.name} after a reader")
        cost = (node.total_bytes * capacity.staging_weight, node.total_bytes * capacity.main_weight)
        waiting.append(i)
        local_bytes = node.output_bytes if node.may_be_local else never_local_bytes(capacity.local_bytes)
        lives.append(Lifetime(first, max(reads), local_bytes, node.total_bytes, *cost))
    return tuple(waiting), tuple(lives)


def evaluate(graph: InstanceGraph, capacity: Capacity, order: Sequence[int], name: str = "given") -> Ordered:
    """The cheapest scopes for `order`; where very many outputs compete, the best that greedy rules find. Raises
    PlanError for an invalid order, DoesNotFit for an instance that can never run."""
    refuse_too_large(graph, capacity)
    waiting, lives = lifetimes(graph, capacity, order)
    free = [capacity.local_bytes - graph.nodes[i].work_bytes for i in order]
    found = assign_scopes(lives, free, capacity.staging_bytes)
    scopes: list[Scope] = [MAIN] * len(graph.nodes)
    for i, scope in zip(waiting, found, strict=True):
        scopes[i] = scope
    return Ordered(tuple(order), tuple(scopes), scope_cost(lives, found), name)
