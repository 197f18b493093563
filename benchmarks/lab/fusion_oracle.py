"""What TVM would fuse: the independent count that our own grouping of operators into layers is compared with.

    simplified Network --> ONNX model --> Relax --> FuseOps, FuseTIR  -->  one kernel name for each call

Only tests and benchmarks use this; it is no part of a compilation.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.frontend.network.network import SCALE_SHIFT, Array, Network, Node, node_proto

__all__ = ["fused_kernels", "model_of"]

OPSET = 13


def fused_kernels(network: Network) -> tuple[str, ...]:
    """Name of the kernel of every call that TVM makes of the network, in order, reshapes left out."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    passes = tvm.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FoldConstant(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the importer repeats remarks of the checker
        module = passes(from_onnx(model_of(network)))
    calls = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    names = [str(call.args[0].name_hint) for call in calls if isinstance(call, relax.Call)]
    return tuple(name for name in names if not name.startswith("reshape"))


def model_of(network: Network) -> onnx.ModelProto:
    """The network as float32 ONNX, our own operators spelled out in ONNX's. Element-wise values keep their names."""
    constants = dict(network.constants)
    nodes = [node_proto(part) for node in network.nodes for part in _in_onnx(network, node, constants)]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        network.name,
        [helper.make_tensor_value_info(n, network.values[n].dtype, network.values[n].shape) for n in network.inputs],
        [helper.make_tensor_value_info(n, network.values[n].dtype, network.values[n].shape) for n in network.outputs],
        [numpy_helper.from_array(_single(array), name) for name, array in constants.items() if name in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", max(network.opset, OPSET))], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _single(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _in_onnx(network: Network, node: Node, constants: dict[str, Array]) -> Iterator[Node]:
    output = node.outputs[0]
    match node.op_type:
        case "Reshape":
            target = f"{node.name}::target"
            constants[target] = np.array(network.shape(output), np.int64)
            yield replace(node, inputs=(node.inputs[0], target), settings=())
        case "MatMul" if len(node.inputs) > 2:
            yield replace(node, inputs=node.inputs[:2], outputs=(f"{output}::product",))
            yield Node(f"{node.name}::add", "Add", (f"{output}::product", node.inputs[2]), (output,))
        case "Softmax" if network.opset < OPSET:
            axis = node.integer("axis", 1)
            yield replace(node, settings=(("axis", axis),))
        case name if name == SCALE_SHIFT:
            data, scale, shift = node.inputs
            spread = (-1, *(1,) * (len(network.shape(output)) - 2))
            for constant in (scale, shift):
                constants[f"{constant}::spread"] = constants[constant].reshape(spread)
            yield Node(f"{node.name}::mul", "Mul", (data, f"{scale}::spread"), (f"{output}::scaled",))
            yield Node(f"{node.name}::add", "Add", (f"{output}::scaled", f"{shift}::spread"), (output,))
        case _:
            yield node
