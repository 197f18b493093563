"""What a block of product_pair.cu computes and occupies: rows, columns at once, bytes, registers, reads.

rows, depths and columns of two products, a chip --pair_tiles--> tiles that a block of it can hold
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.cutlass.families.fused.occupancy import sharing_blocks, thread_registers
from codegen.cutlass.families.fused.planes import copied_pitch, rounded_up
from hw_models.chip import Chip

WARPS = 8
SPLITS = ((32, 1, "mma"), (64, 2, "mma"), (128, 4, "mma"), (64, 4, "wgmma"), (128, 8, "wgmma"))
"""Rows of a block, warps that share them, and the instruction of products: a warp has 32 rows of `mma`, and four warps
together 64 of `wgmma`."""
BLOCKS = (128, 64)
"""Columns between that go through at once."""
WIDTHS = {"mma": (16, 32, 48, 64, 96, 128), "wgmma": (16, 32, 64, 128, 256)}
"""Columns of a warp; those of a `wgmma` are those of its instruction."""
DEPTHS = (64, 32)
STAGES = (4, 3, 2)
MOST_SUMS = 160
"""Floats of a thread, of both products."""
OTHER_REGISTERS = 64
"""Of a thread, for addresses and what is on its way between memories."""


@dataclass(frozen=True, slots=True)
class PairShape:
    """[rows, depth] by [depth, between], and the result by [between, columns]."""

    rows: int
    depth: int
    between: int
    columns: int


@dataclass(frozen=True, slots=True)
class PairTile:
    """`rows` rows, of which `down` warps have different ones; `block` columns between at once, `columns` of the result,
    a multiple of what the warps share; `stages` steps of `depth` of the weights on their way."""

    shape: PairShape
    rows: int
    down: int
    instruction: str
    block: int
    columns: int
    depth: int
    stages: int

    @property
    def warps(self) -> int:
        return WARPS

    @property
    def threads(self) -> int:
        return 32 * WARPS

    @property
    def blocks(self) -> int:
        """Of threads."""
        return -(-self.shape.rows // self.rows)

    @property
    def across(self) -> int:
        return WARPS // self.down

    @property
    def sixteens(self) -> int:
        """Of rows of a warp."""
        return self.rows // 16 // self.down

    @property
    def padded_depth(self) -> int:
        return rounded_up(self.shape.depth, self.depth)

    @property
    def passes(self) -> int:
        """Blocks of columns between."""
        return -(-self.shape.between // self.block)

    @property
    def shared_bytes(self) -> int:
        """Of `Shared`, halves; checked when the kernel is compiled."""
        weights = self.stages * self.depth * copied_pitch(max(self.block, self.columns), self.depth)
        a = self.padded_depth * copied_pitch(self.rows, self.depth)
        return 2 * (weights + a + self.block * self.rows)

    @property
    def sums(self) -> int:
        """Floats of a thread."""
        return self.sixteens * (self.block + self.columns) // self.across // 2

    @property
    def _needed_registers(self) -> int:
        """Sums, operands (`wgmma` takes those of all depth at once) and the rest."""
        left = self.sixteens * (self.depth // 4 if self.instruction == "wgmma" else 4)
        return self.sums + left + OTHER_REGISTERS

    def sharers(self, chip: Chip) -> int:
        """Blocks that a core's registers are shared among."""
        return max(1, sharing_blocks(chip, self._needed_registers, self.threads))

    def registers(self, chip: Chip) -> int:
        """Of a thread, at most."""
        return thread_registers(chip, self.sharers(chip), self.threads)

    def fits(self, chip: Chip) -> bool:
        """In shared memory and registers."""
        return self.shared_bytes <= chip.simt.shared_bytes_per_block and self.sums <= MOST_SUMS

    @property
    def macs(self) -> int:
        """Of a block, zeros included."""
        return self.rows * self.passes * self.block * (self.padded_depth + self.columns)

    @property
    def moved_bytes(self) -> int:
        """Of shared memory, that a block reads as operands. A warp of `mma` reads its rows and columns; of `wgmma`,
        four warps read their columns together."""
        readers = WARPS if self.instruction == "mma" else WARPS // 4 * self.sixteens
        each = self.across * self.rows  # rows, by all warps
        first = (each + readers * self.block // self.across) * self.padded_depth
        second = (each + readers * self.columns // self.across) * self.block
        return 2 * self.passes * (first + second)


def pair_tiles(shape: PairShape, chip: Chip) -> tuple[PairTile, ...]:
    """All that a block of the chip can hold, the most stages of each, by every instruction that has a rate."""
    rates = {rate.instruction for rate in chip.tensor.rates if rate.dtype == "float16"}
    return tuple(tile for tile in _tiles(shape, chip) if tile.instruction in rates)


def _tiles(shape: PairShape, chip: Chip) -> Iterator[PairTile]:
    depth = min(DEPTHS, key=lambda each: (rounded_up(shape.depth, each), -each))
    for rows, down, instruction in SPLITS:
        across = WARPS // down
        width = next((width for width in WIDTHS[instruction] if width * across >= shape.columns), None)
        for block in BLOCKS:
            if width is None or block // across not in WIDTHS[instruction]:
                continue
            sized = (
                PairTile(shape, rows, down, instruction, block, width * across, depth, stages) for stages in STAGES
            )
            if fitting := next((tile for tile in sized if tile.fits(chip)), None):
                yield fitting
