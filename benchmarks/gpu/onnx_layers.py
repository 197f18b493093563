"""ONNX graphs in the making, for networks that are built here: each call adds a node and gives the name of its result.

net = OnnxLayers();  y = net.conv("x", 8, 16, 3, "stem");  net.model("name", ("x", shape), ("y", shape))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["OnnxLayers", "Shape"]

Shape = Sequence[int | str | None]
"""Extents, words for those that are open."""


class OnnxLayers:
    """Weights are drawn, about as large as keeps results at the size of what they are made from."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, *shape: int) -> str:
        values = self.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        self.constants.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def scalar(self, name: str, value: float) -> str:
        """A number by its name, put down once."""
        if name not in [constant.name for constant in self.constants]:
            self.constants.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def product(self, x: str, given: int, made: int, name: str) -> str:
        """x (..., given) by weights, plus a bias."""
        weights = np.asarray(self.random.standard_normal((given, made)) / np.sqrt(given), np.float32)
        self.constants.append(numpy_helper.from_array(weights, f"{name}.weight"))
        summed = self.add("MatMul", [x, f"{name}.weight"], f"{name}.product")
        return self.add("Add", [summed, self.constant(f"{name}.bias", made)], name)

    def add(self, kind: str, inputs: list[str], output: str, **settings: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **settings))
        return output

    def conv(
        self,
        x: str,
        given: int,
        made: int,
        extent: int,
        name: str,
        *,
        groups: int = 1,
        relu: bool = True,
        stride: int = 1,
    ) -> str:
        """Padded by half of its extent; with `relu` the name is that of what Relu makes."""
        weights = self.constant(f"{name}.weight", made, given // groups, extent, extent)
        bias = self.constant(f"{name}.bias", made)
        settings: dict[str, Any] = {"kernel_shape": [extent] * 2, "pads": [extent // 2] * 4, "group": groups}
        settings |= {"strides": [stride] * 2} if stride > 1 else {}
        found = self.add("Conv", [x, weights, bias], f"{name}.sum" if relu else name, **settings)
        return self.add("Relu", [found], name) if relu else found

    def model(self, name: str, given: tuple[str, Shape], made: tuple[str, Shape]) -> onnx.ModelProto:
        """Checked. Extents are numbers, or words where they are open."""
        (x, x_shape), (y, y_shape) = given, made
        values = [helper.make_tensor_value_info(x, TensorProto.FLOAT, list(x_shape))]
        results = [helper.make_tensor_value_info(y, TensorProto.FLOAT, list(y_shape))]
        graph = helper.make_graph(self.nodes, name, values, results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(model, full_check=True)
        return model
