"""Layers of a model that could run as one larger convolution, and its time by rooflines.

    TaskModel + rooflines --merging_of--> `Problem.merging`, which IOS asks

The rule is that of IOS (MLSys 2021): convolutions of one input with one resolution, stride and activation, without
groups. The merged one has the largest window and padding of all, and makes the channels of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.placement.model.from_onnx import TaskModel
from dsa_sched.placement.model.pricing import roofline_ns
from dsa_sched.placement.model.problem import NOT_ACCEPTED, Merged, Merging, Problem
from dsa_sched.placement.model.scenario import Roofline
from dsa_sched.placement.model.task_graph import task_bytes
from partitioner.ir.operators import Trait, onnx_names

ACTIVATIONS = onnx_names(Trait.UNARY)


@dataclass(frozen=True, slots=True)
class ConvLayer:
    """A convolution with or without activation. `family` is what layers that merge have in common."""

    family: tuple[object, ...]
    window: tuple[int, ...]
    channels: int
    input_channels: int
    outputs: int
    """Elements of one channel over all images."""

    activated: bool
    biased: bool
    element_bytes: int


def merging_of(model: TaskModel, rooflines: Sequence[Roofline | None], problem: Problem) -> Merging:
    """For a problem that has the tasks of the model; devices without a roofline run no merged layers."""
    return _Rooflines(model, tuple(rooflines), problem)


@dataclass(frozen=True)
class _Rooflines:
    model: TaskModel
    rooflines: tuple[Roofline | None, ...]
    problem: Problem

    @cached_property
    def layers(self) -> Mapping[int, ConvLayer]:
        """Task number -> its convolution, of those tasks that are one."""
        of = {node.name: node for node in self.model.network.nodes}
        found = {
            number: conv_layer([of[name] for name in task.nodes], self.model.network)
            for number, task in enumerate(self.problem.graph.tasks)
        }
        return {number: layer for number, layer in found.items() if layer is not None}

    def merged(self, tasks: tuple[int, ...]) -> Merged | None:
        layers = [self.layers[task] for task in tasks if task in self.layers]
        if len(layers) < len(tasks) or len({layer.family for layer in layers}) > 1:
            return None
        window = prod(map(max, zip(*(layer.window for layer in layers), strict=True)))
        channels, first = sum(layer.channels for layer in layers), layers[0]
        weights = first.input_channels * window + any(layer.biased for layer in layers)
        macs = channels * first.outputs * (first.input_channels * window + first.activated)
        constant_bytes = channels * weights * first.element_bytes
        graph = self.problem.graph
        read_bytes = constant_bytes + sum(graph.values[value].size_bytes for value in graph.reads[tasks[0]])
        written_bytes = sum(task_bytes(graph, task)[1] for task in tasks)
        rows = [
            roofline_ns(macs, read_bytes, written_bytes, roofline) if roofline else (NOT_ACCEPTED, (0.0, 0.0))
            for roofline in self.rooflines
        ]
        work = tuple(
            row[0] if all(machine in self.problem.accepted[task] for task in tasks) else NOT_ACCEPTED
            for machine, row in enumerate(rows)
        )
        shares = tuple(row[1] for row in rows) if self.problem.costs.shares else ()
        return Merged(work, shares, macs, constant_bytes)


def conv_layer(nodes: Sequence[Node], network: Network) -> ConvLayer | None:
    """The layer of these nodes; None unless they are a convolution, perhaps with activation, of a kind that can
    merge.
    """
    if not nodes or nodes[0].op_type != "Conv" or len(nodes) > 2:
        return None
    conv, *behind = nodes
    if behind and (behind[0].op_type not in ACTIVATIONS or behind[0].inputs != conv.outputs):
        return None
    source, weight = conv.inputs[:2]
    constants = [name for name in conv.inputs[1:] if name]
    if source in network.constants or any(name not in network.constants for name in constants):
        return None
    made, read = network.values[conv.outputs[0]], network.values[source]
    shape = network.constants[weight].shape
    rank = len(shape) - 2
    pads = conv.integers("pads", (0,) * (2 * rank))
    if conv.setting("auto_pad", "NOTSET") != "NOTSET" or conv.integer("group", 1) != 1 or pads[:rank] != pads[rank:]:
        return None
    dilations = conv.integers("dilations", (1,) * rank)
    reach = tuple((size - 1) * step + 1 for size, step in zip(shape[2:], dilations, strict=True))
    middle = tuple(size - 2 * pad for size, pad in zip(reach, pads, strict=False))
    activation = tuple((node.op_type, node.settings) for node in behind)
    strides = conv.integers("strides", (1,) * rank)
    family = (source, made.shape[0], made.shape[2:], made.dtype, strides, dilations, middle, activation, read.shape)
    outputs = made.shape[0] * prod(made.shape[2:])
    element_bytes = network.constants[weight].itemsize
    biased = len(constants) > 1
    return ConvLayer(family, tuple(shape[2:]), shape[0], shape[1], outputs, bool(behind), biased, element_bytes)
