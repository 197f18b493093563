"""Work and size of a block of attention.cu: rows, keys at a time, bytes, registers, reads.

problem, a chip --attention_tiles--> tiles that a block of it can hold
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.cutlass.families.attention.attention_operands import AttentionProblem
from codegen.cutlass.families.attention.seen_keys import SCORE_OPERATIONS, row_blocks, seen_keys
from codegen.cutlass.families.fused.occupancy import copied_pitch, rounded_up, sharing_blocks, thread_registers
from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor, lanes_floor, shared_floor
from hw_models.chip import Chip
from partitioner.ir.kernels import KernelFloor

ROWS = (64, 128, 32, 16)
"""Rows of a block: a warp has 16. The fewest are only for few rows: all warps read what one has brought."""
BLOCKS = (64, 32, 16)
"""Keys at a time, the fewest only for few keys."""
OTHER_REGISTERS, MASK_REGISTERS = 56, 24
"""Registers of a thread for addresses and for data on its way between memories; more of them where there is a mask."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """A block of `rows` rows, and `block` keys at a time."""

    problem: AttentionProblem
    rows: int
    block: int

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        return (("by", "mma"), ("rows", self.rows), ("keys", self.block))

    @property
    def warps(self) -> int:
        return self.rows // 16

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def deep(self) -> int:
        """Elements of a row of q and k, padded."""
        return rounded_up(self.problem.size, 16)

    @property
    def wide(self) -> int:
        """Elements of a row of v, padded."""
        return rounded_up(self.problem.width, 16)

    @property
    def row_blocks(self) -> int:
        """Blocks of threads of a head of k and v."""
        return row_blocks(self.problem, self.rows)

    @property
    def blocks(self) -> int:
        """Number of blocks of threads."""
        return self.problem.items * self.problem.groups * self.row_blocks

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` in bytes; checked when the kernel is compiled."""
        pitch = copied_pitch(self.block, self.deep)
        stages = 2 * (self.deep * copied_pitch(self.rows, self.deep) + 2 * pitch * (self.deep + self.wide))
        return max(stages, 4 * self.rows * (self.wide + 4))

    @property
    def _needed_registers(self) -> int:
        """Registers for rows of q, scores, sums and the rest."""
        scores = self.block // 2 + self.block // 4  # and half as many on their way to weights
        others = OTHER_REGISTERS + (MASK_REGISTERS if self.problem.mask else 0) + 16 // self.warps
        return self.deep // 4 + scores + self.wide // 2 + others

    def sharers(self, chip: Chip) -> int:
        """Number of blocks that share a core's registers."""
        return min(chip.simt.blocks_per_core, max(1, sharing_blocks(chip, self._needed_registers, self.threads)))

    def registers(self, chip: Chip) -> int:
        """Largest number of registers of a thread."""
        return thread_registers(chip, self.sharers(chip), self.threads)

    def fits(self, chip: Chip) -> bool:
        """Whether shared memory and registers have room for the tile."""
        few = self._needed_registers <= chip.simt.registers_per_thread
        return few and self.shared_bytes <= chip.simt.shared_bytes_per_block

    @property
    def step_operations(self) -> float:
        """Operations of a thread for some keys, besides products: of its scores, and of the sums that it makes
        smaller."""
        return self.block / 2 * SCORE_OPERATIONS + self.wide / 2

    def floors(self, chip: Chip) -> tuple[KernelFloor, ...]:
        """Floors of the tensor cores, the CUDA cores, shared memory and the L2, with whole blocks of rows and keys."""
        problem, blocks = self.problem, self.blocks
        seen = seen_keys(problem, self.rows, self.block) / self.row_blocks
        own = seen * (self.deep + self.wide)  # elements of k and v that a block reads
        scores = self.rows * seen
        each_thread = seen / self.block * self.step_operations
        read = own + self.rows * (problem.size + (seen if problem.mask else 0))
        rate = chip.tensor.macs_per_cycle("mma", "float16")
        return (
            arithmetic_floor(chip, "tensor", scores * (self.deep + self.wide), (blocks,), rate),
            lanes_floor(chip, int(self.warps * each_thread), int(each_thread), blocks),
            shared_floor(chip, int(2 * (self.warps + 1) * own), blocks),
            cache_floor(chip, int(2 * blocks * read)),
        )


def attention_tiles(problem: AttentionProblem, chip: Chip) -> tuple[AttentionTile, ...]:
    """All tiles that a block of the chip can hold; none twice as large as rows or keys ask for."""
    if all(rate.dtype != "float16" or rate.instruction != "mma" for rate in chip.tensor.rates):
        return ()
    return tuple(tile for tile in _tiles(problem) if tile.fits(chip))


def _tiles(problem: AttentionProblem) -> Iterator[AttentionTile]:
    for rows in ROWS:
        for block in BLOCKS:
            if _suits(rows, problem.rows * problem.shared, ROWS) and _suits(block, problem.keys, BLOCKS):
                yield AttentionTile(problem, rows, block)


def _suits(size: int, extent: int, sizes: tuple[int, ...]) -> bool:
    """Whether a size is no larger than the extent asks for, and the smallest one only where it holds all."""
    least = min(sizes)
    return extent <= least if size == least else size < 2 * extent and extent > least
