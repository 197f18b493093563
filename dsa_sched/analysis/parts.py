"""The parts in which a timed run is shown: stages of the network, groups of the plan, or operators.

    RunTime + "stage", "group" or "operator" --parts_of--> Parts of each program's timeline

Parts have letters in the order of their first work, for charts and colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsa_sched.analysis.artifact_timing import RunTime
from dsa_sched.analysis.letters import letter
from dsa_sched.analysis.network_stages import artifact_parts
from dsa_sched.artifact.format import GRAPH_FILE, PLAN_FILE
from hw_models.errors import TargetError
from isched.timing.timeline import Timeline
from isched.timing.utilisation import Usage, usage_by
from partitioner.ir.plan import parse_plan

KINDS_OF_PARTS = ("stage", "group", "operator")

OTHER = "-"
"""Name of the part for work of no known operator."""


@dataclass(frozen=True)
class Parts:
    """`by` is one of KINDS_OF_PARTS; `of` is operator -> part; `usages` are in the order of first work."""

    by: str
    of: Mapping[str, str]
    letters: Mapping[str, str]
    usages: tuple[Usage, ...]

    def of_operator(self, operator: str) -> str:
        return self.of.get(operator, OTHER)


def usual_parts(run: RunTime) -> str:
    """Groups, if the plan has any of several layers; else stages; operators where nothing is known but symbols."""
    if run.artifact is None:
        return "operator"
    texts = run.artifact.texts
    groups = parse_plan(texts[PLAN_FILE].decode()).groups if PLAN_FILE in texts else ()
    if GRAPH_FILE in texts and not any(len(group.layers) > 1 for group in groups):
        return "stage"
    return "group" if groups else "operator"


def part_names(run: RunTime, timeline: Timeline, by: str) -> Mapping[str, str]:
    """Operator -> part, for one of the run's timelines. Raises TargetError for parts that a program does not tell."""
    if by == "operator":
        return {span.source: span.source or OTHER for span in timeline.spans}
    if run.artifact is None:
        raise TargetError(
            run.name, needs=f"an artifact folder, to know the {by} of an operator", has="a program",
            change="name the folder that `dsa-sched compile` wrote, or leave out --by",
        )  # fmt: skip
    return artifact_parts(run.artifact, by, run.name)


def parts_of(run: RunTime, timeline: Timeline, by: str) -> Parts:
    """The parts of one of the run's timelines. Raises TargetError for parts that a program alone does not tell."""
    of = part_names(run, timeline, by)
    usages = usage_by(timeline, of, OTHER)
    return Parts(by, of, {usage.part: letter(number) for number, usage in enumerate(usages)}, usages)
