"""The table of a sweep: a row per point, a column per field that is varied, option and figure.

SweepResult --sweep_table--> SweepTable --fronts--> the rows that no other row beats at both of two figures

Nothing in it depends on when or where points were compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from dsa_sched.sweeping.point_result import PointFigures, PointResult
from dsa_sched.sweeping.points import Point
from dsa_sched.sweeping.sweep import SweepResult
from hw_models.changes import field_values

Cell = str | int | float | bool | None
Kind = Literal["text", "integer", "number", "truth"]

BY_NAME = ("peak_bytes", "moved_bytes")
"""Figures that are several columns, one per memory or way."""

FIGURES: Mapping[str, Kind] = {
    "planner": "text",
    "estimated": "truth",
    "pass_items": "integer",
    "seconds_per_item": "number",
    "items_per_second": "number",
    "cycles": "number",
    "instructions": "integer",
    "groups": "integer",
    "instances": "integer",
    "bound_by": "text",
    "bound_share": "number",
    "macs": "number",
    "main_bytes": "number",
    "on_chip_bytes": "integer",
    "main_bytes_per_second": "number",
    "area_mm2": "number",
    "energy_uj": "number",
}
"""Columns of figures, with what their cells are; `PointFigures` says what they mean."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its name and what its cells are."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class SweepTable:
    """A table; `varied` are the columns in which points differ by what was asked for."""

    name: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    varied: tuple[str, ...]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Number of each column by its name."""
        return {column.name: number for number, column in enumerate(self.columns)}

    def cell(self, row: int, column: str) -> Cell:
        return self.rows[row][self.places[column]]

    def number(self, row: int, column: str) -> float | None:
        """A cell that is a number; None for an absent one."""
        found = self.cell(row, column)
        return float(found) if isinstance(found, int | float) else None

    @cached_property
    def comparable(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the rows with figures that may be compared with each other, in their order: those of each
        network whose machine code was timed, and those for which its times are estimates."""
        found: dict[str, list[int]] = {}
        for row in range(len(self.rows)):
            if self.cell(row, "estimated") is not None:
                kind = " (estimates)" if self.cell(row, "estimated") else ""
                found.setdefault(f"{self.cell(row, 'network')}{kind}", []).append(row)
        return {name: tuple(rows) for name, rows in found.items()}

    def front(self, rows: tuple[int, ...], cost: str, gain: str) -> tuple[int, ...]:
        """The Pareto front of some rows: those with no other that costs at most as much and gains at least as much; the
        cheapest first. Of equal ones the first counts; rows without either number do not."""
        numbers = ((self.number(row, cost), self.number(row, gain), row) for row in rows)
        known = [(spent, -gained, row) for spent, gained, row in numbers if spent is not None and gained is not None]
        found: list[int] = []
        best = float("inf")
        for _, loss, row in sorted(known):
            if loss < best:
                best = loss
                found.append(row)
        return tuple(found)


def sweep_table(found: SweepResult) -> SweepTable:
    """The table of a sweep."""
    paths = tuple(dict.fromkeys(path for point in found.points for path, _ in point.changes))
    options = tuple(found.sweep.options.lists)
    known = {chip: field_values(chip) for chip in {point.chip for point in found.points}}
    named = {figure: _names(found.results, figure) for figure in BY_NAME}

    def row(point: Point, result: PointResult) -> tuple[Cell, ...]:
        changes = dict(point.changes)
        return (
            point.network.label,
            point.chip_label,
            *(changes.get(path, _cell(known[point.chip].get(path))) for path in paths),
            *(getattr(point.options, name) for name in options),
            result.status,
            result.reason,
            *_figures(result.figures, named),
        )

    rows = tuple(row(point, result) for point, result in zip(found.points, found.results, strict=True))
    names = ("network", "chip", *(f"chip.{path}" for path in paths), *options)
    columns = (
        *(TableColumn(name, _kind([row[number] for row in rows])) for number, name in enumerate(names)),
        TableColumn("status", "text"),
        TableColumn("reason", "text"),
        *(TableColumn(name, kind) for name, kind in FIGURES.items()),
        *(TableColumn(f"{figure}.{name}", "number") for figure in BY_NAME for name in named[figure]),
    )
    differing = tuple(name for number, name in enumerate(names) if len({repr(row[number]) for row in rows}) > 1)
    return SweepTable(found.sweep.name, columns, rows, differing)


def _names(results: tuple[PointResult, ...], figure: str) -> tuple[str, ...]:
    each = (getattr(result.figures, figure) for result in results if result.figures is not None)
    return tuple(dict.fromkeys(name for names in each for name in names))


def _figures(figures: PointFigures | None, named: Mapping[str, tuple[str, ...]]) -> Iterator[Cell]:
    for name in FIGURES:
        yield getattr(figures, name) if figures is not None else None
    for figure, names in named.items():
        of: Mapping[str, float] = getattr(figures, figure) if figures is not None else {}
        yield from (of.get(name) for name in names)


def _cell(value: object) -> Cell:
    return value if isinstance(value, str | int | float | bool) else None


def _kind(cells: list[Cell]) -> Kind:
    """What the cells of a column are; texts where they are of several kinds."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {bool}:
        return "truth"
    if kinds == {int}:
        return "integer"
    return "number" if kinds and kinds <= {int, float} else "text"
