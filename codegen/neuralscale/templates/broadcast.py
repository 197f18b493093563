"""Apply the second operand of a binary operator to a tile: element by element, or by one of the vector forms.

    tile [N, H, W, C]  op  operand [N, 1, 1, C]     one instruction per image, one operand element per column
    tile [N, H, W, C]  op  operand [N, H, W, 1]     one instruction, one operand element per row

An operand has the tile's extent or 1 on every axis, so the axes fall into runs that are shared and runs that are
repeated. The last two runs make the rows and columns of one instruction; the runs outside them become a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product, takewhile
from math import prod

from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from isched.program.program import Instr
from partitioner.ir.graph import Graph
from partitioner.ir.regions import Box


def padded_shape(graph: Graph, operand: str, output: str) -> tuple[int, ...]:
    """The operand's shape, with ones in front up to the output's number of axes."""
    shape, rank = graph.by_name[operand].shape, len(graph.by_name[output].shape)
    return (1,) * (rank - len(shape)) + shape


def same_shape(graph: Graph, operand: str, output: str) -> bool:
    """Whether the operand has one element for each element of the output."""
    return padded_shape(graph, operand, output) == graph.by_name[output].shape


def operand_box(graph: Graph, operand: str, output: str, box: Box) -> Box:
    """The box of the operand that meets a box of the output."""
    padded = padded_shape(graph, operand, output)
    met = tuple(span if extent > 1 else (0, 1) for span, extent in zip(box, padded, strict=True))
    return met[len(box) - len(graph.by_name[operand].shape) :]


def combine(
    issue: InstructionBuilder,
    op: str,
    output: MatrixPlace,
    current: MatrixPlace,
    operand: MatrixPlace,
    shape: tuple[int, ...],
    operand_shape: tuple[int, ...],
) -> Iterator[Instr]:
    """Compute output = current op operand. `operand_shape` has 1 where the operand is repeated; a repeated operand is
    dense."""
    axes = [(full, part) for full, part in zip(shape, operand_shape, strict=True) if full > 1]
    if all(full == part for full, part in axes):
        matrices = (m.reshaped(output.rows, output.columns) if m.dense else m for m in (output, current, operand))
        yield from issue.binary(op, *matrices)
        return
    if not (output.dense and current.dense):
        outside = axes[:-1] if shape[-1] > 1 else axes
        yield from _combine_rows(issue, op, output, current, operand.reshaped(-1, operand_shape[-1]), outside)
        return
    shared = axes[-1][0] == axes[-1][1]
    inner = _last_run(axes, shared)
    middle = _last_run(axes[: len(axes) - len(inner)], not shared)
    outer = axes[: len(axes) - len(inner) - len(middle)]
    columns, rows = (prod(full for full, _ in run) for run in (inner, middle))
    count = columns if shared else rows
    apply = issue.by_column if shared else issue.by_row
    for index, place in enumerate(_places(outer)):
        d, a = (m.reshaped(-1, rows * columns).part(index, 1).reshaped(rows, columns) for m in (output, current))
        yield from apply(op, d, a, operand.reshaped(-1, count).part(place, 1))


def _combine_rows(
    issue: InstructionBuilder,
    op: str,
    output: MatrixPlace,
    current: MatrixPlace,
    operand: MatrixPlace,
    axes: list[tuple[int, int]],
) -> Iterator[Instr]:
    """Compute output = current op operand where rows have a pitch, so that only the last axis makes the columns; `axes`
    are those of the rows."""
    width = operand.columns
    shared = bool(axes) and axes[-1][0] == axes[-1][1]
    run = _last_run(axes, shared)
    outer = axes[: len(axes) - len(run)]
    rows = prod(full for full, _ in run)
    for index, place in enumerate(_places(outer)):
        d, a = (m.part(index * rows, rows) for m in (output, current))
        met = operand.reshaped(-1, (rows if shared else 1) * width).part(place, 1)
        if width == output.columns and shared:
            yield from issue.binary(op, d, a, met.reshaped(rows, width))
        elif width == output.columns:
            yield from issue.by_column(op, d, a, met)
        elif shared:
            yield from issue.by_row(op, d, a, met)
        else:
            for row in range(rows):
                yield from issue.by_row(op, d.part(row, 1), a.part(row, 1), met)


def _places(axes: list[tuple[int, int]]) -> Iterator[int]:
    """The operand element that meets each position of some axes, which are given as (extent, operand's extent)."""
    for point in product(*(range(full) for full, _ in axes)):
        place = 0
        for position, (_, part) in zip(point, axes, strict=True):
            place = place * part + min(position, part - 1)
        yield place


def _last_run(axes: list[tuple[int, int]], shared: bool) -> list[tuple[int, int]]:
    """The innermost axes that are either all shared or all repeated."""
    return list(takewhile(lambda axis: (axis[0] == axis[1]) == shared, reversed(axes)))
