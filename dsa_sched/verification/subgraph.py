"""A range of consecutive nodes of a model as a separate model, with inputs for it.

    nodes [a, b) + every value of the reference  -->  Part(model, feeds)

Values that the nodes read from outside become inputs, filled with the reference's values. Values that do not depend on
the inputs of the whole, and integers (shapes, axes), become constants, as they would after folding. Outputs are the
values that the rest of the model reads or gives out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.verification.evidence import Array, Feed

OLDEST_IR = 4
"""First IR version in which constants need not be listed among the inputs."""


@dataclass(frozen=True, slots=True)
class SubgraphPart:
    """A model and one set of inputs for each input of the whole."""

    model: onnx.ModelProto
    feeds: tuple[Feed, ...]


def cut(model: onnx.ModelProto, values: tuple[Feed, ...], start: int, end: int) -> SubgraphPart | None:
    """Nodes [start, end) of a checked model; None when they read or give out nothing that depends on the inputs.

    `values` holds, for each input of the whole, every value by name.
    """
    nodes = model.graph.node[start:end]
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    varying = _varying(model, initializers)
    inside = {name for node in nodes for name in node.output if name}
    outside = dict.fromkeys(name for node in nodes for name in node.input if name and name not in inside)
    read_later = {name for node in (*model.graph.node[:start], *model.graph.node[end:]) for name in node.input}
    given = {item.name for item in model.graph.output} | read_later
    inputs = [n for n in outside if n not in initializers and n in varying and _floating(values[0][n])]
    outputs = [
        name for node in nodes for name in node.output
        if name in given and name in varying and name in values[0] and _floating(values[0][name])
    ]  # fmt: skip
    if not inputs or not outputs:
        return None
    constants = [
        initializers[name] if name in initializers else numpy_helper.from_array(np.asarray(values[0][name]), name)
        for name in outside
        if name not in inputs
    ]
    graph = helper.make_graph(
        nodes, "failing", [_typed(n, values[0]) for n in inputs], [_typed(n, values[0]) for n in outputs], constants
    )
    part = helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, OLDEST_IR))
    return SubgraphPart(part, tuple({name: of_input[name] for name in inputs} for of_input in values))


def _varying(model: onnx.ModelProto, initializers: Mapping[str, onnx.TensorProto]) -> set[str]:
    """Values that depend on an input of the model by more than its shape."""
    varying = {item.name for item in model.graph.input if item.name not in initializers}
    for node in model.graph.node:
        if node.op_type not in ("Shape", "Size") and any(name in varying for name in node.input):
            varying.update(node.output)
    return varying


def _floating(array: Array) -> bool:
    return array.dtype.kind == "f"


def _typed(name: str, values: Feed) -> onnx.ValueInfoProto:
    array = values[name]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
