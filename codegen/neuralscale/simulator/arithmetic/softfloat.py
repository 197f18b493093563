"""Scalar single-precision arithmetic of RV32F, exact: five rounding modes and the five exception flags.

Numbers are taken apart into integers, the result is computed exactly (or with a sticky bit), and rounded once. It is
slow and plain on purpose: programs for this chip use it for a handful of scale factors. Bits in, (bits, flags) out.
"""

from __future__ import annotations

from math import isqrt
from typing import Final, NamedTuple

NX: Final = 1
UF: Final = 2
OF: Final = 4
DZ: Final = 8
NV: Final = 16

RNE, RTZ, RDN, RUP, RMM = range(5)

CANONICAL_NAN: Final = 0x7FC0_0000
_SIGN: Final = 0x8000_0000
_INFINITY: Final = 0x7F80_0000
_LARGEST: Final = 0x7F7F_FFFF
_LEAST_EXPONENT: Final = -149  # of the last bit of a denormal

Result = tuple[int, int]


class _Exact(NamedTuple):
    """The number (-1)^sign * significand * 2^exponent."""

    sign: int
    significand: int
    exponent: int


def is_nan(bits: int) -> bool:
    """Whether the bits are a quiet or signalling NaN."""
    return bits & 0x7FFF_FFFF > _INFINITY


def _is_signalling(bits: int) -> bool:
    return is_nan(bits) and not bits & 0x0040_0000


def _is_infinite(bits: int) -> bool:
    return bits & 0x7FFF_FFFF == _INFINITY


def _exact(bits: int) -> _Exact:
    field = bits >> 23 & 0xFF
    fraction = bits & 0x7F_FFFF
    if field == 0:
        return _Exact(bits >> 31, fraction, _LEAST_EXPONENT)
    return _Exact(bits >> 31, fraction | 0x80_0000, field - 150)


def _rounds_up(sign: int, odd: int, remainder: int, half: int, mode: int) -> bool:
    if mode == RNE:
        return remainder > half or (remainder == half and odd == 1)
    if mode == RMM:
        return remainder >= half
    return remainder != 0 and mode == (RDN if sign else RUP)


def _shift_round(sign: int, significand: int, shift: int, mode: int) -> tuple[int, bool]:
    """significand / 2^shift as an integer under `mode`, and whether it is inexact."""
    if shift <= 0:
        return significand << -shift, False
    kept, remainder = significand >> shift, significand & ((1 << shift) - 1)
    return kept + _rounds_up(sign, kept & 1, remainder, 1 << (shift - 1), mode), remainder != 0


def _round(value: _Exact, mode: int) -> Result:
    """Round an exact non-zero number; tininess is detected after rounding."""
    sign, significand, exponent = value
    top = exponent + significand.bit_length() - 1
    last = max(top - 23, _LEAST_EXPONENT)
    rounded, inexact = _shift_round(sign, significand, last - exponent, mode)
    flags = NX if inexact else 0
    if top < -126 and inexact:
        unbounded, _ = _shift_round(sign, significand, top - 23 - exponent, mode)
        if not (top == -127 and unbounded == 1 << 24):
            flags |= UF
    if rounded == 1 << 24:
        rounded, last = 1 << 23, last + 1
    if rounded >= 1 << 23 and last > 104:
        to_infinity = mode in (RNE, RMM) or mode == (RDN if sign else RUP)
        return sign << 31 | (_INFINITY if to_infinity else _LARGEST), OF | NX
    biased = (last + 150) << 23 if rounded >= 1 << 23 else 0
    return sign << 31 | biased | rounded & 0x7F_FFFF, flags


def _nan(*operands: int) -> Result:
    return CANONICAL_NAN, NV if any(_is_signalling(bits) for bits in operands) else 0


def _sum(a: _Exact, b: _Exact, mode: int) -> Result:
    """a + b of finite numbers, exactly, then rounded."""
    exponent = min(a.exponent, b.exponent)
    total = 0
    for term in (a, b):
        aligned = term.significand << (term.exponent - exponent)
        total += -aligned if term.sign else aligned
    if total == 0:
        sign = a.sign if a.sign == b.sign else int(mode == RDN)
        return sign << 31, 0
    return _round(_Exact(int(total < 0), abs(total), exponent), mode)


def add(a: int, b: int, mode: int) -> Result:
    """a + b."""
    if is_nan(a) or is_nan(b):
        return _nan(a, b)
    if _is_infinite(a) or _is_infinite(b):
        if _is_infinite(a) and _is_infinite(b) and (a ^ b) & _SIGN:
            return CANONICAL_NAN, NV
        return (a if _is_infinite(a) else b), 0
    return _sum(_exact(a), _exact(b), mode)


def subtract(a: int, b: int, mode: int) -> Result:
    """a - b."""
    return add(a, b if is_nan(b) else b ^ _SIGN, mode)


def multiply(a: int, b: int, mode: int) -> Result:
    """a * b."""
    sign = (a ^ b) & _SIGN
    if is_nan(a) or is_nan(b):
        return _nan(a, b)
    x, y = _exact(a), _exact(b)
    if _is_infinite(a) or _is_infinite(b):
        return (CANONICAL_NAN, NV) if not (a << 1 & 0xFFFF_FFFF and b << 1 & 0xFFFF_FFFF) else (sign | _INFINITY, 0)
    product = x.significand * y.significand
    return (sign, 0) if product == 0 else _round(_Exact(sign >> 31, product, x.exponent + y.exponent), mode)


