"""Results that the chip must have stored: outputs of one layer recomputed at chosen positions, in plain numpy.

    a layer's inputs + positions [S, rank]  -->  elements of its output there [S]

This is the other side of every bit-for-bit comparison: it shares nothing with the tiles or the simulator, and uses the
operators' attributes alone. Sums of products are int32 that wraps, all else is float32 in the order of the operators,
each rounded to the nearest (ties to even).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.gemmini.emulation.function_reference import FUNCTIONS, exponential_parts, power_of_two
from codegen.gemmini.emulation.line_reference import normalised, reduced, summed
from codegen.gemmini.kernels.finish import AddedTerm, finish_of
from codegen.gemmini.kernels.layers import is_product
from codegen.judgement import Array, Points, Sampled
from partitioner.ir.graph import Op

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.int64]

SAMPLES_AT_A_TIME = 1_024


@dataclass(frozen=True, slots=True)
class _At:
    """One operator at sampled positions; `running` is the value that the layer has just computed, by name."""

    sampled: Sampled
    op: Op
    running: tuple[str, Floats] | None

    @property
    def points(self) -> Points:
        return self.sampled.points

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """A whole input in device shape."""
        tensor = self.sampled.graph.by_name[name]
        stored = self.sampled.constants[tensor.constant] if tensor.constant else self.sampled.read(name)
        return np.asarray(stored).reshape(tensor.shape)

    def operand(self, name: str) -> Floats:
        """The elements of an element-wise operand that meet the positions, aligned at the last axis."""
        if self.running is not None and name == self.running[0]:
            return self.running[1]
        values = self.tensor(name)
        aligned = self.points[:, self.points.shape[1] - values.ndim :]
        places = [np.where(extent > 1, i, 0) for i, extent in zip(aligned.T, values.shape, strict=True)]
        return np.asarray(values[tuple(places)], np.float32)

    def vector(self, position: int) -> npt.NDArray[Any]:
        """A vector operand at the channels of the positions; one number for all where it has one."""
        values = self.tensor(self.op.inputs[position])
        return values[self.points[:, -1]] if len(values) > 1 else np.repeat(values, len(self.points))

    def number(self, name: str) -> np.float32:
        return np.float32(self.op.number(name))


def emulate(sampled: Sampled) -> Array:
    """Elements of the layer's output at the sampled positions, as the chip stores them."""
    if len(sampled.points) > SAMPLES_AT_A_TIME:
        chunks = np.array_split(sampled.points, -(-len(sampled.points) // SAMPLES_AT_A_TIME))
        return np.concatenate([emulate(replace(sampled, points=chunk)) for chunk in chunks])
    running: tuple[str, Floats] | None = None
    terms: tuple[AddedTerm, ...] = ()
    if is_product(sampled.graph, sampled.layer):
        terms = finish_of(sampled.graph, sampled.constants, sampled.layer).terms
    for name in sampled.layer.ops:
        op = sampled.graph.op_by_name[name]
        if running is not None and terms and op.kind == "add_scaled":
            running = (op.outputs[0], running[1])  # it is in the sums
        else:
            running = (op.outputs[0], _value(_At(sampled, op, running), terms))
    assert running is not None  # a layer has an anchor
    return running[1].astype(sampled.graph.by_name[sampled.layer.output].dtype)


def _value(at: _At, terms: tuple[AddedTerm, ...] = ()) -> Floats:
    """What an operator makes; `terms` are added to the sums of a product."""
    op = at.op
    if op.kind == "matmul" and len(op.inputs) < 4 and at.tensor(op.inputs[0]).dtype == np.float32:
        return _float_matmul(at)
    if op.kind in ("conv", "matmul"):
        sums = _conv(at) if op.kind == "conv" else _matmul(at)
        if len(op.inputs) > 3:
            sums = sums + at.vector(3)
        for term in terms:
            sums = sums + term.factor * at.operand(term.name).astype(np.int64)
        wrapped = (sums & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        return np.asarray(wrapped.astype(np.float32) * at.vector(2))
    if op.kind == "max_pool":
        return _maxima(at)
    if op.kind == "average_pool":
        return _mean(at)
    if op.kind == "pad":
        return _padded(at)
    if op.kind in ("concat", "transpose", "slice", "take"):
        return _moved(at)
    if op.kind == "softmax":
        return _softmax(at)
    if op.kind == "normalise":
        return normalised(op, at.tensor(op.inputs[0]), at.points)
    if op.kind in ("reduce_mean", "reduce_sum", "reduce_max"):
        return reduced(op, at.tensor(op.inputs[0]), at.points)
    x = at.operand(op.inputs[0])
    if op.kind in FUNCTIONS:
        return FUNCTIONS[op.kind](x, op)
    match op.kind:
        case "widen":
            return x
        case "relu":
            return np.maximum(x, np.float32(0))
        case "clip":
            return np.minimum(np.maximum(x, at.number("min")), at.number("max"))
        case "narrow":
            if "centre" in dict(op.attributes):
                x = np.rint(x) + at.number("centre")
            bounded = np.minimum(np.maximum(x, np.float32(-128)), np.float32(127))
            return np.rint(bounded) if dict(op.attributes)["rounding"] == "nearest" else np.trunc(bounded)
        case "scale_shift":
            return np.asarray(x * at.operand(op.inputs[1]) + at.operand(op.inputs[2]))
        case "add_scaled":
            return np.asarray(x + at.operand(op.inputs[1]) * at.number("scale"))
    other = at.operand(op.inputs[1])
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
                 "max": np.maximum, "min": np.minimum}  # fmt: skip
    return np.asarray(functions[op.kind](x, other))


def _factors(at: _At) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows of the first factor and columns of the second that meet at the positions, both [S, k]. Axes before the last
    two are repeated."""
    found = []
    for name, own in zip(at.op.inputs[:2], (-2, -1), strict=True):
        values = at.tensor(name)
        turned = np.swapaxes(values, -1, -2) if own == -1 else values
        outer = at.points[:, at.points.shape[1] - values.ndim : -2]
        places = [np.where(extent > 1, i, 0) for i, extent in zip(outer.T, values.shape, strict=False)]
        found.append(turned[(*places, at.points[:, own])])
    return found[0], found[1]


def _matmul(at: _At) -> Words:
    rows, columns = (factor.astype(np.int64) for factor in _factors(at))
    return np.asarray(np.einsum("sk,sk->s", rows, columns))


def _float_matmul(at: _At) -> Floats:
    """Products added one after the other, to the bias or to zero."""
    rows, columns = _factors(at)
    total = np.asarray(at.vector(2), np.float32) if len(at.op.inputs) > 2 else np.zeros(len(rows), np.float32)
    for left, right in zip(rows.T, columns.T, strict=True):
        total = total + left * right
    return total


def _taps(at: _At, x: npt.NDArray[Any]) -> Iterator[tuple[tuple[int, int], npt.NDArray[np.bool_], npt.NDArray[Any]]]:
    """Each tap, where it lies inside the input, and the pixels [S, channels] that it meets (any elsewhere)."""
    kernel, strides, dilations, pads = (at.op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    image, row, column, _ = at.points.T
    for down, along in product(range(kernel[0]), range(kernel[1])):
        r = row * strides[0] + down * dilations[0] - pads[0]
        c = column * strides[1] + along * dilations[1] - pads[1]
        inside = (r >= 0) & (r < x.shape[1]) & (c >= 0) & (c < x.shape[2])
        yield (down, along), inside, x[image, np.where(inside, r, 0), np.where(inside, c, 0)]


def _conv(at: _At) -> Words:
    """Tap by tap; taps in the padding are zeros. Weights have the input channels of one group."""
    x, weights = (at.tensor(name).astype(np.int64) for name in at.op.inputs[:2])
    channel, depth = at.points[:, -1], weights.shape[2]
    group = channel // (weights.shape[3] // int(at.number("groups")))
    read = group[:, None] * depth + np.arange(depth)
    sums = np.zeros(len(at.points), np.int64)
    for tap, inside, pixels in _taps(at, x):
        products = np.einsum("sc,cs->s", np.take_along_axis(pixels, read, axis=1), weights[tap][:, channel])
        sums += np.where(inside, products, 0)
    return sums


def _maxima(at: _At) -> Floats:
    """The largest of the elements that lie inside the operand."""
    x, channel = at.tensor(at.op.inputs[0]), at.points[:, -1]
    most = np.full(len(at.points), -np.inf, np.float32)
    for _, inside, pixels in _taps(at, x):
        most = np.where(inside, np.maximum(most, pixels[np.arange(len(channel)), channel]), most)
    return most


def _mean(at: _At) -> Floats:
    """The sum of the window's elements, row by row from zero on, times one over their number."""
    x, channel = at.tensor(at.op.inputs[0]), at.points[:, -1]
    total = np.zeros(len(at.points), np.float32)
    for _, _, pixels in _taps(at, x):
        total = total + pixels[np.arange(len(channel)), channel]
    down, along = at.op.ints("kernel")
    return np.asarray(total * np.float32(1.0 / (down * along)))


def _moved(at: _At) -> Floats:
    """The operand's element at the place that it comes from."""
    op, points = at.op, at.points
    if op.kind == "concat":
        axis, first = int(op.number("axis")), 0
        result = np.empty(len(points), np.float32)
        for name in op.inputs:
            x = at.tensor(name)
            mine = (points[:, axis] >= first) & (points[:, axis] < first + x.shape[axis])
            places = points[mine].copy()
            places[:, axis] -= first
            result[mine] = x[tuple(places.T)]
            first += x.shape[axis]
        return result
    x = at.tensor(op.inputs[0])
    if op.kind == "transpose":
        places = points[:, np.argsort(op.ints("perm"))]
    elif op.kind == "take":
        places, axis = points.copy(), int(op.number("axis"))
        places[:, axis] = np.array(op.ints("indices"))[points[:, axis]]
    else:
        places = np.array(op.ints("starts")) + points * np.array(op.ints("steps"))
    return np.asarray(x[tuple(places.T)], np.float32)


def _softmax(at: _At) -> Floats:
    """Along the last axis; sums go from the first element to the last."""
    rows = at.tensor(at.op.inputs[0])[tuple(at.points[:, :-1].T)].astype(np.float32)
    n, made = exponential_parts(np.maximum(rows - rows.max(axis=1, keepdims=True), np.float32(-87)))
    made = made * power_of_two(n)
    return np.asarray(made[np.arange(len(made)), at.points[:, -1]] / summed(made))


def _padded(at: _At) -> Floats:
    """The operand's element, or the value outside of it."""
    x = at.tensor(at.op.inputs[0])
    places = at.points - np.array(at.op.ints("begins"))
    inside = np.all((places >= 0) & (places < np.array(x.shape)), axis=1)
    found = x[tuple(np.where(inside[:, None], places, 0).T)]
    return np.where(inside, found, at.number("value")).astype(np.float32)
