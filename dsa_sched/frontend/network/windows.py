"""Windows of convolutions and pools as ONNX says them.

node, kernel, shape of its operand  -->  kernel, strides, dilations, pads (all begins, then all ends)
"""

from __future__ import annotations

from dsa_sched.frontend.network.network import Node


def windows_of(node: Node, kernel: tuple[int, ...], shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
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
