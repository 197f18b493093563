"""Instance graphs, and data that live for a while, as lines of the compiler's own text form; and orders as text.

node name="a" work_bytes=0 output_bytes=4 total_bytes=8        item name="a" first=0 last=2 size_bytes=16
edge producer="a" consumer="b"                                 want slot=1 size_bytes=8
room local_bytes=10 staging_bytes=0
"""

from __future__ import annotations

from partitioner.ir.text import Fields, as_int, parse_lines
from partitioner.memory.offset_assignment import Item
from partitioner.ordering.cost import Capacity, InstanceGraph, InstanceNode, Ordered
from partitioner.ordering.methods import OrderChoice

__all__ = ["instance_graph", "items", "order_text"]


def instance_graph(text: str) -> tuple[InstanceGraph, Capacity]:
    """The graph of a section and the capacity for its outputs. Raises ValueError for a line of another sort, PlanError
    for what is no graph."""
    nodes: dict[str, InstanceNode] = {}
    edges: list[tuple[str, str]] = []
    capacity: Fields = {}
    for _, tag, fields in parse_lines(text):
        match tag:
            case "node":
                work, output, total = (as_int(fields[key]) for key in ("work_bytes", "output_bytes", "total_bytes"))
                nodes[str(fields["name"])] = InstanceNode(str(fields["name"]), work, output, total)
            case "edge":
                edges.append((str(fields["producer"]), str(fields["consumer"])))
            case "room":
                capacity = fields
            case _:
                raise ValueError(f"{tag} is not node, edge or room")
    index = {name: number for number, name in enumerate(nodes)}
    graph = InstanceGraph(tuple(nodes.values()), tuple((index[a], index[b]) for a, b in edges))
    return graph, Capacity(**{key: as_int(value) for key, value in capacity.items()})


def order_text(graph: InstanceGraph, choice: OrderChoice, bound: int) -> str:
    """A line a method: its order, where each output that is read waits, what that costs; then the best."""
    lines = [f"{ordered.name}: {_order(graph, ordered)}" for ordered in choice.candidates]
    proven = "no order is cheaper" if choice.best.cost == bound else f"none is below {bound}"
    return "\n".join([*lines, f"best: {choice.best.name}; {proven}"]) + "\n"


def _order(graph: InstanceGraph, ordered: Ordered) -> str:
    spilled = [
        f"{node.name} to {scope}"
        for node, scope, readers in zip(graph.nodes, ordered.scopes, graph.consumers, strict=True)
        if readers and scope != "local"
    ]
    names = " ".join(graph.nodes[i].name for i in ordered.order)
    return f"{names}; cost {ordered.cost}" + (f" ({', '.join(spilled)})" if spilled else "")


def items(text: str) -> tuple[tuple[Item, ...], dict[int, int]]:
    """Data with lifetimes, and the bytes that are wanted free in one piece, by slot. Raises ValueError for a line of
    another sort."""
    found: list[Item] = []
    least: dict[int, int] = {}
    for _, tag, fields in parse_lines(text):
        match tag:
            case "item":
                first, last, size = (as_int(fields[key]) for key in ("first", "last", "size_bytes"))
                found.append(Item(str(fields["name"]), first, last, size))
            case "want":
                least[as_int(fields["slot"])] = as_int(fields["size_bytes"])
            case _:
                raise ValueError(f"{tag} is not item or want")
    return tuple(found), least
