"""From a model to its task graph, and from tasks back to separate models.

    ModelProto --fold--> nodes that depend on inputs --layers--> TaskModel(graph) --part(task)--> Part(model)

A task is a layer: an anchor (convolution, product, pooling, concatenation, ...) with the light nodes around it, which
are element-wise or only rearrange. Operators may be any of standard ONNX: devices say what they can run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import onnx
from onnx import helper

from dsa_sched.frontend.network.folded import FoldedModel, folded_model
from dsa_sched.frontend.network.network import FLOATING, Network, Node, Value
from dsa_sched.placement.model import task_graph
from dsa_sched.placement.model.task_graph import (
    ENDS,
    INPUTS,
    OUTPUTS,
    Task,
    TaskGraph,
    grouped,
    task_bytes,
    verify_task_graph,
)
from dsa_sched.placement.model.work import macs_of
from hw_models.errors import ModelError
from partitioner.ir.operators import Trait, onnx_names

FEW_ELEMENTS = 16
"""Largest number of elements of a floating-point constant whose values may decide how a layer is compiled."""


@dataclass(frozen=True)
class TaskPart:
    """The nodes of a task as a model. `inputs` and `outputs` are values of the whole model, by its names.

    `work` has each layer in it: operations, bytes read (constants too), bytes written.
    """

    task: str
    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    work: tuple[tuple[int, int, int], ...] = ()

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the model, whose name does not count."""
        return hashlib.sha256(self.model.SerializeToString(deterministic=True)).hexdigest()

    @cached_property
    def structure(self) -> str:
        """SHA-256 of the model in which names do not count, nor do the values of floating-point constants of more than
        `FEW_ELEMENTS`: layers that take the same time have the same structure. That of parts with graphs inside nodes
        is their `hash`.
        """
        graph = self.model.graph
        if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
            return self.hash
        plain = onnx.ModelProto()
        plain.CopyFrom(self.model)
        names: dict[str, str] = {"": ""}
        for number, node in enumerate(plain.graph.node):
            node.name = f"n{number}"
            for values in (node.input, node.output):
                values[:] = [names.setdefault(value, f"v{len(names)}") for value in values]
        for item in (*plain.graph.input, *plain.graph.output, *plain.graph.initializer):
            item.name = names.setdefault(item.name, f"v{len(names)}")
        for item in plain.graph.initializer:
            if item.data_type in FLOATING and prod(item.dims) > FEW_ELEMENTS:
                item.ClearField("raw_data")
        return hashlib.sha256(plain.SerializeToString(deterministic=True)).hexdigest()


@dataclass(frozen=True)
class TaskModel:
    """A model with its task graph, of whose tasks groups may be made (`grouped`)."""

    folded: FoldedModel
    graph: TaskGraph

    @property
    def network(self) -> Network:
        """The network with constants folded and all shapes."""
        return self.folded.network

    def part(self, task: Task) -> TaskPart:
        """The model of a task of `graph`, or of one that `grouped` made of several."""
        return self._cut(task.name, task.nodes)

    @cached_property
    def whole(self) -> TaskPart:
        """The model as one part. An input that it gives out as it is belongs to it, though no node reads it."""
        through = tuple(name for name in self.network.inputs if name in self.network.outputs)
        return self._cut(self.network.name, tuple(node.name for node in self.network.nodes), through)

    def value(self, name: str) -> Value:
        """Shape and element type. Raises ModelError where they are not static."""
        return self.folded.value(name)

    def work(self, nodes: Collection[str]) -> tuple[tuple[int, int, int], ...]:
        """Operations, bytes read and bytes written of each layer that has all its nodes among these."""
        inside = {*nodes}
        layers = [number for number, task in enumerate(self.graph.tasks) if inside.issuperset(task.nodes or [""])]
        return tuple((self.graph.tasks[number].macs, *task_bytes(self.graph, number)) for number in layers)

    def _cut(self, name: str, names: tuple[str, ...], through: tuple[str, ...] = ()) -> TaskPart:
        cut = self.folded.cut(names, through)
        return TaskPart(name, cut.model, cut.inputs, cut.outputs, self.work(names))


def task_graph_of(model: onnx.ModelProto) -> TaskGraph:
    """The layers of a checked model as tasks. Raises ModelError for shapes that are not static."""
    return task_model_of(model).graph


