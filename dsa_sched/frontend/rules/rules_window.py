"""Rules of operators on feature maps: convolution, pooling, local response normalisation, resizing.

auto_pad, ceil_mode, a global pool  -->  kernel, strides, dilations, pads (all begins, then all ends)

Rules raise Refusal for nodes that cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from dsa_sched.frontend.decomposition.resampling import OF_IMAGES, factors, mode_of
from dsa_sched.frontend.network.network import Array, Node
from dsa_sched.frontend.network.operation import Refusal, Writer
from dsa_sched.frontend.network.windows import windows_of
from dsa_sched.frontend.rules.image_windows import ImageWindow, OperationSteps, image_pool
from dsa_sched.frontend.rules.long_windows import has_long_windows, long_conv
from partitioner.ir.graph import Attribute


def constant_weights(writer: Writer, node: Node) -> Array:
    """The weights of a convolution. Raises Refusal where these or the bias are computed, or have too few axes."""
    weights = writer.constants.get(node.input(1))
    if weights is None or (node.input(2) and node.input(2) not in writer.constants):
        raise Refusal("weights and bias must be constant")
    if weights.ndim < 3:
        raise Refusal(f"weights of {weights.ndim} axes; at least 3 are needed")
    return weights


def conv(writer: Writer, node: Node) -> None:
    weights = constant_weights(writer, node)
    channels, groups = writer.shape(node.inputs[0])[1], node.integer("group", 1)
    if channels != weights.shape[1] * groups or weights.shape[0] % groups:
        raise Refusal(f"{channels} channels for weights of {weights.shape[1]} in each of {groups} groups")
    windows = windows_of(node, tuple(weights.shape[2:]), writer.shape(node.inputs[0]))
    inputs = tuple(name for name in node.inputs if name)
    window, limit = _window_of(windows), writer.wants.longest_window
    plain = _is_image(windows) and window.pads_less_than_it_reaches and not has_long_windows(window, limit)
    if writer.wants.windows == "images" and not plain:
        steps = OperationSteps(writer, node)
        steps.finish(long_conv(steps, inputs[0], inputs[1], inputs[2:], window, groups))
    else:
        writer.add(node, "conv", {**windows, "groups": groups}, inputs=inputs)


def integer_conv(writer: Writer, node: Node) -> None:
    """Write a convolution of integers: operand, weights, scale, and a bias in the numbers of the result."""
    names = (("kernel", "kernel_shape"), ("strides", "strides"), ("dilations", "dilations"), ("pads", "pads"))
    windows = {ours: node.integers(onnx, ()) for ours, onnx in names}
    writer.add(node, "conv", {**windows, "groups": node.integer("group", 1)}, inputs=node.inputs)


def _is_image(windows: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether there are two axes, with one stride and one dilation for both."""
    strides, dilations = windows["strides"], windows["dilations"]
    return len(strides) == 2 and strides[0] == strides[1] and dilations[0] == dilations[1]


def _window_of(windows: Mapping[str, tuple[int, ...]]) -> ImageWindow:
    kernel, pads = windows["kernel"], windows["pads"]
    begins, ends = pads[: len(kernel)], pads[len(kernel) :]
    return ImageWindow(kernel, windows["strides"], windows["dilations"], begins, ends)


def pool(writer: Writer, node: Node) -> None:
    """Write a pool. A mean whose windows reach beyond the padding divides by the elements of image and padding that
    they hold: there the padding is written, and elements beyond it are padding that does not count.
    """
    shape, out = writer.shape(node.inputs[0]), writer.shape(node.outputs[0])
    if any(node.outputs[1:]):
        raise Refusal("the indices of the maxima are read; only the maxima are computed")
    window = _held(_window_of(windows_of(node, node.integers("kernel_shape", ()), shape)), shape[2:], out[2:])
    overflow = _overflow(window, shape[2:], out[2:])
    within = replace(window, ends=tuple(e + o for e, o in zip(window.ends, overflow, strict=True)))
    if node.op_type == "MaxPool":
        _add_pool(OperationSteps(writer, node), node.inputs[0], "max_pool", within, {})
        return
    counted, steps = node.integer("count_include_pad", 0), OperationSteps(writer, node)
    x = node.inputs[0]
    if counted and any(overflow):
        x = steps.pad(x, (0, 0, *window.begins), (0, 0, *window.ends))
        within = replace(window.without_padding(), ends=overflow)
        counted = 0
    _add_pool(steps, x, "average_pool", within, {"count_include_pad": counted})


