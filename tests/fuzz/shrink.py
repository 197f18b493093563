"""A smaller model that still fails: fewer outputs, values as inputs instead of what computes them, nodes left out.

model, fails --fewer outputs, cut off, bypass, until nothing helps--> a model that fails and no smaller one of these
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx
from onnx import helper

__all__ = ["shrink"]

Fails = Callable[[onnx.ModelProto], bool]


def shrink(model: onnx.ModelProto, fails: Fails) -> onnx.ModelProto:
    """The smallest that steps downhill lead to; `fails` is asked only about valid models."""
    while (smaller := next((each for each in _smaller(model) if _valid(each) and fails(each)), None)) is not None:
        model = smaller
    return model


def _valid(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return bool(model.graph.node) and bool(model.graph.input)


def _smaller(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Models with less in them, those with much less first."""
    types = _types(model)
    outputs = [item.name for item in model.graph.output]
    nodes = list(model.graph.node)
    for node in nodes:  # an early value as the only output
        if node.output[0] in types and [node.output[0]] != outputs:
            yield _part(model, nodes, [node.output[0]], types)
    for position in range(len(outputs)):
        if len(outputs) > 1:
            yield _part(model, nodes, outputs[:position] + outputs[position + 1 :], types)
    for node in reversed(nodes):  # a late value as an input
        if all(name in types for name in node.output):
            yield _part(model, [other for other in nodes if other is not node], outputs, types)
    for node in nodes:
        for read in node.input:
            if read in types and types[read].type == types.get(node.output[0], types[read]).type:
                yield _part(model, [_renamed(n, node.output[0], read) for n in nodes if n is not node], outputs, types)


def _types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Every value that is computed or an input."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    return {item.name: item for item in (*inferred.input, *inferred.value_info, *inferred.output)}


def _renamed(node: onnx.NodeProto, old: str, new: str) -> onnx.NodeProto:
    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.input[:] = [new if name == old else name for name in node.input]
    return result


def _part(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], outputs: list[str], types: dict[str, onnx.ValueInfoProto]
) -> onnx.ModelProto:
    """What these outputs need of these nodes; values that none of them computes are inputs. Outputs that none computes
    are left out."""
    made = {name for node in nodes for name in node.output}
    outputs = [name for name in outputs if name in made]
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    constants = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    made = {name for node in kept for name in node.output} | {tensor.name for tensor in constants}
    inputs = [types[name] for name in sorted(needed - made - {""}) if name in types]
    graph = helper.make_graph(kept[::-1], "smaller", inputs, [types[name] for name in outputs], constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