def task_model_of(model: onnx.ModelProto) -> TaskModel:
    """Like `task_graph_of`, with what cuts parts out of the model, which is not changed. Raises ModelError, also for
    nodes that have the names of the graph's ends.
    """
    folded = folded_model(model)
    network = folded.network
    for name in folded.protos:
        if name in ENDS:
            has = "the name of an end of task graphs"
            raise ModelError(f"node {name}", needs="another name", has=has, change="rename it in the model")
    by_node = _node_graph(network)
    graph = _renamed(grouped(by_node, _layers(network, by_node)), network)
    verify_task_graph(graph)
    return TaskModel(folded, graph)


def _node_graph(network: Network) -> TaskGraph:
    """One task per node, between the two ends."""
    tasks = [Task(INPUTS)]
    for node in network.nodes:
        constants = {name: network.constants[name].nbytes for name in node.inputs if name in network.constants}
        tasks.append(Task(node.name, (node.name,), macs_of(node, network), sum(constants.values())))
    tasks.append(Task(OUTPUTS))
    producers = dict.fromkeys(network.inputs, INPUTS)
    producers |= {output: node.name for node in network.nodes for output in node.outputs if output}
    values = []
    for name, producer in producers.items():
        consumers = [node.name for node in network.readers.get(name, ())]
        consumers += [OUTPUTS] if name in network.outputs else []
        if consumers:
            size_bytes = _size_bytes(name, network)
            values.append(task_graph.TaskValue(name, producer, tuple(consumers), size_bytes))
    return TaskGraph(network.name, tuple(tasks), tuple(values))


def _size_bytes(name: str, network: Network) -> int:
    """Raises ModelError for values that are no tensors of numbers with a static shape."""
    found = network.values.get(name)
    if found is None or found.dtype in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        has = "no static shape that shape inference could find" if found is None else "texts or nothing"
        raise ModelError(f"tensor {name}", needs="a tensor of numbers with a static shape", has=has)
    return prod(found.shape) * helper.tensor_dtype_to_np_dtype(found.dtype).itemsize


def _layers(network: Network, by_node: TaskGraph) -> list[tuple[int, ...]]:
    """Task numbers of `by_node` by layer.

    A light node joins the layer of a value that it reads, if it is the only reader of the only value that leaves this
    layer, so that no layer can wait for itself. Among several such layers it joins the one that ends last. Layers
    of light nodes alone, which found no such layer before them, join their only reader's.
    """
    layer = list(range(len(by_node.tasks)))
    members = {number: [number] for number in layer}
    for number, node in enumerate(network.nodes, 1):
        before = [other for other in by_node.predecessors[number] if by_node.successors[other] == (number,)]
        hosts = [other for other in before if other > 0 and len(by_node.writes[other]) == 1]
        if node.op_type in LIGHT and hosts and by_node.writes[number]:
            _join(layer, members, number, layer[max(hosts)])
    for number in range(len(network.nodes), 0, -1):
        own = layer[number]
        leading = members[own][-1] == number and all(_is_light(network.nodes[other - 1]) for other in members[own])
        after, last = by_node.successors[number], len(by_node.tasks) - 1
        if leading and len(by_node.writes[number]) == 1 and len(after) == 1 and after[0] != last:
            _join(layer, members, own, layer[after[0]])
    return [tuple(sorted(numbers)) for numbers in members.values()]


def _is_light(node: Node) -> bool:
    return node.op_type in LIGHT


def _join(layer: list[int], members: dict[int, list[int]], own: int, host: int) -> None:
    for number in members.pop(own):
        layer[number] = host
        members[host].append(number)
    members[host].sort()


def _renamed(graph: TaskGraph, network: Network) -> TaskGraph:
    """Layers named by their anchors, or by their first node where they have none."""
    of = {node.name: node for node in network.nodes}
    name = {task.name: _anchor([of[node] for node in task.nodes]) or task.name for task in graph.tasks}
    tasks = tuple(replace(task, name=name[task.name]) for task in graph.tasks)
    values = tuple(
        replace(value, producer=name[value.producer], consumers=tuple(name[consumer] for consumer in value.consumers))
        for value in graph.values
    )
    return TaskGraph(graph.name, tasks, values)


def _anchor(nodes: Iterable[Node]) -> str:
    names = [(_is_light(node), node.name) for node in nodes]
    return next((name for light, name in names if not light), names[0][1] if names else "")


LIGHT = onnx_names(Trait.ELEMENTWISE, Trait.VIEW, Trait.LIGHT)
"""Operators that cost little and that compilers fuse with their neighbours."""
