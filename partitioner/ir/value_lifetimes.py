"""Values that wait between the layer that makes them and the layers that read them.

    layers in order --> from which step to which each value is needed, by whom, and under which other names

Views give a value another name, so it waits until the last reader of any of its names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer


@dataclass(frozen=True, slots=True)
class WaitingValue:
    """A value that a layer makes: `names` are its own and those that views give it, `made` is the index of its layer,
    `readers` those of the layers that read it under any name, `last` the greatest of all; `leaves` says that one of its
    names is an output of the network."""

    name: str
    names: tuple[str, ...]
    size_bytes: int
    made: int
    readers: tuple[int, ...]
    last: int
    leaves: bool


def activations(graph: Graph, layer: Layer) -> tuple[str, ...]:
    """Values that a layer reads, constants excepted."""
    return tuple(name for name in layer.inputs(graph) if not graph.by_name[name].constant)


def own_names(graph: Graph, layers: Sequence[Layer]) -> dict[str, str]:
    """For the output of every view, the value whose bytes it names."""
    names: dict[str, str] = {}
    for layer in layers:
        anchor = layer.anchor(graph)
        if anchor.is_view:
            source = anchor.inputs[0]
            names[layer.output] = names.get(source, source)
    return names


def waiting_values(graph: Graph, layers: Sequence[Layer]) -> tuple[WaitingValue, ...]:
    """The values that layers make, in the order in which they are made; inputs of the network are not among them."""
    own = own_names(graph, layers)
    names: dict[str, list[str]] = {}
    for renamed, name in own.items():
        names.setdefault(name, [name]).append(renamed)
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        if not layer.is_view(graph):
            for name in dict.fromkeys(own.get(read, read) for read in activations(graph, layer)):
                readers.setdefault(name, []).append(index)
    values = []
    for index, layer in enumerate(layers):
        if layer.is_view(graph):
            continue
        name = layer.output
        all_names = tuple(names.get(name, (name,)))
        values.append(
            WaitingValue(
                name,
                all_names,
                graph.by_name[name].size_bytes,
                index,
                tuple(readers.get(name, ())),
                max((index, *readers.get(name, ()))),
                any(other in graph.outputs for other in all_names),
            )
        )
    return tuple(values)
