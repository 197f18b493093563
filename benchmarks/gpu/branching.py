"""A network for the rehearsal: branches, a window, a block that fuses, a view at its end, and few multiplications."""

from __future__ import annotations

import onnx

from benchmarks.gpu.onnx_layers import OnnxLayers

__all__ = ["branching_model"]


def branching_model() -> onnx.ModelProto:
    """Its batch is open."""
    net = OnnxLayers()
    stem = net.conv("x", 3, 16, 3, "stem")
    block = net.conv(net.conv(stem, 16, 48, 1, "expand"), 48, 48, 3, "depthwise", groups=48)
    block = net.add("Add", [net.conv(block, 48, 16, 1, "project", relu=False), stem], "block")
    left = net.conv(block, 16, 8, 1, "left")
    pool = net.add("MaxPool", [block], "pool", kernel_shape=[3, 3], pads=[1] * 4)
    right = net.conv(pool, 16, 8, 1, "right")
    joined = net.add("Concat", [left, right], "joined", axis=1)
    mean = net.add("GlobalAveragePool", [joined], "mean")
    net.add("Flatten", [mean], "y")
    return net.model("branching", ("x", ["n", 3, 10, 10]), ("y", ["n", 16]))
