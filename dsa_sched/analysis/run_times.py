"""What a timed run says, without its instructions: small enough to be kept with an artifact.

RunTime, "stage", "group" or "operator" --run_times--> RunTimes --report.timed_run--> text or JSON
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsa_sched.analysis.language_model import LanguageFigures
from isched.timing.timeline import Overlap
from isched.timing.waiting_by_part import PartWaiting


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Cycles at work of one kind of engine, summed over cores; `utilisation` is their share of the time after the
    launch, `moved_bytes` what it moved."""

    name: str
    busy_cycles: float
    utilisation: float
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class ProgramTimes:
    """The sums of one program's timeline, for one pass. The four tuples have an entry per core; `critical_cycles` are
    those of the critical path by cause, `stall_cycles` those of the scalar cores by reason; `parts` are the parts of
    the network."""

    elf: str
    cluster: int
    passes: int
    instructions: int
    cycles: float
    launch_cycles: float
    engines: tuple[EngineTimes, ...]
    scalar_cycles: tuple[float, ...]
    fetched_lines: tuple[int, ...]
    fetch_cycles: tuple[float, ...]
    core_end_cycles: tuple[float, ...]
    stall_cycles: Mapping[str, float]
    critical_cycles: Mapping[str, float]
    overlaps: Mapping[str, Overlap]
    parts: tuple[PartWaiting, ...]

    @property
    def cores(self) -> int:
        """Number of cores."""
        return len(self.core_end_cycles)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """One run of everything, as a `RunTime` has it; the programs' parts are stages, groups or operators, as `by`
    says."""

    name: str
    chip: str
    clock_hz: int
    batch: int
    by: str
    programs: tuple[ProgramTimes, ...]
    warnings: tuple[str, ...] = ()
    language: LanguageFigures | None = None
    """What the run is for the user of a language model, where it is one."""

    @property
    def cycles(self) -> float:
        """Cycles until the last cluster is done with all its passes."""
        return max(program.passes * program.cycles for program in self.programs)

    @property
    def seconds(self) -> float:
        return self.cycles / self.clock_hz

    @property
    def items_per_second(self) -> float | None:
        return self.batch / self.seconds if self.batch and self.cycles else None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens that are read, of a language model."""
        return self.language.tokens / self.seconds if self.language is not None and self.cycles else None
