"""The page of a sweep: throughput against what the chip costs, with Pareto fronts, and all rows.

SweepTable --charts, rows as texts--> JSON in the page <-- table.js draws it, by Plotly
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import chain, pairwise
from pathlib import Path

from dsa_sched.report.page.charts import PALETTE, Figure
from dsa_sched.report.page.shell import Head, whole_page, write_text
from dsa_sched.report.sweep_table import COSTS, GAIN, cell_text, fastest, reasons, row_title, summary_lines
from dsa_sched.sweeping.table import SweepTable

SHOWN = ("status", "planner", GAIN, "bound_by", "main_bytes", "on_chip_bytes", "area_mm2", "energy_uj", "reason")
"""Columns of the page's table of rows next to those that are varied; a click on a row shows all."""


def write_sweep_page(table: SweepTable, path: Path) -> int:
    """Write the page, whole or not at all; its size in bytes. Raises UserError."""
    return write_text(sweep_page(table), path)


def sweep_page(table: SweepTable) -> str:
    """The page as text. Equal tables give equal pages."""
    drawn = pareto_figures(table)
    shown = [name for name in (*table.varied, *SHOWN) if any(row[table.places[name]] is not None for row in table.rows)]
    data = {
        "figures": drawn,
        "columns": [column.name for column in table.columns],
        "rows": [[cell_text(cell) for cell in row] for row in table.rows],
        "titles": [row_title(table, number) for number in range(len(table.rows))],
        "shown": shown,
        "first": "summary",
    }
    titles = {"summary": "Summary", **{name: COSTS[name].title for name in drawn}, "rows": "All points"}
    charts = "".join(f'<section id="{name}"><div class="chart"></div></section>' for name in drawn)
    heads = "".join(f"<th>{escape(name)}</th>" for name in shown)
    rows = f'<p id="count"></p><div class="wide"><table><thead><tr>{heads}</tr></thead><tbody></tbody></table></div>'
    sections = f'<section id="summary">{_summary(table)}</section>{charts}<section id="rows">{rows}</section>'
    head = Head(f"Sweep {table.name}", "network, field, level or reason", titles)
    return whole_page(head, sections, data, "table.js")


def pareto_figures(table: SweepTable) -> dict[str, Figure]:
    """A chart for each cost that the points have numbers for: every point, and the front of each network."""
    found = {name: _against(table, name) for name in COSTS}
    return {name: figure for name, figure in found.items() if figure["data"]}


def _against(table: SweepTable, cost: str) -> Figure:
    axis = COSTS[cost]
    traces = chain.from_iterable(
        _network(table, cost, name, rows, PALETTE[number % len(PALETTE)])
        for number, (name, rows) in enumerate(table.comparable.items())
    )
    layout = {
        "xaxis": {"title": {"text": axis.axis}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "items/s"}, "rangemode": "tozero"},
        "hovermode": "closest",
    }
    return {"data": list(traces), "layout": layout}


def _network(table: SweepTable, cost: str, name: str, rows: tuple[int, ...], colour: str) -> Iterator[Figure]:
    """The points of a network, and their front as steps: with this much, so much is reached."""
    scale = COSTS[cost].scale
    known = [row for row in rows if table.number(row, cost) is not None and table.number(row, GAIN) is not None]
    if not known:
        return
    front = table.front(rows, cost, GAIN)
    best = {*front}
    yield {
        "type": "scatter",
        "mode": "markers",
        "name": escape(name),
        "x": [(table.number(row, cost) or 0.0) / scale for row in known],
        "y": [table.number(row, GAIN) for row in known],
        "customdata": known,
        "hovertext": [escape(row_title(table, row)) for row in known],
        "hovertemplate": "%{hovertext}<br>%{y:,.1f} items/s, %{x:,.4g}<extra></extra>",
        "marker": {
            "symbol": "circle-open" if table.cell(known[0], "estimated") else "circle",
            "color": colour,
            "size": [11 if row in best else 7 for row in known],
            "opacity": [1.0 if row in best else 0.45 for row in known],
        },
    }
    places = [((table.number(row, cost) or 0.0) / scale, table.number(row, GAIN) or 0.0) for row in front]
    corners = [place for (x, y), (further, _) in pairwise(places) for place in ((x, y), (further, y))]
    yield {
        "type": "scatter",
        "mode": "lines",
        "name": f"{escape(name)}, front",
        "x": [x for x, _ in (*corners, places[-1])],
        "y": [y for _, y in (*corners, places[-1])],
        "hoverinfo": "skip",
        "line": {"color": colour},
    }


def _summary(table: SweepTable) -> str:
    lines = [("points", "; ".join(summary_lines(table)))]
    lines += [(f"fastest {name}", text) for name, text in fastest(table)]
    lines += [(f"{count} points", f"not compiled: {reason}") for reason, count in reasons(table)]
    return "<table>" + "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in lines) + "</table>"
