"""The networks of IOS as task graphs: Network --task_graph--> TaskGraph, a task an operator."""

from __future__ import annotations

from math import prod

from benchmarks.lab.ios.network import Network, Shape
from benchmarks.lab.ios.onnx_file import node_names
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, Task, TaskGraph, TaskValue

__all__ = ["task_graph", "task_parts"]


def task_graph(network: Network, batch: int = 1, element_bytes: int = 4) -> TaskGraph:
    """A task an operator, named like it, between the ends. Its nodes are those of the ONNX file (`onnx_file`)."""

    def size(shape: Shape) -> int:
        return batch * element_bytes * prod(shape)

    tasks = [Task(INPUTS)]
    readers: dict[str, list[str]] = {network.input_name: []}
    for operator, reads in zip(network.operators, network.reads, strict=True):
        macs = batch * sum(kernel.macs for kernel in operator.kernels)
        constants = element_bytes * sum(kernel.weights for kernel in operator.kernels)
        tasks.append(Task(operator.name, node_names(network, operator), macs, constants))
        readers[operator.name] = []
        for name in reads:
            readers[name].append(operator.name)
    readers[network.operators[-1].name].append(OUTPUTS)
    values = [
        TaskValue(name, INPUTS if name == network.input_name else name, tuple(after), size(network.shape[name]))
        for name, after in readers.items()
    ]
    return TaskGraph(network.name, (*tasks, Task(OUTPUTS)), tuple(values))


def task_parts(network: Network) -> tuple[tuple[int, ...], ...]:
    """The network's own parts as task numbers of `task_graph`, which has the inputs as its task 0."""
    return tuple(tuple(place + 1 for place in part) for part in network.parts)
