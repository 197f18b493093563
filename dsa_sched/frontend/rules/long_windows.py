"""Convolutions with longer windows or steps than a target can encode, as ones of short windows over more channels.

    x [n, c, l], k taps, step s   --view-->  [n, c, l / s, s]  --transpose-->  [n, c * s, l / s], k / s taps, step 1

The elements that one step passes become channels, and nothing is computed twice. Where the taps are still too many, a
block is several steps long, and the filters of all steps in a block are computed at once, as phases. Every product is
part of one sum as before, so that nothing is rounded in between. Axes are shortened one at a time.
"""

from __future__ import annotations

from math import inf

from dsa_sched.frontend.network.traced import TracedArray
from dsa_sched.frontend.rules.image_windows import ImageWindow, OperationSteps, image_conv

Shape = tuple[int, ...]


def has_long_windows(window: ImageWindow, limit: int) -> bool:
    """Whether a target that encodes numbers up to the limit (0: any) cannot encode these."""
    return bool(limit) and _longest(window) > limit


def _longest(window: ImageWindow) -> int:
    return max(*window.kernel, *window.strides, *window.dilations, *window.begins, *window.ends)


def _limit(steps: OperationSteps) -> float:
    """The largest number that the target encodes."""
    return steps.writer.wants.longest_window or inf


def long_conv(
    steps: OperationSteps, x: str, weights: str, bias: tuple[str, ...], window: ImageWindow, groups: int
) -> str:
    """The convolution as `image_conv` makes it, by windows that the target can encode."""
    limit = _limit(steps)
    along = (window.over(axis) for axis in range(window.rank))
    long = [axis for axis, one in enumerate(along) if max(*one.kernel, *one.strides, *one.dilations) > limit]
    if long:
        return _blocked(steps, x, weights, bias, window, groups, long[0])
    if max(*window.begins, *window.ends) > limit:
        x = steps.pad(x, (0, 0, *window.begins), (0, 0, *window.ends))
        window = window.without_padding()
    return image_conv(steps, x, weights, bias, window, groups)


def _blocked(
    steps: OperationSteps, x: str, weights: str, bias: tuple[str, ...], window: ImageWindow, groups: int, axis: int
) -> str:
    """The convolution with blocks of one axis as channels."""
    writer = steps.writer
    n, c, *extents = writer.shape(x)
    outputs, limit = window.outputs(tuple(extents)), _limit(steps)
    (reach,), (stride,), (begin,) = window.over(axis).reach, window.over(axis).strides, window.over(axis).begins
    phases = 1
    while (taps := -(-(reach + (phases - 1) * stride) // (stride * phases))) > limit:
        phases *= 2
    block = stride * phases
    count = -(-outputs[axis] // phases)
    blocks = count + taps - 1
    before, after = [0] * (2 + window.rank), [0] * (2 + window.rank)
    before[2 + axis], after[2 + axis] = begin, blocks * block - extents[axis] - begin
    x = steps.pad(x, tuple(before), tuple(after))
    front, back = extents[:axis], extents[axis + 1 :]
    x = steps.view(x, n, c, *front, blocks, block, *back)
    inner = 2 + axis + 1
    x = steps.transpose(x, 0, 1, inner, *range(2, inner), *range(inner + 1, 3 + window.rank))
    x = steps.view(x, n, c * block, *front, blocks, *back)
    name = _blocked_weights(steps, weights, window, axis, phases, taps)
    bias = tuple(spread_bias(steps, one, phases) for one in bias)
    y = long_conv(steps, x, name, bias, _short(window, axis, taps), groups)
    if phases > 1:
        y = _joined_phases(steps, y, phases, axis)
    filters = writer.shape(weights)[0]
    return steps.part(y, (0,) * (2 + window.rank), (n, filters, *outputs))


def _short(window: ImageWindow, axis: int, taps: int) -> ImageWindow:
    """The window with `taps` taps, one step and no padding along an axis."""

    def put(numbers: Shape, number: int) -> Shape:
        return (*numbers[:axis], number, *numbers[axis + 1 :])

    return ImageWindow(
        put(window.kernel, taps),
        put(window.strides, 1),
        put(window.dilations, 1),
        put(window.begins, 0),
        put(window.ends, 0),
    )


def _joined_phases(steps: OperationSteps, y: str, phases: int, axis: int) -> str:
    """[n, f * phases, ..., m, ...] -> [n, f, ..., m * phases, ...]."""
    n, channels, *extents = steps.writer.shape(y)
    y = steps.view(y, n, channels // phases, phases, *extents)
    place = 3 + axis
    y = steps.transpose(y, 0, 1, *range(3, place + 1), 2, *range(place + 1, 3 + len(extents)))
    joined = (*extents[:axis], extents[axis] * phases, *extents[axis + 1 :])
    return steps.view(y, n, channels // phases, *joined)


def _blocked_weights(steps: OperationSteps, name: str, window: ImageWindow, axis: int, phases: int, taps: int) -> str:
    """[f, c, ..., k, ...] as [f * phases, c * block, ..., taps, ...]."""
    rank, stride = window.rank, window.strides[axis]
    block, dilation = stride * phases, window.dilations[axis]
    # The axis first, its taps a dilation apart, then once for each phase, each a step later than the one before.
    order = (2 + axis, *(place for place in range(2 + rank) if place != 2 + axis))
    found = steps.writer.traced(name).transpose(*order)
    if dilation > 1:
        found = found.spread(0, dilation).take(range((found.shape[0] - 1) * dilation + 1))
    found = _phased(found, phases, stride, taps * block)
    # [phase, tap, place in the block, f, c, others...]
    filters, channels, *others = found.shape[2:]
    found = found.reshape(phases, taps, block, filters, channels, *others)
    front = range(5, 5 + axis)
    found = found.transpose(3, 0, 4, 2, *front, 1, *range(5 + axis, 5 + len(others)))
    found = found.reshape(filters * phases, channels * block, *others[:axis], taps, *others[axis:])
    return steps.constant(name, "blocks", found)


def _phased(taps: TracedArray, phases: int, stride: int, length: int) -> TracedArray:
    """[k, ...] as [phases, length, ...], each phase a stride later: rows that are a stride too long are stored in
    sequence and read in rows of the length, with zeros in between.
    """
    extent, *rest = taps.shape
    none = (0,) * len(rest)
    if phases == 1:
        return taps.pad(length - extent, *none).reshape(1, length, *rest)
    rows = taps.pad(length + stride - extent, *none).broadcast(phases, length + stride, *rest)
    stored = rows.reshape(phases * (length + stride), *rest)
    return stored.take(range(phases * length)).reshape(phases, length, *rest)


def spread_bias(steps: OperationSteps, bias: str, phases: int) -> str:
    """The bias, equal for all phases of a filter."""
    if phases == 1:
        return bias
    found = steps.writer.traced(bias).reshape(-1)
    filters = found.shape[0]
    wide = found.reshape(filters, 1).broadcast(filters, phases).reshape(filters * phases)
    return steps.constant(bias, "phases", wide)
