"""Arrays as lines: where the elements of each line lie, against numpy; what can be read at once."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.cutlass.families.lines.line_shapes import AxisRun, line_shape

Offsets = npt.NDArray[np.int64]


def offsets(runs: tuple[AxisRun, ...]) -> Offsets:
    """Where the positions of some runs lie, the last run fastest."""
    steps = product(*(range(run.extent) for run in runs))
    return np.array([sum(i * run.stride for i, run in zip(at, runs, strict=True)) for at in steps])


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6))
def test_each_line_has_its_elements_in_order(axes: list[tuple[int, bool]]) -> None:
    shape = tuple(extent for extent, _ in axes)
    along = [axis for axis, (_, reduced) in enumerate(axes) if reduced]
    kept = [axis for axis in range(len(shape)) if axis not in along]
    found = line_shape(shape, along)
    places = offsets(found.kept)[:, None] + offsets(found.along)[None, :]
    numbers = np.arange(prod(shape)).reshape(shape).transpose(kept + along)
    np.testing.assert_array_equal(places, numbers.reshape(found.lines, found.elements))
    assert len(found.kept) <= 3
    assert len(found.along) <= 3


@pytest.mark.parametrize(
    ("shape", "along", "rows", "vector", "counts"),
    [
        ((3, 40), {1}, True, 8, (5, 3)),
        ((3, 41), {1}, True, 1, (41, 3)),
        ((2, 5, 7, 16), {1, 2}, False, 8, (35, 4)),
        ((2, 5, 7, 3), {1, 2}, False, 1, (35, 6)),
        ((3, 5, 24), {0, 2}, True, 8, (9, 5)),
        ((3, 24, 1), {1}, True, 8, (3, 3)),
        ((3, 1, 24), {1}, False, 8, (1, 9)),
        ((1, 1), {0}, True, 1, (1, 1)),
    ],
)
def test_what_is_read_at_once(
    shape: tuple[int, ...], along: set[int], rows: bool, vector: int, counts: tuple[int, int]
) -> None:
    """Steps of a line, and lines or sets of eight of them."""
    found = line_shape(shape, along)
    assert (found.rows, found.vector, found.counts(found.vector)) == (rows, vector, counts)
