"""A network in the form that the quantiser needs. It computes what the file computes.

    Conv -> BatchNormalization -> Relu -> Dropout -> Conv   -->   Conv -> Relu -> Conv, weights and biases folded
    Sum(a, b)                                               -->   Add(a, b)

Operators are those of opset 13 or later, which has scales per channel. Constants are initializers, whatever nodes of
the file compute them. All values whose shapes are static have a type. Nodes and values keep their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend.network.network import graphs_of, name_nodes
from dsa_sched.frontend.network.shapes import infer_values
from dsa_sched.quantisation.sessions import NetworkSession
from hw_models.errors import ModelError

LEAST_OPSET = 13
"""First version of the ONNX operators in which DequantizeLinear has one scale per channel."""

INTEGERS = frozenset(
    ["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger",
     "MatMulInteger"]
)  # fmt: skip
"""Operators of networks that are quantised already."""

DRAWN = frozenset(
    ["RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"]
)
"""Operators whose results are no constants, although their operands are."""

Floats = npt.NDArray[np.float64]


def prepared(source: onnx.ModelProto, who: str) -> onnx.ModelProto:
    """A prepared copy of a checked model with static shapes. Raises ModelError for a network that is quantised already
    and for operators that opset 13 cannot say."""
    present = sorted({node.op_type for node in source.graph.node} & INTEGERS)
    if present:
        raise ModelError(
            who,
            needs="a network in floating point",
            has=f"{present[0]}; it is quantised already",
            change="compile it as it is, or give the file from which it was made",
        )
    model = _at_least_opset(source, who)
    _compute_constants(model)
    while _known_shapes(model):
        _compute_constants(model)
    _drop_copies(model)
    _sums_of_two(model)
    _fold_norms(model)
    _flat_biases(model)
    _drop_unread(model)
    _declare_types(model)
    return model


def constants_of(model: onnx.ModelProto) -> dict[str, TensorProto]:
    """Initializers by name."""
    return {tensor.name: tensor for tensor in model.graph.initializer}


def readers_of(model: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    """Value -> the nodes that read it, each once per operand, also those that read it in a graph inside."""
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in _operands(node):
            found.setdefault(name, []).append(node)
    return found


def outputs_of(model: onnx.ModelProto) -> frozenset[str]:
    """Names of the network's outputs."""
    return frozenset(item.name for item in model.graph.output)


def opset_of(model: onnx.ModelProto) -> int:
    """Version of the ONNX operators."""
    return max((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), default=1)


def _operands(node: onnx.NodeProto) -> Iterator[str]:
    yield from filter(None, node.input)
    for graph in graphs_of(node):
        for inner in graph.node:
            yield from _operands(inner)
        yield from (item.name for item in graph.output)


def _at_least_opset(source: onnx.ModelProto, who: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(source)
    version = opset_of(model)
    if version >= LEAST_OPSET:
        return model
    try:
        model = onnx.version_converter.convert_version(model, LEAST_OPSET)
    except Exception as error:  # the converter raises its own classes
        raise ModelError(
            who,
            needs=f"operators of opset {LEAST_OPSET} or later, which has scales per channel",
            has=f"opset {version}, and onnx cannot convert it: {str(error).splitlines()[0]}",
            change="export the network again with a newer opset",
        ) from error
    model.ir_version = max(model.ir_version, 8)
    name_nodes(model)
    _drop_constant_inputs(model)
    return model


def _drop_constant_inputs(model: onnx.ModelProto) -> None:
    """Initializers that are listed as inputs, too, as old files have them, are initializers alone."""
    constants = constants_of(model)
    kept = [item for item in model.graph.input if item.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def _compute_constants(model: onnx.ModelProto) -> None:
    """Replace nodes that compute constants by initializers of the same names."""
    graph, known = model.graph, set(constants_of(model))
    known -= {item.name for item in graph.input}
    computed = []
    for node in graph.node:
        if node.op_type not in DRAWN and not any(graphs_of(node)) and known.issuperset(filter(None, node.input)):
            known.update(filter(None, node.output))
            computed.append(node)
    if not computed:
        return
    names = {name for node in computed for name in node.output}
    rest = [node for node in graph.node if not any(name in names for name in node.output)]
    wanted = {name for node in rest for name in _operands(node)} | outputs_of(model)
    frontier = sorted(names & wanted)
    if not frontier:
        return
    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.graph.input[:], part.graph.node[:], part.graph.output[:], part.graph.value_info[:]
    part.graph.node.extend(computed)
    _drop_unread(part)
    outputs = outputs_of(model)
    for name, array in NetworkSession(part, frontier).run({}).items():
        stored = _free_name(f"{name}_constant", model) if name in outputs else name
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), stored))
        if stored != name:  # an output of the network comes from a node
            rest.append(helper.make_node("Identity", [stored], [name], name=f"{name}_copy"))
    _set_nodes(model, rest)


def _known_shapes(model: onnx.ModelProto) -> bool:
    """Replace the Shape nodes of values whose shapes follow from those of the inputs; whether there are any."""
    values, outputs, rest = infer_values(model), outputs_of(model), []
    for node in model.graph.node:
        value = values.get(node.input[0]) if node.op_type == "Shape" and node.output[0] not in outputs else None
        if value is None:
            rest.append(node)
            continue
        ends = {attribute.name: attribute.i for attribute in node.attribute}
        extents = np.array(value.shape, np.int64)[ends.get("start", 0) : ends.get("end", len(value.shape))]
        model.graph.initializer.append(numpy_helper.from_array(extents, node.output[0]))
    found = len(rest) < len(model.graph.node)
    if found:
        _set_nodes(model, rest)
    return found


