"""Instructions from matrices: fields stay within their bits, pieces cover the whole, immediates are nearest halves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.neuralscale.instructions.arithmetic import FP16, immediate
from codegen.neuralscale.instructions.builder import MAX_EXTENT, MAX_STRIDE_BYTES, InstructionBuilder, MatrixPlace
from hw_models.errors import TargetError
from isched.program.program import Instr, Region
from tests.chip_runs import stcp920

ISSUE = InstructionBuilder(stcp920(), "layer", FP16)


def _matrix(memory: str, offset_bytes: int, rows: int, columns: int, stride_bytes: int = 0) -> MatrixPlace:
    return MatrixPlace(memory, offset_bytes, rows, columns, FP16.item_bytes, stride_bytes)


def covered(regions: list[Region]) -> dict[int, int]:
    """How often each row's first byte is touched, weighted by its length: enough to see gaps and overlaps."""
    touched: dict[int, int] = {}
    for region in regions:
        for row in range(region.rows):
            start = region.offset_bytes + row * region.stride_bytes
            touched[start] = touched.get(start, 0) + region.row_bytes
    return touched


def elements(regions: list[Region]) -> int:
    return sum(region.size_bytes for region in regions)


def check_fields(instr: Instr) -> None:
    operands = dict(instr.operands)
    rows, columns = operands["shape_s1"] & 0xFFFF, operands["shape_s1"] >> 16
    assert 0 < rows <= MAX_EXTENT
    assert 0 < columns <= MAX_EXTENT
    for name in ("stride_d", "stride_s"):
        assert 0 <= operands.get(name, 0) & 0xFFFF <= MAX_STRIDE_BYTES
    assert operands.get("stride_s", 0) >> 32 == 0


@pytest.mark.parametrize(
    ("rows", "columns", "stride"),
    [
        (3, 5, 0),
        (1, 200_000, 0),
        (200_000, 3, 0),
        (70_000, 2, 6),
        (3, 40_000, 90_000),
        (2, 70_000, 150_000),
        (1 << 10, 1 << 7, 0),
        (5, 65_535, 0),
        (66_000, 1, 0),
    ],
)
def test_wide_and_tall_matrices_are_cut(rows: int, columns: int, stride: int) -> None:
    d, a = _matrix("L1", 0, rows, columns), _matrix("IM", 64, rows, columns, stride)
    instrs = list(ISSUE.unary("mov.m", d, a))
    for instr in instrs:
        check_fields(instr)
    writes = [w for instr in instrs for w in instr.writes]
    assert elements(writes) == elements([r for instr in instrs for r in instr.reads]) == 2 * rows * columns
    spans = sorted((w.offset_bytes, w.end_bytes) for w in writes)
    assert spans[0][0] == 0
    assert spans[-1][1] == 2 * rows * columns


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
def test_small_matrices_are_one_instruction(rows: int, columns: int, gap: int) -> None:
    stride = 2 * (columns + gap) if gap else 0
    d = _matrix("L1", 0, rows, columns, stride)
    (instr,) = ISSUE.scalar("veadd", d, d, 1.0)
    check_fields(instr)
    assert covered(list(instr.writes)) == covered([d.region])


def test_vectors_follow_the_pieces() -> None:
    d, a = _matrix("L1", 0, 3, 70_000), _matrix("L1", 1 << 19, 3, 70_000)
    by_column = list(ISSUE.by_column("veadd", d, a, _matrix("L1", 1 << 20, 1, 70_000)))
    by_row = list(ISSUE.by_row("veadd", d, a, _matrix("L1", 1 << 20, 1, 3)))
    assert [i.reads[1].offset_bytes - (1 << 20) for i in by_column] == [0, 2 * MAX_EXTENT] * 3
    assert [i.reads[1].offset_bytes - (1 << 20) for i in by_row] == [0, 0, 2, 2, 4, 4]
    for instr in (*by_column, *by_row):
        check_fields(instr)


def test_reductions_of_many_rows_are_cut() -> None:
    a, d = _matrix("L1", 0, 70_000, 2), _matrix("L1", 1 << 19, 70_000, 1, 6)
    instrs = list(ISSUE.reduce_rows("vemax", d, a))
    assert [dict(i.operands)["shape_s1"] & 0xFFFF for i in instrs] == [65_535, 4_465]
    assert all(dict(i.operands)["stride_d"] == 6 for i in instrs)


@given(st.floats(-70_000, 70_000, allow_nan=False))
def test_immediates_are_the_nearest_half(value: float) -> None:
    """The chip cuts the fp32 pattern toward zero, so the pattern must be a half already."""
    single = np.uint32(immediate(value)).view(np.float32)
    half = np.float64(np.float16(single))
    assert half == single
    if abs(value) < 65504:
        neighbours = (float(np.nextafter(np.float16(half), np.float16(end))) for end in (-np.inf, np.inf))
        assert abs(half - value) <= min(abs(neighbour - value) for neighbour in neighbours)


def test_immediates_beyond_halves_are_infinite() -> None:
    assert np.uint32(immediate(-3.4e38)).view(np.float32) == -np.inf
    assert np.uint32(immediate(np.inf)).view(np.float32) == np.inf


def test_a_matrix_that_no_template_cut_is_refused_by_layer() -> None:
    b = _matrix("L1", 1 << 20, 1, 70_000)
    with pytest.raises(TargetError, match="layer: needs extents and strides up to 65535; has 70000"):
        ISSUE.memul(_matrix("IM", 0, 1, 70_000), _matrix("L1", 0, 1, 1), b)
