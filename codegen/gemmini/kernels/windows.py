"""Windows on the core, tap by tap: convolutions of one channel each, maxima, means, and padding.

    start; for each tap, the outputs whose tap lies inside the input: result + x * w, or max(result, x)

Each pass is one loop over a box of the result, as many rows at a time as find room in the part of the main memory for
sums. Sums of a convolution are whole numbers in float32, which are exact below 2^24. At last sums are scaled, and the
operators that follow are applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from codegen.gemmini.isa.geometry import BASE, CODE_BYTES, MAIN, SUMS_BYTES
from codegen.gemmini.kernels.elements import ElementPlace, Placed, chain_of, element_loops, element_stream, source_place
from codegen.gemmini.kernels.loops import strides
from codegen.gemmini.streams.instructions import core_instr, fence
from codegen.gemmini.streams.streams import Elements, Item
from isched.lowering.strided_copies import box_regions
from isched.program.program import Instr, Region
from isched.program.target import PlacedArray
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, full_box

EXACT = 1 << 24
"""Whole numbers up to this one are float32 numbers."""

SUMS_NAME = "::sums"


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis of a window: extents of input and result, taps, step, distance of taps, padding before."""

    input: int
    output: int
    taps: int
    step: int
    dilation: int
    pad: int

    def inside(self, tap: int, low: int, high: int) -> tuple[int, int]:
        """Outputs from `low` to `high` whose tap lies inside the input, as (first, end)."""
        shift = tap * self.dilation - self.pad
        first = max(low, -(shift // self.step) if shift < 0 else 0)
        end = min(high, (self.input - 1 - shift) // self.step + 1)
        return first, max(first, end)


def window_axes(graph: Graph, op: Op) -> tuple[WindowAxis, WindowAxis]:
    """Both axes of an operator over images."""
    x, y = graph.by_name[op.inputs[0]].shape, graph.by_name[op.outputs[0]].shape
    each = [op.ints(name) for name in ("kernel", "strides", "dilations", "pads")]
    rows, columns = (WindowAxis(x[1 + axis], y[1 + axis], *(part[axis] for part in each)) for axis in range(2))
    return rows, columns


def is_depthwise(graph: Graph, op: Op) -> bool:
    """Whether a convolution has one input and one output channel per group."""
    if op.kind != "conv" or len(graph.by_name[op.inputs[0]].shape) != 4:
        return False
    groups, channels = int(op.number("groups")), graph.by_name[op.inputs[0]].shape[-1]
    return groups > 1 and groups == channels == graph.by_name[op.outputs[0]].shape[-1]


def inexact(graph: Graph, constants: Constants, op: Op) -> str | None:
    """Why sums of a convolution of one channel each are not exact in float32; None where they are."""
    weights = constants[graph.by_name[op.inputs[1]].constant or ""].astype(np.int64)
    most = 128 * np.abs(weights).sum(axis=(0, 1, 2))
    if len(op.inputs) > 3:
        most = most + np.abs(constants[graph.by_name[op.inputs[3]].constant or ""].astype(np.int64))
    if int(most.max()) < EXACT:
        return None
    return f"its sums may reach {int(most.max()):,}; the core adds them exactly below {EXACT:,}"


def _element(
    constants: Sequence[float], steps: Sequence[tuple[str, int, int]], sources: Sequence[ElementPlace],
    result: ElementPlace,
) -> Elements:  # fmt: skip
    bits = tuple(int(np.float32(number).view(np.uint32)) for number in constants)
    return Elements(bits, tuple(sources), tuple(steps), result)


def filled(counts: Sequence[int], value: float, result: Placed) -> tuple[Item, ...]:
    """A value everywhere."""

    def make(sources: Sequence[ElementPlace], to: ElementPlace) -> Elements:
        return _element((value,), (("larger", 0, 0),), sources, to)

    return element_loops(counts, make, (result,))


def combined(
    counts: Sequence[int], steps: Sequence[tuple[str, int, int]], places: Sequence[Placed]
) -> tuple[Item, ...]:
    """Steps for each element; `places` are those of the sources and of the result, last."""

    def make(sources: Sequence[ElementPlace], to: ElementPlace) -> Elements:
        return _element((), steps, sources, to)

    return element_loops(counts, make, places)


@dataclass(frozen=True, slots=True)
class WindowLayer:
    """A layer whose anchor is one of these operators, with the places of its operands and of its result."""

    graph: Graph
    constants: Constants
    layer: Layer
    operands: Mapping[str, PlacedArray]
    result: PlacedArray

    @property
    def op(self) -> Op:
        return self.layer.anchor(self.graph)

    def at(self, name: str, indices: Sequence[int], steps: Sequence[int]) -> Placed:
        """A whole operand from some indices on; it goes on by `steps` elements along its axes."""
        tensor = self.graph.by_name[name]
        own = strides(tensor.shape, tensor.item_bytes)
        start = BASE + self.operands[name].offset_bytes + sum(i * step for i, step in zip(indices, own, strict=True))
        return tensor.dtype, start, [step * count for step, count in zip(own, steps, strict=True)]

    def whole(self, name: str) -> tuple[Region, ...]:
        tensor = self.graph.by_name[name]
        place = self.result if name == self.layer.output else self.operands[name]
        return box_regions(MAIN, place.offset_bytes, tensor.shape, full_box(tensor.shape), tensor.item_bytes)


def window_streams(layer: WindowLayer) -> Iterator[Item]:
    """Loops of the whole layer."""
    return _padded(layer) if layer.op.kind == "pad" else _windows(layer)


def whole_layer_instrs(layer: WindowLayer, stream: Iterator[Item]) -> tuple[Instr, ...]:
    """Instructions of a whole layer, done by the core."""
    reads = [region for name in layer.operands for region in layer.whole(name)]
    source, result = layer.layer.name, layer.whole(layer.layer.output)
    return (fence(source), core_instr("elements", tuple(stream), tuple(reads), result, source))


def _taps(axes: tuple[WindowAxis, WindowAxis], rows: tuple[int, int]) -> Iterator[tuple[tuple[int, int], Box, Box]]:
    """Each tap with the box of outputs, among `rows`, that it is inside the input for, and the first input of each."""
    down, along = axes
    for tap in product(range(down.taps), range(along.taps)):
        r, c = down.inside(tap[0], *rows), along.inside(tap[1], 0, along.output)
        if r[0] < r[1] and c[0] < c[1]:
            first = (r[0] * down.step + tap[0] * down.dilation - down.pad,
                     c[0] * along.step + tap[1] * along.dilation - along.pad)  # fmt: skip
            yield tap, (r, c), ((first[0], 0), (first[1], 0))


def _padded(layer: WindowLayer) -> Iterator[Item]:
    """The value everywhere, then the operand over it."""
    op, shape = layer.op, layer.graph.by_name[layer.layer.output].shape
    own = strides(shape, 4)
    start = BASE + layer.result.offset_bytes
    yield from filled(shape, op.number("value"), ("float32", start, own))
    inner = layer.graph.by_name[op.inputs[0]].shape
    begins = op.ints("begins")
    x = layer.at(op.inputs[0], (0,) * len(inner), (1,) * len(inner))
    to = "float32", start + sum(b * step for b, step in zip(begins, own, strict=True)), own
    yield from combined(inner, (("larger", 0, 0),), (x, to))


def _windows(layer: WindowLayer) -> Iterator[Item]:
    """As many rows of an image at a time as find room where sums wait."""
    axes = window_axes(layer.graph, layer.op)
    images, rows, columns, channels = layer.graph.by_name[layer.op.outputs[0]].shape
    at_once = max(1, SUMS_BYTES // (4 * columns * channels))
    for image in range(images):
        for low in range(0, rows, at_once):
            part = (low, min(rows, low + at_once))
            yield from _window_rows(layer, axes, image, part)
            yield from _finished(layer, image, part)


def _window_rows(
    layer: WindowLayer, axes: tuple[WindowAxis, WindowAxis], image: int, rows: tuple[int, int]
) -> Iterator[Item]:
    """Sums of products or of numbers, or maxima, of some rows."""
    op, graph = layer.op, layer.graph
    _, _, columns, channels = graph.by_name[op.outputs[0]].shape
    shape = (rows[1] - rows[0], columns, channels)
    own = strides(shape, 4)
    start = BASE + CODE_BYTES
    waiting: Placed = ("float32", start, own)
    if len(op.inputs) > 3:
        bias = BASE + layer.operands[op.inputs[3]].offset_bytes
        yield from combined(shape, (("larger", 0, 0),), (("int32", bias, (0, 0, 4)), waiting))
    else:
        yield from filled(shape, -np.inf if op.kind == "max_pool" else 0.0, waiting)
    for tap, box, first in _taps(axes, rows):
        (r0, r1), (c0, c1) = box
        to = "float32", start + (r0 - rows[0]) * own[0] + c0 * own[1], own
        x = layer.at(op.inputs[0], (image, first[0][0], first[1][0], 0), (1, axes[0].step, axes[1].step, 1))
        inner = (x[0], x[1], x[2][1:])
        counts = (r1 - r0, c1 - c0, channels)
        if op.kind == "conv":
            w = layer.at(op.inputs[1], (*tap, 0, 0), (0, 0, 0, 1))
            weight = (w[0], w[1], (0, 0, w[2][3]))
            yield from combined(counts, (("multiply", 1, 2), ("add", 0, 3)), (to, inner, weight, to))
        else:
            step = "larger" if op.kind == "max_pool" else "add"
            yield from combined(counts, ((step, 0, 1),), (to, inner, to))


def _finished(layer: WindowLayer, image: int, rows: tuple[int, int]) -> tuple[Item, ...]:
    """Scaled sums or maxima, and the operators that follow."""
    op, graph = layer.op, layer.graph
    _, _, columns, channels = graph.by_name[op.outputs[0]].shape
    box: Box = ((image, image + 1), rows, (0, columns), (0, channels))
    chain = chain_of(graph, layer.constants, (), {op.outputs[0]: SUMS_NAME})
    if op.kind == "conv":
        chain.value[op.outputs[0]] = chain.step("multiply", chain.value[op.outputs[0]], chain.operand(op.inputs[2]))
    if op.kind == "average_pool":
        rate = 1.0 / prod(op.ints("kernel"))
        chain.value[op.outputs[0]] = chain.step("multiply", chain.value[op.outputs[0]], chain.number(rate))
    for follower in layer.layer.epilogue(graph):
        chain.apply(follower)
    own = strides((1, rows[1] - rows[0], columns, channels), 4)
    places: dict[str, Placed] = {SUMS_NAME: ("float32", BASE + CODE_BYTES, own)}
    for name in chain.sources:
        if name != SUMS_NAME:
            places[name] = source_place(graph, name, layer.operands[name], box, BASE)
    return element_stream(chain, graph, box, places, layer.layer.output, layer.result, BASE)
