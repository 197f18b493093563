"""Constants at compile time: nodes whose inputs are all known become arrays, as do the shapes of static values.

    ConstantOfShape, Constant, Shape -> Gather -> Concat, Unsqueeze(weights)  -->  constants of a Network

Filling and shapes are done here; everything else is run once in onnxruntime as one small model of the constant part.
Where onnxruntime refuses that model, it is asked node by node, and nodes for which it has no kernel are left to the
reference evaluator of ONNX; a node that neither can compute stays, with the reason, and does not affect others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.frontend.network.network import Array, Network, Value, array_of, captured_by, network_of, node_proto
from dsa_sched.frontend.network.shapes import LARGEST_EMBEDDED_ELEMENTS, first_line, infer_values, typed
from hw_models.errors import ModelError, size_text

RANDOM = frozenset(
    ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"]
)
LEFT = RANDOM | {"DequantizeLinear"}
"""Operators that stay: integers and their scales are wanted apart."""
CAST_TYPES = frozenset([1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13])
"""TensorProto types of plain numbers."""
LARGEST_CONSTANT_BYTES = 2 << 30
MOST_ROUNDS = 20
BOUNDED = frozenset(["NonZero", "Compress", "Unique"])
"""Operators whose results depend in size on numbers, but are at most a few times as large as their operands."""


def fold_constants(model: onnx.ModelProto, values: Mapping[str, Value]) -> Network:
    """The network without the nodes that depend on constants only. `model` is not changed; its nodes have names.

    Raises ModelError when a constant would exceed 2 GiB.
    """
    constants: dict[str, Array] = {tensor.name: array_of(tensor) for tensor in model.graph.initializer}
    nodes = list(model.graph.node)
    known = dict(values)
    reasons: dict[str, str] = {}
    for _ in range(MOST_ROUNDS):
        remaining = _one_sweep(model, nodes, constants, known, reasons)
        if len(remaining) == len(nodes):
            break
        nodes = remaining
        if any(output not in known for node in nodes for output in node.output if output):
            known |= infer_values(_part(model, nodes, constants))
    return replace(network_of(model, nodes, constants, known), unfolded=reasons)


def fold_rest(network: Network, also: frozenset[str] = frozenset()) -> Network:
    """The network after a rewrite that made constants, without the nodes that now depend on constants only. The nodes
    named in `also` are computed, too, though they are among those that stay at first.

    Raises ModelError when a constant would exceed 2 GiB.
    """
    constants, reasons = dict(network.constants), dict(network.unfolded)
    known, ready = set(constants), list[onnx.NodeProto]()
    for node in network.nodes:
        proto = node_proto(node)
        if node.name not in reasons and _foldable(proto, known, network.values, also):
            ready.append(proto)
            known.update(node.outputs)
    if not ready:
        return network
    of_constants = {proto.name for proto in ready}
    rest = [node for node in network.nodes if node.name not in of_constants]
    read = dict.fromkeys((*(name for node in rest for name in (*node.inputs, *node.captured)), *network.outputs))
    graph = helper.make_graph([], network.name, [], [onnx.ValueInfoProto(name=name) for name in read])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", network.opset)], ir_version=8)
    left = {proto.name for proto in _one_sweep(model, ready, constants, network.values, reasons, also)}
    nodes = tuple(node for node in network.nodes if node.name in left or node.name not in of_constants)
    return replace(network, nodes=nodes, constants=constants, unfolded=reasons).pruned()


def _one_sweep(
    model: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    constants: dict[str, Array],
    values: Mapping[str, Value],
    reasons: dict[str, str],
    also: frozenset[str] = frozenset(),
) -> list[onnx.NodeProto]:
    """Add to `constants` and return the nodes that are left; `reasons` says why some could not be computed."""
    remaining: list[onnx.NodeProto] = []
    deferred: list[onnx.NodeProto] = []
    known = set(constants)
    for node in nodes:
        array = _immediate(node, constants, values)
        if array is not None:
            constants[node.output[0]] = array
            known.add(node.output[0])
        elif node.name not in reasons and _foldable(node, known, values, also):
            deferred.append(node)
            known.update(node.output)
        else:
            remaining.append(node)
    if not deferred:
        return remaining
    for output in (name for node in deferred for name in node.output if name in values):
        _require_size(output, values[output].shape)
    wanted = {name for node in remaining for name in (*node.input, *captured_by(node))} | {
        item.name for item in model.graph.output
    }
    arrays = _run(model, deferred, wanted, constants)
    if arrays is not None:
        constants.update(arrays)
        return remaining
    _run_each(model, deferred, constants, reasons)
    folded = {node.name for node in deferred if node.output[0] in constants}
    return [node for node in nodes if node.name not in folded and node.output[0] not in constants]


def _foldable(node: onnx.NodeProto, known: set[str], values: Mapping[str, Value], also: frozenset[str]) -> bool:
    """Whether the node reads only constants, is deterministic, and has a size that is known before it is computed."""
    sized = node.op_type in BOUNDED or all(output in values for output in node.output if output)
    read = (*filter(None, node.input), *captured_by(node))
    return sized and (node.op_type not in LEFT or node.name in also) and known.issuperset(read)


def _immediate(node: onnx.NodeProto, constants: Mapping[str, Array], values: Mapping[str, Value]) -> Array | None:
    """The value of a filling, a literal, a shape or a constant cast to a known type; None for other nodes."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    match node.op_type:
        case "Constant" if "value" in attributes:
            return array_of(attributes["value"].t)
        case "ConstantOfShape" if node.input[0] in constants:
            fill = array_of(attributes["value"].t) if "value" in attributes else np.zeros(1, np.float32)
            shape = tuple(int(extent) for extent in constants[node.input[0]].reshape(-1))
            _require_size(node.output[0], shape)
            return np.full(shape, fill.reshape(-1)[0], fill.dtype)
        case "Shape" if node.input[0] in values:
            extents = np.array(values[node.input[0]].shape, np.int64)
            start = attributes["start"].i if "start" in attributes else 0
            end = attributes["end"].i if "end" in attributes else len(extents)
            return extents[start:end]
        case "CastLike" if node.input[0] in constants and _is_number(values.get(node.input[1])):
            with np.errstate(over="ignore", invalid="ignore"):
                return constants[node.input[0]].astype(helper.tensor_dtype_to_np_dtype(values[node.input[1]].dtype))
        case "Size" if node.input[0] in values:
            return np.array(np.prod(values[node.input[0]].shape, dtype=np.int64))
    return None


