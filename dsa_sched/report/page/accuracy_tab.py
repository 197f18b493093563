"""The tab about accuracy: errors of all layers as a chart and as a table.

Accuracy --layer_errors, accuracy_html--> Plotly figure, HTML
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dsa_sched.report.listing import Listing
from dsa_sched.report.page.charts import PALETTE, Figure
from dsa_sched.report.page.html_table import listing_html
from dsa_sched.verification.kept_report import Accuracy, LayerAccuracy

HEADINGS = ("layer", "error alone", "allowed", "by rounding", "error in network", "nearest channel", "right samples")

FEW = 40
"""Largest number of layers that are named under the chart."""


def layer_errors(accuracy: Accuracy) -> Figure:
    """Errors of the layers in the order in which they run, by themselves and in the network, under the bound."""
    curves = {
        "by itself": ("markers", [layer.isolated_error for layer in accuracy.layers]),
        "in the network": ("markers", [layer.whole_error for layer in accuracy.layers]),
        "allowed by itself": ("lines", [layer.bound for layer in accuracy.layers]),
        "by rounding alone": ("lines", [layer.floor for layer in accuracy.layers]),
    }
    names = [layer.name for layer in accuracy.layers]
    traces = [
        {
            "type": "scatter",
            "mode": mode,
            "name": name,
            "x": list(range(1, len(names) + 1)),
            "y": [value if isinstance(value, float) and value > 0 else None for value in values],
            "customdata": names,
            "text": [escape(layer) for layer in names],
            "hovertemplate": "%{text}<br>%{y:.2e}<extra>%{fullData.name}</extra>",
            "marker": {"size": 9, "color": PALETTE[number]},
            "line": {"shape": "hvh", "color": PALETTE[number], "dash": "dot" if number == 3 else "solid"},
        }
        for number, (name, (mode, values)) in enumerate(curves.items())
    ]
    named = {"tickvals": traces[0]["x"], "ticktext": [escape(layer) for layer in names], "automargin": True}
    layout = {
        "xaxis": {"title": {"text": "layers, in the order of execution"}, **(named if len(names) <= FEW else {})},
        "yaxis": {"type": "log", "exponentformat": "power", "title": {"text": "relative L2 error, worst input"}},
        "legend": {"orientation": "h", "y": 1.1},
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}


def accuracy_html(accuracy: Accuracy) -> tuple[str, str]:
    """What stands above the chart, and the table below it."""
    above = f"<p>{escape(accuracy.verdict)}, {accuracy.inputs} inputs: {escape(accuracy.reason)}</p>"
    rows = tuple((layer.name, *_figures(layer).values()) for layer in accuracy.layers)
    subjects = tuple(layer.name for layer in accuracy.layers)
    return above, listing_html(Listing("", HEADINGS, rows, subjects=subjects))


def accuracy_facts(layer: LayerAccuracy) -> dict[str, str]:
    """What the page tells of a layer's accuracy next to its other facts."""
    return {name: text for name, text in _figures(layer).items() if text}


def _figures(layer: LayerAccuracy) -> dict[str, str]:
    return dict(zip(HEADINGS[1:], _texts(layer), strict=True))


def _texts(layer: LayerAccuracy) -> Iterator[str]:
    alone = _number(layer.isolated_error)
    yield alone if layer.steps is None else f"{layer.steps.most} steps, {_number(layer.steps.share)} of the values"
    yield _number(layer.bound)
    yield _number(layer.floor)
    yield _number(layer.whole_error)
    worst = layer.channel
    yield "" if worst is None else f"{worst.channel}: {_number(worst.error)} of {_number(worst.bound)}"
    right = layer.samples - layer.samples_wrong
    yield f"{right:,} of {layer.samples:,}" if layer.samples else ""


def _number(value: float | str | None) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:.2e}" if value else "0"
