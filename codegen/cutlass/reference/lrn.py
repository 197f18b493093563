"""Local response normalisation across channels: x / (bias + alpha / size * sum of squares) ^ beta."""

from __future__ import annotations

import numpy as np

from codegen.cutlass.reference.evaluated import Evaluated, add, exp, immediate, log, mul
from codegen.cutlass.reference.operands import RuleInputs
from codegen.cutlass.reference.sums import plain_sum


def lrn(asked: RuleInputs) -> Evaluated:
    """The power as exp(-beta * ln(u)), as pow() and its parts are no worse. The window has as many channels below as
    above, of those that there are."""
    op, x, points = asked.op, asked.tensor(), asked.points
    size = int(op.number("size"))
    channels = points[:, -1:] + np.arange(size) - (size - 1) // 2
    last = x.values.shape[-1] - 1
    found = x.at(*points[:, :-1].T[..., None], np.clip(channels, 0, last))
    inside = (channels >= 0) & (channels <= last)
    near = Evaluated(np.where(inside, found.numbers, 0.0), np.where(inside, found.error, 0.0))
    squares = plain_sum(mul(near, near))
    u = add(immediate(op.number("bias")), mul(immediate(op.number("alpha") / size), squares))
    return mul(asked.operand(), exp(mul(immediate(-op.number("beta")), log(u))))
