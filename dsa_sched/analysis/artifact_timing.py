"""How long a program or an artifact takes: its machine code under the cycle model of a chip.

    PROGRAM.elf or artifact folder + chip --time_program--> RunTime (a Timeline for each cluster's program)

Only the bytes of the executables are read, so programs of other compilers can be timed too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from codegen.target import Identifies, KeepsCode, MadeFor, Target
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.kinds import require_machine_code
from dsa_sched.stages.gc_pause import uncollected
from dsa_sched.stages.targets import require_timeable, target_of
from hw_models.chip import Chip
from hw_models.errors import TargetError, size_text
from hw_models.loading import load_chip
from isched.program.timed_ops import TimedStream, same_streams
from isched.timing.cycle_model import time_streams
from isched.timing.timeline import Timeline

if TYPE_CHECKING:
    from isched.bounds.lower_bounds import Bounds

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class TimedProgram:
    """One executable on one cluster."""

    elf: str
    cluster: int
    timeline: Timeline
    passes: int = 1
    """Number of runs, each from its launch on."""
    streams: tuple[TimedStream, ...] = ()
    """The timed streams; the timeline has a span for each of their instructions, in the same order."""
    bounds: Bounds | None = None
    """Bounds that no order of the same instructions can beat; None where they were not asked for."""


@dataclass(frozen=True, slots=True)
class RunTime:
    """One run of everything, with all clusters starting together. `batch` is 0 where the number of items is unknown."""

    name: str
    chip: str
    clock_hz: int
    batch: int
    programs: tuple[TimedProgram, ...]
    warnings: tuple[str, ...] = ()
    artifact: Artifact | None = None
    """The artifact that was timed, where it is more than an executable."""

    @property
    def cycles(self) -> float:
        """Cycles until the last cluster is done with all its passes."""
        return max(program.passes * program.timeline.cycles for program in self.programs)

    @property
    def seconds(self) -> float:
        return self.cycles / self.clock_hz

    @property
    def items_per_second(self) -> float | None:
        return self.batch / self.seconds if self.batch and self.cycles else None


@uncollected()
def time_path(
    path: Path, chip: str | Chip, cores: int | None = None, cluster: int | None = None, warm: bool = False
) -> RunTime:
    """Time an artifact folder, or an ELF on `cores` of one cluster. The default are those that it was compiled for, or,
    where it does not name them, all cores of cluster 0. With `warm`, instruction caches hold what an earlier run left
    there.

    Raises ChipError, and TargetError for what cannot be read and for a target or an artifact that cannot be timed.
    """
    described = chip if isinstance(chip, Chip) else load_chip(chip)
    target = target_of(described)
    require_timeable(target, str(path))
    if path.is_dir():
        return time_artifact(Artifact.load(path), described, target, str(path), warm)
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TargetError(str(path), needs="a program or an artifact folder", has=reason) from error
    return time_elf(data, described, target, cores, cluster, str(path), warm)


@uncollected()
def time_whole(artifact: Artifact, name: str, warm: bool = False) -> RunTime:
    """Time an artifact on its own chip; errors call it `name`. Raises as `time_path` does."""
    return time_artifact(artifact, artifact.chip, target_of(artifact.chip), name, warm)


@uncollected()
def with_bounds(run: RunTime, chip: Chip) -> RunTime:
    """A copy of the run with the bounds of each program; takes about as long as timing it."""
    from isched.bounds.lower_bounds import stream_bounds  # compiled code, which few need

    bounds = for_each_timeline(run.programs, lambda program: stream_bounds(program.streams, chip, len(run.programs)))
    return replace(run, programs=tuple(replace(p, bounds=b) for p, b in zip(run.programs, bounds, strict=True)))


def for_each_timeline(programs: Iterable[TimedProgram], make: Callable[[TimedProgram], Made]) -> tuple[Made, ...]:
    """Results of `make` for each program, made once for programs that share their timeline, as equal programs do."""
    known: dict[int, Made] = {}
    made = []
    for program in programs:
        key = id(program.timeline)
        if key not in known:
            known[key] = make(program)
        made.append(known[key])
    return tuple(made)


def time_elf(
    elf: bytes, chip: Chip, target: Target, cores: int | None, cluster: int | None, name: str, warm: bool = False
) -> RunTime:
    """Time one executable by itself; see `time_path`. Raises TargetError."""
    made_for = _named(name, lambda: target.made_for(elf)) if isinstance(target, Identifies) else None
    warnings: tuple[str, ...] = ()
    if made_for is not None:
        cores, cluster = cores or made_for.cores, made_for.cluster if cluster is None else cluster
        warnings = (*_other_chip(made_for, chip, name), *made_for.elsewhere(cores, cluster))
    cores, cluster = cores or chip.cores_per_cluster, cluster or 0
    _require_cores(cores, cluster, chip, name)
    streams = _trace(target, elf, cores, chip, cluster, name, warm)
    if made_for is not None and made_for.chip_hash != chip.hash:
        _require_memories(streams, chip, name)
    program = TimedProgram(name, cluster, time_streams(streams, chip), 1, streams)
    return RunTime(name, chip.name, chip.clock_hz, 0, (program,), warnings)


def _other_chip(made_for: MadeFor, chip: Chip, name: str) -> tuple[str, ...]:
    """Warnings about a program for another chip; TargetError where it is no program for this one."""
    if made_for.isa != chip.isa:
        raise TargetError(
            name, needs=f"machine code for {chip.isa}", has=f"{made_for.isa} for {made_for.chip}",
            change="name the chip that it was compiled for, or compile it for this one",
        )  # fmt: skip
    if made_for.chip_hash == chip.hash:
        return ()
    return (f"compiled for another chip file: {made_for.chip}, hash {made_for.chip_hash[:12]}",)


def _require_memories(streams: tuple[TimedStream, ...], chip: Chip, name: str) -> None:
    """Refuse a program for another chip that uses memory which this one does not have. Raises TargetError."""
    used: dict[str, int] = {}
    for op in {id(op): op for stream in streams for op in stream.ops}.values():
        for region in (*op.reads, *op.writes):
            used[region.memory] = max(used.get(region.memory, 0), region.end_bytes)
    for memory, size in used.items():
        there = chip.memory(memory).size_bytes
        if size > there:
            raise TargetError(
                name, needs=f"{size_text(size)} of {memory}", has=f"{size_text(there)} on {chip.name}",
                change="name the chip that it was compiled for, or compile it for this one",
            )  # fmt: skip


def _require_cores(cores: int, cluster: int, chip: Chip, name: str) -> None:
    """Raises TargetError where the chip has no such cores."""
    if not 1 <= cores <= chip.cores_per_cluster or not 0 <= cluster < chip.clusters:
        needs = f"1 to {chip.cores_per_cluster} cores of cluster 0 to {chip.clusters - 1} of {chip.name}"
        raise TargetError(name, needs=needs, has=f"{cores} of cluster {cluster}")


def time_artifact(artifact: Artifact, chip: Chip, target: Target, name: str, warm: bool = False) -> RunTime:
    """Time all programs of an artifact; those of several clusters share what belongs to the whole chip. Raises
    TargetError for an artifact or a target without machine code that can be timed.
    """
    require_machine_code(artifact.manifest, name)
    made_for = artifact.manifest.chip
    warnings = _other_chip(MadeFor(made_for.isa, made_for.name, made_for.hash, 0, 0), chip, name)
    programs: list[TimedProgram] = []
    for entry, files in zip(artifact.manifest.programs, artifact.clusters, strict=True):
        executable = files.files[files.executable]
        _require_cores(entry.cores, entry.cluster, chip, f"{name}/{entry.execution.file}")
        file = f"{name}/{entry.execution.file}"
        streams = _trace(target, executable, entry.cores, chip, entry.cluster, file, warm)
        if warnings:
            _require_memories(streams, chip, name)
        # Clusters mostly run one program, each in its own memory: equal programs are timed once.
        equal = next((program for program in programs if same_streams(program.streams, streams)), None)
        if equal is None:
            timeline = time_streams(streams, chip, len(artifact.manifest.programs))
            programs.append(TimedProgram(entry.execution.file, entry.cluster, timeline, entry.passes, streams))
        else:
            programs.append(replace(equal, elf=entry.execution.file, cluster=entry.cluster, passes=entry.passes))
    batch = artifact.manifest.batch
    return RunTime(name, chip.name, chip.clock_hz, batch, tuple(programs), warnings, artifact)


def _trace(
    target: Target, elf: bytes, cores: int, chip: Chip, cluster: int, name: str, warm: bool
) -> tuple[TimedStream, ...]:
    """The target's trace. Raises TargetError for a warm one where no cache keeps code."""
    timed = require_timeable(target, name)
    if warm:
        if not isinstance(target, KeepsCode) or chip.instruction_cache is None:
            change = "leave --warm out, or give the scalar engine of the chip file an instruction_cache"
            raise TargetError(name, needs="cores with an instruction cache", has=f"{chip.name} without", change=change)
        again = target
        return _named(name, lambda: again.trace_again(elf, cores, chip, cluster))
    return _named(name, lambda: timed.trace(elf, cores, chip, cluster))


def _named(name: str, ask: Callable[[], Made]) -> Made:
    """The target's answer. It knows only the bytes, so its errors are completed with the file's name."""
    try:
        return ask()
    except TargetError as error:
        who = f"{name}, {error.who}"
        raise TargetError(who, needs=error.needs, has=error.has, change=error.change) from error
