"""Networks and chips for tests of plans: random ones that can be executed, and chains of any length.

    Choices (hypothesis or a seed)  -->  random_graph: (Graph, Constants);  random_chip: Chip
    number of layers  -->  chain_graph

A random network is made of the patterns that partitioning has rules for (chains, diamonds, branches, dense blocks, ways
down and up again with skips), with strides, dilations and uneven padding in between, and of values that are met again
far behind their makers. Nothing dangles: what nobody reads is an output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol, TypeVar

import numpy as np
from hypothesis import strategies as st

from hw_models.chip import Chip
from partitioner.ir.graph import Constants, Graph
from tests.chip_runs import small_chip
from tests.movement_graphs import MovementBuilder
from tests.small_graphs import Pads

__all__ = [
    "Choices",
    "Drawn",
    "Seeded",
    "chain_graph",
    "chips",
    "graphs",
    "random_chip",
    "random_graph",
    "tight_chip",
]

Item = TypeVar("Item")
KIB = 1024
LARGEST_ELEMENTS = 8_000  # of a value, so that one simulated run takes a fraction of a second
MOST_CHANNELS = 48


class Choices(Protocol):
    """Where random decisions come from."""

    def number(self, low: int, high: int) -> int:
        """Both ends included."""

    def one_of(self, items: Sequence[Item]) -> Item:
        """One of some items; simple ones should come first, for hypothesis shrinks towards them."""


class Drawn:
    """By hypothesis, which makes a failing network smaller."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one_of(self, items: Sequence[Item]) -> Item:
        return self.draw(st.sampled_from(items))


