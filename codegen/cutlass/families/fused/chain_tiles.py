"""Work and size of a block of convolution_chain.cu: extents of the halo, split of warps, bytes, registers.

    convolutions, pixels of a block --chain_tiles--> by layer: pixels with their halo, channels at once, how warps share

The numbers equal those of the templates, where assertions check them at compile time: convolution_chain.cu for mma,
convolution_chain_streamed.cu for wgmma.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from codegen.cutlass.families.fused.chained_layers import ChainedConvolution
from codegen.cutlass.families.fused.occupancy import (
    REGISTERS_STEP,
    copied_pitch,
    rounded_up,
    sharing_blocks,
    thread_registers,
)
from hw_models.chip import Chip

SIDES = (4, 8, 16, 32)
"""Rows or columns of the result that one block computes; equal parts of the image are tried in addition."""
PARTS = range(1, 9)
SIZES = (32, 64, 128, 256, 512)
"""Size classes of a block, in pixels: the largest size of each class. A few shapes of each class are tried."""
TRIED = 2
WARPS = {"mma": (4, 8), "wgmma": (8, 4)}
"""Warps that multiply, in the order in which equally good ones are taken."""
INSTRUCTIONS = ("mma", "wgmma")
ROWS = {"mma": 16, "wgmma": 64}
"""Rows of the left operand of each instruction."""
DEPTHS = (64, 32)
STAGES = {"mma": (4, 3, 2), "wgmma": (8, 6, 4, 3)}
STAGED_BYTES = 131_072
"""Largest size of all stages of weights for wgmma."""
IMAGE_BYTES = 49_152
"""Size of the chunks of the image that are on their way at least, for wgmma; in 2 to `MOST_IMAGES` buffers."""
MOST_IMAGES = 4
IMAGE_STEP = 4
"""Pixels that a thread copies a part of at once, for wgmma."""
BLOCKS = (256, 128, 64, 32, 16)
"""Output channels of one pass, in the order in which equally good ones are taken."""
MOST_SUMS = 128
"""Largest number of float sums of a thread: a warp's tile of 64 x 64."""
LEAST_COLUMNS = {"mma": 16, "wgmma": 32}
"""Smallest number of columns of a warp: results leave the registers of wgmma 32 columns at a time."""
LOADERS = 3
"""Warps that copy the image where products are by wgmma; one more streams the weights."""
OTHER_REGISTERS = {"mma": 72, "wgmma": 56}
"""Registers of a thread for addresses and for data on its way between memories."""
BARRIER_BYTES = 8
SUBCORES = 4
"""Quarters of a core; each has one tensor core, and each warp runs on one quarter."""


