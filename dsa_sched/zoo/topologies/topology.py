"""Writing a network of feature maps by hand, for those that the onnx wheel does not ship.

conv(x, 16), pool(...), concat(...)  -->  ModelProto in the form of the wheel's files: weights have shapes only
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from dsa_sched.zoo.topologies.node_builder import TO_THE_END, NodeBuilder

OPSET = 17


class TopologyBuilder(NodeBuilder):
    """Nodes on feature maps [N, C, H, W], of which it knows the shapes.

    Every method appends what it is named after and returns the name of the value that it made.
    """

    def __init__(self, name: str, input_name: str, shape: tuple[int, int, int, int]) -> None:
        super().__init__(name, OPSET)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.image(input_name, shape)

    def image(self, name: str, shape: tuple[int, int, int, int]) -> str:
        """Add one more input."""
        self.shapes[name] = shape
        return self.input(name, shape)

    def build(self, *outputs: str) -> onnx.ModelProto:
        """The finished model with the given outputs."""
        return self.model(
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in outputs]
        )

    def conv(
        self,
        name: str,
        x: str,
        channels: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        groups: int = 1,
        bias: bool = False,
        pads: int | None = None,
        weights: str = "",
    ) -> str:
        """Add a convolution. By default it is padded so that a stride of 1 keeps the extents. `weights` names the layer
        whose weights it uses, by default itself.
        """
        kernels = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        around = [extent // 2 if pads is None else pads for extent in kernels]
        inside, owner = self.shapes[x][1] // groups, weights or name
        constants = [self.weight(f"{owner}.weight", channels, inside, *kernels)]
        constants += [self.weight(f"{owner}.bias", channels)] if bias else []
        attributes = {"kernel_shape": [*kernels], "strides": [stride] * 2, "pads": around * 2, "group": groups}
        shape = self._window(x, channels, kernels, stride, around)
        return self._node("Conv", name, [x, *constants], shape, **attributes)

    def batch_norm(self, name: str, x: str, epsilon: float | None = None) -> str:
        """Add a batch norm; the default `epsilon` is ONNX's."""
        constants = [self.weight(f"{name}.{part}", self.shapes[x][1]) for part in ("scale", "shift", "mean", "var")]
        settings = {} if epsilon is None else {"epsilon": epsilon}
        return self._node("BatchNormalization", name, [x, *constants], self.shapes[x], **settings)

    def sigmoid(self, name: str, x: str) -> str:
        return self._node("Sigmoid", name, [x], self.shapes[x])

    def mul(self, name: str, x: str, y: str) -> str:
        """The second may be one number a channel."""
        return self._node("Mul", name, [x, y], self.shapes[x])

    def sub(self, name: str, x: str, y: str) -> str:
        """Difference of two values of the same shape."""
        return self._node("Sub", name, [x, y], self.shapes[x])

    def absolute(self, name: str, x: str) -> str:
        return self._node("Abs", name, [x], self.shapes[x])

    def silu(self, name: str, x: str) -> str:
        """A value times its sigmoid, as exporters write it."""
        return self.mul(name, x, self.sigmoid(f"{name}.sigmoid", x))

    def mean(self, name: str, x: str) -> str:
        """Mean of every channel, [N, C, 1, 1]."""
        return self._node("GlobalAveragePool", name, [x], (*self.shapes[x][:2], 1, 1))

    def relu(self, name: str, x: str) -> str:
        return self._node("Relu", name, [x], self.shapes[x])

    def relu6(self, name: str, x: str) -> str:
        """A Clip between 0 and 6; all of a network share the two bounds."""
        ends = {"relu6.least": 0.0, "relu6.most": 6.0}
        bounds = [self.shared(end, np.array(value, np.float32)) for end, value in ends.items()]
        return self._node("Clip", name, [x, *bounds], self.shapes[x])

    def add(self, name: str, x: str, y: str) -> str:
        """Sum of two values of the same shape."""
        return self._node("Add", name, [x, y], self.shapes[x])

    def sum(self, name: str, x: str, y: str) -> str:
        return self._node("Sum", name, [x, y], self.shapes[x])

    def pool(
        self, op_type: str, name: str, x: str, kernel: int, stride: int, pads: int = 0, counted: bool = False
    ) -> str:
        """MaxPool or AveragePool; padding counts in the average if `counted`."""
        attributes: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pads] * 4}
        attributes |= {"count_include_pad": 1} if counted else {}
        shape = self._window(x, self.shapes[x][1], (kernel, kernel), stride, [pads, pads])
        return self._node(op_type, name, [x], shape, **attributes)

    def concat(self, name: str, *parts: str) -> str:
        """Along the channels."""
        first, channels = self.shapes[parts[0]], sum(self.shapes[part][1] for part in parts)
        return self._node("Concat", name, parts, (first[0], channels, *first[2:]), axis=1)

    def doubled(self, name: str, x: str) -> str:
        """Every pixel becomes four: a Resize whose map is exact, y reads x at its half rounded down."""
        scales = self.constant(f"{name}.scales", np.array([1, 1, 2, 2], np.float32))
        n, channels, height, width = self.shapes[x]
        modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self._node("Resize", name, [x, "", scales], (n, channels, 2 * height, 2 * width), **modes)

    def from_second_pixel(self, name: str, x: str) -> str:
        """The map without its first row and column."""
        bounds = {"starts": (1, 1), "ends": (TO_THE_END,) * 2, "axes": (2, 3)}
        constants = [self.constant(f"{name}.{part}", np.array(value, np.int64)) for part, value in bounds.items()]
        n, channels, height, width = self.shapes[x]
        return self._node("Slice", name, [x, *constants], (n, channels, height - 1, width - 1))

    def classifier(self, name: str, x: str, classes: int) -> str:
        """The mean of every channel, then a matrix product."""
        return self.gemm(name, self.flat(f"{name}.flat", self.mean(f"{name}.mean", x)), classes)

    def flat(self, name: str, x: str) -> str:
        """[N, everything else]."""
        n, *others = self.shapes[x]
        return self._node("Flatten", name, [x], (n, prod(others)))

    def gemm(self, name: str, x: str, outside: int, weights: str = "", gain: float = 1.0) -> str:
        """A matrix product and a bias on [N, C]. `weights` is the layer whose weights it uses, if not its own."""
        n, inside = self.shapes[x]
        owner = weights or name
        constants = [self.weight(f"{owner}.weight", outside, inside, gain=gain), self.weight(f"{owner}.bias", outside)]
        return self._node("Gemm", name, [x, *constants], (n, outside), transB=1)

    def softmax(self, name: str, x: str) -> str:
        """Over the classes of [N, classes]."""
        return self._node("Softmax", name, [x], self.shapes[x], axis=1)

    def _window(
        self, x: str, channels: int, kernel: tuple[int, int], stride: int, pads: Sequence[int]
    ) -> tuple[int, ...]:
        n, _, *extents = self.shapes[x]
        spans = zip(extents, kernel, pads, strict=True)
        return (n, channels, *((extent + 2 * pad - span) // stride + 1 for extent, span, pad in spans))

    def _node(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[str],
        shape: tuple[int, ...],
        **attributes: Any,
    ) -> str:
        self.shapes[name] = shape
        return self.node(op_type, name, inputs, **attributes)
