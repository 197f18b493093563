"""What a target is: the page to read before writing one. `codegen.target_registry` finds the target for a chip.

A target is one object, whose kind says what its kernels are:

    TileTarget    tiles on in-order cores:     Plan --lower--> Program --emit--> machine code
    GroupTarget   whole groups of layers:      Plan --emit_plan--> kernels and the order of their launches

`CAPABILITIES` is the table of all that a target may have: what every target has, what each kind has, and what it may
lack. A command that needs something of the last says who lacks what. The members are described in the protocols, which
stand where they are asked: here, in `partitioner/ir/target.py` (plans of tiles), `partitioner/ir/kernels.py` (plans of
groups) and `isched/program/target.py` (programs). A target needs no base class, and a member may be a function of
another file, by `staticmethod`.

The smallest targets that work are the toys of `tests/repo/test_one_place.py` (tiles) and
`tests/repo/test_group_target.py` (groups); `codegen/neuralscale/target.py` and `codegen/cutlass/target.py` are the real
ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from codegen.judgement import Array, Judgement, Sampled
from hw_models.chip import Chip
from isched.program.program import Program, TensorPlacement
from isched.program.target import LowerTarget, Prepares, Schedulable, Timeable
from isched.program.timed_ops import TimedStream
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import KernelTarget
from partitioner.ir.plan import Plan
from partitioner.ir.target import AcceptingTarget, AddsInRuns, JudgesPrepared, PlanTarget

# What every target has.


class AnyTarget(AcceptingTarget, Protocol):
    """What targets of every kind have."""

    @property
    def data_base_bytes(self) -> int:
        """Offset in the main memory from which tensors may be placed."""

    @property
    def judgement(self) -> Judgement:
        """Whether `emulate` says the bits of every run, or within what bound of it a run is right."""

    def unsuited(self, chip: Chip) -> tuple[str, ...]:
        """What the chip file asks for that the instruction set cannot do, a sentence each; empty when it suits."""

    def operators(self) -> tuple[tuple[str, str], ...]:
        """Operator kinds that it computes, each with the rules in a sentence or two, for a reader."""

    def address(self, memory: str, offset_bytes: int) -> int:
        """Where a byte of a memory is found by whoever runs the program."""

    def emulate(self, sampled: Sampled) -> Array:
        """What the chip must have stored of the layer's output at the positions of `sampled`.

        Computed without the simulator, from the layer's inputs as `sampled.read` gives them; its `errors` are not
        asked. An exact target gives elements of the output's type, whose bits count; one that gives a bound, the
        numbers without rounding to it, float64. Inputs whose NaNs carry other payloads than the chip's own are outside
        this promise."""

    def run(
        self, files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int
    ) -> Execution:
        """Run on the target's own simulator. Raises TargetError with core, pc and operator when the run fails."""


# Targets of in-order cores.


@runtime_checkable
class TileTarget(LowerTarget, AnyTarget, Protocol):
    """A target for in-order cores: layers are cut into tiles, tiles become instructions, these machine code."""

    def emit(self, program: Program, graph: Graph, constants: Constants, chip: Chip) -> ClusterFiles:
        """Machine code of one cluster of the chip, which the executable names. Raises DoesNotFit."""


# Targets of whole groups.


@runtime_checkable
class GroupTarget(KernelTarget, AnyTarget, Protocol):
    """A target whose kernels are whole groups of layers: a plan becomes kernels and the order in which they start."""

    @property
    def execution(self) -> str:
        """The kind of execution that its artifacts need, a word for manifests (`EXECUTION_KIND`), for example
        `launches`; not `elf`."""

    def emit_plan(
        self,
        plan: Plan,
        graph: Graph,
        constants: Constants,
        places: TensorPlaces,
        chip: Chip,
        progress: Callable[[str], None],
    ) -> ClusterFiles:
        """The files that execute a plan on one cluster: code, constants, and what to start when on which addresses.
        Views own no kernel. `progress` is told what is done where that takes long. Raises DoesNotFit or TargetError."""


Target: TypeAlias = TileTarget | GroupTarget


# Capabilities that a target may lack.


