"""Norms along lines as one kernel: bits as emulated, values as float64's, and equal bits for all powers of two."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from hw_models.chip import Chip
from tests.chip_runs import compile_graph, small_chip
from tests.movement_graphs import MovementBuilder

Values = npt.NDArray[np.float64]
Halves = npt.NDArray[np.float16]

LINES = {
    "last axis": ((3, 7, 100), (2,)),
    "one row": ((1, 768), (1,)),
    "rows of images": ((2, 5, 6, 9), (1, 2)),
    "all but the first": ((3, 4, 5, 6), (1, 2, 3)),
    "in levels": ((2, 4_500), (1,)),
    "single elements": ((4, 1), (1,)),
}


def meaning(x: Values, axes: tuple[int, ...], epsilon: float, *, centred: bool) -> Values:
    d = x - x.mean(axes, keepdims=True) if centred else x
    return np.asarray(d / np.sqrt(np.square(d).mean(axes, keepdims=True) + epsilon))


def stored_norm(
    x: Halves, axes: tuple[int, ...], epsilon: float, *, centred: bool, chip: Chip | None = None
) -> npt.NDArray[np.uint16]:
    """What the machine code stores, after each layer was compared with the emulation bit for bit."""
    builder = MovementBuilder("norm")
    attributes = (("centred", int(centred)), ("epsilon", epsilon))
    out = builder.normalise(builder.input("x", *x.shape), *axes, attributes=attributes)
    compiled = compile_graph(*builder.build(out), chip)
    stored = compiled.run({"x": x.view(np.uint16)})
    for got, wanted in compiled.expected(stored).values():
        np.testing.assert_array_equal(got, wanted)
    return stored[out]


def normal(seed: int, *shape: int) -> Halves:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float16)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("name", LINES)
def test_norms_agree_with_float64(name: str, centred: bool) -> None:
    shape, axes = LINES[name]
    x = normal(1, *shape)
    wanted = meaning(x.astype(np.float64), axes, 1e-5, centred=centred)
    got = stored_norm(x, axes, 1e-5, centred=centred)
    np.testing.assert_allclose(got.view(np.float16), wanted, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("name", LINES)
@pytest.mark.commit
def test_small_memories_store_the_same_bits(name: str) -> None:
    shape, axes = LINES[name]
    x = normal(2, *shape)
    tiny = small_chip(cores=3, data_bytes=1 << 15, weights_bytes=1 << 12, im_bytes=1 << 11, llb_bytes=1 << 16)
    np.testing.assert_array_equal(
        stored_norm(x, axes, 1e-5, centred=True), stored_norm(x, axes, 1e-5, centred=True, chip=tiny)
    )


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 1.0, 1e4, 1e9])
def test_epsilon_counts_beside_small_lines_and_is_in_range_beside_large_ones(epsilon: float) -> None:
    x = np.concatenate([normal(3, 4, 96) * np.float16(scale) for scale in (2.0**-10, 1.0, 2.0**12)])
    wanted = meaning(x.astype(np.float64), (1,), epsilon, centred=True)
    got = stored_norm(x, (1,), epsilon, centred=True).view(np.float16)
    # What is small beside epsilon's root is so of the chip's smallest halves, too.
    np.testing.assert_allclose(got, wanted, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("offset", [0.0, 30.0, 3000.0])
def test_lines_far_from_zero_lose_little(offset: float) -> None:
    """What is nearest to zero goes first; the mean of what is left is right to 0.2 %."""
    x = (normal(4, 5, 768).astype(np.float64) * max(1.0, offset / 100) + offset).astype(np.float16)
    wanted = meaning(x.astype(np.float64), (1,), 1e-5, centred=True)
    np.testing.assert_allclose(stored_norm(x, (1,), 1e-5, centred=True).view(np.float16), wanted, rtol=1e-2, atol=1e-2)


def test_lines_of_equal_values_are_zeros() -> None:
    x = np.repeat(np.array([[0.0], [5.0], [-65504.0], [2.0**-24]], np.float16), 40, 1)
    np.testing.assert_array_equal(stored_norm(x, (1,), 1e-12, centred=True).view(np.float16), np.zeros((4, 40)))


def test_one_large_value_among_small_ones() -> None:
    """The largest that a line of its length can have, sqrt(length)."""
    x = normal(5, 6, 500)
    x[:, 7] = np.float16(60000.0)
    wanted = meaning(x.astype(np.float64), (1,), 1e-5, centred=True)
    np.testing.assert_allclose(stored_norm(x, (1,), 1e-5, centred=True).view(np.float16), wanted, rtol=5e-3, atol=1e-3)


def test_lines_that_are_not_finite_are_not_numbers() -> None:
    x = normal(6, 4, 33)
    x[0, 3], x[1, 4], x[2, 5] = np.inf, -np.inf, np.nan
    got = stored_norm(x, (1,), 1e-5, centred=True).view(np.float16)
    assert np.isnan(got[:3]).all()
    assert np.isfinite(got[3]).all()


@pytest.mark.nightly
@pytest.mark.parametrize("centred", [True, False])
def test_norm_scale(centred: bool) -> None:
    """Of x * 2^k, epsilon 0: equal to the bit to k = 0 where nothing leaves the range, and near float64 everywhere."""
    x = normal(7, 16, 768)
    plain = stored_norm(x, (1,), 0.0, centred=centred)
    for k in range(-12, 13):
        scaled = (x.astype(np.float64) * 2.0**k).astype(np.float16)
        kept = (scaled.astype(np.float64) == x.astype(np.float64) * 2.0**k).all(1)
        got = stored_norm(scaled, (1,), 0.0, centred=centred)
        np.testing.assert_array_equal(got[kept], plain[kept])
        wanted = meaning(scaled.astype(np.float64), (1,), 0.0, centred=centred)
        np.testing.assert_allclose(got.view(np.float16), wanted, rtol=1e-2, atol=1e-2)
        if k >= 0:
            assert kept.all()
