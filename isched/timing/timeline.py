"""Timeline of a run: when each instruction was ready, issued, started and over, and sums of these times.

Cycles are those of the chip's clock, counted from the launch. A writer of traces or charts needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isched.timing.critical_path import Stretch

OVERLAPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("all", ("transfer", "matrix", "vector")),
    ("transfer/matrix", ("transfer", "matrix")),
    ("transfer/vector", ("transfer", "vector")),
    ("vector/matrix", ("vector", "matrix")),
)
"""Kinds of engines whose simultaneous work the vendor's profiler shows, by the name of the pair."""


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """One instruction. `ready`: the scalar core has reached it; `issued`: its engine took it; `start` and `end`: its
    work. For a barrier, `start` is when its core reached it with idle engines, `end` when all cores had. `stall` says
    why issue was later than ready: `conflict`, `queue` (full), `drain` (before a barrier), `transfer` (polling for its
    end). `blocked_by` is the number in the timeline of the last span that it waited for, -1 for none. With `held` its
    core went on at its end: it is a loop of machine instructions."""

    core: int
    index: int
    engine: str
    unit: str
    opcode: str
    source: str
    ready: float
    issued: float
    start: float
    end: float
    stall: str = ""
    blocked_by: int = -1
    moved_bytes: int = 0
    held: bool = False


@dataclass(frozen=True, slots=True)
class Overlap:
    """Cycles in which engines of several kinds work at once, summed over cores; `share` is relative to the cycles in
    which any of them works."""

    cycles: float
    share: float


@dataclass(frozen=True)
class Timeline:
    """A whole run of one cluster. `spans` are in order of core and position; `engine_kinds` is engine name -> kind;
    `scalar_cycles` is the time of each core's scalar instructions, without waiting; `fetch_cycles` is the time that it
    waited for lines missing in its instruction cache, and `fetched_lines` is their number."""

    chip: str
    clock_hz: int
    launch_cycles: float
    cycles: float
    cores: tuple[int, ...]
    spans: tuple[TimelineSpan, ...]
    core_end_cycles: tuple[float, ...]
    scalar_cycles: tuple[float, ...]
    engine_kinds: Mapping[str, str]
    fetched_lines: tuple[int, ...] = ()
    fetch_cycles: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        return self.cycles / self.clock_hz

    @cached_property
    def critical_path(self) -> tuple[Stretch, ...]:
        """The critical path, from the launch to the end."""
        from isched.timing.critical_path import path_of  # it reads timelines

        return path_of(self)

    @cached_property
    def busy_cycles(self) -> dict[str, float]:
        """Cycles at work by unit, summed over cores; a unit does one thing at a time."""
        busy: dict[str, float] = {}
        for span in self.spans:
            if span.unit:
                busy[span.unit] = busy.get(span.unit, 0.0) + span.end - span.start
        return dict(sorted(busy.items()))

    @cached_property
    def utilisation(self) -> dict[str, float]:
        """Share of the time after the launch by unit; an engine that every core has counts once per core."""
        whole = self.cycles - self.launch_cycles
        kinds = {"matrix", "vector", "transfer"}
        return {
            unit: busy / whole / (len(self.cores) if self.engine_kinds.get(unit) in kinds else 1) if whole else 0.0
            for unit, busy in self.busy_cycles.items()
        }

    @cached_property
    def moved_bytes(self) -> dict[str, int]:
        """Bytes moved by unit, without the padding of bursts."""
        moved: dict[str, int] = {}
        for span in self.spans:
            if span.moved_bytes:
                moved[span.unit] = moved.get(span.unit, 0) + span.moved_bytes
        return dict(sorted(moved.items()))

    @cached_property
    def stall_cycles(self) -> dict[str, float]:
        """Cycles in which a scalar core waited, by reason, summed over cores; `barrier` is waiting for other cores."""
        stalls: dict[str, float] = {}
        for span in self.spans:
            if span.stall:
                stalls[span.stall] = stalls.get(span.stall, 0.0) + span.issued - span.ready
            if not span.unit and span.end > span.start:
                stalls["barrier"] = stalls.get("barrier", 0.0) + span.end - span.start
        return dict(sorted(stalls.items()))

    @cached_property
    def overlaps(self) -> dict[str, Overlap]:
        """The vendor's percentages: how long engines of one core work at the same time."""
        seconds: dict[frozenset[str], float] = {}
        of_core: dict[int, list[TimelineSpan]] = {core: [] for core in self.cores}
        for span in self.spans:
            of_core[span.core].append(span)
        for mine in of_core.values():
            for kinds, cycles in _occupation((self.engine_kinds.get(s.unit, ""), s.start, s.end) for s in mine):
                seconds[kinds] = seconds.get(kinds, 0.0) + cycles
        active = sum(seconds.values())
        both = {name: sum(c for kinds, c in seconds.items() if kinds.issuperset(of)) for name, of in OVERLAPS}
        return {name: Overlap(cycles, cycles / active if active else 0.0) for name, cycles in both.items()}


def _occupation(work: Iterable[tuple[str, float, float]]) -> list[tuple[frozenset[str], float]]:
    """Stretches of time by the set of engine kinds at work; idle ones are left out."""
    edges: list[tuple[float, int, str]] = []
    for kind, start, end in work:
        if kind in ("matrix", "vector", "transfer") and end > start:
            edges += ((start, 1, kind), (end, -1, kind))
    edges.sort()
    running: dict[str, int] = {}
    stretches: list[tuple[frozenset[str], float]] = []
    now: frozenset[str] = frozenset()
    last = 0.0
    for time, change, kind in edges:
        if now and time > last:
            stretches.append((now, time - last))
        count = running[kind] = running.get(kind, 0) + change
        if (count > 0) != (kind in now):
            now = now ^ {kind}
        last = time
    return stretches
