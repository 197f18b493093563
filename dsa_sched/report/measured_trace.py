"""A board's events beside the model's in one trace: after each process of the model one that was measured, with tracks
of the same names.

    events of the model, names of its tracks, MeasuredEvent, ... --beside--> events of both
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsa_sched.calibration.board_trace import MeasuredEvent, Track

Event = dict[str, object]

MEASURED_PROCESS = 100_000
"""Added to the number of a process for what was measured of it."""


def track_numbers(events: Iterable[Event]) -> dict[Track, tuple[int, int]]:
    """Numbers of process and track by their names, from the metadata of a trace."""
    processes: dict[object, str] = {}
    tracks: dict[Track, tuple[int, int]] = {}
    for event in events:
        arguments = event.get("args")
        named = str(arguments["name"]) if isinstance(arguments, dict) and "name" in arguments else ""
        match event:
            case {"ph": "M", "name": "process_name", "pid": process}:
                processes[process] = named
            case {"ph": "M", "name": "thread_name", "pid": int(process), "tid": int(track)}:
                tracks[processes[process], named] = process, track
    return tracks


def beside(
    events: Iterable[Event], tracks: dict[Track, tuple[int, int]], measured: tuple[MeasuredEvent, ...]
) -> Iterator[Event]:
    """The events of the model, with places in the order of processes for the measured ones, then these."""
    for event in events:
        if event.get("name") == "process_sort_index" and isinstance(event["pid"], int):
            yield {**event, "args": {"sort_index": 2 * event["pid"]}}
        else:
            yield event
    used = {tracks[event.track]: event.track for event in measured}
    for process, name in dict.fromkeys((process, name) for (process, _), (name, _) in sorted(used.items())):
        of: Event = {"ph": "M", "pid": MEASURED_PROCESS + process}
        yield {**of, "name": "process_name", "args": {"name": f"{name}, measured"}}
        yield {**of, "name": "process_sort_index", "args": {"sort_index": 2 * process + 1}}
    for (process, track), (_, name) in sorted(used.items()):
        of = {"ph": "M", "pid": MEASURED_PROCESS + process, "tid": track}
        yield {**of, "name": "thread_name", "args": {"name": name}}
        yield {**of, "name": "thread_sort_index", "args": {"sort_index": track}}
    for each in measured:
        process, track = tracks[each.track]
        place: Event = {"pid": MEASURED_PROCESS + process, "tid": track, "ts": each.start_us, "dur": each.duration_us}
        yield {"ph": "X", "name": each.name, "cat": "measured", **place}