@dataclass(frozen=True, slots=True)
class LayerTile:
    """One convolution of a block: it makes `height` x `width` pixels from `in_height` x `in_width`, `step` of them
    apart, `block` output channels at a time, with `down` warps sharing the rows. Its products use the `instruction`
    "mma" or "wgmma"."""

    conv: ChainedConvolution
    height: int
    width: int
    in_height: int
    in_width: int
    step: int
    instruction: str
    depth: int
    warps: int
    first: bool
    last: bool
    block: int
    down: int

    @property
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
        return self.instruction == "wgmma"

    @property
    def phase(self) -> tuple[int, int]:
        """Rows and columns of the pixels that are read, of those that are `step` apart."""
        return -(-self.in_height // self.step), -(-self.in_width // self.step)

    @property
    def rows(self) -> int:
        """Rows of the left operand: pixels, for wgmma as many per row of pixels as are read there."""
        return _rows(self.height, self.width, self.phase[1] if self.grouped else self.width)

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
        """Registers of a thread for sums and what goes with them: mma holds operands for 16 of depth at a time; the last
        layer by wgmma has what is added at hand while it multiplies."""
        if not self.grouped:
            return self.sums + 4 * self.warp_sixteens
        return self.sums + (self.sums // 2 if self.conv.epilogue.source else 0)

    @property
    def copied_bytes(self) -> int:
        """Bytes of weights that are written to shared memory."""
        return 2 * self.block * self.depth * self.rounds


@dataclass(frozen=True)
class ChainTile:
    """A block of threads that computes the chain."""

    layers: tuple[LayerTile, ...]
    stages: int

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        rows, columns = self.pixels
        return (
            ("by", self.instruction),
            ("rows", rows),
            ("columns", columns),
            ("warps", self.warps),
            ("depth", self.depth),
            ("stages", self.stages),
        )

    @property
    def depth(self) -> int:
        return self.layers[0].depth

    @property
    def warps(self) -> int:
        return self.layers[0].warps

    @property
    def instruction(self) -> str:
        return self.layers[0].instruction

    @property
    def threads(self) -> int:
        return _threads(self.instruction, self.warps)

    @property
    def grouped(self) -> bool:
        return self.layers[0].grouped

    @property
    def pixels(self) -> tuple[int, int]:
        """(rows, columns) of the result that a block computes."""
        return self.layers[-1].height, self.layers[-1].width

    @property
    def image_buffers(self) -> int:
        if self.layers[0].taps > 1:
            return 2
        if not self.grouped:
            return self.stages
        image = 2 * self.depth * copied_pitch(self.layers[0].planes_pitch, self.depth)
        return min(max(2, -(-IMAGE_BYTES // image)), MOST_IMAGES)

    @cached_property
    def shared_bytes(self) -> int:
        """Size of `Shared` of the template, in bytes."""
        if self.grouped:
            return self._streamed_bytes
        first, *others = self.layers
        weights = self.stages * copied_pitch(max(layer.block for layer in self.layers), self.depth)
        image = self.image_buffers * copied_pitch(first.in_height * first.in_width, self.depth)
        between = [layer.in_height * layer.in_width * layer.chunks for layer in others]
        return 2 * self.depth * (weights + between[0] + max([image, *between[1:]]))

    @property
    def widest(self) -> int:
        """Largest number of output channels of one pass."""
        return max(layer.block for layer in self.layers)

    @property
    def _streamed_bytes(self) -> int:
        """Of convolution_chain_streamed.cu: stages of weights, planes, biases, mbarriers, places of pixels."""
        first, *others = self.layers
        weights = self.stages * self.widest
        image = self.image_buffers * copied_pitch(first.planes_pitch, self.depth)
        between = [layer.planes_pitch * layer.chunks for layer in others]
        planes = 2 * self.depth * (weights + between[0] + max([image, *between[1:]]))
        biases = rounded_up(2 * sum(layer.conv.filters for layer in self.layers), BARRIER_BYTES)
        barriers = 2 * (self.stages + self.image_buffers) * BARRIER_BYTES
        return planes + rounded_up(biases + barriers, 16) + 4 * first.places

    @property
    def moved_bytes(self) -> int:
        """Bytes moved from and to shared memory: operands of all products, copied weights, and the values between
        layers as they are written."""
        first = self.layers[0]
        image = 2 * first.in_height * first.in_width * first.depth * first.chunks * first.blocks
        between = sum(2 * layer.in_height * layer.in_width * layer.depth * layer.chunks for layer in self.layers[1:])
        return image + between + sum(layer.operand_bytes + layer.copied_bytes for layer in self.layers)

    def fits(self, chip: Chip) -> bool:
        """Whether a block of the chip has the shared memory and the registers."""
        if self.grouped and self.stages > STAGES["wgmma"][-1] and 2 * self.stages * self.widest * self.depth > STAGED_BYTES:
            return False
        return self.shared_bytes <= chip.simt.shared_bytes_per_block and self.blocks_by_registers(chip) > 0

    def blocks_by_registers(self, chip: Chip) -> int:
        """Number of blocks that share a core's registers: as many as leave a thread its sums, the operands of a warp's
        rows and the rest. 0 where there is no room for one."""
        needed = max(layer.registers for layer in self.layers) + OTHER_REGISTERS[self.instruction]
        if needed > rounded_up(chip.simt.registers_per_thread, REGISTERS_STEP):
            return 0
        return sharing_blocks(chip, needed, self.threads)

    def registers(self, chip: Chip) -> int:
        """Largest number of registers of a thread."""
        return thread_registers(chip, self.blocks_by_registers(chip), self.threads)


def _threads(instruction: str, warps: int) -> int:
    """Threads of a block in which this many warps multiply."""
    return 32 * (warps + (1 + LOADERS if instruction == "wgmma" else 0))


def chain_tiles(convolutions: Sequence[ChainedConvolution], chip: Chip) -> Iterator[ChainTile]:
    """All tiles that a core can hold, with the most stages of each, for every instruction for which the chip has a
    rate."""
    rates = {rate.instruction for rate in chip.tensor.rates if rate.dtype == "float16"}
    known = [instruction for instruction in INSTRUCTIONS if instruction in rates]
    for instruction in known:
        for pixels, depth, warps in product(_shapes(convolutions, instruction), DEPTHS, WARPS[instruction]):
            layers = _tile_layers(convolutions, pixels, ChainUnits(instruction, depth, warps), chip)
            tiles = (ChainTile(layers, stages) for stages in STAGES[instruction]) if layers else ()
            if fitting := next((tile for tile in tiles if tile.fits(chip)), None):
                yield fitting


def _rows(height: int, width: int, pitch: int) -> int:
    """From the first to the last pixel of a tile, where rows of pixels are `pitch` apart."""
    return (height - 1) * pitch + width


def _shapes(convolutions: Sequence[ChainedConvolution], instruction: str) -> tuple[tuple[int, int], ...]:
    """Rows and columns of a block, in pixels: of each size class the shapes with which all blocks together compute
    least, including halos and the rounding to rows of the instruction; ties go to those that read least. For a square
    image no block of mma is higher than wide."""
    high, wide = convolutions[-1].result[1:3]
    heights, widths = ({*SIDES, *(-(-extent // parts) for parts in PARTS)} for extent in (high, wide))
    turned = high != wide or instruction == "wgmma"
    pairs = [pair for pair in product(sorted(heights), sorted(widths)) if turned or pair[0] <= pair[1]]
    found = list[tuple[int, int]]()
    for low, size in pairwise((SIZES[0] // 2, *SIZES)):
        sized = [pair for pair in pairs if low < pair[0] * pair[1] <= size]
        found += sorted(sized, key=lambda pair: _computed(convolutions, pair, instruction))[:TRIED]
    return tuple(found)


def _computed(
    convolutions: Sequence[ChainedConvolution], pixels: tuple[int, int], instruction: str
) -> tuple[int, int]:
    """Multiply-accumulates of all blocks of one image, and pixels that they read."""
    height, width = pixels
    high, wide = convolutions[-1].result[1:3]
    blocks, total = -(-high // height) * -(-wide // width), 0
    for conv in reversed(convolutions):
        taps, step = conv.op.ints("kernel")[0], _step(conv, convolutions[0])
        read = ((height - 1) * step + taps, (width - 1) * step + taps)
        rows = _rows(height, width, -(-read[1] // step) if instruction == "wgmma" else width)
        total += blocks * rounded_up(rows, ROWS[instruction]) * taps * taps * conv.channels * conv.filters
        height, width = read
    return total, blocks * height * width


def _step(conv: ChainedConvolution, first: ChainedConvolution) -> int:
    """Pixels that a convolution's pixels are apart in shared memory: a 1x1 that is the first one gathers them."""
    return 1 if conv is first and conv.op.ints("kernel")[0] == 1 else conv.stride


@dataclass(frozen=True, slots=True)
class ChainUnits:
    """Choices that all layers of a block share: the instruction of products, channels of depth per step, and warps."""

    instruction: str
    depth: int
    warps: int

    def splits(self) -> Iterator[tuple[int, int]]:
        """(output channels per pass, warps that share the rows)."""
        grouped = self.instruction == "wgmma"
        for block, across in product(BLOCKS, (1, 2, 4, 8)):
            down, columns = self.warps // across, block // across
            if down and columns >= LEAST_COLUMNS[self.instruction] and (not grouped or down % 4 == 0):
                yield block, down


def _tile_layers(
    convolutions: Sequence[ChainedConvolution], pixels: tuple[int, int], units: ChainUnits, chip: Chip
) -> tuple[LayerTile, ...]:
    """Tiles of the layers, computed from the last one, which makes `pixels`, to the first; () where a warp has no room
    for its sums."""
    layers: list[LayerTile] = []
    height, width = pixels
    room = MOST_SUMS
    if units.instruction == "wgmma":
        share = thread_registers(chip, 1, _threads(units.instruction, units.warps))
        room = min(room, share - OTHER_REGISTERS[units.instruction])
    for conv in reversed(convolutions):
        taps = conv.op.ints("kernel")[0]
        step = _step(conv, convolutions[0])
        extents = (height, width, (height - 1) * step + taps, (width - 1) * step + taps, step)
        first, last = conv is convolutions[0], conv is convolutions[-1]
        splits = (
            LayerTile(conv, *extents, units.instruction, units.depth, units.warps, first, last, block, down)
            for block, down in units.splits()
        )
        fitting = (layer for layer in splits if (layer.registers if layer.grouped else layer.sums) <= room)
        best = min(fitting, key=lambda layer: (layer.macs, layer.operand_bytes), default=None)
        if best is None:
            return ()
        layers.append(best)
        height, width = extents[2:4]
    return tuple(reversed(layers))


def steps_of_weights(layer: LayerTile, weights: npt.NDArray[np.generic]) -> bytes:
    """Weights (filters, taps, channels) of a layer by wgmma as its steps read them, one after the other: by blocks of
    filters, chunks of channels, taps; each step in planes (8 channels, filters of the block). Filters and channels that
    there are not are zeros."""
    filters, channels = layer.blocks * layer.block, layer.chunks * layer.depth
    given = weights.reshape(layer.conv.filters, layer.taps, layer.conv.channels)
    room = ((0, filters - given.shape[0]), (0, 0), (0, channels - given.shape[2]))
    parts = np.pad(given, room).reshape(layer.blocks, layer.block, layer.taps, layer.chunks, layer.depth // 8, 8)
    return parts.transpose(0, 3, 2, 4, 1, 5).tobytes()
