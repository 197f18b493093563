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

from codegen.cutlass.families.fused.chained_layers import ChainedConvolution
from codegen.cutlass.families.fused.layer_tile import LayerTile, operand_rows, pixel_step
from codegen.cutlass.families.fused.occupancy import (
    REGISTERS_STEP,
    RESERVED_BYTES,
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
"""Warps that multiply, in the order in which equally good ones are taken; see `_alone`."""
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
    def _staged_bytes(self) -> int:
        """Of all stages of weights."""
        return 2 * self.depth * self.stages * max(layer.block for layer in self.layers)

    @property
    def _streamed_bytes(self) -> int:
        """Of convolution_chain_streamed.cu: stages of weights, planes, biases, mbarriers, places of pixels."""
        first, *others = self.layers
        image = self.image_buffers * copied_pitch(first.planes_pitch, self.depth)
        between = [layer.planes_pitch * layer.chunks for layer in others]
        planes = self._staged_bytes + 2 * self.depth * (between[0] + max([image, *between[1:]]))
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
        if self.grouped and self.stages > STAGES["wgmma"][-1] and self._staged_bytes > STAGED_BYTES:
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
        for pixels, depth in product(_shapes(convolutions, instruction), DEPTHS):
            wider = False
            for warps in WARPS[instruction]:
                layers = _tile_layers(convolutions, pixels, ChainUnits(instruction, depth, warps), chip)
                tiles = (ChainTile(layers, stages) for stages in STAGES[instruction]) if layers else ()
                fitting = next((tile for tile in tiles if tile.fits(chip)), None)
                if fitting and not (wider and _alone(fitting, chip)):
                    wider = instruction == "wgmma"
                    yield fitting


def _alone(tile: ChainTile, chip: Chip) -> bool:
    """Whether no two blocks share a core. One group of four warps alone then multiplies or stores, but never both."""
    shared = chip.memory(chip.simt.shared_memory).size_bytes or chip.simt.shared_bytes_per_block
    return tile.blocks_by_registers(chip) < 2 or 2 * (tile.shared_bytes + RESERVED_BYTES) > shared


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


def _computed(convolutions: Sequence[ChainedConvolution], pixels: tuple[int, int], instruction: str) -> tuple[int, int]:
    """Multiply-accumulates of all blocks of one image, and pixels that they read."""
    height, width = pixels
    high, wide = convolutions[-1].result[1:3]
    blocks, total = -(-high // height) * -(-wide // width), 0
    for conv in reversed(convolutions):
        taps, step = conv.op.ints("kernel")[0], pixel_step(conv, conv is convolutions[0])
        read = ((height - 1) * step + taps, (width - 1) * step + taps)
        rows = operand_rows(height, width, -(-read[1] // step) if instruction == "wgmma" else width)
        total += blocks * rounded_up(rows, ROWS[instruction]) * taps * taps * conv.channels * conv.filters
        height, width = read
    return total, blocks * height * width


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
        first, last = conv is convolutions[0], conv is convolutions[-1]
        splits = (
            LayerTile(conv, height, width, units.instruction, units.depth, units.warps, first, last, block, down)
            for block, down in units.splits()
        )
        fitting = (layer for layer in splits if (layer.registers if layer.grouped else layer.sums) <= room)
        best = min(fitting, key=lambda layer: (layer.macs, layer.operand_bytes), default=None)
        if best is None:
            return ()
        layers.append(best)
        height, width = best.in_height, best.in_width
    return tuple(reversed(layers))
