"""Scalar floating point against exact rational arithmetic, in every rounding mode."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from codegen.neuralscale.simulator.arithmetic import softfloat as sf

LARGEST = Fraction(2) ** 128 - Fraction(2) ** 104
SPECIAL = (0, 1 << 31, 1, 0x8000_0001, 0x7F_FFFF, 0x80_0000, 0x7F7F_FFFF, 0x3F80_0000, 0xBF80_0000, 0x4000_0000)

Bits = int


def _value(bits: Bits) -> Fraction:
    return Fraction(float(np.array([bits], np.uint32).view(np.float32)[0]))


def _operands(count: int) -> list[int]:
    random = np.random.default_rng(3)
    wide = random.integers(0, 1 << 32, count, dtype=np.uint64)
    near = random.integers(0x3F00_0000, 0x4080_0000, count, dtype=np.uint64)
    small = random.integers(0, 0x0180_0000, count, dtype=np.uint64)
    finite = [int(bits) for bits in (*wide, *near, *small) if bits & 0x7F80_0000 != 0x7F80_0000]
    return [*SPECIAL, *finite]


def _rounded(exact: Fraction, mode: int) -> Fraction | None:
    """The neighbour that `mode` chooses on an unbounded-range binary32 grid; None for infinity."""
    magnitude = abs(exact)
    exponent = -149
    while magnitude >= Fraction(2) ** (exponent + 24):
        exponent += 1
    unit = Fraction(2) ** exponent
    below = magnitude // unit
    rest = magnitude - below * unit
    up = {
        sf.RNE: rest * 2 > unit or (rest * 2 == unit and below % 2 == 1),
        sf.RTZ: False,
        sf.RDN: exact < 0 and rest > 0,
        sf.RUP: exact > 0 and rest > 0,
        sf.RMM: rest * 2 >= unit,
    }[mode]
    result = (below + up) * unit
    if result > LARGEST:
        stays = mode == sf.RTZ or mode == (sf.RUP if exact < 0 else sf.RDN)
        return (LARGEST if exact > 0 else -LARGEST) if stays else None
    return result if exact >= 0 else -result


def _check(exact: Fraction, result: sf.Result, mode: int) -> None:
    bits, flags = result
    expected = _rounded(exact, mode)
    if expected is None:
        assert bits & 0x7FFF_FFFF == 0x7F80_0000
    else:
        assert _value(bits) == expected
    inexact = expected is None or expected != exact
    assert bool(flags & sf.NX) == inexact
    assert bool(flags & sf.OF) == (abs(exact) > LARGEST and (expected is None or inexact) and _overflows(exact, mode))
    if exact != 0:
        assert bits >> 31 == (exact < 0)


def _overflows(exact: Fraction, mode: int) -> bool:
    """Whether rounding without a largest exponent exceeds the largest number."""
    unit = Fraction(2) ** 104
    if abs(exact) >= Fraction(2) ** 128:
        return True
    below = abs(exact) // unit * unit
    rest = abs(exact) - below
    up = {
        sf.RNE: rest * 2 >= unit,  # the largest number is odd
        sf.RTZ: False,
        sf.RDN: exact < 0 and rest > 0,
        sf.RUP: exact > 0 and rest > 0,
        sf.RMM: rest * 2 >= unit,
    }[mode]
    return below + up * unit > LARGEST


@pytest.mark.spread(8)
@pytest.mark.parametrize("mode", range(5))
@pytest.mark.parametrize(
    ("compute", "exactly"),
    [
        (sf.add, lambda a, b: a + b),
        (sf.subtract, lambda a, b: a - b),
        (sf.multiply, lambda a, b: a * b),
        (sf.divide, lambda a, b: a / b if b else None),
    ],
)
def test_arithmetic_is_rounded_once(
    compute: Callable[[int, int, int], sf.Result],
    exactly: Callable[[Fraction, Fraction], Fraction | None],
    mode: int,
) -> None:
    operands = _operands(120)
    for a, b in zip(operands, operands[1:] + operands[:1], strict=True):
        exact = exactly(_value(a), _value(b))
        if exact is not None:
            _check(exact, compute(a, b, mode), mode)


@pytest.mark.parametrize("mode", range(5))
def test_fused_multiply_add_rounds_once(mode: int) -> None:
    operands = _operands(120)
    for a, b, c in zip(operands, operands[7:], operands[29:], strict=False):
        _check(_value(a) * _value(b) + _value(c), sf.fused(a, b, c, mode), mode)


@pytest.mark.parametrize("mode", range(5))
def test_square_root_brackets_the_operand(mode: int) -> None:
    for bits in _operands(120):
        if bits >> 31 or bits == 0:
            continue
        root, flags = sf.square_root(bits, mode)
        exact = _value(bits)
        assert bool(flags & sf.NX) == (_value(root) ** 2 != exact)
        if mode in (sf.RTZ, sf.RDN):
            assert _value(root) ** 2 <= exact < _value(root + 1) ** 2
        elif mode == sf.RUP:
            assert _value(root - 1) ** 2 < exact <= _value(root) ** 2
        else:
            half = (_value(root) + _value(root - 1)) / 2, (_value(root) + _value(root + 1)) / 2
            assert half[0] ** 2 <= exact <= half[1] ** 2


@pytest.mark.parametrize("mode", range(5))
@pytest.mark.parametrize("signed", [False, True])
def test_conversion_to_integers(mode: int, signed: bool) -> None:
    low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
    for bits in (*_operands(120), 0x4EFF_FFFF, 0x4F00_0000, 0xCF00_0000, 0x4F80_0000, 0xBF00_0000, 0x3FC0_0000):
        exact = _value(bits)
        floor = exact.numerator // exact.denominator
        rest = exact - floor
        rounded = {
            sf.RNE: round(exact),
            sf.RTZ: int(exact),
            sf.RDN: floor,
            sf.RUP: floor + (rest > 0),
            sf.RMM: floor + (rest * 2 > 1 or (rest * 2 == 1 and exact > 0)),
        }[mode]
        value, flags = sf.to_integer(bits, mode, signed=signed)
        assert value == min(max(rounded, low), high) & 0xFFFF_FFFF
        expected = sf.NV if not low <= rounded <= high else sf.NX if rest else 0
        assert flags == expected


@pytest.mark.parametrize("mode", range(5))
def test_conversion_from_integers(mode: int) -> None:
    for value in (0, 1, -1, 16_777_217, -16_777_219, 2**31 - 1, -(2**31), 2**32 - 1):
        _check(Fraction(value), sf.from_integer(value, mode), mode)


NAN, SIGNALLING, INFINITY, ONE = 0x7FC0_0000, 0x7F80_0001, 0x7F80_0000, 0x3F80_0000
MINUS_ZERO = 0x8000_0000


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (sf.add(INFINITY, INFINITY | MINUS_ZERO, 0), (NAN, sf.NV)),
        (sf.add(ONE, ONE | MINUS_ZERO, sf.RDN), (MINUS_ZERO, 0)),
        (sf.add(ONE, ONE | MINUS_ZERO, sf.RNE), (0, 0)),
        (sf.add(SIGNALLING, ONE, 0), (NAN, sf.NV)),
        (sf.add(0x7FFF_FFFF, ONE, 0), (NAN, 0)),
        (sf.multiply(INFINITY, 0, 0), (NAN, sf.NV)),
        (sf.divide(ONE, 0, 0), (INFINITY, sf.DZ)),
        (sf.divide(0, 0, 0), (NAN, sf.NV)),
        (sf.divide(ONE, INFINITY | MINUS_ZERO, 0), (MINUS_ZERO, 0)),
        (sf.fused(INFINITY, 0, NAN, 0), (NAN, sf.NV)),
        (sf.fused(INFINITY, ONE, INFINITY | MINUS_ZERO, 0), (NAN, sf.NV)),
        (sf.square_root(ONE | MINUS_ZERO, 0), (NAN, sf.NV)),
        (sf.square_root(MINUS_ZERO, 0), (MINUS_ZERO, 0)),
        (sf.minimum(0, MINUS_ZERO), (MINUS_ZERO, 0)),
        (sf.maximum(MINUS_ZERO, 0), (0, 0)),
        (sf.minimum(NAN, ONE), (ONE, 0)),
        (sf.maximum(SIGNALLING, ONE), (ONE, sf.NV)),
        (sf.minimum(NAN, NAN), (NAN, 0)),
        (sf.equal(0, MINUS_ZERO), (1, 0)),
        (sf.equal(NAN, NAN), (0, 0)),
        (sf.less(NAN, ONE), (0, sf.NV)),
        (sf.less_equal(ONE, ONE), (1, 0)),
        (sf.multiply(0x0080_0000, 0x3F00_0000, 0), (0x0040_0000, 0)),
        (sf.multiply(0x0080_0001, 0x3F00_0000, 0), (0x0040_0000, sf.NX | sf.UF)),
    ],
)
def test_special_values(result: sf.Result, expected: sf.Result) -> None:
    assert result == expected


def test_classes() -> None:
    values = (0xFF80_0000, 0xBF80_0000, 0x8000_0001, MINUS_ZERO, 0, 1, ONE, INFINITY, SIGNALLING, NAN)
    assert [sf.classify(bits) for bits in values] == [1 << place for place in range(10)]