def _overflow(window: ImageWindow, extents: tuple[int, ...], outputs: tuple[int, ...]) -> tuple[int, ...]:
    """Number of elements of each axis by which the last window reaches beyond the padding, as `ceil_mode` allows."""
    along = zip(outputs, window.strides, window.reach, window.begins, extents, window.ends, strict=True)
    return tuple(max(0, (o - 1) * s + r - b - x - e) for o, s, r, b, x, e in along)


def _held(window: ImageWindow, extents: tuple[int, ...], outputs: tuple[int, ...]) -> ImageWindow:
    """The window with no more taps along an axis than image and padding have elements, if its only window is larger."""
    along = zip(window.kernel, window.dilations, window.begins, extents, window.ends, outputs, strict=True)
    held = tuple(min(k, (b + x + e - 1) // d + 1) if o == 1 else k for k, d, b, x, e, o in along)
    return replace(window, kernel=held)


def _add_pool(steps: OperationSteps, x: str, kind: str, window: ImageWindow, counted: Mapping[str, Attribute]) -> None:
    writer, node = steps.writer, steps.node
    if writer.wants.windows == "images" and window.rank != 2:
        steps.finish(image_pool(steps, x, kind, window, counted))
    else:
        writer.add(node, kind, {**window.attributes(), **counted}, inputs=(x,))


def global_pool(writer: Writer, node: Node) -> None:
    kind, shape = "max_pool" if node.op_type == "GlobalMaxPool" else "average_pool", writer.shape(node.inputs[0])
    if writer.wants.windows == "any" or len(shape) == 4:
        whole_pool(writer, node, kind, shape[2:])
        return
    steps, image = OperationSteps(writer, node), (prod(shape[2:-1]), shape[-1])
    x = steps.view(node.inputs[0], *shape[:2], *image)
    steps.finish(steps.add(kind, (*shape[:2], 1, 1), whole_window(kind, image), x))


def whole_pool(writer: Writer, node: Node, kind: str, kernel: tuple[int, ...], suffix: str = "") -> None:
    writer.add(node, kind, whole_window(kind, kernel), suffix=suffix)


def whole_window(kind: str, kernel: tuple[int, ...]) -> dict[str, Attribute]:
    """The attributes of a pool over whole images."""
    ones = (1,) * len(kernel)
    window: dict[str, Attribute] = {
        "kernel": kernel,
        "strides": ones,
        "dilations": ones,
        "pads": (0,) * (2 * len(kernel)),
    }
    counted: dict[str, Attribute] = {"count_include_pad": 0} if kind == "average_pool" else {}
    return window | counted


def lrn(writer: Writer, node: Node) -> None:
    size = node.integer("size", 0)
    if size % 2 == 0:
        raise Refusal(f"size is {size}; it must be odd")
    numbers: dict[str, Attribute] = {
        "size": size,
        "alpha": node.number("alpha", 1e-4),
        "beta": node.number("beta", 0.75),
        "bias": node.number("bias", 1.0),
    }
    writer.add(node, "lrn", numbers)


def resize(writer: Writer, node: Node) -> None:
    """The rule of Resize and of its predecessor Upsample."""
    shape, out = writer.shape(node.inputs[0]), writer.shape(node.outputs[0])
    mode, coordinates = mode_of(writer.network, node)
    if node.integer("antialias", 0):
        raise Refusal("antialias is not supported")
    if coordinates not in OF_IMAGES or mode == "cubic" or shape[:2] != out[:2]:
        raise Refusal("the part of it that is read (roi) is computed at run time; it must be constant")
    old = node.op_type == "Upsample" or writer.network.opset < 11
    rounding = "simple" if old else node.text("nearest_mode", "round_prefer_floor")
    attributes: dict[str, Attribute] = {"mode": mode, "coordinates": coordinates, "rounding": rounding}
    scales = factors(writer.network, node, len(shape))
    if scales and any(s * a != b for s, a, b in zip(scales, shape, out, strict=True)):
        attributes["scales"] = scales
    writer.add(node, "resize", attributes)
