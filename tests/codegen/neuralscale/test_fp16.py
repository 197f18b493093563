"""Scalar half-precision conversions and the rounding of the compiled sum and product."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.neuralscale.emulation import arithmetic as emulation
from codegen.neuralscale.simulator.arithmetic import fp16

PATTERNS = np.arange(65536, dtype=np.uint16)
# Zeros, the ends of the denormals and of the normals, one and its neighbours, a tie, infinity, NaN: with both signs.
MAGNITUDES = [0, 1, 2, 0x200, 0x3FF, 0x400, 0x401, 0x7FF, 0x1000, 0x3BFF, 0x3C00, 0x3C01, 0x67FF, 0x6800, 0x6801]
EDGES = [
    sign | magnitude for sign in (0, 0x8000) for magnitude in [*MAGNITUDES, 0x7BFE, 0x7BFF, 0x7C00, 0x7C01, 0x7FFF]
]
halves = st.one_of(st.sampled_from(EDGES), st.integers(0, 0xFFFF))


def f32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@pytest.mark.parametrize(
    ("bits32", "expected"),
    [
        (f32(1 + 3 * 2.0**-11), 0x3C01),  # truncated, not rounded
        (f32(-1.0), 0xBC00),
        (f32(1e30), 0x7BFF),  # finite stays finite
        (f32(-65536.0), 0xFBFF),
        (f32(2.0**-24), 0x0001),
        (f32(-(2.0**-24) * 0.99), 0x8000),
        (f32(2.0**-14 * 0.9999), 0x03FF),
        (0x00000001, 0x0000),
        (0x80000000, 0x8000),
        (0x7F800000, 0x7C00),
        (0xFF800000, 0xFC00),
        (0x7F800001, 0x7E00),
        (0xFFC12345, 0x7E00),  # NaN loses its sign
    ],
)
def test_scalar_conversion_to_half(bits32: int, expected: int) -> None:
    assert fp16.from_f32(bits32) == expected


@settings(deadline=None)
@given(st.integers(0, 0xFFFFFFFF))
def test_scalar_conversion_truncates_like_the_model(bits32: int) -> None:
    value = np.array([bits32], np.uint32).view(np.float32)
    if np.isnan(value[0]):
        assert fp16.from_f32(bits32) == 0x7E00
    else:
        assert fp16.from_f32(bits32) == emulation.to_bits(emulation.truncate16(value.astype(np.float64)))[0]


def test_every_half_widens_exactly_and_comes_back() -> None:
    widened = np.array([fp16.to_f32_bits(int(h)) for h in PATTERNS], np.uint32)
    nan = np.isnan(emulation.from_bits(PATTERNS))
    assert set(widened[nan]) == {0x7FC00000}
    assert np.array_equal(widened[~nan].view(np.float32).astype(np.float64), emulation.from_bits(PATTERNS)[~nan])
    assert [fp16.from_f32(int(b)) for b in widened[~nan]] == PATTERNS[~nan].tolist()


@pytest.mark.parametrize("scaled", [True, False])
def test_every_half_widens_exactly_in_bulk(scaled: bool) -> None:
    out = np.full((258, 260), 7.0, np.float32)
    fp16.widen(PATTERNS.reshape(256, 256), out, 2, 3, scaled)
    expected = emulation.from_bits(PATTERNS).reshape(256, 256) * (2.0**112 if scaled else 1.0)
    assert np.array_equal(out[2:, 3:259].astype(np.float64), expected, equal_nan=True)
    assert np.array_equal(np.signbit(out[2:, 3:259]), PATTERNS.reshape(256, 256) >= 0x8000)
    assert (out[:2] == 7).all()
    assert (out[:, :3] == 7).all()
    assert (out[:, 259] == 7).all()


@settings(deadline=None, max_examples=500)
@given(halves, halves)
def test_sum_and_product_of_two_scalars(a: int, b: int) -> None:
    x, y = (np.array([h], np.uint16) for h in (a, b))
    left, right = emulation.from_bits(x), emulation.from_bits(y)
    assert fp16.add(x[0], y[0]) == emulation.to_bits(emulation.add(left, right))[0]
    assert fp16.multiply(x[0], y[0]) == emulation.to_bits(emulation.mul(left, right))[0]


@pytest.mark.parametrize(
    ("operation", "a", "b", "expected"),
    [
        ("add", 0x6800, 0x3C00, 0x6801),  # 2048 + 1 is a tie: away from zero (ties-to-even would give 2048)
        ("add", 0xE800, 0xBC00, 0xE801),
        ("add", 0x7BFF, 0x4C00, 0x7C00),  # 65504 + 16 = 65520: rounds to 65536, infinity
        ("add", 0x7BFF, 0x4BFF, 0x7BFF),
        ("add", 0x3C00, 0xBC00, 0x0000),
        ("add", 0x8000, 0x8000, 0x8000),
        ("add", 0x7C00, 0xFC00, 0x7C01),
        ("add", 0xFE00, 0x3C00, 0x7C01),
        ("mul", 0x0001, 0x3800, 0x0001),  # half the smallest denormal is a tie
        ("mul", 0x0001, 0xB7FF, 0x8000),  # just less than half of it
        ("mul", 0x0400, 0x3BFF, 0x0400),  # 2^-14 * (1 - 2^-11) ties up to the smallest normal
        ("mul", 0x7BFF, 0x3C01, 0x7C00),
        ("mul", 0x0000, 0xFC00, 0x7C01),
    ],
)
def test_hand_worked_rounding(operation: str, a: int, b: int, expected: int) -> None:
    function = {"add": fp16.add, "mul": fp16.multiply}[operation]
    assert function(np.uint16(a), np.uint16(b)) == expected
    assert function(np.uint16(b), np.uint16(a)) == expected
