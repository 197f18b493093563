"""Rules of element-wise operators, unary and binary. Rules raise Refusal for nodes that cannot be compiled."""

from __future__ import annotations

from math import prod

from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.operation import Refusal, Writer
from dsa_sched.frontend.rules.image_windows import OperationSteps
from partitioner.ir.operators import OPERATOR_TABLE, Trait

UNARY = {row.onnx: row for row in OPERATOR_TABLE if Trait.UNARY in row.traits and row.kind}
"""Operators that are one kind without change; their attributes have ONNX's defaults."""
BINARY_KINDS = {row.onnx: row.kind for row in OPERATOR_TABLE if Trait.BINARY in row.traits}

MOST_EXPANDED_ELEMENTS = 1 << 20
"""Largest number of elements of a constant that is stored with all its repeated elements: cheap to move."""


def unary(writer: Writer, node: Node) -> None:
    row = UNARY[node.op_type]
    settings = {name: _setting(node, name, default) for name, default in row.settings}
    writer.add(node, row.kind, settings)


def _setting(node: Node, name: str, default: float | str) -> float | str:
    return node.text(name, default) if isinstance(default, str) else node.number(name, default)


def clip(writer: Writer, node: Node) -> None:
    largest = writer.largest(node.outputs[0])
    low = writer.scalar(node, 1, "the lower bound", node.number("min", -largest))
    high = writer.scalar(node, 2, "the upper bound", node.number("max", largest))
    writer.add(node, "clip", {"min": max(low, -largest), "max": min(high, largest)})


def power(writer: Writer, node: Node) -> None:
    """Write a power whose exponent is no product, root or reciprocal."""
    exponent = writer.constants.get(node.input(1))
    if exponent is None or exponent.size != 1 or writer.shape(node.inputs[0]) != writer.shape(node.outputs[0]):
        raise Refusal("the exponent must be constant, one number for all elements")
    writer.add(node, "power", {"exponent": float(exponent.reshape(-1)[0])})


def formula(writer: Writer, node: Node) -> None:
    """Our own, of a function that the file spells out in steps."""
    writer.add(node, "formula", {"steps": node.text("steps", "")})


def binary(writer: Writer, node: Node) -> None:
    add_binary(writer, node, BINARY_KINDS[node.op_type], node.inputs)


def add_binary(writer: Writer, node: Node, kind: str, inputs: tuple[str, ...]) -> None:
    operands = of_equal_rank(writer, node, inputs)
    if writer.wants.full_operand and not any(_is_full(writer, node, name) for name in operands):
        operands = _with_full_operand(writer, node, operands)
    writer.add(node, kind, inputs=operands)


def _is_full(writer: Writer, node: Node, name: str) -> bool:
    shape, target = writer.shape(name), writer.shape(node.outputs[0])
    return (1,) * (len(target) - len(shape)) + shape == target


def _with_full_operand(writer: Writer, node: Node, operands: tuple[str, ...]) -> tuple[str, ...]:
    """The operands, one of them expanded to the shape of the result: a constant, at compile time, unless it would
    become large; otherwise the computed one that is repeated less often.
    """
    target = writer.shape(node.outputs[0])
    fixed = [name for name in operands if name in writer.constants and prod(target) <= MOST_EXPANDED_ELEMENTS]
    computed = [name for name in operands if name not in writer.constants]
    if fixed:
        (chosen,) = fixed
        full = writer.store(f"{chosen}::{node.name}::expanded", writer.traced(chosen).broadcast(*target))
    else:
        chosen = max(computed, key=lambda name: prod(writer.shape(name)))
        full = expanded(OperationSteps(writer, node), chosen, target)
    return tuple(full if name == chosen else name for name in operands)


def expanded(steps: OperationSteps, x: str, target: tuple[int, ...]) -> str:
    """The value with as many axes as the target, each element repeated as the target needs it: inner axes first, so
    that outer ones repeat long stretches.
    """
    for axis in reversed(range(len(target))):
        if steps.writer.shape(x)[axis] != target[axis]:
            (x,) = steps.taken(x, axis, (0,) * target[axis])
    return x


def of_equal_rank(writer: Writer, node: Node, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Computed operands of lower rank than the result get leading unit axes, so that layouts can be compared axis by
    axis."""
    rank = len(writer.shape(node.outputs[0]))
    operands = []
    for position, name in enumerate(inputs):
        shape = writer.shape(name)
        if name in writer.constants or len(shape) == rank:
            operands.append(name)
            continue
        suffix = f"operand{position}"
        operands.append(writer.intermediate(node, suffix, (1,) * (rank - len(shape)) + shape))
        writer.add(node, "view", inputs=(name,), suffix=suffix)
    return tuple(operands)


def widen(writer: Writer, node: Node) -> None:
    writer.add(node, "widen")


def narrow(writer: Writer, node: Node) -> None:
    """Write the integers of numbers. Zero points, which are rarely there, are added after rounding."""
    centre = {"centre": node.integer("centre", 0)} if node.integer("centre", 0) else {}
    writer.add(node, "narrow", {**centre, "rounding": node.text("rounding", "nearest")})


def add_scaled(writer: Writer, node: Node) -> None:
    """Write the sum of numbers and of integers times a scale."""
    writer.add(node, "add_scaled", {"scale": node.number("scale", 1.0)}, inputs=node.inputs)


def scale_shift(writer: Writer, node: Node) -> None:
    writer.add(node, "scale_shift", inputs=node.inputs)
