"""Element-wise operators that the epilogue of a CUTLASS kernel can take: unary ones, one sum with a map of equal shape,
and unary ones again.

    conv, clip, add r, relu  -->  After(Before(sums + bias) + r)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.cutlass.kernel.expressions import UNARY, unary
from codegen.cutlass.sources import filled, source_text
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer


@dataclass(frozen=True, slots=True)
class TensorEpilogue:
    """Operators before and after the sum with `source`; None where there is none."""

    before: tuple[Op, ...]
    source: str | None
    after: tuple[Op, ...]

    def text(self) -> str:
        """The C++ of the epilogue."""
        return filled(
            "broadcast_epilogue.h",
            FUNCTIONS=source_text("common.cuh"),
            BEFORE=statements(self.before),
            AFTER=statements(self.after),
            SOURCE=bool(self.source),
        )


def refusal(graph: Graph, taken: Sequence[Op], op: Op, operand: str) -> str | None:
    """None where `op`, which reads `operand`, can follow the element-wise operators `taken`; else why not."""
    if op.kind in UNARY:
        return None
    if op.kind != "add":
        return f"the epilogue of a matrix kernel computes no {op.kind} of two operands"
    if any(earlier.kind == "add" for earlier in taken):
        return "the epilogue of a matrix kernel adds only one feature map"
    other = next(name for name in op.inputs if name != operand)
    if graph.by_name[other].shape != graph.by_name[operand].shape:
        return f"{other} has another shape than {operand}"
    return None


def epilogue_of(graph: Graph, layer: Layer) -> TensorEpilogue:
    """The element-wise operators after the layer's anchor; all of them passed `refusal`."""
    ops, running = [graph.op_by_name[name] for name in layer.ops[1:]], layer.anchor(graph).outputs[0]
    at = next((number for number, op in enumerate(ops) if op.kind == "add"), None)
    if at is None:
        return TensorEpilogue(tuple(ops), None, ())
    running = ops[at - 1].outputs[0] if at else running
    source = next(name for name in ops[at].inputs if name != running)
    return TensorEpilogue(tuple(ops[:at]), source, tuple(ops[at + 1 :]))


def statements(ops: Sequence[Op]) -> str:
    """Operators, one after the other, as C++ statements on v."""
    return "\n    ".join(f"v = {unary(op, 'v')};" for op in ops)


def device_functions(**operators: Sequence[Op]) -> str:
    """For each name a function of a float in C++, which computes the operators in order."""
    head = "__device__ __forceinline__ float"
    return "\n".join(
        f"{head} {name}(float v) {{\n  {statements(ops)}\n  return v;\n}}" for name, ops in operators.items()
    )
