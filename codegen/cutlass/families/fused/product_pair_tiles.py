"""Work and size of a block of product_pair.cu: rows, columns per pass, bytes, registers, reads.

rows, depths and columns of two products, a chip --pair_tiles--> tiles that a block of it can hold
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.cutlass.families.fused.occupancy import copied_pitch, rounded_up, sharing_blocks, thread_registers
from hw_models.chip import Chip

WARPS = 8
SPLITS = ((32, 1, "mma"), (64, 2, "mma"), (128, 4, "mma"), (64, 4, "wgmma"), (128, 8, "wgmma"))
"""(rows of a block, warps that share them, instruction of products): a warp has 32 rows with `mma`, and four warps
together have 64 with `wgmma`."""
BLOCKS = (128, 64)
"""Intermediate columns of one pass."""
WIDTHS = {"mma": (16, 32, 48, 64, 96, 128), "wgmma": (16, 32, 64, 128, 256)}
"""Columns of a warp, by instruction; a `wgmma` has that many itself."""
DEPTHS = (64, 32)
STAGES = (4, 3, 2)
MOST_SUMS = 160
"""Largest number of float sums of a thread, of both products."""
OTHER_REGISTERS = 64
"""Registers of a thread for addresses and for data on its way between memories."""


@dataclass(frozen=True, slots=True)
class PairShape:
    """Extents of both products: [rows, depth] by [depth, between], and the result by [between, columns]."""

    rows: int
    depth: int
    between: int
    columns: int


@dataclass(frozen=True, slots=True)
class PairTile:
    """A block of `rows` rows, divided over `down` warps; `block` intermediate columns per pass, `columns` of the
    result, a multiple of what the warps share; `stages` steps of `depth` of the weights in flight."""

    shape: PairShape
    rows: int
    down: int
    instruction: str
    block: int
    columns: int
    depth: int
    stages: int

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        return (("rows", self.rows), ("between", self.block), ("instruction", self.instruction))

    @property
    def warps(self) -> int:
        return WARPS

    @property
    def threads(self) -> int:
        return 32 * WARPS

    @property
    def blocks(self) -> int:
        """Number of blocks of threads."""
        return -(-self.shape.rows // self.rows)

    @property
    def across(self) -> int:
        return WARPS // self.down

    @property
    def sixteens(self) -> int:
        """Groups of 16 rows of a warp."""
        return self.rows // 16 // self.down

    @property
    def padded_depth(self) -> int:
        return rounded_up(self.shape.depth, self.depth)

    @property
    def passes(self) -> int:
        """Number of passes: blocks of intermediate columns."""
        return -(-self.shape.between // self.block)

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` in bytes, in fp16; checked when the kernel is compiled."""
        weights = self.stages * self.depth * copied_pitch(max(self.block, self.columns), self.depth)
        a = self.padded_depth * copied_pitch(self.rows, self.depth)
        return 2 * (weights + a + self.block * self.rows)

    @property
    def sums(self) -> int:
        """Float sums of a thread."""
        return self.sixteens * (self.block + self.columns) // self.across // 2

    @property
    def _needed_registers(self) -> int:
        """Registers for sums, operands (`wgmma` takes those of all depth at a time) and the rest."""
        left = self.sixteens * (self.depth // 4 if self.instruction == "wgmma" else 4)
        return self.sums + left + OTHER_REGISTERS

    def sharers(self, chip: Chip) -> int:
        """Number of blocks that share a core's registers."""
        return max(1, sharing_blocks(chip, self._needed_registers, self.threads))

    def registers(self, chip: Chip) -> int:
        """Largest number of registers of a thread."""
        return thread_registers(chip, self.sharers(chip), self.threads)

    def fits(self, chip: Chip) -> bool:
        """Whether shared memory and registers have room for the tile."""
        return self.shared_bytes <= chip.simt.shared_bytes_per_block and self.sums <= MOST_SUMS

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a block, including those with zeros."""
        return self.rows * self.passes * self.block * (self.padded_depth + self.columns)

    @property
    def moved_bytes(self) -> int:
        """Bytes of shared memory that a block reads as operands. With `mma` a warp reads its own rows and columns; with
        `wgmma` four warps read their columns together."""
        readers = WARPS if self.instruction == "mma" else WARPS // 4 * self.sixteens
        each = self.across * self.rows  # rows, by all warps
        first = (each + readers * self.block // self.across) * self.padded_depth
        second = (each + readers * self.columns // self.across) * self.block
        return 2 * self.passes * (first + second)


def pair_tiles(shape: PairShape, chip: Chip) -> tuple[PairTile, ...]:
    """All tiles that a block of the chip can hold, with the most stages of each, for every instruction that has a
    rate."""
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
