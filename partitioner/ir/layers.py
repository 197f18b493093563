"""Layers: an anchor operator and its epilogue of element-wise maps, the unit that becomes one kernel at O0.

    conv -> add -> relu      one layer, named after conv; its intermediate values never leave the core
    conv -> conv             two layers: at this level one anchor per kernel, as in TVM's fusion

An element-wise operator joins the layer that produced its latest operand, when nothing else reads that operand and the
shape stays the same. Joining the *latest* producer keeps the order of layers topological: the other operands were there
before. Views own no kernel: they are other names for the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph, Op
from partitioner.ir.operators import ELEMENTWISE_KINDS
from partitioner.ir.regions import Box, input_boxes, join

CanFuse = Callable[[Graph, tuple[Op, ...], Op, str], str | None]


@dataclass(frozen=True, slots=True)
class Layer:
    """Operators by name, anchor first, then its epilogue in order; `output` is the only value that leaves it."""

    name: str
    ops: tuple[str, ...]
    output: str

    def __hash__(self) -> int:
        """That of the name alone: layers are looked up millions of times."""
        return hash(self.name)

    def anchor(self, graph: Graph) -> Op:
        return graph.op_by_name[self.ops[0]]

    def is_view(self, graph: Graph) -> bool:
        """True when the layer only gives the same bytes another name: it owns no kernel."""
        return self.anchor(graph).is_view

    def epilogue(self, graph: Graph) -> tuple[Op, ...]:
        return tuple(graph.op_by_name[name] for name in self.ops[1:])

    def inputs(self, graph: Graph) -> tuple[str, ...]:
        """Values that the layer reads from outside, constants too, each once, in the order of first use."""
        inside = {output for name in self.ops for output in graph.op_by_name[name].outputs}
        names = (tensor for name in self.ops for tensor in graph.op_by_name[name].inputs)
        return tuple(dict.fromkeys(name for name in names if name not in inside))


def layer_boxes(graph: Graph, layer: Layer, box: Box) -> dict[str, Box]:
    """The box of every value that the layer's operators touch for `box` of its output, by access maps."""
    boxes: dict[str, Box] = {layer.output: box}
    for name in reversed(layer.ops):
        op = graph.op_by_name[name]
        written = {output: boxes[output] for output in op.outputs if output in boxes}
        for operand, needed in input_boxes(graph, op, written).items():
            boxes[operand] = join(boxes[operand], needed) if operand in boxes else needed
    return boxes


def group_layers(
    graph: Graph, can_fuse_epilogue: CanFuse = lambda _graph, _layer, _op, _operand: None
) -> tuple[tuple[Layer, ...], tuple[Decision, ...]]:
    """Layers in execution order, and why each element-wise operator was or was not fused.

    `can_fuse_epilogue(graph, layer, op, operand)` is the target's answer: None when `op` can be computed on the tile of
    `operand` that the operators of `layer` have just produced, else the reason why not.
    """
    layers: dict[str, list[Op]] = {}
    owner: dict[str, str] = {}
    decisions: list[Decision] = []
    for op in graph.ops:
        host, reason = _host(graph, op, owner, layers, can_fuse_epilogue)
        if host:
            layers[host].append(op)
            layers[host] = layers.pop(host)  # runs at the place of its last operator, where every operand exists
        else:
            layers[op.name] = [op]
            host = op.name
        owner.update(dict.fromkeys(op.outputs, host))
        if reason:
            decisions.append(Decision(op.name, "fused" if host != op.name else "own kernel", reason))
    return tuple(Layer(name, tuple(op.name for op in ops), ops[-1].outputs[0]) for name, ops in layers.items()), tuple(
        decisions
    )


def _host(
    graph: Graph, op: Op, owner: dict[str, str], layers: dict[str, list[Op]], can_fuse_epilogue: CanFuse
) -> tuple[str, str]:
    """Name of the layer that `op` joins ("" for none), and the reason."""
    if op.kind not in ELEMENTWISE_KINDS:
        return "", ""
    produced = [name for name in op.inputs if name in owner and not graph.producer[name].is_view]
    if not produced:
        return "", "reads only graph inputs, constants and views"
    order = {layer_op.name: position for position, layer_op in enumerate(graph.ops)}
    refusals: list[str] = []
    for operand in sorted(produced, key=lambda name: order[graph.producer[name].name], reverse=True):
        host = owner[operand]
        refusal = _refusal(graph, op, operand, layers[host], can_fuse_epilogue)
        if not refusal:
            return host, f"reads {operand} of {host}, which nothing else reads"
        refusals.append(refusal)
    return "", refusals[0]


def _refusal(graph: Graph, op: Op, operand: str, layer: list[Op], can_fuse_epilogue: CanFuse) -> str:
    """Why an element-wise operator does not join the layer that makes an operand; empty where it does."""
    if operand in graph.outputs:
        return f"{operand} is an output of the network and must be stored"
    if op.inputs.count(operand) > 1 or len(graph.consumers[operand]) > 1:
        readers = len(graph.consumers[operand])
        return f"{operand} is read {max(readers, op.inputs.count(operand))} times and must be stored"
    if len(graph.producer[operand].outputs) > 1:
        return f"{operand} is one of several outputs of {graph.producer[operand].name}"
    if graph.by_name[op.outputs[0]].shape != graph.by_name[operand].shape:
        return f"the shape grows from {graph.by_name[operand].shape} to {graph.by_name[op.outputs[0]].shape}"
    return can_fuse_epilogue(graph, tuple(layer), op, operand) or ""
