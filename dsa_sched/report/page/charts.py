"""The charts of a page, as Plotly figures in plain data: traces and a layout for each.

    Overview --figures--> name of a tab -> {"data": [...], "layout": {...}}

Colours of text, grid and background are those of the page: `page.js` sets them, so that light and dark both work.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from dsa_sched.analysis.explanation_data import Explanation, GroupFacts
from dsa_sched.analysis.kernel_explanation import KernelExplanation
from dsa_sched.analysis.overview import DrawnLayer, Overview, Roof, RunOverTime
from dsa_sched.report.timed_run import cause_text
from hw_models.errors import size_text

Figure = dict[str, Any]

PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#8a8a8a")
"""Colours of groups and of causes, in this order, then from the start again."""

SHADES = [[0.0, "rgba(78,121,167,0)"], [0.001, "#c6dbef"], [1.0, "#08519c"]]
"""Scale of a share of time from idle to always at work."""


def figures(found: Overview) -> dict[str, Figure]:
    """The figures by the names of their tabs, in the order of the tabs."""
    made = {"graph": network(found.layers)}
    if found.run is not None:
        made["timeline"] = timeline(found.run)
        made["memory"] = memories(found.run)
    if found.roof is not None:
        made["roofline"] = roofline(found, found.roof)
    if isinstance(found.explanation, Explanation):
        made["binds"] = what_binds(found.explanation)
        made["bytes"] = moved_bytes(found.explanation)
    else:
        made["binds"] = kernel_seconds(found.explanation)
    return made


def network(layers: tuple[DrawnLayer, ...]) -> Figure:
    """The layers from top to bottom, coloured by group; a point for each, and all ways between them as one line."""
    groups = list(dict.fromkeys(layer.group for layer in layers))
    place = {layer.name: (layer.column, -layer.rank) for layer in layers}
    ways: tuple[list[float | None], list[float | None]] = ([], [])
    for layer in layers:
        for other in layer.reads:
            for axis in (0, 1):
                ways[axis].extend((place[other][axis], place[layer.name][axis], None))
    lines = {"type": "scatter", "mode": "lines", "x": ways[0], "y": ways[1], "hoverinfo": "skip",
             "line": {"color": "#9aa5b1", "width": 1}, "showlegend": False}  # fmt: skip
    points = {
        "type": "scatter",
        "mode": "markers+text" if len(layers) <= 80 else "markers",
        "x": [place[layer.name][0] for layer in layers],
        "y": [place[layer.name][1] for layer in layers],
        "text": [layer.operators[0] for layer in layers],
        "textposition": "middle right",
        "customdata": [layer.name for layer in layers],
        "hovertext": [_layer_text(layer) for layer in layers],
        "hoverinfo": "text",
        "marker": {
            "size": 14,
            "color": [PALETTE[groups.index(layer.group) % len(PALETTE)] for layer in layers],
            "line": {"width": 0, "color": "#d62728"},
        },
        "showlegend": False,
    }
    widest = max((abs(layer.column) for layer in layers), default=0.0) + 2.5
    ranks = max((layer.rank for layer in layers), default=0)
    layout = {
        "xaxis": {"visible": False, "range": [-widest, widest]},
        "yaxis": {"visible": False, "range": [-min(ranks, 24) - 1, 1]},
        "dragmode": "pan",
        "hovermode": "closest",
    }
    return {"data": [lines, points], "layout": layout}


def _layer_text(layer: DrawnLayer) -> str:
    shape = "x".join(map(str, layer.shape))
    seconds = f"<br>{layer.seconds * 1e6:,.1f} us, {cause_text(layer.bound_by)}" if layer.seconds else ""
    return f"{layer.name}<br>{'+'.join(layer.operators)}<br>{shape} {layer.dtype}<br>group {layer.group}{seconds}"


def timeline(run: RunOverTime) -> Figure:
    """Share of the time in which engines work, by kind; above it the part that most of the work is for."""
    width = run.stretch_seconds * 1e6
    middles = [(number + 0.5) * width for number in range(len(run.parts))]
    kinds = tuple(run.utilisation)[::-1]
    work = {
        "type": "heatmap",
        "x": middles,
        "y": list(kinds),
        "z": [[round(share, 4) for share in run.utilisation[kind]] for kind in kinds],
        "colorscale": SHADES,
        "zmin": 0,
        "zmax": 1,
        "hovertemplate": "%{y} at work for %{z:.0%}<br>%{x:,.1f} us<extra></extra>",
        "colorbar": {"title": {"text": "at work"}, "tickformat": ".0%", "thickness": 12},
    }
    names = list(dict.fromkeys(part for part in run.parts if part))
    bands = [_band(names, part, first, last, width) for part, first, last in _runs(run.parts) if part]
    layout = {
        "xaxis": {"title": {"text": "us after the launch"}},
        "yaxis": {"domain": [0.0, 0.8]},
        "yaxis2": {"domain": [0.86, 1.0], "visible": False, "fixedrange": True},
        "barmode": "overlay",
        "bargap": 0,
    }
    return {"data": [work, *bands], "layout": layout}


def _runs(parts: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    """Part, first stretch, stretch after the last, of each run of equal parts."""
    place = 0
    for part, run in groupby(parts):
        length = len(list(run))
        yield part, place, place + length
        place += length


def _band(names: list[str], part: str, first: int, last: int, width: float) -> Figure:
    text = f"{part}<br>{first * width:,.1f} to {last * width:,.1f} us"
    return {
        "type": "bar",
        "orientation": "h",
        "base": [first * width],
        "x": [(last - first) * width],
        "y": ["part"],
        "yaxis": "y2",
        "marker": {"color": PALETTE[names.index(part) % len(PALETTE)]},
        "hovertext": [text],
        "hoverinfo": "text",
        "showlegend": False,
    }


def memories(run: RunOverTime) -> Figure:
    """Share of each memory that live bytes take, over time."""
    width = run.stretch_seconds * 1e6
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"shape": "hv", "color": PALETTE[number % len(PALETTE)]},
            "name": f"{memory.memory}, {size_text(memory.size_bytes)}",
            "x": [place * width for place in range(len(memory.most_bytes))],
            "y": [most / memory.size_bytes for most in memory.most_bytes],
            "text": [size_text(most) for most in memory.most_bytes],
            "hovertemplate": "%{text}, %{y:.1%}<extra>%{fullData.name}</extra>",
        }
        for number, memory in enumerate(run.memories)
    ]
    layout = {
        "xaxis": {"title": {"text": "us after the launch"}},
        "yaxis": {"title": {"text": "live bytes, share of the memory (of the fullest core)"}, "tickformat": ".1%",
                  "rangemode": "tozero"},
        "hovermode": "x unified",
    }  # fmt: skip
    return {"data": traces, "layout": layout}


def roofline(found: Overview, roof: Roof) -> Figure:
    """The groups under the roof of one cluster: multiply-accumulates per second over those per byte."""
    points = [point for point in found.points if point.main_bytes]
    ridge = roof.macs_per_second / roof.bytes_per_second
    intensities = [point.macs / point.main_bytes for point in points]
    low, high = min([*intensities, ridge]) / 4, max([*intensities, ridge]) * 4
    top = {
        "type": "scatter",
        "mode": "lines",
        "name": "roof",
        "x": [low, ridge, high],
        "y": [low * roof.bytes_per_second / 1e9, roof.macs_per_second / 1e9, roof.macs_per_second / 1e9],
        "hoverinfo": "skip",
        "line": {"color": "#e15759"},
    }
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": "groups",
        "x": intensities,
        "y": [point.macs / point.seconds / 1e9 for point in points],
        "text": [f"{point.name}<br>{point.seconds * 1e6:,.1f} us on the critical path" for point in points],
        "hovertemplate": "%{text}<br>%{y:,.1f} GMAC/s, %{x:,.1f} MAC/byte<extra></extra>",
        "marker": {"size": 10, "color": PALETTE[0]},
    }
    layout = {
        "xaxis": {"type": "log", "title": {"text": "multiply-accumulates per byte<br>from and to the main memory"}},
        "yaxis": {"type": "log", "title": {"text": "GMAC/s of one cluster"}},
        "legend": {"orientation": "h", "y": 1.1},
        "hovermode": "closest",
    }
    return {"data": [top, dots], "layout": layout}


def what_binds(found: Explanation) -> Figure:
    """Cycles of the critical path by group and cause, the longest group first; without times, the floors by group."""
    run = found.measured
    if run is not None:
        of = {group.name: dict(run.group(group.name).causes) for group in found.groups}
        title = "cycles on the critical path"
    else:
        of = {group.name: {group.binding.name: group.binding.cycles} for group in found.groups}
        title = "cycles at least, by the cost model"
    return _stacked(of, title, cause_text)


def kernel_seconds(found: KernelExplanation) -> Figure:
    """Microseconds of each kernel, coloured by what binds it."""
    of = {group.name: {group.bound_by: group.seconds * 1e6} for group in found.groups}
    return _stacked(of, "us expected" if found.measured else "us at least", str)


def moved_bytes(found: Explanation) -> Figure:
    """Bytes that each group moves, by way."""

    def moved(group: GroupFacts) -> dict[str, float]:
        return {way: size / 1024 for way, size in group.moved_bytes.items() if size}

    return _stacked({group.name: moved(group) for group in found.groups}, "KiB", str)


def _stacked(of: dict[str, dict[str, float]], title: str, text: Any) -> Figure:
    """Bars of parts, stacked by name; the largest part first."""
    order = sorted(of, key=lambda part: -sum(of[part].values()))
    names = dict.fromkeys(name for part in order for name in of[part])
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": text(name),
            "y": order,
            "x": [of[part].get(name, 0.0) for part in order],
            "customdata": order,
            "marker": {"color": PALETTE[number % len(PALETTE)]},
            "hovertemplate": "%{y}<br>%{fullData.name} %{x:,.1f}<extra></extra>",
        }
        for number, name in enumerate(names)
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": title}},
        "yaxis": {"autorange": "reversed", "automargin": True},
        "height": max(420, 60 + 18 * len(order)),
    }
    return {"data": traces, "layout": layout}
