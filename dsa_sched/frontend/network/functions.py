"""Functions of the model file, inlined where they are called.

    y = example.Block(x)    Block(a) => Conv, Relu    -->    Conv, Relu in the graph itself

A file of a few functions that call each other twice can stand for more nodes than there is memory; their number is
counted before any is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx
from onnx import helper, inliner

from dsa_sched.frontend.network.network import graphs_of
from dsa_sched.frontend.network.shapes import first_line
from hw_models.errors import ModelError

MOST_NODES = 1 << 20
MOST_DEPTH = 64
"""Largest depth of functions that call functions."""

Key = tuple[str, str, str]


def inline_functions(model: onnx.ModelProto, who: str) -> None:
    """Replace the calls in `model` and forget its functions. Raises ModelError for functions that call themselves, that
    are written for another operator set than the graph, or that become too many nodes."""
    if not model.functions:
        return
    bodies = {(f.domain, f.name, f.overload): tuple(f.node) for f in model.functions}
    count = _count(model.graph.node, bodies, {}, (), who)
    if count > MOST_NODES:
        raise ModelError(
            who, needs=f"at most {MOST_NODES} nodes", has=f"{count} once its functions are in their places"
        )
    result = _inlined(model, who)
    if result.functions:
        left = ", ".join(sorted(f"{f.domain}.{f.name}" for f in result.functions)[:3])
        raise ModelError(
            who,
            needs="functions for the operator set that the graph is written in",
            has=f"{left} for another one",
            change="export the model with functions in its own operator set, or without functions",
        )
    for field, items in (
        (model.graph.node, result.graph.node),
        (model.graph.value_info, result.graph.value_info),
        (model.opset_import, result.opset_import),
    ):
        kept = list(items)
        del field[:]
        field.extend(kept)
    del model.functions[:]


def _inlined(model: onnx.ModelProto, who: str) -> onnx.ModelProto:
    """The model with functions inlined. Constants are left out; inputs do not get their names."""
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    light.graph.value_info.extend(model.graph.value_info)
    light.graph.input.extend(model.graph.input)
    given = {item.name for item in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in given:
            light.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    light.graph.output.extend(model.graph.output)
    try:
        return inliner.inline_local_functions(light, convert_version=False)
    except Exception as error:  # the inliner raises several unrelated classes
        raise ModelError(
            who, needs="functions that can take the place of their calls", has=first_line(error)
        ) from error


def _count(
    nodes: Iterable[onnx.NodeProto],
    bodies: Mapping[Key, tuple[onnx.NodeProto, ...]],
    known: dict[Key, int],
    calls: tuple[Key, ...],
    who: str,
) -> int:
    """Number of nodes that there will be; each function is counted once."""
    total = 0
    for node in _all(nodes):
        key = (node.domain, node.op_type, node.overload)
        if key in calls or len(calls) > MOST_DEPTH:
            chain = " -> ".join(name for _, name, _ in (*calls, key)[-4:])
            raise ModelError(who, needs=f"functions that call others, at most {MOST_DEPTH} deep", has=f"calls {chain}")
        if key in bodies and key not in known:
            known[key] = _count(bodies[key], bodies, known, (*calls, key), who)
        total += known.get(key, 1)
    return total


def _all(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of graphs inside them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for graph in graphs_of(node):
            waiting.extend(graph.node)
