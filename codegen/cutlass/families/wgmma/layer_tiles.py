"""Tiles of wgmma_layer.cu: the part of a result that a block computes at a time, its size, registers and least time.

rows x filters, depth of 64 a step; two groups of four warps compute a tile together, or each its own
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.cutlass.families.fused.occupancy import REGISTERS_STEP, RESERVED_BYTES, thread_registers
from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor, shared_floor
from hw_models.chip import Chip
from partitioner.ir.kernels import KernelFloor

DEPTH = 64
"""Channels of a step: 128 bytes, the widest swizzle."""
GROUPS = 2
"""Groups of four warps that multiply; one more copies the image."""
GROUP_THREADS = 128
GROUP_ROWS = 64
BARRIERS_BYTES = 16
"""Of both mbarriers of a stage."""
ALIGNED_BYTES = 1024
"""Alignment of a stage, on which the swizzle depends."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A product of `rows` x (`taps` x `channels`) by as many x `filters`: pixels of a result, and what a window reads."""

    rows: int
    taps: int
    channels: int
    filters: int

    @property
    def steps(self) -> int:
        """Steps of depth of a tile."""
        return self.taps * -(-self.channels // DEPTH)


@dataclass(frozen=True, slots=True)
class WgmmaTile:
    """`rows` x `columns` of the result, by `share` of the two groups; `stages` steps in flight; `sharers` blocks on a
    core."""

    rows: int
    columns: int
    share: int
    stages: int
    sharers: int

    @property
    def name(self) -> str:
        """Name of the tile in plans."""
        return f"{self.rows}x{self.columns}"

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        return (("tile", self.name),)

    @property
    def threads(self) -> int:
        return GROUP_THREADS * (GROUPS + 1)

    @property
    def stage_bytes(self) -> int:
        """Bytes of both operands of a step, in fp16."""
        return 2 * DEPTH * (self.rows + self.columns)

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` of the template, in bytes."""
        return self.stages * (self.stage_bytes + BARRIERS_BYTES)

    @property
    def loader_registers(self) -> int:
        """Registers of a thread that copies, after it has given back the others: two for each row that it copies a part
        of, and the rest."""
        return 56 if self.sharers == 1 else 48

    def registers(self, chip: Chip) -> int:
        """Registers of a thread with which the kernel starts."""
        return thread_registers(chip, self.sharers, self.threads)

    def multiplier_registers(self, chip: Chip) -> int:
        """Registers of a thread that multiplies: those that the copying ones leave."""
        left = (GROUPS + 1) * self.registers(chip) - self.loader_registers
        return min(chip.simt.registers_per_thread, left // GROUPS) // REGISTERS_STEP * REGISTERS_STEP

    def fits(self, chip: Chip) -> bool:
        """Whether a core has the shared memory for as many blocks as share it."""
        size = chip.memory(chip.simt.shared_memory).size_bytes
        several = self.sharers * (self.shared_bytes + RESERVED_BYTES) <= size
        return several and self.shared_bytes <= chip.simt.shared_bytes_per_block

    def tiles(self, shape: LayerShape) -> tuple[int, int]:
        """Tiles along rows and filters."""
        return -(-shape.rows // self.rows), -(-shape.filters // self.columns)

    def blocks(self, shape: LayerShape, chip: Chip) -> int:
        """Blocks of the grid: no more than run at a time, each of which computes tile after tile."""
        down, across = self.tiles(shape)
        return min(down * across, self.sharers * chip.cores_per_cluster)

    def floors(self, shape: LayerShape, chip: Chip) -> tuple[KernelFloor, ...]:
        """Floors of the tensor cores, shared memory and the L2, with whole tiles and whole waves of them."""
        grid, steps = self.tiles(shape), shape.steps
        macs = self.rows * self.columns * DEPTH * steps
        operands = 2 * DEPTH * steps * self.rows // GROUP_ROWS * (GROUP_ROWS + self.columns)
        depth = shape.taps * shape.channels
        weights = DEPTH * steps * grid[1] * self.columns
        return (
            arithmetic_floor(chip, "tensor", macs, grid, chip.tensor.macs_per_cycle("wgmma", "float16")),
            shared_floor(chip, operands + steps * self.stage_bytes, grid[0] * grid[1]),
            cache_floor(chip, 2 * (grid[1] * shape.rows * depth + grid[0] * weights)),
        )


WGMMA_TILES: Sequence[WgmmaTile] = (
    WgmmaTile(128, 128, 1, 6, 1),
    WgmmaTile(128, 256, 2, 4, 1),
    WgmmaTile(256, 128, 2, 4, 1),
    WgmmaTile(64, 256, 1, 5, 1),
    WgmmaTile(128, 64, 1, 4, 2),
    WgmmaTile(64, 128, 1, 8, 1),
    WgmmaTile(64, 64, 1, 6, 2),
)
"""Large tiles read least through the L2, small ones give every core something to do. A thread has at most 128 sums."""
