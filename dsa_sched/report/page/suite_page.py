"""The page of a suite: how long cases take, against the run before, and all checks.

Judgement x n --chart, rows as texts--> JSON in the page <-- table.js draws it, by Plotly
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from dsa_sched.report.page.charts import Figure
from dsa_sched.report.page.shell import Head, whole_page, write_text
from dsa_sched.report.suite_report import HEADINGS, row, summary
from dsa_sched.suites.suite import Judgement

TITLES = {"change": "Against the run before", "times": "Times"}
"""Titles of the tabs of charts."""

BETTER, WORSE, SAME = "#59a14f", "#e15759", "#8a8a8a"


def write_suite_page(name: str, cases: tuple[Judgement, ...], path: Path) -> int:
    """Write the page, whole or not at all; its size in bytes. Raises UserError."""
    return write_text(suite_page(name, cases), path)


def suite_page(name: str, cases: tuple[Judgement, ...]) -> str:
    """The page as text. Equal suites give equal pages."""
    charts = {"change": _change(cases), "times": _times(cases)}
    drawn = {key: figure for key, figure in charts.items() if figure is not None}
    shown = [head for number, head in enumerate(HEADINGS) if any(row(case)[number] for case in cases)]
    data = {
        "figures": drawn,
        "columns": list(HEADINGS),
        "rows": [list(row(case)) for case in cases],
        "titles": [case.title for case in cases],
        "shown": shown,
        "first": "rows",
    }
    titles = {"rows": "Checks", **{key: TITLES[key] for key in drawn}}
    places = "".join(f'<section id="{key}"><div class="chart"></div></section>' for key in drawn)
    heads = "".join(f"<th>{escape(head)}</th>" for head in shown)
    said = f"<p>{escape(summary(name, cases))}</p>"
    table = f'<p id="count"></p><div class="wide"><table><thead><tr>{heads}</tr></thead><tbody></tbody></table></div>'
    sections = f'<section id="rows">{said}{table}</section>{places}'
    return whole_page(Head(f"Suite {name}", "case, status or reason", titles), sections, data, "table.js")


def _change(cases: tuple[Judgement, ...]) -> Figure | None:
    """By how much more time an item takes than before, the largest change first."""
    known = [(number, case.times - 1) for number, case in enumerate(cases) if case.times is not None]
    known.sort(key=lambda each: -abs(each[1]))
    if not known:
        return None
    colours = [WORSE if "time" in cases[n].regressions else BETTER if share < 0 else SAME for n, share in known]
    return _bars(cases, known, colours, "time per item against the run before", ".1%")


def _times(cases: tuple[Judgement, ...]) -> Figure | None:
    """Microseconds of an item, the longest first."""
    seconds = ((number, case.result.seconds_per_item) for number, case in enumerate(cases))
    known = [(number, found * 1e6) for number, found in seconds if found is not None]
    known.sort(key=lambda each: -each[1])
    return _bars(cases, known, [SAME] * len(known), "us per item", ",.1f") if known else None


def _bars(
    cases: tuple[Judgement, ...], known: list[tuple[int, float]], colours: list[str], title: str, form: str
) -> Figure:
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [escape(cases[number].title) for number, _ in known],
        "x": [value for _, value in known],
        "customdata": [number for number, _ in known],
        "marker": {"color": colours},
        "hovertemplate": f"%{{y}}<br>%{{x:{form}}}<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": title}, "tickformat": form},
        "yaxis": {"autorange": "reversed", "automargin": True},
        "height": max(420, 60 + 18 * len(known)),
    }
    return {"data": [bars], "layout": layout}
