"""Definition of a target: read this before you write one. `codegen.target_registry` finds the target for a chip.

A target is one object; its kind says what its kernels are:

    TileTarget    tiles on in-order cores:     Plan --lower--> Program --emit--> machine code
    GroupTarget   whole groups of layers:      Plan --emit_plan--> kernels and the order of their launches

`CAPABILITIES` is the table of all members: those of every target, those of each kind, and those that a target may lack.
A command that needs one of the last says which target lacks it. The members are described in protocols, each next to
its callers: here, in `partitioner/ir/target.py` (plans of tiles), `partitioner/ir/kernels.py` (plans of groups) and
`isched/program/target.py` (programs). A target needs no base class, and a member may be a function of another file, by
`staticmethod`.

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
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from codegen.judgement import Array, Judgement, Sampled
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.program import Program, TensorPlacement
from isched.program.target import (
    ChoosesForms,
    EmulatesPrepared,
    LowerTarget,
    MovesOperands,
    Prepares,
    Schedulable,
    Timeable,
)
from isched.program.timed_ops import TimedStream
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import KernelTarget
from partitioner.ir.plan import Plan
from partitioner.ir.target import (
    AcceptingTarget,
    AddsInRuns,
    CountsIssue,
    JudgesPrepared,
    KeepsSome,
    PacksWeights,
    PlanTarget,
)

# Members of every target.


class AnyTarget(AcceptingTarget, Protocol):
    """Members of targets of every kind."""

    @property
    def data_base_bytes(self) -> int:
        """Offset in the main memory from which tensors may be placed."""

    @property
    def judgement(self) -> Judgement:
        """Whether `emulate` gives the bits of every run, or the bound within which a run is right."""

    def unsuited(self, chip: Chip) -> tuple[str, ...]:
        """Requirements of the chip file that the instruction set cannot meet, one sentence each; empty when it
        suits."""

    def operators(self) -> tuple[tuple[str, str], ...]:
        """Operator kinds that it computes, each with its rules in a sentence or two, for a reader."""

    def address(self, memory: str, offset_bytes: int) -> int:
        """Address of a byte of a memory, as the program's loader or simulator addresses it."""

    def emulate(self, sampled: Sampled) -> Array:
        """Elements of the layer's output that the chip must have stored at the positions of `sampled`.

        Computed without the simulator, from the layer's inputs as `sampled.read` gives them; its `errors` are not used.
        An exact target gives elements of the output's type, whose bits count; a target with a bound gives float64
        numbers that are not rounded to that type. Inputs whose NaNs carry other payloads than the chip's own are
        outside this promise."""

    def run(
        self, files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int
    ) -> Execution:
        """Run the executable on the target's own simulator. Raises TargetError with core, pc and operator when the run
        fails."""


# Targets of in-order cores.


@runtime_checkable
class TileTarget(LowerTarget, AnyTarget, Protocol):
    """A target for in-order cores: layers are cut into tiles, tiles become instructions, instructions machine code."""

    def emit(self, program: Program, graph: Graph, constants: Constants, chip: Chip) -> ClusterFiles:
        """Machine code of one cluster of the chip, with the executable. Raises DoesNotFit."""


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
        """The files that execute a plan on one cluster: code, constants, and the launches with their order and
        addresses. Views own no kernel. `progress` is told about finished work where that takes long. Raises DoesNotFit
        or TargetError."""


Target: TypeAlias = TileTarget | GroupTarget


# Capabilities that a target may lack.


@runtime_checkable
class NeedsParts(Protocol):
    """A target whose templates need parts or limits that a chip file may not give."""

    def lacking(self, chip: Chip) -> tuple[str, ...]:
        """Parts and limits that the templates need and the chip file does not give, one sentence each, all of them
        also in `unsuited`. Such a chip is planned for by its costs alone."""


@runtime_checkable
class NamesMemories(Protocol):
    """A target whose instruction set has names of its own for memories."""

    def named_for(self, chip: Chip) -> Target:
        """The target that takes and gives the names of the chip file."""


@runtime_checkable
class Tabulates(Protocol):
    """A target that looks some functions of one operand up in tables."""

    def table_for(self, graph: Graph, op: Op, chip: Chip) -> Array | None:
        """A table [entries] of the operator's function, by the bits of its operand, where a lookup is better on the
        chip, else None. It depends on the operator's kind, an item's elements and the chip alone: not on level, tiling
        or batch."""


