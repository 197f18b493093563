"""The data of an explanation: a row per group, and all that is said of the plan and its times.

Everything here is names and numbers, so that it can be kept with an artifact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from partitioner.cost.roofline import Floor, binding_floor
from partitioner.ir.decisions import Decision
from partitioner.ir.steps import MoveStep, RunStep


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


@dataclass(frozen=True, slots=True)
class LocalUse:
    """The fullest moment of a group in the local memory of a core: its own `values_bytes` and `tiles_bytes`, and the
    room left by values that wait for other groups.
    """

    values_bytes: int
    tiles_bytes: int
    tile_room_bytes: int
    layer: str

    @property
    def total_bytes(self) -> int:
        return self.values_bytes + self.tiles_bytes


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group that computes something. `letter` is its name in the order of instances, `operators` the kinds of its
    operators in order; `cuts` are (axis, points), `pieces` the ways in which its instances are divided among cores;
    `scopes` counts where outputs lie, by memory; `accumulator_bytes` is the largest part of a core's accumulators that
    tile buffers take, by memory.
    """

    name: str
    letter: str
    layers: tuple[str, ...]
    operators: tuple[str, ...]
    instances: int
    cuts: tuple[tuple[int, tuple[int, ...]], ...]
    pieces: tuple[tuple[int, ...], ...]
    cores: int
    scopes: Mapping[str, int]
    exchanges: tuple[str, ...]
    local: LocalUse
    accumulator_bytes: Mapping[str, int]
    moved_bytes: Mapping[str, int]
    macs: int
    recompute_share: float
    floors: tuple[Floor, ...]

    @property
    def binding(self) -> Floor:
        """The engine or memory for which the group needs the most cycles."""
        return binding_floor(self.floors)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan for a reader; bytes and cycles are those of the whole batch of one cluster. `tensors` counts stored values
    by memory, one per output of a layer in each instance; `order` holds run steps and moves. `serial_cycles` are those
    by the cost model if each core does one thing after the other, without the launch. Floors and these are estimates;
    `measured` has the times of the machine code by the cycle model, where there is any.
    """

    model: str
    chip: str
    level: str
    batch_per_cluster: int
    operators: int
    kernels: int
    groups: tuple[GroupFacts, ...]
    order: tuple[RunStep | MoveStep, ...]
    tensors: Mapping[str, int]
    peak_bytes: Mapping[str, int]
    capacity_bytes: Mapping[str, int]
    moved_bytes: Mapping[str, int]
    compulsory_bytes: int
    main_bytes: int
    redundant_bytes: int
    pinned: tuple[str, ...]
    recompute_share: float
    network_floors: tuple[Floor, ...]
    plan_floors: tuple[Floor, ...]
    serial_cycles: float
    decisions: tuple[Decision, ...]
    measured: MeasuredRun | None = None

    @property
    def instances(self) -> int:
        return sum(group.instances for group in self.groups)

    @property
    def phase_cycles(self) -> float:
        """Cycles when nothing of one group overlaps with another: each group's largest floor, added up."""
        return sum(group.binding.cycles for group in self.groups)
