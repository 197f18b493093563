"""The element-wise operators after an anchor, as statements on the V neighbours that a thread holds.

    Layer(pool, add r, relu)  -->  load(o1, e1 + offset(at, s1));  v[k] = v[k] + o1[k];  v[k] = v[k] < 0 ? 0 : v[k];

Operands are aligned at the last axis. Along that axis an operand has the output's elements, which are read V at a time,
or one element for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from codegen.cutlass.kernel.expressions import UNARY, binary, ternary, unary
from codegen.cutlass.kernel.launches import Address, Argument
from partitioner.ir.graph import Graph, Op


@dataclass(frozen=True, slots=True)
class EpilogueCode:
    """Code of an epilogue: `declarations` of parameters that follow the kernel's own, `statements` on `v`, and the
    arguments."""

    declarations: str
    statements: str
    arguments: tuple[Argument, ...]


def chain_of(graph: Graph, ops: Sequence[Op], running: str) -> EpilogueCode:
    """Code of `ops` in order; each reads the running value, which the one before it or the anchor (`running`) made.

    An anchor that is element-wise itself is the first of `ops`, and `running` is "". Statements use `at`, the position
    of the first of V neighbours, and RANK."""
    declarations, statements, arguments = list[str](), list[str](), list[Argument]()
    shape = graph.by_name[ops[-1].outputs[0]].shape if ops else ()
    count = 0

    def operand(name: str) -> str:
        """The expression of one more operand, read from memory."""
        nonlocal count
        own, strides = f"e{count}", broadcast_strides(graph.by_name[name].shape, shape)
        how = "load" if strides[-1] else "fill"
        declarations.append(f", const half* __restrict__ {own}, Dims s{count}")
        statements.append(f"float o{count}[V]; {how}(o{count}, {own} + offset<RANK>(at, s{count}));")
        arguments.extend((Address(name), dims(strides)))
        count += 1
        return f"o{count - 1}[k]"

    for op in ops:
        statements.append(f"EACH v[k] = {_expression(op, running, operand)};")
        running = op.outputs[0]
    return EpilogueCode("".join(declarations), "\n  ".join(statements), tuple(arguments))


def _expression(op: Op, running: str, operand: Callable[[str], str]) -> str:
    values = ["v[k]" if name == running else operand(name) for name in op.inputs]
    if op.kind in UNARY:
        return unary(op, values[0])
    return ternary(*values) if op.kind == "scale_shift" else binary(op.kind, *values)


def broadcast_strides(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from one position to the next along each axis of `wanted`; 0 along axes that `shape` repeats."""
    padded = (1,) * (len(wanted) - len(shape)) + shape
    return tuple(0 if extent == 1 else prod(padded[axis + 1 :]) for axis, extent in enumerate(padded))


def vector_width(shape: tuple[int, ...]) -> int:
    """Number of neighbours that a thread computes: 8 where the last axis has a multiple of 8 elements, else 1. No
    operand breaks them up, since each has the same elements along that axis, or one for all."""
    return 1 if shape[-1] % 8 else 8


def dims(values: tuple[int, ...]) -> tuple[int, ...]:
    """Values in the form of the sources' `Dims`."""
    return (*values, *(0,) * (6 - len(values)))
