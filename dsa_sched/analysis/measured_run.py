"""Times of a compiled network by the cycle model, for an explanation: the whole run, its groups and its layers.

    RunTime, Plan --critical path by group and by layer--> MeasuredRun

The cycles of the groups add up to the run without its launch, and so do those of the layers: each moment belongs to
what the critical path does then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.target import symbol_of
from dsa_sched.analysis.artifact_timing import RunTime
from dsa_sched.analysis.parts import OTHER
from isched.timing.critical_path import critical_cycles
from isched.timing.waiting_by_part import waiting_by
from partitioner.ir.plan import Plan


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """Cycles of the critical path in one group or layer, and by cause, the largest first."""

    cycles: float
    causes: Mapping[str, float]

    @property
    def bound_by(self) -> str:
        """The cause of most of the cycles; empty for a part that the path does not touch."""
        return next(iter(self.causes), "")


UNTOUCHED = MeasuredPart(0.0, {})
"""A part that the critical path does not touch: making it faster alone changes nothing."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One pass of the first program: `cycles`, of them `launch_cycles` for the launch; `causes` of the critical path
    after the launch. `seconds` and `items_per_second` are those of the whole run, all clusters and passes."""

    cycles: float
    launch_cycles: float
    seconds: float
    items_per_second: float
    causes: Mapping[str, float]
    groups: Mapping[str, MeasuredPart]
    layers: Mapping[str, MeasuredPart]

    @property
    def work_cycles(self) -> float:
        """Cycles after the launch."""
        return self.cycles - self.launch_cycles

    def group(self, name: str) -> MeasuredPart:
        return self.groups.get(name, UNTOUCHED)

    def layer(self, name: str) -> MeasuredPart:
        return self.layers.get(name, UNTOUCHED)


def measured_run(run: RunTime, plan: Plan) -> MeasuredRun:
    """The times of a run of what was compiled from this plan."""
    timeline = run.programs[0].timeline
    layers = [(group.name, layer) for group in plan.groups for layer in group.layers]
    by_group = {op: group for group, layer in layers for op in layer.ops}
    by_layer = {op: layer.name for _, layer in layers for op in layer.ops}

    def parts(of: Mapping[str, str]) -> dict[str, MeasuredPart]:
        known = dict(of)
        for op, part in of.items():
            known.setdefault(symbol_of(op), part)  # machine code names operators by their symbols
        found = waiting_by(timeline, known, OTHER)
        return {each.part: MeasuredPart(each.cycles, each.critical_cycles) for each in found}

    return MeasuredRun(
        timeline.cycles,
        timeline.launch_cycles,
        run.seconds,
        run.items_per_second or 0.0,
        critical_cycles(timeline),
        parts(by_group),
        parts(by_layer),
    )
