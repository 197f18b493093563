"""The rules of `layer_reference.py` for operators that move data, reduce axes, normalise across channels or resize.

    whole input [..] + positions [S, rank] of the output  -->  values there [S]

Like the rest of the reference it shares nothing with the templates or the simulator. It uses ONNX's definition of each
operator, the order of operations in the docstrings, and the slow arithmetic of `emulation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from codegen.neuralscale.emulation import arithmetic as chip
from codegen.neuralscale.emulation.arithmetic import Fp16
from codegen.neuralscale.emulation.norm_reference import normalised
from partitioner.ir.graph import Graph, Op

Points = npt.NDArray[np.int64]
Rule = Callable[[Graph, Op, Fp16, Points], Fp16]


def _at(x: Fp16, positions: Points) -> Fp16:
    taken: Fp16 = x[tuple(positions.T)]
    return taken


def _transpose(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """Transpose: output axis i is input axis perm[i]; bits are moved."""
    del graph
    positions = np.empty_like(points)
    positions[:, list(op.ints("perm"))] = points
    return _at(x, positions)


def _slice(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """Slice: position o reads starts + steps * o; bits are moved."""
    del graph
    return _at(x, np.array(op.ints("starts")) + points * np.array(op.ints("steps")))


def _pad(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """Pad: position o reads o - begins; outside the input it is the fp16 number nearest to the value."""
    del graph
    positions = points - np.array(op.ints("begins"))
    inside = np.all((positions >= 0) & (positions < np.array(x.shape)), 1)
    return np.where(inside, _at(x, np.clip(positions, 0, np.array(x.shape) - 1)), chip.immediate(op.number("value")))


def _take(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """Take: position o of the axis reads indices[o]; bits are moved."""
    del graph
    axis, positions = int(op.number("axis")), points.copy()
    positions[:, axis] = np.array(op.ints("indices"))[points[:, axis]]
    return _at(x, positions)


def _reduce(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """Reductions of neighbouring axes together, the last of them first: the second reduction reads the rounded results
    of the first."""
    del graph
    rows = _reduced_rows(op, x, points)
    while rows.ndim > 1:
        rows = _reduced(op.kind, rows)
    return rows


def _reduced_rows(op: Op, x: Fp16, points: Points) -> Fp16:
    """The elements that are reduced for each point: [S, elements of the first group of neighbouring axes, of the
    second, ...]."""
    axes = set(op.ints("axes"))
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    groups: list[list[int]] = []
    for axis in sorted(axes):
        if groups and groups[-1][-1] == axis - 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    moved = x.transpose([*kept, *sorted(axes)])
    rows: Fp16 = moved[tuple(points[:, kept].T)] if kept else np.broadcast_to(moved, (len(points), *moved.shape))
    return rows.reshape(len(points), *(int(np.prod([x.shape[axis] for axis in group])) for group in groups))


def _reduced(kind: str, rows: Fp16) -> Fp16:
    """Reduction of the last axis: a maximum, or a sum or mean in pieces."""
    if kind == "reduce_max":
        return chip.largest(rows, rows.ndim - 1)
    return chip.total(rows, mean=kind == "reduce_mean")


def _nearest_to_zero(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """max(low, 0) + min(high, 0), where low and high are the smallest and the largest of the reduced elements."""
    del graph
    rows = _reduced_rows(op, x, points).reshape(len(points), -1)
    zero = chip.immediate(0)
    return chip.add(chip.maximum(chip.smallest(rows, 1), zero), chip.minimum(chip.largest(rows, 1), zero))


def _power_of_line(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """64 over the power of two at or above m = max |x|, or max |x - nearest|, with m clamped to [2^-9, 65504]."""
    rows = _reduced_rows(op, x, points).reshape(len(points), -1)
    centre = _nearest_to_zero(graph, op, x, points) if op.number("centred") else np.zeros(len(points))
    m = np.clip(chip.largest(np.abs(chip.sub(rows, centre[:, None])), 1), 2.0**-9, 65504.0)
    return np.where(np.isnan(m), m, 64 / np.exp2(np.ceil(np.log2(m))))


def _lrn(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """Local response normalisation. q = (x * sqrt(alpha / size)) squared; u = q, plus q of the lower neighbours from
    the farthest on, plus q of the upper ones, plus bias. The power is sqrt(u) where beta has a half, times
    sqrt(sqrt(u)) where it has a quarter, times u for each whole; the result is x * recip(power)."""
    del graph
    size, quarters = int(op.number("size")), int(4 * op.number("beta"))
    rows: Fp16 = x[tuple(points[:, :-1].T)]
    channel, last = points[:, -1], x.shape[-1] - 1
    t = chip.mul(rows, chip.immediate(float(np.sqrt(op.number("alpha") / size))))
    q = chip.mul(t, t)
    sample = np.arange(len(points))
    total = q[sample, channel]
    for shift in range(-((size - 1) // 2), size - (size - 1) // 2):
        there = channel + shift
        inside = (there >= 0) & (there <= last) & (shift != 0)
        total = np.where(inside, chip.add(total, q[sample, np.clip(there, 0, last)]), total)
    u = chip.add(total, chip.immediate(op.number("bias")))
    root = chip.sqrt(u)
    factors = [root] * (quarters >> 1 & 1) + [chip.sqrt(root)] * (quarters & 1) + [u] * (quarters >> 2)
    power = factors[0]
    for factor in factors[1:]:
        power = chip.mul(power, factor)
    return chip.mul(_at(x, points), chip.recip(power))


def _resize(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """Resize one axis after the other, the last one first. Nearest moves bits. For linear, coordinates are rounded to
    1/2048; the result is the lower neighbour times its weight plus the upper one times its weight, each product
    rounded, or the element itself where the coordinate is whole."""
    shape = graph.by_name[op.outputs[0]].shape
    axes = [axis for axis in range(x.ndim) if x.shape[axis] != shape[axis]]
    positions = points.copy()

    def value(remaining: list[int]) -> Fp16:
        if not remaining:
            return _at(x, positions)
        axis, *rest = remaining
        place = _coordinate(op, axis, x.shape[axis], shape[axis])[points[:, axis]]
        if op.attribute("mode") == "nearest":
            positions[:, axis] = _nearest(op, place, shape[axis] < x.shape[axis]).astype(np.int64)
            return value(rest)
        place = np.round(place * 2048) / 2048
        low = np.floor(place)
        positions[:, axis] = low.astype(np.int64)
        below = value(rest)
        positions[:, axis] = np.ceil(place).astype(np.int64)
        above = value(rest)
        mixed = chip.add(chip.mul(below, low + 1 - place), chip.mul(above, place - low))
        return np.where(low == place, below, mixed)

    return value(axes)


def _coordinate(op: Op, axis: int, extent: int, wanted: int) -> Fp16:
    """Coordinates of all output positions in the input, clamped to it, in fp32 as onnxruntime computes them."""
    one = np.float32
    i = np.arange(wanted).astype(one)
    scales = dict(op.attributes).get("scales")
    scale = one(scales[axis]) if isinstance(scales, tuple) else one(wanted) / one(extent)
    kind = op.attribute("coordinates")
    if kind == "align_corners":
        place = i * one(extent - 1) / one(wanted - 1) if wanted > 1 else i
    elif kind == "asymmetric":
        place = i / scale
    elif kind == "pytorch_half_pixel" and wanted == 1:
        place = i
    else:
        place = (i + one(0.5)) / scale - one(0.5)
    return np.clip(place, 0, extent - 1).astype(np.float64)


def _nearest(op: Op, place: Fp16, shrinks: bool) -> Fp16:
    match op.attribute("rounding"):
        case "simple":
            return np.ceil(place) if shrinks else np.floor(place)
        case "floor":
            return np.floor(place)
        case "ceil":
            return np.ceil(place)
        case "round_prefer_ceil":
            return np.floor(place + 0.5)
    return np.ceil(place - 0.5)


RULES: Mapping[str, Rule] = {
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "take": _take,
    "reduce_sum": _reduce,
    "reduce_mean": _reduce,
    "reduce_max": _reduce,
    "normalise": normalised,
    "reduce_nearest": _nearest_to_zero,
    "reduce_power": _power_of_line,
    "lrn": _lrn,
    "resize": _resize,
}
