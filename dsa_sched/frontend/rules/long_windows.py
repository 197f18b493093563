"""Convolutions with longer windows or steps than a target can encode, as ones of short windows over more channels.

    x [n, c, l], k taps, step s   --view-->  [n, c, l / s, s]  --transpose-->  [n, c * s, l / s], k / s taps, step 1

The elements that one step passes become channels, and nothing is computed twice. Where the taps are still too many, a
block is several steps long, and the filters of all steps in a block are computed at once, as phases. Every product is
part of one sum as before, so that nothing is rounded in between. Axes are shortened one at a time.
"""

from __future__ import annotations

from math import inf

import numpy as np

from dsa_sched.frontend.network.network import Array
from dsa_sched.frontend.network.terms import Term
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
        none = (0,) * window.rank
        window = ImageWindow(window.kernel, window.strides, window.dilations, none, none)
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
    before, behind = [0] * (2 + window.rank), [0] * (2 + window.rank)
    before[2 + axis], behind[2 + axis] = begin, blocks * block - extents[axis] - begin
    x = steps.pad(x, tuple(before), tuple(behind))
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
    array, term = steps.writer.constants[name], steps.writer.term(name)
    rank, stride = window.rank, window.strides[axis]
    block = stride * phases
    # The axis first, its taps a dilation apart, then once for each phase, each a step later than the one before.
    order = (2 + axis, *(place for place in range(2 + rank) if place != 2 + axis))
    array, term = array.transpose(order), term.transpose(*order)
    array, term = _spread(array, term, window.dilations[axis])
    array, term = _phased(array, term, phases, stride, taps * block)
    # [phase, tap, place in the block, f, c, others...]
    others = array.shape[4:]
    filters, channels = array.shape[2:4]
    array, term = _reshaped(array, term, (phases, taps, block, filters, channels, *others))
    front = range(5, 5 + axis)
    turn = (3, 0, 4, 2, *front, 1, *range(5 + axis, 5 + len(others)))
    array, term = array.transpose(turn), term.transpose(*turn)
    shape = (filters * phases, channels * block, *others[:axis], taps, *others[axis:])
    array, term = _reshaped(array, term, shape)
    return steps.constant(name, "blocks", np.ascontiguousarray(array), term)


def _reshaped(array: Array, term: Term, shape: Shape) -> tuple[Array, Term]:
    return array.reshape(shape), term.reshape(*shape)


def _behind(array: Array, term: Term, more: int) -> tuple[Array, Term]:
    """`array` followed by zeros along the first axis."""
    pads = (more, *(0,) * (array.ndim - 1))
    return np.pad(array, [(0, pad) for pad in pads]), term.pad(*pads)


def _spread(array: Array, term: Term, dilation: int) -> tuple[Array, Term]:
    """Zeros between the elements of the first axis."""
    if dilation == 1:
        return array, term
    extent, *rest = array.shape
    pads = (0, dilation - 1, *(0,) * len(rest))
    array, term = _reshaped(array, term, (extent, 1, *rest))
    array, term = np.pad(array, [(0, pad) for pad in pads]), term.pad(*pads)
    array, term = _reshaped(array, term, (extent * dilation, *rest))
    kept = (extent - 1) * dilation + 1
    return array[:kept], term.take(tuple(range(kept)))


def _phased(array: Array, term: Term, phases: int, stride: int, length: int) -> tuple[Array, Term]:
    """[k, ...] as [phases, length, ...], each phase a stride later: rows that are a stride too long are stored in
    sequence and read in rows of the length, with zeros in between.
    """
    extent, *rest = array.shape
    if phases == 1:
        array, term = _behind(array, term, length - extent)
        return _reshaped(array, term, (1, length, *rest))
    array, term = _behind(array, term, length + stride - extent)
    wide = (phases, length + stride, *rest)
    array, term = np.broadcast_to(array, wide), term.broadcast(*wide)
    array, term = _reshaped(array, term, (phases * (length + stride), *rest))
    kept = phases * length
    return _reshaped(array[:kept], term.take(tuple(range(kept))), (phases, length, *rest))


def spread_bias(steps: OperationSteps, bias: str, phases: int) -> str:
    """The bias, equal for all phases of a filter."""
    if phases == 1:
        return bias
    array, term = steps.writer.constants[bias].reshape(-1), steps.writer.term(bias)
    spread, wide = (len(array), phases), len(array) * phases
    return steps.constant(
        bias,
        "phases",
        np.broadcast_to(array[:, None], spread).reshape(wide),
        term.reshape(len(array), 1).broadcast(*spread).reshape(wide),
    )
