"""Convolutions and matrix products of integers: their weights, scales, and what an int8 kernel needs them to be.

    Conv(DQ(x), DQ(w), DQ(b))  -->  IntegerProduct(weights int8, scale, sums of weights, bias in numbers)

Channels that are odd in number get one more, of zeros: int8 tensors move in units of two bytes. A convolution over one
axis is one over images of one row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from dsa_sched.frontend.network.network import Network, Node, Setting
from dsa_sched.frontend.network.terms import number, triangle
from dsa_sched.frontend.network.traced import TracedArray
from dsa_sched.frontend.network.windows import windows_of
from dsa_sched.frontend.quantised.grids import DEQUANTISE, LEAST, MOST, Floats, Grid, dequantised, grid_of
from dsa_sched.frontend.quantised.held import HeldIntegers
from partitioner.ir.wants import Wants

OF_NUMBERS = "product in floating point"
"""Verdict on a product of quantised values, for explanations."""

Shape = tuple[int, ...]
Settings = tuple[tuple[str, Setting], ...]


@dataclass(frozen=True, slots=True)
class IntegerProduct:
    """`weights` as in ONNX, (outputs, inputs, kernel...) of a convolution and (rows, columns) of a product, without the
    channels that are added; None where both factors are computed. `rest` is what they have beyond eight bits with a
    sign. `scale` has one element or one per output channel; `sums` are the sums of the weights, `most` the largest sums
    of products and `bias` numbers, each per output channel.
    """

    channels: int
    weights: TracedArray | None
    scale: TracedArray
    sums: TracedArray
    most: Floats
    bias: TracedArray | None
    convolution: Settings = ()
    """Attributes of a convolution with its own padding."""

    groups: int = 1
    rest: TracedArray | None = None
    constants: int = 0
    """Input channels that are added, in which every element of the operand is the integer zero: their weights take what
    this integer adds to the sums."""
    unit: int = 2
    """Number of channels of which int8 values have a multiple."""

    @property
    def is_conv(self) -> bool:
        return bool(self.convolution)

    @property
    def added(self) -> int:
        """Output channels that are added."""
        return -self.channels % self.unit if self.weights is not None and self.groups == 1 else 0

    @property
    def is_wide(self) -> bool:
        """Whether the weights beyond eight bits multiply the same operand once more, in further input channels: its
        channels come twice. Groups are two products instead."""
        return self.rest is not None and self.groups == 1

    def channel_axis(self, rank: int) -> int:
        return 1 if self.is_conv else rank - 1

    def padding(self, shape: Shape, centre: int) -> tuple[Shape, Shape]:
        """Elements to add before and after each axis of the operand: a convolution's padding where its zeros are not
        the integer zero, and one input channel where these are odd in number."""
        begins, ends = [0] * len(shape), [0] * len(shape)
        if self.weights is None:
            return tuple(begins), tuple(ends)
        axis = self.channel_axis(len(shape))
        ends[axis] = -shape[axis] % self.unit if self.groups == 1 else 0
        if centre and self.is_conv:
            pads = dict(self.convolution)["pads"]
            assert isinstance(pads, tuple)
            inner = [int(pad) for pad in pads][-(len(pads) // 2) :], [int(pad) for pad in pads][: len(pads) // 2]
            spatial = len(shape) - 2
            for position in range(spatial):
                begins[2 + position] = inner[1][position - spatial]
                ends[2 + position] = inner[0][position - spatial]
        return tuple(begins), tuple(ends)

    def settings(self, centre: int) -> Settings:
        """Attributes of the product, once its operand has been padded."""
        if not centre:
            return self.convolution
        pads = ("pads", tuple(0 for _ in np.atleast_1d(dict(self.convolution).get("pads", ()))))
        return tuple(pads if name == "pads" else (name, value) for name, value in self.convolution)

    def operand_shape(self, shape: Shape) -> Shape:
        """The shape in which the operand is read."""
        return (*shape[:2], 1, shape[2]) if self.is_conv and len(shape) == 3 else shape

    def result_shapes(self, shape: Shape) -> tuple[Shape, Shape]:
        """Shapes of the result, with and without the channels that are added, for a result of this shape in the
        file."""
        plain = self.operand_shape(shape)
        axis = self.channel_axis(len(plain))
        return (*plain[:axis], plain[axis] + self.added, *plain[axis + 1 :]), plain

    def over_images(self, weights: TracedArray) -> TracedArray:
        """Weights as they are, those of a convolution over one axis for images in two."""
        if not self.is_conv or len(weights.shape) == 4:
            return weights
        return weights.reshape(*weights.shape[:2], 1, weights.shape[2])

    def stored(self, weights: TracedArray) -> TracedArray:
        """Weights with the channels that are added, for images in two axes."""
        if not self.is_conv:
            return weights.pad(-weights.shape[0] % self.unit, self.added)
        weights = self.over_images(weights)
        inputs = -weights.shape[1] % self.unit if self.groups == 1 else 0
        return weights.pad(self.added, inputs, 0, 0)

    def with_zeros(self) -> IntegerProduct:
        """The product that takes the zero point of its operand into its exact sums; itself for groups."""
        if self.weights is None or self.groups > 1:
            return self
        room, most = MOST * self._taps, float(np.abs(self.sums.float64).max())
        return replace(self, constants=2 * ceil(most / room / 2))

    @property
    def _taps(self) -> int:
        assert self.weights is not None
        return prod(self.weights.shape[2:]) if self.is_conv else 1

    def all_weights(self) -> TracedArray:
        """Stored weights, and after them, as further input channels, those beyond eight bits, and what takes the
        operand's zero point out of the sums."""
        assert self.weights is not None
        stored, axis = self.stored(self.weights), 1 if self.is_conv else 0
        if self.is_wide and self.rest is not None:
            stored = _joined(stored, self.stored(self.rest), axis)
        if self.constants:
            spread = _spread_over(-self.sums, self.constants * self._taps).pad(self.added, 0)
            outputs, inner = self.channels + self.added, stored.shape[2:] if self.is_conv else ()
            spread = spread.reshape(outputs, self.constants, *inner)
            stored = _joined(stored, spread if self.is_conv else spread.transpose(1, 0), axis)
        return stored


