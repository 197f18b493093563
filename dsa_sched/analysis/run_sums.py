"""A timed run, summed up for a reader.

RunTime, "stage", "group" or "operator" --run_times--> RunTimes
"""

from __future__ import annotations

from collections.abc import Mapping

from dsa_sched.analysis.artifact_timing import RunTime, TimedProgram, for_each_timeline
from dsa_sched.analysis.language_model import language_figures
from dsa_sched.analysis.run_times import EngineTimes, ProgramTimes, RunTimes
from dsa_sched.analysis.waiting import waiting_of
from isched.timing.critical_path import critical_cycles
from isched.timing.waiting_by_part import PartWaiting


def run_times(run: RunTime, by: str | None = None) -> RunTimes:
    """The times of a run, by these parts or by the usual ones. Raises TargetError for parts that a program alone does
    not tell."""
    waiting = waiting_of(run, by)
    causes = for_each_timeline(run.programs, lambda program: critical_cycles(program.timeline))
    each = zip(run.programs, causes, waiting.programs, strict=True)
    programs = tuple(_program(program, critical, parts) for program, critical, parts in each)
    language = language_figures(run)
    return RunTimes(run.name, run.chip, run.clock_hz, run.batch, waiting.by, programs, run.warnings, language)


def _program(program: TimedProgram, critical: Mapping[str, float], parts: tuple[PartWaiting, ...]) -> ProgramTimes:
    timeline = program.timeline
    return ProgramTimes(
        elf=program.elf,
        cluster=program.cluster,
        passes=program.passes,
        instructions=len(timeline.spans),
        cycles=timeline.cycles,
        launch_cycles=timeline.launch_cycles,
        engines=tuple(
            EngineTimes(unit, busy, timeline.utilisation[unit], timeline.moved_bytes.get(unit, 0))
            for unit, busy in timeline.busy_cycles.items()
        ),
        scalar_cycles=timeline.scalar_cycles,
        fetched_lines=timeline.fetched_lines,
        fetch_cycles=timeline.fetch_cycles,
        core_end_cycles=timeline.core_end_cycles,
        stall_cycles=timeline.stall_cycles,
        critical_cycles=critical,
        overlaps=timeline.overlaps,
        parts=parts,
    )
