"""Figures of a whole run of an artifact by the cycle model: its cycles, its bytes, its floor, and what binds it.

Artifact --timed_run--> RunTime --with_figures--> FiguresEntry of its manifest
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from codegen.target import GroupTarget
from dsa_sched.analysis.artifact_timing import RunTime, TimedProgram, for_each_timeline, time_artifact
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.origin import FiguresEntry
from dsa_sched.stages.targets import target_of
from hw_models.routes import main_memory
from isched.program.target import Timeable
from isched.timing.critical_path import critical_cycles
from partitioner.cost.roofline import binding_floor, network_floors


def timed_run(artifact: Artifact, progress: Callable[[str], None] = lambda _step: None) -> RunTime | None:
    """The run of an artifact by the cycle model; None where the target cannot be timed."""
    target = target_of(artifact.chip)
    if isinstance(target, GroupTarget) or not isinstance(target, Timeable):
        return None
    progress("timing")
    return time_artifact(artifact, artifact.chip, target, artifact.manifest.model)


def with_figures(artifact: Artifact, run: RunTime | None) -> Artifact:
    """A copy that says how long its run takes; the artifact itself without one."""
    if run is None:
        return artifact
    return replace(artifact, manifest=artifact.manifest.model_copy(update={"figures": _figures(artifact, run)}))


def _figures(artifact: Artifact, run: RunTime) -> FiguresEntry:
    chip = artifact.chip
    main = main_memory(chip)
    moved = for_each_timeline(run.programs, lambda program: _main_bytes(program, main))
    longest = max(run.programs, key=lambda program: program.passes * program.timeline.cycles)
    floor = binding_floor(network_floors(artifact.graph, chip))
    causes = critical_cycles(longest.timeline)
    binds = next(iter(causes), "")
    return FiguresEntry(
        instructions=sum(len(program.timeline.spans) for program in run.programs),
        cycles=run.cycles,
        main_read_bytes=sum(each.passes * read for each, (read, _) in zip(run.programs, moved, strict=True)),
        main_written_bytes=sum(each.passes * written for each, (_, written) in zip(run.programs, moved, strict=True)),
        floor_cycles=floor.cycles * longest.passes,
        floor=floor.name,
        binds=binds,
        binds_share=causes[binds] / sum(causes.values()) if binds else 0.0,
    )


def _main_bytes(program: TimedProgram, main: str) -> tuple[int, int]:
    """Bytes that one pass reads from the main memory and writes to it."""
    ops = [op for stream in program.streams for op in stream.ops if op.moved_bytes]
    read = sum(op.moved_bytes for op in ops if any(region.memory == main for region in op.reads))
    written = sum(op.moved_bytes for op in ops if any(region.memory == main for region in op.writes))
    return read, written
