"""Groups judged by the reference: sampled elements of what each has left, from its inputs as they were left before.

A group of one layer is sampled anywhere. One of several keeps what lies between on the chip: samples are then taken
from boxes, and what they follow from inside the group is evaluated for the boxes' sake, layer by layer, with how far it
may be off. That is what `dsa_sched.verification.samples` does with whole values, here with parts of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.cutlass.reference import JUDGEMENT, evaluate
from codegen.judgement import Doubles, Points, Sampled
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer, layer_boxes
from partitioner.ir.plan import Group
from partitioner.ir.regions import Box, join

__all__ = ["Judged", "judge_group", "sources", "whole_bound", "whole_value"]

Array = npt.NDArray[Any]
BOX_EXTENT = 4
"""Of a box along each axis but the last, which is whole up to MOST_CHANNELS."""
MOST_CHANNELS = 512
BOXES = 2


@dataclass(frozen=True, slots=True)
class Judged:
    """How many elements were judged, how many are wrong, the largest share of its bound that one took up, and the
    first wrong one in words."""

    samples: int
    wrong: int
    share: float
    first: str = ""


@dataclass
class _Values:
    """What a group reads, and what is evaluated of it on the way."""

    graph: Graph
    constants: Mapping[str, Array]
    stored: Mapping[str, Array]
    made: dict[str, tuple[Array, Doubles]] = field(default_factory=dict)

    def read(self, name: str) -> Array:
        tensor = self.graph.by_name[name]
        if tensor.constant:
            return self.constants[tensor.constant].reshape(tensor.shape)
        if name in self.made:
            return self.made[name][0]
        return self.stored[sources(self.graph, name)].reshape(tensor.shape)

    def errors(self, name: str) -> Doubles:
        if name in self.made:
            return self.made[name][1]
        return np.broadcast_to(0.0, self.graph.by_name[name].shape)

    def sampled(self, layer: Layer, points: Points) -> Sampled:
        chip: Any = None  # the reference of this target asks for none
        return Sampled(self.graph, self.constants, layer, points, self.read, self.errors, chip)

    def make(self, layer: Layer, points: Points) -> None:
        """Evaluate parts of a value as a kernel would store it; elsewhere it is NaN."""
        tensor = self.graph.by_name[layer.output]
        value, error = np.full(tensor.shape, np.nan, tensor.dtype), np.full(tensor.shape, np.inf)
        sampled = self.sampled(layer, points)
        numbers = evaluate(sampled).numbers
        at = tuple(points.T)
        with np.errstate(over="ignore"):
            value[at] = numbers
        error[at] = JUDGEMENT.allowed(sampled) + np.where(
            np.isfinite(value[at]), np.abs(value[at].astype(np.float64) - numbers), 0.0
        )
        self.made[layer.output] = value, error


def sources(graph: Graph, name: str) -> str:
    """What `name` is a view of, at the end of all views."""
    while name in graph.producer and graph.producer[name].is_view:
        name = graph.producer[name].inputs[0]
    return name


def judge_group(
    graph: Graph, constants: Mapping[str, Array], group: Group, stored: Mapping[str, Array], samples: int, seed: int
) -> Judged:
    """`stored` has the group's inputs and outputs in device shape."""
    random = np.random.default_rng(list(sha256(f"{seed} {group.name}".encode()).digest()))
    total = Judged(0, 0, 0.0)
    for output in group.outputs(graph):
        values = _Values(graph, constants, stored)
        layers = [layer for layer in group.layers if not layer.is_view(graph)]
        shape = graph.by_name[output].shape
        if len(layers) == 1:
            points = random.integers(0, shape, (samples, len(shape)))
            total = _added(total, _judged(values, layers[0], points, stored[output], output))
            continue
        for number in range(BOXES):
            box = _box(shape, random, corner=number == 0)
            last = _evaluated(values, layers, output, box)
            points = _thinned(_points(box), samples // BOXES, random)
            total = _added(total, _judged(values, last, points, stored[output], output))
    return total


def whole_value(
    graph: Graph, constants: Mapping[str, Array], group: Group, stored: Mapping[str, Array]
) -> dict[str, Array]:
    """All that a group leaves, by the reference, rounded where it is stored."""
    values = _Values(graph, constants, stored)
    for layer in group.layers:
        if not layer.is_view(graph):
            values.make(layer, _points(_full(graph, layer.output)))
    return {output: values.made[output][0] for output in group.outputs(graph)}


def whole_bound(
    graph: Graph, constants: Mapping[str, Array], group: Group, stored: Mapping[str, Array]
) -> tuple[Doubles, Doubles]:
    """Of every element of a group's only output the exact number, and how far a kernel may be from it."""
    values = _Values(graph, constants, stored)
    *before, last = [layer for layer in group.layers if not layer.is_view(graph)]
    for layer in before:
        values.make(layer, _points(_full(graph, layer.output)))
    sampled = values.sampled(last, _points(_full(graph, last.output)))
    shape = graph.by_name[last.output].shape
    return evaluate(sampled).numbers.reshape(shape), JUDGEMENT.allowed(sampled).reshape(shape)


def _evaluated(values: _Values, layers: list[Layer], output: str, box: Box) -> Layer:
    """Everything that a box of `output` follows from inside the group, in order; the layer that makes it."""
    needed: dict[str, Box] = {output: box}
    for layer in reversed(layers):
        if layer.output in needed:
            for name, part in layer_boxes(values.graph, layer, needed[layer.output]).items():
                source = sources(values.graph, name)
                whole = part if source == name else _full(values.graph, source)
                if source != layer.output:
                    needed[source] = join(needed[source], whole) if source in needed else whole
    for layer in layers:
        if layer.output == output:
            return layer
        if layer.output in needed:
            values.make(layer, _points(needed[layer.output]))
    raise AssertionError(f"{output} is made by no layer of its group")


def _full(graph: Graph, name: str) -> Box:
    return tuple((0, extent) for extent in graph.by_name[name].shape)


def _box(shape: tuple[int, ...], random: np.random.Generator, *, corner: bool) -> Box:
    """Some elements along each axis: from the start of each, or from anywhere."""
    extents = [min(extent, BOX_EXTENT) for extent in shape[:-1]] + [min(shape[-1], MOST_CHANNELS)]
    starts = [
        0 if corner else int(random.integers(0, whole - size + 1)) for whole, size in zip(shape, extents, strict=True)
    ]
    return tuple((start, start + size) for start, size in zip(starts, extents, strict=True))


def _points(box: Box) -> Points:
    grid = np.indices([stop - start for start, stop in box]).reshape(len(box), -1).T
    return np.asarray(grid + [start for start, _ in box], np.int64)


def _thinned(points: Points, count: int, random: np.random.Generator) -> Points:
    return points if len(points) <= count else points[random.choice(len(points), count, replace=False)]


def _judged(values: _Values, layer: Layer, points: Points, stored: Array, output: str) -> Judged:
    sampled = values.sampled(layer, np.asarray(points, np.int64))
    numbers, allowed = evaluate(sampled).numbers, JUDGEMENT.allowed(sampled)
    ours = stored.reshape(values.graph.by_name[output].shape)[tuple(points.T)].astype(np.float64)
    same = (ours == numbers) | (np.isnan(ours) & np.isnan(numbers))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0.0, np.abs(ours - numbers))
        farthest = (numbers + np.copysign(allowed, numbers)).astype(stored.dtype).astype(np.float64)
    within = (apart <= allowed) | (np.isinf(ours) & (farthest == ours))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(within & (allowed > 0) & np.isfinite(allowed), apart / allowed, 0.0)
    wrong = np.flatnonzero(~within)
    said = ""
    if len(wrong):
        at = int(wrong[0])
        said = (f"{output} at {points[at].tolist()}: stored {ours[at]:.9g}, exact {numbers[at]:.9g}, "
                f"at most {allowed[at]:.3g} apart is allowed")  # fmt: skip
    return Judged(len(points), len(wrong), float(shares.max(initial=0.0)), said)


def _added(one: Judged, other: Judged) -> Judged:
    return Judged(
        one.samples + other.samples, one.wrong + other.wrong, max(one.share, other.share), one.first or other.first
    )