def _is_number(value: Value | None) -> bool:
    """Whether numpy casts to the type as ONNX does: the float8 types saturate, and texts are no numbers."""
    return value is not None and value.dtype in CAST_TYPES


def _require_size(name: str, shape: tuple[int, ...]) -> None:
    """Refuse a small file that would expand into a huge constant; counts eight bytes per element, the largest type."""
    size_bytes = 8
    for extent in shape:
        size_bytes *= max(extent, 0)
    if size_bytes > LARGEST_CONSTANT_BYTES:
        raise ModelError(
            f"constant {name}",
            needs=f"at most {size_text(LARGEST_CONSTANT_BYTES)}",
            has=f"{size_text(size_bytes)} as {shape}",
        )


def _run(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], wanted: set[str], constants: Mapping[str, Array]
) -> dict[str, Array] | None:
    """Values of the constant nodes that others read; None when onnxruntime does not run one of them."""
    outputs = [output for node in nodes for output in node.output if output in wanted]
    try:
        return _by_onnxruntime(_part_of_constants(model, nodes, outputs, constants), constants)
    except Exception:  # onnxruntime has a separate class for each reason
        return None


def _run_each(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], constants: dict[str, Array], reasons: dict[str, str]
) -> None:
    """Compute node by node, as far as possible. Adds to `constants`, and to `reasons` why a node cannot be computed."""
    for node in nodes:
        if not set(constants).issuperset(filter(None, node.input)):
            continue
        part = _part_of_constants(model, [node], [name for name in node.output if name], constants)
        try:
            constants.update(_by_onnxruntime(part, constants))
        except Exception as refused:
            try:
                constants.update(_by_reference(part, constants))
            except Exception:  # of any class: numpy's errors about operands that do not fit
                reasons[node.name] = first_line(refused)


def _part_of_constants(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], constants: Mapping[str, Array]
) -> onnx.ModelProto:
    """A model of these nodes. Small constants are initializers, so that shapes can follow from them; large ones are
    inputs."""
    read = dict.fromkeys(name for node in nodes for name in (*node.input, *captured_by(node)) if name in constants)
    graph = helper.make_graph(
        nodes,
        "constants",
        [typed(name, constants[name]) for name in read if constants[name].size > LARGEST_EMBEDDED_ELEMENTS],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [
            numpy_helper.from_array(constants[name], name)
            for name in read
            if constants[name].size <= LARGEST_EMBEDDED_ELEMENTS
        ],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(8, model.ir_version))


def runtime_session(model: onnx.ModelProto) -> Any:
    """A session of onnxruntime that computes the nodes as they are, on one core. Raises what onnxruntime raises."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _by_onnxruntime(part: onnx.ModelProto, constants: Mapping[str, Array]) -> dict[str, Array]:
    return _named(part, runtime_session(part).run(None, _fed(part, constants)))


def _by_reference(part: onnx.ModelProto, constants: Mapping[str, Array]) -> dict[str, Array]:
    from onnx.reference import ReferenceEvaluator

    return _named(part, [np.asarray(array) for array in ReferenceEvaluator(part).run(None, _fed(part, constants))])


def _fed(part: onnx.ModelProto, constants: Mapping[str, Array]) -> dict[str, Array]:
    return {item.name: constants[item.name] for item in part.graph.input}


def _named(part: onnx.ModelProto, arrays: Sequence[Array]) -> dict[str, Array]:
    names = (item.name for item in part.graph.output)
    return {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}


def _part(model: onnx.ModelProto, nodes: list[onnx.NodeProto], constants: Mapping[str, Array]) -> onnx.ModelProto:
    """The rest of the model; large constants appear as inputs, without their data."""
    result = onnx.ModelProto()
    result.ir_version = max(8, model.ir_version)
    result.opset_import.extend(model.opset_import)
    graph = result.graph
    initial = {tensor.name for tensor in model.graph.initializer}
    graph.input.extend(item for item in model.graph.input if item.name not in initial)
    graph.output.extend(model.graph.output)
    graph.node.extend(nodes)
    used = {name for node in nodes for name in (*node.input, *captured_by(node))}
    for name, array in constants.items():
        if name in used and array.size <= LARGEST_EMBEDDED_ELEMENTS:
            graph.initializer.append(numpy_helper.from_array(array, name))
        elif name in used:
            graph.input.append(typed(name, array))
    return result