@runtime_checkable
class Rolls(Protocol):
    """A target whose machine code may have loops, and one text for all cores, instead of one instruction after the
    other."""

    def emit_rolled(self, program: Program, graph: Graph, constants: Constants, chip: Chip) -> ClusterFiles:
        """Machine code as from `TileTarget.emit`: the same instructions for each engine of each core, in the same
        order."""


@runtime_checkable
class KeepsCode(Protocol):
    """A target whose cores keep code in instruction caches."""

    def trace_again(self, executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
        """Streams as from `Timeable.trace`, of a run that finds the caches as the previous run has left them."""


@runtime_checkable
class Identifies(Protocol):
    """A target whose executables say for which chip, cores and cluster they were made."""

    def made_for(self, executable: bytes) -> MadeFor | None:
        """The chip, cores and cluster that an executable names; None where it names none. Raises TargetError."""


@runtime_checkable
class Simulates(Identifies, Protocol):
    """A target with a simulator of its instruction set, for programs of any compiler."""

    def simulate(self, program: Path, run: SimulatorRun) -> int:
        """Run an executable and return its exit code; its output goes to standard error. Raises TargetError before
        anything is written."""


@runtime_checkable
class Disassembles(Protocol):
    """A target that lists machine code for a reader."""

    def disassemble(self, executable: bytes) -> Iterator[str]:
        """The lines of a listing. Raises TargetError for bytes that are not a program of this instruction set."""


@runtime_checkable
class Measures(Protocol):
    """A target of whole groups whose kernels can be timed on a device of this machine."""

    def open_device(self) -> Measurer:
        """Open the device. Raises TargetError, one sentence, where there is none."""


@runtime_checkable
class Calibrates(Protocol):
    """A target that has programs by which the numbers of a chip file can be measured, and `Timeable` to predict
    them."""

    def benchmarks(self, chip: Chip) -> tuple[Benchmark, ...]:
        """Micro-benchmarks for the chip, each with a name of its own. They depend on counts, sizes and limits of the
        chip file, not on its latencies and bandwidths. Equal chips give equal programs."""


# The table.


@dataclass(frozen=True, slots=True)
class Capability:
    """Members that belong together, the protocol that describes them, and the commands that ask for them."""

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
    # Members of targets that can.
    Capability(NamesMemories, ("named_for",), "chips with other names of memories than those of the instruction set"),
    Capability(NeedsParts, ("lacking",), "chip check; plans of chips that lack parts go by their costs alone"),
    Capability(Timeable, ("issue_costs", "trace"), "time, timeline, and level auto, which compares programs by them"),
    Capability(CountsIssue, ("dma_start_instructions",), "compile, explain: what the cost model counts of a transfer"),
    Capability(Schedulable, ("broadcast",), "compile --schedule, with Timeable"),
    Capability(KeepsCode, ("trace_again",), "time --warm"),
    Capability(Rolls, ("emit_rolled",), "compile --roll"),
    Capability(KeepsSome, ("keeps_in", "keeps"), "levels above O0 where only some values may stay in a core"),
    Capability(MovesOperands, ("lower_moving",), "tiles that bring their operands and leave their results themselves"),
    Capability(ChoosesForms, ("in_fastest_forms",), "compile: layers of which the target has several forms of code"),
    Capability(EmulatesPrepared, ("emulate_prepared",), "models with integers before or after the layers"),
    Capability(Prepares, ("prepare", "look_up"), "the same, where cores compute them"),
    Capability(JudgesPrepared, ("refuses_prepared",), "the same, where only some of these operators can be done"),
    Capability(Tabulates, ("table_for",), "functions in tables: the frontend makes each a constant of the graph"),
    Capability(PacksWeights, ("packs_weights",), "weights in int8 where values stay in floating point"),
    Capability(AddsInRuns, ("product_runs",), "hidden values that find no room, computed in chunks"),
    Capability(Identifies, ("made_for",), "time, iss: whose an executable is"),
    Capability(Simulates, ("simulate",), "iss, with Identifies"),
    Capability(Disassembles, ("disassemble",), "disasm"),
    Capability(Measures, ("open_device",), "compile --tune"),
    Capability(Calibrates, ("benchmarks",), "calibrate, with Timeable"),
)
"""All members of targets, in the order in which a compilation asks for them."""


# Their arguments and results.


class OtherProgram(TargetError):
    """Machine code in a form that the target does not read, so that the refusal of another target says more."""


ELF = "elf"
"""Kind of execution of machine code: place the inputs, run the executable to its end, read the outputs."""

