"""The critical path of a run: the cause of each moment from the launch to the end, without gaps.

    end <-- matrix work <-- conflict: vector work <-- issued late: scalar <-- barrier: another core <-- ... <-- launch

Each stretch of time has one cause: work of an engine, scalar instructions, polling for a transfer's end, a barrier.
Shortening anything that is not on this chain cannot shorten the run; shortening what is on it may bring up another
chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from isched.timing.timeline import Timeline, TimelineSpan


@dataclass(frozen=True, slots=True)
class Stretch:
    """One link of the chain. `cause` is a kind of engine (`dma` for all channels), `scalar`, `asking`, `barrier` or
    `together` (a load for which several cores wait for each other, where the last to come cannot be told). `span` is
    the number of the instruction, or -1 for the scalar instructions at the end of a core."""

    cause: str
    span: int
    start: float
    end: float


def critical_path(timeline: Timeline) -> tuple[Stretch, ...]:
    """The chain in order of time, from the launch to the end of the run; found once for each timeline."""
    return timeline.critical_path


def path_of(timeline: Timeline) -> tuple[Stretch, ...]:
    """The critical path of a timeline of which it is not known yet."""
    return tuple(reversed([stretch for stretch in _backwards(timeline) if stretch.end > stretch.start]))


def critical_cycles(timeline: Timeline) -> dict[str, float]:
    """Cycles on the chain by cause; their sum is the run without its launch."""
    cycles: dict[str, float] = {}
    for stretch in critical_path(timeline):
        cycles[stretch.cause] = cycles.get(stretch.cause, 0.0) + stretch.end - stretch.start
    return dict(sorted(cycles.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True)
class _Order:
    """Neighbours of each span: the one before it on its core, and the one before it on its unit (-1 for none)."""

    on_core: tuple[int, ...]
    on_unit: tuple[int, ...]
    last: dict[int, int]
    came_last: dict[tuple[str, str, float], int]
    """The span, by (unit, opcode, start), that began at that time as soon as it was issued: the one that others waited
    for."""

    @staticmethod
    def of(timeline: Timeline) -> _Order:
        spans = timeline.spans
        last: dict[int, int] = {}
        on_core = []
        for number, span in enumerate(spans):
            on_core.append(last.get(span.core, -1))
            last[span.core] = number
        on_unit = [-1] * len(spans)
        latest: dict[tuple[int, str], int] = {}
        for number in sorted(range(len(spans)), key=lambda n: (spans[n].start, spans[n].end, spans[n].index)):
            span = spans[number]
            if span.unit:
                owner = -1 if _kind(timeline, span) == "dma" else span.core
                on_unit[number] = latest.get((owner, span.unit), -1)
                latest[owner, span.unit] = number
        came_last = {
            (span.unit, span.opcode, span.start): number
            for number, span in enumerate(spans)
            if span.unit and span.issued == span.start
        }
        return _Order(tuple(on_core), tuple(on_unit), last, came_last)


def _kind(timeline: Timeline, span: TimelineSpan) -> str:
    return timeline.engine_kinds.get(span.engine, span.engine)


def _backwards(timeline: Timeline) -> Iterator[Stretch]:
    """The chain from the end to the launch. `number` is a span; `over` says whether its end or its issue is to be
    explained."""
    spans, order = timeline.spans, _Order.of(timeline)
    number, over = _final(timeline)
    time = timeline.cycles
    if not over:
        # The scalar instructions at the end of a core, after its last instruction.
        core = timeline.cores[number]
        number = order.last.get(core, -1)
        left = _left(spans[number]) if number >= 0 else timeline.launch_cycles
        yield Stretch("scalar", -1, left, time)
        time, over = left, number >= 0 and _ends(spans[number])
    while number >= 0:
        span = spans[number]
        if over and span.unit:
            yield Stretch(_kind(timeline, span), number, span.start, time)
            time = span.start
            before = order.on_unit[number]
            if span.start > span.issued and before >= 0 and spans[before].end >= span.start:
                number = before
            elif span.start > span.issued and span.blocked_by >= 0 and spans[span.blocked_by].end == span.start:
                number = span.blocked_by
            elif span.start > span.issued and (span.unit, span.opcode, span.start) in order.came_last:
                number, over = order.came_last[span.unit, span.opcode, span.start], False
            elif span.start > span.issued:
                yield Stretch("together", number, span.issued, time)
                time, over = span.issued, False
            else:
                over = False
        elif over and span.end > span.start:
            # A barrier ends when the last core comes to it; what else has no unit is the scalar core's own work.
            last = span.blocked_by
            waited = last >= 0 and not spans[last].unit and spans[last].start > span.start
            number = last if waited else number
            barrier = _kind(timeline, span) == "sync"
            yield Stretch("barrier" if barrier else "scalar", number, spans[number].start, time)
            time, over = spans[number].start, False
        elif over:
            over = False
        elif span.stall and span.blocked_by >= 0 and spans[span.blocked_by].unit:
            blocker = spans[span.blocked_by]
            yield Stretch("asking", number, blocker.end, time)
            number, time, over = span.blocked_by, blocker.end, True
        else:
            before = order.on_core[number]
            left = _left(spans[before]) if before >= 0 else timeline.launch_cycles
            yield Stretch("scalar", number, left, time)
            number, time, over = before, left, before >= 0 and _ends(spans[before])


def _left(span: TimelineSpan) -> float:
    """Time at which the scalar core went on after an instruction."""
    return span.end if _ends(span) else span.issued


def _ends(span: TimelineSpan) -> bool:
    """Whether the scalar core went on at the end of an instruction, not when it was issued."""
    return span.held or not span.unit


def _final(timeline: Timeline) -> tuple[int, bool]:
    """The last thing to end: (span, True), or (position of a core, False)."""
    ends = [(span.end, number) for number, span in enumerate(timeline.spans)]
    end, number = max(ends, default=(-1.0, -1))
    for position, core_end in enumerate(timeline.core_end_cycles):
        if core_end > end or number < 0:
            end, number = core_end, -position - 2
    return (number, True) if number >= 0 else (-number - 2, False)
