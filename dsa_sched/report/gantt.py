"""A timed run as text: how busy each engine is over time, one character a stretch.

group    |aaaaaaaaaabbbbbbbb|
matrix   |  .:-=+*##@@@@@##|
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from dsa_sched.analysis.parts import OTHER, Parts
from isched.timing.timeline import Timeline
from isched.timing.utilisation import ENGINE_KINDS, dominant_parts

GANTT_LEVELS = " .:-=+*#%@"
"""Characters from idle to always at work."""

Work = tuple[float, float]


def gantt_lines(timeline: Timeline, columns: int, each_core: bool = False, parts: Parts | None = None) -> list[str]:
    """A line per kind of engine (the mean of the cores) or per engine of each core, and one per DMA channel.
    Above them, where there are several parts, the letter of the part for which most is done; below, the time.
    """
    rows: dict[tuple[int, int, str], list[Work]] = {}
    for span in timeline.spans:
        if span.unit:
            kind = timeline.engine_kinds.get(span.unit, "")
            core = span.core if each_core else 0
            place = (core, ENGINE_KINDS.index(kind)) if kind in ENGINE_KINDS else (max(timeline.cores) + 1, 0)
            rows.setdefault((*place, span.unit), []).append((span.start, span.end))
    lines = []
    if rows and parts is not None and len(parts.usages) > 1:
        lines.append((parts.by, _letters(dominant_parts(timeline, parts.of, columns, OTHER), parts)))
    for (core, _, unit), work in sorted(rows.items()):
        own = core in timeline.cores and timeline.engine_kinds.get(unit, "") in ENGINE_KINDS
        sharers = len(timeline.cores) if own and not each_core else 1
        name = f"core {core} {unit}" if own and each_core else unit
        shares = (share / sharers for share in busy_shares(timeline, work, columns))
        lines.append((name, "".join(map(_shade, shares))))
    width = max((len(name) for name, _ in lines), default=0)
    drawn = [f"{name:<{width}} |{text}|" for name, text in lines]
    return [*drawn, f"{'':<{width}} |{_axis(timeline, columns)}|"] if drawn else []


def _letters(stretches: tuple[str, ...], parts: Parts) -> str:
    """A part with one letter fills its stretches with it; more letters are written once, followed by dots."""
    text = ""
    for part, run in groupby(stretches):
        length, code = len(list(run)), parts.letters.get(part, " ")
        text += code.ljust(length, code if len(code) == 1 else ".")[:length]
    return text


def _axis(timeline: Timeline, columns: int) -> str:
    """Axis in microseconds from the launch on, at the ends and at quarters."""
    text = [" "] * columns
    end = (timeline.cycles - timeline.launch_cycles) / timeline.clock_hz * 1e6
    for quarter in range(5):
        label = f"{end * quarter / 4:,.1f}" + (" us" if quarter == 4 else "")
        place = min(columns * quarter // 4, columns - len(label))
        if place >= 0 and all(letter == " " for letter in text[max(0, place - 1) : place + len(label)]):
            text[place : place + len(label)] = label
    return "".join(text)


def operator_rows(timeline: Timeline) -> list[tuple[str, ...]]:
    """For each operator, in the order of their first work: first and last cycle, instructions, cycles at work of each
    kind of engine (all cores) and of DMA channels."""
    rows: dict[str, list[float]] = {}
    places = {kind: place for place, kind in enumerate((*ENGINE_KINDS, "dma"), 3)}
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
    several units work.
    """
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


def _shade(share: float) -> str:
    """Shade of a share: any work at all is visible, and only a stretch of constant work has the darkest one."""
    top = len(GANTT_LEVELS) - 1
    return GANTT_LEVELS[0] if share <= 0 else GANTT_LEVELS[min(top, max(1, int(share * top + 1e-6)))]
