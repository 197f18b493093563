"""One convolution of a block of a chain: pixels with their halo, how warps share rows and channels, places in shared
memory.

    convolution, pixels, channels at once, warps --LayerTile--> rows of products, steps, bytes, registers

The numbers equal those of the templates (`chain_tiles.py` says which).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from codegen.cutlass.families.fused.chained_layers import ChainedConvolution
from codegen.cutlass.families.fused.occupancy import rounded_up

IMAGE_STEP = 4
"""Pixels that a thread copies a part of at once, for wgmma."""
SUBCORES = 4
"""Quarters of a core; each has one tensor core, and each warp runs on one quarter."""


def operand_rows(height: int, width: int, pitch: int) -> int:
    """From the first to the last pixel of a tile, where rows of pixels are `pitch` apart."""
    return (height - 1) * pitch + width


def pixel_step(conv: ChainedConvolution, first: bool) -> int:
    """Pixels that a convolution's pixels are apart in shared memory: a 1x1 that is the first one gathers them."""
    return 1 if first and conv.op.ints("kernel") == (1, 1) else conv.stride


@dataclass(frozen=True)
class LayerTile:
    """One convolution of a block: it makes `height` x `width` pixels, `block` output channels at a time, with `down`
    warps sharing the rows. Its products use the `instruction` "mma" or "wgmma"."""

    conv: ChainedConvolution
    height: int
    width: int
    instruction: str
    depth: int
    warps: int
    first: bool
    last: bool
    block: int
    down: int

    @cached_property
    def step(self) -> int:
        """Pixels that its pixels are apart among those that it reads."""
        return pixel_step(self.conv, self.first)

    @cached_property
    def in_height(self) -> int:
        """Rows of pixels that it reads."""
        return (self.height - 1) * self.step + self.conv.op.ints("kernel")[0]

    @cached_property
    def in_width(self) -> int:
        """Columns of pixels that it reads."""
        return (self.width - 1) * self.step + self.conv.op.ints("kernel")[1]

    @cached_property
    def taps(self) -> int:
        rows, columns = self.conv.op.ints("kernel")
        return rows * columns

    @property
    def chunks(self) -> int:
        """Number of chunks of channels that are read."""
        return -(-self.conv.channels // self.depth)

    @property
    def blocks(self) -> int:
        """Number of blocks of output channels; all layers but the last fill whole chunks of the next one."""
        return -(-(self.conv.filters if self.last else rounded_up(self.conv.filters, self.depth)) // self.block)

    @property
    def across(self) -> int:
        return self.warps // self.down

    @property
    def grouped(self) -> bool:
        """Whether four warps multiply together (wgmma); weights are then streamed by a warp of their own."""
        return self.instruction == "wgmma"

    @property
    def phase(self) -> tuple[int, int]:
        """Rows and columns of the pixels that are read, of those that are `step` apart."""
        return -(-self.in_height // self.step), -(-self.in_width // self.step)

    @property
    def rows(self) -> int:
        """Rows of the left operand: pixels, for wgmma as many per row of pixels as are read there."""
        return operand_rows(self.height, self.width, self.phase[1] if self.grouped else self.width)

    @property
    def sixteens(self) -> int:
        """Groups of 16 rows."""
        return -(-self.rows // 16)

    @property
    def warp_sixteens(self) -> int:
        """Groups of 16 rows of the busiest warp."""
        return -(-self.sixteens // self.down)

    @property
    def places(self) -> int:
        """Places of a chunk's pixels in shared memory, for wgmma."""
        high, wide = self.phase
        return rounded_up(self.step * self.step * high * wide, IMAGE_STEP if self.first else 1)

    @property
    def planes_pitch(self) -> int:
        """Rows of a plane of what is read, for wgmma: all that the products touch. Copied ones are spread over the
        banks."""
        high, wide = self.phase
        side, step = self.conv.op.ints("kernel")[0], self.step
        last = max(
            ((y % step * step + x % step) * high + y // step) * wide + x // step
            for y in range(side)
            for x in range(side)
        )
        return max(self.places, last + 16 * self.warp_sixteens * self.down)

    @property
    def warp_columns(self) -> int:
        return self.block // self.across

    @property
    def sums(self) -> int:
        """Float sums of a thread."""
        return self.warp_sixteens * self.warp_columns // 2

    @property
    def rounds(self) -> int:
        """Steps of depth: taps and chunks for each block of channels."""
        return self.blocks * self.chunks * self.taps

    @property
    def groups(self) -> int:
        """Products of 64 rows that all groups of four warps issue per 16 of depth; each group issues the same
        number."""
        return self.warps // 4 * self.warp_sixteens

    @property
    def macs(self) -> int:
        """Multiply-accumulates, counted as if every quarter of the core computed as long as the busiest one."""
        return self._quartered_rows * self.warp_columns * self.depth * self.rounds

    @property
    def _quartered_rows(self) -> int:
        if self.grouped:
            return 64 * self.groups
        by_quarter = [0] * SUBCORES
        for warp in range(self.warps):
            by_quarter[warp % SUBCORES] += len(range(warp % self.down, self.sixteens, self.down))
        return SUBCORES * max(by_quarter) * 16

    @property
    def operand_bytes(self) -> int:
        """Bytes of operands that the warps read from shared memory: a wgmma reads its columns once for 64 rows; a warp
        of mma keeps the columns' operands of 16 of depth in registers for all its rows."""
        if self.grouped:
            return 2 * self.groups * (64 + self.warp_columns) * self.depth * self.rounds
        rows = 16 * self.sixteens * self.across
        return 2 * (rows + self.warps * self.warp_columns) * self.depth * self.rounds

    @property
    def registers(self) -> int:
        """Registers of a thread for sums and what goes with them: mma holds operands for 16 of depth at a time; a layer
        by wgmma that adds a map has it at hand while it multiplies."""
        if not self.grouped:
            return self.sums + 4 * self.warp_sixteens
        return self.sums + (self.sums // 2 if self.conv.epilogue.source else 0)

    @property
    def copied_bytes(self) -> int:
        """Bytes of weights that are written to shared memory."""
        return 2 * self.block * self.depth * self.rounds


def steps_of_weights(layer: LayerTile, weights: npt.NDArray[np.generic]) -> bytes:
    """Weights (filters, taps, channels) of a layer by wgmma as its steps read them, one after the other: by blocks of
    filters, chunks of channels, taps; each step in planes (8 channels, filters of the block). Filters and channels that
    there are not are zeros."""
    filters, channels = layer.blocks * layer.block, layer.chunks * layer.depth
    given = weights.reshape(layer.conv.filters, layer.taps, layer.conv.channels)
    room = ((0, filters - given.shape[0]), (0, 0), (0, channels - given.shape[2]))
    parts = np.pad(given, room).reshape(layer.blocks, layer.block, layer.taps, layer.chunks, layer.depth // 8, 8)
    return parts.transpose(0, 3, 2, 4, 1, 5).tobytes()
