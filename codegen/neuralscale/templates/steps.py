"""Functions of one operand as lists of vector passes over registers, each register a tile.

    Step("t", "vemax", "x", -1.0), Step("y", "veexp.m", "t")  --instructions-->  vemax.mf, veexp.m

`x` is the operand, `y` the result, which may lie where x does; any other name is a scratch tile. The numbers of passes
and tiles of a function are read from its list, so the plan matches the issued instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from isched.program.program import Instr

WITH_SCALAR_OR_TILE = ("veadd", "vesub", "veemul", "vemax", "vemin", "velkrelu")
ALONE = ("veexp.m", "vesqrt.m", "verecip.m")


@dataclass(frozen=True, slots=True)
class VectorStep:
    """`to` = `op` of register `a`, and of `b` where the operation has two operands: a register or a number."""

    to: str
    op: str
    a: str
    b: str | float | None = None


def polynomial(total: str, x: str, coefficients: Sequence[float]) -> tuple[VectorStep, ...]:
    """`total` = c[0] + c[1] x + ... by Horner's rule: two passes per coefficient but the last."""
    *others, last = coefficients
    passes = [VectorStep(total, "veemul", x, last)]
    for coefficient in others[:0:-1]:
        passes += [VectorStep(total, "veadd", total, coefficient), VectorStep(total, "veemul", total, x)]
    return (*passes, VectorStep(total, "veadd", total, others[0]))


def refined_reciprocal(result: str, value: str) -> tuple[VectorStep, ...]:
    """Compute `result` = 1 / value for values of 1 and more, including infinity; `value` is overwritten. The chip's
    reciprocal r becomes r - r * (v * r - 1), a Newton step: right to 0.08 % and monotone, with 1 for 1. In the product
    v is at most 65,504, because infinity times zero is not a number."""
    return (
        VectorStep(result, "verecip.m", value),
        VectorStep(value, "vemin", value, 65504.0),
        VectorStep(value, "veemul", value, result),
        VectorStep(value, "veadd", value, -1.0),
        VectorStep(value, "veemul", value, result),
        VectorStep(result, "vesub", result, value),
    )


def registers(passes: Sequence[VectorStep]) -> tuple[str, ...]:
    """The scratch tiles of a list, in the order in which they are first written."""
    return tuple(dict.fromkeys(each.to for each in passes if each.to not in "xy"))


def verify(passes: Sequence[VectorStep]) -> None:
    """Raises ValueError for an unknown operation, a register that is read before it is written, an operand that is read
    after the first write of the result (which may lie in the operand's place), or a list that writes the operand or no
    result."""
    written = {"x"}
    for number, each in enumerate(passes):
        if each.op not in (ALONE if each.b is None else WITH_SCALAR_OR_TILE):
            raise ValueError(f"pass {number} has no operation {each.op}")
        for name in {each.a, each.b}:
            if isinstance(name, str) and name not in written:
                raise ValueError(f"pass {number} reads {name}, which holds nothing")
        written.add(each.to)
        if each.to == "x":
            raise ValueError(f"pass {number} writes its operand")
        if each.to == "y":
            written.discard("x")
    if "y" not in written:
        raise ValueError("no pass writes the result")


def instructions(
    passes: Sequence[VectorStep], issue: InstructionBuilder, tiles: Mapping[str, MatrixPlace]
) -> Iterator[Instr]:
    """The instructions of the passes over the tiles of their registers."""
    for each in passes:
        if each.b is None:
            yield from issue.unary(each.op, tiles[each.to], tiles[each.a])
        elif isinstance(each.b, str):
            yield from issue.binary(each.op, tiles[each.to], tiles[each.a], tiles[each.b])
        else:
            yield from issue.scalar(each.op, tiles[each.to], tiles[each.a], each.b)
