"""A network for the rehearsal: branches, a window, a block that fuses, a view at its end, and few multiplications."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["branching_model"]


class _Layers:
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, *shape: int) -> str:
        values = self.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        self.constants.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def add(self, kind: str, inputs: list[str], output: str, **settings: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **settings))
        return output

    def conv(self, x: str, given: int, made: int, extent: int, name: str, *, groups: int = 1, relu: bool = True) -> str:
        weights = self.constant(f"{name}.weight", made, given // groups, extent, extent)
        bias = self.constant(f"{name}.bias", made)
        settings = {"kernel_shape": [extent] * 2, "pads": [extent // 2] * 4, "group": groups}
        found = self.add("Conv", [x, weights, bias], f"{name}.sum" if relu else name, **settings)
        return self.add("Relu", [found], name) if relu else found


def branching_model() -> onnx.ModelProto:
    """Its batch is open."""
    net = _Layers()
    stem = net.conv("x", 3, 16, 3, "stem")
    block = net.conv(net.conv(stem, 16, 48, 1, "expand"), 48, 48, 3, "depthwise", groups=48)
    block = net.add("Add", [net.conv(block, 48, 16, 1, "project", relu=False), stem], "block")
    left = net.conv(block, 16, 8, 1, "left")
    pool = net.add("MaxPool", [block], "pool", kernel_shape=[3, 3], pads=[1] * 4)
    right = net.conv(pool, 16, 8, 1, "right")
    joined = net.add("Concat", [left, right], "joined", axis=1)
    mean = net.add("GlobalAveragePool", [joined], "mean")
    net.add("Flatten", [mean], "y")
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 10, 10])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 16])]
    graph = helper.make_graph(net.nodes, "branching", values, results, net.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model
