"""Places and lifetimes: which values of a group are in memory at the same time, in the best order of its layers.

    layers --order--> places: values that share one place, from the step that makes the first to the last reader

Activations are counted: values from outside from their first reader on, constants never. A layer that only maps
elements writes over an operand of its size that dies there. Where such a map is in the epilogue of another operator (a
residual add), the result accumulates in the operand's place if nothing else ever reads that operand. Views own no
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.operators import ELEMENTWISE_KINDS

MOST_LAYERS_SEARCHED = 24
"""Largest number of layers in a segment whose orders are searched; larger segments are ordered greedily."""

STATES_KEPT = 64
"""Number of partial orders kept for each number of layers done: all of them in blocks of up to four branches."""


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """`tensors` share one place, occupied in steps `first` to `last` (indices of the ordered layers)."""

    tensors: tuple[str, ...]
    first: int
    last: int


@dataclass(frozen=True)
class Activations:
    """Values that the layers of a graph read, constants left out, remembered."""

    graph: Graph
    _known: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, layer: Layer) -> tuple[str, ...]:
        if layer.name not in self._known:
            names = layer.inputs(self.graph)
            self._known[layer.name] = tuple(name for name in names if not self.graph.by_name[name].constant)
        return self._known[layer.name]


def places_of(reads_of: Activations, layers: Sequence[Layer]) -> tuple[SharedPlace, ...]:
    """The places of `layers` run in this order; the last layer's output stays until the end."""
    graph = reads_of.graph
    last_read: dict[str, int] = {}
    reads = [reads_of.of(layer) for layer in layers]
    for step, names in enumerate(reads):
        last_read.update(dict.fromkeys(names, step))
    members: list[list[str]] = []
    firsts: list[int] = []
    lasts: list[int] = []
    place_of: dict[str, int] = {}

    def put(name: str, step: int, shared: str | None) -> None:
        end = last_read.get(name, len(layers) - 1 if name == layers[-1].output else step)
        if shared is None:
            place_of[name] = len(members)
            members.append([name])
            firsts.append(step)
            lasts.append(end)
        else:
            place_of[name] = place = place_of[shared]
            members[place].append(name)
            lasts[place] = max(lasts[place], end)

    for step, layer in enumerate(layers):
        for name in reads[step]:
            if name not in place_of:
                put(name, step, None)
        # A place is free again when every value in it (also a view of it) has been read.
        dying = {name for name in reads[step] if lasts[place_of[name]] == step}
        put(layer.output, step, _shared_operand(graph, layer, reads[step], dying))
    return tuple(SharedPlace(tuple(m), first, last) for m, first, last in zip(members, firsts, lasts, strict=True))


def _shared_operand(graph: Graph, layer: Layer, reads: Sequence[str], dying: set[str]) -> str | None:
    """The value in whose place the layer's output is written, or None for a place of its own."""
    anchor = layer.anchor(graph)
    if anchor.is_view:
        return reads[0] if reads else None
    output = graph.by_name[layer.output]
    for op in (anchor, *layer.epilogue(graph)) if anchor.kind in ELEMENTWISE_KINDS else layer.epilogue(graph):
        for name in op.inputs:
            alone = anchor.kind in ELEMENTWISE_KINDS or (
                len(graph.consumers[name]) == 1 and name not in graph.outputs and name not in anchor.inputs
            )
            operand = graph.by_name[name]
            if name in dying and alone and (operand.shape, operand.item_bytes) == (output.shape, output.item_bytes):
                return name
    return None


def peak_of(reads_of: Activations, layers: Sequence[Layer]) -> int:
    """Bytes of whole values in memory at the worst step of `layers` run in this order."""
    places = places_of(reads_of, layers)
    names = {name for place in places for name in place.tensors}
    return peak_of_places(places, {name: reads_of.graph.by_name[name].size_bytes for name in names})


def peak_of_places(places: Sequence[SharedPlace], sizes_bytes: Mapping[str, int]) -> int:
    """The largest sum of places occupied at the same time; a place is as large as its largest value."""
    change = [0] * (max(place.last for place in places) + 2)
    for place in places:
        size_bytes = max(sizes_bytes[name] for name in place.tensors)
        change[place.first] += size_bytes
        change[place.last + 1] -= size_bytes
    live = most = 0
    for delta in change:
        live += delta
        most = max(most, live)
    return most


