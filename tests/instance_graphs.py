"""Instance graphs for tests of their order, and a checker that shares no code with what it checks."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from random import Random
from string import ascii_lowercase

from hypothesis import strategies as st

from partitioner.ordering.cost import Capacity, InstanceGraph, InstanceNode, Ordered

__all__ = ["case", "cases", "cheapest_by_hand", "faults", "pyramid"]


def pyramid(counts: tuple[int, ...] = (8, 4, 2, 1), work: int = 0, output: int = 1) -> InstanceGraph:
    """Groups a, b, c, ... of so many instances, where each instance reads its share of those of the group before."""
    names = [(stage, i) for stage, count in enumerate(counts) for i in range(count)]
    index = {name: position for position, name in enumerate(names)}
    edges = [
        (index[stage - 1, i * len_before // count + k], index[stage, i])
        for stage, (len_before, count) in enumerate(pairwise(counts), 1)
        for i in range(count)
        for k in range(len_before // count)
    ]
    nodes = [InstanceNode(f"{ascii_lowercase[stage]}{i + 1}", work, output, 8 * output) for stage, i in names]
    return InstanceGraph(tuple(nodes), tuple(edges))


def case(random: Random, count: int) -> tuple[InstanceGraph, Capacity]:
    """Sparse, dense, tree-like or layered; little or plenty of local memory; no, little or all staging memory."""
    kind = random.choice(["sparse", "dense", "tree", "layers"])
    edges: list[tuple[int, int]] = []
    width = random.randint(2, 4)
    for node in range(1, count):
        match kind:
            case "sparse":
                edges += [(a, node) for a in random.sample(range(node), min(node, random.choice([0, 1, 1, 2])))]
            case "dense":
                edges += [(a, node) for a in range(node) if random.random() < 0.3]
            case "tree":
                edges.append((node - 1, random.randint(node, min(count - 1, node + count // 2))))
            case _ if node >= width:
                before = range(node // width * width - width, node // width * width)
                edges += [(a, node) for a in random.sample(before, random.randint(1, width))]
    nodes = []
    for i in range(count):
        output = random.randint(1, 20)
        nodes.append(InstanceNode(f"n{i}", random.randint(0, 20), output, 8 * output))
    least = max(node.work_bytes for node in nodes)
    capacity = Capacity(
        local_bytes=random.randint(least, least + max(8, sum(node.output_bytes for node in nodes) // 4)),
        staging_bytes=random.choice([0, random.randint(50, 400), random.randint(50, 400), 1_000_000]),
        main_weight=random.choice([2, 4]),
    )
    return InstanceGraph(tuple(nodes), tuple(edges)), capacity


@st.composite
def cases(draw: st.DrawFn, most: int = 12) -> tuple[InstanceGraph, Capacity]:
    """Any graph of up to `most` nodes whose sizes are small, zeros too, and a room in which each can run."""
    count = draw(st.integers(1, most))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=2 * count)) if pairs else []
    name = draw(st.permutations(range(count)))  # so that indices are no topological order
    sizes = st.integers(0, 9)
    nodes = tuple(InstanceNode(f"n{i}", draw(sizes), draw(sizes), draw(sizes)) for i in range(count))
    least = max(node.work_bytes for node in nodes)
    capacity = Capacity(
        least + draw(st.integers(0, 30)), draw(st.sampled_from([0, 5, 12, 100])), draw(st.integers(0, 3)), 3
    )
    return InstanceGraph(nodes, tuple((name[a], name[b]) for a, b in edges)), capacity


def faults(graph: InstanceGraph, capacity: Capacity, found: Ordered) -> list[str]:
    """What is wrong with an order and its scopes, step by step; nothing for what may run."""
    count = len(graph.nodes)
    if sorted(found.order) != list(range(count)):
        return ["not each node once"]
    at = {node: step for step, node in enumerate(found.order)}
    said = [f"{b} before {a}" for a, b in graph.edges if at[a] >= at[b]]
    readers: dict[int, list[int]] = {i: [] for i in range(count)}
    for a, b in graph.edges:
        readers[a].append(b)
    for step, node in enumerate(found.order):
        waits = [i for i in found.order[: step + 1] if any(at[reader] >= step for reader in readers[i])]
        local = sum(graph.nodes[i].output_bytes for i in waits if found.scopes[i] == "local")
        staged = sum(graph.nodes[i].total_bytes for i in waits if found.scopes[i] == "staging")
        if local + graph.nodes[node].work_bytes > capacity.local_bytes:
            said.append(f"step {step}: {local} + {graph.nodes[node].work_bytes} local bytes")
        if staged > capacity.staging_bytes:
            said.append(f"step {step}: {staged} staged bytes")
    weight = {"local": 0, "staging": capacity.staging_weight, "main": capacity.main_weight}
    cost = sum(node.total_bytes * weight[found.scopes[i]] for i, node in enumerate(graph.nodes) if readers[i])
    return said if cost == found.cost else [*said, f"cost {found.cost} is {cost}"]


def cheapest_by_hand(graph: InstanceGraph, capacity: Capacity, order: tuple[int, ...] | None = None) -> int:
    """The least cost of any order (or of `order`) with any scopes, by trying all of them."""
    costs: list[int] = []
    weight = {"local": 0, "staging": capacity.staging_weight, "main": capacity.main_weight}
    waiting = [i for i, consumers in enumerate(graph.consumers) if consumers]
    for tried in permutations(range(len(graph.nodes))) if order is None else [order]:
        if any(tried.index(a) > tried.index(b) for a, b in graph.edges):
            continue
        for scopes in product(("local", "staging", "main"), repeat=len(waiting)):
            cost = sum(graph.nodes[i].total_bytes * weight[scope] for i, scope in zip(waiting, scopes, strict=True))
            if costs and cost >= costs[-1]:
                continue
            by_node = dict(zip(waiting, scopes, strict=True))
            every = tuple(by_node.get(i, "main") for i in range(len(graph.nodes)))
            if not faults(graph, capacity, Ordered(tried, every, cost, "tried")):  # type: ignore[arg-type]
                costs.append(cost)
    return costs[-1]
