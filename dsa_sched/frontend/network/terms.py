"""How a constant of the compiled network follows from the user's file, declared by the rewrite that makes it.

    Conv + BatchNormalization  -->  weight = file w * reshape(file scale / sqrt(file variance + 1e-05))

A term is a record, not a computation: the frontend makes its arrays by other code, and `verify` computes the terms anew
from the file (`dsa_sched.verification.file_constants`). So numbers that were damaged between reading the file and the
machine code differ from what their terms give. Terms share their parts; none is changed after it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "file", "number", "triangle", "target",
    "add", "subtract", "multiply", "divide", "root", "sum", "rounded", "least", "product",
    "reshape", "transpose", "broadcast", "take", "pad", "join",
]  # fmt: skip

SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
LONGEST_TEXT = 160


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One step, as numpy broadcasts: `operands` combined by `kind`; `numbers` are its shape, axes or order.

    `file` is the value of that name in the file, `target` the target's own table of a function, `number` one number of
    an operator's definition or attribute; `rounded` is to the type `name`, `take` puts rows in an order, `pad` appends
    this many zeros to the elements of each axis, `join` puts arrays one after the other along an axis.
    """

    kind: Kind
    operands: tuple[Term, ...] = ()
    numbers: tuple[float, ...] = ()
    name: str = ""

    def __add__(self, other: Term) -> Term:
        return Term("add", (self, other))

    def __sub__(self, other: Term) -> Term:
        return Term("subtract", (self, other))

    def __mul__(self, other: Term) -> Term:
        return Term("multiply", (self, other))

    def __truediv__(self, other: Term) -> Term:
        return Term("divide", (self, other))

    def least(self, other: Term) -> Term:
        return Term("least", (self, other))

    def product(self, other: Term) -> Term:
        """Product of two matrices."""
        return Term("product", (self, other))

    def root(self) -> Term:
        return Term("root", (self,))

    def rounded(self, dtype: str) -> Term:
        return Term("rounded", (self,), name=dtype)

    def sum(self, axes: tuple[int, ...]) -> Term:
        return Term("sum", (self,), axes)

    def reshape(self, *shape: int) -> Term:
        return Term("reshape", (self,), shape)

    def transpose(self, *perm: int) -> Term:
        return Term("transpose", (self,), perm)

    def broadcast(self, *shape: int) -> Term:
        return Term("broadcast", (self,), shape)

    def take(self, order: tuple[int, ...]) -> Term:
        return Term("take", (self,), order)

    def pad(self, *counts: int) -> Term:
        return Term("pad", (self,), counts)

    @staticmethod
    def joined(parts: Sequence[Term], axis: int) -> Term:
        """Arrays one after the other along an axis."""
        return Term("join", tuple(parts), (axis,))

    def __str__(self) -> str:
        text = _text(self, LONGEST_TEXT)
        return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 3] + "..."


def _text(term: Term, room: int) -> str:
    """Text of about `room` characters: parts share the room, so that long terms stay cheap to print."""
    if room <= 0:
        return "..."
    match term.kind, [_text(part, room // len(term.operands) - 3) for part in term.operands]:
        case "file", _:
            return term.name
        case "target", _:
            return f"the target's table of {term.name}"
        case "number", _:
            return f"{term.numbers[0]:.6g}"
        case "add" | "subtract" | "multiply" | "divide" as sign, [left, right]:
            return f"({left} {SIGNS[sign]} {right})"
        case "triangle", _:
            return f"triangle({', '.join(f'{part:g}' for part in term.numbers)})"
        case "rounded", [inner]:
            return f"{term.name}({inner})"
        case kind, [inner]:
            return f"{kind}({inner})"
        case kind, parts:
            return f"{kind}({', '.join(parts)})"
    raise AssertionError(term.kind)


def from_file(name: str) -> Term:
    """The file's value of this name: an initializer, or the result of nodes that read only initializers."""
    return Term("file", name=name)


def of_the_target(function: str) -> Term:
    """A value that follows from nothing in the file: the target's table of a function."""
    return Term("target", name=function)


def number(value: float) -> Term:
    return Term("number", numbers=(float(value),))


def triangle(rows: int, columns: int, diagonal: int, upper: bool, inside: float, outside: float) -> Term:
    """A matrix that is `inside` on and above a diagonal (`upper`), or on and below it, and `outside` elsewhere; the
    diagonal begins `diagonal` columns to the right of the first element."""
    return Term("triangle", numbers=(rows, columns, diagonal, float(upper), inside, outside))
