"""A timed run as text: how busy each engine is over time, one character a stretch, and the same in figures.

core 0 matrix    |  .:-=+*##@@@@@##|
"""

from __future__ import annotations

from collections.abc import Iterable

from isched.timeline import Span, Timeline

__all__ = ["GANTT_LEVELS", "KINDS", "busy_shares", "gantt_lines", "operator_rows", "share_rows"]

GANTT_LEVELS = " .:-=+*#%@"
"""From idle to all the time at work."""

KINDS = ("matrix", "vector", "transfer")
"""Kinds of engines that each core has for itself."""

Work = tuple[float, float]


def gantt_lines(timeline: Timeline, columns: int) -> list[str]:
    """A line an engine of each core, and one a DMA channel."""
    rows: dict[tuple[int, int, str], list[Work]] = {}
    for span in timeline.spans:
        if span.unit:
            kind = timeline.engine_kinds.get(span.unit, "")
            place = (span.core, KINDS.index(kind)) if kind in KINDS else (max(timeline.cores) + 1, 0)
            rows.setdefault((*place, span.unit), []).append((span.start, span.end))
    named = [(_row_name(timeline, core, unit), work) for (core, _, unit), work in sorted(rows.items())]
    width = max((len(name) for name, _ in named), default=0)
    return [f"{name:<{width}} |{''.join(map(_shade, busy_shares(timeline, work, columns)))}|" for name, work in named]


def _row_name(timeline: Timeline, core: int, unit: str) -> str:
    return f"core {core} {unit}" if core in timeline.cores else unit


def share_rows(timeline: Timeline, parts: int) -> list[tuple[str, ...]]:
    """For each of `parts` equal stretches of the time after the launch: first and last cycle, share of each kind of
    engine (mean of the cores), share in which any DMA channel works."""
    width = (timeline.cycles - timeline.launch_cycles) / parts
    columns = []
    for kind in KINDS:
        work = [(s.start, s.end) for s in timeline.spans if timeline.engine_kinds.get(s.unit) == kind]
        columns.append([share / len(timeline.cores) for share in busy_shares(timeline, work, parts)])
    dma = [span for span in timeline.spans if timeline.engine_kinds.get(span.engine) == "dma"]
    columns.append(busy_shares(timeline, _united(dma), parts))
    return [
        (f"{part * width:,.0f}", f"{(part + 1) * width:,.0f}", *(f"{column[part]:.1%}" for column in columns))
        for part in range(parts)
    ]


def operator_rows(timeline: Timeline) -> list[tuple[str, ...]]:
    """For each operator, in the order of their first work: first and last cycle, instructions, cycles at work of each
    kind of engine (all cores) and of DMA channels."""
    rows: dict[str, list[float]] = {}
    places = {kind: place for place, kind in enumerate((*KINDS, "dma"), 3)}
    for span in sorted((span for span in timeline.spans if span.unit), key=lambda span: span.start):
        row = rows.setdefault(span.source or "-", [span.start, span.end, 0.0, *(0.0 for _ in places)])
        row[1] = max(row[1], span.end)
        row[2] += 1
        kind = timeline.engine_kinds.get(span.engine, "")
        if kind in places:
            row[places[kind]] += span.end - span.start
    begin = timeline.launch_cycles
    return [
        (name, f"{first - begin:,.0f}", f"{last - begin:,.0f}", *(f"{number:,.0f}" for number in rest))
        for name, (first, last, *rest) in rows.items()
    ]


def busy_shares(timeline: Timeline, work: Iterable[Work], parts: int) -> list[float]:
    """Share of each of `parts` equal stretches after the launch in which work (start, end) is done; more than 1 where
    several are at it."""
    begin, width = timeline.launch_cycles, (timeline.cycles - timeline.launch_cycles) / parts
    shares = [0.0] * parts
    if width <= 0:
        return shares
    for start, end in work:
        first = min(parts - 1, int((start - begin) / width))
        last = min(parts - 1, int((end - begin) / width))
        for part in range(first, last + 1):
            low = begin + part * width
            shares[part] += max(0.0, min(end, low + width) - max(start, low)) / width
    return shares


def _united(spans: list[Span]) -> list[Work]:
    """Stretches in which any of them works."""
    united: list[Work] = []
    for span in sorted(spans, key=lambda span: span.start):
        if united and span.start <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], span.end))
        else:
            united.append((span.start, span.end))
    return united


def _shade(share: float) -> str:
    """Any work at all is visible, and only what is at work all the time looks so."""
    top = len(GANTT_LEVELS) - 1
    return GANTT_LEVELS[0] if share <= 0 else GANTT_LEVELS[min(top, max(1, int(share * top + 1e-6)))]
