"""Work and size of a block of inverted_residual.cu: pixels, channels at once, bytes, registers, reads.

channels, expanded channels, result --inverted_tiles--> tiles of pixels, with resident weights where there is room
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.cutlass.families.fused.occupancy import RESERVED_BYTES, rounded_up, sharing_blocks, thread_registers
from hw_models.chip import Chip

THREADS = 256
WARPS = THREADS // 32
BLOCKS = (48, 64, 32, 16)
"""Expanded channels of one pass, best first: 48 divides all widths of MobileNet-v2."""
TILES = ((8, 8), (8, 16), (4, 8))
"""Rows and columns of a tile, in pixels."""
TAPS = 9
EXPAND_ROWS = 32
"""Pixels that a warp expands at a time."""
MOST_SUMS = 128
"""Largest number of sums of a thread, of its 255 registers: the rest is for operands, addresses and the sums of the
expansion."""
OTHER_REGISTERS = 64
"""Registers of a thread for operands, a row of filters and values, and addresses: an upper bound on what nvcc takes in
addition to sums."""
MOST_RESIDENT_CHANNELS = 64
"""Most channels of an image with resident weights. With more, resident weights leave room for only one block of threads
where several hide each other's waits."""


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Channels of the image, intermediate channels, the result (N, H, W, filters), stride, and whether the block
    `expands`."""

    channels: int
    expanded: int
    result: tuple[int, ...]
    stride: int
    expands: bool

    @property
    def filters(self) -> int:
        return self.result[3]


@dataclass(frozen=True, slots=True)
class InvertedTile:
    """A tile of `height` x `width` pixels of the result, `channels` expanded ones at a time; `resident` if all weights
    stay."""

    shape: BlockShape
    height: int
    width: int
    channels: int
    resident: bool

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        weights = "resident" if self.resident else "streamed"
        return (("rows", self.height), ("columns", self.width), ("channels", self.channels), ("weights", weights))

    @property
    def threads(self) -> int:
        return THREADS

    @property
    def depth(self) -> int:
        return rounded_up(self.shape.channels, 16)

    @property
    def halo_rows(self) -> int:
        """Pixels of the image in a tile, in rows of sixteen."""
        high, wide = ((extent - 1) * self.shape.stride + 3 for extent in (self.height, self.width))
        return rounded_up(high * wide, 16)

    @property
    def pixels(self) -> int:
        return self.height * self.width

    @property
    def tiles(self) -> int:
        """Number of tiles of the whole result."""
        images, rows, columns, _ = self.shape.result
        return images * -(-rows // self.height) * -(-columns // self.width)

    @property
    def project_tiles(self) -> int:
        """Groups of 16 pixels that a warp projects at a time: the number that reads least."""
        return min((1, 2), key=self._project_rows)

    def _project_rows(self, at_once: int) -> int:
        """Rows of both operands that all warps read per sixteen of depth."""
        groups = self.pixels // 16 // at_once
        return self.pixels * (WARPS // groups) + groups * self.shape.filters

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` in bytes, in fp16; checked when the kernel is compiled."""
        kept = self.shape.expanded if self.resident else self.channels
        images = (self.halo_rows + kept) * (self.depth + 8) if self.shape.expands else 16
        between = (self.halo_rows + self.pixels) * (self.channels + 8)
        return 2 * (images + self.shape.filters * (kept + 8) + between + kept * (TAPS + 2))

    @property
    def sums(self) -> int:
        """Floats that a thread keeps from pass to pass."""
        split = WARPS * self.project_tiles * 16 // self.pixels
        return 4 * self.project_tiles * -(-self.shape.filters // 8 // split)

    @property
    def _needed_registers(self) -> int:
        """Registers for the sums of both products, and the rest."""
        expanding = EXPAND_ROWS * self.channels // 32 if self.shape.expands else 0
        return self.sums + expanding + OTHER_REGISTERS

    def sharers(self, chip: Chip) -> int:
        """Number of blocks that are on a core at the same time, limited by registers and shared memory."""
        shared = chip.memory(chip.simt.shared_memory).size_bytes or chip.simt.shared_bytes_per_block
        room = shared // (self.shared_bytes + RESERVED_BYTES)
        return max(1, min(sharing_blocks(chip, self._needed_registers, THREADS), room))

    def registers(self, chip: Chip) -> int:
        """Largest number of registers of a thread."""
        return thread_registers(chip, self.sharers(chip), THREADS)

    def grid(self, chip: Chip) -> int:
        """Number of blocks of threads: one per tile, or as many as the chip holds together."""
        return min(self.tiles, chip.cores_per_cluster * self.sharers(chip)) if self.resident else self.tiles

    def fits(self, chip: Chip) -> bool:
        """Whether shared memory and registers have room for the tile."""
        return self.shared_bytes <= chip.simt.shared_bytes_per_block and self.sums <= MOST_SUMS

    @property
    def expand_macs(self) -> int:
        return self.shape.expanded * self.halo_rows * self.depth if self.shape.expands else 0

    @property
    def image_bytes(self) -> int:
        """Bytes of the image under a tile with its halo."""
        return 2 * self.halo_rows * self.shape.channels

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights of all layers, including biases."""
        expand = self.shape.channels + 1 if self.shape.expands else 0
        return 2 * self.shape.expanded * (expand + self.shape.filters + TAPS + 1)

    @property
    def read_bytes(self) -> int:
        """Bytes that a tile reads from shared memory: operands of both products, the three rows of values above each
        result of the depthwise convolution, and its filters for each of these."""
        passes = self.shape.expanded // self.channels
        rows = self.halo_rows + -(-self.halo_rows // EXPAND_ROWS) * self.channels
        expand = 2 * rows * self.depth if self.shape.expands else 0
        wide = (self.width - 1) * self.shape.stride + 3
        depthwise = 2 * self.height * (3 * wide + TAPS) * self.channels
        return passes * (expand + depthwise + 2 * self._project_rows(self.project_tiles) * self.channels)


def inverted_tiles(shape: BlockShape, chip: Chip) -> tuple[InvertedTile, ...]:
    """Tiles that a block of the chip can hold, resident ones first."""
    return tuple(tile for tile in _tiles(shape) if tile.fits(chip))


def _tiles(shape: BlockShape) -> Iterator[InvertedTile]:
    channels = next((block for block in BLOCKS if shape.expanded % block == 0), None)
    if channels is None:
        return
    for resident in (True, False):
        if resident and shape.channels > MOST_RESIDENT_CHANNELS:
            continue
        for height, width in TILES:
            yield InvertedTile(shape, height, width, channels, resident)
