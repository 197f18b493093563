"""Layers with what they read, for tests of the reference: from ONNX models with onnxruntime's values, or made by hand.

    Build (an ONNX model)  --frontend, onnxruntime-->  Fed: graph, layers, a value for each tensor in device shape

Constants and inputs are halves, so that onnxruntime in fp32 computes from the same numbers as the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, numpy_helper

from codegen.cutlass.reference import Evaluated, LayerReference
from codegen.judgement import Array, Doubles, Sampled
from dsa_sched.frontend import load_model
from dsa_sched.frontend.graph.layout import channels_last
from dsa_sched.frontend.network.refusals import Judge
from dsa_sched.verification.tolerances import sample_points
from hw_models.chip import Chip
from hw_models.loading import load_chip
from partitioner.ir.graph import Attribute, Constants, Graph, Op, Tensor, content_hash
from partitioner.ir.layers import Layer, group_layers
from partitioner.ir.wants import Wants, floats_as
from tests.dsa_sched.frontend.numpy_graph import BY_CHANNEL, reference_values, to_device
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

Build = Callable[[ModelBuilder], str]

WHOLE = frozenset(["LayerNormalization", "RMSNormalization", "Gelu", "Elu", "Selu", "Celu", "Swish", "Softsign"])
WANTS = Wants(floats_as("float16"), "channels_last", WHOLE)
FRONTEND = LayerReference(outputs_first=False)
"""Of the order of weights that the frontend gives where nobody wants another."""

CHIP: Chip = load_chip("stcp920")
"""Any: the reference does not read it."""


@dataclass(frozen=True)
class Fed:
    """`values` are what layers read, in device shape, `errors` how far these may be off, `wanted` what onnxruntime has
    for a tensor."""

    graph: Graph
    constants: Constants
    layers: tuple[Layer, ...]
    values: dict[str, Array]
    errors: dict[str, Doubles]
    wanted: dict[str, Doubles]

    def sampled(self, layer: Layer, samples: int | None = None) -> Sampled:
        """At all points, or at some."""
        shape = self.graph.by_name[layer.output].shape
        size = int(np.prod(shape))
        points = sample_points(shape, samples or size, np.random.default_rng(0))

        def errors(name: str) -> Doubles:
            return self.errors.get(name, np.zeros(self.graph.by_name[name].shape))

        return Sampled(self.graph, self.constants, layer, points, self.values.__getitem__, errors, CHIP)

    def value(self, name: str) -> Array:
        """What is read of a tensor, a constant or not."""
        key = self.graph.by_name[name].constant
        return self.constants[key] if key else self.values[name]


def fed(build: Build, folder: Path, opset: int = 18, halves: bool = False) -> Fed:
    """With `halves` what layers read are the halves nearest to onnxruntime's values, as a device stores them."""
    builder = ModelBuilder(opset=opset)
    output = build(builder)
    for proto in builder.initializers:
        if proto.data_type == TensorProto.FLOAT:
            rounded = numpy_helper.to_array(proto).astype(np.float16).astype(np.float32)
            proto.CopyFrom(numpy_helper.from_array(rounded, proto.name))
    model = load_model(builder.save(folder, output), judge=Judge(WANTS))
    graph = model.graph
    layers, _ = group_layers(graph, _same_shape)
    reference = reference_values(model.source, _inputs(builder))
    wanted = {
        tensor.name: to_device(tensor, reference[tensor.name])
        for tensor in graph.tensors
        if tensor.name in reference and (tensor.axes or not tensor.shape) and not tensor.constant
    }
    found = Fed(graph, model.constants, layers, {}, {}, wanted)
    for name in graph.inputs:
        found.values[name] = wanted.get(name, np.asarray(reference[name])).astype(graph.by_name[name].dtype)
    for layer in layers:
        _feed(found, layer, halves)
    return found


def _feed(into: Fed, layer: Layer, halves: bool) -> None:
    """The layer's output for its readers: onnxruntime's where it has one, else the reference's own."""
    shape = into.graph.by_name[layer.output].shape
    if layer.output in into.wanted:
        value = into.wanted[layer.output]
    else:
        own = FRONTEND.evaluate(into.sampled(layer))
        value = own.numbers.reshape(shape)
        if not halves:
            into.errors[layer.output] = own.error.reshape(shape)
    into.values[layer.output] = value.astype(np.float16) if halves else value


def _inputs(builder: ModelBuilder) -> dict[str, Array]:
    inputs: dict[str, Array] = {}
    for item in builder.inputs:
        shape = tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
        if item.type.tensor_type.elem_type == TensorProto.INT64:
            inputs[item.name] = builder.random.integers(0, 7, shape)
        else:
            inputs[item.name] = builder.random.standard_normal(shape).astype(np.float16).astype(np.float32)
    return inputs


def _same_shape(graph: Graph, _layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
    same = graph.by_name[operand].shape == graph.by_name[op.outputs[0]].shape
    return None if same else "broadcast"


def by_hand(kind: str, operands: list[npt.NDArray[Any]], shape: tuple[int, ...], **attributes: Attribute) -> Fed:
    """One operator that reads these arrays, which are of any type."""
    graph, constants = one_operator(kind, {f"x{i}": array for i, array in enumerate(operands)}, {}, shape, attributes)
    layer = Layer(kind, (kind,), "y")
    return Fed(graph, constants, (layer,), {f"x{i}": array for i, array in enumerate(operands)}, {}, {})


def one_operator(
    kind: str,
    inputs: Mapping[str, npt.NDArray[Any]],
    fixed: Mapping[str, npt.NDArray[Any]],
    shape: tuple[int, ...],
    attributes: Mapping[str, Attribute],
) -> tuple[Graph, Constants]:
    """y = kind(inputs..., constants...)"""
    tensors = [_tensor(name, array) for name, array in inputs.items()]
    stored = [replace(_tensor(name, array), constant=content_hash(array)) for name, array in fixed.items()]
    axes = channels_last(len(shape)) if kind in BY_CHANNEL else tuple(range(len(shape)))
    result = Tensor("y", shape, "float16", axes, "float32")
    op = Op(kind, kind, (*inputs, *fixed), ("y",), tuple(attributes.items()))
    constants = {content_hash(array): array for array in fixed.values()}
    return Graph("one", tuple(inputs), ("y",), (op,), (*tensors, *stored, result)), constants


def _tensor(name: str, array: npt.NDArray[Any]) -> Tensor:
    return Tensor(name, array.shape, str(array.dtype), tuple(range(array.ndim)), str(array.dtype))


def evaluated(found: Fed, layer: Layer) -> Evaluated:
    """At all points, in the output's shape."""
    result = FRONTEND.evaluate(found.sampled(layer))
    shape = found.graph.by_name[layer.output].shape
    return Evaluated(result.numbers.reshape(shape), result.error.reshape(shape))
