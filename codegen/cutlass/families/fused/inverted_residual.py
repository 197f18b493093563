"""The block of MobileNet-v2 as one kernel: 1x1 convolution, depthwise 3x3, 1x1 convolution, with or without a sum.

    expand -> depthwise -> project (+ r)   -->   one launch; what lies between stays in shared memory, rounded to halves
                                                 as if it were stored

Each block of threads computes a tile of pixels and all channels; the expansion of the tile's halo is computed again by
its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.cutlass.families.fused.chained_layers import chained_convolutions, is_depthwise, is_pointwise, operands
from codegen.cutlass.families.fused.shared_floor import shared_floor
from codegen.cutlass.families.matrix.tensor_epilogues import TensorEpilogue, statements
from codegen.cutlass.kernel.family import Parameters, Work
from codegen.cutlass.kernel.floors import (
    MOST_BLOCKS,
    arithmetic_floor,
    cache_floor,
    launch_seconds,
    main_floor,
    stored_bytes,
)
from codegen.cutlass.kernel.launches import Address, Launch, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.chip import Chip
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants, Op
from partitioner.ir.kernels import Kernel, KernelFloor

__all__ = ["INVERTED_RESIDUAL", "InvertedResidualFamily"]

THREADS = 256
WARPS = THREADS // 32
BLOCKS = (48, 64, 32, 16)
"""Expanded channels that go through at once, best first: 48 divides all widths of MobileNet-v2."""
TILES = ((8, 8), (8, 16), (4, 8))
"""Pixels of a block, rows and columns."""
TAPS = 9
MOST_SUMS = 128
"""Of 255 registers: the rest is for operands, addresses and the sums of the expansion."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Three layers that are one. Extents are of channels and pixels."""

    work: Work
    expand: Op
    depthwise: Op
    project: Op
    epilogues: tuple[TensorEpilogue, TensorEpilogue, TensorEpilogue]

    @property
    def channels(self) -> int:
        """Of the image."""
        return self.work.shape(self.expand.inputs[0])[3]

    @property
    def expanded(self) -> int:
        return self.work.shape(self.expand.outputs[0])[3]

    @property
    def result(self) -> tuple[int, ...]:
        return self.work.shape(self.work.output)

    @property
    def stride(self) -> int:
        return self.depthwise.ints("strides")[0]

    @property
    def at_once(self) -> int | None:
        """Expanded channels of a pass; None where none of ours divides all of them."""
        return next((block for block in BLOCKS if self.expanded % block == 0), None)


