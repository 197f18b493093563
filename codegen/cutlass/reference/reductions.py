"""Layers that reduce: matrix products, convolutions, pools, local response normalisation, sums and maxima along axes.

Taps in the padding are multiplied as zeros. A reduced axis stays, with one element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.cutlass.reference.evaluated import (
    Evaluated,
    Stored,
    add,
    divide,
    exp,
    immediate,
    log,
    monotone,
    mul,
    off,
    rounded,
)
from codegen.cutlass.reference.lines import along_lines, as_column, mean_of
from codegen.cutlass.reference.operands import RuleInputs, aligned
from codegen.cutlass.reference.sums import Gather, pieces, plain_sum, sums_of_products
from codegen.judgement import Doubles, Points
from partitioner.ir.graph import Op

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WindowAttributes:
    """Attributes of a convolution or a pool, one entry per spatial axis; `pads` has all begins, then all ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    def positions(self, points: Points) -> Points:
        """Position of each tap in the map, [P, taps, spatial], for results at [P, 1 + spatial, ...]."""
        spatial = len(self.kernel)
        tap = np.stack(np.unravel_index(np.arange(self.taps), self.kernel), 1)
        corner = points[:, 1 : 1 + spatial] * np.array(self.strides) - np.array(self.pads[:spatial])
        return np.asarray(corner[:, None, :] + tap * np.array(self.dilations), np.int64)

    def inside(self, points: Points, extents: tuple[int, ...], padding: bool = False) -> Flags:
        """Flags of the taps that are in the map or, with `padding`, in the padded map: [P, taps]."""
        spatial = len(self.kernel)
        begins, ends = (np.array(self.pads) if padding else np.zeros(2 * spatial, np.int64)).reshape(2, spatial)
        places = self.positions(points)
        return np.asarray(np.all((places >= -begins) & (places < np.array(extents) + ends), -1))

    def gather(self, x: Stored, points: Points, channels: Points, outside: float) -> Evaluated:
        """Elements under the taps in `channels` [P or 1, channels], as [P, taps, channels]; `outside` in the
        padding."""
        extents = x.values.shape[1:-1]
        places = np.clip(self.positions(points), 0, np.array(extents) - 1)
        found = x.at(points[:, 0, None, None], *np.moveaxis(places, -1, 0)[..., None], channels[:, None, :])
        inside = self.inside(points, extents)[..., None]
        return Evaluated(np.where(inside, found.numbers, outside), np.where(inside, found.error, 0.0))


def window_of(op: Op) -> WindowAttributes:
    return WindowAttributes(op.ints("kernel"), op.ints("strides"), op.ints("dilations"), op.ints("pads"))


def lrn(asked: RuleInputs) -> Evaluated:
    """Local response normalisation, with the power as exp(-beta * ln(u)), since pow() and its parts are no worse. The
    window has equally many channels below and above, as far as they exist."""
    op, x, points = asked.op, asked.tensor(), asked.points
    size = int(op.number("size"))
    channels = points[:, -1:] + np.arange(size) - (size - 1) // 2
    last = x.values.shape[-1] - 1
    found = x.at(*points[:, :-1].T[..., None], np.clip(channels, 0, last))
    inside = (channels >= 0) & (channels <= last)
    near = Evaluated(np.where(inside, found.numbers, 0.0), np.where(inside, found.error, 0.0))
    squares = plain_sum(mul(near, near))
    u = add(immediate(op.number("bias")), mul(immediate(op.number("alpha") / size), squares))
    return mul(asked.operand(), exp(mul(immediate(-op.number("beta")), log(u))))


def max_pool(asked: RuleInputs) -> Evaluated:
    """The maximum of the elements inside the map; NaN if any is."""
    return _windowed(asked, -np.inf, lambda taps, _window, _points: monotone(_largest, taps))


def _largest(taps: Doubles) -> Doubles:
    return np.asarray(taps.max(-1))


def average_pool(asked: RuleInputs) -> Evaluated:
    """The sum over the number of taps in the map or, with `count_include_pad`, of those in the padding, too. Windows
    without any counted tap are 0."""
    padding = bool(asked.op.number("count_include_pad"))
    extents = asked.sampled.graph.by_name[asked.op.inputs[0]].shape[1:-1]

    def mean(taps: Evaluated, window: WindowAttributes, points: Points) -> Evaluated:
        counted = np.maximum(window.inside(points, extents, padding).sum(1), 1).astype(np.float64)
        return divide(plain_sum(taps), Evaluated(counted, np.zeros(len(counted))))

    return _windowed(asked, 0.0, mean)


def _windowed(
    asked: RuleInputs, outside: float, reduce: Callable[[Evaluated, WindowAttributes, Points], Evaluated]
) -> Evaluated:
    """`reduce` of the taps [P, taps] of each point, some points at a time."""
    x, window = asked.tensor(0), window_of(asked.op)
    numbers, errors = np.empty((2, len(asked.points)))
    for piece in pieces(len(asked.points), window.taps):
        points = asked.points[piece]
        taps = window.gather(x, points, points[:, -1:], outside).at(..., 0)
        found = reduce(taps, window, points)
        numbers[piece], errors[piece] = found.numbers, found.error
    return Evaluated(numbers, errors)


