"""Footprint of a group of layers: the part of every value that each of its pieces needs, and the bytes of these parts.

    layers, axis of the last output  -->  reach of every value  --pieces-->  bytes, overlaps, recomputed MACs, peak

Going backward from the group's output, access maps compose to one reach per value (`interval_bounds.py`); evaluation
for all pieces of all candidate counts is a few numpy operations per value, whatever the depth. The same reaches as
sympy expressions are in `footprint_symbolic.py`. Axes are independent: a box of a piece of several axes is the product
of its intervals, and `Footprint.along` holds the reaches of one axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from partitioner.footprint.interval_bounds import ClampTerm, Integers, IntervalSpan, Reach, compose, join_reaches
from partitioner.footprint.layer_access_ranges import layer_reaches
from partitioner.footprint.peak_memory import Activations, SharedPlace, best_order, peak_of_places, places_of, segments
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer, layer_boxes
from partitioner.ir.regions import Box, box_size, full_box, join


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces [start, stop) of an axis for one or more piece counts; those of `counts[i]` begin at index
    `first[i]`."""

    counts: Integers
    first: Integers
    start: Integers
    stop: Integers


def cut_pieces(extent: int, counts: Iterable[int], granule: int = 1) -> Pieces:
    """Pieces as `partitioner.tiling.core_partition.cut_axis` cuts them: nearly equal, at multiples of `granule`.

    Counts above the number of granules are taken as that number.
    """
    units = -(-extent // granule)
    parts = np.array([max(1, min(count, units)) for count in counts], np.int64)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(parts)[:-1]])
    of, index = np.repeat(parts, parts), np.arange(int(parts.sum())) - np.repeat(first, parts)
    start = np.minimum(granule * (units * index // of), extent)
    stop = np.minimum(granule * (units * (index + 1) // of), extent)
    return Pieces(parts, first, start, stop)


@dataclass(frozen=True, slots=True)
class FootprintValue:
    """One value of a group: its reach along one axis of the output; the whole output needs its `box`."""

    tensor: str
    reach: Reach
    box: Box
    item_bytes: int
    external: bool

    @property
    def slice_elements(self) -> int:
        """Elements for one step along the matched axis."""
        low, high = self.box[self.reach.axis] if self.box else (0, 1)
        return box_size(self.box) // max(1, high - low)

    def lengths(self, pieces: Pieces) -> Integers:
        """Length of the needed interval for each piece."""
        low, high = self.reach.intervals(pieces.start, pieces.stop)
        length: Integers = np.maximum(high - low, 0)
        return length

    def piece_bytes(self, pieces: Pieces) -> Integers:
        """Bytes that each piece needs."""
        size: Integers = self.lengths(pieces) * (self.slice_elements * self.item_bytes)
        return size

    def boxes(self, pieces: Pieces) -> tuple[Box, ...]:
        """The box of each piece; empty, (0, 0) on every axis, where nothing is read."""
        low, high = self.reach.intervals(pieces.start, pieces.stop)
        axis, some = self.reach.axis, box_size(self.box) > 0
        return tuple(
            (*self.box[:axis], (int(a), int(b)), *self.box[axis + 1 :]) if some and b > a else ((0, 0),) * len(self.box)
            for a, b in zip(low, high, strict=True)
        )


def totals(values: Integers, pieces: Pieces) -> Integers:
    """Sums over the pieces of each count."""
    sums: Integers = np.add.reduceat(values, pieces.first)
    return sums


def recomputed_elements(value: FootprintValue, pieces: Pieces) -> Integers:
    """For each count: elements that all pieces need together, minus those that the uncut output needs.

    Negative where pieces leave out elements between them that one box of the whole would hold (strided reads).
    """
    sums = totals(value.lengths(pieces), pieces)
    low, high = value.reach.intervals(pieces.start[:1] * 0, pieces.stop[-1:])
    extra: Integers = (sums - (high - low)) * value.slice_elements
    return extra


@dataclass(frozen=True)
class Footprint:
    """A group seen along one axis of its output: the values, external ones first, then layers' outputs in order."""

    layers: tuple[Layer, ...]
    axis: int
    extent: int
    values: tuple[FootprintValue, ...]
    places: tuple[SharedPlace, ...]
    macs: tuple[tuple[str, int], ...]
    """(layer, multiply-accumulates for one element of its output), for layers that have some."""

    @cached_property
    def is_linear(self) -> bool:
        """Whether no value is needed twice and each shrinks exactly with the piece, as along a batch axis."""
        return all(value.reach.is_identity(self.extent) for value in self.values)

    @cached_property
    def whole_peak_bytes(self) -> int:
        """Bytes of the peak of the uncut group."""
        return peak_of_places(self.places, {v.tensor: box_size(v.box) * v.item_bytes for v in self.values})

    def places_at(self, step: int) -> tuple[SharedPlace, ...]:
        """The places that are occupied at a step."""
        return tuple(place for place in self.places if place.first <= step <= place.last)

    def value(self, tensor: str) -> FootprintValue:
        return next(value for value in self.values if value.tensor == tensor)

    def input_bytes(self, pieces: Pieces) -> Integers:
        """For each count: bytes of outside values that all pieces read together."""
        sums = [totals(value.piece_bytes(pieces), pieces) for value in self.values if value.external]
        total = np.zeros_like(pieces.counts)
        for each in sums:
            total = total + each
        return total

    def recomputed_macs(self, pieces: Pieces) -> dict[str, Integers]:
        """Multiply-accumulates beyond those of the uncut group, by layer, for each count; layers with none are left
        out."""
        by_tensor = {value.tensor: value for value in self.values}
        output = {layer.name: layer.output for layer in self.layers}
        macs = {name: recomputed_elements(by_tensor[output[name]], pieces) * each for name, each in self.macs}
        return {name: counts for name, counts in macs.items() if counts.any()}

    def peak(self, pieces: Pieces) -> Integers:
        """For each count: bytes of activations in memory at the worst step of its worst piece."""
        sizes = {value.tensor: value.piece_bytes(pieces) for value in self.values}
        most: Integers = np.maximum.reduceat(peak_bytes(self.places, sizes), pieces.first)
        return most


def largest_sizes(
    footprints: Sequence[Footprint], counts: Sequence[int], granularity: Sequence[int] | None = None
) -> dict[str, int]:
    """Bytes of every value when several axes are cut, `counts[i]` pieces along `footprints[i]`, for an instance that is
    the largest in every value: a bound, reached by most inner instances. Where two axes of the output drive the same
    axis of a value, the shorter interval counts."""
    sizes: dict[str, int] = {}
    cuts = [
        cut_pieces(f.extent, (count,), granularity[position] if granularity else 1)
        for position, (f, count) in enumerate(zip(footprints, counts, strict=True))
    ]
    for values in zip(*(footprint.values for footprint in footprints), strict=True):
        extents = [high - low for low, high in values[0].box]
        for value, pieces in zip(values, cuts, strict=True):
            if extents:
                extents[value.reach.axis] = min(extents[value.reach.axis], int(value.lengths(pieces).max()))
        sizes[values[0].tensor] = prod(extents) * values[0].item_bytes
    return sizes


def peak_bytes(places: Sequence[SharedPlace], sizes: Mapping[str, Integers]) -> Integers:
    """For each piece, the largest sum of places occupied at the same time; a place is as large as its largest value."""
    steps = max(place.last for place in places) + 1
    come: list[list[Integers]] = [[] for _ in range(steps + 1)]
    go: list[list[Integers]] = [[] for _ in range(steps + 1)]
    for place in places:
        size = sizes[place.tensors[0]]
        for name in place.tensors[1:]:
            size = np.maximum(size, sizes[name])
        come[place.first].append(size)
        go[place.last + 1].append(size)
    alive = np.zeros_like(next(iter(sizes.values())))
    most = alive.copy()
    for step in range(steps):
        for size in go[step]:
            alive = alive - size
        for size in come[step]:
            alive = alive + size
        most = np.maximum(most, alive)
    return most


@dataclass(frozen=True)
class Footprints:
    """The footprints of one graph; properties of single layers and segments are remembered between groups."""

    graph: Graph
    _inputs: Activations = field(init=False)
    _reaches: dict[tuple[str, int], dict[str, tuple[Reach, bool]]] = field(default_factory=dict)
    _boxes: dict[str, dict[str, Box]] = field(default_factory=dict)
    _orders: dict[tuple[str, ...], tuple[Layer, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_inputs", Activations(self.graph))

    def ordered(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """The layers in the order with the lowest peak that was found."""
        return best_order(self._inputs, layers, self._orders)

    def waists(self, layers: tuple[Layer, ...]) -> tuple[str, ...]:
        """Outputs of layers that alone connect what comes before them in the group with what comes after."""
        return tuple(segment[-1].output for segment in segments(self._inputs, layers)[:-1])

    def along(self, layers: tuple[Layer, ...], axis: int) -> Footprint:
        """The footprint of a group (topological order; the last layer's output is the group's) along an axis of it.

        Raises ValueError when a layer's output is not needed for the group's.
        """
        graph = self.graph
        output = layers[-1].output
        extent = graph.by_name[output].shape[axis]
        whole = ClampTerm(low=0, high=extent)
        reaches: dict[str, Reach] = {output: Reach(axis, (IntervalSpan((whole,), (whole,)),))}
        boxes: dict[str, Box] = {output: full_box(graph.by_name[output].shape)}
        for layer in reversed(layers):
            if layer.output not in reaches:
                raise ValueError(f"layer {layer.name} makes {layer.output}, which the group does not need")
            outer = reaches[layer.output]
            for name, (through, same) in self._layer(layer, outer.axis).items():
                reach = Reach(through.axis, outer.spans) if same else compose(outer, through, extent)
                if name in reaches and reaches[name] != reach:
                    reach = join_reaches(reaches[name], reach, graph.by_name[name].shape, extent)
                reaches[name] = reach
            for name, box in self._reads(layer, boxes[layer.output]).items():
                boxes[name] = join(boxes[name], box) if name in boxes else box
        made = {layer.output for layer in layers}
        names = [*(name for name in reaches if name not in made), *(layer.output for layer in layers)]
        values = tuple(
            FootprintValue(name, reaches[name], boxes[name], graph.by_name[name].item_bytes, name not in made)
            for name in names
        )
        macs = ((layer.name, _macs_per_element(graph, layer)) for layer in layers)
        places = places_of(self._inputs, self.ordered(layers))
        return Footprint(layers, axis, extent, values, places, tuple(pair for pair in macs if pair[1]))

    def _layer(self, layer: Layer, axis: int) -> dict[str, tuple[Reach, bool]]:
        """The layer's own reaches, and whether they leave a piece as it is."""
        key = (layer.name, axis)
        if key not in self._reaches:
            extent = self.graph.by_name[layer.output].shape[axis]
            found = layer_reaches(self.graph, layer, axis)
            self._reaches[key] = {name: (reach, reach.is_identity(extent)) for name, reach in found.items()}
        return self._reaches[key]

    def _reads(self, layer: Layer, box: Box) -> dict[str, Box]:
        """The box of each value that a box of the layer's output needs, constants left out."""
        whole = box == full_box(self.graph.by_name[layer.output].shape)
        if whole and layer.name in self._boxes:
            return self._boxes[layer.name]
        boxes = layer_boxes(self.graph, layer, box)
        reads = {name: boxes[name] for name in self._inputs.of(layer)}
        if whole:
            self._boxes[layer.name] = reads
        return reads


def _macs_per_element(graph: Graph, layer: Layer) -> int:
    return sum(graph.op_by_name[name].macs for name in layer.ops) // prod(graph.by_name[layer.output].shape)
