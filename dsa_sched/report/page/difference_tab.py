"""The tab about the difference from another artifact: what `dsa-sched diff` says, with a chart of the parts.

Difference --part_changes, difference_html--> Plotly figure, HTML
"""

from __future__ import annotations

from html import escape

from dsa_sched.analysis.difference import Difference
from dsa_sched.report.difference import (
    DECISIONS,
    alike_lines,
    compared_lines,
    headline,
    layers_text,
    listings,
    time_change,
)
from dsa_sched.report.listing import Listing
from dsa_sched.report.page.charts import Figure
from dsa_sched.report.page.html_table import listing_html

FASTER, SLOWER = "#59a14f", "#e15759"
MOST_PARTS = 60


def part_changes(found: Difference) -> Figure:
    """By how much each part of the network takes longer than before, the largest change first."""
    parts = [part for part in found.parts if part.more][:MOST_PARTS]
    changes = [time_change(found, part.more) for part in parts]
    names = [layers_text(part) for part in parts]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(parts))),
        "x": [value for value, _ in changes],
        "customdata": [part.layers[0] for part in parts],
        "text": [escape(name) for name in names],
        "textposition": "none",
        "hovertemplate": "%{text}<br>%{x:+,.1f}<extra></extra>",
        "marker": {"color": [SLOWER if part.more > 0 else FASTER for part in parts]},
    }
    unit = changes[0][1] if changes else time_change(found, 0.0)[1]
    layout = {
        "xaxis": {"title": {"text": f"{unit} more than before in one pass"}},
        "yaxis": {
            "autorange": "reversed",
            "automargin": True,
            "tickvals": list(range(len(parts))),
            "ticktext": [escape(name) for name in names],
        },
        "height": max(280, 90 + 18 * len(parts)),
    }
    return {"data": [bars], "layout": layout}


def difference_html(found: Difference) -> tuple[str, str]:
    """What stands above the chart, and the tables below it."""
    lines = "".join(f"<p>{escape(line)}</p>" for line in compared_lines(found))
    above = f"<h2>{escape(headline(found))}</h2>{lines}"
    headings = ("about", "decision", "reason")
    decisions = (
        Listing(title, headings, tuple((each.subject, each.verdict, each.reason) for each in dict.fromkeys(side)))
        for title, side in zip(DECISIONS, found.decided_differently, strict=True)
    )
    shown = (listing for listing in (*listings(found, full=True), *decisions) if listing.rows or listing.notes)
    alike = "".join(f"<p>{line}</p>" for line in alike_lines(found))
    return above, "".join(map(listing_html, shown)) + alike
