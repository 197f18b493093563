"""Matrix products and convolutions against the slow model, bit for bit, in every loop order of the fast kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.neuralscale.emulation import arithmetic as emulation
from codegen.neuralscale.simulator.arithmetic import mme
from codegen.neuralscale.simulator.arithmetic.fp16 import Bits

seeds = st.integers(0, 2**32 - 1)
Padding = tuple[int, int, int, int]


def operand(seed: int, *shape: int) -> Bits:
    """Halves over the whole range, many so small that products are denormal; at times infinities, NaN and zeros."""
    random = np.random.default_rng([seed, *shape])
    values = random.standard_normal(shape) * 10.0 ** random.uniform(-7.0, random.choice([-1.0, 2.0]), shape)
    bits: Bits = values.astype(np.float16).view(np.uint16)
    rare = random.random(shape)
    special = random.choice(np.array([0, 0x8000, 0x7C00, 0xFC00, 0x7E01, 0x7BFF], np.uint16), shape)
    return np.where(rare < random.choice([0.0, 0.01]), special, bits)


def matmul_model(a: Bits, b: Bits) -> Bits:
    return emulation.to_bits(emulation.matmul(emulation.from_bits(a), emulation.from_bits(b)))


def conv_model(x: Bits, w: Bits, kernel: tuple[int, int], stride: int, dilation: int, padding: Padding) -> Bits:
    image, weights = emulation.from_bits(x), emulation.from_bits(w)
    return emulation.to_bits(emulation.conv(image, weights, kernel, stride, dilation, padding))


@settings(deadline=None)
@given(seeds, st.integers(1, 40), st.integers(1, 30), st.integers(1, 40))
def test_memul(seed: int, m: int, k: int, n: int) -> None:
    a, b = operand(seed, m, k), operand(seed + 1, k, n)
    assert np.array_equal(mme.memul(a, b), matmul_model(a, b))


def test_memul_keeps_even_and_odd_terms_apart() -> None:
    """Even: 2048 + 0.5 stays 2048; odd: 0.5 + 0.5; together 2049, a tie that goes up."""
    a = np.array([[0x6800, 0x3800, 0x3800, 0x3800]], np.uint16)
    assert mme.memul(a, np.full((4, 1), 0x3C00, np.uint16)).tolist() == [[0x6801]]


def test_memul_starts_from_plus_zero() -> None:
    assert mme.memul(np.array([[0x8000]], np.uint16), np.array([[0x3C00]], np.uint16)).tolist() == [[0]]


def test_memul_of_products_that_overflow_or_vanish() -> None:
    a = np.array([[0x7BFF, 0x0001]], np.uint16)
    b = np.array([[0x4000, 0x3C00, 0xC000], [0x3C00, 0x37FF, 0x3800]], np.uint16)
    assert mme.memul(a, b).tolist() == [[0x7C00, 0x7BFF, 0xFC00]]
    assert mme.memul(a[:, 1:], b[1:]).tolist() == [[1, 0, 1]]


def test_operands_may_be_views_with_any_strides() -> None:
    memory = operand(3, 4000)
    a = np.lib.stride_tricks.as_strided(memory, (9, 12), (10, 2))  # rows overlap
    b = memory[100:].reshape(-1, 30)[:12, ::-3]
    before = memory.copy()
    assert np.array_equal(mme.memul(a, b), matmul_model(a.copy(), b.copy()))
    assert np.array_equal(mme.memul(b.T, a.T), matmul_model(b.T.copy(), a.T.copy()))
    x = memory[:1800].reshape(6, 5, 60)[:, :, 7:10]
    w = memory[2000:].reshape(-1, 40)[:27, :20]
    for channels in (20, 2):
        fast = mme.meconv(x, w[:, :channels], (3, 3), 1, 1, (1, 1, 1, 1))
        assert np.array_equal(fast, conv_model(x.copy(), w[:, :channels].copy(), (3, 3), 1, 1, (1, 1, 1, 1)))
    assert np.array_equal(memory, before)
    memory.setflags(write=False)
    assert mme.memul(memory[:6].reshape(2, 3), memory[:6].reshape(3, 2)).flags.writeable


@settings(deadline=None, max_examples=60)
@given(
    seeds,
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5)),
    st.sampled_from([1, 2, 15, 16, 17, 33]),
    st.sampled_from([(1, 1), (3, 3), (1, 3), (3, 1), (2, 4), (5, 5)]),
    st.integers(1, 3),
    st.integers(1, 2),
    st.tuples(*[st.integers(0, 2)] * 4),
)
def test_meconv(
    seed: int,
    shape: tuple[int, int, int],
    channels: int,
    kernel: tuple[int, int],
    stride: int,
    dilation: int,
    padding: Padding,
) -> None:
    x, w = operand(seed, *shape), operand(seed + 1, kernel[0] * kernel[1] * shape[2], channels)
    height = mme.output_size(shape[0], padding[0] + padding[1], kernel[0], stride, dilation)
    width = mme.output_size(shape[1], padding[2] + padding[3], kernel[1], stride, dilation)
    if height < 1 or width < 1:
        with pytest.raises(ValueError, match="no output"):
            mme.meconv(x, w, kernel, stride, dilation, padding)
        return
    out = mme.meconv(x, w, kernel, stride, dilation, padding)
    assert out.shape == (height, width, channels)
    assert np.array_equal(out, conv_model(x, w, kernel, stride, dilation, padding))
    x8, w8 = x.astype(np.int8), w.astype(np.int8)
    padded = np.pad(x8.astype(np.int64), ((padding[0], padding[1]), (padding[2], padding[3]), (0, 0)))
    expected = np.zeros((height, width, channels), np.int64)
    taps = w8.astype(np.int64).reshape(*kernel, shape[2], channels)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            tap = padded[i * dilation :: stride, j * dilation :: stride][:height, :width]
            expected += tap @ taps[i, j]
    assert np.array_equal(mme.meconv_x8(x8, w8, kernel, stride, dilation, padding), expected)


@pytest.mark.parametrize("channels", [1, 5, 24])
def test_large_convolutions_are_made_in_pieces(channels: int) -> None:
    """33 output rows of 40 pixels with 144 taps exceed the patch buffer; samples of all pieces must agree."""
    x, w = operand(5, 65, 80, 16), operand(6, 144, channels)
    x[x & 0x7C00 == 0x7C00] = 0
    fast = mme.meconv(x, w, (3, 3), 2, 1, (1, 1, 1, 0))
    assert fast.shape == (33, 40, channels)
    padded = np.pad(x, ((1, 1), (1, 0), (0, 0)))
    random = np.random.default_rng(7)
    rows, columns, outputs = (random.integers(0, size, 500) for size in fast.shape)
    patches = np.array(
        [padded[2 * y : 2 * y + 3, 2 * z : 2 * z + 3].reshape(-1) for y, z in zip(rows, columns, strict=True)]
    )
    expected = emulation.dot(emulation.from_bits(patches), emulation.from_bits(w[:, outputs].T))
    assert np.array_equal(fast[rows, columns, outputs], emulation.to_bits(expected))


def test_padded_taps_are_multiplied() -> None:
    """Zero padding times an infinite weight is NaN, at the border only."""
    out = mme.meconv(
        np.full((3, 3, 1), 0x3C00, np.uint16), np.array([[0x3C00], [0x7C00]], np.uint16), (1, 2), 1, 1, (0, 0, 0, 1)
    )
    assert out[..., 0].tolist() == [[0x7C00, 0x7C00, 0x7C01]] * 3


@settings(deadline=None, max_examples=30)
@given(seeds, st.integers(1, 20), st.integers(1, 50), st.integers(1, 20), st.integers(0, 0xFFFF))
def test_int8_products(seed: int, m: int, k: int, n: int, coefficient: int) -> None:
    random = np.random.default_rng(seed)
    a, b = random.integers(-128, 128, (m, k)).astype(np.int8), random.integers(-128, 128, (k, n)).astype(np.int8)
    exact = a.astype(np.int64) @ b.astype(np.int64)
    assert np.array_equal(mme.memul_x8(a, b), exact)
    factor = emulation.from_bits(np.array([coefficient], np.uint16))
    expected = emulation.to_bits(emulation.mul(exact.astype(np.float64), factor))
    assert np.array_equal(mme.memul_hf_x8(a, b, coefficient), expected)
    image = a.reshape(m, 1, k)
    assert np.array_equal(mme.meconv_hf_x8(image, b, (1, 1), 1, 1, (0, 0, 0, 0), coefficient)[:, 0], expected)


def test_metr() -> None:
    a = operand(1, 5, 9)[:, ::2]
    out = mme.metr(a)
    assert np.array_equal(out, a.T)
    assert out.flags.c_contiguous
    assert not np.shares_memory(out, a)


def test_shapes_that_do_not_fit_are_refused() -> None:
    a = np.zeros((2, 3), np.uint16)
    with pytest.raises(ValueError, match="A has 3 columns, B has 2 rows"):
        mme.memul(a, a)
    with pytest.raises(ValueError, match="need 12 weight rows, there are 11"):
        mme.meconv(np.zeros((4, 4, 3), np.uint16), np.zeros((11, 2), np.uint16), (2, 2), 1, 1, (0, 0, 0, 0))