def _joined(first: TracedArray, second: TracedArray, axis: int) -> TracedArray:
    """Integers after each other along an axis, the only one in which their shapes differ."""
    extents, rank = (first.shape[axis], second.shape[axis]), len(first.shape)
    order = (axis, *(each for each in range(rank) if each != axis))
    back = tuple(order.index(each) for each in range(rank))
    before, behind = (each.transpose(*order) for each in (first, second))
    behind = behind.pad(extents[0], *(0,) * (rank - 1)).take((*range(extents[1], sum(extents)), *range(extents[1])))
    return _as_int8((before.pad(extents[1], *(0,) * (rank - 1)) + behind).transpose(*back))


def _spread_over(wanted: TracedArray, places: int) -> TracedArray:
    """Integers of eight bits (outputs, places) whose sums are the wanted numbers: as large as they may be, one after
    the other. There are enough places."""
    outputs = wanted.shape[0]
    steps = TracedArray(np.arange(places) * float(MOST), triangle(places, places, 0, False, MOST, 0.0).sum((1,)) -
                        number(MOST)).broadcast(outputs, places)  # fmt: skip
    each, zero, most = wanted.reshape(outputs, 1).broadcast(outputs, places), TracedArray.of(0.0), TracedArray.of(MOST)
    above = -(-(each - steps).least(most)).least(zero)
    below = -(-(each + steps)).least(most)
    return above + below.least(zero)


def product_of(network: Network, node: Node, wants: Wants) -> IntegerProduct | None:
    """The product that a Conv, Gemm or MatMul is if its first operand is integers; None where its weights are no
    integers of eight bits, for a vector, or where the kernel is none that int8 kernels have: at most `longest_window`
    taps, steps and padding."""
    if len(network.shape(node.inputs[0])) < 2:
        return None
    found = _integers_of(network, node.inputs[1])
    computed = found is None and node.inputs[1] not in network.constants
    if node.op_type == "MatMul" and computed:
        rows, channels = network.shape(node.inputs[1])[-2:]
        zeros, most = TracedArray.of(0.0).broadcast(channels), np.full(channels, float(rows * LEAST**2))
        return IntegerProduct(channels, None, TracedArray.of(1.0).reshape(1), zeros, most, None, unit=wants.int8_unit)
    bias = _bias(network, node.input(2))
    if found is None or (node.input(2) and bias is None):
        return None
    weights, rest, grid = found
    if node.op_type == "Conv":
        product = _convolution(network, node, weights, grid, bias, wants)
    else:
        product = _matrix(node, weights, grid, bias)
    product = product and replace(product, unit=wants.int8_unit)
    if product is None or rest is None:
        return product and _in_blocks(product, wants.group_channels)
    across = node.op_type == "Gemm" and node.integer("transB", 0)
    more = rest.transpose(1, 0) if across else rest
    sums, most = _sums(more, product.is_conv)
    product = replace(product, rest=more, sums=product.sums + sums, most=product.most + most)
    return _in_blocks(product, wants.group_channels)


