"""Frame of the families whose kernels compute several layers in one launch: what differs is the layers and the tiles.

layers of a group --layers_of--> FusedLayers --tiles--> a candidate per tile;  the plan's tile --launch--> Launch
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from codegen.cutlass.kernel.family import KernelWork, Parameters
from codegen.cutlass.kernel.floors import in_a_row, launch_seconds
from codegen.cutlass.kernel.launches import ComputedLaunch, Launch, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.chip import Chip
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel, KernelFloor, KernelSpeed, with_speed


class FusedTile(Protocol):
    """Work and size of a block of threads."""

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        """What tells the tile from others, for plans."""

    @property
    def threads(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...

    def registers(self, chip: Chip) -> int:
        """Largest number of registers of a thread."""


def plane_source(template: str, instruction: str, **words: str | int) -> Source:
    """A template whose products read planes of shared memory: a warp by itself ("mma"), or four together ("wgmma")."""
    grouped = instruction == "wgmma"
    shared = ("common.cuh", "primitives.cuh", "planes.cuh", *(("planes_wgmma.cuh",) if grouped else ()))
    multiply = "multiply_planes_group" if grouped else "multiply_planes"
    return Source(
        template, source_text(*shared) + filled(f"{template}.cu", GROUPED=grouped, MULTIPLY=multiply, **words)
    )


Tile = TypeVar("Tile", bound=FusedTile)


@dataclass(frozen=True, slots=True)
class FusedCosts:
    """Least times of a kernel, and its grid: `extents` of the result that a block computes, or the number of `blocks`
    where a block's part is not a box. It is started `launches` times. `finishing` are the floors of its last launch,
    where that is of another kind than those before it."""

    floors: tuple[KernelFloor, ...]
    extents: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    launches: int = 1
    finishing: tuple[KernelFloor, ...] = ()


class FusedLayers(Protocol[Tile]):
    """Layers in the form that a template takes."""

    def tiles(self) -> Iterable[Tile]:
        """Tiles that a block of the chip can hold."""

    def costs(self, tile: Tile) -> FusedCosts: ...
    def launch(self, tile: Tile, constants: Constants) -> Launch | ComputedLaunch | tuple[Launch, ...]: ...


@dataclass(frozen=True, slots=True)
class FusedFamily(Generic[Tile]):
    """A family of one template. `layers_of` is None for layers that it does not take together; at most `most_offered`
    candidates are offered, the fastest first, or all in the order of their tiles. Until its kernels are measured, rates
    of the template `like` count, and the error of all that were measured of it; those of a second one for the launch
    that finishes."""

    name: str
    layers_of: Callable[[KernelWork], FusedLayers[Tile] | None]
    most_offered: int | None = None
    like: tuple[str, ...] = ()

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        layers = self.layers_of(work)
        kernels = [self._candidate(tile, layers.costs(tile), work.chip) for tile in layers.tiles()] if layers else []
        if self.most_offered is not None:
            kernels = sorted(kernels, key=lambda kernel: with_speed(kernel, work.chip).seconds)
        return tuple(kernels[: self.most_offered])

    def _candidate(self, tile: Tile, costs: FusedCosts, chip: Chip) -> Kernel:
        kernel = Kernel(
            self.name,
            tile.parameters,
            costs.extents,
            (("shared_bytes", tile.shared_bytes), ("threads", tile.threads), ("registers", tile.registers(chip))),
            costs.launches,
            launch_seconds(chip),
            in_a_row(costs.floors, costs.finishing),
            costs.blocks,
        )
        rated = _rated_like(kernel, self.like[0], chip) if self.like else kernel
        return _finished_like(rated, costs, self.like[1], chip) if self.like[1:] else rated

    def launches(
        self, work: KernelWork, parameters: Parameters, constants: Constants
    ) -> tuple[Launch | ComputedLaunch, ...]:
        """The launches, of most templates only one. Raises TargetError for parameters that are never offered."""
        layers = self.layers_of(work)
        tiles = layers.tiles() if layers else ()
        tile = next((tile for tile in tiles if dict(tile.parameters) == dict(parameters)), None)
        if layers is None or tile is None:
            needs, has = "the parameters that it was offered with", str(dict(parameters))
            raise TargetError(f"kernel {self.name}", needs=needs, has=has)
        made = layers.launch(tile, constants)
        return made if isinstance(made, tuple) else (made,)


def _rated_like(kernel: Kernel, template: str, chip: Chip) -> Kernel:
    other = replace(kernel, template=template)
    speed, whole = (with_speed(each, chip).measured for each in (other, replace(other, parameters=())))
    return replace(kernel, measured=replace(speed, error=max(speed.error, whole.error)) if speed and whole else speed)


def _finished_like(kernel: Kernel, costs: FusedCosts, template: str, chip: Chip) -> Kernel:
    """The kernel with the rates that it has, those of `template` counting for its last launch."""
    first, last = kernel.measured, with_speed(replace(kernel, template=template, parameters=()), chip).measured
    if first is None or last is None:
        return replace(kernel, measured=None)
    rates = ((costs.floors, dict(first.times)), (costs.finishing, dict(last.times)))
    times = (
        (
            whole.name,
            sum(f.seconds * own.get(f.name, 0.0) for floors, own in rates for f in floors if f.name == whole.name)
            / whole.seconds,
        )
        for whole in kernel.floors
        if whole.seconds
    )
    start = ((costs.launches - 1) * first.start_seconds + last.start_seconds) / costs.launches
    speed = KernelSpeed(first.template, start, tuple(times), max(first.error, last.error))
    return replace(kernel, measured=speed)
