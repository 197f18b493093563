"""A timed run as trace events for the Perfetto UI (ui.perfetto.dev) and chrome://tracing.

One process a core with a track for its scalar core (what it waits for) and for each engine, one process for the DMA of
a cluster with a track a channel. Slices bear the operator's name, which also decides their colour; an arrow leads from
what was waited for to what waited.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

from dsa_sched.clock import RunTime, TimedProgram
from dsa_sched.whole_file import write_whole
from isched.timeline import Span

__all__ = ["trace_events", "write_trace"]

Event = dict[str, object]

SCALAR_TRACK = 0
DMA_PROCESS = 1000
"""Process numbers of the DMA start here; cores have 100 for each cluster, and their own number."""

KINDS = ("matrix", "vector", "transfer")
"""Tracks of a core below the scalar one, by kind of engine."""


def write_trace(run: RunTime, path: Path) -> int:
    """Write the events as JSON, whole or not at all; how many there are. Raises UserError."""
    lines = [json.dumps(event, separators=(",", ":")) for event in trace_events(run)]
    text = '{"displayTimeUnit":"ns","traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"
    write_whole(path, lambda stream: stream.write(text.encode()))
    return len(lines)


def trace_events(run: RunTime) -> Iterator[Event]:
    """Events in the Trace Event Format; times in microseconds from the launch on."""
    for program in run.programs:
        tracks = _tracks(program)
        yield from _names(program, tracks)
        for number, span in enumerate(program.timeline.spans):
            yield from _span_events(program, tracks, number, span)


def _tracks(program: TimedProgram) -> dict[str, int]:
    """Unit -> track number within its process: engines by kind, then channels."""
    kinds = program.timeline.engine_kinds
    units = {span.unit for span in program.timeline.spans if span.unit}

    def place(unit: str) -> tuple[int, str]:
        kind = kinds.get(unit, "")
        return KINDS.index(kind) if kind in KINDS else len(KINDS), unit

    return {unit: number for number, unit in enumerate(sorted(units, key=place), SCALAR_TRACK + 1)}


def _process(program: TimedProgram, span: Span) -> int:
    if program.timeline.engine_kinds.get(span.engine) == "dma":
        return DMA_PROCESS + program.cluster
    return 100 * program.cluster + span.core


def _names(program: TimedProgram, tracks: dict[str, int]) -> Iterator[Event]:
    """Metadata: names and order of processes and tracks that hold something."""
    used: dict[int, dict[str, int]] = {}
    for span in program.timeline.spans:
        used.setdefault(100 * program.cluster + span.core, {"scalar": SCALAR_TRACK})
        if span.unit:
            used.setdefault(_process(program, span), {})[span.unit] = tracks[span.unit]
    for process, units in sorted(used.items()):
        own = "DMA" if process >= DMA_PROCESS else f"core {process % 100}"
        name = f"cluster {program.cluster} {own}"
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}}
        for unit, number in sorted(units.items(), key=itemgetter(1)):
            track: Event = {"ph": "M", "pid": process, "tid": number}
            yield {**track, "name": "thread_name", "args": {"name": unit}}
            yield {**track, "name": "thread_sort_index", "args": {"sort_index": number}}


def _span_events(program: TimedProgram, tracks: dict[str, int], number: int, span: Span) -> Iterator[Event]:
    timeline = program.timeline
    scale = 1e6 / timeline.clock_hz
    core = 100 * program.cluster + span.core
    if span.issued > span.ready:
        yield _slice(f"waits: {span.stall}", "wait", core, SCALAR_TRACK, span.ready, span.issued, scale)
    if not span.unit:
        if span.end > span.start:
            yield _slice("waits: barrier", "wait", core, SCALAR_TRACK, span.start, span.end, scale)
        return
    process, track = _process(program, span), tracks[span.unit]
    event = _slice(span.source or span.opcode, span.engine, process, track, span.start, span.end, scale)
    arguments: Event = {"opcode": span.opcode, "instruction": span.index, "cycles": span.end - span.start}
    if span.moved_bytes:
        arguments["bytes"] = span.moved_bytes
    yield {**event, "args": arguments}
    if span.blocked_by < 0:
        return
    before = timeline.spans[span.blocked_by]
    if before.unit:
        flow = {"cat": span.stall or "wait", "name": span.stall or "wait", "id": f"{program.cluster}.{number}"}
        start = {"pid": _process(program, before), "tid": tracks[before.unit], "ts": before.start * scale}
        yield {"ph": "s", **flow, **start}
        yield {"ph": "f", "bp": "e", **flow, "pid": process, "tid": track, "ts": span.start * scale}


def _slice(name: str, category: str, process: int, track: int, start: float, end: float, scale: float) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": track,
        "ts": start * scale,
        "dur": (end - start) * scale,
    }
