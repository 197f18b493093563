"""Small quantised networks, as QuantizeLinear and DequantizeLinear around convolutions and products; drawn weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
STEP, WEIGHT_STEP = 0.02, 0.01
ZERO = np.int8(0)


class QuantisedNetwork:
    """A network from "x" on; each method returns the name of a value. Grids have the zero point 0 of int8."""

    def __init__(self, shape: tuple[int, ...], seed: int = 1) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.random = np.random.default_rng(seed)

    def constant(self, value: Array | np.generic) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind.lower()}{len(self.nodes)}", **attributes))
        return name

    def rounded(self, x: str, step: float, zero: np.int8 | np.uint8 = ZERO) -> str:
        """The value on a grid."""
        grid = self.constant(np.float32(step)), self.constant(zero)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *grid), *grid)

    def weights(self, shape: tuple[int, ...], step: float, each: bool, axis: int) -> str:
        """Constant weights with one step, or one for each index of an axis."""
        drawn = self.random.integers(-127, 128, shape).astype(np.int8)
        steps = np.float32(step) * np.linspace(1, 2, shape[axis], dtype=np.float32) if each else np.float32(step)
        zero = np.zeros_like(steps, np.int8)
        attributes = {"axis": axis} if each else {}
        names = [self.constant(part) for part in (drawn, steps, zero)]
        return self.node("DequantizeLinear", *names, **attributes)

    def bias(self, channels: int, step: float) -> str:
        drawn = self.random.integers(-5000, 5000, channels).astype(np.int32)
        names = [self.constant(part) for part in (drawn, np.float32(step), np.int32(0))]
        return self.node("DequantizeLinear", *names)

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int = 1, *, stride: int = 1, pad: int = 0, dilation: int = 1,
        groups: int = 1, step: float = STEP, each: bool = False, bias: bool = True,
    ) -> str:  # fmt: skip
        operands = [x, self.weights((outputs, inputs // groups, kernel, kernel), WEIGHT_STEP, each, 0)]
        operands += [self.bias(outputs, step * WEIGHT_STEP)] if bias and not each else []
        return self.node("Conv", *operands, strides=[stride] * 2, pads=[pad] * 4, dilations=[dilation] * 2,
                         group=groups)  # fmt: skip

    def model(self, y: str) -> onnx.ModelProto:
        self.nodes[-1].output[0] = "y"
        assert y == f"v{len(self.nodes) - 1}"
        ends = (helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape),
                helper.make_tensor_value_info("y", TensorProto.FLOAT, None))  # fmt: skip
        stored = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "quantised", ends[:1], ends[1:], stored)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made)


def product(rows: int, depth: int, columns: int, each: bool = False, relu: bool = False) -> onnx.ModelProto:
    """One matrix product."""
    net = QuantisedNetwork((rows, depth))
    made = net.node("MatMul", net.rounded("x", STEP), net.weights((depth, columns), WEIGHT_STEP, each, 1))
    made = net.node("Relu", made) if relu else made
    return net.model(net.rounded(made, 0.05))


def convolution(height: int, width: int, inputs: int, outputs: int, **options: Any) -> onnx.ModelProto:
    """One convolution, with a Relu."""
    net = QuantisedNetwork((1, inputs, height, width))
    made = net.conv(net.rounded("x", STEP), inputs, outputs, **options)
    return net.model(net.rounded(net.node("Relu", made), 0.1))


def residual(summed: str = "rounded") -> onnx.ModelProto:
    """A block whose input is added to its result, before or after that is rounded, with a pool and a mean at the
    end."""
    net = QuantisedNetwork((1, 8, 9, 9))
    x = net.rounded("x", STEP)
    first = net.rounded(net.node("Relu", net.conv(x, 8, 20, 3, pad=1)), 0.1)
    second = net.conv(first, 20, 20, 3, pad=1, step=0.1)
    second = net.rounded(second, 0.2) if summed == "rounded" else second
    total = net.rounded(net.node("Relu", net.node("Add", second, first)), 0.25)
    pooled = net.rounded(net.node("MaxPool", total, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 0.25)
    return net.model(net.rounded(net.node("GlobalAveragePool", pooled), 0.05))


def own_input() -> onnx.ModelProto:
    """A convolution to which its own input is added."""
    net = QuantisedNetwork((1, 32, 13, 20))
    x = net.rounded("x", STEP)
    return net.model(net.rounded(net.node("Relu", net.node("Add", net.conv(x, 32, 32, 3, pad=1), x)), 0.2))


def separable() -> onnx.ModelProto:
    """A convolution of one channel each and one of single pixels."""
    net = QuantisedNetwork((2, 12, 11, 9))
    x = net.rounded("x", STEP)
    deep = net.rounded(net.node("Relu", net.conv(x, 12, 12, 3, stride=2, pad=1, groups=12, each=True)), 0.05)
    return net.model(net.rounded(net.conv(deep, 12, 18, step=0.05, each=True), 0.2))


def grouped(channels: int, outputs: int, groups: int, **options: Any) -> onnx.ModelProto:
    """A convolution in groups."""
    return convolution(9, 10, channels, outputs, kernel=3, pad=1, groups=groups, **options)


def pooled(shape: tuple[int, ...] = (2, 20, 11, 14), relu: bool = True, **options: Any) -> onnx.ModelProto:
    """Maxima of a convolution's result and of what is joined with it, of which many are below zero without Relu."""
    net = QuantisedNetwork(shape)
    x = net.rounded("x", STEP)
    made = net.conv(x, shape[1], 24)
    made = net.rounded(net.node("Relu", made) if relu else made, 0.1)
    largest = net.rounded(net.node("MaxPool", made, **options), 0.1)
    return net.model(net.rounded(net.conv(largest, 24, 8, step=0.1), 0.5))


