"""Functions of one operand that the vector engine has no instruction for, by formulas of those that it has.

    gelu       x * sigmoid(x * (a + b * x^2))            a, b by what is approximated: erf or a hyperbolic tangent
    erf        y * P(2 y^2 / c^2 - 1), y = x between -c and c; the result between -1 and 1
    softplus   max(x, 0) + z * P(z), z = exp(-|x|)
    mish       x * n / (n + 2), n = e * (e + 2), e = exp(min(x, 4.5))

Each returns instructions from `current` to `output`, maybe the same matrix, by way of scratch tiles. Coefficients
are those of the smallest largest error, found once in float64 and rounded to halves; docs/fidelity.md has the errors of
all halves. NaN stays NaN; what the formulas make of infinities is what the functions' limits are, but that gelu and
mish of -inf are NaN, as by their definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from codegen.neuralscale.instructions.builder import Issue, Matrix
from isched.program.program import Instr
from partitioner.ir.graph import Op

__all__ = ["CURVES", "Curve"]

GELU = {"none": (1.6044921875, 0.06976318359375), "tanh": (1.5966796875, 0.0714111328125)}
"""(a, b) by what ONNX calls `approximate`."""

ERF_END = 2.5
ERF = (
    0.55859375,
    -0.2548828125,
    0.1519775390625,
    -0.083984375,
    0.044342041015625,
    -0.0253143310546875,
    0.00902557373046875,
)
"""Of x^0, x^1, ..."""

SOFTPLUS = (0.99951171875, -0.491943359375, 0.28955078125, -0.135986328125, 0.03216552734375)

MISH_END = 4.5
"""From here on x itself is as near as the formula; e^x beyond would leave the range of halves when squared."""


def _gelu(op: Op, issue: Issue, current: Matrix, output: Matrix, scratch: Sequence[Matrix]) -> Iterator[Instr]:
    (t,) = scratch
    slope, cubic = GELU[str(op.attribute("approximate"))]
    yield from issue.binary("veemul", t, current, current)
    yield from issue.scalar("veemul", t, t, -cubic)
    yield from issue.scalar("veadd", t, t, -slope)
    yield from issue.binary("veemul", t, t, current)
    yield from issue.unary("veexp.m", t, t)
    yield from issue.scalar("veadd", t, t, 1.0)
    yield from issue.unary("verecip.m", t, t)
    yield from issue.binary("veemul", output, current, t)


def _erf(op: Op, issue: Issue, current: Matrix, output: Matrix, scratch: Sequence[Matrix]) -> Iterator[Instr]:
    del op
    y, s, total = output, *scratch
    yield from issue.scalar("vemax", y, current, -ERF_END)
    yield from issue.scalar("vemin", y, y, ERF_END)
    yield from issue.binary("veemul", s, y, y)
    yield from issue.scalar("veemul", s, s, 2 / ERF_END**2)
    yield from issue.scalar("veadd", s, s, -1.0)
    yield from _polynomial(issue, ERF, s, total)
    yield from issue.binary("veemul", y, y, total)
    yield from issue.scalar("vemax", y, y, -1.0)
    yield from issue.scalar("vemin", y, y, 1.0)


def _softplus(op: Op, issue: Issue, current: Matrix, output: Matrix, scratch: Sequence[Matrix]) -> Iterator[Instr]:
    del op
    z, total = scratch
    yield from issue.scalar("velkrelu", z, current, -1.0)
    yield from issue.scalar("veemul", z, z, -1.0)
    yield from issue.unary("veexp.m", z, z)
    yield from _polynomial(issue, SOFTPLUS, z, total)
    yield from issue.binary("veemul", total, total, z)
    yield from issue.scalar("vemax", output, current, 0.0)
    yield from issue.binary("veadd", output, output, total)


def _mish(op: Op, issue: Issue, current: Matrix, output: Matrix, scratch: Sequence[Matrix]) -> Iterator[Instr]:
    del op
    n, t = scratch
    yield from issue.scalar("vemin", n, current, MISH_END)
    yield from issue.unary("veexp.m", n, n)
    yield from issue.scalar("veadd", t, n, 2.0)
    yield from issue.binary("veemul", n, n, t)
    yield from issue.scalar("veadd", t, n, 2.0)
    yield from issue.unary("verecip.m", t, t)
    yield from issue.binary("veemul", n, n, t)
    yield from issue.binary("veemul", output, current, n)


def _polynomial(issue: Issue, coefficients: Sequence[float], x: Matrix, total: Matrix) -> Iterator[Instr]:
    """By Horner's rule, two passes a coefficient but the first."""
    *others, last = coefficients
    yield from issue.scalar("veemul", total, x, last)
    for coefficient in others[:0:-1]:
        yield from issue.scalar("veadd", total, total, coefficient)
        yield from issue.binary("veemul", total, total, x)
    yield from issue.scalar("veadd", total, total, others[0])


@dataclass(frozen=True, slots=True)
class Curve:
    """How many passes over a tile a function takes, how many tiles beside the output, and its instructions."""

    passes: int
    scratch_tiles: int
    instructions: Callable[[Op, Issue, Matrix, Matrix, Sequence[Matrix]], Iterator[Instr]]


CURVES: Mapping[str, Curve] = {
    "gelu": Curve(8, 1, _gelu),
    "erf": Curve(8 + 2 * (len(ERF) - 1), 2, _erf),
    "softplus": Curve(6 + 2 * (len(SOFTPLUS) - 1), 2, _softplus),
    "mish": Curve(8, 2, _mish),
}
