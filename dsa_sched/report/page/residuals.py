"""The page of a calibration: residuals of all benchmarks before and after the fit, and the numbers as a table.

ChipFit --chart, rows as texts--> JSON in the page <-- table.js draws it, by Plotly
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from dsa_sched.calibration.fit import ChipFit, Residual
from dsa_sched.report.calibration import NUMBERS, headline, number_row
from dsa_sched.report.page.charts import PALETTE, Figure
from dsa_sched.report.page.shell import Head, whole_page, write_text


def write_residuals(fit: ChipFit, path: Path) -> int:
    """Write the page, whole or not at all; its size in bytes. Raises UserError."""
    return write_text(residuals_page(fit), path)


def residuals_page(fit: ChipFit) -> str:
    """The page as text. Equal fits give equal pages."""
    columns = [*NUMBERS[:-1], "what became of it"]
    data = {
        "figures": {"residuals": residuals_figure(fit.residuals)},
        "columns": [*columns, "source"],
        "rows": [[*number_row(number), number.source.comment] for number in fit.numbers],
        "titles": [number.path for number in fit.numbers],
        "shown": columns,
        "first": "residuals",
    }
    heads = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = f'<p id="count"></p><div class="wide"><table><thead><tr>{heads}</tr></thead><tbody></tbody></table></div>'
    sections = (
        f'<section id="residuals"><p>{escape(headline(fit))}</p><div class="chart"></div></section>'
        f'<section id="rows">{rows}</section>'
    )
    head = Head(f"Calibration of {fit.chip.name}", "number", {"residuals": "Residuals", "rows": "Numbers"})
    return whole_page(head, sections, data, "table.js")


def residuals_figure(residuals: tuple[Residual, ...]) -> Figure:
    """Points for each counter: how far the model is from the median of the measured cycles, in percent, before the fit
    and after it, with the spread of the repetitions."""
    names = [f"{each.benchmark}, {each.counter}" for each in residuals]
    after = _points("after the fit", names, [100 * each.error for each in residuals], PALETTE[0])
    after["error_y"] = {
        "type": "data",
        "symmetric": False,
        "array": [round(100 * (each.fitted / each.low - each.fitted / each.median), 3) for each in residuals],
        "arrayminus": [round(100 * (each.fitted / each.median - each.fitted / each.high), 3) for each in residuals],
    }
    before = _points("before", names, [100 * each.error_before for each in residuals], PALETTE[1])
    layout = {
        "yaxis": {"title": {"text": "model over measured, percent more"}, "zeroline": True},
        "xaxis": {"automargin": True},
        "legend": {"orientation": "h", "y": 1.1},
    }
    return {"data": [before, after], "layout": layout}


def _points(name: str, x: list[str], y: list[float], colour: str) -> Figure:
    rounded = [round(value, 3) for value in y]
    return {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": rounded, "marker": {"color": colour}}
