"""Results that the chip must have stored for norms along lines, from ONNX's definition and the order of operations
below.

    whole input [..] + positions [S, rank] of the output  -->  values there [S]

The reference shares nothing with the template: it treats lines as rows of numbers and takes powers of two by
logarithms.
"""

from __future__ import annotations

from math import ceil, floor, frexp, isqrt, log2, sqrt

import numpy as np
import numpy.typing as npt

from codegen.neuralscale.emulation import arithmetic as chip
from codegen.neuralscale.emulation.arithmetic import Fp16
from partitioner.ir.graph import Graph, Op

Points = npt.NDArray[np.int64]


def normalised(graph: Graph, op: Op, x: Fp16, points: Points) -> Fp16:
    """Norm of lines. c = the value nearest to zero between the ends of the line if centred, else 0; s = 8 / the power
    of two at or above m = max |x - c|, with m clamped to [2^-11, 65504], and s such that epsilon * s * s is at most
    2^14. e = (x - c) * s; d = e - mean(e) if centred, else e; w = mean(d * d) + (fraction * s * 2^exponent)^2, where
    epsilon is (fraction * 2^exponent)^2; r = recip(sqrt(w)); d times r * (3/2 - 1/2 * (w * r * r))."""
    del graph
    axes = list(op.ints("axes"))
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    which, back = np.unique(points[:, kept], axis=0, return_inverse=True)
    back = back.reshape(-1)
    lines = x.transpose([*kept, *axes])[tuple(which.T)].reshape(len(which), -1)
    epsilon = float(op.number("epsilon"))
    if op.number("centred"):
        low, high = chip.smallest(lines, 1), chip.largest(lines, 1)
        below, above = chip.minimum(high, chip.immediate(0)), chip.maximum(low, chip.immediate(0))
        magnitude = chip.maximum(chip.sub(high, above), chip.sub(below, low))
        lines = chip.sub(lines, chip.add(above, below)[:, None])
    else:
        magnitude = chip.maximum(chip.largest(lines, 1), chip.largest(-lines, 1))
    scale = _factor(magnitude, epsilon)
    lines = chip.mul(lines, scale[:, None])
    if op.number("centred"):
        lines = chip.sub(lines, _mean(lines, lines.shape[1])[:, None])
    power = _mean(chip.mul(lines, lines), lines.shape[1])
    if epsilon > 0:
        fraction, exponent = frexp(max(sqrt(epsilon), 2.0**-24))
        root = chip.mul(chip.mul(scale, chip.immediate(fraction)), chip.immediate(2.0**exponent))
        power = chip.add(power, chip.mul(root, root))
    inverse = chip.recip(chip.sqrt(power))
    near_one = chip.mul(chip.mul(power, inverse), inverse)
    inverse = chip.mul(inverse, chip.add(chip.mul(near_one, chip.immediate(-0.5)), chip.immediate(1.5)))
    place = np.ravel_multi_index(tuple(points[:, axes].T), tuple(x.shape[axis] for axis in axes))
    return chip.mul(lines[back, place], inverse[back])


def _factor(magnitude: Fp16, epsilon: float) -> Fp16:
    held = np.clip(magnitude, 2.0**-11, 65504.0)
    most = 2.0 ** floor(log2(2**7 / sqrt(epsilon))) if epsilon > 0 else np.inf
    return np.where(np.isnan(held), held, np.minimum(8 / np.exp2(np.ceil(np.log2(held))), most))


def _mean(values: Fp16, length: int) -> Fp16:
    """Mean of the last axis. Pieces of about sqrt(length) elements and at most 64 are each summed one by one from the
    first element; their sums are multiplied by 1 / length and added one by one. Where there are more than 64 sums, they
    are multiplied by number / (length * their piece) instead, and their mean, taken in the same way, is multiplied by
    that piece."""
    piece = _piece(length)
    sums = _sums(values, piece)
    factor = 1 / length
    while (count := sums.shape[1]) > 64:
        piece = _piece(count)
        sums = _sums(chip.mul(sums, chip.immediate(factor * count / piece)), piece)
        factor = piece / count
    return chip.accumulate(chip.mul(sums, chip.immediate(factor)), 1)


def _piece(length: int) -> int:
    return min(64, isqrt(max(0, length - 1)) + 1)


def _sums(values: Fp16, piece: int) -> Fp16:
    count = ceil(values.shape[1] / piece)
    return np.stack([chip.accumulate(values[:, i * piece : (i + 1) * piece], 1) for i in range(count)], 1)
