"""Resizing along axes: the nearest element, or a mix of neighbours.

position p of the result  -->  coordinate among the input's elements, by the operator's rule
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from codegen.cutlass.reference.evaluated import UNIT, Evaluated, Stored, add, mul, sub
from codegen.cutlass.reference.operands import RuleInputs
from codegen.judgement import Doubles, Points
from partitioner.ir.graph import Op

PLACE_UNITS = 8.0
"""Error of a coordinate in fp32, in units of the coordinate or of one: a scale, a product, and two additions of 1/2."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis that changes, and the coordinates [S] of the points along it."""

    number: int
    extent: int
    places: Doubles

    @property
    def below(self) -> Points:
        return np.floor(self.places).astype(np.int64)

    def held(self, positions: Points) -> Points:
        return np.clip(positions, 0, self.extent - 1)


def resize(asked: RuleInputs) -> Evaluated:
    x, shape, op = asked.tensor(), asked.shape, asked.op
    axes = _changed(op, x.values.shape, shape)
    if op.attribute("mode") == "nearest":
        return x.at(*_nearest_places(op, x.values.shape, shape, axes, asked.points).T)
    along = []
    for axis in axes:
        extent = x.values.shape[axis]
        places = _coordinates(op, axis, extent, shape[axis], np.float64)[asked.points[:, axis]]
        along.append(_Axis(axis, extent, places))
    return _mixed(x, asked.points, along)


def _changed(op: Op, given: tuple[int, ...], wanted: tuple[int, ...]) -> list[int]:
    """Axes with another extent, or with a factor that keeps the extent and yet moves the coordinates. onnxruntime
    copies where no extent changes at all."""
    scales = dict(op.attributes).get("scales")
    moves = [isinstance(scales, tuple) and scales[axis] != 1 for axis in range(len(given))]
    pairs = zip(given, wanted, moves, strict=True)
    return [axis for axis, (old, new, moved) in enumerate(pairs) if given != wanted and (old != new or moved)]


def _nearest_places(
    op: Op, given: tuple[int, ...], wanted: tuple[int, ...], axes: Sequence[int], points: Points
) -> Points:
    places = points.copy()
    for axis in axes:
        coordinates = _coordinates(op, axis, given[axis], wanted[axis], np.float32)
        near = np.clip(_nearest(op, coordinates, wanted[axis] < given[axis]), 0, given[axis] - 1)
        places[:, axis] = near[points[:, axis]].astype(np.int64)
    return places


def _mixed(x: Stored, points: Points, axes: Sequence[_Axis]) -> Evaluated:
    """Neighbours mixed by their distance, axis by axis. A coordinate that is off by d moves the mix by at most d times
    the distance between the smallest and the largest of all possible neighbours."""
    found = _neighbours(x, points, axes, (0, 1))
    for number, axis in enumerate(axes):
        share = Evaluated(axis.places - axis.below, np.zeros(len(points)))
        half = 1 << (len(axes) - number - 1)
        found = [_mix(found[i], found[i + half], share) for i in range(half)]
    around = [corner.numbers for corner in _neighbours(x, points, axes, (-1, 0, 1, 2))]
    span = np.max(around, 0) - np.min(around, 0)
    moved = sum((PLACE_UNITS * UNIT * (axis.places + 1) for axis in axes), np.zeros(len(points)))
    shifted = np.where(np.isfinite(found[0].numbers), moved * span, 0.0)
    return Evaluated(found[0].numbers, found[0].error + np.where(np.isnan(shifted), np.inf, shifted))


def _mix(below: Evaluated, above: Evaluated, share: Evaluated) -> Evaluated:
    """Mix of the elements below and above; where the coordinate is whole, nothing is read above it."""
    one = Evaluated(np.ones(()), np.zeros(()))
    mixed = add(mul(below, sub(one, share)), mul(above, share))
    whole = share.numbers == 0
    return Evaluated(np.where(whole, below.numbers, mixed.numbers), np.where(whole, below.error, mixed.error))


def _neighbours(x: Stored, points: Points, axes: Sequence[_Axis], steps: tuple[int, ...]) -> list[Evaluated]:
    """Elements by steps from the coordinate below, the last axis fastest."""
    found = []
    for chosen in product(steps, repeat=len(axes)):
        places = points.copy()
        for axis, step in zip(axes, chosen, strict=True):
            places[:, axis.number] = axis.held(axis.below + step)
        found.append(x.at(*places.T))
    return found


def _coordinates(op: Op, axis: int, extent: int, wanted: int, kind: type[np.floating]) -> Doubles:
    """Coordinates of all positions along an axis, clamped to the input, computed in the type `kind`: fp32 decides which
    element is nearest, as in onnxruntime."""
    i, one = np.arange(wanted).astype(kind), kind(1)
    scales = dict(op.attributes).get("scales")
    scale = kind(scales[axis]) if isinstance(scales, tuple) else kind(wanted) / kind(extent)
    coordinates = op.attribute("coordinates")
    if coordinates == "align_corners":
        places = i * kind(extent - 1) / kind(wanted - 1) if wanted > 1 else i
    elif coordinates == "asymmetric":
        places = i / scale
    elif coordinates == "pytorch_half_pixel" and wanted == 1:
        places = i
    else:
        places = (i + one / 2) / scale - one / 2
    return np.clip(places, 0, extent - 1).astype(np.float64)


def _nearest(op: Op, places: Doubles, shrinks: bool) -> Doubles:
    match op.attribute("rounding"):
        case "simple":
            return np.ceil(places) if shrinks else np.floor(places)
        case "floor":
            return np.floor(places)
        case "ceil":
            return np.ceil(places)
        case "round_prefer_ceil":
            return np.floor(places + 0.5)
    return np.ceil(places - 0.5)