EXECUTION_KIND = r"^[a-z][a-z0-9_-]{0,31}$"
"""Pattern of kinds of execution."""


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """Result of emission for one cluster: files by their paths inside the cluster's folder, with "/" between parts of a
    path. `executable` is the key in `files` from which execution starts; `cores` is the number of cores that start, 0
    where the hardware places the work."""

    cores: int
    executable: str
    files: Mapping[str, bytes]
    cluster: int = 0


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A micro-benchmark: programs of one cluster, or of several that do the same at the same time.

    `measures` says in words what it does. `isolates` are paths in the chip file of the numbers that its cycles depend
    on most; `counters` are the counters to read, `cycles` among them."""

    name: str
    measures: str
    files: tuple[ClusterFiles, ...]
    isolates: tuple[str, ...]
    counters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Execution:
    """One run: memory read afterwards by (address, bytes), instructions by engine, bytes moved by "from->to"."""

    memory: Mapping[tuple[int, int], bytes]
    instructions: Mapping[str, int]
    moved_bytes: Mapping[str, int]


@dataclass(frozen=True)
class TensorPlaces:
    """Places of tensors in the main memory, for emission without a `Program`.

    A kernel reads each value where `read` says and leaves it where `written` says: these differ where every layer is
    judged by itself, on copies of its inputs."""

    placements: tuple[TensorPlacement, ...]

    def read(self, tensor: str) -> TensorPlacement:
        """Place to read a tensor from. Raises KeyError for a tensor that does not lie in the main memory."""
        return self._reads[tensor]

    def written(self, tensor: str) -> TensorPlacement:
        """Place to write a tensor to. Raises KeyError for a tensor that does not lie in the main memory."""
        return self._writes[tensor]

    @cached_property
    def _writes(self) -> dict[str, TensorPlacement]:
        return {place.tensor: place for place in self.placements if place.kind != "probe"}

    @cached_property
    def _reads(self) -> dict[str, TensorPlacement]:
        return self._writes | {place.of: place for place in self.placements if place.kind == "probe"}


@dataclass(frozen=True, slots=True)
class MadeFor:
    """Identity of an executable's machine: names and hash of the chip, the cores that start, the cluster."""

    isa: str
    chip: str
    chip_hash: str
    cores: int
    cluster: int

    def elsewhere(self, cores: int, cluster: int) -> tuple[str, ...]:
        """Sentences for a user who runs it on other cores."""
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
    """A run of any program on a simulator: its cores, the files in memory, and the dumps that are written to
    `dump_path` afterwards. With `poison` memory starts as unwritten; `trace` gets one line per instruction: its text,
    or, with `trace_format` commit, what it has written. With `gdb_port`, a debugger on that port drives the run."""

    cores: int
    cluster: int
    loads: tuple[FileLoad, ...] = ()
    dumps: tuple[MemoryDump, ...] = ()
    dump_path: Path = Path()
    max_instructions: int | None = None
    trace: Path | None = None
    poison: bool = False
    seed: int = 0
    trace_format: Literal["text", "commit"] = "text"
    gdb_port: int | None = None


class Measurer(Protocol):
    """An open device that measures the times of the files of `emit_plan`."""

    @property
    def identity(self) -> str:
        """Everything except the files on which times depend: the device, its driver, the compiler."""

    def parts(self, files: ClusterFiles) -> tuple[str, ...]:
        """For each group that has a kernel, in the order of the plan's steps, a hash of everything that is started for
        it: sources, parameters, number of threads."""

    def times_ns(self, files: ClusterFiles) -> tuple[int, ...]:
        """Time of each of these groups in nanoseconds. Raises TargetError where it cannot be run."""

    def close(self) -> None:
        """Give the device back."""


def piece_symbol(core: int, number: int, operator: str) -> str:
    """Name in machine code of a piece of a core's code that serves an operator."""
    return f"core{core}.{number:04d}.{symbol_of(operator)}"


def served_by(symbol: str) -> str:
    """The operator, as `symbol_of` writes it, of a piece of code; empty for symbols of other things."""
    core, _, rest = symbol.partition(".")
    number, _, name = rest.partition(".")
    return name if core.startswith("core") and number.isdigit() else ""


def symbol_of(operator: str) -> str:
    """An operator's name in the form that targets write into the symbols of machine code."""
    return re.sub(r"[^A-Za-z0-9_.$]", "_", operator)[:80] or "_"
