"""Types of operands: where int8 may stand, and where values of it may be cut.

    conv, matmul   int8, int8, fp16 scale[, fp16 bias] -> fp16      widen        int8 -> fp16
                   fp16, constant int8, fp16 scale[, fp16 bias] -> fp16
    view           int8 -> int8                                     narrow       fp16 -> int8
    all others     fp16 -> fp16                                     add_scaled   fp16, int8 -> fp16

Transfers count in units of 16 bits, so each row of int8 has an even number of elements, and no part of it begins or
ends inside a unit.
"""

from __future__ import annotations

from codegen.neuralscale.instructions.arithmetic import FP16, INT8, TRANSFER_UNIT_BYTES, arithmetic_of
from codegen.neuralscale.instructions.depthwise_forms import is_depthwise
from codegen.neuralscale.templates.products import packed_weights
from hw_models.chip import Chip
from hw_models.parts import MatrixEngine, VectorEngine
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer


def types_problem(graph: Graph, op: Op, chip: Chip) -> str | None:
    """Why no template computes an operator on operands of these types and extents, on this chip; None where one
    does."""
    names = (*op.inputs, *op.outputs)
    for name, wanted in zip(names, _wanted_types(graph, op), strict=True):
        tensor = graph.by_name[name]
        found = f"{tensor.dtype}, {tensor.quantisation}" if tensor.quantisation else tensor.dtype
        if tensor.dtype not in (FP16.dtype, INT8.operands):
            return f"{name} is {found}; templates compute in {FP16.dtype} or {INT8.operands}"
        if tensor.dtype != wanted:
            return f"{name} is {found}; here {op.kind} takes {wanted}"
    for name in dict.fromkeys(names):
        if problem := _extent_problem(graph, op, name):
            return problem
    return _missing_rate(graph, op, chip)


def _wanted_types(graph: Graph, op: Op) -> tuple[str, ...]:
    """Types of the operands and the results, in order."""
    number, integer = INT8.dtype, INT8.operands
    numbers = (number,) * len(op.inputs)
    match op.kind:
        case "conv" | "matmul" if graph.by_name[op.inputs[0]].dtype == integer:
            return (integer, integer, *numbers[2:], number)
        case "conv" | "matmul" if packed_weights(graph, op):
            return (number, integer, *numbers[2:], number)
        case "widen":
            return (integer, number)
        case "narrow":
            return (number, integer)
        case "add_scaled":
            return (number, integer, number)
        case _:
            return (*numbers, *(number,) * len(op.outputs))


def _missing_rate(graph: Graph, op: Op, chip: Chip) -> str | None:
    """The engine for which the chip file has no rate of a type that the operator needs; None where it has all."""
    if all(graph.by_name[name].dtype != INT8.operands for name in (*op.inputs, *op.outputs)):
        return None
    arithmetic = arithmetic_of(graph, op)
    multiplies = arithmetic.exact and op.macs > 0
    needed: list[tuple[MatrixEngine | VectorEngine, str]] = [(chip.vector, INT8.operands)]
    if multiplies:
        needed += [(chip.vector, arithmetic.accumulate), (chip.matrix, arithmetic.operands)]
    for engine, dtype in needed:
        if dtype not in {rate.dtype for rate in engine.rates}:
            return f"engine {engine.name} of {chip.name} has no rate for {dtype}"
    return None


def _extent_problem(graph: Graph, op: Op, name: str) -> str | None:
    """Why a value of int8 cannot be moved in 16-bit units. Weights of groups are cut between groups too: of one channel
    each there must be an even number, and of several an even number of channels each."""
    tensor = graph.by_name[name]
    if tensor.dtype != INT8.operands:
        return None
    moved = tensor.shape[-1:]
    if op.kind == "conv" and name == op.inputs[1] and int(op.number("groups")) > 1:
        moved = tensor.shape[:1] if is_depthwise(graph, op) else tensor.shape[-2:]
    odd = [extent for extent in moved if extent % TRANSFER_UNIT_BYTES]
    if not odd:
        return None
    return f"{name} has {odd[0]} elements along an axis that is moved in units of {TRANSFER_UNIT_BYTES} bytes; pad it"


def has_integers(graph: Graph, layer: Layer) -> bool:
    """Whether a layer reads or writes int8."""
    names = (*layer.inputs(graph), layer.output)
    return any(graph.by_name[name].dtype == INT8.operands for name in names)
