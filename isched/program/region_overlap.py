"""Test whether two regions share a byte. It runs for every pair of accesses in flight, so it avoids walking over
rows."""

from __future__ import annotations

from isched.program.program import Region


def overlaps(a: Region, b: Region) -> bool:
    """True when two regions share a byte."""
    if a.memory != b.memory or a.offset_bytes >= b.end_bytes or b.offset_bytes >= a.end_bytes:
        return False
    a_rows, b_rows = _rows(a), _rows(b)
    if a_rows == 1:
        return b_rows == 1 or _run_meets(a.offset_bytes, a.end_bytes, b)
    if b_rows == 1:
        return _run_meets(b.offset_bytes, b.end_bytes, a)
    if a.stride_bytes == b.stride_bytes:
        return _combs_meet(a, b)
    if a_rows > b_rows:
        a, b = b, a
    from isched.program.row_meetings import rows_meet  # compiled code, which few pairs need

    return bool(
        rows_meet(
            a.offset_bytes, a.row_bytes, a.rows, a.stride_bytes, b.offset_bytes, b.row_bytes, b.rows, b.stride_bytes
        )
    )


def _rows(region: Region) -> int:
    """Number of rows; 1 for a region that is one run of bytes."""
    return 1 if region.stride_bytes <= region.row_bytes else region.rows


def _run_meets(start: int, end: int, comb: Region) -> bool:
    """Whether the run of bytes [start, end) meets a row. The first row that ends after `start` decides."""
    first = max(0, (start - comb.offset_bytes - comb.row_bytes) // comb.stride_bytes + 1)
    return first < comb.rows and comb.offset_bytes + first * comb.stride_bytes < end


def _combs_meet(a: Region, b: Region) -> bool:
    """Whether rows with the same stride meet: row i of `a` and row j of `b` do when (i - j) * stride lies close to the
    distance."""
    distance = b.offset_bytes - a.offset_bytes
    least = max((distance - a.row_bytes) // a.stride_bytes + 1, 1 - b.rows)
    return least < a.rows and least * a.stride_bytes < distance + b.row_bytes
