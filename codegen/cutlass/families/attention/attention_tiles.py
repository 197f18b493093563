"""Work and size of a block of attention.cu: rows, keys at a time, bytes, registers, reads.

problem, a chip --attention_tiles--> tiles that a block of it can hold
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.cutlass.families.attention.attention_operands import AttentionProblem
from codegen.cutlass.families.fused.occupancy import copied_pitch, rounded_up, sharing_blocks, thread_registers
from hw_models.chip import Chip

ROWS = (64, 128, 32, 16)
"""Rows of a block: a warp has 16. The fewest are only for few rows: all warps read what one has brought."""
BLOCKS = (64, 32, 16)
"""Keys at a time, the fewest only for few keys."""
OTHER_REGISTERS, MASK_REGISTERS = 56, 24
"""Registers of a thread for addresses and for data on its way between memories; more of them where there is a mask."""
SCORE_OPERATIONS = 4
"""Operations of a score besides products, at least: the largest so far, the distance from it, its power, the sum."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """A block of `rows` rows, and `block` keys at a time."""

    problem: AttentionProblem
    rows: int
    block: int

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        return (("rows", self.rows), ("keys", self.block))

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
        return -(-self.problem.rows * self.problem.shared // self.rows)

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

    @property
    def seen(self) -> int:
        """Keys of all blocks of rows of a head of k and v, in whole steps."""
        problem = self.problem
        if not problem.first_sees:
            return self.row_blocks * rounded_up(problem.keys, self.block)
        found = 0
        for first in range(0, problem.rows * problem.shared, self.rows):
            last = min(first + self.rows, problem.rows * problem.shared) - 1
            same = first // problem.rows == last // problem.rows
            farthest = last % problem.rows if same else problem.rows - 1
            found += rounded_up(min(problem.keys, problem.first_sees + farthest), self.block)
        return found

    @property
    def mean_seen(self) -> float:
        """Keys that a block of threads reads, as a mean."""
        return self.seen / self.row_blocks


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
