"""Makers of operators with windows over images: convolution, pooling, normalisation over channels, other sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, prod

import numpy as np

from tests.fuzz.draft import Array, Attribute, Draft, Maker, Shape

__all__ = ["WINDOWS"]

LARGEST_KERNEL = 5
SPATIAL = (3, 4, 5)
"""Ranks of what has windows."""


@dataclass(frozen=True)
class Window:
    """Windows over one to three axes: the attributes to write, their full meaning, and the result's extents."""

    attributes: dict[str, Attribute]
    kernel: Shape
    padded: bool
    dilated: bool
    extents: Shape


def _window(draft: Draft, shape: Shape, dilated: bool, ceils: bool) -> Window:
    """One stride and one dilation for all axes, or one for each; paddings in all ways that a file can say them."""
    axes = range(len(shape) - 2)
    same = draft.number(0, 2) > 0
    stride = [1 if draft.keep else draft.number(1, 3) for _ in axes]
    stride = [stride[0] if same else each for each in stride]
    automatic = draft.one_of("", "", "", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    # onnxruntime leaves dilations out where it pads to the same size.
    dilation = [draft.number(1, 2) if dilated and not automatic.startswith("SAME") else 1 for _ in axes]
    dilation = [dilation[0] if same else each for each in dilation]
    most = [max(1, min(LARGEST_KERNEL, (e - 1) // d + 1)) for e, d in zip(shape[2:], dilation, strict=True)]
    kernel = tuple(draft.number(1, each) for each in most)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if automatic.startswith("SAME"):  # onnxruntime pads by less than nothing
        stride = [min(each, *kernel) for each in stride]
    if draft.keep and automatic in ("", "VALID"):
        begins = [draft.number(0, k - 1) if d == 1 else (k - 1) * d // 2 for k, d in zip(kernel, dilation, strict=True)]
        pads, automatic = [*begins, *(s - 1 - b for s, b in zip(spans, begins, strict=True))], ""
    else:
        pads = [draft.number(0, k - 1) for k in (*kernel, *kernel)]
    ceil = ceils and not automatic and draft.number(0, 3) == 0
    attributes: dict[str, Attribute] = {"kernel_shape": kernel}
    if max(stride) > 1 or draft.flip():
        attributes["strides"] = stride
    if dilated and (max(dilation) > 1 or draft.flip()):
        attributes["dilations"] = dilation
    if automatic:
        attributes["auto_pad"] = automatic
    if automatic in ("", "NOTSET"):
        attributes["pads"] = pads
    if ceil:
        attributes["ceil_mode"] = 1
    far = max(dilation) > 1
    if automatic.startswith("SAME"):
        extents = [-(-extent // step) for extent, step in zip(shape[2:], stride, strict=True)]
        along = zip(extents, stride, spans, shape[2:], strict=True)
        padded = any((o - 1) * step + s > e for o, step, s, e in along)
        return Window(attributes, kernel, padded, far, tuple(extents))
    pads = [0] * 2 * len(kernel) if automatic == "VALID" else pads
    extents = []
    for i, (extent, step) in enumerate(zip(shape[2:], stride, strict=True)):
        room = extent + pads[i] + pads[len(kernel) + i] - spans[i]
        count = (-(-room // step) if ceil else room // step) + 1
        if (count - 1) * step >= extent + pads[i]:  # a window behind the image: versions differ on whether it counts
            return _window(draft, shape, dilated, ceils=False)
        extents.append(count)
    return Window(attributes, kernel, any(pads), far, tuple(extents))


def _conv(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if len(shape) not in SPATIAL:
        return False
    window = _window(draft, shape, dilated=True, ceils=False)
    groups = draft.one_of(1, 1, *(g for g in (2, 3, 4, shape[1]) if shape[1] % g == 0))
    outputs = shape[1] if draft.keep else groups * draft.number(1, max(1, 24 // groups))
    inside = shape[1] // groups
    w = draft.weights(outputs, inside, *window.kernel, length=inside * prod(window.kernel))
    bias = [draft.weights(outputs)] if draft.flip() else []
    settings = dict(window.attributes)
    if draft.flip():
        del settings["kernel_shape"]  # the weights say it
    if groups > 1 or draft.flip():
        settings["group"] = groups
    draft.add(op_type, [x, w, *bias], (shape[0], outputs, *window.extents), **settings)
    return True


def _conv_transpose(draft: Draft, op_type: str, x: str) -> bool:
    """All ways of saying how much is cut off."""
    shape = draft.shapes[x]
    if len(shape) not in SPATIAL:
        return False
    axes = range(len(shape) - 2)
    stride = [draft.number(1, 3) for _ in axes]
    automatic = draft.one_of("", "", "", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    same = automatic.startswith("SAME")
    dilation = [1 if same else draft.number(1, 2) for _ in axes]
    kernel = [draft.number(s if same else 1, 4) for s in stride]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    # onnxruntime wants less than a stride
    more = [draft.number(0, step - 1) if draft.number(0, 3) == 0 and not same else 0 for step in stride]
    full = [s * (n - 1) + m + r for n, s, m, r in zip(shape[2:], stride, more, spans, strict=True)]
    pads = [draft.number(0, 2) for _ in (*axes, *axes)]
    extents = [each - pads[i] - pads[len(kernel) + i] for i, each in enumerate(full)]
    settings: dict[str, Attribute] = {"auto_pad": automatic} if automatic else {}
    if same:
        extents = [n * s for n, s in zip(shape[2:], stride, strict=True)]
    elif automatic == "VALID":
        extents = full
    elif draft.number(0, 3) == 0:
        # ONNX's shape inference wants no extent below that of what is read
        extents = [max(n, each - draft.number(0, 2)) for n, each in zip(shape[2:], full, strict=True)]
        settings["output_shape"] = extents
    else:
        settings["pads"] = pads
    if min(extents) < 1:
        return False
    groups = draft.one_of(1, 1, *(g for g in (2, 3, shape[1]) if shape[1] % g == 0))
    outputs = draft.number(1, max(1, 8 // groups))
    w = draft.weights(shape[1], outputs, *kernel, length=max(1, shape[1] // groups * prod(kernel) // prod(stride)))
    bias = [draft.weights(outputs * groups)] if draft.flip() else []
    if max(stride) > 1 or draft.flip():
        settings["strides"] = stride
    if max(dilation) > 1 or draft.flip():
        settings["dilations"] = dilation
    if any(more) or draft.flip():
        settings["output_padding"] = more
    if groups > 1 or draft.flip():
        settings["group"] = groups
    if draft.flip():
        settings["kernel_shape"] = kernel
    draft.add(op_type, [x, w, *bias], (shape[0], outputs * groups, *extents), **settings)
    return True


def _max_pool(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if len(shape) not in SPATIAL:
        return False
    window = _window(draft, shape, dilated=draft.opset >= 10, ceils=draft.opset >= 10)
    settings = dict(window.attributes)
    if draft.number(0, 3) == 0:
        settings["storage_order"] = draft.number(0, 1)  # of the indices, which nothing reads
    draft.add(op_type, [x], (*shape[:2], *window.extents), **settings)
    return True


def _average_pool(draft: Draft, op_type: str, x: str) -> bool:
    """Dilated windows without padding: onnxruntime divides by another count where padding is not counted."""
    shape = draft.shapes[x]
    if len(shape) not in SPATIAL:
        return False
    window = _window(draft, shape, dilated=draft.opset >= 19, ceils=draft.opset >= 10)
    settings = dict(window.attributes)
    if window.dilated and window.padded:
        return False
    if draft.flip():
        settings["count_include_pad"] = draft.number(0, 1)
    draft.add(op_type, [x], (*shape[:2], *window.extents), **settings)
    return True


def _global_pool(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if len(shape) not in SPATIAL:
        return False
    draft.add(op_type, [x], (*shape[:2], *(1,) * len(shape[2:])))
    return True


def _lrn(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if len(shape) != 4:
        return False
    settings: dict[str, Attribute] = {"size": draft.one_of(1, 3, 5)}
    values = {"alpha": (0.125, 1.0), "beta": (0.25, 0.5, 1.0), "bias": (0.5, 2.0)}
    settings |= {name: draft.one_of(*choice) for name, choice in values.items() if draft.flip()}
    draft.add(op_type, [x], shape, **settings)
    return True


COORDINATES = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)


def _scaled(shape: Shape, scales: tuple[float, ...]) -> Shape:
    return tuple(floor(extent * scale) for extent, scale in zip(shape, scales, strict=True))


def _resize(draft: Draft, op_type: str, x: str) -> bool:
    """Spatial axes by factors or to extents, all axes or only those named."""
    shape = draft.shapes[x]
    if len(shape) not in (3, 4):
        return False
    mode = draft.one_of("nearest", "linear")
    scales = (1.0, 1.0, *(draft.one_of(*FACTORS) for _ in shape[2:]))
    if draft.opset < 11:
        if min(_scaled(shape, scales)) < 1:
            return False
        by_factor = {"mode": mode} if mode != "nearest" else {}
        draft.add(
            op_type, [x, draft.constant(_floats(scales, tuple(range(len(shape)))))], _scaled(shape, scales), **by_factor
        )
        return True
    by_scales = draft.flip() and min(_scaled(shape, scales)) > 0
    sizes = (*shape[:2], *(draft.number(max(1, extent // 2), 2 * extent) for extent in shape[2:]))
    target = _scaled(shape, scales) if by_scales else sizes
    settings: dict[str, Attribute] = {"mode": mode} if mode != "nearest" or draft.flip() else {}
    if draft.flip():
        settings["coordinate_transformation_mode"] = draft.one_of(*COORDINATES)
    if mode == "nearest" and draft.flip():
        settings["nearest_mode"] = draft.one_of(*ROUNDINGS)
    named: tuple[int, ...] = tuple(range(len(shape)))
    if draft.opset >= 18 and draft.flip():
        named = named[2:]
        settings["axes"] = [draft.signed(axis, len(shape)) for axis in named]
    if draft.opset >= 18 and not by_scales and draft.flip():
        settings["keep_aspect_ratio_policy"] = "stretch"
    if by_scales:
        inputs = [x, "", draft.constant(_floats(scales, named))]
    else:
        inputs = [x, "", "", draft.integers(*(sizes[axis] for axis in named))]
    if draft.opset < 13:  # the region of interest may be left out from then on
        inputs[1] = draft.number_constant(0.0, 0)
        if not by_scales:
            inputs[2] = draft.number_constant(0.0, 0)
    draft.add(op_type, inputs, target, **settings)
    return True


def _floats(values: tuple[float, ...], chosen: tuple[int, ...]) -> Array:
    return np.array([values[axis] for axis in chosen], np.float32)


def _upsample(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if len(shape) != 4:
        return False
    scales = (1.0, 1.0, *(float(draft.number(1, 2)) for _ in shape[2:]))
    settings: dict[str, Attribute] = {"mode": draft.one_of("nearest", "linear")} if draft.flip() else {}
    if draft.opset < 9:
        draft.add(op_type, [x], _scaled(shape, scales), scales=scales, **settings)
    else:
        draft.add(op_type, [x, draft.constant(_floats(scales, (0, 1, 2, 3)))], _scaled(shape, scales), **settings)
    return True


def _to_space(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    block = draft.one_of(2, 1, 3)
    if len(shape) != 4 or shape[1] % block**2:
        return False
    settings: dict[str, Attribute] = {"mode": draft.one_of("DCR", "CRD")} if draft.opset >= 11 and draft.flip() else {}
    n, c, h, w = shape
    draft.add(op_type, [x], (n, c // block**2, h * block, w * block), blocksize=block, **settings)
    return True


def _to_depth(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    block = draft.one_of(2, 1, 3)
    if len(shape) != 4 or shape[2] % block or shape[3] % block:
        return False
    n, c, h, w = shape
    draft.add(op_type, [x], (n, c * block**2, h // block, w // block), blocksize=block)
    return True


WINDOWS: Mapping[str, Maker] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "LRN": _lrn,
    "Resize": _resize,
    "Upsample": _upsample,
    "DepthToSpace": _to_space,
    "SpaceToDepth": _to_depth,
}
