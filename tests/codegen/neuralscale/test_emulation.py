"""The slow model of the chip's arithmetic against values worked out by hand: it is the oracle of everything else."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.neuralscale.emulation import arithmetic as emulation

NAN = 0x7C01


def bits(*patterns: int) -> emulation.Fp16:
    return emulation.from_bits(np.array(patterns, np.uint16))


def test_every_pattern_survives_decoding_and_encoding() -> None:
    patterns = np.arange(65536, dtype=np.uint16)
    expected = np.where((patterns & 0x7FFF) > 0x7C00, NAN, patterns)
    assert np.array_equal(emulation.to_bits(emulation.from_bits(patterns)), expected)


@pytest.mark.parametrize(
    ("exact", "expected"),
    [
        (1 + 2.0**-11, 0x3C01),  # a tie goes away from zero
        (-(1 + 2.0**-11), 0xBC01),
        (1 + 3 * 2.0**-11, 0x3C02),
        (1 + 2.0**-11 - 2.0**-30, 0x3C00),  # just below the tie
        (65519.0, 0x7BFF),
        (65520.0, 0x7C00),  # the tie above the largest half overflows
        (-65520.0, 0xFC00),
        (2.0**-25, 0x0001),  # half the smallest denormal
        (2.0**-25 - 2.0**-48, 0x0000),
        (-(2.0**-26), 0x8000),
        (2.0**-14 - 2.0**-25, 0x0400),  # rounds up from the denormals to the smallest normal
    ],
)
def test_rounding(exact: float, expected: int) -> None:
    assert emulation.to_bits(emulation.round16(np.array([exact])))[0] == expected


@pytest.mark.parametrize(
    ("exact", "expected"),
    [(1 + 3 * 2.0**-11, 0x3C01), (1e30, 0x7BFF), (-65520.0, 0xFBFF), (2.0**-24 * 1.99, 1), (-(2.0**-25), 0x8000)],
)
def test_truncation(exact: float, expected: int) -> None:
    assert emulation.to_bits(emulation.truncate16(np.array([exact])))[0] == expected


def test_signed_zeros_and_nan() -> None:
    zero, minus_zero, one, infinity = bits(0), bits(0x8000), bits(0x3C00), bits(0x7C00)
    assert emulation.to_bits(emulation.sub(one, one))[0] == 0
    assert emulation.to_bits(emulation.add(minus_zero, minus_zero))[0] == 0x8000
    assert emulation.to_bits(emulation.mul(minus_zero, one))[0] == 0x8000
    assert emulation.to_bits(emulation.mul(zero, infinity))[0] == NAN
    assert emulation.to_bits(emulation.sub(infinity, infinity))[0] == NAN
    assert emulation.to_bits(emulation.maximum(zero, minus_zero))[0] == 0x8000  # equal operands give the second
    assert emulation.to_bits(emulation.largest(bits(0x8000, 0), 0)) == 0
    assert emulation.to_bits(emulation.smallest(bits(0, 0x8000, 0), 0)) == 0x8000


def test_dot_keeps_even_and_odd_terms_apart() -> None:
    """2048 + 0.5 stays 2048 in the even one; the odd one holds 1; their sum 2049 is a tie that goes up."""
    ones = np.ones((1, 4))
    values = np.array([[2048.0, 0.5, 0.5, 0.5]])
    assert emulation.dot(values, ones)[0] == 2050.0
    assert emulation.accumulate(values, 1)[0] == 2048.0


def test_matmul_and_conv_agree_with_integers() -> None:
    """Small integers round nowhere, so plain numpy gives the same."""
    random = np.random.default_rng(1)
    a, b = random.integers(-4, 5, (5, 7)).astype(float), random.integers(-4, 5, (7, 3)).astype(float)
    assert np.array_equal(emulation.matmul(a, b), a @ b)
    x, w = random.integers(-4, 5, (6, 5, 2)).astype(float), random.integers(-4, 5, (12, 4)).astype(float)
    out = emulation.conv(x, w, (3, 2), stride=2, dilation=2, padding=(1, 2, 3, 0))
    padded = np.pad(x, ((1, 2), (3, 0), (0, 0)))
    expected = sum(
        padded[2 * i :, 2 * j :][: padded.shape[0] - 4 : 2, : padded.shape[1] - 2 : 2] @ w.reshape(3, 2, 2, 4)[i, j]
        for i in range(3)
        for j in range(2)
    )
    assert np.array_equal(out, expected)
