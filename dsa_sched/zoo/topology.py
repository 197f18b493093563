"""Writing a topology by hand, for networks that the onnx wheel does not ship.

conv(x, 16), pool(...), concat(...)  -->  ModelProto in the form of the wheel's files: weights have shapes only
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["TopologyBuilder"]

OPSET = 17
IR_VERSION = 8
TO_THE_END = (1 << 31) - 1


class TopologyBuilder:
    """Collects nodes; every method appends what it is named after and returns the name of the value that it made.

    Names of values are those of the nodes, so that a layer is found again in every report.
    """

    def __init__(self, name: str, input_name: str, shape: tuple[int, int, int, int]) -> None:
        self.name = name
        self.image = helper.make_tensor_value_info(input_name, TensorProto.FLOAT, shape)
        self.shapes: dict[str, tuple[int, ...]] = {input_name: shape}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []

    def build(self, *outputs: str) -> onnx.ModelProto:
        """The finished model with the given outputs."""
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in outputs]
        graph = helper.make_graph(self.nodes, self.name, [self.image], infos, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def conv(
        self, name: str, x: str, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1, bias: bool = False
    ) -> str:
        """Padded so that a stride of 1 keeps the extents."""
        inside = self.shapes[x][1] // groups
        constants = [self._weight(f"{name}.weight", channels, inside, kernel, kernel)]
        constants += [self._weight(f"{name}.bias", channels)] if bias else []
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        shape = self._window(x, channels, kernel, stride)
        return self._node("Conv", name, [x, *constants], shape, **attributes)

    def batch_norm(self, name: str, x: str) -> str:
        constants = [self._weight(f"{name}.{part}", self.shapes[x][1]) for part in ("scale", "shift", "mean", "var")]
        return self._node("BatchNormalization", name, [x, *constants], self.shapes[x])

    def relu(self, name: str, x: str) -> str:
        return self._node("Relu", name, [x], self.shapes[x])

    def relu6(self, name: str, x: str) -> str:
        """A Clip between 0 and 6; all of a network share the two bounds."""
        bounds = [self._shared(f"relu6.{part}", value) for part, value in (("least", 0.0), ("most", 6.0))]
        return self._node("Clip", name, [x, *bounds], self.shapes[x])

    def add(self, name: str, x: str, y: str) -> str:
        """The same shape on both sides."""
        return self._node("Add", name, [x, y], self.shapes[x])

    def sum(self, name: str, x: str, y: str) -> str:
        return self._node("Sum", name, [x, y], self.shapes[x])

    def pool(self, op_type: str, name: str, x: str, kernel: int, stride: int, pads: int = 0) -> str:
        """MaxPool or AveragePool; padding does not count in the average."""
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pads] * 4}
        shape = self._window(x, self.shapes[x][1], kernel, stride, pads)
        return self._node(op_type, name, [x], shape, **attributes)

    def concat(self, name: str, *parts: str) -> str:
        """Along the channels."""
        first, channels = self.shapes[parts[0]], sum(self.shapes[part][1] for part in parts)
        return self._node("Concat", name, parts, (first[0], channels, *first[2:]), axis=1)

    def doubled(self, name: str, x: str) -> str:
        """Every pixel becomes four: a Resize whose map is exact, y reads x at its half rounded down."""
        scales = self._constant(f"{name}.scales", np.array([1, 1, 2, 2], np.float32))
        n, channels, height, width = self.shapes[x]
        modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self._node("Resize", name, [x, "", scales], (n, channels, 2 * height, 2 * width), **modes)

    def from_second_pixel(self, name: str, x: str) -> str:
        """Without the first row and the first column."""
        bounds = {"starts": (1, 1), "ends": (TO_THE_END,) * 2, "axes": (2, 3)}
        constants = [self._constant(f"{name}.{part}", np.array(value, np.int64)) for part, value in bounds.items()]
        n, channels, height, width = self.shapes[x]
        return self._node("Slice", name, [x, *constants], (n, channels, height - 1, width - 1))

    def classifier(self, name: str, x: str, classes: int) -> str:
        """The mean of every channel, then a matrix product."""
        n, channels = self.shapes[x][:2]
        mean = self._node("GlobalAveragePool", f"{name}.mean", [x], (n, channels, 1, 1))
        flat = self._node("Flatten", f"{name}.flat", [mean], (n, channels))
        constants = [self._weight(f"{name}.weight", classes, channels), self._weight(f"{name}.bias", classes)]
        return self._node("Gemm", name, [flat, *constants], (n, classes), transB=1)

    def softmax(self, name: str, x: str) -> str:
        """Over the classes of [N, classes]."""
        return self._node("Softmax", name, [x], self.shapes[x], axis=1)

    def _window(self, x: str, channels: int, kernel: int, stride: int, pads: int | None = None) -> tuple[int, ...]:
        around = 2 * (kernel // 2 if pads is None else pads)
        n, _, *extents = self.shapes[x]
        return (n, channels, *((extent + around - kernel) // stride + 1 for extent in extents))

    def _weight(self, name: str, *shape: int) -> str:
        """Its shape alone, as in the wheel's files: hundreds of megabytes of zeros would be made for nothing."""
        extents = self._constant(f"{name}.shape", np.array(shape, np.int64))
        self.nodes.append(helper.make_node("ConstantOfShape", [extents], [name], name=name))
        return name

    def _constant(self, name: str, value: np.ndarray[tuple[int, ...], np.dtype[np.float32 | np.int64]]) -> str:
        assert prod(value.shape) > 0, name
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def _shared(self, name: str, value: float) -> str:
        """A constant that several nodes read."""
        known = any(tensor.name == name for tensor in self.constants)
        return name if known else self._constant(name, np.array(value, np.float32))

    def _node(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[str],
        shape: tuple[int, ...],
        **attributes: Any,
    ) -> str:
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        self.shapes[name] = shape
        return name
