"""Makers of operators that only move data or only say another shape, and of those that are known once shapes are."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.draft import Attribute, Draft, Maker, Shape, with_extent, without_axis

__all__ = ["MOVEMENT", "add_view"]

MOST_AXES = 5
INT64 = int(TensorProto.INT64)


def _concat(draft: Draft, op_type: str, x: str) -> bool:
    """Up to four pieces, values met twice and constants among them."""
    shape = draft.shapes[x]
    axis = draft.axis(shape)
    fitting = draft.like(shape, axis)
    names = [x, *(draft.one_of(*fitting) for _ in range(draft.number(0, 3)))]
    extents = [draft.shapes[name][axis] for name in names]
    if draft.number(0, 3) == 0:
        extents.append(draft.number(1, 3))
        names.append(draft.weights(*with_extent(shape, axis, extents[-1])))
    start = draft.number(0, len(names) - 1)
    names = names[start:] + names[:start]
    draft.add(op_type, names, with_extent(shape, axis, sum(extents)), axis=draft.signed(axis, len(shape)))
    return True


def _split(draft: Draft, op_type: str, x: str) -> bool:
    """Two to four pieces of any extents, or equal ones by their number."""
    shape = draft.shapes[x]
    wide = [axis for axis, extent in enumerate(shape) if extent > 1]
    if not wide:
        return False
    axis = draft.one_of(*wide)
    extent = shape[axis]
    count = draft.number(2, min(4, extent))
    written = draft.signed(axis, len(shape))
    settings: dict[str, Attribute] = {"axis": written} if written or draft.flip() else {}
    inputs: list[str] = []
    if extent % count == 0 and draft.flip():
        sizes = [extent // count] * count
        if draft.opset >= 18:
            settings["num_outputs"] = count
    else:
        cuts = sorted({draft.number(1, extent - 1) for _ in range(count - 1)})
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, extent], strict=True)]
        inputs, named = draft.listed("split", sizes, 13)
        settings |= named
    draft.add(op_type, [x, *inputs], *(with_extent(shape, axis, size) for size in sizes), **settings)
    return True


def _slice(draft: Draft, op_type: str, x: str) -> bool:
    """One axis or more, forwards and, where the operator set has steps, backwards."""
    shape = draft.shapes[x]
    axes = draft.axes(shape)
    starts, ends, steps, result = [], [], [], list(shape)
    for axis in axes:
        extent = shape[axis]
        step = draft.one_of(1, 1, 2, 3, -1, -2) if draft.opset >= 10 else 1
        chosen = range(extent)[draft.number(0, extent - 1) :: step]
        chosen = chosen[: draft.number(1, len(chosen))]
        stop = chosen[-1] + (1 if step > 0 else -1)
        starts.append(chosen[0] - extent if draft.flip() else chosen[0])
        ends.append(-extent - 1 if stop < 0 else draft.one_of(stop, 1 << 40) if stop == extent else stop)
        steps.append(step)
        result[axis] = len(chosen)
    if draft.opset < 10:
        named: dict[str, Attribute] = {"axes": axes} if axes != tuple(range(len(axes))) or draft.flip() else {}
        draft.add(op_type, [x], tuple(result), starts=starts, ends=ends, **named)
        return True
    inputs = [x, draft.integers(*starts), draft.integers(*ends)]
    plain = all(step == 1 for step in steps) and draft.flip()
    if axes != tuple(range(len(axes))) or not plain or draft.flip():
        inputs.append(draft.integers(*(draft.signed(axis, len(shape), 10) for axis in axes)))
        inputs += [] if plain else [draft.integers(*steps)]
    draft.add(op_type, inputs, tuple(result))
    return True


def _pad(draft: Draft, op_type: str, x: str) -> bool:
    """More, or less by negative numbers; all axes, or only those named."""
    shape = draft.shapes[x]
    value = draft.one_of(0.0, -1.5)
    axes = draft.axes(shape) if draft.opset >= 18 and draft.flip() else tuple(range(len(shape)))
    modes = ("constant", "constant", "edge", "reflect", *(("wrap",) if draft.opset >= 19 else ()))
    mode = draft.one_of(*modes)
    if mode == "reflect":  # as far as there is something to reflect
        begins, ends = ([draft.number(0, min(2, shape[axis] - 1)) for axis in axes] for _ in range(2))
    elif mode != "constant":
        begins, ends = ([draft.number(0, min(2, shape[axis])) for axis in axes] for _ in range(2))
    else:
        begins = [draft.one_of(0, 1, 2, -1) for _ in axes]
        ends = [draft.one_of(0, 1, 2, -1) for _ in axes]
    result = list(shape)
    for axis, begin, end in zip(axes, begins, ends, strict=True):
        result[axis] += begin + end
    kept = [shape[a] + min(b, 0) + min(e, 0) for a, b, e in zip(axes, begins, ends, strict=True)]
    if min(kept) < 1:
        return False  # refused: nothing would be left of the value
    settings: dict[str, Attribute] = {"mode": mode} if mode != "constant" or draft.flip() else {}
    value = value if mode == "constant" else 0.0
    if draft.opset < 11:
        settings |= {"pads": (*begins, *ends)} | ({"value": value} if value else {})
        draft.add(op_type, [x], tuple(result), **settings)
        return True
    inputs = [x, draft.integers(*begins, *ends)]
    named = axes != tuple(range(len(shape))) or (draft.opset >= 18 and draft.flip())
    if value or named:
        inputs.append(draft.number_constant(value) if value else "")
    if named:
        inputs.append(draft.integers(*(draft.signed(axis, len(shape)) for axis in axes)))
    draft.add(op_type, inputs, tuple(result), **settings)
    return True


def _expand(draft: Draft, op_type: str, x: str) -> bool:
    """Axes of one element get more, and there may be axes ahead."""
    shape = draft.shapes[x]
    ahead = (draft.number(1, 2),) if len(shape) < MOST_AXES and draft.flip() else ()
    result = (*ahead, *(draft.number(1, 3) if extent == 1 else extent for extent in shape))
    target = [1 if draft.flip() else extent for extent in result[len(ahead) :]]
    asked = [a if b == 1 else b for a, b in zip(result[len(ahead) :], shape, strict=True)]
    listed = [a if b == 1 and a > 1 else t for a, b, t in zip(asked, shape, target, strict=True)]
    draft.add(op_type, [x, draft.integers(*ahead, *listed)], result)
    return True


def _tile(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    times = [draft.one_of(1, 1, 2, 3) for _ in shape]
    draft.add(op_type, [x, draft.integers(*times)], tuple(n * e for n, e in zip(times, shape, strict=True)))
    return True


def _transpose(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    left = list(range(len(shape)))
    perm = [left.pop(draft.number(0, len(left) - 1)) for _ in shape]
    if perm == sorted(perm, reverse=True) and draft.flip():
        draft.add(op_type, [x], shape[::-1])
    else:
        draft.add(op_type, [x], tuple(shape[axis] for axis in perm), perm=perm)
    return True


def _gather(draft: Draft, op_type: str, x: str) -> bool:
    """Constant indices, equally spaced or not, repeated, from the end, of no axis, one or two."""
    shape = draft.shapes[x]
    axis = draft.axis(shape)
    form = draft.one_of((), (draft.number(1, 4),), (2, 2)) if 1 < len(shape) < MOST_AXES else (draft.number(1, 4),)
    low = -shape[axis] if draft.opset >= 11 else 0
    indices = np.array([draft.number(low, shape[axis] - 1) for _ in range(prod(form))]).reshape(form)
    settings: dict[str, Attribute] = {"axis": draft.signed(axis, len(shape))} if axis or draft.flip() else {}
    chosen = draft.constant(indices.astype(draft.one_of(np.int64, np.int32)))
    draft.add(op_type, [x, chosen], (*shape[:axis], *form, *shape[axis + 1 :]), **settings)
    return True


def _targets(draft: Draft, shape: Shape) -> list[Shape]:
    """Two axes as one, an axis as two, everything behind the first, an image, one axis."""
    axis = draft.axis(shape)
    factor = draft.one_of(*(f for f in range(1, shape[axis] + 1) if shape[axis] % f == 0))
    targets = [
        (*shape[:axis], prod(shape[axis : axis + 2]), *shape[axis + 2 :]),
        (*shape[:axis], factor, shape[axis] // factor, *shape[axis + 1 :]),
        (shape[0], prod(shape[1:])),
        (*(1,) * (4 - len(shape)), *shape),
        (prod(shape),),
    ]
    return [target for target in targets if len(target) <= MOST_AXES]


def _reshape(draft: Draft, op_type: str, x: str) -> bool:
    """An extent may be left open, or taken from the input."""
    shape = draft.shapes[x]
    target = draft.one_of(*_targets(draft, shape))
    written = list(target)
    if draft.flip():
        same = [axis for axis, (a, b) in enumerate(zip(shape, target, strict=False)) if a == b]
        for axis in same[: draft.number(0, len(same))]:
            written[axis] = 0
    if draft.flip():
        written[draft.axis(target)] = -1
    settings: dict[str, Attribute] = {}
    if draft.opset >= 14 and draft.flip():
        settings["allowzero"] = 0 if 0 in written else draft.number(0, 1)
    draft.add(op_type, [x, draft.integers(*written)], target, **settings)
    return True


def _flatten(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    axis = draft.number(0, len(shape))
    settings: dict[str, Attribute] = {}
    if axis != 1 or draft.flip():
        settings["axis"] = draft.signed(axis, len(shape)) if axis < len(shape) else axis
    draft.add(op_type, [x], (prod(shape[:axis]), prod(shape[axis:])), **settings)
    return True


def _squeeze(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    single = [axis for axis, extent in enumerate(shape) if extent == 1]
    if not single or len(single) == len(shape):
        return False
    if draft.flip():
        draft.add(op_type, [x], tuple(extent for extent in shape if extent > 1))
        return True
    axis = draft.one_of(*single)
    inputs, named = draft.listed("axes", [draft.signed(axis, len(shape))], 13)
    draft.add(op_type, [x, *inputs], without_axis(shape, axis), **named)
    return True


def _unsqueeze(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if len(shape) >= MOST_AXES:
        return False
    axis = draft.number(0, len(shape))
    inputs, named = draft.listed("axes", [draft.signed(axis, len(shape) + 1)], 13)
    draft.add(op_type, [x, *inputs], (*shape[:axis], 1, *shape[axis:]), **named)
    return True


def _shape(draft: Draft, op_type: str, x: str) -> bool:
    """A view and back to the extents that another node reads off; from version 15 on, without the first axis."""
    shape = draft.shapes[x]
    flat = draft.add("Reshape", [x, draft.integers(-1)], (prod(shape),))
    settings: dict[str, Attribute] = {}
    if draft.opset >= 15 and shape[0] == 1 and len(shape) > 1:
        settings = draft.one_of({"start": 1}, {"start": 1 - len(shape), "end": len(shape)})
    elif draft.opset >= 15 and draft.flip():
        settings = {"start": 0, "end": len(shape)}
    target = shape[1:] if settings.get("start", 0) else shape
    extents = draft.add_other(op_type, [x], (len(target),), INT64, **settings)
    draft.add("Reshape", [flat, extents], target)
    return True


def _size(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    size = draft.add_other(op_type, [x], (), INT64)
    extents = draft.add_other("Reshape", [size, draft.integers(1)], (1,), INT64)
    draft.add("Reshape", [x, extents], (prod(shape),))
    return True


def _constant_of_shape(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    extents = draft.add_other("Shape", [x], (len(shape),), INT64)
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [draft.one_of(0.5, -1.0)])
    settings: dict[str, Attribute] = {"value": value} if draft.flip() else {}
    filled = draft.add_constant(op_type, [extents], **settings)
    draft.add(draft.one_of("Add", "Mul", "Min"), [x, filled], shape)
    return True


def add_view(draft: Draft, x: str, target: Shape) -> str:
    return draft.add("Reshape", [x, draft.integers(*target)], target)


MOVEMENT: Mapping[str, Maker] = {
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Expand": _expand,
    "Tile": _tile,
    "Transpose": _transpose,
    "Gather": _gather,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Shape": _shape,
    "Size": _size,
    "ConstantOfShape": _constant_of_shape,
}
