"""Writes a topology node by node: the shared part of the builders of feature maps and of sequences.

input(...), weight(...), node("MatMul", ...)  -->  ModelProto whose weights have shapes only, as in the wheel's files

A weight is a ConstantOfShape: hundreds of megabytes of zeros would be made for nothing. Constants that decide what a
network does (scales, masks, indices) are initialisers with their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from dsa_sched.zoo.meanings.declared_meanings import Meaning, with_declared

TO_THE_END = (1 << 31) - 1

Topology = Callable[[], onnx.ModelProto]


class NamedShape(Protocol):
    """Extents of a network, with its name."""

    @property
    def name(self) -> str: ...


AnyShape = TypeVar("AnyShape", bound=NamedShape)


def topologies(topology: Callable[[AnyShape], onnx.ModelProto], *shapes: AnyShape) -> Mapping[str, Topology]:
    """Functions that write the networks of these shapes, by the networks' names."""
    return {shape.name: partial(topology, shape) for shape in shapes}


class NodeBuilder:
    """Collects nodes; every method appends what it is named after and returns the name of the value that it made.

    Names of values are those of the nodes, so that a layer is found again in every report.
    """

    def __init__(self, name: str, opset: int, dtype: npt.DTypeLike = np.float32) -> None:
        """`dtype` is that of weights, inputs and outputs that are numbers."""
        self.name = name
        self.opset = opset
        self.dtype = np.dtype(dtype)
        self.inputs: list[onnx.ValueInfoProto] = []
        self.meanings: dict[str, Meaning] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self._made: set[str] = set()

    def input(self, name: str, extents: Sequence[int | str]) -> str:
        """Floating-point numbers; an extent that is a name is left open."""
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(extents)))
        return name

    def integer_input(self, name: str, extents: Sequence[int | str], meaning: Meaning) -> str:
        """Add an input of 64-bit integers with their meaning."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, list(extents)))
        self.meanings[name] = meaning
        return name

    def build(self, *outputs: str) -> onnx.ModelProto:
        """The finished model with the given outputs, whose shapes are inferred."""
        infos = [onnx.ValueInfoProto(name=name) for name in outputs]
        model = self.model(infos)
        found = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True).graph.output
        for info in found:
            assert info.type.tensor_type.HasField("shape"), info.name
        return self.model(found)

    def model(self, outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """The model with outputs as they are declared."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        return with_declared(model, self.meanings)

    def node(self, op_type: str, name: str, inputs: Sequence[str], outputs: Sequence[str] = (), **settings: Any) -> str:
        """Add one node; returns its first output, which is named like the node if no outputs are named."""
        made = list(outputs) or [name]
        self.nodes.append(helper.make_node(op_type, list(inputs), made, name=name, **settings))
        return next(output for output in made if output)

    def weight(self, name: str, *shape: int, gain: float = 1.0) -> str:
        """Add a learned constant, by its shape alone; read again by its name. `gain` multiplies what is drawn."""
        if name in self._made:
            return name
        self._made.add(name)
        extents = self.constant(f"{name}.shape", np.array(shape, np.int64))
        usual = gain == 1.0 and self.dtype == np.float32
        settings = {} if usual else {"value": numpy_helper.from_array(np.array([gain], self.dtype))}
        self.nodes.append(helper.make_node("ConstantOfShape", [extents], [name], name=name, **settings))
        return name

    def constant(self, name: str, value: npt.NDArray[np.generic]) -> str:
        """Add a constant that decides what the network does."""
        assert prod(value.shape) > 0, name
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def integers(self, *values: int) -> str:
        """A vector of integers, which all of a network share, named after its values."""
        return self.shared("integers." + ".".join(map(str, values)), np.array(values, np.int64))

    def index(self, value: int) -> str:
        """A single integer, which all of a network share."""
        return self.shared(f"index.{value}", np.array(value, np.int64))

    def number(self, value: float) -> str:
        """A single number, which all of a network share, named after its value."""
        return self.shared(f"number.{value:.9g}", np.array(value, self.dtype))

    def shared(self, name: str, value: npt.NDArray[np.generic]) -> str:
        """A constant that several nodes read; the same value under the same name."""
        if name in self._made:
            return name
        self._made.add(name)
        return self.constant(name, value)
