"""Tiles of wgmma_layer.cu: the part of a result that a block computes at a time, its size, registers and least time.

rows x filters, depth of 64 a step; two groups of four warps compute a tile together, or each its own by turns
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from codegen.cutlass.families.fused.occupancy import REGISTERS_STEP, RESERVED_BYTES, thread_registers
from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor, lanes_floor, shared_floor
from hw_models.chip import Chip
from partitioner.ir.kernels import KernelFloor

DEPTH = 64
"""Channels of a step: 128 bytes, the widest swizzle."""
ROW_BYTES = 2 * DEPTH
GROUPS = 2
"""Groups of four warps that multiply; one more copies the image."""
GROUP_THREADS = 128
GROUP_ROWS = 64
BARRIER_BYTES = 8
OTHER_REGISTERS = 40
"""Registers of a multiplying thread for addresses and the rest."""
STATISTICS_COLUMNS = 16
"""Products of an element for its row's sum and sum of squares: eight rows in the place of sixteen, times each other."""
SUM_OPERATIONS = 4
"""Of a sum outside the tensor cores: it begins with the bias, something is added, activated, and rounded. A layer that
does less is counted the same: the floor is at most 0.35 of the time of any that was measured."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A product of `rows` x (`taps` x `channels`) by as many x `filters`: pixels of a result, what windows read."""

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
    core. The steps of a tile are divided among `parts` blocks, each of which leaves its sums in fp32."""

    rows: int
    columns: int
    share: int
    stages: int
    sharers: int
    parts: int = 1

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        parts = (("parts", self.parts),) if self.parts > 1 else ()
        return (("tile", self.name), *parts)

    @property
    def threads(self) -> int:
        return GROUP_THREADS * (GROUPS + 1)

    @property
    def stage_bytes(self) -> int:
        """Bytes of both operands of a step, in fp16."""
        return ROW_BYTES * (self.rows + self.columns)

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` of the template, in bytes."""
        return self.stages * (self.stage_bytes + 2 * BARRIER_BYTES) + GROUPS * BARRIER_BYTES

    @property
    def loader_registers(self) -> int:
        """Registers of a thread that copies, after it has given back the others: two for each row that it copies a part
        of, and the rest."""
        if self.sharers > 1:
            return 48
        return 72 if self.rows > 128 else 56

    def registers(self, chip: Chip) -> int:
        """Registers of a thread with which the kernel starts."""
        return thread_registers(chip, self.sharers, self.threads)

    def multiplier_registers(self, chip: Chip) -> int:
        """Registers of a thread that multiplies: those that the copying ones leave."""
        left = (GROUPS + 1) * self.registers(chip) - self.loader_registers
        return min(chip.simt.registers_per_thread, left // GROUPS) // REGISTERS_STEP * REGISTERS_STEP

    def rows_ahead(self, chip: Chip) -> int:
        """Rows of the result of a multiplying thread for which it has registers for what is added to them while it
        multiplies."""
        rows, columns = 2 * self.rows // self.share // GROUP_ROWS, self.columns // 8
        free = self.multiplier_registers(chip) - 2 * rows * columns - OTHER_REGISTERS
        return max(0, min(rows, free // columns))

    def fits(self, chip: Chip) -> bool:
        """Whether a core has the shared memory for as many blocks as share it."""
        several = self.sharers * (self.shared_bytes + RESERVED_BYTES)
        whole = chip.memory(chip.simt.shared_memory).size_bytes
        return several <= whole and self.shared_bytes <= chip.simt.shared_bytes_per_block

    def tiles(self, shape: LayerShape) -> tuple[int, int]:
        """Tiles along rows and filters."""
        return -(-shape.rows // self.rows), -(-shape.filters // self.columns)

    def blocks(self, shape: LayerShape, chip: Chip) -> int:
        """Blocks of the grid: no more than run at a time, each of which computes tile after tile, or a part of one."""
        down, across = self.tiles(shape)
        return min(down * across * self.parts, self.sharers * chip.cores_per_cluster)

    def parts_bytes(self, shape: LayerShape) -> int:
        """Bytes of the sums that the parts leave."""
        return 4 * self.parts * shape.rows * shape.filters

    def floors(self, shape: LayerShape, chip: Chip, normalised: bool = False) -> tuple[KernelFloor, ...]:
        """Floors of the tensor cores, shared memory, the L2, and the CUDA cores behind the products, with whole tiles
        and whole waves of them. Statistics of rows that are `normalised` are products by `mma`, for which the image is
        read once more. The longest of several parts counts, of which no core has two (`split_tiles`)."""
        down, across = self.tiles(shape)
        area, behind = self.rows * self.columns, SUM_OPERATIONS * (1 + normalised)
        each_warp = area // chip.simt.warp_threads * behind
        steps = -(-shape.steps // self.parts)
        macs = self.rows * self.columns * DEPTH * steps
        operands = ROW_BYTES * steps * self.rows // GROUP_ROWS * (GROUP_ROWS + self.columns)
        found = ROW_BYTES * steps * self.rows * normalised
        weights = DEPTH * shape.steps * across * self.columns
        rate = chip.tensor.macs_per_cycle("wgmma", "float16")
        if normalised:
            slower = rate / chip.tensor.macs_per_cycle("mma", "float16")
            macs += round(slower * self.rows * STATISTICS_COLUMNS * DEPTH * steps)
        return (
            arithmetic_floor(chip, "tensor", macs, (down, across, self.parts), rate),
            shared_floor(chip, operands + found + steps * self.stage_bytes, down * across * self.parts),
            cache_floor(chip, 2 * (across * shape.taps * shape.rows * shape.channels + down * weights)),
            lanes_floor(chip, each_warp, area // self.share // GROUP_THREADS * behind, down * across * self.parts),
        )


TILES: Sequence[WgmmaTile] = (
    WgmmaTile(128, 256, 2, 4, 1),
    WgmmaTile(256, 128, 2, 4, 1),
    WgmmaTile(128, 128, 1, 6, 1),
    WgmmaTile(128, 96, 1, 7, 1),
    WgmmaTile(256, 64, 1, 5, 1),
    WgmmaTile(64, 256, 1, 5, 1),
    WgmmaTile(128, 64, 1, 4, 2),
    WgmmaTile(64, 128, 1, 8, 1),
    WgmmaTile(64, 64, 1, 6, 2),
    WgmmaTile(64, 32, 1, 8, 2),
)
"""Large tiles read least through the L2, small ones give every core something to do. A thread has at most 128 sums."""
LEAST_STEPS = 3
"""Fewest steps of a part: fewer are over before copies are under way."""


def layer_tiles(shape: LayerShape, chip: Chip) -> tuple[WgmmaTile, ...]:
    """Tiles that a core of the chip can hold, in order of preference among equally fast ones: those that leave the
    fewest cores idle, among these those that compute least beyond the result, and the largest of them."""

    def rank(tile: WgmmaTile) -> tuple[int, int, int]:
        down, across = tile.tiles(shape)
        area = tile.rows * tile.columns
        return max(0, chip.cores_per_cluster - down * across), down * across * area, -area

    return tuple(sorted((tile for tile in TILES if tile.fits(chip)), key=rank))


def split_tiles(shape: LayerShape, chip: Chip) -> tuple[WgmmaTile, ...]:
    """Tiles in parts, where whole ones would leave at least half of the cores idle: no core computes two parts."""
    return tuple(
        replace(tile, parts=parts)
        for tile in layer_tiles(shape, chip)
        for parts in _numbers_of_parts(shape.steps, chip.cores_per_cluster // prod(tile.tiles(shape)))
    )


def _numbers_of_parts(steps: int, most: int) -> Iterator[int]:
    """Numbers of parts, at most `most`, none of which has fewer than `LEAST_STEPS`: where the longest part is as long,
    the smallest number."""
    longest = steps
    for parts in range(2, min(most, steps // LEAST_STEPS) + 1):
        if -(-steps // parts) < longest:
            longest = -(-steps // parts)
            yield parts
