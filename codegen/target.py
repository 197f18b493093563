"""The seam between the driver and targets: what a target is, and where to find the one for a chip.

A target is found by the chip's instruction set. Built-in ones are rows of `BUILTIN`, others come by an entry point of
the group `dsa_sched.targets` whose name is the instruction set. Targets are imported when asked for, not before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol, cast

from codegen.judgement import Array, Judgement, Points
from hw_models.chip import Chip
from isched.program.program import Program
from isched.program.target import LowerTarget
from isched.program.timed_ops import TimedStream
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.target import PlanTarget

__all__ = [
    "BUILTIN",
    "ENTRY_POINT_GROUP",
    "ClusterFiles",
    "Execution",
    "MadeFor",
    "Target",
    "find_target",
    "symbol_of",
    "target_members",
    "target_names",
]

BUILTIN: Mapping[str, str] = {"neuralscale-v1": "codegen.neuralscale.target:TARGET"}
"""Instruction set -> where its target lives."""

ENTRY_POINT_GROUP = "dsa_sched.targets"


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """What emission makes of one program, for one cluster: `executable` is a key of `files`."""

    cores: int
    executable: str
    files: Mapping[str, bytes]
    cluster: int = 0


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


@dataclass(frozen=True, slots=True)
class Execution:
    """One run: memory read afterwards by (address, bytes), instructions by engine, bytes moved by "from->to"."""

    memory: Mapping[tuple[int, int], bytes]
    instructions: Mapping[str, int]
    moved_bytes: Mapping[str, int]


class Target(LowerTarget, Protocol):
    """The driver's view of a target."""

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

    def emit(self, program: Program, graph: Graph, constants: Constants, chip: Chip) -> ClusterFiles:
        """Machine code of one cluster of the chip, which the executable names. Raises DoesNotFit."""

    def made_for(self, executable: bytes) -> MadeFor | None:
        """What an executable says that it was made for; None where it says nothing. Raises TargetError."""

    def emulate(
        self,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        points: Points,
        read: Callable[[str], Array],
        chip: Chip,
    ) -> Array:
        """What the chip must have stored of the layer's output at `points`, positions [S, rank] along device axes.

        Computed without the simulator from the layer's inputs as stored, which `read(name)` gives in device shape and
        type. An exact target gives elements of the output's type, whose bits count; one that gives a bound, the numbers
        without rounding to it, float64. `chip` is the one compiled for. Inputs whose NaNs carry other payloads than the
        chip's own are outside this promise."""

    def trace(self, executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
        """What machine code asks of each core, for the clock; read from the bytes alone. Raises TargetError."""

    def run(
        self, files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int
    ) -> Execution:
        """Run on the target's own simulator. Raises TargetError with core, pc and operator when the run fails."""


def symbol_of(operator: str) -> str:
    """An operator's name as targets write it into the symbols of machine code."""
    return re.sub(r"[^A-Za-z0-9_.$]", "_", operator)[:80] or "_"


def find_target(isa: str) -> Target | None:
    """The target for an instruction set, or None when nobody provides one."""
    if isa in BUILTIN:
        module, _, name = BUILTIN[isa].partition(":")
        return cast(Target, getattr(import_module(module), name))
    for point in entry_points(group=ENTRY_POINT_GROUP, name=isa):
        return cast(Target, point.load())
    return None


def target_names() -> tuple[str, ...]:
    """Instruction sets that something here can generate code for."""
    return tuple(sorted({*BUILTIN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))}))


def target_members() -> tuple[str, ...]:
    """Attributes and methods of a target, in the order of the protocols that define them."""
    protocols = (PlanTarget, LowerTarget, Target)
    return tuple(name for protocol in protocols for name in vars(protocol) if not name.startswith("_"))
