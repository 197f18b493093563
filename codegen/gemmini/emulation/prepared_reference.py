"""Results of prepared operators, in plain numpy: conversions of this target's numbers, all else as for any target."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from codegen.integers_reference import Array, Conversions, made
from partitioner.ir.graph import Graph, Op

CONVERSIONS: Conversions = {"number": lambda integers: integers.astype(np.float32)}
"""An int32 becomes the nearest float32."""


def emulate_prepared(graph: Graph, op: Op, read: Callable[[str], Array]) -> Array:
    """The result of a prepared operator from its operands as `read(name)` gives them, in its shape and type."""
    tensor = graph.by_name[op.outputs[0]]
    operands = [read(name) for name in op.inputs]
    return made(op, operands, prod(tensor.shape), CONVERSIONS).astype(tensor.dtype).reshape(tensor.shape)
