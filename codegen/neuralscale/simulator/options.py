"""Request and result of a simulation: options, counts, and the state after the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from codegen.neuralscale.simulator.memory.faults import Fault, SimulationError

TraceFormat = Literal["text", "commit"]
CORES_PER_CLUSTER: Final = 8
CLUSTERS: Final = 4
DEFAULT_MAX_INSTRUCTIONS: Final = 10_000_000_000


@dataclass(frozen=True, slots=True, order=True)
class CodeRange:
    """Code [start, end) that belongs to `name`, for example an operator of the user's model."""

    start: int
    end: int
    name: str


@dataclass(frozen=True, slots=True)
class InitialBytes:
    """Bytes placed before the start. `core` is for L1 and IM, which every core has for itself."""

    address: int
    data: bytes | memoryview = field(repr=False)
    core: int | None = None


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Options of a run; the fields are the flags of `dsa-sched iss`.

    `trace` is a path or a function that gets one line per executed instruction: with `trace_format` commit, what it has
    written; `hartids` replaces 8 * cluster + index.
    """

    cores: int = 1
    cluster: int = 0
    loads: tuple[InitialBytes, ...] = ()
    max_instructions: int = DEFAULT_MAX_INSTRUCTIONS
    poison: bool = False
    seed: int = 0
    trace: Path | Callable[[str], None] | None = None
    trace_format: TraceFormat = "text"
    source_map: tuple[CodeRange, ...] = ()
    hartids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.cores <= CORES_PER_CLUSTER:
            raise SimulationError(f"cores is {self.cores}; a cluster has 1 to {CORES_PER_CLUSTER}")
        if not 0 <= self.cluster < CLUSTERS:
            raise SimulationError(f"cluster is {self.cluster}; the chip has clusters 0 to {CLUSTERS - 1}")
        if self.max_instructions < 1:
            raise SimulationError(f"max_instructions is {self.max_instructions}; it must be at least 1")
        if self.hartids and (len(self.hartids) != self.cores or len(set(self.hartids)) != self.cores):
            raise SimulationError(f"hartids {self.hartids} must be {self.cores} different numbers, one per core")
        if any(not 0 <= hart < CLUSTERS * CORES_PER_CLUSTER for hart in self.hartids):
            raise SimulationError(f"hartids {self.hartids} must be 0 to {CLUSTERS * CORES_PER_CLUSTER - 1}")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of executed instructions by mnemonic, by engine and by core; and bytes moved, by path such as ("DDR",
    "LLB")."""

    by_mnemonic: Mapping[str, int]
    by_engine: Mapping[str, int]
    by_core: tuple[int, ...]
    moved_bytes: Mapping[tuple[str, str], int]

    @property
    def instructions(self) -> int:
        """Instructions retired by all cores."""
        return sum(self.by_core)


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """End of a run. `exit_code` is the guest's own, or 125 or 126 with a `fault`; `console` is the guest's output."""

    exit_code: int
    fault: Fault | None
    counts: Counts
    console: tuple[str, ...]
    _read: Callable[[int, int, int | None], bytes] = field(repr=False)

    def read(self, address: int, size_bytes: int, core: int | None = None) -> bytes:
        """Memory after the run; `core` is for L1 and IM. Raises `SimulationError` when the range is not memory."""
        return self._read(address, size_bytes, core)
