"""A model while it grows: values with their shapes, nodes, constants, and the choices that are made on the way.

    Choices (a seed, or hypothesis) + operator set version  -->  Draft  -->  ModelProto

Makers (`draw_*.py`) add nodes to a draft. All values that they read are float32; values of another type exist between
a Cast and the Cast back, or as outputs. Weights are divided by the square root of the length that they are summed over,
so that magnitudes stay moderate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.partition_graphs import Choices

__all__ = ["FLOAT", "Array", "Attribute", "Draft", "Maker", "Shape", "with_extent", "without_axis"]

Array = npt.NDArray[np.generic]
Shape = tuple[int, ...]
Item = TypeVar("Item")
Attribute = int | float | str | Sequence[int] | Sequence[float] | onnx.TensorProto
FLOAT = int(TensorProto.FLOAT)


@dataclass
class Draft:
    """`keep` asks makers for results of the shape of what they read, where the operator can; `shapes` has the float32
    values, `others` shape and element type of all others that are computed."""

    choose: Choices
    opset: int
    random: np.random.Generator
    keep: bool = False
    shapes: dict[str, Shape] = field(default_factory=dict)
    others: dict[str, tuple[Shape, int]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    integer_inputs: dict[str, tuple[Shape, int]] = field(default_factory=dict)

    # Choices

    def number(self, low: int, high: int) -> int:
        return self.choose.number(low, high)

    def one_of(self, *items: Item) -> Item:
        return self.choose.one_of(items)

    def flip(self) -> bool:
        return self.choose.number(0, 1) == 1

    def axis(self, shape: Shape) -> int:
        return self.number(0, len(shape) - 1)

    def axes(self, shape: Shape) -> tuple[int, ...]:
        """One axis or more, in order."""
        chosen = {self.axis(shape), *(axis for axis in range(len(shape)) if self.number(0, 2) == 0)}
        return tuple(sorted(chosen))

    def signed(self, axis: int, rank: int, since: int = 11) -> int:
        """The axis, counted from the front or, where the operator set has that, from the end."""
        return axis - rank if self.opset >= since and self.flip() else axis

    # Values

    def input(self, shape: Shape) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = shape
        return name

    def integer_input(self, shape: Shape, dtype: int = int(TensorProto.INT64)) -> str:
        name = f"i{len(self.integer_inputs)}"
        self.integer_inputs[name] = shape, dtype
        return name

    def constant(self, value: Array) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def number_constant(self, value: float, *shape: int) -> str:
        return self.constant(np.full(shape, value, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def normal(self, *shape: int, length: int = 1) -> npt.NDArray[np.float32]:
        return self.random.normal(0, length**-0.5, shape).astype(np.float16).astype(np.float32)

    def weights(self, *shape: int, length: int = 1) -> str:
        return self.constant(self.normal(*shape, length=length))

    def positive(self, *shape: int) -> str:
        """Constants of 0.5 and more."""
        return self.constant(np.abs(self.normal(*shape)) + np.float32(0.5))

    def like(self, shape: Shape, but: int | None = None) -> list[str]:
        """Values of a shape, but for the extent of one axis."""
        ranked = {name: found for name, found in self.shapes.items() if len(found) == len(shape)}
        return [
            name
            for name, found in ranked.items()
            if all(a == b or axis == but for axis, (a, b) in enumerate(zip(found, shape, strict=True)))
        ]

    # Nodes

    def add(self, op_type: str, inputs: Sequence[str], *shapes: Shape, **attributes: Attribute) -> str:
        """One node with a float32 result for each shape; the name of the first."""
        outputs = self._names(len(shapes))
        self._append(op_type, inputs, outputs, attributes)
        self.shapes.update(zip(outputs, shapes, strict=True))
        return outputs[0]

    def add_other(self, op_type: str, inputs: Sequence[str], shape: Shape, dtype: int, **attributes: Attribute) -> str:
        """One node whose result is not float32."""
        (output,) = self._names(1)
        self._append(op_type, inputs, [output], attributes)
        self.others[output] = shape, dtype
        return output

    def add_constant(self, op_type: str, inputs: Sequence[str], **attributes: Attribute) -> str:
        """One node whose result is known once shapes are."""
        output = f"c{len(self.nodes)}"
        self._append(op_type, inputs, [output], attributes)
        return output

    def _names(self, count: int) -> list[str]:
        start = len(self.shapes) + len(self.others)
        return [f"v{start + position}" for position in range(count)]

    def _append(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], attributes: dict[str, Attribute]
    ) -> None:
        node = helper.make_node(op_type, inputs, outputs, name=f"n{len(self.nodes)}")
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self.nodes.append(node)

    def listed(self, name: str, values: Sequence[int], since: int) -> tuple[list[str], dict[str, Attribute]]:
        """Integers as an input from an operator set on, as an attribute before."""
        return ([self.integers(*values)], {}) if self.opset >= since else ([], {name: values})

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The checked model, without nodes that no output needs. Raises an error of onnx where it is not valid."""
        needed, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.append(node)
        types = {name: (shape, FLOAT) for name, shape in self.shapes.items()} | self.others
        graph = helper.make_graph(
            nodes[::-1],
            "random",
            [
                *(
                    helper.make_tensor_value_info(name, FLOAT, self.shapes[name])
                    for name in self.inputs
                    if name in needed
                ),
                *(
                    helper.make_tensor_value_info(name, dtype, shape)
                    for name, (shape, dtype) in self.integer_inputs.items()
                    if name in needed
                ),
            ],
            [helper.make_tensor_value_info(name, types[name][1], types[name][0]) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items() if name in needed],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


Maker = Callable[[Draft, str, str], bool]
"""Adds a node of an operator type that reads a value, and others around it; False, with nothing added, where that value
cannot be read."""


def with_extent(shape: Shape, axis: int, extent: int) -> Shape:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def without_axis(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])