def of_numbers_because(left: Grid, right: HeldIntegers, shape: Shape, unit: int) -> str:
    """Why a product of two quantised values, the second of this shape, is one of their numbers in floating point; empty
    where int8 kernels compute it. `left` is the grid of exact integers with one scale."""
    if not right.exact:
        return "its second factor is a mean of quantised values, which is no integer"
    if not right.grid.uniform:
        return "its second factor has one scale per channel"
    if left.centre or right.grid.centre:
        zeros = [f"{grid.centre + grid.offset} of {'uint8' if grid.offset else 'int8'}" for grid in (left, right.grid)]
        return f"its factors have the zero points {zeros[0]} and {zeros[1]}; two values need 0 of int8 or 128 of uint8"
    if shape[-1] % unit or shape[-2] % unit:
        return f"its second factor is {shape[-2]}x{shape[-1]}; int8 kernels need even numbers of rows and columns there"
    return ""


def _convolution(
    network: Network, node: Node, weights: TracedArray, grid: Grid, bias: TracedArray | None, wants: Wants
) -> IntegerProduct | None:
    shape, outputs = network.shape(node.inputs[0]), weights.shape[0]
    groups, unit = node.integer("group", 1), wants.int8_unit
    if (
        len(weights.shape) not in (3, 4)
        or grid.axis not in (None, 0)
        or (groups > 1 and (shape[1] % unit or outputs % unit))
    ):
        return None
    windows = windows_of(node, tuple(weights.shape[2:]), shape)
    rank = len(windows["kernel"])
    steps = [windows[name] for name in ("strides", "dilations")]
    largest = max(*windows["kernel"], *windows["pads"], *steps[0], *steps[1])
    reach = [(k - 1) * d + 1 for k, d in zip(windows["kernel"], windows["dilations"], strict=True)]
    outside = any(not 0 <= pad < size for pad, size in zip(windows["pads"], 2 * reach, strict=True))
    if any(len(set(step)) > 1 for step in steps) or largest > wants.longest_window or outside:
        return None
    pads = windows["pads"]
    if rank == 1:
        windows = {"kernel": (1, *windows["kernel"]), "strides": windows["strides"] * 2,
                   "dilations": windows["dilations"] * 2, "pads": (0, pads[0], 0, pads[1])}  # fmt: skip
    settings: Settings = (
        ("dilations", windows["dilations"]),
        ("group", groups),
        ("kernel_shape", windows["kernel"]),
        ("pads", windows["pads"]),
        ("strides", windows["strides"]),
    )
    sums, most = _sums(weights, is_conv=True)
    return IntegerProduct(outputs, weights, grid.scale, sums, most, _spread(bias, outputs), settings, groups)


def _in_blocks(product: IntegerProduct, block: int) -> IntegerProduct:
    """The product with groups made one, as many as leave the fewest blocks of `block` input by `block` output channels;
    0 leaves all groups."""
    if product.groups == 1 or product.weights is None or not block:
        return product
    groups, (outputs, inputs) = product.groups, product.weights.shape[:2]

    def blocks(together: int) -> int:
        return groups // together * ceil(together * inputs / block) * ceil(together * outputs / groups / block)

    together = min((number for number in range(1, groups + 1) if groups % number == 0), key=blocks)
    left = groups // together
    settings = tuple((name, left if name == "group" else value) for name, value in product.convolution)
    weights, rest = (each and _spread_groups(each, left, together) for each in (product.weights, product.rest))
    return replace(product, groups=left, convolution=settings, weights=weights, rest=rest)


def _spread_groups(weights: TracedArray, groups: int, together: int) -> TracedArray:
    """Weights (outputs, inputs, kernel...) of as many `groups`, each of which was `together` ones: zeros in the input
    channels of the others."""
    outputs, inputs, *kernel = weights.shape
    each = outputs // groups // together
    # The weights of an old group are followed by zeros for one more than all of them: each lies one further on.
    apart = weights.reshape(groups, together, 1, -1).pad(0, 0, together, 0)
    apart = apart.reshape(groups, together * (together + 1), -1)
    parts = apart.transpose(1, 0, 2).take(range(together * together))
    parts = parts.reshape(together, together, groups, each, inputs, *kernel)
    order = (2, 0, 3, 1, 4, *range(5, 5 + len(kernel)))
    return parts.transpose(*order).reshape(outputs, together * inputs, *kernel)