def _drop_unread(model: onnx.ModelProto) -> None:
    """Leave out constants that nothing reads any more."""
    read = set(readers_of(model)) | outputs_of(model)
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    if len(kept) < len(model.graph.initializer):
        copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del model.graph.initializer[:]
        model.graph.initializer.extend(copies)


def _set_nodes(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> None:
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _drop_copies(model: onnx.ModelProto) -> None:
    """Let readers of Identity and of Dropout, which does nothing in inference, read what these read."""
    outputs, readers, renamed, kept = outputs_of(model), readers_of(model), dict[str, str](), []
    captured = {name for node in model.graph.node for graph in graphs_of(node) for n in graph.node for name in n.input}
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        alone = not any(name in readers for name in node.output[1:]) and node.output[0] not in outputs | captured
        if alone and (node.op_type == "Identity" or (node.op_type == "Dropout" and len(node.input) < 3)):
            renamed[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    _set_nodes(model, kept)


def _sums_of_two(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"


def _flat_biases(model: onnx.ModelProto) -> None:
    """Biases of Gemm in one row, [1, N], as [N], which means the same."""
    constants, readers = constants_of(model), readers_of(model)
    for node in model.graph.node:
        bias = constants.get(node.input[2]) if node.op_type == "Gemm" and len(node.input) > 2 else None
        if bias is not None and len(bias.dims) == 2 and bias.dims[0] == 1 and len(readers[bias.name]) == 1:
            bias.dims[:] = [bias.dims[1]]


def _fold_norms(model: onnx.ModelProto) -> None:
    """Fold BatchNormalization into the convolution before it, if nothing else reads what that gives."""
    constants, readers, outputs = constants_of(model), readers_of(model), outputs_of(model)
    uses = Counter(name for node in model.graph.node for name in node.input)
    producers = {node.output[0]: node for node in model.graph.node}
    folded = set()
    for norm in model.graph.node:
        conv = producers.get(norm.input[0]) if norm.op_type == "BatchNormalization" else None
        if conv is None or conv.op_type != "Conv" or conv.output[0] in outputs or len(readers[conv.output[0]]) > 1:
            continue
        operands = [*conv.input[1:3], *norm.input[1:5]]
        if len(list(filter(None, norm.output))) > 1 or not all(
            _is_float(constants.get(name)) for name in operands if name
        ):
            continue
        weights, bias = _folded(conv, norm, constants)
        for place, array in ((1, weights), (2, bias)):
            free = len(conv.input) > place and uses[conv.input[place]] == 1
            name = (
                conv.input[place]
                if free
                else _free_name(f"{norm.output[0]}_{'weights' if place == 1 else 'bias'}", model)
            )
            tensor = numpy_helper.from_array(array.astype(np.float32), name)
            if free:
                constants[name].CopyFrom(tensor)
            else:
                model.graph.initializer.append(tensor)
                constants[name] = model.graph.initializer[-1]
            if len(conv.input) > place:
                conv.input[place] = name
            else:
                conv.input.append(name)
        conv.output[0] = norm.output[0]
        producers[conv.output[0]] = conv
        folded.add(norm.name)
    _set_nodes(model, [node for node in model.graph.node if node.name not in folded])


def _folded(conv: onnx.NodeProto, norm: onnx.NodeProto, constants: dict[str, TensorProto]) -> tuple[Floats, Floats]:
    """Weights and bias of a convolution and the normalisation after it."""
    gain, shift, mean, variance = (
        numpy_helper.to_array(constants[name]).astype(np.float64) for name in norm.input[1:5]
    )
    epsilon = next((attribute.f for attribute in norm.attribute if attribute.name == "epsilon"), 1e-5)
    factor = gain / np.sqrt(variance + epsilon)
    weights = numpy_helper.to_array(constants[conv.input[1]]).astype(np.float64)
    has_bias = len(conv.input) > 2 and conv.input[2]
    bias = numpy_helper.to_array(constants[conv.input[2]]).astype(np.float64) if has_bias else np.zeros(len(gain))
    return weights * factor.reshape(-1, *[1] * (weights.ndim - 1)), (bias - mean) * factor + shift


def _is_float(tensor: TensorProto | None) -> bool:
    return tensor is not None and tensor.data_type == TensorProto.FLOAT


def _free_name(wanted: str, model: onnx.ModelProto) -> str:
    taken = {*constants_of(model), *(name for node in model.graph.node for name in node.output)}
    while wanted in taken:
        wanted += "_"
    return wanted


def _declare_types(model: onnx.ModelProto) -> None:
    """Shape and type of every value that has static ones, as the quantiser looks them up."""
    constants = constants_of(model)
    declared = {item.name for item in (*model.graph.input, *model.graph.output)} | set(constants)
    values = infer_values(model)
    del model.graph.value_info[:]
    model.graph.value_info.extend(
        helper.make_tensor_value_info(name, value.dtype, value.shape)
        for name, value in values.items()
        if name not in declared
    )
