"""Overlap of regions against sets of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isched.program.program import Region
from isched.program.region_overlap import overlaps


def region(offset: int, row: int, rows: int, gap: int, stride: int) -> Region:
    """Rows `gap` apart, or `stride` bytes from start to start where that is given; rows may overlap each other."""
    return Region("M", offset, row, rows, (stride or row + gap) if rows > 1 else 0)


regions = st.builds(
    region,
    st.integers(0, 60),
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(0, 12),
    st.sampled_from([0, 0, 1, 5, 16, 16]),
)


def bytes_of(region: Region) -> set[int]:
    starts = (region.offset_bytes + row * region.stride_bytes for row in range(region.rows))
    return {start + i for start in starts for i in range(region.row_bytes)}


@given(regions, regions)
def test_overlap_is_what_sets_of_bytes_say(a: Region, b: Region) -> None:
    assert overlaps(a, b) == bool(bytes_of(a) & bytes_of(b))
    assert overlaps(b, a) == overlaps(a, b)


@given(st.integers(1, 9), st.integers(0, 40), st.integers(1, 9), st.integers(1, 6), st.integers(1, 6))
def test_rows_of_one_stride(a_row: int, distance: int, b_row: int, a_rows: int, b_rows: int) -> None:
    a, b = Region("M", 20, a_row, a_rows, 10), Region("M", distance, b_row, b_rows, 10)
    assert overlaps(a, b) == bool(bytes_of(a) & bytes_of(b))


def test_regions_of_other_memories_never_overlap() -> None:
    assert not overlaps(Region("A", 0, 8), Region("B", 0, 8))
