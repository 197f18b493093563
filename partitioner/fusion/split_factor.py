"""Splitting information: the number of pieces, and their axis, into which a group is cut so that one instance fits.

    group, capacity  -->  for each axis the smallest factor that fits, and how many operators it splits  -->  the best

Algorithm 1 and equation 1 of GraphTurbo (OSDI 2023) for every axis of the group's output, with these readings: the
capacity is an argument (the sum over a cluster's cores, for the paper's numbers); the peak of the worst instance by the
footprint must fit, including halos and values that are needed whole, without weights; there is one tuple per axis; a
group that fits uncut has factor 1. `docs/partitioning.md` gives the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod

from hw_models.errors import size_text
from partitioner.footprint.footprint import Footprint, Footprints, cut_pieces, largest_sizes
from partitioner.footprint.peak_memory import peak_of_places
from partitioner.ir.layers import Layer

MOST_UNEVEN_FACTOR = 64
"""Largest uneven factor that is tried; larger ones must divide the extent."""

MOST_PIECES = 4096
"""Largest number of pieces per axis: each is an instance with instructions of its own."""

COUNTS_AT_ONCE = 16
"""Number of piece counts evaluated together."""


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """`uneven` allows pieces of different sizes (the published method requires that factors divide); `most_axes` is how
    many axes may be cut at once where no single one is enough."""

    uneven: bool = False
    most_axes: int = 1


@dataclass(frozen=True, slots=True)
class Splitting:
    """`factors` are (axis of the group's output, pieces); `ops_split` counts the operators whose values they cut;
    `peak_bytes` is that of the worst instance."""

    factors: tuple[tuple[int, int], ...]
    ops_split: int
    peak_bytes: int

    @property
    def instances(self) -> int:
        return prod(factor for _, factor in self.factors)

    def __str__(self) -> str:
        cuts = " x ".join(f"{factor} pieces of axis {axis}" for axis, factor in self.factors)
        return f"{cuts if self.instances > 1 else 'uncut'}, {size_text(self.peak_bytes)} at the worst step"


def candidates(units: int, uneven: bool = False) -> tuple[int, ...]:
    """Candidate numbers of pieces: 1, 2, 4, 8 (the cores of a row), then 9, 10, ... and `units`, the largest possible
    number; without `uneven` only divisors of it. None is above `MOST_PIECES`."""
    most = min(units, MOST_PIECES)
    counts = dict.fromkeys(n for n in (1, 2, 4, *range(8, most), most) if n <= most)
    if uneven:
        return tuple(n for n in counts if n <= MOST_UNEVEN_FACTOR or units % n == 0)
    return tuple(n for n in counts if units % n == 0)


def best_of(info: tuple[Splitting, ...]) -> Splitting | None:
    """The splitting with most operators split, then fewest pieces, then the outermost axes; None where nothing fits."""
    return max(info, key=lambda s: (s.ops_split, -s.instances, tuple(-axis for axis, _ in s.factors)), default=None)


@dataclass(frozen=True)
class Splitter:
    """Splitting information for groups of one graph and one capacity. Earlier answers are remembered.

    `granularity(layer)` gives for each axis of the layer's output the multiple at which cuts may lie, 0 for an axis
    that is never cut; without it every axis may be cut anywhere.
    """

    footprints: Footprints
    capacity_bytes: int
    options: SplitOptions = SplitOptions()
    granularity: Callable[[Layer], tuple[int, ...]] | None = None
    _known: dict[tuple[str, ...], Splitting | None] = field(default_factory=dict)

    def best(self, layers: tuple[Layer, ...]) -> Splitting | None:
        """The best splitting of a group, or None where no factor makes an instance fit. A scalar has no axis along
        which a group could be followed: it is a group of its own."""
        if len(layers) > 1 and any(not self.footprints.graph.by_name[layer.output].shape for layer in layers):
            return None
        key = tuple(layer.name for layer in layers)
        if key not in self._known:
            self._known[key] = best_of(tuple(self._info(layers)))
        return self._known[key]

    def _info(self, layers: tuple[Layer, ...]) -> Iterator[Splitting]:
        """The splitting of each axis along which some factor fits, outermost first, up to one that no later one can
        beat."""
        footprints: list[tuple[Footprint, int]] = []
        found = False
        every_op = sum(_ops(self.footprints, layer) for layer in layers)
        for axis, granule in enumerate(self._axis_granularity(layers[-1])):
            if granule == 0:
                continue
            footprint = self.footprints.along(layers, axis)
            footprints.append((footprint, granule))
            splitting = self._along(footprint, granule)
            if splitting is None:
                continue
            found = True
            yield splitting
            if splitting.ops_split == every_op and splitting.instances == self._least(footprint):
                return
        if not found and self.options.most_axes > 1:
            yield from self._grids(footprints)

    def _axis_granularity(self, layer: Layer) -> tuple[int, ...]:
        if self.granularity is not None:
            return self.granularity(layer)
        return (1,) * len(self.footprints.graph.by_name[layer.output].shape)

    def _least(self, footprint: Footprint) -> int:
        """Smallest number of pieces of any axis that can fit: the worst of n pieces holds at least an n-th of the whole
        (less only where strided reads leave out elements between pieces)."""
        shape = self.footprints.graph.by_name[footprint.layers[-1].output].shape
        least = -(-footprint.whole_peak_bytes // self.capacity_bytes)
        return min(next((n for n in (1, 2, 4, extent) if n >= least), max(8, least)) for extent in shape)

    def _along(self, footprint: Footprint, granule: int) -> Splitting | None:
        """The smallest factor along one axis with which every instance fits."""
        extent = footprint.extent
        if footprint.whole_peak_bytes <= self.capacity_bytes:
            return Splitting(((footprint.axis, 1),), self._ops_split(footprint, 1), footprint.whole_peak_bytes)
        counts = self._counts(extent, granule)
        if footprint.is_linear and granule == 1:
            unit_bytes = footprint.whole_peak_bytes // extent
            fitting: Iterator[int] = (n for n in counts if unit_bytes * -(-extent // n) <= self.capacity_bytes)
        else:
            fitting = self._fitting(footprint, granule, counts)
        for count in fitting:
            peak = int(footprint.peak(cut_pieces(extent, (count,), granule))[0])
            return Splitting(((footprint.axis, count),), self._ops_split(footprint, count), peak)
        return None

    def _fitting(self, footprint: Footprint, granule: int, counts: tuple[int, ...]) -> Iterator[int]:
        """Counts that fit, evaluated a few at a time: small ones have few pieces and are preferred."""
        finest = footprint.peak(cut_pieces(footprint.extent, counts[-1:], granule))[0]
        if finest > self.capacity_bytes and counts[-1] * granule >= footprint.extent:
            return  # every other piece holds one of the finest
        for start in range(0, len(counts), COUNTS_AT_ONCE):
            some = counts[start : start + COUNTS_AT_ONCE]
            peaks = footprint.peak(cut_pieces(footprint.extent, some, granule))
            yield from (n for n, peak in zip(some, peaks.tolist(), strict=True) if peak <= self.capacity_bytes)

    def _ops_split(self, footprint: Footprint, factor: int) -> int:
        """Number of operators whose value the axis cuts (evenly, unless uneven pieces are allowed)."""
        made = {value.tensor: value for value in footprint.values}
        count = 0
        for layer in footprint.layers:
            value = made[layer.output]
            extent = self.footprints.graph.by_name[layer.output].shape[value.reach.axis] if value.box else 1
            if value.reach.matched and (self.options.uneven or extent % factor == 0):
                count += _ops(self.footprints, layer)
        return count

    def _grids(self, footprints: list[tuple[Footprint, int]]) -> Iterator[Splitting]:
        """Splittings of two or more axes at once: for each set of axes the fewest instances that were found to fit."""
        for number in range(2, self.options.most_axes + 1):
            for chosen in combinations(footprints, number):
                axes = tuple(footprint for footprint, _ in chosen)
                granularity = tuple(granule for _, granule in chosen)
                counts = [self._counts(footprint.extent, granule) for footprint, granule in chosen]
                found = list(_grid_splits(axes, granularity, counts, self.capacity_bytes))
                if found:
                    factors, peak = min(found, key=lambda pair: (prod(pair[0]), pair[0][::-1]))
                    ops = min(self._ops_split(f, n) for f, n in zip(axes, factors, strict=True))
                    yield Splitting(tuple((f.axis, n) for f, n in zip(axes, factors, strict=True)), ops, peak)

    def _counts(self, extent: int, granule: int) -> tuple[int, ...]:
        return candidates(-(-extent // granule), self.options.uneven)


def _grid_splits(
    axes: tuple[Footprint, ...], granularity: tuple[int, ...], counts: list[tuple[int, ...]], capacity_bytes: int
) -> Iterator[tuple[tuple[int, ...], int]]:
    """For each choice of factors of the axes but the last, the smallest factor of the last that fits, by bisection."""

    def peak(factors: tuple[int, ...]) -> int:
        if axes[0].whole_peak_bytes > prod(factors) * capacity_bytes:
            return axes[0].whole_peak_bytes  # the worst of n pieces holds at least an n-th
        return peak_of_places(axes[0].places, largest_sizes(axes, factors, granularity))

    for outer in product(*counts[:-1]):
        if prod(outer) > MOST_PIECES or peak((*outer, counts[-1][-1])) > capacity_bytes:
            continue
        low, high = 0, len(counts[-1]) - 1  # the factor at `high` fits
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if peak((*outer, counts[-1][middle])) <= capacity_bytes else (middle + 1, high)
        factors = (*outer, counts[-1][high])
        yield factors, peak(factors)


def _ops(footprints: Footprints, layer: Layer) -> int:
    """Number of operators of a layer; 0 for a view."""
    return 0 if layer.is_view(footprints.graph) else len(layer.ops)
