"""The graph of one slice of a batch: the operators that compute each image by itself, with fewer images.

    graph, count --access maps--> operators that can be cut --1/count of the batch--> graph of a slice

A value that is cut has the batch as its outermost axis, so slice k of it is the k-th of `count` equal runs of bytes.
Operators that cannot be cut are not in the graph of a slice: what they make is its input, what they read its output.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from hw_models.errors import PlanError
from partitioner.context.image_independence import image_axis, images_of
from partitioner.ir.graph import Graph, LoopNest, Op
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan

ALIGNMENT_BYTES = 16
"""Alignment of slices: that of the widest access of a kernel."""


@dataclass(frozen=True)
class BatchSlice:
    """The graph of one of `count` slices; `values` are those that are cut, others are there as a whole."""

    graph: Graph
    count: int
    values: frozenset[str]

    def has(self, layer: Layer) -> bool:
        """Whether all operators of a layer are in the graph."""
        return all(name in self.graph.op_by_name for name in layer.ops)

    def offset_bytes(self, tensor: str, instance: int) -> int:
        """Where slice number `instance` begins in the whole value; 0 for one that is not cut."""
        return instance * self.graph.by_name[tensor].size_bytes if tensor in self.values else 0


def batch_of(graph: Graph) -> int:
    """The outermost extent of the first input."""
    shape = graph.by_name[graph.inputs[0]].shape if graph.inputs else ()
    return shape[0] if shape else 1


def batch_slice(graph: Graph, count: int, within: Collection[str] | None = None) -> BatchSlice | None:
    """The graph of one of `count` slices, of the operators in `within` alone where it is given; None where `count` does
    not divide the batch, or no operator can be cut."""
    batch = batch_of(graph)
    if count < 2 or batch % count:
        return None
    cut: dict[str, frozenset[str]] = {}
    for op in graph.ops:
        if within is None or op.name in within:
            followers = _followers(graph, op, batch, count)
            if followers is not None:
                cut[op.name] = followers
    if not cut:
        return None
    ops = tuple(_of_slice(graph, op, count) for op in graph.ops if op.name in cut)
    made = {op.outputs[0] for op in ops}
    values = frozenset(made.union(*cut.values()))
    used = made.union(name for op in ops for name in op.inputs)
    tensors = tuple(
        replace(tensor, shape=(batch // count, *tensor.shape[1:])) if tensor.name in values else tensor
        for tensor in graph.tensors
        if tensor.name in used
    )
    given = [tensor.name for tensor in tensors if not tensor.constant and tensor.name not in made]
    read = {name for op in graph.ops if op.name not in cut for name in op.inputs}
    left = [name for name in (output for op in ops for output in op.outputs) if name in read]
    inputs = dict.fromkeys((*(name for name in graph.inputs if name in used), *given))
    outputs = dict.fromkeys((*(name for name in graph.outputs if name in made), *left))
    return BatchSlice(Graph(graph.name, tuple(inputs), tuple(outputs), ops, tensors), count, values)


def slice_for(plan: Plan, graph: Graph, count: int) -> BatchSlice:
    """The graph of a slice of a plan's graph. Raises PlanError where there is none."""
    found = batch_slice(graph, count)
    if found is None:
        raise PlanError(
            f"plan {plan.name}", needs="a batch that can be cut", has=f"{count} slices of {batch_of(graph)}"
        )
    return found


def _followers(graph: Graph, op: Op, batch: int, count: int) -> frozenset[str] | None:
    """The values of which an operator reads, for an image of its result, just that image; None for one that cannot be
    cut."""
    if len(op.outputs) != 1 or graph.by_name[op.outputs[0]].shape[:1] != (batch,):
        return None
    found = frozenset(op.inputs[:1]) if op.is_view else images_of(graph, Layer(op.name, (op.name,), op.outputs[0]))
    if found is None or any(image_axis(stage, batch) is None for stage in op.stages):
        return None
    for name in op.inputs:
        tensor = graph.by_name[name]
        if tensor.constant and name not in found:
            continue
        if (tensor.shape[:1] == (batch,) and not tensor.constant) != (name in found):
            return None
    sizes = (graph.by_name[name].size_bytes for name in (*op.outputs, *found))
    return None if any(size // count % ALIGNMENT_BYTES for size in sizes) else found


def _of_slice(graph: Graph, op: Op, count: int) -> Op:
    batch = graph.by_name[op.outputs[0]].shape[0]
    stages = tuple(_stage_of_slice(stage, batch, count) for stage in op.stages)
    return replace(op, stages=stages, macs=op.macs // count)


def _stage_of_slice(stage: LoopNest, batch: int, count: int) -> LoopNest:
    image = image_axis(stage, batch)
    domain = tuple(replace(axis, extent=batch // count) if axis.name == image else axis for axis in stage.domain)
    return replace(stage, domain=domain)
