"""Functions of one operand by their formulas, in the order in which the chip must round, in plain numpy.

    emulated("gelu", op, values)  -->  values

The other side of the bit-for-bit comparison: written from the formulas, it shares nothing with the template. Constants
are the nearest fp16 numbers; E, R and Q are the chip's exponential, reciprocal and root.

* exp: the larger of E(t) and E(t - 2^-12), t = x - 2^-12.
* sigmoid: 1 / d times k by `refined`, d = E(-x - 0.3125) + k, k = 0.73193359375.
* swish: p = alpha's power of two, k the first of 0, 2.5, 3.25, 4, 5, 6, 7 that is at least ln(14 / alpha), or the last
  for which E(k) / (e * alpha) is in the range; w = |x|, at most 64 / p and 65504; z = E(-alpha * w + k). But where
  alpha is not p, nor p below 2^-7, b = alpha's first four bits, v = (w + 192 / p) - 192 / p,
  z = E(-b * v + k) * E((w - v) * -b + w * (b - alpha)). d = z + E(k); r = R(d); h = w * z * ((d * r - 2) * r);
  max(x, 0) + h. Of a negative alpha its magnitude is taken, and min(x, 0) - h; of 0 half of x.
* tanh: c = x between -1 and 1, s = c * c; ((R(E(2 max(|x|, 1)) + 1) * -2 + a) + P(s) * s) * c + c.
* softplus: c, s as for tanh, n = (c / 2 + Q(s) * s) - a; z = E(-max(|x|, 1)); (max(x, 1) + n) + (P(z) * z * z + z).
* elu, selu, celu: c = x between -0.75 and 0; e = E(min(x, -0.75)) - k; (c + P(c) * c * c) + e, times alpha (and gamma),
  added to max(x, 0) (times gamma); of celu x / alpha takes the place of x but there. Where that alpha is negative,
  alpha * (E(min(x, 0) / alpha) - 1).
* gelu: w = |x|, at most 6; v = (w + 192) - 192; f = E(P(w) + (v - w) * (w + v) / 2);
  max(x, 0) - w * f * E(v * v * -1/2).
* erf: c, s as for tanh; w = max(|x|, 1); (((P(s) * s - E(Q(w))) + a) * c) + c.
* mish: c = min(x, 4.5); e = E(c + 2.5); d = e / k; u = d + 2; n = d * u + 2; r = R(n); m = (n * r - 2) * r * u;
  (x - c) + (c * e * m) / -k, k = 12.1875.
* sqrt: y = x + 0; of v = min(y, 1) * 1024 and of v = max(y, 1) the root is q - (q * q - v) * (R(q) / 2), q = Q(v); the
  first takes R of at least 2^-8, the second holds q at 255.875 and v at 65504 in the difference. The second times the
  first / 32.
* reciprocal: `refined` of max(|x|, 2^-14) times `refined` of x * 2^14 + 2^-14, that between -1 and 1. Of a divisor:
  d = x + 2^-24; r = R(d); p, q are r and d between -65504 and 65504; r - (q * p - 1) * p.
* hard_swish: x times (x + 3 between 0 and 6) / 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from codegen.neuralscale.emulation import arithmetic as chip
from codegen.neuralscale.emulation.arithmetic import Fp16
from partitioner.ir.graph import Op


def _plus(x: Fp16, value: float) -> Fp16:
    return chip.add(x, chip.immediate(value))


def _times(x: Fp16, value: float) -> Fp16:
    return chip.mul(x, chip.immediate(value))


def _clip(x: Fp16, low: float, high: float) -> Fp16:
    return chip.minimum(chip.maximum(x, chip.immediate(low)), chip.immediate(high))


def _magnitude(x: Fp16) -> Fp16:
    return chip.leaky_relu(x, chip.immediate(-1.0), zero_is_scaled=True)


def _positive(x: Fp16) -> Fp16:
    return chip.maximum(x, chip.immediate(0.0))


def _horner(x: Fp16, highest_first: tuple[float, ...]) -> Fp16:
    total = _times(x, highest_first[0])
    for number in highest_first[1:-1]:
        total = chip.mul(_plus(total, number), x)
    return _plus(total, highest_first[-1])


def refined(d: Fp16) -> Fp16:
    """R(d) - (min(d, 65504) * R(d) - 1) * R(d)"""
    r = chip.recip(d)
    off = _plus(chip.mul(chip.minimum(d, chip.immediate(65504.0)), r), -1.0)
    return chip.sub(r, chip.mul(off, r))


def divisor(x: Fp16) -> Fp16:
    d = _plus(x, 2.0**-24)
    r = chip.recip(d)
    held, inside = _clip(r, -65504.0, 65504.0), _clip(d, -65504.0, 65504.0)
    return chip.sub(r, chip.mul(_plus(chip.mul(inside, held), -1.0), held))


def _reciprocal(_op: Op, x: Fp16) -> Fp16:
    small = _clip(_plus(_times(x, 2.0**14), 2.0**-14), -1.0, 1.0)
    return chip.mul(refined(chip.maximum(_magnitude(x), chip.immediate(2.0**-14))), refined(small))


def _exp(_op: Op, x: Fp16) -> Fp16:
    t = _plus(x, -(2.0**-12))
    return chip.maximum(chip.exp(t), chip.exp(_plus(t, -(2.0**-12))))


def _sigmoid(_op: Op, x: Fp16) -> Fp16:
    power = chip.exp(_plus(_times(x, -1.0), -0.3125))
    return _times(refined(_plus(power, 0.73193359375)), 0.73193359375)


def _swish(op: Op, x: Fp16) -> Fp16:
    alpha = op.number("alpha")
    if alpha == 0:
        return _times(x, 0.5)
    size = abs(alpha)
    unit = 2.0 ** math.floor(math.log2(size))
    powers = {0.0: 1.0, 2.5: 12.1875, 3.25: 25.796875, 4.0: 54.59375, 5.0: 148.375, 6.0: 403.5, 7.0: 1098.0}
    held = {s: power for s, power in powers.items() if power == 1 or power / (math.e * size) <= 65504}
    shift = min((s for s in held if s >= math.log(14 / size)), default=max(held))
    w = chip.minimum(_magnitude(x), chip.immediate(min(64 / unit, 65504.0)))
    if size == unit or unit < 2.0**-7:
        z = chip.exp(_plus(_times(w, -size), shift))
    else:
        bits = math.floor(8 * size / unit) * unit / 8
        v = _plus(_plus(w, 192 / unit), -192 / unit)
        rest = chip.exp(chip.add(_times(chip.sub(w, v), -bits), _times(w, bits - size)))
        z = chip.mul(chip.exp(_plus(_times(v, -bits), shift)), rest)
    d = _plus(z, powers[shift])
    r = chip.recip(d)
    tail = chip.mul(chip.mul(w, z), chip.mul(_plus(chip.mul(d, r), -2.0), r))
    if alpha < 0:
        return chip.sub(chip.minimum(x, chip.immediate(0.0)), tail)
    return chip.add(_positive(x), tail)


def _tanh(_op: Op, x: Fp16) -> Fp16:
    c = _clip(x, -1.0, 1.0)
    s = chip.mul(c, c)
    power = chip.exp(_times(chip.maximum(_magnitude(x), chip.immediate(1.0)), 2.0))
    far = _plus(_times(chip.recip(_plus(power, 1.0)), -2.0), 0.2384033203125)
    near = chip.mul(_horner(s, (-0.0267486572265625, 0.11944580078125, -0.3310546875)), s)
    return chip.add(chip.mul(chip.add(far, near), c), c)


def _softplus(_op: Op, x: Fp16) -> Fp16:
    c = _clip(x, -1.0, 1.0)
    s = chip.mul(c, c)
    bend = chip.mul(_plus(_times(s, -0.004001617431640625), 0.1241455078125), s)
    near = _plus(chip.add(_times(c, 0.5), bend), -0.6201171875)
    z = chip.exp(_times(chip.maximum(_magnitude(x), chip.immediate(1.0)), -1.0))
    tail = chip.add(chip.mul(chip.mul(_horner(z, (0.237060546875, -0.489990234375)), z), z), z)
    return chip.add(chip.add(chip.maximum(x, chip.immediate(1.0)), near), tail)


def _elu(op: Op, x: Fp16) -> Fp16:
    alpha = op.number("alpha")
    gamma = op.number("gamma") if op.kind == "selu" else 1.0
    if op.kind == "celu" and alpha <= 0:
        power = chip.exp(_times(chip.minimum(x, chip.immediate(0.0)), 1 / alpha))
        return chip.add(_positive(x), _times(_plus(power, -1.0), alpha))
    inner = _times(x, 1 / alpha) if op.kind == "celu" else x
    far = _plus(chip.exp(chip.minimum(inner, chip.immediate(-0.75))), -0.472412109375)
    c = _clip(inner, -0.75, 0.0)
    bent = chip.mul(chip.mul(_horner(c, (0.12890625, 0.491455078125)), c), c)
    below = _times(chip.add(chip.add(c, bent), far), alpha * gamma)
    return chip.add(_times(_positive(x), gamma), below)


def _gelu(op: Op, x: Fp16) -> Fp16:
    if op.attribute("approximate") == "none":
        numbers = (0.0017223358154296875, -0.024993896484375, 0.165771484375, -0.7900390625, -0.69384765625)
    else:
        numbers = (-0.00507354736328125, -0.0014734268188476562, 0.1417236328125, -0.78173828125, -0.69482421875)
    w = chip.minimum(_magnitude(x), chip.immediate(6.0))
    v = _plus(_plus(w, 192.0), -192.0)
    rest = _times(chip.mul(chip.sub(v, w), chip.add(w, v)), 0.5)
    fine = chip.exp(chip.add(_horner(w, numbers), rest))
    coarse = chip.exp(_times(chip.mul(v, v), -0.5))
    return chip.sub(_positive(x), chip.mul(chip.mul(w, fine), coarse))


def _erf(_op: Op, x: Fp16) -> Fp16:
    c = _clip(x, -1.0, 1.0)
    s = chip.mul(c, c)
    w = chip.maximum(_magnitude(x), chip.immediate(1.0))
    tail = chip.exp(_horner(w, (-0.87939453125, -0.875, -0.0958251953125)))
    near = chip.mul(_horner(s, (-0.0186309814453125, 0.1082763671875, -0.37548828125)), s)
    return chip.add(chip.mul(_plus(chip.sub(near, tail), 0.28564453125), c), c)


def _mish(_op: Op, x: Fp16) -> Fp16:
    c = chip.minimum(x, chip.immediate(4.5))
    e = chip.exp(_plus(c, 2.5))
    d = _times(e, 1 / 12.1875)
    u = _plus(d, 2.0)
    n = _plus(chip.mul(d, u), 2.0)
    r = chip.recip(n)
    share = chip.mul(chip.mul(_plus(chip.mul(n, r), -2.0), r), u)
    return chip.add(chip.sub(x, c), _times(chip.mul(chip.mul(c, e), share), -1 / 12.1875))


def _sqrt(_op: Op, x: Fp16) -> Fp16:
    y = _plus(x, 0.0)
    small = _times(chip.minimum(y, chip.immediate(1.0)), 1024.0)
    root = chip.sqrt(small)
    off = chip.sub(chip.mul(root, root), small)
    below = chip.sub(root, chip.mul(off, _times(chip.recip(chip.maximum(root, chip.immediate(2.0**-8))), 0.5)))
    large = chip.maximum(y, chip.immediate(1.0))
    root = chip.sqrt(large)
    held = chip.minimum(root, chip.immediate(255.875))
    off = chip.sub(chip.mul(held, held), chip.minimum(large, chip.immediate(65504.0)))
    above = chip.sub(root, chip.mul(off, _times(chip.recip(root), 0.5)))
    return chip.mul(above, _times(below, 1 / 32))


def _hard_swish(_op: Op, x: Fp16) -> Fp16:
    return chip.mul(x, _times(_clip(_plus(x, 3.0), 0.0, 6.0), 1 / 6))


EMULATED: Mapping[str, Callable[[Op, Fp16], Fp16]] = {
    "exp": _exp,
    "sigmoid": _sigmoid,
    "swish": _swish,
    "tanh": _tanh,
    "softplus": _softplus,
    "elu": _elu,
    "selu": _elu,
    "celu": _elu,
    "gelu": _gelu,
    "erf": _erf,
    "mish": _mish,
    "sqrt": _sqrt,
    "reciprocal": _reciprocal,
    "hard_swish": _hard_swish,
}