def average_of(network: Network, node: Node, wants: Wants) -> IntegerProduct | None:
    """The mean of windows over images as a convolution of ones; None for windows that reach into padding, and for
    kernels that `product_of` does not take."""
    shape = network.shape(node.inputs[0])
    if len(shape) != 4 or shape[1] % wants.int8_unit:
        return None
    kernel = node.integers("kernel_shape", shape[2:])
    windows = windows_of(node, kernel, shape)
    taps, out = kernel[0] * kernel[1], network.shape(node.outputs[0])[2:]
    strides = (1, 1) if out == (1, 1) else windows["strides"]
    inside = all((o - 1) * s + k <= e for o, s, k, e in zip(out, strides, kernel, shape[2:], strict=True))
    if any(windows["pads"]) or strides[0] != strides[1] or max(*kernel, *strides) > wants.longest_window or not inside:
        return None
    channels, zeros = shape[1], (0, 0, 0, 0)
    ones = TracedArray(np.ones((channels, 1, *kernel), np.int8), number(1).broadcast(channels, 1, *kernel))
    settings: Settings = (("dilations", (1, 1)), ("group", channels), ("kernel_shape", kernel), ("pads", zeros),
                          ("strides", strides))  # fmt: skip
    sums, most = _sums(ones, is_conv=True)
    scale = TracedArray.of(1.0 / taps).reshape(1)
    return IntegerProduct(channels, ones, scale, sums, most, None, settings, channels, unit=wants.int8_unit)


def _matrix(node: Node, weights: TracedArray, grid: Grid, bias: TracedArray | None) -> IntegerProduct | None:
    across = bool(node.integer("transB", 0))
    plain = node.number("alpha", 1.0) == node.number("beta", 1.0) == 1.0 and not node.integer("transA", 0)
    columns = 0 if across else 1
    if len(weights.shape) != 2 or not plain or grid.axis not in (None, columns):
        return None
    weights = weights.transpose(1, 0) if across else weights
    channels = weights.shape[1]
    if bias is not None and bias.array.size not in (1, channels):
        return None
    sums, most = _sums(weights, is_conv=False)
    return IntegerProduct(channels, weights, grid.scale, sums, most, _spread(bias, channels))


def _spread(bias: TracedArray | None, channels: int) -> TracedArray | None:
    return None if bias is None else bias.reshape(-1).broadcast(channels)


def _integers_of(network: Network, name: str) -> tuple[TracedArray, TracedArray | None, Grid] | None:
    """Constant integers less their zero points, as int8, what is left of them where they do not fit, and their grid,
    turned as a Transpose after them does. None for what is no constant of eight bits."""
    node = network.producer.get(name)
    if node is not None and node.op_type == "Transpose":
        found = _integers_of(network, node.inputs[0])
        return None if found is None else _turned(node, *found)
    if node is None or node.op_type != DEQUANTISE or node.inputs[0] not in network.constants:
        return None
    grid, integers = grid_of(network, node), network.traced(node.inputs[0])
    if grid is None or integers.array.dtype.itemsize != 1 or not integers.array.size:
        return None
    zero = grid.zero + grid.offset
    if not zero.any() and not grid.offset:
        return integers, None, grid
    less = integers
    if node.input(2):
        spread = [1] * len(integers.shape)
        if grid.axis is not None:
            spread[grid.axis] = -1
        less = integers - network.traced(node.input(2)).reshape(*spread)
    held = -(-less.least(TracedArray.of(MOST))).least(TracedArray.of(-LEAST))
    rest = less - held
    if rest.array.max() > MOST:
        return None
    return _as_int8(held), _as_int8(rest) if rest.array.any() else None, grid


def _turned(
    node: Node, weights: TracedArray, rest: TracedArray | None, grid: Grid
) -> tuple[TracedArray, TracedArray | None, Grid]:
    order = node.integers("perm", tuple(reversed(range(len(weights.shape)))))
    axis = None if grid.axis is None else order.index(grid.axis)
    more = None if rest is None else rest.transpose(*order)
    return weights.transpose(*order), more, replace(grid, axis=axis)


def _sums(weights: TracedArray, is_conv: bool) -> tuple[TracedArray, Floats]:
    """Sums of the weights per output channel, and the largest sums of products with integers."""
    axes = tuple(range(1, len(weights.shape))) if is_conv else (0,)
    return weights.sum(axes), -LEAST * np.abs(weights.float64).sum(axis=axes)


def _as_int8(integers: TracedArray) -> TracedArray:
    return replace(integers, array=integers.array.astype(np.int8))


def _bias(network: Network, name: str) -> TracedArray | None:
    """The numbers of a constant bias, dequantised where it is integers."""
    node = network.producer.get(name)
    if node is not None and node.op_type == DEQUANTISE and node.inputs[0] in network.constants:
        grid = grid_of(network, node)
        return None if grid is None else dequantised(network, node, grid)
    return network.traced(name) if name in network.constants else None
