"""Bounds of input integers that choose rows of a table unchanged, so that `run` can refuse other values.

ids --lookup(table of 100 rows)-->  -100 to 99, all elements        ids[:, 2] --lookup-->  every third element
"""

from __future__ import annotations

from math import prod

import numpy as np

from dsa_sched.artifact.tensors import IndexBounds
from partitioner.ir.graph import Constants, Graph, Op


def index_bounds(graph: Graph, constants: Constants) -> dict[str, tuple[IndexBounds, ...]]:
    """Index bounds by raw input. Elements that are not evenly spaced, and indices that are computed, have none: the
    machine code keeps these inside its tables by itself.
    """
    ops = (*graph.prepared, *graph.concluded, *(op for op in graph.ops if op.kind == "gather"))
    made = {op.outputs[0]: op for op in ops}
    found: dict[str, list[IndexBounds]] = {}
    for op in ops:
        rows = _rows(graph, op)
        if not rows:
            continue
        name, places = op.inputs[1], None
        source = made.get(name)
        if source is not None and source.kind == "take" and (fixed := graph.by_name[source.inputs[1]].constant):
            name, places = source.inputs[0], constants[fixed].reshape(-1).astype(np.int64)
        if name not in graph.raw and not (op.kind == "gather" and name in graph.inputs):
            continue
        size = prod(graph.by_name[name].shape)
        if places is None:
            first, step, count = 0, 1, size
        else:
            places = np.unique(places)
            first, count = int(places[0]), len(places)
            step = int(places[1] - places[0]) if count > 1 else 1
            if (places != first + step * np.arange(count)).any():
                continue
        found.setdefault(name, []).append(IndexBounds(least=-rows, most=rows - 1, first=first, step=step, count=count))
    return {name: tuple(dict.fromkeys(bounds)) for name, bounds in found.items()}


def _rows(graph: Graph, op: Op) -> int:
    """Rows among which the second operand of an operator chooses; 0 where it does not."""
    if op.kind == "gather":
        return graph.by_name[op.inputs[0]].shape[int(op.number("axis"))]
    if op.kind == "lookup":
        return int(op.number("rows"))
    if op.kind == "take" and not graph.by_name[op.inputs[1]].constant:
        return prod(graph.by_name[op.inputs[0]].shape)
    return 0