def fused(a: int, b: int, c: int, mode: int) -> Result:
    """a * b + c with one rounding. Infinity times zero is invalid even when c is a quiet NaN."""
    infinite_product = _is_infinite(a) or _is_infinite(b)
    invalid = infinite_product and not (a << 1 & 0xFFFF_FFFF and b << 1 & 0xFFFF_FFFF)
    if is_nan(a) or is_nan(b) or is_nan(c):
        bits, flags = _nan(a, b, c)
        return bits, flags | (NV if invalid and not is_nan(a) and not is_nan(b) else 0)
    sign = (a ^ b) & _SIGN
    if invalid or (infinite_product and _is_infinite(c) and (sign ^ c) & _SIGN):
        return CANONICAL_NAN, NV
    if infinite_product:
        return sign | _INFINITY, 0
    if _is_infinite(c):
        return c, 0
    x, y = _exact(a), _exact(b)
    return _sum(_Exact(sign >> 31, x.significand * y.significand, x.exponent + y.exponent), _exact(c), mode)


def divide(a: int, b: int, mode: int) -> Result:
    """a / b."""
    sign = (a ^ b) & _SIGN
    if is_nan(a) or is_nan(b):
        return _nan(a, b)
    if _is_infinite(a):
        return (CANONICAL_NAN, NV) if _is_infinite(b) else (sign | _INFINITY, 0)
    if _is_infinite(b):
        return sign, 0
    x, y = _exact(a), _exact(b)
    if y.significand == 0:
        return (CANONICAL_NAN, NV) if x.significand == 0 else (sign | _INFINITY, DZ)
    if x.significand == 0:
        return sign, 0
    quotient, remainder = divmod(x.significand << 64, y.significand)
    return _round(_Exact(sign >> 31, quotient << 1 | (remainder != 0), x.exponent - y.exponent - 65), mode)


def square_root(a: int, mode: int) -> Result:
    """sqrt(a)."""
    if is_nan(a):
        return _nan(a)
    if a << 1 & 0xFFFF_FFFF == 0 or a == _INFINITY:
        return a, 0
    if a & _SIGN:
        return CANONICAL_NAN, NV
    x = _exact(a)
    shift = 64 + (x.exponent & 1)
    radicand = x.significand << shift
    root = isqrt(radicand)
    sticky = root * root != radicand
    return _round(_Exact(0, root << 1 | sticky, (x.exponent - shift) // 2 - 1), mode)


def _ordered(bits: int) -> int:
    """Rank of a number in the order of reals; -0 equals +0."""
    magnitude = bits & 0x7FFF_FFFF
    return -magnitude if bits & _SIGN else magnitude


def equal(a: int, b: int) -> Result:
    """feq, which is quiet."""
    if is_nan(a) or is_nan(b):
        return 0, _nan(a, b)[1]
    return int(_ordered(a) == _ordered(b)), 0


def less(a: int, b: int) -> Result:
    """flt, which is signalling."""
    return (0, NV) if is_nan(a) or is_nan(b) else (int(_ordered(a) < _ordered(b)), 0)


def less_equal(a: int, b: int) -> Result:
    """fle, which is signalling."""
    return (0, NV) if is_nan(a) or is_nan(b) else (int(_ordered(a) <= _ordered(b)), 0)


def minimum(a: int, b: int) -> Result:
    """fmin: -0 is less than +0; a single NaN is dropped."""
    return _select(a, b, take_less=True)


def maximum(a: int, b: int) -> Result:
    """fmax: -0 is less than +0; a single NaN is dropped."""
    return _select(a, b, take_less=False)


def _select(a: int, b: int, *, take_less: bool) -> Result:
    flags = _nan(a, b)[1]
    if is_nan(a) or is_nan(b):
        return (CANONICAL_NAN if is_nan(a) and is_nan(b) else b if is_nan(a) else a), flags
    a_first = (_ordered(a), -(a >> 31)) < (_ordered(b), -(b >> 31))
    return (a if a_first == take_less else b), flags


def to_integer(a: int, mode: int, *, signed: bool) -> Result:
    """fcvt.w.s and fcvt.wu.s: 32-bit result, saturating with NV."""
    low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
    if is_nan(a):
        return high & 0xFFFF_FFFF, NV
    if _is_infinite(a):
        return (low if a & _SIGN else high) & 0xFFFF_FFFF, NV
    x = _exact(a)
    magnitude, inexact = _shift_round(x.sign, x.significand, -x.exponent, mode)
    value = -magnitude if x.sign else magnitude
    if not low <= value <= high:
        return (low if x.sign else high) & 0xFFFF_FFFF, NV
    return value & 0xFFFF_FFFF, NX if inexact else 0


def from_integer(value: int, mode: int) -> Result:
    """fcvt.s.w and fcvt.s.wu: `value` is the integer itself."""
    return (0, 0) if value == 0 else _round(_Exact(int(value < 0), abs(value), 0), mode)


def classify(a: int) -> int:
    """fclass.s: one of ten bits."""
    negative = bool(a & _SIGN)
    if is_nan(a):
        return 1 << (8 if _is_signalling(a) else 9)
    if _is_infinite(a):
        return 1 << (0 if negative else 7)
    if a & 0x7FFF_FFFF == 0:
        return 1 << (3 if negative else 4)
    if a & _INFINITY == 0:
        return 1 << (2 if negative else 5)
    return 1 << (1 if negative else 6)