@runtime_checkable
class Tabulates(Protocol):
    """A target that looks some functions of one operand up in tables."""

    def table_for(self, graph: Graph, op: Op, chip: Chip) -> Array | None:
        """A table [entries] of the operator's function, by the bits of its operand, where the chip does better to look
        it up, else None. Of the operator's kind, an item's elements and the chip alone: not of level, tiling or batch.
        """


@runtime_checkable
class Rolls(Protocol):
    """A target whose machine code may have loops, and one text for all cores, in place of an instruction after the
    other."""

    def emit_rolled(self, program: Program, graph: Graph, constants: Constants, chip: Chip) -> ClusterFiles:
        """As `TileTarget.emit`: the same instructions for each engine of each core, in the same order."""


@runtime_checkable
class KeepsCode(Protocol):
    """A target whose cores keep code in instruction caches."""

    def trace_again(self, executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
        """As `Timeable.trace`, of a run that finds in the caches what the run before it has left there."""


@runtime_checkable
class Identifies(Protocol):
    """A target whose executables say for which chip, cores and cluster they were made."""

    def made_for(self, executable: bytes) -> MadeFor | None:
        """What an executable says that it was made for; None where it says nothing. Raises TargetError."""


@runtime_checkable
class Simulates(Identifies, Protocol):
    """A target with a simulator of its instruction set, for programs of any compiler."""

    def simulate(self, program: Path, run: SimulatorRun) -> int:
        """Run an executable and return its exit code; what it prints goes to standard error. Raises TargetError before
        anything is written."""


@runtime_checkable
class Disassembles(Protocol):
    """A target that lists machine code for a reader."""

    def disassemble(self, executable: bytes) -> Iterator[str]:
        """The lines of a listing. Raises TargetError for bytes that are no program of this instruction set."""


@runtime_checkable
class Measures(Protocol):
    """A target of whole groups whose kernels can be timed where their device is at hand."""

    def open_device(self) -> Measurer:
        """Raises TargetError, one sentence, where there is no device."""


# The table.


@dataclass(frozen=True, slots=True)
class Capability:
    """Members that belong together, the protocol that describes them, and what asks for them."""

    protocol: type
    members: tuple[str, ...]
    asked_by: str


CAPABILITIES = (
    # Every target.
    Capability(AcceptingTarget, ("name", "wants", "accepts", "can_fuse_epilogue"), "all that reads a model for it"),
    Capability(AnyTarget, ("data_base_bytes", "judgement", "unsuited", "operators"), "compile, verify, ops"),
    Capability(AnyTarget, ("address", "emulate", "run"), "run, verify"),
    # Every target of in-order cores.
    Capability(PlanTarget, ("granularity", "whole_axes", "work"), "compile, explain: plans"),
    Capability(LowerTarget, ("barrier", "lower", "copy", "synchronise"), "compile: programs"),
    Capability(TileTarget, ("emit",), "compile: machine code"),
    # Every target of whole groups.
    Capability(KernelTarget, ("kernels",), "compile, explain: plans"),
    Capability(GroupTarget, ("execution", "emit_plan"), "compile: files"),
    # Targets that can.
    Capability(Timeable, ("issue_costs", "trace"), "time, timeline, and level auto, which compares programs by them"),
    Capability(Schedulable, ("broadcast",), "compile --schedule, with Timeable"),
    Capability(KeepsCode, ("trace_again",), "time --warm"),
    Capability(Rolls, ("emit_rolled",), "compile --roll"),
    Capability(Prepares, ("prepare", "look_up", "emulate_prepared"), "models with integers before or after the layers"),
    Capability(JudgesPrepared, ("refuses_prepared",), "the same, where only some of these operators can be done"),
    Capability(Tabulates, ("table_for",), "functions in tables: the frontend makes each a constant of the graph"),
    Capability(AddsInRuns, ("product_runs",), "hidden values that find no room, computed in chunks"),
    Capability(Identifies, ("made_for",), "time, iss: whose an executable is"),
    Capability(Simulates, ("simulate",), "iss, with Identifies"),
    Capability(Disassembles, ("disassemble",), "disasm"),
    Capability(Measures, ("open_device",), "compile --tune"),
)
"""All that a target may have, in the order in which a compilation asks for it."""


# What they are given and give.


ELF = "elf"
"""The kind of execution of machine code: place the inputs, run the executable to its end, read the outputs."""

EXECUTION_KIND = r"^[a-z][a-z0-9_-]{0,31}$"
"""How kinds of execution are written."""


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """What emission makes for one cluster: files by their paths inside the cluster's folder, parts of a path apart by
    "/". `executable` is a key of `files`, that from which execution starts; `cores` is how many start, 0 where the
    hardware places the work."""

    cores: int
    executable: str
    files: Mapping[str, bytes]
    cluster: int = 0


@dataclass(frozen=True, slots=True)
class Execution:
    """One run: memory read afterwards by (address, bytes), instructions by engine, bytes moved by "from->to"."""

    memory: Mapping[tuple[int, int], bytes]
    instructions: Mapping[str, int]
    moved_bytes: Mapping[str, int]


@dataclass(frozen=True)
class TensorPlaces:
    """Where tensors lie in the main memory, for emission without a `Program`.

    A kernel reads each value where `read` says and leaves it where `written` says: these differ where every layer is
    judged by itself, on copies of its inputs."""

    placements: tuple[TensorPlacement, ...]

    def read(self, tensor: str) -> TensorPlacement:
        """Raises KeyError for a tensor that does not lie in the main memory."""
        return self._reads[tensor]

    def written(self, tensor: str) -> TensorPlacement:
        """Raises KeyError for a tensor that does not lie in the main memory."""
        return self._writes[tensor]

    @cached_property
    def _writes(self) -> dict[str, TensorPlacement]:
        return {place.tensor: place for place in self.placements if place.kind != "probe"}

    @cached_property
    def _reads(self) -> dict[str, TensorPlacement]:
        return self._writes | {place.of: place for place in self.placements if place.kind == "probe"}


@dataclass(frozen=True, slots=True)
class MadeFor:
    """What an executable says that it was made for: names and hash of the chip, the cores that start, the cluster."""

    isa: str
    chip: str
    chip_hash: str
    cores: int
    cluster: int

    def elsewhere(self, cores: int, cluster: int) -> tuple[str, ...]:
        """What to say to a user who runs it on other cores."""
        if (cores, cluster) == (self.cores, self.cluster):
            return ()
        made = f"{self.cores} cores of cluster {self.cluster}"
        return (f"compiled for {made}, runs on {cores} of cluster {cluster}",)


class FileLoad(Protocol):
    """Bytes of `file` to put at `address` before the start; `core` for private memory."""

    @property
    def core(self) -> int | None: ...
    @property
    def address(self) -> int: ...
    @property
    def file(self) -> Path: ...


class MemoryDump(Protocol):
    """`size_bytes` at `address` to write to a file after the end; `core` for private memory."""

    @property
    def core(self) -> int | None: ...
    @property
    def address(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SimulatorRun:
    """How any program is to be run on a simulator: on which cores, with which files in memory, and what is written
    afterwards to `dump_path`. With `poison` memory starts as unwritten; `trace` gets one line an instruction."""

    cores: int
    cluster: int
    loads: tuple[FileLoad, ...] = ()
    dumps: tuple[MemoryDump, ...] = ()
    dump_path: Path = Path()
    max_instructions: int | None = None
    trace: Path | None = None
    poison: bool = False
    seed: int = 0


class Measurer(Protocol):
    """A device, opened, that takes the times of what `emit_plan` made."""

    @property
    def identity(self) -> str:
        """All that times depend on beside the files: the device, its driver, the compiler."""

    def parts(self, files: ClusterFiles) -> tuple[str, ...]:
        """For each group that has a kernel, in the order of the plan's steps, a hash of all that is started for it:
        sources, parameters, how many threads."""

    def times_ns(self, files: ClusterFiles) -> tuple[int, ...]:
        """For each of these what it takes. Raises TargetError where it cannot be run."""

    def close(self) -> None:
        """Gives the device back."""


def symbol_of(operator: str) -> str:
    """An operator's name as targets write it into the symbols of machine code."""
    return re.sub(r"[^A-Za-z0-9_.$]", "_", operator)[:80] or "_"
