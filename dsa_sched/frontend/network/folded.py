"""A model without its constant nodes, and parts of it as separate models.

    ModelProto --fold--> FoldedModel(network) --cut(names of nodes)--> Cut(model, inputs, outputs)

Constants, and values computed from them or from shapes, belong to their readers and are repeated in each part.
Operators may be any of standard ONNX, and others that onnxruntime knows, which then tells the shapes of their results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.frontend.network.constant_folding import fold_constants, runtime_session
from dsa_sched.frontend.network.network import Network, Value, graphs_of, name_nodes
from dsa_sched.frontend.network.shapes import fix_shapes
from hw_models.errors import ModelError

SCALARS: Mapping[str, type[np.generic]] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
}
"""Element types by the names that onnxruntime uses, as in `tensor(...)`."""


def runtime_values(model: onnx.ModelProto, known: Mapping[str, Value]) -> dict[str, Value]:
    """Static shapes and types of values that are not `known`, of a model with operators of other domains or with graphs
    inside: of outputs as the file declares them, of others as onnxruntime infers them."""
    if not any(node.domain not in ("", "ai.onnx") or any(graphs_of(node)) for node in model.graph.node):
        return {}
    found = dict(_declared(model, known))
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name and name not in known]
    del asked.graph.output[:]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    try:
        session = runtime_session(asked)
    except Exception:  # its error is reported where the stage is run
        return found
    inferred = {item.name: _value(item.type, item.shape) for item in session.get_outputs()}
    return found | {name: value for name, value in inferred.items() if value is not None}


def _declared(model: onnx.ModelProto, known: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    for item in model.graph.output:
        kind = item.type.tensor_type
        if item.name not in known and kind.HasField("shape") and all(dim.dim_value > 0 for dim in kind.shape.dim):
            yield item.name, Value(tuple(int(dim.dim_value) for dim in kind.shape.dim), kind.elem_type)


def _value(kind: str, shape: list[int | str | None]) -> Value | None:
    """Value of `tensor(float)` with static extents; None for others, and without extents, which may be unknown ones."""
    scalar = SCALARS.get(kind.removeprefix("tensor(").removesuffix(")"))
    extents = [extent for extent in shape if isinstance(extent, int) and extent >= 0]
    if scalar is None or not shape or len(extents) < len(shape):
        return None
    return Value(tuple(extents), helper.np_dtype_to_tensor_dtype(np.dtype(scalar)))


OLDEST_IR = 4
"""First IR version in which constants need not be listed among the inputs."""


@dataclass(frozen=True, slots=True)
class SubModel:
    """Nodes of a model as a model. `inputs` and `outputs` are values of the whole, by its names."""

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoldedModel:
    """`network` has constants folded and all shapes; `protos` are the file's nodes by name."""

    network: Network
    protos: Mapping[str, onnx.NodeProto]
    opsets: tuple[tuple[str, int], ...]
    ir_version: int

    def cut(self, names: Collection[str], through: tuple[str, ...] = (), name: str = "part") -> SubModel:
        """The nodes of these names; its outputs are the values that other nodes read or the model gives out, and the
        values `through`, which it passes on. Raises ModelError for a value at its border without a static shape.
        """
        wanted = frozenset(names)
        network = self.network
        nodes = [node for node in network.nodes if node.name in wanted]
        made = {output for node in nodes for output in node.outputs if output}
        read = dict.fromkeys(value for node in nodes for value in node.reads if value not in made)
        constants = [value for value in read if value in network.constants]
        inputs = tuple(dict.fromkeys((*(value for value in read if value not in network.constants), *through)))
        given = set(network.outputs)
        outputs = tuple(
            value for node in nodes for value in node.outputs
            if value and (value in given or any(r.name not in wanted for r in network.readers.get(value, ())))
        ) + through  # fmt: skip
        graph = helper.make_graph(
            [self.protos[node.name] for node in nodes],
            name,
            [self._typed(value) for value in inputs],
            [self._typed(value) for value in outputs],
            [numpy_helper.from_array(network.constants[value], value) for value in constants],
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets]
        return SubModel(helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version), inputs, outputs)

    def value(self, name: str) -> Value:
        """Shape and element type. Raises ModelError where they are not static."""
        found = self.network.values.get(name)
        if found is None:
            raise ModelError(f"tensor {name}", needs="a static shape and type", has="neither, by shape inference")
        return found

    def _typed(self, name: str) -> onnx.ValueInfoProto:
        value = self.value(name)
        return helper.make_tensor_value_info(name, value.dtype, value.shape)


def folded_model(model: onnx.ModelProto) -> FoldedModel:
    """Fold a checked model with static input shapes, which is not changed. Raises ModelError for shapes that contradict
    each other, and where nothing depends on an input.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    name_nodes(copy)
    values = fix_shapes(copy, {}, None)
    network = fold_constants(copy, {**runtime_values(copy, values), **values})
    if not network.nodes:
        raise ModelError(network.name, needs="a node that depends on an input", has="constants alone")
    opsets = tuple((item.domain, int(item.version)) for item in copy.opset_import)
    protos = {proto.name: proto for proto in copy.graph.node}
    return FoldedModel(network, protos, opsets, max(copy.ir_version, OLDEST_IR))
