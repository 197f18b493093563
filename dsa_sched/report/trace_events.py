"""A timed run as trace events for the Perfetto UI (ui.perfetto.dev) and chrome://tracing.

Each core is a process with a track for its scalar core (what it waits for) and for each engine; the DMA of a cluster is
a process with a track per channel. On the tracks of engines, a slice for each stretch of one part (a group, a stage)
holds the instructions, named by operator. chrome://tracing colours both by part; Perfetto colours by name and has no
other way, so each part's name begins with a different letter. Arrows lead from what was waited for to what waited.
Live bytes of the memories are counters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from dsa_sched.analysis.artifact_timing import RunTime, TimedProgram
from dsa_sched.analysis.parts import Parts, parts_of, usual_parts
from dsa_sched.calibration.board_trace import read_trace
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.report.measured_trace import beside, track_numbers
from dsa_sched.report.memory import MOMENTS
from isched.timing.occupancy import Occupancy
from isched.timing.timeline import TimelineSpan
from isched.timing.utilisation import ENGINE_KINDS

Event = dict[str, object]

SCALAR_TRACK = 0
DMA_PROCESS = 1000
"""First process number of the DMA; cores have 100 numbers per cluster, plus their own number."""

COLOURS = (
    "thread_state_running",
    "rail_response",
    "thread_state_iowait",
    "thread_state_uninterruptible",
    "background_memory_dump",
    "rail_animation",
    "rail_load",
    "thread_state_runnable",
    "olive",
    "thread_state_unknown",
    "detailed_memory_dump",
    "cq_build_passed",
)
"""Colour names that chrome://tracing knows, used for the parts in this order."""

Occupied = tuple[Occupancy, ...]


def write_trace(
    run: RunTime,
    path: Path,
    parts: tuple[Parts, ...],
    occupied: tuple[Occupied, ...] = (),
    measured: Path | None = None,
) -> int:
    """Write the events as JSON, whole or not at all, with the events of a board from the file `measured` beside them;
    how many there are. Raises UserError, and CountersError for that file."""
    events = list(trace_events(run, parts, occupied))
    if measured is not None:
        tracks = track_numbers(events)
        events = list(beside(events, tracks, read_trace(measured, tracks)))
    lines = [json.dumps(event, separators=(",", ":")) for event in events]
    text = '{"displayTimeUnit":"ns","traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"
    write_whole(path, lambda stream: stream.write(text.encode()))
    return len(lines)


def trace_events(run: RunTime, parts: tuple[Parts, ...] = (), occupied: tuple[Occupied, ...] = ()) -> Iterator[Event]:
    """Events in the Trace Event Format, in order of time: microseconds after the launch. `parts` and `occupied` are
    those of each program; by default the usual parts and no counters."""
    chosen = parts or tuple(parts_of(run, program.timeline, usual_parts(run)) for program in run.programs)
    memories = occupied or ((),) * len(run.programs)
    found: list[tuple[float, int, Event]] = []
    for program, own, occupancies in zip(run.programs, chosen, memories, strict=True):
        writer = _Writer.of(program, own)
        yield from writer.names()
        found += writer.parts()
        for number, span in enumerate(program.timeline.spans):
            found += writer.instruction(number, span)
        found += writer.counters(occupancies)
    found.sort(key=itemgetter(0, 1))
    for _, _, event in found:
        yield event


# Of events at one moment, slices come before those inside them, and these before the events bound to them.
_OUTER, _SLICE, _BOUND = range(3)

Timed = tuple[float, int, Event]


