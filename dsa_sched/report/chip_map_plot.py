"""The drawing of a chip as SVG: boxes of chip, cluster and core with their memories and engines, and next to them a
line for each link, with an arrow at the memory that it fills, and for each engine.

    ChipMap --write_chip_map--> SVG; equal chips give equal bytes
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dsa_sched.analysis.chip_map import SCOPES, ChipMap, MapColumn, Mark
from dsa_sched.report.figure_file import require_format, write_figure
from hw_models.parts import Scope

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg",)

INK, GREY, LINK, ENGINE = "#1f2933", "#9aa5b1", "#2b6cb0", "#2f855a"
FILLS: dict[Scope, str] = {"chip": "#f5f7fa", "cluster": "#e8eef5", "core": "#dbe6f1"}
MEMORY_FILL, ENGINE_FILL = "#ffffff", "#fdf3e3"
ROW, COLUMN, EDGE, LETTER = 0.36, 0.34, 0.14, 0.075
"""Height of a row, width of a column, distance of a box from the next, width of a letter; inches."""


def write_chip_map(drawn: ChipMap, path: Path) -> None:
    """Draw a chip into a file, whole or not at all. Raises UserError."""
    require_format(path, FORMATS)
    write_figure(partial(_figure, drawn), path)


def _figure(drawn: ChipMap) -> Figure:
    """The figure; one unit of its axes is an inch, y goes down."""
    from matplotlib.figure import Figure

    labels = [f"{column.name}: {column.detail}" if column.detail else column.name for column in drawn.columns]
    head = max(max(map(len, labels), default=0) * LETTER + 0.2, 6 * ROW / 1.6)
    scopes = [scope for scope in SCOPES if scope == "chip" or any(row.scope == scope for row in drawn.rows)]
    longest = max(max(len(row.name) + len(row.detail) + 3 for row in drawn.rows), max(map(len, drawn.titles.values())))
    right = longest * LETTER + 2 * EDGE * len(scopes) + EDGE
    places, bottom = _places(drawn, scopes, head)
    width = right + COLUMN * (len(drawn.columns) + 1)
    figure = Figure(figsize=(width, bottom + EDGE))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(bottom + EDGE, 0)
    axes.set_axis_off()
    _legend(axes, drawn)
    _boxes(axes, drawn, scopes, places, (head, bottom, right))
    for number, (column, label) in enumerate(zip(drawn.columns, labels, strict=True)):
        _column(axes, column, right + COLUMN * (number + 0.75), places, right)
        colour = LINK if column.is_link else ENGINE
        x = right + COLUMN * (number + 0.75)
        axes.text(x, head - 0.08, label, rotation=90, ha="center", va="bottom", color=colour, fontsize=8)
    return figure


def _legend(axes: Axes, drawn: ChipMap) -> None:
    """The marks, in the free corner."""
    links = [("o", LINK, "from"), ("v", LINK, "to"), ("D", LINK, "from and to"), ("s", LINK, "driven by")]
    engines = [("s", ENGINE, "engine, which reads (r) and writes (w)")]
    of_links = links if any(column.is_link for column in drawn.columns) else []
    for number, (marker, colour, words) in enumerate([*of_links, *engines]):
        y = EDGE + ROW * (number + 0.5) / 1.6
        axes.plot([2 * EDGE], [y], marker=marker, color=colour, markersize=6)
        axes.text(3 * EDGE, y, words, va="center", color=INK, fontsize=8)


def _places(drawn: ChipMap, scopes: list[Scope], head: float) -> tuple[list[float], float]:
    """The middle of each row, and the lower end of the outermost box."""
    y, places = head, [0.0] * len(drawn.rows)
    for scope in scopes:
        y += ROW
        for number, row in enumerate(drawn.rows):
            if row.scope == scope:
                places[number] = y + ROW / 2
                y += ROW
        y += EDGE / 2
    return places, y + EDGE * len(scopes)


def _boxes(
    axes: Axes, drawn: ChipMap, scopes: list[Scope], places: list[float], ends: tuple[float, float, float]
) -> None:
    from matplotlib.patches import FancyBboxPatch

    top, bottom, right = ends

    def box(left: float, upper: float, wide: float, high: float, fill: str, round_: float = 0.05) -> None:
        style = f"round,pad=0,rounding_size={round_}"
        axes.add_patch(FancyBboxPatch((left, upper), wide, high, boxstyle=style, facecolor=fill, edgecolor=INK, lw=0.7))

    for depth, scope in enumerate(scopes):
        inset = EDGE * (depth + 1)
        box(inset, top, right - 2 * inset, bottom - EDGE * depth - top, FILLS[scope])
        axes.text(inset + 0.1, top + ROW / 2, drawn.titles[scope], va="center", color=INK, fontweight="bold")
        top += ROW
        for row, place in zip(drawn.rows, places, strict=True):
            if row.scope != scope:
                continue
            left = inset + EDGE
            fill, round_ = (MEMORY_FILL, 0.01) if row.is_memory else (ENGINE_FILL, 0.12)
            box(left, place - 0.4 * ROW, right - 2 * left, 0.8 * ROW, fill, round_)
            axes.text(left + 0.1, place, f"{row.name}: {row.detail}", va="center", color=INK)
            top += ROW
        top += EDGE / 2


def _column(axes: Axes, column: MapColumn, x: float, places: list[float], right: float) -> None:
    """A line from the first mark to the last; every mark is joined with the box of its row."""
    colour = LINK if column.is_link else ENGINE
    first, last = (places[row] for row in column.rows)
    axes.plot([x, x], [first, last], color=colour, linewidth=1.2)
    for row, mark in column.marks:
        y = places[row]
        axes.plot([right - 2 * EDGE, x], [y, y], color=GREY, linewidth=0.5, linestyle=":", zorder=0.5)
        other = last if y == first else first
        marker = {Mark.SOURCE: "o", Mark.ENGINE: "s", Mark.WITHIN: "D"}.get(mark, "v" if y > other else "^")
        if mark in (Mark.READS, Mark.READS_AND_WRITES, Mark.WRITES):
            word = {Mark.READS: "r", Mark.WRITES: "w"}.get(mark, "rw")
            back = {"facecolor": "#ffffff", "edgecolor": colour, "linewidth": 0.6, "boxstyle": "round,pad=0.15"}
            axes.text(x, y, word, ha="center", va="center", color=colour, fontsize=7, bbox=back)
        else:
            axes.plot([x], [y], marker=marker, color=colour, markersize=6)
