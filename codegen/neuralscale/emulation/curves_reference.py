"""Functions of one operand by their formulas, in the order in which the chip must round, in plain numpy.

    emulated("gelu", op, values)  -->  values

The other half of the bit-for-bit comparison: written from the formulas, it shares nothing with the template.

* gelu: t = x * x; times -b; minus a; times x; then x * recip(exp(t) + 1). (a, b) = (1.6044921875, 0.06976318359375)
  for the exact function, (1.5966796875, 0.0714111328125) for the one by a hyperbolic tangent.
* erf: y = x between -2.5 and 2.5; s = y * y times half(0.32) minus 1; a polynomial in s by Horner's rule; times y;
  between -1 and 1.
* softplus: z = exp(-|x|); a polynomial in z by Horner's rule, times z; max(x, 0) plus that.
* mish: e = exp(min(x, 4.5)); n = e * (e + 2); n * recip(n + 2), times x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from codegen.neuralscale.emulation import arithmetic as chip
from codegen.neuralscale.emulation.arithmetic import Halves
from partitioner.ir.graph import Op

__all__ = ["EMULATED"]


def _half(value: float) -> Halves:
    return np.asarray(np.float16(value), np.float64)


def _horner(x: Halves, highest_first: tuple[float, ...]) -> Halves:
    total = chip.mul(x, _half(highest_first[0]))
    for number in highest_first[1:-1]:
        total = chip.mul(chip.add(total, _half(number)), x)
    return chip.add(total, _half(highest_first[-1]))


def _gelu(op: Op, x: Halves) -> Halves:
    exact = op.attribute("approximate") == "none"
    a, b = (1.6044921875, 0.06976318359375) if exact else (1.5966796875, 0.0714111328125)
    exponent = chip.mul(chip.add(chip.mul(chip.mul(x, x), _half(-b)), _half(-a)), x)
    return chip.mul(x, chip.recip(chip.add(chip.exp(exponent), _half(1.0))))


def _erf(_op: Op, x: Halves) -> Halves:
    y = chip.minimum(chip.maximum(x, _half(-2.5)), _half(2.5))
    s = chip.add(chip.mul(chip.mul(y, y), _half(0.32)), _half(-1.0))
    result = chip.mul(
        y,
        _horner(
            s,
            (
                0.00902557373046875,
                -0.0253143310546875,
                0.044342041015625,
                -0.083984375,
                0.1519775390625,
                -0.2548828125,
                0.55859375,
            ),
        ),
    )
    return chip.minimum(chip.maximum(result, _half(-1.0)), _half(1.0))


def _softplus(_op: Op, x: Halves) -> Halves:
    z = chip.exp(chip.mul(chip.leaky_relu(x, _half(-1.0), zero_is_scaled=True), _half(-1.0)))
    tail = chip.mul(_horner(z, (0.03216552734375, -0.135986328125, 0.28955078125, -0.491943359375, 0.99951171875)), z)
    return chip.add(chip.maximum(x, _half(0.0)), tail)


def _mish(_op: Op, x: Halves) -> Halves:
    e = chip.exp(chip.minimum(x, _half(4.5)))
    n = chip.mul(e, chip.add(e, _half(2.0)))
    return chip.mul(x, chip.mul(n, chip.recip(chip.add(n, _half(2.0)))))


EMULATED: Mapping[str, Callable[[Op, Halves], Halves]] = {
    "gelu": _gelu,
    "erf": _erf,
    "softplus": _softplus,
    "mish": _mish,
}
