"""Tiles of matrix kernels: the part of a block and of a warp, their size, and their least time.

rows x columns x depth of a block, of which `warp` rows x columns belong to one warp; `stages` tiles of depth in flight

The C++ of the kernels is our own: `cutlass_library`, which writes instances of CUTLASS's kernels, offers only linear
combinations as their epilogues, and no kernel with bias, residual and activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor, shared_floor
from hw_models.chip import Chip
from partitioner.ir.kernels import KernelFloor

DEPTH = 32


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """A tile in elements: `rows` by `columns` of the result per block, `warp_rows` by `warp_columns` per warp, `depth`
    a step."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    stages: int
    depth: int = DEPTH

    @property
    def name(self) -> str:
        """Name of the tile in plans."""
        return f"{self.rows}x{self.columns}" + (f"x{self.depth}" if self.depth != DEPTH else "")

    @property
    def threads(self) -> int:
        return 32 * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of both operands, in fp16."""
        return 2 * self.depth * self.stages * (self.rows + self.columns)

    @property
    def block(self) -> str:
        """Template arguments of cutlass::gemm::GemmShape for a block."""
        return f"{self.rows}, {self.columns}, {self.depth}"

    @property
    def warp(self) -> str:
        """Template arguments of cutlass::gemm::GemmShape for a warp."""
        return f"{self.warp_rows}, {self.warp_columns}, {self.depth}"


TILES: Sequence[MatrixTile] = (
    MatrixTile(128, 128, 64, 64, 4),
    MatrixTile(128, 64, 64, 32, 4),
    MatrixTile(64, 128, 32, 64, 4),
    MatrixTile(64, 64, 32, 32, 4),
    MatrixTile(128, 32, 32, 32, 4),
)
"""Tiles of all matrix kernels. Warp tiles are 32 x 64 and 64 x 64 where the result is large enough: smaller ones read
more shared memory per product."""
WIDE_TILES: Sequence[MatrixTile] = (
    MatrixTile(128, 256, 64, 64, 3),
    MatrixTile(256, 128, 64, 64, 3),
    MatrixTile(128, 128, 64, 64, 3, 64),
    MatrixTile(64, 128, 32, 64, 3, 64),
    MatrixTile(64, 64, 32, 32, 4, 64),
)
"""Tiles where 16 bytes are read at a time: large ones, which read less through the L2, and those of depth 64, which
wait half as often; that counts where a core has few warps."""
PRODUCT_TILES: Sequence[MatrixTile] = (*TILES, MatrixTile(32, 64, 16, 32, 6))
"""Tiles of products. The last one is for products of few rows, where others multiply mostly zeros; they are bound by
the main memory, so more of its small tiles of depth are in flight."""


KNOWN_TILES: Sequence[MatrixTile] = (*PRODUCT_TILES, *WIDE_TILES)


def tile_named(name: object) -> MatrixTile | None:
    """The tile that a plan's parameter names; None where there is no such tile."""
    return next((tile for tile in KNOWN_TILES if tile.name == name), None)


def fewest_idle_first(
    chip: Chip, tiles: Sequence[MatrixTile], rows: int, columns: int, batches: int = 1
) -> tuple[MatrixTile, ...]:
    """Tiles in order of preference among equally fast ones: first those that give every core of the chip a
    block, then those that leave the fewest cores idle; among these, those that compute least beyond the result. Floors
    count bytes, not the number of blocks that ask for them."""

    def rank(tile: MatrixTile) -> tuple[int, int]:
        blocks = batches * -(-rows // tile.rows) * -(-columns // tile.columns)
        return max(0, chip.cores_per_cluster - blocks), blocks * tile.rows * tile.columns

    return tuple(sorted(tiles, key=rank))


def tile_floors(
    chip: Chip, tile: MatrixTile, rows: int, columns: int, depth: int, batches: int = 1, *, steps: int = 0
) -> tuple[KernelFloor, ...]:
    """Floors of `batches` products of rows x depth by depth x columns: the tensor cores, shared memory and the L2, with
    whole tiles and whole waves of blocks. `steps` is their number along the depth where it is not the least."""
    grid = (-(-rows // tile.rows), -(-columns // tile.columns), batches)
    deep = tile.depth * (steps or -(-depth // tile.depth))
    macs = tile.rows * tile.columns * deep
    blocks = grid[0] * grid[1] * grid[2]
    warps = tile.threads // 32
    read = 2 * warps * (tile.warp_rows + tile.warp_columns) * deep
    return (
        arithmetic_floor(chip, "tensor", macs, grid, chip.tensor.macs_per_cycle("mma", "float16")),
        shared_floor(chip, read, blocks),
        cache_floor(chip, 2 * batches * depth * (grid[1] * rows + grid[0] * columns)),
    )