def best_order(
    reads_of: Activations, layers: tuple[Layer, ...], known: dict[tuple[str, ...], tuple[Layer, ...]]
) -> tuple[Layer, ...]:
    """A topological order with a low peak. Points at which only one value is alive divide the order into segments, each
    searched by itself; `known` keeps their orders between calls."""
    order: list[Layer] = []
    for segment in segments(reads_of, layers):
        key = tuple(layer.name for layer in segment)
        if key not in known:
            known[key] = _ordered(reads_of, segment)
        order += known[key]
    return tuple(order)


def segments(reads_of: Activations, layers: tuple[Layer, ...]) -> list[tuple[Layer, ...]]:
    """Runs of layers that end where their last output is the only value still needed."""
    last_read: dict[str, int] = {}
    for step, layer in enumerate(layers):
        last_read.update(dict.fromkeys(reads_of.of(layer), step))
    found: list[tuple[Layer, ...]] = []
    start, needed_until = 0, -1
    for step, layer in enumerate(layers):
        needed_until = max([needed_until, *(last_read[name] for name in reads_of.of(layer))])
        if needed_until <= step:
            found.append(layers[start : step + 1])
            start = step + 1
        needed_until = max(needed_until, last_read.get(layer.output, -1))
    if start < len(layers):
        found.append(layers[start:])
    return found


def _ordered(reads_of: Activations, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The order with the lowest peak among the given one and those that the search keeps."""
    if len(layers) < 3:
        return layers
    width = STATES_KEPT if len(layers) <= MOST_LAYERS_SEARCHED else 1
    found = _search(reads_of, layers, width)
    return found if peak_of(reads_of, found) < peak_of(reads_of, layers) else layers


def _search(reads_of: Activations, layers: tuple[Layer, ...], width: int) -> tuple[Layer, ...]:
    """The order found by a beam search over sets of finished layers, by peak so far and then by live bytes."""
    graph = reads_of.graph
    index = {layer.output: i for i, layer in enumerate(layers)}
    needs = [sum(1 << index[name] for name in reads_of.of(layer) if name in index) for layer in layers]
    reads, outputs = _without_views(reads_of, layers)
    readers: dict[str, int] = {outputs[-1]: 1 << len(layers)}  # whoever comes after the group
    for i, names in enumerate(reads):
        for name in names:
            readers[name] = readers.get(name, 0) | 1 << i
    size = {name: graph.by_name[name].size_bytes for name in (*readers, *outputs)}
    final = 1 << len(layers) - 1
    # Set of finished layers -> (peak, live bytes, order). The live bytes follow from the set.
    level: dict[int, tuple[int, int, tuple[int, ...]]] = {0: (0, 0, ())}
    for count in range(len(layers)):
        following: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        for done, (peak, alive, order) in level.items():
            for i, layer in enumerate(layers):
                if done >> i & 1 or needs[i] & ~done or (1 << i == final and count < len(layers) - 1):
                    continue
                reached = done | 1 << i
                loaded = sum(size[name] for name in reads[i] if name not in index and not readers[name] & done)
                dying = {name for name in reads[i] if not readers[name] & ~reached}
                shared = layer.is_view(graph) or _shared_operand(graph, layer, reads[i], dying)
                worst = alive + loaded + (0 if shared else size[outputs[i]])
                left = worst - sum(size[name] for name in dying if name != shared)
                state = (max(peak, worst), left, (*order, i))
                if reached not in following or state < following[reached]:
                    following[reached] = state
        level = dict(sorted(following.items(), key=lambda item: item[1])[:width])
    ((_, _, best),) = level.values()
    return tuple(layers[i] for i in best)


def _without_views(reads_of: Activations, layers: Sequence[Layer]) -> tuple[list[tuple[str, ...]], list[str]]:
    """The values that each layer reads and makes, with views replaced by the values that they rename."""
    source: dict[str, str] = {}
    reads: list[tuple[str, ...]] = []
    for layer in layers:
        names = tuple(source.get(name, name) for name in reads_of.of(layer))
        if layer.is_view(reads_of.graph) and names:
            source[layer.output] = names[0]
        reads.append(tuple(dict.fromkeys(names)))
    return reads, [source.get(layer.output, layer.output) for layer in layers]