class Seeded:
    """By a seed, for loops without hypothesis."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[int(self.rng.integers(len(items)))]


Pattern = Callable[[MovementBuilder, Choices, str], str]
"""Appends operators that read a feature map [N, H, W, C], and perhaps older ones; the value they end with."""


def random_graph(choose: Choices, most_patterns: int = 5) -> tuple[Graph, Constants]:
    """A network of one to some twenty operators with one or more outputs; values of at most `LARGEST_ELEMENTS`."""
    builder = MovementBuilder("random", choose.number(0, 1 << 16))
    shape = (choose.number(1, 6), choose.number(4, 16), choose.number(4, 16), choose.one_of((8, 1, 3, 5, 16, 24)))
    x = builder.input("x", *shape)
    for _ in range(choose.number(1, most_patterns)):
        x = choose.one_of(PATTERNS)(builder, choose, x)
        if choose.number(0, 5) == 5:
            x = choose.one_of(_maps(builder))  # a branch that nothing joins again is an output
    if choose.number(0, 2) == 0:
        _tail(builder, choose, x)
    read = {name for op in builder.ops for name in op.inputs}
    outputs = [op.outputs[0] for op in builder.ops if op.outputs[0] not in read]
    if choose.number(0, 3) == 3:
        outputs.append(choose.one_of([op.outputs[0] for op in builder.ops]))
    return builder.build(*dict.fromkeys(outputs))


def _maps(builder: MovementBuilder) -> list[str]:
    """Feature maps made so far."""
    made = [*builder.inputs, *(op.outputs[0] for op in builder.ops)]
    return [name for name in made if len(builder.shape(name)) == 4]


def _like(builder: MovementBuilder, shape: tuple[int, ...], free: int | None = None) -> list[str]:
    """Older values of a shape, but for the extent of one axis."""
    met = {
        name: [ours == theirs for ours, theirs in zip(builder.shape(name), shape, strict=True)]
        for name in _maps(builder)
    }
    return [name for name, equal in met.items() if all(same or axis == free for axis, same in enumerate(equal))]


def _conv(builder: MovementBuilder, choose: Choices, x: str) -> str:
    """Windows of any shape, padded unevenly, with gaps and strides; output channels as few as fit."""
    stride, dilation = choose.number(1, 3), choose.number(1, 2)
    _, height, width, inside = builder.shape(x)
    kernel, pads = _window(choose, *(min(5, (extent - 1) // dilation + 1) for extent in (height, width)))
    groups = choose.one_of((1, 1, *(g for g in (2, 3, inside) if inside % g == 0)))
    channels = groups * choose.number(1, max(1, 24 // groups))
    y = builder.conv(x, channels, kernel, stride, pads, bool(choose.number(0, 1)), dilation, groups)
    return _bounded(builder, choose.one_of((_plain, _relu, _scaled))(builder, y))


def _window(choose: Choices, most_rows: int, most_columns: int) -> tuple[tuple[int, int], Pads]:
    """A kernel and paddings around it, each smaller than the kernel."""
    rows, columns = choose.number(1, most_rows), choose.number(1, most_columns)
    top, left, bottom, right = (choose.number(0, size - 1) for size in (rows, columns, rows, columns))
    return (rows, columns), (top, left, bottom, right)


def _pool(builder: MovementBuilder, choose: Choices, x: str) -> str:
    _, height, width, _ = builder.shape(x)
    kernel, pads = _window(choose, min(3, height), min(3, width))
    kind = choose.one_of(("max_pool", "average_pool"))
    counted = kind == "average_pool" and bool(choose.number(0, 1))
    return builder.pool(kind, x, kernel, choose.number(1, 3), pads, counted)


def _straight(builder: MovementBuilder, choose: Choices, x: str) -> str:
    for _ in range(choose.number(1, 4)):
        x = choose.one_of((_conv, _conv, _pool))(builder, choose, x)
    return x


def _diamond(builder: MovementBuilder, choose: Choices, x: str) -> str:
    """A residual block, with a projection where the branch changes the shape."""
    stride, channels = choose.number(1, 2), choose.one_of((builder.shape(x)[3], 8, 20))
    y = _relu(builder, builder.conv(x, channels, stride=stride))
    if choose.number(0, 1):
        reach = choose.number(1, 2)
        y = builder.conv(y, channels, pads=(reach,) * 4, dilation=reach)
    if builder.shape(y) != builder.shape(x):
        y, x = _fitted_pair(builder, x, y)
    return choose.one_of((_relu, _plain))(builder, builder.elementwise("add", y, x))


def _fitted_pair(builder: MovementBuilder, x: str, y: str) -> tuple[str, str]:
    """`y`, and a projection of `x` by a window that gives the shape of `y`."""
    (_, height, width, _), (_, rows, columns, channels) = builder.shape(x), builder.shape(y)
    stride = max(1, height // rows)
    kernel = (height - (rows - 1) * stride, width - (columns - 1) * stride)
    if min(kernel) < 1 or max(kernel) > 8:
        return y, y
    return y, builder.conv(x, channels, kernel, stride, (0, 0, 0, 0))


def _inverted(builder: MovementBuilder, choose: Choices, x: str) -> str:
    """Wider, depthwise, narrower; added to its input where the shape allows it."""
    channels = builder.shape(x)[3]
    wide = min(MOST_CHANNELS, channels * choose.number(1, 3))
    stride = choose.number(1, 2)
    y = _relu(builder, builder.conv(x, wide, (1, 1), pads=(0, 0, 0, 0)))
    y = _relu(builder, builder.conv(y, wide, stride=stride, groups=wide))
    y = builder.conv(y, channels, (1, 1), pads=(0, 0, 0, 0))
    return builder.elementwise("add", x, y) if builder.shape(y) == builder.shape(x) else y


def _branches(builder: MovementBuilder, choose: Choices, x: str) -> str:
    """Windows of several sizes side by side, joined along the channels."""
    parts = [builder.conv(x, choose.number(1, 12), (1, 1), pads=(0, 0, 0, 0))]
    parts.append(_relu(builder, builder.conv(x, choose.number(1, 12))))
    if choose.number(0, 1):
        parts.append(builder.pool("max_pool", x, (3, 3), 1, (1, 1, 1, 1)))
    if choose.number(0, 1):
        narrow = builder.conv(x, 4, (1, 1), pads=(0, 0, 0, 0))
        parts.append(builder.conv(narrow, choose.number(1, 8), (5, 5), pads=(2, 2, 2, 2)))
    return _bounded(builder, builder.concat(3, *parts))


def _dense(builder: MovementBuilder, choose: Choices, x: str) -> str:
    """Every layer reads all before it."""
    for _ in range(choose.number(1, 3)):
        y = builder.conv(_relu(builder, _scaled(builder, x)), choose.number(1, 8))
        x = builder.concat(3, x, y)
    return _bounded(builder, x)


def _down_and_up(builder: MovementBuilder, choose: Choices, x: str) -> str:
    """Pooled, computed, up-sampled, joined with what was there before."""
    n, height, width, _ = builder.shape(x)
    if min(height, width) < 2:
        return _relu(builder, x)
    y = builder.pool("max_pool", x, (2, 2), 2)
    y = _relu(builder, builder.conv(y, choose.number(1, 12)))
    y = builder.resize(y, (n, height, width, builder.shape(y)[3]), "nearest", "asymmetric", "floor")
    return _bounded(builder, builder.concat(3, x, builder.conv(y, choose.number(1, 12))))


def _larger(builder: MovementBuilder, choose: Choices, x: str) -> str:
    """Up-sampled by a factor that need not be whole, where the result stays small."""
    n, height, width, channels = builder.shape(x)
    shape = (n, choose.number(height, 2 * height), choose.number(width, 2 * width), channels)
    return builder.resize(x, shape) if prod(shape) <= LARGEST_ELEMENTS else _relu(builder, x)


def _far(builder: MovementBuilder, choose: Choices, x: str) -> str:
    """Meets a value from anywhere before: added, or joined along some axis."""
    equal = _like(builder, builder.shape(x))
    if choose.number(0, 1):
        return builder.elementwise(choose.one_of(("add", "sub", "mul")), x, choose.one_of(equal))
    axis = choose.one_of((3, 1, 2, 0))
    return _bounded(builder, builder.concat(axis, x, choose.one_of(_like(builder, builder.shape(x), axis))))


def _tail(builder: MovementBuilder, choose: Choices, x: str) -> str:
    """A classifier: means, a matrix product, perhaps a softmax."""
    n, _, _, channels = builder.shape(x)
    flat = builder.view(builder.reduce("mean", x, 1, 2), n, channels)
    y = builder.matmul(flat, builder.normal(channels, choose.number(2, 20), scale=channels**-0.5))
    return builder.softmax(y) if choose.number(0, 1) else y


def _bounded(builder: MovementBuilder, x: str) -> str:
    """A narrow copy of what has grown too large, by its channels or by all its elements."""
    shape = builder.shape(x)
    if shape[3] > MOST_CHANNELS:
        x = builder.conv(x, 8, (1, 1), pads=(0, 0, 0, 0))
    if prod(builder.shape(x)) > LARGEST_ELEMENTS and min(shape[1:3]) > 2:
        x = builder.pool("max_pool", x, (3, 3), 2, (1, 1, 1, 1))
    return x


def _plain(_builder: MovementBuilder, x: str) -> str:
    return x


def _relu(builder: MovementBuilder, x: str) -> str:
    return builder.elementwise("relu", x)


def _scaled(builder: MovementBuilder, x: str) -> str:
    return builder.scale_shift(x)


PATTERNS: tuple[Pattern, ...] = (
    _conv,
    _straight,
    _diamond,
    _branches,
    _down_and_up,
    _far,
    _far,
    _inverted,
    _dense,
    _pool,
    _larger,
)


def chain_graph(layers: int, extent: int = 8, channels: int = 8, batch: int = 1) -> tuple[Graph, Constants]:
    """Convolution, ReLU, convolution, ReLU, ...: `layers` operators, all of one shape."""
    builder = MovementBuilder(f"chain{layers}")
    x = builder.input("x", batch, extent, extent, channels)
    for number in range(layers):
        x = _relu(builder, x) if number % 2 else builder.conv(x, channels, bias=False)
    return builder.build(x)


def random_chip(choose: Choices) -> Chip:
    """The stcp920 with 1 to 8 cores, local data of 4 KiB to 1 MiB, 16 KiB to 8 MiB of staging memory."""
    return small_chip(
        cores=choose.number(1, 8),
        data_bytes=choose.one_of((1024, 256, 64, 24, 12, 8, 4)) * KIB,
        weights_bytes=choose.one_of((256, 64, 16, 8)) * KIB,
        im_bytes=choose.one_of((256, 64, 16)) * KIB,
        llb_bytes=choose.one_of((8192, 1024, 256, 96, 32, 16)) * KIB,
        enforced=choose.one_of((True, False)),
    )


def tight_chip(choose: Choices) -> Chip:
    """Few cores with little memory, yet enough for most tiles: networks are cut into many instances."""
    return small_chip(
        cores=choose.number(1, 4),
        data_bytes=choose.one_of((12, 8, 16, 24, 48)) * KIB,
        llb_bytes=choose.one_of((256, 1024, 128, 64)) * KIB,
        enforced=choose.one_of((True, False)),
    )


@st.composite
def graphs(draw: st.DrawFn, most_patterns: int = 5) -> tuple[Graph, Constants]:
    """Random networks with their constants."""
    return random_graph(Drawn(draw), most_patterns)


@st.composite
def chips(draw: st.DrawFn) -> Chip:
    """Random chips, every other one tight."""
    choose = Drawn(draw)
    return choose.one_of((random_chip, tight_chip))(choose)
