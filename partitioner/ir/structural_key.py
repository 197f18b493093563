"""Structural equality of layers: same operators, shapes and accesses, other names. Such layers have the same cost.

layer --names replaced by numbers in the order of first use--> text that alike layers share
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.ir.access import Access, View
from partitioner.ir.graph import Graph, LoopNest
from partitioner.ir.layers import Layer


def likeness(graph: Graph, layer: Layer) -> tuple[tuple[object, ...], dict[str, str]]:
    """A key, equal for layers that differ only in names, and the replacement of each name in it. Values of constants do
    not count."""
    numbers: dict[str, str] = {}

    def number(name: str) -> str:
        return numbers.setdefault(name, f"{len(numbers)}")

    def renamed(stage: LoopNest) -> LoopNest:
        reads: tuple[Access | View, ...] = tuple(replace(read, tensor=number(read.tensor)) for read in stage.reads)
        return replace(stage, reads=reads, writes=replace(stage.writes, tensor=number(stage.writes.tensor)))

    ops = []
    for name in layer.ops:
        op = graph.op_by_name[name]
        operands = tuple(number(tensor) for tensor in (*op.inputs, *op.outputs))
        ops.append((op.kind, op.attributes, operands, tuple(renamed(stage) for stage in op.stages)))
    tensors = [graph.by_name[name] for name in numbers if name in graph.by_name]
    described = tuple((numbers[t.name], t.shape, t.dtype, t.quantisation, bool(t.constant)) for t in tensors)
    return (tuple(ops), described, number(layer.output)), numbers
