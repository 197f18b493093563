"""Tiles of matrix kernels: what a block and a warp compute at once, what that occupies, and how long it takes at least.

rows x columns x depth of a block, of which `warp` rows x columns are one warp's; `stages` tiles of depth in flight

The C++ of kernels is our own: `cutlass_library`, which writes instances of CUTLASS's kernels, knows for these only its
linear combinations as epilogues, and no kernel that has bias, residual and activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor
from hw_models.chip import Chip
from partitioner.ir.kernels import KernelFloor

DEPTH = 32


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """Elements: `rows` by `columns` of the result by a block, `warp_rows` by `warp_columns` by a warp."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    stages: int

    @property
    def name(self) -> str:
        """As plans write it."""
        return f"{self.rows}x{self.columns}"

    @property
    def threads(self) -> int:
        return 32 * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def shared_bytes(self) -> int:
        """Of both operands, halves."""
        return 2 * DEPTH * self.stages * (self.rows + self.columns)

    @property
    def block(self) -> str:
        """Arguments of cutlass::gemm::GemmShape."""
        return f"{self.rows}, {self.columns}, {DEPTH}"

    @property
    def warp(self) -> str:
        """Arguments of cutlass::gemm::GemmShape."""
        return f"{self.warp_rows}, {self.warp_columns}, {DEPTH}"


TILES: Sequence[MatrixTile] = (
    MatrixTile(128, 128, 64, 64, 4),
    MatrixTile(128, 64, 64, 32, 4),
    MatrixTile(64, 128, 32, 64, 4),
    MatrixTile(64, 64, 32, 32, 4),
    MatrixTile(128, 32, 32, 32, 4),
)
"""Warp tiles of 32 x 64 and 64 x 64 where the result is large enough: smaller ones read more shared memory for a
product."""
PRODUCT_TILES: Sequence[MatrixTile] = (*TILES, MatrixTile(32, 64, 16, 32, 6))
"""The last for products of few rows, where others multiply mostly zeros; the main memory binds it, so that more of its
small tiles of depth are in flight."""


def tile_named(name: object) -> MatrixTile | None:
    """The tile of a plan's parameter; None for none of ours."""
    return next((tile for tile in PRODUCT_TILES if tile.name == name), None)


def fewest_idle_first(chip: Chip, rows: int, columns: int, batches: int = 1) -> tuple[MatrixTile, ...]:
    """`PRODUCT_TILES` in the order in which the first of equally fast ones is taken: those of which every core of the
    chip gets a block, then those that leave least cores idle; of these, those that compute least beyond the result.
    Floors count bytes, not how few blocks ask for them."""

    def rank(tile: MatrixTile) -> tuple[int, int]:
        blocks = batches * -(-rows // tile.rows) * -(-columns // tile.columns)
        return max(0, chip.cores_per_cluster - blocks), blocks * tile.rows * tile.columns

    return tuple(sorted(PRODUCT_TILES, key=rank))


def tile_floors(
    chip: Chip, tile: MatrixTile, rows: int, columns: int, depth: int, batches: int = 1
) -> tuple[KernelFloor, ...]:
    """Of `batches` products of rows x depth by depth x columns: the tensor cores, shared memory and the L2, whole tiles
    and whole waves of blocks."""
    grid = (-(-rows // tile.rows), -(-columns // tile.columns), batches)
    deep = -(-depth // DEPTH) * DEPTH
    macs = tile.rows * tile.columns * deep
    blocks = grid[0] * grid[1] * grid[2]
    warps = tile.threads // 32
    read = 2 * warps * (tile.warp_rows + tile.warp_columns) * deep
    shared = chip.memory(chip.simt.shared_memory)
    waves = -(-blocks // chip.cores_per_cluster)
    bandwidth = (shared.bandwidth_bytes_per_cycle or float("inf")) * chip.clock_hz
    return (
        arithmetic_floor(chip, "tensor", macs, grid, chip.tensor.macs_per_cycle("mma", "float16")),
        KernelFloor("shared", waves * read / bandwidth, f"{read} bytes in each of {blocks} blocks"),
        cache_floor(chip, 2 * batches * depth * (grid[1] * rows + grid[0] * columns)),
    )
