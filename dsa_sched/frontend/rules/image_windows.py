"""Windows over any axes as windows over images of two, for targets that want them so.

    one axis      x [n, c, l]  --view-->  [n, c, 1, l]  --conv-->  [n, f, 1, m]  --view-->  [n, f, m]
    three axes    every plane an image: for convolutions the planes under a window lie in sequence in the
                  channels, for pools the planes are pooled first and then the depth
    strides or dilations of a convolution that differ: rows as a depth is in three axes

Views cost nothing. A mean is that of means, which have equal weights: windows are products of their axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.operation import Writer
from dsa_sched.frontend.network.traced import TracedArray
from partitioner.ir.graph import Attribute

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ImageWindow:
    """Windows over spatial axes: of each axis its taps, their spacing, the step and the padding on both sides."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    begins: Shape
    ends: Shape

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def reach(self) -> Shape:
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def pads_less_than_it_reaches(self) -> bool:
        """Whether no window lies in the padding as a whole, as kernels of images have it."""
        return all(0 <= pad < reach for pad, reach in zip(self.begins + self.ends, self.reach * 2, strict=True))

    def outputs(self, extents: Shape) -> Shape:
        """Number of windows that fit along each axis."""
        along = zip(extents, self.begins, self.ends, self.reach, self.strides, strict=True)
        return tuple((e + b + a - r) // s + 1 for e, b, a, r, s in along)

    def over(self, *axes: int) -> ImageWindow:
        """The window along some of its axes."""
        fields = (self.kernel, self.strides, self.dilations, self.begins, self.ends)
        return ImageWindow(*(tuple(field[axis] for axis in axes) for field in fields))

    def with_unit_axis_before(self) -> ImageWindow:
        """The window with an axis of one element before its own; its unused settings are those of the axis after it."""
        kernel, strides, dilations = (1, *self.kernel), self.strides[:1] + self.strides, self.dilations
        return ImageWindow(kernel, strides, dilations[:1] + dilations, (0, *self.begins), (0, *self.ends))

    def with_unit_axis_after(self) -> ImageWindow:
        """The window with an axis after its own of which every element is by itself."""
        return ImageWindow(
            (*self.kernel, 1), (*self.strides, 1), (*self.dilations, 1), (*self.begins, 0), (*self.ends, 0)
        )

    def without_padding(self) -> ImageWindow:
        return replace(self, begins=(0,) * self.rank, ends=(0,) * self.rank)

    def attributes(self) -> dict[str, Attribute]:
        """Attributes of operators of ours for this window."""
        return {
            "kernel": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": self.begins + self.ends,
        }


class OperationSteps:
    """The operations that one node becomes, each with a value of its own; `last` is the place of the node's result."""

    def __init__(self, writer: Writer, node: Node) -> None:
        self.writer = writer
        self.node = node
        self._made: list[str] = []

    def add(self, kind: str, shape: Shape, attributes: Mapping[str, Attribute], *inputs: str) -> str:
        """Add one more operation; returns the name of its result."""
        suffix = f"{kind}{len(self._made)}"
        result = self.writer.intermediate(self.node, suffix, shape)
        self._made.append(result)
        self.writer.add(self.node, kind, attributes, inputs=inputs, suffix=suffix)
        return result

    def view(self, x: str, *shape: int) -> str:
        return x if self.writer.shape(x) == shape else self.add("view", shape, {}, x)

    def transpose(self, x: str, *perm: int) -> str:
        shape = self.writer.shape(x)
        return self.add("transpose", tuple(shape[axis] for axis in perm), {"perm": perm}, x)

    def slice(self, x: str, axis: int, start: int, step: int, count: int) -> str:
        """`count` elements along one axis."""
        shape, none = self.writer.shape(x), (0,) * len(self.writer.shape(x))
        counts, starts, steps = (
            (*numbers[:axis], number, *numbers[axis + 1 :])
            for numbers, number in ((shape, count), (none, start), ((1,) * len(shape), step))
        )
        return self.part(x, starts, counts, steps)

    def part(self, x: str, starts: Shape, counts: Shape, steps: Shape = ()) -> str:
        """`counts` elements from `starts` on, along all axes."""
        steps = steps or (1,) * len(starts)
        if counts == self.writer.shape(x) and not any(starts) and set(steps) == {1}:
            return x
        return self.add("slice", counts, {"starts": starts, "steps": steps}, x)

    def taken(self, x: str, axis: int, indices: Shape) -> tuple[str, ...]:
        """Elements of one axis at these indices; none where there are no indices."""
        if not indices:
            return ()
        shape, step = self.writer.shape(x), indices[1] - indices[0] if len(indices) > 1 else 1
        if step and indices == tuple(indices[0] + step * i for i in range(len(indices))):
            return (self.slice(x, axis, indices[0], step, len(indices)),)
        wanted = (*shape[:axis], len(indices), *shape[axis + 1 :])
        return (self.add("take", wanted, {"axis": axis, "indices": indices}, x),)

    def pad(self, x: str, begins: Shape, ends: Shape, value: float = 0.0) -> str:
        """Along all axes."""
        if not any((*begins, *ends)):
            return x
        shape = tuple(sum(along) for along in zip(self.writer.shape(x), begins, ends, strict=True))
        return self.add("pad", shape, {"begins": begins, "ends": ends, "value": value}, x)

    def concat(self, pieces: tuple[str, ...], axis: int) -> str:
        if len(pieces) == 1:
            return pieces[0]
        shapes = [self.writer.shape(piece) for piece in pieces]
        extent = sum(shape[axis] for shape in shapes)
        return self.add("concat", (*shapes[0][:axis], extent, *shapes[0][axis + 1 :]), {"axis": axis}, *pieces)

    def constant(self, name: str, suffix: str, constant: TracedArray) -> str:
        return self.writer.store(f"{name}::{self.node.name}::{suffix}{len(self._made)}", constant)

    def finish(self, result: str) -> None:
        """The node's own result: this one, under its name. Where the last step made it, that step writes it."""
        target = self.node.outputs[:1]
        if self._made[-1:] == [result] and self.writer.shape(result) == self.writer.shape(target[0]):
            last = self.writer.operations.pop()
            del self.writer.values[result]
            self.writer.add(self.node, last.kind, dict(last.attributes), inputs=last.inputs, outputs=target)
        else:
            self.writer.add(self.node, "view", inputs=(result,), outputs=target)


def image_conv(
    steps: OperationSteps, x: str, weights: str, bias: tuple[str, ...], window: ImageWindow, groups: int
) -> str:
    """The convolution of [n, c, spatial...] with constant weights [f, c / groups, kernel...], by images."""
    writer = steps.writer
    n, c = writer.shape(x)[:2]
    filters = writer.shape(weights)[0]
    window, x = _with_own_padding(steps, x, window)
    extents = writer.shape(x)[2:]
    outputs = window.outputs(extents)
    if window.rank == 1:
        wide = window.with_unit_axis_before()
        x = steps.view(x, n, c, 1, *extents)
        shape = writer.shape(weights)
        flat = _reshaped(steps, weights, (*shape[:2], 1, *shape[2:]))
        y = steps.add("conv", (n, filters, 1, *outputs), {**wide.attributes(), "groups": groups}, x, flat, *bias)
        return steps.view(y, n, filters, *outputs)
    even = _with_equal_steps(window, outputs)
    if even is not None:
        even, x = _with_no_more_windows(steps, x, even, outputs)
        return steps.add("conv", (n, filters, *outputs), {**even.attributes(), "groups": groups}, x, weights, *bias)
    planes, weights = _planes(steps, x, weights, window, outputs[0], groups)
    y = image_conv(steps, planes, weights, bias, window.over(*range(1, window.rank)), groups)
    y = steps.view(y, n, outputs[0], filters, *outputs[1:])
    return steps.transpose(y, 0, 2, 1, *range(3, window.rank + 2))


def _with_own_padding(steps: OperationSteps, x: str, window: ImageWindow) -> tuple[ImageWindow, str]:
    """Write negative padding, or padding of a whole window, as a separate operator."""
    if window.pads_less_than_it_reaches:
        return window, x
    x = steps.pad(x, (0, 0, *window.begins), (0, 0, *window.ends))
    return window.without_padding(), x


def _with_equal_steps(window: ImageWindow, outputs: Shape) -> ImageWindow | None:
    """The window with one stride and one dilation for two axes; an axis with no use for its own takes the other's."""
    if window.rank != 2:
        return None
    strides = _equal(window.strides, tuple(count > 1 for count in outputs))
    dilations = _equal(window.dilations, tuple(taps > 1 for taps in window.kernel))
    if strides is None or dilations is None:
        return None
    return replace(window, strides=strides, dilations=dilations)


def _with_no_more_windows(
    steps: OperationSteps, x: str, window: ImageWindow, outputs: Shape
) -> tuple[ImageWindow, str]:
    """Limit the windows to the wanted number: with a smaller step along an axis of one window, more may fit."""
    n, c, *extents = steps.writer.shape(x)
    if window.outputs(tuple(extents)) == outputs:
        return window, x
    along = zip(outputs, window.strides, window.reach, window.begins, extents, window.ends, strict=True)
    needed = [(o - 1) * s + r - b - e for o, s, r, b, e, _ in along]
    ends = tuple(max(0, min(end, more)) for end, more in zip(window.ends, needed, strict=True))
    kept = tuple(extent + min(0, more) for extent, more in zip(extents, needed, strict=True))
    x = steps.part(x, (0,) * (2 + window.rank), (n, c, *kept))
    return replace(window, ends=ends), x


def _equal(numbers: Shape, counts: tuple[bool, ...]) -> Shape | None:
    meant = {number for number, counted in zip(numbers, counts, strict=True) if counted}
    if len(meant) > 1:
        return None
    return (meant.pop() if meant else 1,) * len(numbers) if len(set(numbers)) > 1 else numbers


def _planes(
    steps: OperationSteps, x: str, weights: str, window: ImageWindow, outputs: int, groups: int
) -> tuple[str, str]:
    """x [n, c, d, rest...] as images [n * outputs, c * taps, rest...], and weights for the rest of the axes.

    The channels of a plane lie together; those of several groups lie with their group."""
    writer = steps.writer
    n, c, _, *rest = writer.shape(x)
    filters, inside, taps, *kernel = writer.shape(weights)
    none = (0,) * len(rest)
    x = steps.pad(x, (0, 0, window.begins[0], *none), (0, 0, window.ends[0], *none))
    step, spacing = window.strides[0], window.dilations[0]
    pieces = tuple(steps.slice(x, 2, tap * spacing, step, outputs) for tap in range(taps))
    if groups == 1:
        joined = steps.concat(pieces, 1)
        order = (0, 2, 1, *range(3, 3 + len(kernel)))
        weights = steps.constant(weights, "planes", writer.traced(weights).transpose(*order))
    else:
        apart = tuple(steps.view(piece, n, c, 1, outputs, *rest) for piece in pieces)
        joined = steps.view(steps.concat(apart, 2), n, c * taps, outputs, *rest)
    by_plane = steps.transpose(joined, 0, 2, 1, *range(3, 3 + len(rest)))
    return (
        steps.view(by_plane, n * outputs, c * taps, *rest),
        _reshaped(steps, weights, (filters, inside * taps, *kernel)),
    )


def _reshaped(steps: OperationSteps, weights: str, shape: Shape) -> str:
    return steps.constant(weights, "reshaped", steps.writer.traced(weights).reshape(*shape))


def image_pool(steps: OperationSteps, x: str, kind: str, window: ImageWindow, counted: Mapping[str, Attribute]) -> str:
    """Write the pool of [n, c, spatial...] by images; `counted` says how a mean counts its padding."""
    writer = steps.writer
    n, c, *spatial = writer.shape(x)
    outputs = window.outputs(tuple(spatial))
    if window.rank == 1:
        x = steps.view(x, n, c, 1, *spatial)
        y = steps.add(kind, (n, c, 1, *outputs), {**window.with_unit_axis_before().attributes(), **counted}, x)
        return steps.view(y, n, c, *outputs)
    if window.rank == 2:
        return steps.add(kind, (n, c, *outputs), {**window.attributes(), **counted}, x)
    depth, rest = spatial[0], range(3, window.rank + 2)
    planes = steps.view(steps.transpose(x, 0, 2, 1, *rest), n * depth, c, *spatial[1:])
    y = image_pool(steps, planes, kind, window.over(*range(1, window.rank)), counted)
    y = steps.transpose(steps.view(y, n, depth, c, *outputs[1:]), 0, 2, 1, *rest)
    y = steps.view(y, n, c, depth, prod(outputs[1:]))
    deep = window.over(0).with_unit_axis_after()
    y = steps.add(kind, (n, c, outputs[0], prod(outputs[1:])), {**deep.attributes(), **counted}, y)
    return steps.view(y, n, c, *outputs)
