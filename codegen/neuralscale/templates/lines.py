"""Lines of an array along one axis: [outer, length, inner], reduced or combined with one value per line.

    reduce(lines, data, span) -> [outer, 1, inner]    by rows where the axis is the innermost, else by columns
    apply(lines, data, values)                        the converse: each value meets the elements of its line

Sums of a thousand fp16 terms would stop growing, so a line is summed in pieces of about sqrt(length) elements, at most
LONGEST_PIECE, each from its first element, and then over the sums of the pieces, which are summed in pieces again where
there are many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isqrt, prod

from codegen.neuralscale.instructions.builder import MAX_EXTENT, MAX_STRIDE_BYTES, InstructionBuilder, MatrixPlace
from isched.program.program import Instr

LONGEST_PIECE = 64
"""Largest number of terms that are added one by one: for equal terms, the worst case, each such sum is right to 0.5
%."""


@dataclass(frozen=True, slots=True)
class Lines:
    """`outer` x `inner` lines of `length` elements each."""

    outer: int
    length: int
    inner: int

    @property
    def count(self) -> int:
        return self.outer * self.inner

    @property
    def elements(self) -> int:
        return self.count * self.length

    @property
    def piece(self) -> int:
        """Elements of one piece of a sum."""
        return min(LONGEST_PIECE, isqrt(max(0, self.length - 1)) + 1)

    @property
    def pieces(self) -> int:
        return -(-self.length // self.piece)

    @property
    def sums(self) -> Lines:
        """The sums of the pieces, seen as lines."""
        return Lines(self.outer, self.pieces, self.inner)

    @property
    def in_levels(self) -> bool:
        """Whether the sums of pieces are themselves summed in pieces, because there are more than LONGEST_PIECE."""
        return self.pieces > LONGEST_PIECE

    @property
    def partial_elements(self) -> int:
        """Number of sums of pieces, of all levels, that a sum over all lines holds."""
        return self.sums.elements + (self.sums.partial_elements if self.in_levels else 0)

    @property
    def sum_instructions(self) -> int:
        """Number of reductions that a sum over all lines takes."""
        return self.pieces * self.instructions + (self.sums.sum_instructions if self.in_levels else self.instructions)

    def strided(self, columns: int) -> bool:
        """Whether rows of `columns` elements, the last axis, may have a pitch: they are whole lines, or one element of
        each."""
        return columns == (self.inner if self.inner > 1 else self.length)

    @property
    def instructions(self) -> int:
        """Number of instructions that one reduction takes."""
        return self.outer if self.inner > 1 else 1


def lines_along(shape: tuple[int, ...], first: int, last: int) -> Lines:
    """The lines of an array over its axes `first` to `last`."""
    return Lines(prod(shape[:first]), prod(shape[first : last + 1]), prod(shape[last + 1 :]))


def line_problem(lines: Lines) -> str | None:
    """Why the vector engine cannot reduce these lines, because their columns lie apart by more than a field can hold;
    None where it can."""
    if lines.inner > MAX_EXTENT:
        return f"{lines.inner} elements inside the reduced axis, at most {MAX_EXTENT}"
    return None


def reduce(
    issue: InstructionBuilder,
    op: str,
    lines: Lines,
    data: MatrixPlace,
    span: tuple[int, int],
    result: MatrixPlace,
    place: tuple[int, int] = (0, 1),
) -> Iterator[Instr]:
    """result[:, place[0], :] of [outer, place[1], inner] = `op` over the elements `span` of every line of `data`; for
    `veemacc`, the sum of their squares.

    `data` may have a pitch where `Lines.strided` says so, and `result` where `inner` is its last axis."""
    low, high = span
    position, count = place
    if lines.inner == 1:
        rows = _rows(data, lines.outer, lines.length).part(0, lines.outer, low, high - low)
        item = result.item_bytes
        start = result.offset_bytes + item * position
        column = MatrixPlace(result.memory, start, lines.outer, 1, item, result.stride_bytes or item * count)
        step = lines.outer if max(rows.pitch_bytes, column.pitch_bytes) <= MAX_STRIDE_BYTES else 1
        for row in range(0, lines.outer, step):
            yield from issue.reduce_rows(op, column.part(row, step), rows.part(row, step))
        return
    elements = _rows(data, lines.outer * lines.length, lines.inner)
    results = _rows(result, lines.outer * count, lines.inner)
    for outer in range(lines.outer):
        rows = elements.part(outer * lines.length + low, high - low)
        yield from issue.reduce_columns(op, results.part(outer * count + position, 1), rows)


def total(
    issue: InstructionBuilder,
    lines: Lines,
    data: MatrixPlace,
    partial: MatrixPlace,
    result: MatrixPlace,
    mean: bool = False,
    divided: bool = True,
    op: str = "veacc",
) -> Iterator[Instr]:
    """Sum every line, or the squares of its elements (`veemacc`); `partial` holds `partial_elements` sums of pieces.
    For a mean, `data` holds the elements already multiplied by 1 / piece unless `divided` is false, and the sums of the
    pieces are multiplied so that their sum, or the next level's, is the mean."""
    for piece in range(lines.pieces):
        span = (piece * lines.piece, min(lines.length, (piece + 1) * lines.piece))
        yield from reduce(issue, op, lines, data, span, partial, (piece, lines.pieces))
    level = lines.sums
    sums = MatrixPlace(partial.memory, partial.offset_bytes, 1, level.elements, partial.item_bytes)
    if mean:
        # `length` elements were divided by `piece`: their mean is the sum of that times piece / length.
        factor = (lines.piece if divided else 1) / lines.length * (level.length / level.piece if lines.in_levels else 1)
        yield from issue.scalar("veemul", sums, sums, factor)
    if not lines.in_levels:
        yield from reduce(issue, "veacc", level, sums, (0, level.length), result)
        return
    after = replace(sums, offset_bytes=sums.offset_bytes + sums.item_bytes * level.elements)
    yield from total(issue, level, sums, after, result, mean)


def apply(
    issue: InstructionBuilder, op: str, lines: Lines, output: MatrixPlace, data: MatrixPlace, values: MatrixPlace
) -> Iterator[Instr]:
    """Compute output = data `op` values, with one value per line."""
    if lines.inner == 1:
        rows, columns = lines.outer, lines.length
        d, a = _rows(output, rows, columns), _rows(data, rows, columns)
        yield from issue.by_row(op, d, a, _rows(values, 1, rows))
        return
    rows, columns = lines.outer * lines.length, lines.inner
    for outer in range(lines.outer):
        d, a = (_rows(m, rows, columns).part(outer * lines.length, lines.length) for m in (output, data))
        yield from issue.by_column(op, d, a, _rows(values, lines.outer, columns).part(outer, 1))


def _rows(at: MatrixPlace, rows: int, columns: int) -> MatrixPlace:
    return MatrixPlace(at.memory, at.offset_bytes, rows, columns, at.item_bytes, at.stride_bytes)