def joined_rows() -> onnx.ModelProto:
    """Results joined along rows and along columns, of which the last are wider than what is moved at once."""
    net = QuantisedNetwork((1, 8, 7, 33))
    x = net.rounded("x", STEP)
    parts = [net.rounded(net.conv(x, 8, 20, size, pad=size // 2), 0.1) for size in (1, 3)]
    both = net.rounded(net.node("Concat", parts[0], parts[1], parts[0], axis=2), 0.1)
    both = net.rounded(net.node("Concat", both, both, axis=3), 0.1)
    return net.model(net.rounded(net.conv(both, 20, 8, 3, step=0.1), 0.5))


def joined() -> onnx.ModelProto:
    """Two convolutions of one value, joined, and a row of probabilities at the end."""
    net = QuantisedNetwork((2, 8, 7, 6))
    x = net.rounded("x", STEP)
    parts = [net.rounded(net.node("Relu", net.conv(x, 8, outputs, size, pad=size // 2)), 0.1)
             for outputs, size in ((10, 1), (7, 3))]  # fmt: skip
    both = net.rounded(net.node("Concat", *parts, axis=1), 0.1)
    return net.model(net.node("Softmax", net.node("GlobalAveragePool", both), axis=1))


def probabilities(shape: tuple[int, ...], step: float = 0.5) -> onnx.ModelProto:
    """Softmax of rows of a product, whose values are as far apart as `step` lets them."""
    net = QuantisedNetwork(shape)
    made = net.node("MatMul", net.rounded("x", STEP), net.weights((shape[-1], 24), WEIGHT_STEP, False, 1))
    scaled = net.node("Mul", made, net.constant(np.float32(step)))
    return net.model(net.rounded(net.node("Softmax", scaled, axis=-1), 0.01))


def turned() -> onnx.ModelProto:
    """Axes in another order, and every second element of some."""
    net = QuantisedNetwork((3, 10, 12))
    x = net.rounded("x", STEP)
    steps = [net.constant(np.array(part)) for part in ([1, 0], [10, 3], [0, 1], [2, 1])]
    part = net.node("Slice", net.node("Transpose", x, perm=[2, 0, 1]), *steps)
    return net.model(net.rounded(net.node("MatMul", part, net.weights((10, 9), WEIGHT_STEP, False, 1)), 0.05))


def zero_points() -> onnx.ModelProto:
    """Two convolutions between values of uint8 whose zero points are not in the middle."""
    net = QuantisedNetwork((1, 6, 9, 8))
    x = net.rounded("x", STEP, np.uint8(117))
    first = net.rounded(net.node("Relu", net.conv(x, 6, 20, 3, pad=1)), 0.05, np.uint8(0))
    return net.model(net.rounded(net.conv(first, 20, 7, 3, stride=2, step=0.05), 0.3, np.uint8(99)))


def means_of_numbers() -> onnx.ModelProto:
    """Means of windows whose sums are no integers of eight bits, and the numbers leave the network."""
    net = QuantisedNetwork((1, 6, 8, 10))
    made = net.conv(net.rounded("x", STEP), 6, 7, 3, pad=1)
    return net.model(net.node("AveragePool", made, kernel_shape=[2, 3], strides=[2, 2]))
