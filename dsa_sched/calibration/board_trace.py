"""Events that a board has measured, from a CSV file or a file of trace events, which may come from anywhere.

    process,track,name,start_us,duration_us    or    {"traceEvents": [...]}  --read_trace--> MeasuredEvent, ...

Processes and tracks have the names that `timeline -o` gives them, such as `cluster 0 core 3` and `matrix`. Times are
microseconds after the launch.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from hw_models.errors import CountersError, FileProblem
from hw_models.loading import read_text

COLUMNS = ("process", "track", "name", "start_us", "duration_us")
MOST_BYTES = 64 << 20
MOST_PROBLEMS = 40
LONGEST_NAME = 400
MOST_MICROSECONDS = 1e12

_TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")

Track = tuple[str, str]
"""Names of a process and of a track in it."""


@dataclass(frozen=True, slots=True)
class MeasuredEvent:
    """Something that a board did on a track; times in microseconds after the launch."""

    track: Track
    name: str
    start_us: float
    duration_us: float


def read_trace(path: Path, tracks: Collection[Track]) -> tuple[MeasuredEvent, ...]:
    """The events of a file of at most 64 MiB, in the order of their starts. It is JSON if it begins with a brace.
    Raises CountersError with every problem and its line or number, also for a track that is not among `tracks`."""
    text = read_text(path, "file of measured events", CountersError, most_bytes=MOST_BYTES)
    rows = _json_rows(path, text) if text.lstrip().startswith("{") else _csv_rows(path, text)
    problems: list[FileProblem] = []
    events: list[MeasuredEvent] = []
    processes = {process for process, _ in tracks}
    for line, who, fields in rows:
        wrong = _wrong(fields, tracks, processes)
        if wrong is not None:
            problems.append(FileProblem(line, who + wrong[0], *wrong[1:]))
            if len(problems) == MOST_PROBLEMS:
                break
            continue
        process, track, name, start, duration = fields
        events.append(MeasuredEvent((process, track), name, float(start), float(duration)))
    if not problems and not events:
        problems.append(FileProblem(0, "", "there are no events"))
    if problems:
        raise CountersError(str(path), problems=tuple(problems))
    return tuple(sorted(events, key=lambda event: (event.start_us, event.track, -event.duration_us, event.name)))


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Line, prefix of a message, and fields of each row. Raises CountersError for a line that is none."""
    begun = False
    for line, row in enumerate(text.splitlines(), 1):
        if not row.strip() or row.startswith("#"):
            continue
        try:
            (fields,) = csv.reader([row], strict=True)
        except csv.Error as error:
            raise CountersError(str(path), problems=(FileProblem(line, "", f"not a line of CSV: {error}"),)) from error
        fields = [field.strip() for field in fields]
        if len(fields) != len(COLUMNS) or (not begun and tuple(fields) != COLUMNS):
            allowed = f"the columns are {','.join(COLUMNS)}, which is the first line"
            raise CountersError(str(path), problems=(FileProblem(line, "", f"{len(fields)} fields", allowed),))
        if begun:
            yield line, "", tuple(fields)
        begun = True


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """The same of complete events (`ph` X), whose processes and tracks metadata events name. Raises CountersError."""

    def refuse(name: str) -> float:
        raise ValueError(f"{name} is no number of JSON")

    try:
        whole = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise CountersError(str(path), needs="trace events in JSON", has=str(error)[:LONGEST_NAME]) from error
    events = whole.get("traceEvents")
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise CountersError(str(path), needs="a list of objects traceEvents", has="none")
    names: dict[tuple[str, str], str] = {}
    for event in events:
        arguments = event.get("args")
        if event.get("ph") == "M" and isinstance(arguments, dict):
            track = "" if event.get("name") == "process_name" else str(event.get("tid"))
            if event.get("name") in ("process_name", "thread_name"):
                names[str(event.get("pid")), track] = str(arguments.get("name"))
    for number, event in enumerate(events):
        if event.get("ph") == "X":
            pid, tid = str(event.get("pid")), str(event.get("tid"))
            fields = names.get((pid, ""), pid), names.get((pid, tid), tid), str(event.get("name"))
            yield 0, f"event {number}, ", (*fields, _number(event.get("ts")), _number(event.get("dur")))


def _number(value: object) -> str:
    """A number of JSON as a field of CSV has it."""
    plain = isinstance(value, int | float) and not isinstance(value, bool) and value <= MOST_MICROSECONDS
    return f"{value:.9f}" if plain else str(value)[:LONGEST_NAME]


def _wrong(
    fields: tuple[str, ...], tracks: Collection[Track], processes: Collection[str]
) -> tuple[str, str, str] | None:
    """Field, what is wrong with it, and what is allowed; None for a good event."""
    process, track, name, *times = fields
    if process not in processes:
        return "process", f"there is no process {_shown(process)}", f"known: {', '.join(sorted(processes)[:12])}"
    if (process, track) not in tracks:
        known = ", ".join(sorted(each for of, each in tracks if of == process))
        return "track", f"{process} has no track {_shown(track)}", f"known: {known}"
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        return "name", f"{_shown(name)} is no name", f"1 to {LONGEST_NAME} characters that can be printed"
    for column, time in zip(COLUMNS[3:], times, strict=True):
        if _TIME.fullmatch(time) is None:
            return column, f"{_shown(time)} is no time", "microseconds from 0 to 10^12, such as 12.5"
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
