"""Rules of operators with windows: convolution, pooling, local response normalisation.

auto_pad, ceil_mode, a global pool  -->  kernel, strides, dilations, pads (all begins, then all ends)

Rules raise Refusal for nodes that cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from dsa_sched.frontend.image_windows import Steps, Window, image_conv, image_pool
from dsa_sched.frontend.network import Node
from dsa_sched.frontend.operation import Refusal, Writer
from partitioner.ir.graph import Attribute

__all__ = ["conv", "global_pool", "lrn", "pool", "whole_pool"]


def _windows(node: Node, kernel: tuple[int, ...], shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """kernel, strides, dilations and pads (all begins, then all ends) with auto_pad resolved."""
    ones, zeros = (1,) * len(kernel), (0,) * (2 * len(kernel))
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    match node.text("auto_pad", "NOTSET"):
        case "NOTSET" | "":
            pads = node.integers("pads", zeros)
        case "VALID":
            pads = zeros
        case mode:
            totals = [
                max(0, (-(-extent // s) - 1) * s + span - extent)
                for extent, s, span in zip(shape[2:], strides, spans, strict=True)
            ]
            small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
            pads = (small + large) if mode == "SAME_UPPER" else (large + small)
    return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads}


def conv(writer: Writer, node: Node) -> None:
    weights = writer.constants.get(node.input(1))
    if weights is None or (node.input(2) and node.input(2) not in writer.constants):
        raise Refusal("weights and bias must be constant")
    if weights.ndim < 3:
        raise Refusal(f"weights of {weights.ndim} axes")
    channels, groups = writer.shape(node.inputs[0])[1], node.integer("group", 1)
    if channels != weights.shape[1] * groups or weights.shape[0] % groups:
        raise Refusal(f"{channels} channels for weights of {weights.shape[1]} in each of {groups} groups")
    windows = _windows(node, tuple(weights.shape[2:]), writer.shape(node.inputs[0]))
    inputs = tuple(name for name in node.inputs if name)
    if writer.wants.windows == "images" and not _is_image(windows):
        steps = Steps(writer, node)
        steps.finish(image_conv(steps, inputs[0], inputs[1], inputs[2:], _window_of(windows), groups))
    else:
        writer.add(node, "conv", {**windows, "groups": groups}, inputs=inputs)


def _is_image(windows: Mapping[str, tuple[int, ...]]) -> bool:
    """Of two axes with one stride and one dilation for both."""
    strides, dilations = windows["strides"], windows["dilations"]
    return len(strides) == 2 and strides[0] == strides[1] and dilations[0] == dilations[1]


def _window_of(windows: Mapping[str, tuple[int, ...]]) -> Window:
    kernel, pads = windows["kernel"], windows["pads"]
    begins, ends = pads[: len(kernel)], pads[len(kernel) :]
    return Window(kernel, windows["strides"], windows["dilations"], begins, ends)


def pool(writer: Writer, node: Node) -> None:
    shape, out = writer.shape(node.inputs[0]), writer.shape(node.outputs[0])
    if any(node.outputs[1:]):
        raise Refusal("the indices of the maxima are read; only the maxima are computed")
    windows = _windows(node, node.integers("kernel_shape", ()), shape)
    rank = len(windows["kernel"])
    begins, ends = windows["pads"][:rank], windows["pads"][rank:]
    overflow = []
    for axis in range(rank):
        span = (windows["kernel"][axis] - 1) * windows["dilations"][axis] + 1
        reach = (out[2 + axis] - 1) * windows["strides"][axis] + span
        overflow.append(max(0, reach - begins[axis] - shape[2 + axis] - ends[axis]))
    windows["pads"] = begins + tuple(e + o for e, o in zip(ends, overflow, strict=True))
    if node.op_type == "MaxPool":
        _add_pool(writer, node, "max_pool", windows, {})
        return
    counted = node.integer("count_include_pad", 0)
    if counted and any(overflow):
        raise Refusal("count_include_pad with a ceil_mode window beyond the padding: its divisor is not representable")
    _add_pool(writer, node, "average_pool", windows, {"count_include_pad": counted})


def _add_pool(
    writer: Writer, node: Node, kind: str, windows: Mapping[str, tuple[int, ...]], counted: Mapping[str, Attribute]
) -> None:
    if writer.wants.windows == "images" and len(windows["kernel"]) != 2:
        steps = Steps(writer, node)
        steps.finish(image_pool(steps, node.inputs[0], kind, _window_of(windows), counted))
    else:
        writer.add(node, kind, {**windows, **counted})


def global_pool(writer: Writer, node: Node) -> None:
    kind, shape = "max_pool" if node.op_type == "GlobalMaxPool" else "average_pool", writer.shape(node.inputs[0])
    if writer.wants.windows == "any" or len(shape) == 4:
        whole_pool(writer, node, kind, shape[2:])
        return
    steps, image = Steps(writer, node), (prod(shape[2:-1]), shape[-1])
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
        raise Refusal(f"a window of {size} channels has no middle")
    numbers: dict[str, Attribute] = {
        "size": size,
        "alpha": node.number("alpha", 1e-4),
        "beta": node.number("beta", 0.75),
        "bias": node.number("bias", 1.0),
    }
    writer.add(node, "lrn", numbers)