@dataclass(frozen=True, slots=True)
class _Tile:
    """What one block of threads computes, as in inverted_residual.cu."""

    block: _Block
    height: int
    width: int
    channels: int

    @property
    def depth(self) -> int:
        return -(-self.block.channels // 16) * 16

    @property
    def halo(self) -> int:
        """Pixels of the image, rows of sixteen."""
        high, wide = ((extent - 1) * self.block.stride + 3 for extent in (self.height, self.width))
        return -(-high * wide // 16) * 16

    @property
    def pixels(self) -> int:
        return self.height * self.width

    @property
    def shared_bytes(self) -> int:
        """Of `Shared`, halves, its end aligned as its first array is; checked when the kernel is compiled."""
        image, weights = self.halo * (self.depth + 8), self.channels * (self.depth + 8)
        pitch = self.channels + 8
        return 2 * (
            image + weights + (self.block.result[3] + self.halo + self.pixels) * pitch + self.channels * (TAPS + 2)
        )

    @property
    def sums(self) -> int:
        """Floats that a thread keeps from pass to pass."""
        split = WARPS // (self.pixels // 16)
        return 4 * -(-self.block.result[3] // 8 // split)

    def fits(self, chip: Chip) -> bool:
        """In shared memory, in registers without spills, and in a grid."""
        small = self.shared_bytes <= chip.simt.shared_bytes_per_block and self.sums <= MOST_SUMS
        return small and max(self.grid[1:]) <= MOST_BLOCKS

    @property
    def grid(self) -> tuple[int, int, int]:
        n, rows, columns, _ = self.block.result
        return -(-columns // self.width), -(-rows // self.height), n


@dataclass(frozen=True, slots=True)
class InvertedResidualFamily:
    """inverted_residual.cu."""

    name: str = "inverted_residual"

    def offers(self, work: Work) -> tuple[Kernel, ...]:
        block = _block_of(work)
        if block is None or block.at_once is None:
            return ()
        tiles = [_Tile(block, height, width, block.at_once) for height, width in TILES]
        return tuple(_candidate(self.name, tile) for tile in tiles if tile.fits(work.chip))

    def launches(self, work: Work, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        """Raises TargetError for parameters that were not offered."""
        del constants
        block = _block_of(work)
        sizes = [parameters.get(name) for name in ("rows", "columns", "channels")]
        if block is None or (sizes[0], sizes[1]) not in TILES or sizes[2] != block.at_once:
            raise TargetError(
                f"kernel {self.name}", needs="the parameters that it was offered with", has=str(parameters)
            )
        tile = _Tile(block, *(int(size) for size in sizes if size is not None))
        _, height, width, _ = work.shape(block.expand.inputs[0])
        arguments = (
            *(place for op in (block.expand, block.depthwise, block.project) for place in operands(work.graph, op)),
            Address(block.epilogues[2].source or block.expand.inputs[0]),
            Address(work.output, written=True),
            *(height, width, *block.result[1:3], *block.depthwise.ints("pads")[:2], block.expanded),
        )
        arguments = (Address(block.expand.inputs[0]), *arguments)
        source = _source(block, tile)
        return (Launch(source, self.name, tile.grid, (THREADS, 1, 1), arguments, tile.shared_bytes),)


def _block_of(work: Work) -> _Block | None:
    """The three layers as the template takes them; None for others."""
    chain = chained_convolutions(work)
    if len(chain) != 3:
        return None
    expand, depthwise, project = chain
    if not (is_pointwise(expand.op) and is_depthwise(work.graph, depthwise.op) and is_pointwise(project.op)):
        return None
    if expand.channels % 8 or project.filters % 8:
        return None
    epilogues = expand.epilogue, depthwise.epilogue, project.epilogue
    return _Block(work, expand.op, depthwise.op, project.op, epilogues)


def _candidate(name: str, tile: _Tile) -> Kernel:
    block, chip = tile.block, tile.block.work.chip
    columns, rows, images = tile.grid
    blocks = columns * rows * images
    expanded, out = block.expanded, block.result[3]
    macs = expanded * (tile.halo * tile.depth + tile.pixels * out)
    weights = 2 * expanded * (block.channels + out + TAPS + 2)
    image = 2 * tile.halo * block.channels
    filtered = expanded * tile.pixels * TAPS
    return Kernel(
        name,
        (("rows", tile.height), ("columns", tile.width), ("channels", tile.channels)),
        (1, tile.height, tile.width, out),
        (("shared_bytes", tile.shared_bytes), ("threads", THREADS)),
        1,
        launch_seconds(chip),
        (
            main_floor(chip, stored_bytes(block.work)),
            arithmetic_floor(chip, "tensor", macs, tile.grid, chip.tensor.macs_per_cycle("mma", "float16")),
            arithmetic_floor(chip, chip.lanes.name, filtered, tile.grid, chip.lanes.elements_per_cycle("float32")),
            _shared_floor(tile, blocks),
            cache_floor(chip, blocks * (weights + image)),
        ),
    )


def _shared_floor(tile: _Tile, blocks: int) -> KernelFloor:
    """Bytes that a block reads from shared memory: operands of both products, the three rows of values above each that
    the depthwise convolution makes, and its filters for each of these."""
    block, chip = tile.block, tile.block.work.chip
    passes = block.expanded // tile.channels
    m_tiles = tile.pixels // 16
    expand = 2 * (tile.halo + tile.halo // 16 * tile.channels) * tile.depth
    wide = (tile.width - 1) * block.stride + 3
    depthwise = 2 * tile.height * (3 * wide + TAPS) * tile.channels
    project = 2 * (tile.pixels * (WARPS // m_tiles) + m_tiles * block.result[3]) * tile.channels
    read = passes * (expand + depthwise + project)
    return shared_floor(chip, read, blocks)


def _source(block: _Block, tile: _Tile) -> Source:
    expand, depthwise, project = block.epilogues
    text = (
        source_text("common.cuh")
        + source_text("primitives.cuh")
        + filled(
            "inverted_residual.cu",
            IN=block.channels,
            OUT=block.result[3],
            BLOCK=tile.channels,
            STRIDE=block.stride,
            TILE_H=tile.height,
            TILE_W=tile.width,
            AFTER_EXPAND=statements(expand.before),
            AFTER_DEPTHWISE=statements(depthwise.before),
            BEFORE_SUM=statements(project.before),
            AFTER_SUM=statements(project.after),
            SOURCE="true" if project.source else "false",
            SHARED=tile.shared_bytes,
        )
    )
    return Source("inverted_residual", text)


INVERTED_RESIDUAL = InvertedResidualFamily()
