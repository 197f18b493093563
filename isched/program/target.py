"""Requirements of lowering on a target beyond planning: instructions for one tile, for copies, for a barrier.

`Timeable` and `Schedulable` are further abilities that a target may have; code that needs one reports a target without
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from hw_models.chip import Chip
from isched.program.program import Instr, Program, Region
from isched.program.timed_ops import CoreIssue, TimedStream
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box
from partitioner.ir.target import PlanTarget, TileWork

DENSE: Mapping[str, int] = MappingProxyType({})
"""Pitches of buffers without any strided one."""


@dataclass(frozen=True, slots=True)
class MemoryCopy:
    """Bytes moved between two memories; both regions have the same rows and row bytes."""

    source: Region
    destination: Region


@dataclass(frozen=True, slots=True)
class RowRun:
    """Looked-up rows from number `first` of an operator's result on, dense, at `offset_bytes` of the staging memory."""

    first: int
    count: int
    offset_bytes: int


class LowerTarget(PlanTarget, Protocol):
    """The lowering's view of a target."""

    @property
    def barrier(self) -> str:
        """Opcode of the barrier that all cores of a cluster execute together."""

    def lower(
        self,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        box: Box,
        work: TileWork,
        offsets_bytes: Mapping[str, int],
        chip: Chip,
        pitches_bytes: Mapping[str, int] = DENSE,
    ) -> tuple[tuple[Instr, ...], ...]:
        """Instructions of each pass of `work`, without its loads; buffers lie at `offsets_bytes` of their memories.

        `pitches_bytes` gives, for buffers that `work` calls strided, the bytes between the starts of their rows; the
        others are dense. The written values do not depend on it. Bytes between the rows are not touched.

        The method is called for one of the images that are computed alike, see `work`."""

    def copy(self, copies: tuple[MemoryCopy, ...], source: str, chip: Chip) -> tuple[Instr, ...]:
        """Instructions of one core that move all copies; after the last of them all data have landed.

        `source` is the operator they serve. The copies do not overlap and may run in any order."""

    def synchronise(self, source: str) -> Instr:
        """The barrier instruction."""


class PlacedArray(Protocol):
    """A dense array over `box` at a place."""

    @property
    def memory(self) -> str: ...

    @property
    def offset_bytes(self) -> int: ...

    @property
    def box(self) -> Box: ...


@runtime_checkable
class MovesOperands(Protocol):
    """A target whose tiles bring their operands and leave their results by instructions of their own, because moving
    converts them. Values stay in a core from one layer to the next only as `KeepsSome` says."""

    def lower_moving(
        self,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        box: Box,
        offsets_bytes: Mapping[str, int],
        operands: Mapping[str, PlacedArray],
        result: PlacedArray,
        chip: Chip,
        held: frozenset[str],
    ) -> tuple[Instr, ...]:
        """Instructions of a tile, in place of those of `lower` and of copies: `operands` says where each tensor that
        the tile loads lies, `result` where the layer's output goes. Buffers lie at `offsets_bytes` of their memories.

        The tile before brought the same boxes of the tensors in `held` to the same buffers; they need not be brought
        again unless the target changed them there."""


@runtime_checkable
class ChoosesForms(Protocol):
    """A target that has several forms of code for a layer, of which the cycle model finds the fastest."""

    def in_fastest_forms(
        self, program: Program, graph: Graph, constants: Constants, layers: tuple[Layer, ...], chip: Chip
    ) -> Program:
        """The program, in which some layers are computed in another form, from and to the same places of the main
        memory, and the decisions about that."""


@runtime_checkable
class EmulatesPrepared(Protocol):
    """A target that computes operators on integers before and after the layers: how their results are judged."""

    def emulate_prepared(
        self, graph: Graph, op: Op, read: Callable[[str], npt.NDArray[np.generic]]
    ) -> npt.NDArray[np.generic]:
        """The values that the operator must have stored, computed slowly from its operands as stored."""


@runtime_checkable
class Prepares(EmulatesPrepared, Protocol):
    """A target whose cores compute them, and lookups by their results, in the main memory."""

    def prepare(self, graph: Graph, op: Op, places: Mapping[str, int], chip: Chip) -> tuple[Instr, ...]:
        """Instructions of one core for one of the graph's prepared operators, all of them over after the last one;
        `places` are offsets in the main memory."""

    def look_up(
        self, graph: Graph, op: Op, places: Mapping[str, int], runs: tuple[RowRun, ...], source: str, chip: Chip
    ) -> tuple[Instr, ...]:
        """Instructions of one core that bring some rows of the result of a `lookup` into the staging memory, for the
        operator `source`; after the last instruction all rows have landed."""


@runtime_checkable
class Timeable(Protocol):
    """A target whose programs the cycle model can time: it knows the cost of issuing, and can read its machine code."""

    def issue_costs(self, program: Program, chip: Chip) -> tuple[CoreIssue, ...]:
        """Scalar instructions that each core runs before, for and after each of its instructions, in this order."""

    def trace(self, executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
        """The streams that machine code means for each core, for the cycle model; read from the bytes alone. Raises
        TargetError."""


@runtime_checkable
class Schedulable(Protocol):
    """A target whose instructions may be put into another order that runs transfers ahead of the work that needs
    them."""

    def broadcast(self, instr: Instr, cores: tuple[int, ...]) -> Instr:
        """A copy from a shared memory that several cores make at the same time, each with its own instruction like this
        one: where the chip can, one that reads the bytes only once for all of them."""
