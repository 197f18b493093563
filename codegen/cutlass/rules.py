"""What the GPU back end computes, an operator at a time: the refusals that a user reads, and what fuses with what."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from codegen.cutlass.families.registry import FAMILIES
from codegen.cutlass.families.tensor_epilogues import refusal
from partitioner.ir.graph import Graph, Op

__all__ = ["OPERATORS", "accepts", "can_fuse_epilogue"]

MOST_AXES = 6
MOST_ELEMENTS = (1 << 31) - 1

OPERATORS: Mapping[str, str] = {
    "matmul": "Any extents, leading axes broadcast, a bias along the columns. Sums are fp32. On the tensor cores where "
    "the matrices of a batch lie equally far apart, odd extents padded with zeros; else, or where that takes longer, "
    "on the CUDA cores.",
}
"""Kinds of operators, each with its rules for a reader."""


def accepts(graph: Graph, op: Op) -> str | None:
    """None where some family has a kernel for the operator by itself, else why not."""
    if op.is_view:
        return None
    for name in (*op.inputs, *op.outputs):
        tensor = graph.by_name[name]
        if tensor.dtype != "float16":
            return f"{name} is {tensor.dtype}; kernels of this back end compute float16"
        if len(tensor.shape) > MOST_AXES:
            return f"{name} has {len(tensor.shape)} axes, at most {MOST_AXES} are indexed"
        if prod(tensor.shape) > MOST_ELEMENTS:
            return f"{name} has {prod(tensor.shape)} elements, indices are of 32 bits"
    return None if any(op.kind in family.kinds for family in FAMILIES.values()) else f"no kernel computes {op.kind}"


def can_fuse_epilogue(graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
    """Ends of matrix kernels take in what `tensor_epilogues` says, all other kernels any element-wise operator."""
    if graph.by_name[operand].shape != graph.by_name[op.outputs[0]].shape:
        return f"{operand} is broadcast by {op.name}"
    return refusal(graph, layer[1:], op, operand) if layer[0].kind in ("conv", "matmul") else None
