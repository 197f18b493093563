"""The arithmetic of verdicts: errors, margins, samples, differences."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import numpy.typing as npt
import pytest

from dsa_sched.verification.tolerances import (
    LAYER_BOUND,
    allowance,
    difference,
    first_difference,
    independent_rows,
    judge_layer,
    judge_logits,
    relative_error,
    sample_points,
    way_allowance,
)

Array = npt.NDArray[np.float64]


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


def test_the_same_infinity_and_nan_on_both_sides_are_no_difference() -> None:
    found = difference(array(inf, nan, -inf, 1, inf), array(inf, nan, inf, nan, 2))
    assert found.tolist() == [0, 0, inf, inf, inf]
    assert relative_error(array(inf, nan, 3, 4.5), array(inf, nan, 3, 4)) == pytest.approx(0.1)


def test_logits_are_held_to_the_distance_between_inputs() -> None:
    reference = (np.array([[0.0, 1.0, 5.0]]), np.array([[0.0, 4.0, 1.0]]))  # 5 apart
    near = (np.array([[0.0, 1.0, 5.4]]), np.array([[0.0, 4.0, 1.6]]))
    first, second = judge_logits("l", near, reference)
    assert (first.distance, first.error, first.share) == pytest.approx((5.0, 0.4, 0.08))
    assert first.statement
    assert first.passed
    assert second.statement
    assert not second.passed


def moved(reference: tuple[Array, ...], apart: float, together: float) -> tuple[tuple[Array, Array], ...]:
    """Rounding that moves every element by so much."""
    return tuple((exact + apart, exact + together) for exact in reference)


def test_the_bound_of_logits_is_never_below_what_rounding_does() -> None:
    reference = (np.zeros((1, 4)), np.full((1, 4), 2.0))  # 4 apart
    ours = (np.full((1, 4), 0.4), reference[1])  # off by 0.8
    assert not judge_logits("l", ours, reference)[0].passed
    few, _ = judge_logits("l", ours, reference, moved(reference, 0.1, 0.3))
    assert (few.apart, few.together) == pytest.approx((0.2, 0.6))
    assert (few.floor, few.bound) == pytest.approx((1.2, 1.2))  # six times 0.2 exceed a tenth of 4
    assert few.statement
    assert few.passed
    alike, _ = judge_logits("l", ours, reference, moved(reference, 0.01, 0.5))
    assert (alike.floor, alike.bound) == pytest.approx((1.0, 1.0))
    large, _ = judge_logits("l", (np.full((1, 4), 0.7), reference[1]), reference, moved(reference, 0.1, 0.3))
    assert large.statement
    assert not large.passed


def test_nothing_is_said_where_rounding_does_not_tell_two_inputs_apart() -> None:
    reference = (np.zeros((1, 4)), np.full((1, 4), 0.1))  # 0.2 apart
    first, second = judge_logits("l", (reference[0] + 9, reference[1]), reference, moved(reference, 0.01, 0.01))
    assert not first.statement
    assert not second.statement
    assert first.passed
    assert second.passed


def test_nothing_is_said_of_a_network_that_ignores_its_input() -> None:
    same = np.array([[1.0, 2.0]])
    (first, _) = judge_logits("l", (same + 1e-6, same), (same, same))
    assert first.share == inf
    assert not first.statement
    assert first.passed


def test_elements_that_are_not_finite_are_no_distance() -> None:
    """Where NaN lie differs from input to input, as behind a root of negative numbers."""
    reference = (np.array([[1.0, nan, 3.0]]), np.array([[nan, 2.0, 3.5]]))
    near = (reference[0] + 0.04, reference[1])
    first, second = judge_logits("l", near, reference)
    assert first.distance == second.distance == 0.5
    assert first.statement
    assert not first.passed
    assert second.passed
    gone = judge_logits("l", (np.full((1, 3), nan), reference[1]), reference)[0]
    assert gone.error == inf
    assert not gone.passed


def test_winners_are_judged_among_entries_that_rounding_does_not_tell_apart() -> None:
    reference = (np.array([[5.0, 4.9, 0.0, 1.0]]), np.array([[0.0, 90.0, 0.0, 0.0]]))

    def top1(*ours: float) -> tuple[int, int, int]:
        result = judge_logits("l", (np.array([ours]), reference[1]), reference, moved(reference, 0.02, 0.0))[0]
        assert (result.rows, result.top1_entries) == (1, 4)
        return result.top1_same, result.top1_wrong, result.top1_candidates

    assert top1(5.0, 4.9, 0.0, 1.0) == (1, 0, 2), "0.1 is within four deviations of two errors of 0.02"
    assert top1(4.95, 4.97, 0.0, 1.0) == (0, 0, 2)
    assert top1(4.0, 4.9, 0.0, 1.0) == (0, 0, 2), "a measured error of 0.5 in the mean: entries deviate by more"


def test_a_winner_that_rounding_does_not_explain_is_wrong() -> None:
    """One entry of a hundred is off by enough to win; the error of the row stays small."""
    exact = np.zeros((1, 100))
    exact[0, :2] = 5.0, 3.0
    reference, ours = (exact, -exact), exact.copy()
    ours[0, 1] = 5.2
    first, _ = judge_logits("l", (ours, -exact), reference, moved(reference, 0.001, 0.001))
    assert (first.top1_same, first.top1_wrong, first.top1_candidates) == (0, 1, 1)
    assert first.error < first.bound * 2.5
    assert not first.passed


def test_rows_of_which_one_entry_ties_with_the_winner_count_as_the_same() -> None:
    reference = (np.array([[2.0, 2.0], [1.0, 0.0]]), np.array([[9.0, 0.0], [0.0, 9.0]]))
    ours = (np.array([[1.999, 2.0], [1.0, 0.0]]), reference[1])
    first, _ = judge_logits("l", ours, reference)
    assert (first.rows, first.top1_same, first.top1_wrong) == (2, 2, 0)


def test_not_a_number_never_passes() -> None:
    reference = (np.array([[5.0, 0.0]]), np.array([[0.0, 5.0]]))
    assert not judge_logits("l", (np.array([[nan, 0.0]]), reference[1]), reference)[0].passed
    same = (np.array([[nan, 0.0]]), np.array([[nan, 5.0]]))
    assert judge_logits("l", same, same)[0].passed


def test_a_channel_that_is_wrong_fails_where_the_whole_does_not() -> None:
    exact = np.ones((4, 100))
    ours = exact.copy()
    ours[:, 7] *= 1.1  # 1 % of the whole
    whole, worst = judge_layer(ours, exact, None, 1)
    assert (whole.bound, whole.passed) == (LAYER_BOUND, True)
    assert (worst.channel, worst.bound, worst.passed) == (7, LAYER_BOUND, False)
    assert (whole.error, worst.error) == pytest.approx((0.01, 0.1))


def test_what_rounding_does_bounds_small_differences_of_large_values() -> None:
    """Rounding moves every element by 0.01: half of a value of 0.02, nothing to one of 100."""
    exact = np.stack([np.full(400, 0.02), np.full(400, 100.0)])
    rounded, ours = exact + 0.01, exact + np.array([[0.012], [0.0]])
    whole, worst = judge_layer(ours, exact, rounded, 0)
    assert whole.bound == LAYER_BOUND
    assert worst.channel == 0
    assert (worst.error, worst.floor) == pytest.approx((0.6, 0.5))
    assert worst.bound == pytest.approx(0.5 * allowance(400))
    assert worst.passed
    assert not judge_layer(exact + np.array([[0.025], [0.0]]), exact, rounded, 0)[1].passed


def test_the_floor_of_a_channel_is_at_least_the_mean_of_all() -> None:
    """Of a channel of one element rounding may move nothing by chance."""
    exact = np.ones((1, 4))
    rounded = exact + np.array([[0.0, 0.02, 0.02, 0.02]])
    _, worst = judge_layer(exact + np.array([[0.05, 0, 0, 0]]), exact, rounded, 1)
    assert worst.channel == 0
    assert worst.floor == pytest.approx(0.02 * 0.75**0.5)
    assert worst.passed


def test_rows_that_differ_by_less_than_a_running_sum_can_tell_count_once() -> None:
    eps = float(np.finfo(np.float16).eps)
    generator = np.random.default_rng(5)
    row = generator.normal(0, 1, 400)
    close = row + generator.normal(0, 0.3 * eps * 400**0.5, (50, 400))
    far = row + generator.normal(0, 3 * eps * 400**0.5, (50, 400))
    assert independent_rows(close, eps) == 1
    assert independent_rows(far, eps) == 50
    assert independent_rows(np.concatenate([close, far]), eps) == 51
    assert independent_rows(generator.normal(0, 1, (300, 400)), eps) == 300
    assert independent_rows(np.full((3, 4), np.inf), eps) == 1


def test_errors_of_rows_that_are_alike_are_one_draw() -> None:
    """One channel of 100 is off by four times the mean of all, the same in all of its 400 rows."""
    exact, rounded = np.ones((400, 100)), np.full((400, 100), 1.01)
    ours = exact.copy()
    ours[:, 7] += 0.04
    assert not judge_layer(ours, exact, rounded, 1)[1].passed
    _, worst = judge_layer(ours, exact, rounded, 1, most_draws=1)
    assert (worst.channel, worst.passed) == (7, True)
    assert worst.bound == pytest.approx(0.01 * allowance(1))


def test_zeros_may_be_as_wrong_as_rounding_makes_them() -> None:
    zeros = np.zeros((1, 3))
    assert judge_layer(zeros, zeros, None, 1)[0].error == 0
    assert not judge_layer(zeros + 1e-9, zeros, None, 1)[0].passed
    assert judge_layer(zeros + 1e-3, zeros, zeros + 1e-3, 1)[0].passed
    assert not judge_layer(zeros + 1e-2, zeros, zeros + 1e-3, 1)[0].passed


def test_overflow_is_no_rounding() -> None:
    exact = np.full((1, 3), 7e4)
    whole, _ = judge_layer(np.full((1, 3), inf), exact, np.full((1, 3), inf), 1)
    assert whole.error == inf
    assert not whole.passed


def test_the_allowance_is_six_for_one_draw_and_two_for_many() -> None:
    assert allowance(1) == 6
    assert allowance(10**8) == pytest.approx(2, abs=1e-3)


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


def test_an_output_without_a_statement_is_doubtful_only_where_it_is_off() -> None:
    reference = (np.full((1, 4), 100.0), np.full((1, 4), 101.0))  # 2 apart
    rounding = moved(reference, 3.0, 3.0)
    near, same = judge_logits("l", (reference[0] + 0.09, reference[1]), reference, rounding)
    assert (near.statement, near.doubtful, same.doubtful) == (False, False, False)
    far, _ = judge_logits("l", (reference[0] + 0.5, reference[1]), reference, rounding)
    assert (far.statement, far.doubtful, far.passed) == (False, True, True)
    small = (np.full((1, 4), 100.0), np.full((1, 4), 100.001))
    stored, _ = judge_logits("l", (small[0] + 0.03, small[1]), small, moved(small, 3.0, 3.0))
    assert not stored.doubtful, "no function is more exact"


def test_neighbours_say_how_far_outputs_are_apart() -> None:
    (only,) = judge_logits("l", (np.zeros((1, 4)),), (np.zeros((1, 4)),), (), (np.full((1, 4), 2.0),))
    assert only.distance == pytest.approx(4.0)


def test_the_worst_of_many_channels_of_products_may_be_off_by_its_way() -> None:
    """Sums in fp16 of activations that are alike: each channel has one way for all its elements."""
    random, length, channels = np.random.default_rng(3), 1152, 256
    alike = np.maximum(random.normal(0.3, 1, (1, length)), 0)
    x = (0.8 * alike + 0.2 * np.maximum(random.normal(0.3, 1, (40, length)), 0)).astype(np.float16).astype(np.float32)
    weights = (random.normal(0, 1, (length, channels)) / length**0.5).astype(np.float16).astype(np.float32)
    total = np.zeros((40, channels), np.float16)
    for k in range(length):
        total = (total.astype(np.float32) + x[:, k : k + 1] * weights[k]).astype(np.float16)
    exact = x.astype(np.float64) @ weights
    squares = np.square(x.astype(np.float64)) @ np.square(weights)
    floor = 2.0**-11 / 6**0.5 * np.sqrt(exact**2 + length * (exact**2 / 3 + squares / 6))
    errors, floors = (np.linalg.norm(part, axis=0) for part in (total - exact, floor))
    times = (errors / np.maximum(floors, np.sqrt(np.mean(floors**2)))).max()
    assert 1.5 < times < way_allowance(channels), "beyond what independent errors do"
    assert way_allowance(1) == way_allowance(8) == 2
    assert 2.5 < way_allowance(64) < way_allowance(512) < 3.1
    together = np.full((40, 64), 1.0)
    off, moves = together.copy(), together + 0.02
    off[:, 5] += 0.046
    _, plain = judge_layer(off, together, moves, 1)
    _, channel = judge_layer(off, together, moves, 1, ways=True)
    assert (plain.channel, plain.passed, channel.channel, channel.passed) == (5, True, 5, True)
    off[:, 5] += 0.008
    assert not judge_layer(off, together, moves, 1)[1].passed
    assert judge_layer(off, together, moves, 1, ways=True)[1].passed
    off[:, 5] += 0.02
    assert not judge_layer(off, together, moves, 1, ways=True)[1].passed
