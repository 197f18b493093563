"""The outcome of a timed run: the timeline of its jobs, or the instructions of a deadlock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.timing.engines import TimedCore, TimedJob
from isched.timing.timeline import Timeline, TimelineSpan


def refuse_deadlock(cores: Sequence[TimedCore]) -> None:
    """Raises PlanError when nothing can happen any more while something still waits."""
    waiting = [core.job for core in cores if core.job is not None]
    waiting += [queue[0] for core in cores for queue in core.queues.values() if queue]
    if waiting:
        job = waiting[0]
        who = f"core {cores[job.core].stream.core}, instruction {job.index} ({job.op.opcode} of "
        raise PlanError(
            f"{who}{job.op.source or 'no operator'})",
            needs="what it waits for to happen",
            has=f"a deadlock of {len(waiting)} instructions",
        )


def end_of(cores: Sequence[TimedCore], now: float) -> float:
    """The cycle at which everything is over in a finished run; `now` is the time of its last event."""
    return max((*(core.end for core in cores), *(job.end for core in cores for job in core.jobs)), default=now)


def timeline_of(cores: Sequence[TimedCore], chip: Chip, now: float) -> Timeline:
    """The timeline of a finished run; `now` is the time of its last event."""
    jobs = [job for core in cores for job in core.jobs]
    firsts = tuple(accumulate((len(core.jobs) for core in cores), initial=0))
    return Timeline(
        chip=chip.name,
        clock_hz=chip.clock_hz,
        launch_cycles=chip.assumed.launch_cycles,
        cycles=end_of(cores, now),
        cores=tuple(core.stream.core for core in cores),
        spans=tuple(_span(job, cores[job.core].stream.core, firsts) for job in jobs),
        core_end_cycles=tuple(core.end for core in cores),
        scalar_cycles=tuple(core.scalar_cycles for core in cores),
        fetched_lines=tuple(core.fetched_lines for core in cores),
        fetch_cycles=tuple(core.fetch_cycles for core in cores),
        engine_kinds={engine.name: engine.kind for engine in chip.engines},
    )


def _span(job: TimedJob, core: int, firsts: Sequence[int]) -> TimelineSpan:
    """The span of a job of `core`; `firsts` are the numbers of each core's first span."""
    op, blocker = job.op, job.blocker
    blocked_by = -1 if blocker is None else firsts[blocker.core] + blocker.index
    return TimelineSpan(
        core, job.index, op.engine, op.unit, op.opcode, op.source, job.ready, job.issued, job.start, job.end, job.stall,
        blocked_by, op.moved_bytes, job.held,
    )  # fmt: skip
