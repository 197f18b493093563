"""The vector engine's operations against the slow model, and the rules that only bit patterns show."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from codegen.neuralscale.emulation import arithmetic as emulation
from codegen.neuralscale.simulator.arithmetic import vme
from codegen.neuralscale.simulator.arithmetic.fp16 import Bits

PATTERNS = np.arange(65536, dtype=np.uint16)
EDGES = [sign | m for sign in (0, 0x8000) for m in (0, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7E12)]
halves = st.one_of(st.sampled_from(EDGES), st.integers(0, 0xFFFF))
matrices = arrays.arrays(np.uint16, st.tuples(st.integers(1, 7), st.integers(1, 40)), elements=halves)
MODEL: dict[vme.Operation, Callable[[emulation.Fp16, emulation.Fp16], emulation.Fp16]] = {
    "add": emulation.add,
    "sub": emulation.sub,
    "mul": emulation.mul,
    "max": emulation.maximum,
    "min": emulation.minimum,
}
operations = st.sampled_from(get_args(vme.Operation))


def u16(*patterns: int) -> Bits:
    return np.array(patterns, np.uint16)


def modelled(operation: vme.Operation, a: Bits, b: Bits) -> Bits:
    return emulation.to_bits(MODEL[operation](emulation.from_bits(a), emulation.from_bits(b)))


@pytest.mark.parametrize("operation", get_args(vme.Operation))
@pytest.mark.parametrize("b", [0x8000, 1, 0x83FF, 0x0401, 0x3800, 0xBC01, 0x67FF, 0x7BFF, 0xFC00, 0x7E00])
def test_every_pattern_against_a_scalar(operation: vme.Operation, b: int) -> None:
    assert np.array_equal(vme.binary(operation, PATTERNS, np.uint16(b)), modelled(operation, PATTERNS, u16(b)))
    flipped = np.full(65536, b, np.uint16)
    assert np.array_equal(vme.binary(operation, flipped, PATTERNS), modelled(operation, flipped, PATTERNS))


@settings(deadline=None)
@given(operations, matrices, st.randoms(use_true_random=False))
def test_matrix_vector_and_strided_operands(operation: vme.Operation, a: Bits, shuffle: random.Random) -> None:
    b = u16(*shuffle.sample(a.reshape(-1).tolist(), a.size)).reshape(a.shape)
    assert np.array_equal(vme.binary(operation, a, b), modelled(operation, a, b))
    assert np.array_equal(vme.binary(operation, a.T, b.T), modelled(operation, a, b).T)
    assert np.array_equal(vme.binary(operation, a[:, ::2], b[:, ::2]), modelled(operation, a, b)[:, ::2])
    assert np.array_equal(vme.binary(operation, a, b[0]), modelled(operation, a, b[:1]))
    assert np.array_equal(vme.binary(operation, a, b[:, :1]), modelled(operation, a, b[:, :1]))


def test_results_are_new_and_operands_untouched() -> None:
    a = np.arange(12, dtype=np.uint16).reshape(3, 4)
    a.setflags(write=False)
    out = vme.binary("add", a, a)
    assert out.flags.c_contiguous
    assert out.flags.writeable
    assert not np.shares_memory(out, a)


def test_equal_operands_return_the_second() -> None:
    assert vme.binary("max", u16(0, 0x8000), u16(0x8000, 0)).tolist() == [0x8000, 0]
    assert vme.binary("min", u16(0, 0x8000), u16(0x8000, 0)).tolist() == [0x8000, 0]


@settings(deadline=None)
@given(matrices, halves)
def test_leaky_relu(a: Bits, slope: int) -> None:
    values, factor = emulation.from_bits(a), emulation.from_bits(u16(slope))
    nan = np.isnan(values)
    for result, zero_is_scaled in (
        (vme.leaky_relu_mf(a, np.uint16(slope)), True),
        (vme.leaky_relu_mv(a, np.full(a.shape[1], slope, np.uint16)), False),
    ):
        expected = emulation.to_bits(emulation.leaky_relu(values, factor, zero_is_scaled))
        assert np.array_equal(result, np.where(nan, a, expected))


def test_leaky_relu_differs_at_zero_only() -> None:
    zeros_and_nan = u16(0, 0x8000, 0xFE12)
    assert vme.leaky_relu_mf(zeros_and_nan, np.uint16(0xBC00)).tolist() == [0x8000, 0, 0xFE12]
    assert vme.leaky_relu_mv(zeros_and_nan, u16(0xBC00, 0xBC00, 0xBC00)).tolist() == [0, 0x8000, 0xFE12]
    assert vme.leaky_relu_mf(zeros_and_nan, np.uint16(0x7C00)).tolist() == [0x7C01, 0x7C01, 0xFE12]


@settings(deadline=None)
@given(matrices)
def test_sums(a: Bits) -> None:
    values = emulation.from_bits(a)
    down, along = (emulation.to_bits(emulation.accumulate(values, axis)) for axis in (0, 1))
    columns = emulation.to_bits(emulation.accumulate(emulation.accumulate(values, 0)[None], 1))
    assert np.array_equal(vme.accumulate(a, "h"), down if a.shape[0] > 1 else a[0])
    assert np.array_equal(vme.accumulate(a, "w"), along if a.shape[1] > 1 else a[:, 0])
    if a.size > 1:
        assert np.array_equal(vme.accumulate(a, "full"), columns)


def test_sums_start_from_the_first_element() -> None:
    assert vme.accumulate(np.full((3, 2), 0x8000, np.uint16), "h").tolist() == [0x8000, 0x8000]
    assert vme.accumulate(u16(0xFE12)[None], "full").tolist() == [0xFE12]  # a lone NaN is copied
    assert vme.accumulate(u16(0xFE12, 0)[None], "w").tolist() == [0x7C01]


def test_sums_run_in_order() -> None:
    """2048 + 0.5 + 0.5 stays 2048 from the left; 0.5 + 0.5 + 2048 is 2049, a tie, from the other side."""
    big_first = u16(0x6800, 0x3800, 0x3800)
    assert vme.accumulate(big_first[None], "w").tolist() == [0x6800]
    assert vme.accumulate(big_first[::-1][None], "w").tolist() == [0x6801]
    columns_first = np.array([[0x6800, 0x3800], [0x3800, 0x3800]], np.uint16)  # columns 2048 and 1
    assert vme.accumulate(columns_first, "full").tolist() == [0x6801]


@settings(deadline=None)
@given(matrices)
def test_multiply_accumulate(a: Bits) -> None:
    values = emulation.from_bits(a)
    vector, column = values[:1], values[:, :1]
    for factors, bits in ((values, a), (vector, a[0]), (column, a[:, :1])):
        products = emulation.mul(values, factors)
        for direction, axis in (("h", 0), ("w", 1)):
            got = vme.multiply_accumulate(a, bits, "h" if direction == "h" else "w")
            assert np.array_equal(got, emulation.to_bits(emulation.accumulate(products, axis)))


@settings(deadline=None)
@given(matrices)
def test_extrema(a: Bits) -> None:
    values = emulation.from_bits(a)
    if a.shape[0] > 1:
        assert np.array_equal(vme.maximum(a, "h"), emulation.to_bits(emulation.largest(values, 0)))
        assert np.array_equal(vme.minimum(a, "h"), emulation.to_bits(emulation.smallest(values, 0)))
    if a.shape[1] > 1:
        assert np.array_equal(vme.maximum(a, "w"), emulation.to_bits(emulation.largest(values, 1)))
        assert np.array_equal(vme.minimum(a, "w"), emulation.to_bits(emulation.smallest(values, 1)))
    if a.size > 1:
        assert vme.maximum(a, "full") == emulation.to_bits(emulation.largest(values.reshape(-1), 0))
        assert vme.minimum(a, "full") == emulation.to_bits(emulation.smallest(values.reshape(-1), 0))


def test_extrema_order_the_zeros() -> None:
    for zeros in (u16(0, 0x8000), u16(0x8000, 0)):
        assert vme.maximum(zeros[None], "w").tolist() == [0]
        assert vme.minimum(zeros[None], "full").tolist() == [0x8000]


@pytest.mark.parametrize(
    ("table", "crc32"),
    [(vme.EXP, 0x83BD5A2C), (vme.SQRT, 0x4D42B2DC), (vme.RECIP, 0xC8420366)],
    ids=["exp", "sqrt", "recip"],
)
def test_tables_are_the_recorded_sweeps(table: Bits, crc32: int) -> None:
    assert zlib.crc32(table.astype("<u2").tobytes()) == crc32


def test_conversion_to_int8_is_the_recorded_sweep() -> None:
    assert zlib.crc32(vme.x8_from_hf(PATTERNS).tobytes()) == 0x3C4872CF


@pytest.mark.parametrize(
    ("function", "source", "expected"),
    [
        (vme.exp, 0x0000, 0x3C00),
        (vme.exp, 0x8000, 0x3C00),
        (vme.exp, 0xFE00, 0x7C01),
        (vme.exp, 0x498C, 0x7C00),  # overflows from 11.09375 on
        (vme.exp, 0x498B, 0x7BF5),
        (vme.exp, 0xC934, 0x0000),
        (vme.exp, 0xFC00, 0x0000),
        (vme.sqrt, 0x0000, 0x0000),
        (vme.sqrt, 0x8000, 0x7C01),
        (vme.sqrt, 0xBC00, 0x7C01),
        (vme.sqrt, 0x7C00, 0x7C00),
        (vme.recip, 0x0000, 0x7C01),
        (vme.recip, 0x8000, 0x7C01),
        (vme.recip, 0x83FF, 0xFC00),  # a denormal gives infinity with its sign
        (vme.recip, 0xFC00, 0x8000),
        (vme.recip, 0x4000, 0x3800),
    ],
)
def test_approximate_functions(function: Callable[[Bits], Bits], source: int, expected: int) -> None:
    assert function(u16(source)).tolist() == [expected]


def test_the_model_reads_the_same_tables() -> None:
    values = emulation.from_bits(PATTERNS)
    finite = ~np.isnan(values)
    for fast, slow in ((vme.exp, emulation.exp), (vme.sqrt, emulation.sqrt), (vme.recip, emulation.recip)):
        assert np.array_equal(fast(PATTERNS)[finite], emulation.to_bits(slow(values))[finite])


def test_lookup_takes_raw_words_as_indices() -> None:
    table = PATTERNS[::-1]
    assert vme.lookup(np.array([[0, 65535], [0x8000, 1]], np.uint16), table).tolist() == [[65535, 0], [0x7FFF, 65534]]


def test_int8_conversions() -> None:
    signed, unsigned = np.arange(-128, 128).astype(np.int8), np.arange(256).astype(np.uint8)
    assert np.array_equal(emulation.from_bits(vme.hf_from_x8(signed)), signed)
    assert np.array_equal(emulation.from_bits(vme.hf_from_xu8(unsigned)), unsigned)
    source = u16(0x57F8, 0x5800, 0xD800, 0xDC00, 0x7C00, 0xFC00, 0x7E00, 0xBBFF, 0x3FFF)
    assert vme.x8_from_hf(source).tolist() == [127, 127, -128, -128, 127, -128, 0, 0, 1]


def test_scaled_conversion_rounds_the_product_first() -> None:
    """3 * 0.33325195 is just below 1, and its nearest half is 1."""
    assert vme.mul_x8_hf(u16(0x4200, 0x7C00), np.uint16(0x3555)).tolist() == [1, 127]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), halves), min_size=1, max_size=20))
def test_int32_times_half(pairs: list[tuple[int, int]]) -> None:
    integers, factors = np.array([p[0] for p in pairs], np.int32), u16(*(p[1] for p in pairs))
    small = integers >> 16
    for a in (integers, small):
        expected = emulation.mul(a.astype(np.float64), emulation.from_bits(factors))
        assert np.array_equal(vme.mul_x32(a, factors), emulation.to_bits(expected))


def test_int32_times_half_rounds_once() -> None:
    """2049 ties to 2050; 2^24 + 1 must not become a tie by way of float32, which cannot hold it."""
    assert vme.mul_x32(np.array([2049, -2049, 0, -5, 65520], np.int32), np.uint16(0x3C00)).tolist() == [
        0x6801, 0xE801, 0, 0xC500, 0x7C00,
    ]  # fmt: skip
    just_below_a_tie = np.array([(2049 << 14) - 1, 2049 << 14], np.int32)
    assert vme.mul_x32(just_below_a_tie, np.uint16(0x0400)).tolist() == [0x6800, 0x6801]
    assert vme.mul_x32(np.array([[0, 1]], np.int32), u16(0x7C00, 0xFE00)).tolist() == [[0x7C01, 0x7C01]]
    assert vme.mul_x32(np.array([-1, 0], np.int32), u16(0x0000, 0xBC00)).tolist() == [0x8000, 0x8000]
