"""Kernels that are whole groups of layers, and the questions that a planner asks of a target that has them.

    target, layers --kernels--> candidates: template, parameters, what they occupy, how long they take at least
    Kernel.text    --the plan's `Group.kernel`--> read_kernel --> template and parameters, for emission

Where a target computes tile by tile on in-order cores, plans cut layers for it (`partitioner.ir.target`). Here the
target offers kernels for a set of layers, or none, and the plan only chooses sets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from hw_models.chip import Chip
from hw_models.errors import PlanError
from hw_models.parts import KernelRate
from hw_models.routes import floor_names
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.target import AcceptingTarget

NAME = "[A-Za-z_][A-Za-z0-9_.]*"
TEXT = re.compile(rf"({NAME})(?:\(({NAME}=[A-Za-z0-9_.+-]+(?:, {NAME}=[A-Za-z0-9_.+-]+)*)\))?")
NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class KernelFloor:
    """Seconds that the memory or unit `name` of the chip needs at least for a kernel, all its launches together; `work`
    gives the bytes or operations behind the seconds, for a reader."""

    name: str
    seconds: float
    work: str = ""


@dataclass(frozen=True, slots=True)
class KernelSpeed:
    """How long kernels of a kind take, as measured: seconds of each launch beyond those of an empty one, and how many
    times the floor of a memory or unit counts; floors that are not named count nothing. `error` is a share. Kernels of
    `template` were measured, which may be another than that of the kernel for which they count."""

    template: str
    start_seconds: float
    times: tuple[tuple[str, float], ...]
    error: float


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute a group of layers as a whole: a template of the target with its parameters.

    `tile` are the extents that one block of the hardware's grid computes along each axis of the group's output. It is
    () where one block computes everything, or where a block's part is not a box: then `blocks` is the grid as launched.
    `resources` are those that a block occupies, by the chip's own names (bytes of shared memory, registers of a
    thread). The kernel is started `launches` times, each of which costs `launch_seconds`. `values` are the bytes of
    each value, constants too, that it reads from the main memory or leaves there, as the floor of that memory counts
    them; () where the target does not give them. `measured` is what the chip file knows of kernels of this kind.
    """

    template: str
    parameters: tuple[tuple[str, int | str], ...] = ()
    tile: tuple[int, ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    launches: int = 1
    launch_seconds: float = 0.0
    floors: tuple[KernelFloor, ...] = ()
    blocks: tuple[int, ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    measured: KernelSpeed | None = None

    def __post_init__(self) -> None:
        """Raises PlanError for a kernel whose text could not be read back, and for zero launches or negative times."""
        named = dict(self.parameters)
        if len(named) < len(self.parameters) or read_kernel(self.text) != (self.template, named):
            raise PlanError(f"kernel {self.text}", needs="names, each once, and values of letters, digits, '_' and '.'")
        if self.launches < 1 or self.launch_seconds < 0 or any(not floor.seconds >= 0 for floor in self.floors):
            raise PlanError(f"kernel {self.text}", needs="a launch or more and times that are not negative")

    @property
    def text(self) -> str:
        """`template(name=value, ...)`, the name of the kernel in the plan."""
        values = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.template}({values})" if values else self.template

    @property
    def busiest(self) -> KernelFloor | None:
        """The largest floor; None where the target gives none."""
        return max(self.floors, key=lambda floor: floor.seconds, default=None)

    @property
    def binding(self) -> KernelFloor | None:
        """The floor that takes most of the time: the busiest memory or unit, or else the launches. None where the
        target gives neither."""
        launching = KernelFloor("launch", self.launches * self.launch_seconds)
        if self.busiest is None:
            return launching if launching.seconds else None
        return launching if launching.seconds > self.busiest.seconds else self.busiest

    @property
    def seconds(self) -> float:
        """Seconds that the kernel is expected to take where kernels of its kind were measured. Else the fewest: its
        launches, and the need of its busiest unit or memory, below which nothing is expected either."""
        fewest = self.launches * self.launch_seconds + (self.busiest.seconds if self.busiest else 0.0)
        if self.measured is None:
            return fewest
        times = dict(self.measured.times)
        work = sum(times.get(floor.name, 0.0) * floor.seconds for floor in self.floors)
        return max(fewest, self.launches * (self.launch_seconds + self.measured.start_seconds) + work)

    @property
    def error(self) -> float:
        """Share by which `seconds` may be wrong, as far as that was measured."""
        return self.measured.error if self.measured else 0.0

    def grid(self, extents: tuple[int, ...]) -> tuple[int, ...]:
        """Blocks along each axis of an output of these extents."""
        if not self.tile:
            return (1,) * len(extents)
        return tuple(-(-extent // size) for extent, size in zip(extents, self.tile, strict=True))


@runtime_checkable
class KernelTarget(AcceptingTarget, Protocol):
    """The planner's view of a target whose kernels are whole groups."""

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        """Kernels that compute these layers together, in execution order; the fastest is not necessarily first. Empty
        where they cannot be fused. Each single layer of accepted operators has at least one."""


def with_speed(kernel: Kernel, chip: Chip) -> Kernel:
    """The kernel with what the chip file knows of its kind: the record that names the most of its parameters."""
    has = {(name, str(value)) for name, value in kernel.parameters}
    fitting = [rate for rate in chip.simt.kernels if rate.template == kernel.template and rate.named <= has]
    if not fitting:
        return kernel
    return replace(kernel, measured=_speed(max(fitting, key=lambda rate: len(rate.named)), chip))


def _speed(rate: KernelRate, chip: Chip) -> KernelSpeed:
    times = ((name, float(getattr(rate, role))) for role, name in floor_names(chip).items())
    return KernelSpeed(
        rate.template, 1e-6 * rate.start_us, tuple((name, many) for name, many in times if many), rate.error
    )


def repeated(kernel: Kernel, times: int) -> Kernel:
    """The kernel started this many times, each time on other data of the same size."""
    if times == 1:
        return kernel
    floors = tuple(KernelFloor(each.name, times * each.seconds, f"{times} times {each.work}") for each in kernel.floors)
    values = tuple((name, times * size) for name, size in kernel.values)
    return replace(kernel, launches=times * kernel.launches, floors=floors, values=values)


def read_kernel(text: str) -> tuple[str, Mapping[str, int | str]]:
    """Template and parameters of `Kernel.text`. Raises PlanError for another text."""
    found = TEXT.fullmatch(text)
    if found is None:
        raise PlanError(f"kernel {text!r}", needs="template(name=value, ...)")
    pairs = (pair.split("=", 1) for pair in (found[2] or "").split(", ") if pair)
    return found[1], MappingProxyType({name: _value(value) for name, value in pairs})


def _value(text: str) -> int | str:
    return int(text) if NUMBER.fullmatch(text) else text
