"""Times of a compiled network by the cycle model, for an explanation: the whole run, its groups and its layers.

    RunTime, Plan --critical path by group and by layer--> MeasuredRun

The cycles of the groups add up to the run without its launch, and so do those of the layers: each moment belongs to
what the critical path does then.
"""

from __future__ import annotations

from collections.abc import Mapping

from codegen.target import symbol_of
from dsa_sched.analysis.artifact_timing import RunTime
from dsa_sched.analysis.explanation_data import MeasuredPart, MeasuredRun
from dsa_sched.analysis.parts import OTHER
from isched.timing.critical_path import critical_cycles
from isched.timing.waiting_by_part import waiting_by
from partitioner.ir.plan import Plan


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
