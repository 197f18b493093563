"""Replaces each If whose condition follows from shapes and constants by the branch that it chooses.

    c = Equal(Shape(x)[2], 1)    If(c){then: Squeeze(x)} {else: Identity(x)}    -->    Squeeze(x)

Values and nodes of a branch get the name of their If in front, because branches may use the same names; values that a
branch reads from the graph around it keep their names. A branch may hold another If, whose turn comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import helper

from dsa_sched.frontend.network.constant_folding import fold_constants
from dsa_sched.frontend.network.names import rename_captured
from dsa_sched.frontend.network.network import graphs_of
from dsa_sched.frontend.network.shapes import known_values


def with_chosen_branches(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which every If with a known condition is the branch that it chooses; the model itself where there is
    none. `model` has the shapes of its inputs; it is not changed. Raises ModelError as folding does."""
    while any(node.op_type == "If" and not node.domain for node in model.graph.node):
        chosen = _chosen(model)
        if not chosen:
            return model
        model = _inlined(model, chosen)
    return model


def _chosen(model: onnx.ModelProto) -> dict[str, bool]:
    """The conditions that are known, by the names of their nodes."""
    conditions = {node.name: node.input[0] for node in model.graph.node if node.op_type == "If" and not node.domain}
    before = _before_branches(model, frozenset(conditions.values()))
    network = fold_constants(before, known_values(before))
    arrays = {name: network.constants.get(condition) for name, condition in conditions.items()}
    return {name: bool(array.reshape(-1)[0]) for name, array in arrays.items() if array is not None and array.size == 1}


def _before_branches(model: onnx.ModelProto, wanted: frozenset[str]) -> onnx.ModelProto:
    """Part of the model on which the wanted values depend, without what depends on a node that contains graphs."""
    lost, kept = set[str](), list[onnx.NodeProto]()
    for node in model.graph.node:
        if any(graphs_of(node)) or any(name in lost for name in node.input):
            lost.update(node.output)
        else:
            kept.append(node)
    needed, last = set(wanted), list[onnx.NodeProto]()
    for node in reversed(kept):
        if needed.intersection(node.output):
            needed.update(node.input)
            last.append(node)
    result = onnx.ModelProto(ir_version=model.ir_version)
    result.opset_import.extend(model.opset_import)
    result.graph.name = model.graph.name
    result.graph.node.extend(reversed(last))
    result.graph.input.extend(model.graph.input)
    result.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in needed)
    result.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(wanted - lost))
    return result


def _inlined(model: onnx.ModelProto, chosen: Mapping[str, bool]) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:], result.graph.value_info[:]
    for node in model.graph.node:
        if node.name not in chosen:
            result.graph.node.append(node)
            continue
        wanted = "then_branch" if chosen[node.name] else "else_branch"
        branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        result.graph.node.extend(_nodes_of(node, branch, result.graph))
    return result


def _nodes_of(node: onnx.NodeProto, branch: onnx.GraphProto, around: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a branch under new names, the last of which give the results their names; its constants go to the
    graph around it.
    """
    made = [name for inner in branch.node for name in inner.output if name]
    own = {name: f"{node.name}::{name}" for name in (*made, *(tensor.name for tensor in branch.initializer))}
    copies = list[tuple[str, str]]()
    for result, item in zip(node.output, branch.output, strict=True):
        if result and item.name in made and own[item.name] == f"{node.name}::{item.name}":
            own[item.name] = result
        elif result:
            copies.append((item.name, result))
    for tensor in branch.initializer:
        around.initializer.add().CopyFrom(tensor)
        around.initializer[-1].name = own[tensor.name]
    for place, inner in enumerate(branch.node):
        yield _renamed(inner, own, f"{node.name}::{inner.name or f'{inner.op_type}_{place}'}::{place}")
    for place, (source, result) in enumerate(copies):
        yield helper.make_node("Identity", [own.get(source, source)], [result], name=f"{node.name}::result{place}")


def _renamed(node: onnx.NodeProto, names: Mapping[str, str], title: str) -> onnx.NodeProto:
    """A copy that reads and makes values of the new names, in its own graphs too."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.name = title
    for listed in (result.input, result.output):
        for place, name in enumerate(listed):
            listed[place] = names.get(name, name)
    for graph in graphs_of(result):
        rename_captured(graph, names)
    return result