def convolution(asked: RuleInputs) -> Evaluated:
    """Convolution as products of rows and columns: a row is the input under the kernel, in the channels of a group; a
    column holds the weights of an output channel."""
    x, shape, points = asked.tensor(0), asked.shape, asked.points
    groups = int(asked.op.number("groups"))
    weights = _Weights(asked.tensor(1), groups, asked.outputs_first)
    channel, extents = points[:, -1], (*shape[:-1], groups)
    group = channel // (shape[-1] // groups)
    number = np.ravel_multi_index((*points[:, :-1].T, group), extents)
    length = window_of(asked.op).taps * x.values.shape[-1] // groups

    def rows(numbers: Points) -> Evaluated:
        *places, of_group = np.unravel_index(numbers, extents)
        return _patches(x, window_of(asked.op), np.stack(places, 1), of_group, x.values.shape[-1] // groups)

    bias = asked.vector(2) if len(asked.op.inputs) > 2 else None
    return sums_of_products(rows, weights.columns, number, channel, length, bias)


def _patches(x: Stored, window: WindowAttributes, places: Points, group: Points, channels: int) -> Evaluated:
    """Input elements under the kernel, [P, taps times channels of the group]."""
    chosen = group[:, None] * channels + np.arange(channels)
    found = window.gather(x, places, chosen, 0.0)
    return Evaluated(found.numbers.reshape(len(places), -1), found.error.reshape(len(places), -1))


@dataclass(frozen=True, slots=True)
class _Weights:
    """Weights in one of two orders, with the groups as the first axis where there are several:

    outputs first    Cout, kernel..., Cin / groups
    outputs last     kernel..., Cin / groups, Cout
    """

    stored: Stored
    groups: int
    outputs_first: bool

    def columns(self, channel: Points) -> Evaluated:
        """Weights of output channels, [F, taps times channels of a group]."""
        rank = self.stored.values.ndim
        first = 1 if self.groups > 1 else 0
        stored = self.stored
        if not self.outputs_first:
            stored = stored.moved((*range(first), rank - 1, *range(first, rank - 1)))
        each = stored.values.shape[first]
        found = stored.at(channel // each, channel % each) if self.groups > 1 else stored.at(channel)
        return Evaluated(found.numbers.reshape(len(channel), -1), found.error.reshape(len(channel), -1))


def matrix_product(asked: RuleInputs) -> Evaluated:
    """Matrix product: a [..., M, K] times b [..., K, N] plus bias [N]."""
    a, b = asked.tensor(0), asked.tensor(1)
    rank = b.values.ndim
    turned = b.moved((*range(rank - 2), rank - 1, rank - 2))
    lines, line = _lines(a, asked.points[:, :-1])
    columns, column = _lines(turned, np.delete(asked.points, -2, 1))
    if rank == 2:
        columns = _columns(b)
    bias = asked.vector(2) if len(asked.op.inputs) > 2 else None
    return sums_of_products(lines, columns, line, column, a.values.shape[-1], bias)


def _lines(factor: Stored, points: Points) -> tuple[Gather, Points]:
    """A function that gives the last axis of a factor by the number of a line, and the line number for each point."""
    extents = factor.values.shape[:-1]
    numbers = np.ravel_multi_index(aligned(points, extents), extents)
    return lambda some: factor.at(*np.unravel_index(some, extents)), numbers


def _columns(matrix: Stored) -> Gather:
    """A function that gives columns as lines of the transposed matrix, in the order of memory, so that a long matrix is
    read once from end to end."""

    def gather(some: Points) -> Evaluated:
        return matrix.each(lambda array: np.take(array, some, 1).T).at(...)

    return gather


LEAST_SIZE, LARGEST_SIZE, WANTED_SIZE = 2.0**-9, 65504.0, 64.0
"""Size of a line: least, largest, and wanted. The size is clamped to the first two; the power of two takes it to the
third."""


def reduction(asked: RuleInputs) -> Evaluated:
    rule = RULES[asked.op.kind]
    return along_lines(asked.tensor(), asked.op.ints("axes"), asked.points, lambda lines: rule(asked.op, lines))


def _nearest(lines: Doubles) -> Doubles:
    """The number nearest to zero in the span of a line: it rises with every element."""
    low, high = lines.min(1, keepdims=True), lines.max(1, keepdims=True)
    return np.asarray(np.maximum(low, 0) + np.minimum(high, 0))


def _power_of_line(op: Op, lines: Evaluated) -> Evaluated:
    """64 over the power of two at or above the largest |x|, or |x - nearest|, of a line. It is a step function: near a
    power of two it may be either value, unless the difference is a number of fp32."""
    if op.number("centred"):
        exact = monotone(np.subtract, lines, monotone(_nearest, lines))
        whole = (exact.error == 0) & (off(exact.numbers.astype(np.float32).astype(np.float64), exact.numbers) == 0)
        near = rounded(exact)
        lines = Evaluated(near.numbers, np.where(whole, 0.0, near.error))
    sizes = Evaluated(np.abs(lines.numbers), lines.error)
    return monotone(lambda x: _step(x.max(1, keepdims=True)), sizes)


def _step(size: Doubles) -> Doubles:
    fraction, exponent = np.frexp(np.clip(size, LEAST_SIZE, LARGEST_SIZE))
    power = WANTED_SIZE / np.ldexp(1.0, np.where(fraction == 0.5, exponent - 1, exponent))
    return np.where(np.isnan(size), np.nan, power)


RULES: Mapping[str, Callable[[Op, Evaluated], Evaluated]] = {
    "reduce_sum": lambda _, x: as_column(plain_sum(x)),
    "reduce_mean": lambda _, x: mean_of(x),
    "reduce_max": lambda _, x: monotone(lambda lines: lines.max(1, keepdims=True), x),
    "reduce_nearest": lambda _, x: monotone(_nearest, x),
    "reduce_power": _power_of_line,
}
"""Rules that reduce lines [U, L] to one number each, [U, 1]."""
