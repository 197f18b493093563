"""Anchor of lookups: rows of a table, or slices along any axis, by integers that are an input.

    y[before, i, j, rest] = x[before, indices[i, j], rest]     negative indices count from the end

An index beyond the axis reads the nearest of it, so that no kernel leaves the table.
"""

from __future__ import annotations

from math import prod

from codegen.cutlass.families.maps.maps import Anchor, MapFamily
from codegen.cutlass.kernel.epilogues import vector_width
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import reached_bytes
from codegen.cutlass.kernel.launches import Address
from partitioner.ir.graph import Constants

INDEX_TYPES = {"int32": "int", "int64": "long long"}
"""Types of indices, and their names in C++."""

STATEMENTS = """int before = 0, which = 0, rest = 0;
#pragma unroll
  for (int axis = 0; axis < RANK; ++axis) {
    int& part = axis < AXIS ? before : axis < AFTER ? which : rest;
    part = part * extents.v[axis] + at[axis];
  }
  Index row = indices[which];
  row += row < 0 ? rows : 0;
  row = row < 0 ? 0 : row < rows ? row : rows - 1;
  load(v, x + (size_t(before) * rows + size_t(row)) * behind + rest);"""


def _axes(work: KernelWork) -> tuple[int, int]:
    """The first axis of the output that is one of the indices', and the one behind the last."""
    op = work.anchor
    axis = int(op.number("axis")) % len(work.shape(op.inputs[0]))
    return axis, axis + len(work.shape(op.inputs[1]))


def _width(work: KernelWork) -> int:
    """Neighbours per thread: eight only where they are of one row."""
    shape = work.shape(work.output)
    return vector_width(shape) if shape and _axes(work)[1] < len(shape) else 1


def _gather(work: KernelWork, width: int, constants: Constants) -> tuple[Anchor, ...]:
    del width, constants
    op, (axis, after) = work.anchor, _axes(work)
    given, index = work.shape(op.inputs[0]), INDEX_TYPES[work.graph.by_name[op.inputs[1]].dtype]
    return (
        Anchor(
            ", const half* __restrict__ x, const Index* __restrict__ indices, int rows, int behind",
            STATEMENTS,
            (Address(op.inputs[0]), Address(op.inputs[1]), given[axis], prod(given[axis + 1 :])),
            f"constexpr int AXIS = {axis}, AFTER = {after};\nusing Index = {index};\n",
        ),
    )


GATHER = MapFamily(
    "gather",
    {"gather": _gather},
    takes=lambda work: work.graph.by_name[work.anchor.inputs[1]].dtype in INDEX_TYPES and bool(work.shape(work.output)),
    width=_width,
    moved=lambda work: reached_bytes(work, prod(work.shape(work.output))),
)