@dataclass(frozen=True)
class _Writer:
    """The events of one program. `tracks`: unit -> track number within its process, engines by kind, then channels."""

    program: TimedProgram
    shown: Parts
    tracks: dict[str, int]
    colours: dict[str, str]

    @staticmethod
    def of(program: TimedProgram, shown: Parts) -> _Writer:
        kinds = program.timeline.engine_kinds
        units = {span.unit for span in program.timeline.spans if span.unit}

        def place(unit: str) -> tuple[int, str]:
            kind = kinds.get(unit, "")
            return ENGINE_KINDS.index(kind) if kind in ENGINE_KINDS else len(ENGINE_KINDS), unit

        tracks = {unit: number for number, unit in enumerate(sorted(units, key=place), SCALAR_TRACK + 1)}
        colours = {part: COLOURS[number % len(COLOURS)] for number, part in enumerate(shown.letters)}
        return _Writer(program, shown, tracks, colours)

    def nanoseconds(self, cycle: float) -> int:
        """Whole nanoseconds after the launch; readers that round would see touching slices overlap, and drop them."""
        return round((cycle - self.program.timeline.launch_cycles) * 1e9 / self.program.timeline.clock_hz)

    def microseconds(self, cycle: float) -> float:
        return self.nanoseconds(cycle) / 1000

    def core(self, core: int) -> int:
        return 100 * self.program.cluster + core

    def track(self, span: TimelineSpan) -> tuple[int, int]:
        """Process and track of an engine's instruction."""
        if self.program.timeline.engine_kinds.get(span.engine) == "dma":
            return DMA_PROCESS + self.program.cluster, self.tracks[span.unit]
        return self.core(span.core), self.tracks[span.unit]

    def names(self) -> Iterator[Event]:
        """Metadata: names and order of processes and tracks that hold something."""
        used: dict[int, dict[str, int]] = {}
        for span in self.program.timeline.spans:
            used.setdefault(self.core(span.core), {"scalar": SCALAR_TRACK})
            if span.unit:
                process, track = self.track(span)
                used.setdefault(process, {})[span.unit] = track
        for process, units in sorted(used.items()):
            own = "DMA" if process >= DMA_PROCESS else f"core {process % 100}"
            name = f"cluster {self.program.cluster} {own}"
            yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
            yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}}
            for unit, number in sorted(units.items(), key=itemgetter(1)):
                track_of: Event = {"ph": "M", "pid": process, "tid": number}
                yield {**track_of, "name": "thread_name", "args": {"name": unit}}
                yield {**track_of, "name": "thread_sort_index", "args": {"sort_index": number}}

    def parts(self) -> Iterator[Timed]:
        """On every track of an engine, a slice around consecutive instructions of one part."""
        by_track: dict[tuple[int, int], list[TimelineSpan]] = {}
        for span in self.program.timeline.spans:
            if span.unit:
                by_track.setdefault(self.track(span), []).append(span)
        for (process, track), spans in sorted(by_track.items()):
            spans.sort(key=lambda span: (span.start, span.end))
            for part, run in groupby(spans, key=lambda span: self.shown.of_operator(span.source)):
                inside = list(run)
                name = f"{self.shown.letters[part]} {part}" if part in self.shown.letters else part
                event = self.slice(name, self.shown.by, process, track, inside[0].start, inside[-1].end)
                arguments = {self.shown.by: part, "instructions": len(inside)}
                yield inside[0].start, _OUTER, {**event, **self.colour(part), "args": arguments}

    def instruction(self, number: int, span: TimelineSpan) -> Iterator[Timed]:
        """Events of one instruction: the wait of its scalar core, its work, and the arrow from what it waited for."""
        core, spans = self.core(span.core), self.program.timeline.spans
        cause, end = span.stall or "wait", (core, SCALAR_TRACK, max(span.ready, span.issued - 1.0))
        if span.issued > span.ready:
            event = self.slice(f"waits: {span.stall}", "wait", core, SCALAR_TRACK, span.ready, span.issued)
            yield span.ready, _SLICE, event
        if not span.unit and span.end > span.start:
            yield span.start, _SLICE, self.slice("waits: barrier", "wait", core, SCALAR_TRACK, span.start, span.end)
        if span.unit:
            end = *self.track(span), span.start
            yield span.start, _SLICE, self.work(span)
        elif span.blocked_by >= 0 and not spans[span.blocked_by].unit:
            cause, end = "barrier", (core, SCALAR_TRACK, max(span.start, span.end - 1.0))
        before = self.awaited(span)
        if before is not None:
            yield from self.arrow(cause, number, before, *end)

    def work(self, span: TimelineSpan) -> Event:
        """The slice of an instruction on its engine's track."""
        part = self.shown.of_operator(span.source)
        event = self.slice(span.source or span.opcode, span.engine, *self.track(span), span.start, span.end)
        arguments: Event = {
            "opcode": span.opcode,
            self.shown.by: part,
            "instruction": span.index,
            "cycles": span.end - span.start,
        }
        if span.moved_bytes:
            arguments["bytes"] = span.moved_bytes
        return {**event, **self.colour(part), "args": arguments}

    def awaited(self, span: TimelineSpan) -> TimelineSpan | None:
        """The work that the instruction waited for last; for a barrier, what the last core waited for."""
        spans, seen = self.program.timeline.spans, span
        while seen.blocked_by >= 0:
            seen = spans[seen.blocked_by]
            if seen.unit:
                return seen
        return None

    def arrow(
        self, cause: str, number: int, before: TimelineSpan, process: int, track: int, time: float
    ) -> Iterator[Timed]:
        """Arrow from the last moment of some work to `time` on a track."""
        flow: Event = {"cat": cause, "name": cause, "id": f"{self.program.cluster}.{number}"}
        from_process, from_track = self.track(before)
        leaves = max(before.start, before.end - 1.0)
        start = {"pid": from_process, "tid": from_track, "ts": self.microseconds(leaves)}
        yield leaves, _BOUND, {"ph": "s", **flow, **start}
        yield time, _BOUND, {"ph": "f", "bp": "e", **flow, "pid": process, "tid": track, "ts": self.microseconds(time)}

    def counters(self, occupancies: Occupied) -> Iterator[Timed]:
        """Live bytes: shared memories with the DMA, others with their core; only changes."""
        timeline = self.program.timeline
        end = timeline.cycles - timeline.launch_cycles
        for occupancy in occupancies:
            process = DMA_PROCESS + self.program.cluster if occupancy.core < 0 else self.core(occupancy.core)
            last = -1
            for moment, most in enumerate(occupancy.least_and_most(end, MOMENTS)[1].tolist()):
                if most != last:
                    time = timeline.launch_cycles + end * moment / MOMENTS
                    event: Event = {"ph": "C", "pid": process, "name": f"{occupancy.memory} live bytes"}
                    yield time, _BOUND, {**event, "ts": self.microseconds(time), "args": {"bytes": most}}
                last = most

    def colour(self, part: str) -> Event:
        return {"cname": self.colours[part]} if part in self.colours else {}

    def slice(self, name: str, category: str, process: int, track: int, start: float, end: float) -> Event:
        return {
            "ph": "X",
            "name": name,
            "cat": category,
            "pid": process,
            "tid": track,
            "ts": self.microseconds(start),
            "dur": (self.nanoseconds(end) - self.nanoseconds(start)) / 1000,
        }
