"""The time of a run by part of the network: the causes on its critical path, and what scalar cores wait for.

    Timeline + operator -> part --waiting_by--> for each part: cause -> cycles of the path, reason -> cycles of waiting

The cycles of the path add up to the run without its launch. The cause of most of a part's cycles binds it; making
anything else there faster changes nothing while the path stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isched.timing.critical_path import critical_path
from isched.timing.timeline import Timeline


@dataclass(frozen=True, slots=True)
class PartWaiting:
    """One part: `critical_cycles` by cause as in `critical_path`, `stall_cycles` by reason as in a timeline, summed
    over cores; both with the largest first."""

    part: str
    critical_cycles: Mapping[str, float]
    stall_cycles: Mapping[str, float]

    @property
    def cycles(self) -> float:
        """Cycles of the critical path in the part."""
        return sum(self.critical_cycles.values())

    @property
    def bound_by(self) -> str:
        """The cause of most of the path; empty for a part that the path does not touch."""
        return next(iter(self.critical_cycles), "")


def waiting_by(timeline: Timeline, parts: Mapping[str, str], other: str = "-") -> tuple[PartWaiting, ...]:
    """The parts in the order in which the path reaches them, then those that it does not touch in the order of the
    cores' instructions. `parts` is operator -> part; operators not in it belong to the part `other`."""
    causes = _path_causes(timeline, parts, other)
    stalls: dict[str, dict[str, float]] = {}
    for span in timeline.spans:
        part = parts.get(span.source, other)
        if span.stall:
            _add(stalls, part, span.stall, span.issued - span.ready)
        if not span.unit and span.end > span.start:
            _add(stalls, part, "barrier", span.end - span.start)
    return tuple(
        PartWaiting(part, _largest_first(causes.get(part, {})), _largest_first(stalls.get(part, {})))
        for part in dict.fromkeys((*causes, *stalls))
    )


def path_cycles_by(timeline: Timeline, parts: Mapping[str, str], other: str = "-") -> dict[str, float]:
    """Cycles of the critical path in each part that it touches, without the other results of `waiting_by`."""
    causes = _path_causes(timeline, parts, other)
    return {part: sum(_largest_first(cycles).values()) for part, cycles in causes.items()}


def _path_causes(timeline: Timeline, parts: Mapping[str, str], other: str) -> dict[str, dict[str, float]]:
    causes: dict[str, dict[str, float]] = {}
    for stretch in critical_path(timeline):
        part = parts.get(timeline.spans[stretch.span].source, other) if stretch.span >= 0 else other
        _add(causes, part, stretch.cause, stretch.end - stretch.start)
    return causes


def _add(sums: dict[str, dict[str, float]], part: str, name: str, cycles: float) -> None:
    of = sums.setdefault(part, {})
    of[name] = of.get(name, 0.0) + cycles


def _largest_first(cycles: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(cycles.items(), key=lambda item: (-item[1], item[0])))
