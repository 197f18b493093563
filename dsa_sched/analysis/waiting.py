"""Causes that bind a timed run in each part of the network: stages, groups of the plan, or operators.

RunTime + "stage", "group" or "operator" --waiting_of--> for each program what its critical path does in each part
"""

from __future__ import annotations

from dataclasses import dataclass

from dsa_sched.analysis.artifact_timing import RunTime, for_each_timeline
from dsa_sched.analysis.parts import OTHER, part_names, usual_parts
from isched.timing.waiting_by_part import PartWaiting, waiting_by


@dataclass(frozen=True, slots=True)
class WaitingTimes:
    """`by` is one of KINDS_OF_PARTS; `programs` has the parts of each program of the run."""

    by: str
    programs: tuple[tuple[PartWaiting, ...], ...]


def waiting_of(run: RunTime, by: str | None = None) -> WaitingTimes:
    """Waiting by these parts, or by the usual ones. Raises TargetError for parts that a program alone does not tell."""
    kind = by or usual_parts(run)
    programs = for_each_timeline(
        run.programs, lambda each: waiting_by(each.timeline, part_names(run, each.timeline, kind), OTHER)
    )
    return WaitingTimes(kind, programs)
