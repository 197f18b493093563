"""The table of a sweep for a reader, as CSV, as JSON and as Parquet.

SweepTable --print_sweep--> the points on fronts, why others are missing      --write_tables--> table.csv, table.json

Equal tables give equal files. The keys of the JSON form are in docs/reference/json.md.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from dsa_sched.io.atomic_write import write_whole
from dsa_sched.report.listing import output_console, print_listing, shortened
from dsa_sched.report.timed_run import cause_text
from dsa_sched.sweeping.fault import FAULT
from dsa_sched.sweeping.point_result import COMPILED, PLANNED, REFUSED
from dsa_sched.sweeping.table import Cell, SweepTable
from hw_models.errors import UserError

FORMAT = "dsa-sched-sweep/1"

GAIN = "items_per_second"

MOST_PRINTED = 20
"""Largest number of points that are printed; the tables have all."""

FEW = 12
"""Largest number of points of a sweep that is printed whole, those that do not compile each by itself."""

MOST_REASONS = 10


@dataclass(frozen=True, slots=True)
class CostAxis:
    """A cost of a chart: the title of its tab, that of its axis, and what a unit of the axis is in the table's."""

    title: str
    axis: str
    scale: float


COSTS: Mapping[str, CostAxis] = {
    "on_chip_bytes": CostAxis("Memory", "memory on the chip, MiB", float(1 << 20)),
    "main_bytes_per_second": CostAxis("Bandwidth", "rate of the main memory, GB/s", 1e9),
    "area_mm2": CostAxis("Area", "area by the coefficients of the chip file, mm2", 1.0),
    "energy_uj": CostAxis("Energy", "energy per item by the coefficients of the chip file, uJ", 1.0),
}
"""What throughput is set against, by column."""


def print_sweep(table: SweepTable, console: Console | None = None) -> None:
    """Print how many points there are, those on a front (all, where they are few), the fastest first, and why others
    were not compiled."""
    console = console or output_console()
    _say(console, summary_lines(table))
    each = table.comparable.values()
    fronts = {cost: {row for rows in each for row in table.front(rows, cost, GAIN)} for cost in COSTS}
    few = len(table.rows) <= FEW
    timed = {row for row in range(len(table.rows)) if table.number(row, GAIN) is not None}
    rows = sorted(
        timed if few else {row for front in fronts.values() for row in front},
        key=lambda row: (-(table.number(row, GAIN) or 0.0), row),
    )
    if rows:
        _say(console, [""])
        headings = (*table.varied, "planner", "items/s", "bound by", "front of")
        right = range(len(table.varied) + 1, len(table.varied) + 2)
        print_listing(headings, (_row(table, row, fronts) for row in rows[:MOST_PRINTED]), right, console)
    others = len(table.rows) - sum(result == REFUSED for result in _statuses(table)) - len(rows[:MOST_PRINTED])
    if rows and others:
        _say(console, [f"and {others} more, which the tables have"])
    missing = list(reasons(table))
    if missing and few:
        lacking = [f"{row_title(table, row)}: {why}" for row, why in enumerate(_reasons(table)) if why]
        _say(console, ["", "not compiled:", *lacking])
    elif missing:
        _say(console, [""])
        print_listing(
            ("points", "not compiled"), ((str(count), shortened(why)) for why, count in missing), (0,), console
        )


def summary_lines(table: SweepTable) -> list[str]:
    """How many points there are, by status."""
    count = Counter(_statuses(table))
    words = {COMPILED: "compiled", PLANNED: "planned without machine code", REFUSED: "not compiled",
             FAULT: "ended by a fault, to be tried again"}  # fmt: skip
    said = ", ".join(f"{count[status]} {text}" for status, text in words.items() if count[status])
    return [f"{table.name}: {len(table.rows)} points: {said}"]


def fastest(table: SweepTable) -> Iterator[tuple[str, str]]:
    """The fastest point of each network, in words."""
    for name, rows in table.comparable.items():
        timed = [row for row in rows if table.number(row, GAIN) is not None]
        if timed:
            best = max(timed, key=lambda row: table.number(row, GAIN) or 0.0)
            yield name, f"{table.number(best, GAIN):,.1f} items/s: {row_title(table, best)}"


