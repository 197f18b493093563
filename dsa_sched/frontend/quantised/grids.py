"""Grids: what the integers of a quantised value mean, as QuantizeLinear and DequantizeLinear say it.

    number = scale * (integer - zero point)        one pair for the whole value, or one for each index of an axis

A device holds integers of eight bits with a sign, so an unsigned integer is held less 128; its zero point shifts alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.network.network import Array, Network, Node
from dsa_sched.frontend.network.traced import TracedArray

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

QUANTISE, DEQUANTISE = "QuantizeLinear", "DequantizeLinear"

OFFSETS: Mapping[int, int] = {onnx.TensorProto.INT8: 0, onnx.TensorProto.UINT8: 128}
"""Integer types of activations and weights -> the number that the device's integers are smaller by."""

GRID_TYPES: Mapping[int, tuple[int, int]] = {onnx.TensorProto.INT8: (-128, 127), onnx.TensorProto.UINT8: (0, 255)}
"""Types of quantised integers and their ranges, in order of preference."""

LEAST, MOST = -128, 127
"""Range of the device's integers."""


@dataclass(frozen=True, slots=True)
class Grid:
    """`scale` and `zero` have one element each, or one for each index of `axis`. `zero` is the zero point of the
    device's integers, which are those of the file less `offset`."""

    scale: TracedArray
    zero: Integers
    axis: int | None
    offset: int

    @property
    def uniform(self) -> bool:
        """Whether there is one scale and one zero point for the whole value."""
        return self.scale.array.size == 1 and len(self.zero) == 1

    @property
    def step(self) -> float:
        """The scale of a uniform grid."""
        return float(self.scale.float64.reshape(-1)[0])

    @property
    def centre(self) -> int:
        """The zero point of a uniform grid."""
        return int(self.zero[0])

    def same(self, other: Grid) -> bool:
        """Whether both are uniform and give each integer of the device the same number."""
        alike = self.uniform and other.uniform and self.step == other.step
        return alike and self.centre == other.centre and self.offset == other.offset


def grid_of(network: Network, node: Node) -> Grid | None:
    """The grid of a node that quantises or dequantises; None where scale or zero point are computed, where scales are
    no positive numbers, in blocks, or not as many as the axis has indices, and for types other than int8, uint8 and, of
    constants, int32."""
    scale, zero = network.constants.get(node.input(1)), network.constants.get(node.input(2))
    dtype = integer_type(network, node)
    offset = OFFSETS.get(dtype, 0 if dtype == onnx.TensorProto.INT32 and node.op_type == DEQUANTISE else None)
    if scale is None or (node.input(2) and zero is None) or offset is None or node.integer("block_size", 0):
        return None
    if scale.ndim > 1 or not np.all(np.isfinite(scale.astype(np.float64)) & (scale.astype(np.float64) > 0)):
        return None
    zeros = np.zeros(scale.size, np.int64) if zero is None else zero.astype(np.int64).reshape(-1)
    axis = None
    if scale.size != 1 or len(zeros) != 1:
        shape, axis = network.shape(node.inputs[0]), node.integer("axis", 1)
        if not -len(shape) <= axis < len(shape) or not {scale.size, len(zeros)} <= {1, shape[axis]}:
            return None
        axis %= len(shape)
    return Grid(network.traced(node.inputs[1]).reshape(-1), zeros - offset, axis, offset)


def only_numbers(network: Network, node: Node) -> bool:
    """Whether a node dequantises constants whose integers no kernel takes as such: of other types than int8, uint8 and
    int32, or in blocks. They are numbers like any others."""
    if node.op_type != DEQUANTISE or any(name and name not in network.constants for name in node.inputs):
        return False
    dtype = integer_type(network, node)
    return node.integer("block_size", 0) > 0 or (dtype not in OFFSETS and dtype != onnx.TensorProto.INT32)


def integer_type(network: Network, node: Node) -> int:
    """The element type of the integers that a node makes or reads; UINT8 where nothing says it, as in ONNX."""
    if node.op_type == DEQUANTISE:
        name = node.inputs[0]
        array = network.constants.get(name)
        return network.values[name].dtype if array is None else _type_of(array)
    if node.input(2) in network.constants:
        return _type_of(network.constants[node.input(2)])
    return node.integer("output_dtype", 0) or onnx.TensorProto.UINT8


def _type_of(array: Array) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))


def dequantised(network: Network, node: Node, grid: Grid) -> TracedArray:
    """The numbers of the constant integers that a node dequantises."""
    integers = network.traced(node.inputs[0])
    spread = [1] * len(integers.shape)
    if grid.axis is not None:
        spread[grid.axis] = -1
    zero = network.traced(node.input(2)).reshape(*spread) if node.input(2) else TracedArray.of(0.0)
    return (integers - zero) * grid.scale.reshape(*spread)
