"""The page of a calibration: residuals of all benchmarks before and after the fit, and the numbers as a table.

ChipFit --> one HTML file that opens without a network
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path

from dsa_sched.calibration.fit import ChipFit
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.report.calibration import headline, note_of
from dsa_sched.report.page.charts import PALETTE, Figure
from dsa_sched.report.page.page import embedded


def write_residuals(fit: ChipFit, path: Path) -> int:
    """Write the page, whole or not at all; its size in bytes. Raises UserError."""
    data = residuals_page(fit).encode()
    write_whole(path, lambda stream: stream.write(data))
    return len(data)


def residuals_page(fit: ChipFit) -> str:
    """The page as text. Equal fits give equal pages."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    here = files("dsa_sched.report.page")
    title = f"Calibration of {fit.chip.name}"
    return "\n".join((
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{(here / 'page.css').read_text(encoding='utf-8')}</style></head><body>",
        f"<header><h1>{escape(title)}</h1><p>{escape(headline(fit))}</p></header>",
        f'<main><section class="shown"><div class="chart"></div>{_numbers(fit)}</section></main>',
        f'<script type="application/json" id="data">{embedded(figure(fit))}</script>',
        f"<script>{get_plotlyjs()}</script>",
        f"<script>{(here / 'residuals.js').read_text(encoding='utf-8')}</script>",
        "</body></html>",
        "",
    ))  # fmt: skip


def figure(fit: ChipFit) -> Figure:
    """Points for each counter: how far the model is from the median of the measured cycles, in percent, before the fit
    and after it, with the spread of the repetitions."""
    names = [f"{each.benchmark}, {each.counter}" for each in fit.residuals]
    after = _points("after the fit", names, [100 * each.error for each in fit.residuals], PALETTE[0])
    after["error_y"] = {
        "type": "data",
        "symmetric": False,
        "array": [round(100 * (each.fitted / each.low - each.fitted / each.median), 3) for each in fit.residuals],
        "arrayminus": [round(100 * (each.fitted / each.median - each.fitted / each.high), 3) for each in fit.residuals],
    }
    before = _points("before", names, [100 * each.error_before for each in fit.residuals], PALETTE[1])
    layout = {
        "yaxis": {"title": {"text": "model over measured, percent more"}, "zeroline": True},
        "xaxis": {"automargin": True},
        "legend": {"orientation": "h", "y": 1.1},
    }
    return {"data": [before, after], "layout": layout}


def _points(name: str, x: list[str], y: list[float], colour: str) -> Figure:
    rounded = [round(value, 3) for value in y]
    return {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": rounded, "marker": {"color": colour}}


def _numbers(fit: ChipFit) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("number", "file", "measured", "error", "written", ""))
    rows = []
    for number in fit.numbers:
        measured = "" if number.measured is None else f"{number.measured:.6g}"
        cells = (
            number.path,
            f"{number.before:g}",
            measured,
            f"{number.error:.2g}",
            f"{number.value:g}",
            note_of(number),
        )
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
