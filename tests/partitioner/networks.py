"""Networks of the zoo as layers, read once for all tests that partition them."""

from __future__ import annotations

from functools import cache

from dsa_sched.frontend import load_model
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer, group_layers

__all__ = ["MEBIBYTE", "network_layers", "stages"]

MEBIBYTE = 1 << 20


@cache
def network_layers(name: str, batch: int) -> tuple[Graph, tuple[Layer, ...]]:
    graph = load_model(name, {}, batch).graph
    return graph, group_layers(graph)[0]


def stages(layers: tuple[Layer, ...], *last: str) -> tuple[tuple[Layer, ...], ...]:
    """Runs of layers that end with the named ones; what comes after the last is left out."""
    found, start = [], 0
    for end, layer in enumerate(layers, 1):
        if layer.name in last:
            found.append(layers[start:end])
            start = end
    return tuple(found)
