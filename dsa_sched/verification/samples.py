"""Samples of layers, recomputed by the target's slow arithmetic and judged by the exactness that the target declares.

    what a run left + emulation  -->  how many of a layer's outputs are wrong, and the first of them in words

An exact target is judged bit for bit. If a target gives a bound, each element may be as far from the emulated number as
the bound allows. A level beyond O0 does not store every value: the values that lead to a stored one are then emulated
whole, layer by layer, with the deviation that the bound allows on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.judgement import Array, BitExact, Bound, Doubles, Points, Sampled
from dsa_sched.stages.compilation import Compilation
from dsa_sched.verification.evidence import Dump, computing_layers, stored_values
from dsa_sched.verification.tolerances import difference, sample_points
from dsa_sched.verification.verdict import BoundedLevelResult
from hw_models.errors import TargetError
from partitioner.ir.layers import Layer


@dataclass(frozen=True, slots=True)
class Samples:
    """Number of a layer's outputs that were recomputed, number of wrong ones, and the first wrong one in words."""

    count: int
    wrong: int
    first: str = ""


@dataclass(frozen=True)
class SampledValues:
    """Values of one run in device shape and type: constants as the graph has them, others as the run stored them;
    values that it left nowhere are emulated from those that it did store, with how far they may be off.
    """

    compilation: Compilation
    dump: Dump
    _emulated: dict[str, tuple[Array, Doubles]] = field(default_factory=dict)

    def read(self, name: str) -> Array:
        graph = self.compilation.model.graph
        tensor = graph.by_name[name]
        if tensor.constant:
            return self.compilation.model.constants[tensor.constant].reshape(tensor.shape)
        if name in self.dump:
            return np.frombuffer(self.dump[name], np.dtype(tensor.dtype)).reshape(tensor.shape)
        if (source := self._source(name)) is not None:
            return self.read(source).reshape(tensor.shape)
        return self._emulate(name)[0]

    def errors(self, name: str) -> Doubles:
        """How far each element of `read(name)` may be from what the run had."""
        tensor = self.compilation.model.graph.by_name[name]
        if tensor.constant or name in self.dump:
            return np.zeros(tensor.shape)
        if (source := self._source(name)) is not None:
            return self.errors(source).reshape(tensor.shape)
        return self._emulate(name)[1]

    def sampled(self, layer: Layer, points: Points) -> Sampled:
        model = self.compilation.model
        return Sampled(model.graph, model.constants, layer, points, self.read, self.errors, self.compilation.chip)

    def _source(self, name: str) -> str | None:
        """Name of the value of which `name` is a view."""
        op = self.compilation.model.graph.producer[name]
        return op.inputs[0] if op.is_view else None

    def _emulate(self, name: str) -> tuple[Array, Doubles]:
        """The whole value as the target would store it, and how far the stored value may be from it."""
        if name not in self._emulated:
            tensor = self.compilation.model.graph.by_name[name]
            layer = next(layer for layer in computing_layers(self.compilation) if layer.output == name)
            sampled = self.sampled(layer, sample_points(tensor.shape, prod(tensor.shape), np.random.default_rng(0)))
            numbers, allowed = _bounded(self.compilation, sampled)
            with np.errstate(over="ignore"):
                rounded = numbers.astype(tensor.dtype)
            off = np.where(np.isfinite(rounded), np.abs(difference(rounded, numbers)), 0.0)
            self._emulated[name] = rounded.reshape(tensor.shape), (allowed + off).reshape(tensor.shape)
        return self._emulated[name]


