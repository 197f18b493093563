"""An array as lines: its axes are merged into runs, of which every other one lies along the lines.

shape (2, 5, 7, 16), lines along axes 1 and 2   -->   kept 2 x 16, along 35; neighbours in memory are of other lines
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

WIDE = 8


@dataclass(frozen=True, slots=True)
class AxisRun:
    """Merged neighbouring axes; `stride` is in elements."""

    extent: int
    stride: int


@dataclass(frozen=True, slots=True)
class LineShape:
    """Lines of an array: the runs `kept` number the lines, the runs `along` their elements, the outermost first. `rows`
    says that neighbours in memory belong to one line."""

    kept: tuple[AxisRun, ...]
    along: tuple[AxisRun, ...]
    rows: bool

    @property
    def lines(self) -> int:
        return prod(run.extent for run in self.kept)

    @property
    def elements(self) -> int:
        """Elements of a line."""
        return prod(run.extent for run in self.along)

    @property
    def vector(self) -> int:
        """Neighbours that can be read at a time: 8, aligned, or 1."""
        inner = (self.along if self.rows else self.kept)[-1]
        return 1 if inner.extent % WIDE else WIDE

    def counts(self, vector: int) -> tuple[int, int]:
        """Steps of a line, and the number of lines or, where a step has elements of several lines, of sets of lines."""
        if self.rows:
            return self.elements // vector, self.lines
        return self.elements, self.lines // vector


def line_shape(shape: tuple[int, ...], axes: Collection[int]) -> LineShape:
    """The lines along `axes` of an array; axes of one element belong to no run."""
    runs: list[tuple[bool, AxisRun]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        stride, along = prod(shape[axis + 1 :]), axis in axes
        if runs and runs[-1][0] == along:
            runs[-1] = along, AxisRun(runs[-1][1].extent * extent, stride)
        else:
            runs.append((along, AxisRun(extent, stride)))
    nothing = (AxisRun(1, 0),)
    return LineShape(
        tuple(run for along, run in runs if not along) or nothing,
        tuple(run for along, run in runs if along) or nothing,
        not runs or runs[-1][0],
    )
