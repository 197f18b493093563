"""The arithmetic of verdicts: errors, margins, samples, differences."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from dsa_sched.judge import first_difference, judge_logits, relative_error, sample_points


def array(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values)


@pytest.mark.parametrize(
    ("ours", "reference", "error"),
    [
        (array(3, 4), array(3, 4), 0.0),
        (array(3, 4.5), array(3, 4), 0.1),
        (array(0, 0), array(0, 0), 0.0),
        (array(1, 0), array(0, 0), inf),
        (array(nan, 4), array(3, 4), inf),
        (array(inf, 4), array(3, 4), inf),
        (array(3, 4), array(inf, 4), inf),
        (array(inf, 4), array(inf, 4), 0.0),
        (array(nan, 3, 4.5), array(nan, 3, 4), 0.1),
        (array(-inf, 3, 4.5), array(-inf, 3, 4), 0.1),
        (array(-inf, 3, 4), array(inf, 3, 4), inf),
        (array(inf, 3, 4), array(nan, 3, 4), inf),
        (array(nan, nan), array(nan, nan), 0.0),
    ],
)
def test_relative_error(ours: np.ndarray, reference: np.ndarray, error: float) -> None:
    assert relative_error(ours, reference) == pytest.approx(error)


def test_logits_are_held_to_the_distance_between_inputs() -> None:
    reference = (np.array([[0.0, 1.0, 5.0]]), np.array([[0.0, 4.0, 1.0]]))  # 5 apart
    near = (np.array([[0.0, 1.0, 5.4]]), np.array([[0.0, 4.0, 1.6]]))
    first, second = judge_logits("l", near, reference)
    assert (first.distance, first.error, first.share) == pytest.approx((5.0, 0.4, 0.08))
    assert first.passed
    assert not second.passed
    assert (second.top1_active, second.top1_wrong) == (1, 0)


def test_a_network_that_ignores_its_input_cannot_pass_by_chance() -> None:
    same = np.array([[1.0, 2.0]])
    (first, _) = judge_logits("l", (same + 1e-6, same), (same, same))
    assert first.share == inf
    assert not first.passed
    assert judge_logits("l", (same, same), (same, same))[0].passed


def test_top1_counts_only_rows_with_a_clear_margin() -> None:
    reference = (np.array([[5.0, 0.0], [1.0, 0.9]]), np.array([[90.0, 0.0], [0.0, 90.0]]))
    ours = (np.array([[5.0, 0.5], [0.9, 1.0]]), reference[1])
    first, second = judge_logits("l", ours, reference)
    assert (first.rows, first.top1_active, first.top1_wrong) == (2, 1, 0)
    assert (second.rows, second.top1_active) == (2, 2)
    third, _ = judge_logits("l", (np.array([[0.0, 3.0], [1.0, 0.9]]), reference[1]), reference)
    assert (third.top1_active, third.top1_wrong) == (1, 0), "an error above the margin makes a row inactive"
    wrong, _ = judge_logits("l", (np.array([[2.0, 2.5], [1.0, 0.9]]), reference[1]), reference)
    assert (wrong.top1_active, wrong.top1_wrong) == (2, 1)


def test_not_a_number_never_passes() -> None:
    reference = (np.array([[5.0, 0.0]]), np.array([[0.0, 5.0]]))
    assert not judge_logits("l", (np.array([[nan, 0.0]]), reference[1]), reference)[0].passed


@pytest.mark.parametrize("shape", [(1, 7, 7, 2048), (2, 112, 112, 3), (1, 14, 14, 300), (5000,)])
def test_samples_hit_every_channel_and_both_ends_of_every_axis(shape: tuple[int, ...]) -> None:
    points = sample_points(shape, 1024, np.random.default_rng(0))
    assert points.shape[1] == len(shape)
    assert len(points) == max(1024, shape[-1])
    assert set(points[:, -1]) == set(range(shape[-1]))
    for axis, extent in enumerate(shape):
        assert points[:, axis].min() == 0
        assert points[:, axis].max() == extent - 1
        assert (points[:, axis] == 0).mean() > 0.12 or axis == len(shape) - 1


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_small_tensors_are_sampled_in_full(shape: tuple[int, ...]) -> None:
    points = sample_points(shape, 100, np.random.default_rng(0))
    assert sorted(map(tuple, points.tolist())) == sorted(np.ndindex(shape))


def test_first_difference() -> None:
    assert first_difference(b"abcd", b"abcd") == (0, -1)
    assert first_difference(b"abcd", b"aXcX") == (2, 1)