def check_samples(layer: Layer, runs: tuple[SampledValues, ...], samples: int, seed: int) -> Samples:
    """Recompute samples of a layer's output from its inputs in each run. Raises TargetError where the target's
    emulation does not have the output's type.
    """
    whole = runs[0].compilation
    shape = whole.model.graph.by_name[layer.output].shape
    count = -(-samples // len(runs))
    random = np.random.default_rng(list(sha256(f"{seed} {layer.name}".encode()).digest()))
    total = Samples(0, 0)
    for number, values in enumerate(runs):
        points = sample_points(shape, count, random)
        ours = values.read(layer.output)[tuple(points.T)]
        wrong, said = _judged(whole, values.sampled(layer, points), ours)
        first = total.first
        if len(wrong) and not first:
            at = int(wrong[0])
            first = f"first at {points[at].tolist()} of {layer.output} for input {number}: {said(at)}"
        total = Samples(total.count + len(points), total.wrong + len(wrong), first)
    return total


def check_level(whole: Compilation, ours: tuple[Dump, ...], samples: int, seed: int) -> BoundedLevelResult:
    """Samples of all that a level stores in the main memory, by the target's bound."""
    graph = whole.model.graph
    names = frozenset(name for name in stored_values(whole) if name not in graph.inputs)
    runs = tuple(SampledValues(whole, dump) for dump in ours)
    layers = [layer for layer in computing_layers(whole) if layer.output in names]
    found = [(layer.output, check_samples(layer, runs, samples, seed)) for layer in layers]
    return BoundedLevelResult(
        level=whole.plan.level,
        values=len(names),
        bytes=sum(graph.by_name[name].size_bytes for name in names),
        outputs=sum(name in graph.outputs for name in names),
        samples=sum(each.count for _, each in found),
        wrong=tuple((name, each.wrong, each.count, each.first) for name, each in found if each.wrong),
    )


Said = Callable[[int], str]
"""Function from a sample's number to the text about it."""


def _judged(whole: Compilation, sampled: Sampled, ours: Array) -> tuple[npt.NDArray[np.intp], Said]:
    """Which of the stored samples are wrong."""
    if isinstance(whole.target.judgement, BitExact):
        return _by_bits(whole, sampled, ours)
    numbers, allowed = _bounded(whole, sampled)

    def said(at: int) -> str:
        stored = f"stored {float(ours[at]):.9g}, emulated {numbers[at]:.9g}"
        return f"{stored}, off by {abs(float(ours[at]) - numbers[at]):.3g}, at most {allowed[at]:.3g} is allowed"

    return np.flatnonzero(_beyond(ours, numbers, allowed)), said


def _by_bits(whole: Compilation, sampled: Sampled, ours: Array) -> tuple[npt.NDArray[np.intp], Said]:
    stored, emulated = _bits(ours), _bits(whole.target.emulate(sampled))
    if stored.dtype != emulated.dtype:
        needs, has = f"to emulate {sampled.layer.output} in {ours.dtype}", f"elements of {emulated.itemsize} bytes"
        raise TargetError(f"target {whole.target.name}", needs=needs, has=has)
    width = 2 + 2 * stored.itemsize

    def said(at: int) -> str:
        return f"stored {int(stored[at]):#0{width}x}, emulated {int(emulated[at]):#0{width}x}"

    return np.flatnonzero(stored != emulated), said


def _bounded(whole: Compilation, sampled: Sampled) -> tuple[Doubles, Doubles]:
    """The numbers that the target emulates, and how far a stored one may be from each."""
    judgement = whole.target.judgement
    assert isinstance(judgement, Bound)  # an exact target's runs store every value that is sampled
    return whole.target.emulate(sampled).astype(np.float64), judgement.allowed(sampled)


def _beyond(ours: Array, numbers: Doubles, allowed: Doubles) -> npt.NDArray[np.bool_]:
    """Where a stored element is farther off than allowed. It may be infinite, if a number near enough overflows."""
    apart = np.abs(difference(ours, numbers))
    with np.errstate(over="ignore", invalid="ignore"):
        farthest = (numbers + np.copysign(allowed, numbers)).astype(ours.dtype)
        overflows = np.isinf(ours.astype(np.float64)) & (farthest == ours)
        return np.asarray(~(apart <= allowed) & ~overflows)


def _bits(array: Array) -> Array:
    """Elements as unsigned integers of their size."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
