"""A model without its constant nodes, and parts of it as models of their own.

    ModelProto --fold--> FoldedModel(network) --cut(names of nodes)--> Cut(model, inputs, outputs)

Constants and what is computed from them or from shapes belong to whoever reads them, in each part anew. Operators may
be any of standard ONNX, and others that onnxruntime knows, which then says what their results are like.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx
from onnx import helper, numpy_helper

from dsa_sched.frontend.network.constant_folding import fold_constants
from dsa_sched.frontend.network.network import Network, Value, name_nodes
from dsa_sched.frontend.network.runtime_values import runtime_values
from dsa_sched.frontend.network.shapes import fix_shapes
from hw_models.errors import ModelError

OLDEST_IR = 4
"""From here on constants need not be listed among the inputs."""


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
        """The nodes of these names; its outputs are what other nodes read or the model gives out, and the values
        `through`, which it passes on. Raises ModelError for a value at its border without a static shape."""
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
    """Of a checked model with static input shapes, which is not changed. Raises ModelError for shapes that contradict
    each other, and where nothing depends on an input."""
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