def reasons(table: SweepTable) -> Iterator[tuple[str, int]]:
    """Reasons for which points were not compiled, the most frequent first, and how many."""
    count = Counter(str(why) for why in _reasons(table) if why)
    yield from count.most_common(MOST_REASONS)
    if len(count) > MOST_REASONS:
        yield "other reasons, which the tables have", count.total() - sum(n for _, n in count.most_common(MOST_REASONS))


def row_title(table: SweepTable, row: int) -> str:
    """The point of a row, by what is varied."""
    asked = (f"{name} {cell_text(table.cell(row, name))}" for name in table.varied if name != "network")
    return ", ".join((str(table.cell(row, "network")), *asked))


def cell_text(cell: Cell) -> str:
    """A cell as text; an absent one is empty."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return f"{cell:.0f}" if cell.is_integer() else f"{cell:.6g}"
    return str(cell)


def _statuses(table: SweepTable) -> list[str]:
    return [str(table.cell(row, "status")) for row in range(len(table.rows))]


def _reasons(table: SweepTable) -> list[Cell]:
    return [table.cell(row, "reason") for row in range(len(table.rows))]


def _row(table: SweepTable, row: int, fronts: Mapping[str, set[int]]) -> tuple[str, ...]:
    on = (axis.title.lower() for cost, axis in COSTS.items() if row in fronts[cost])
    estimated = " (estimate)" if table.cell(row, "estimated") else ""
    return (
        *(cell_text(table.cell(row, name)) for name in table.varied),
        cell_text(table.cell(row, "planner")),
        f"{table.number(row, GAIN):,.1f}{estimated}",
        cause_text(str(table.cell(row, "bound_by"))),
        ", ".join(on),
    )


def _say(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


# Files.


def sweep_csv(table: SweepTable) -> str:
    """The table as comma-separated text with a heading; absent cells are empty, numbers are whole."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(column.name for column in table.columns)
    writer.writerows([_plain(cell) for cell in row] for row in table.rows)
    return stream.getvalue()


def _plain(cell: Cell) -> str:
    return "" if cell is None else str(cell).lower() if isinstance(cell, bool) else str(cell)


def sweep_json(table: SweepTable) -> str:
    """The table as JSON text: columns, and a mapping per row without its absent cells."""
    names = [column.name for column in table.columns]
    whole = {
        "format": FORMAT,
        "name": table.name,
        "varied": list(table.varied),
        "columns": [{"name": column.name, "kind": column.kind} for column in table.columns],
        "rows": [{n: cell for n, cell in zip(names, row, strict=True) if cell is not None} for row in table.rows],
    }
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def has_parquet() -> bool:
    """Whether the package that writes Parquet is installed."""
    return find_spec("pyarrow") is not None


def require_parquet() -> None:
    """Raises UserError where the package that writes Parquet is not installed."""
    if not has_parquet():
        needs = "the package pyarrow, of the extra `tables`"
        raise UserError("--parquet", needs=needs, has="none", change="pip install pyarrow; CSV and JSON need nothing")


def sweep_parquet(table: SweepTable) -> bytes:
    """The table as a Parquet file. Raises UserError without the package that writes it."""
    require_parquet()
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    text, integer, number, truth = pyarrow.string(), pyarrow.int64(), pyarrow.float64(), pyarrow.bool_()
    types = {"text": text, "integer": integer, "number": number, "truth": truth}
    arrays = {
        column.name: pyarrow.array([_typed(row[number], column.kind) for row in table.rows], types[column.kind])
        for number, column in enumerate(table.columns)
    }
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrays), stream)
    return stream.getvalue()


def _typed(cell: Cell, kind: str) -> Any:
    if cell is None:
        return None
    return str(cell) if kind == "text" else float(cell) if kind == "number" else cell


def write_tables(table: SweepTable, folder: Path, parquet: bool) -> tuple[Path, ...]:
    """Write the table into a folder as CSV, as JSON, and as Parquet if it is asked for; each whole or not at all.
    Raises UserError."""
    texts = {"table.csv": sweep_csv(table).encode(), "table.json": sweep_json(table).encode()}
    if parquet:
        texts["table.parquet"] = sweep_parquet(table)
    for name, data in texts.items():
        write_whole(folder / name, lambda stream, data=data: stream.write(data))  # type: ignore[misc]
    return tuple(folder / name for name in texts)
