"""The block of MobileNet-v2 as one kernel: 1x1 convolution, depthwise 3x3, 1x1 convolution, with or without a sum.

    expand -> depthwise -> project (+ r)   -->   one launch; values between stay in shared memory, rounded to fp16
    depthwise -> project (+ r)                   as if they were stored

Each block of threads computes a tile of pixels and all channels; each neighbour computes the expansion of the tile's
halo again. Where all weights fit into shared memory next to a tile, blocks keep them and go from tile to tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.cutlass.families.fused.chained_layers import (
    ChainedConvolution,
    chained_convolutions,
    is_depthwise,
    is_pointwise,
    operands,
)
from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily
from codegen.cutlass.families.fused.inverted_residual_tiles import BlockShape, InvertedTile, inverted_tiles
from codegen.cutlass.families.matrix.tensor_epilogues import device_functions
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor, main_floor, shared_floor, stored_bytes
from codegen.cutlass.kernel.launches import Address, Launch, Source
from codegen.cutlass.sources import filled, source_text
from partitioner.ir.graph import Constants

TAPS = 9


@dataclass(frozen=True, slots=True)
class _Block:
    """The layers of the block; `expand` is None where the depthwise convolution reads the image."""

    work: KernelWork
    expand: ChainedConvolution | None
    depthwise: ChainedConvolution
    project: ChainedConvolution

    @property
    def first(self) -> ChainedConvolution:
        return self.expand or self.depthwise

    @property
    def shape(self) -> BlockShape:
        return BlockShape(
            self.first.channels, self.depthwise.filters, self.project.result, self.depthwise.stride, bool(self.expand)
        )

    def tiles(self) -> tuple[InvertedTile, ...]:
        return inverted_tiles(self.shape, self.work.chip)

    def costs(self, tile: InvertedTile) -> FusedCosts:
        chip, shape = self.work.chip, self.shape
        macs = tile.expand_macs + shape.expanded * tile.pixels * shape.filters
        filtered = shape.expanded * tile.pixels * TAPS
        tiles, grid = (tile.tiles,), tile.grid(chip)
        floors = (
            main_floor(chip, stored_bytes(self.work)),
            arithmetic_floor(chip, "tensor", macs, tiles, chip.tensor.macs_per_cycle("mma", "float16")),
            arithmetic_floor(chip, chip.lanes.name, filtered, tiles, chip.lanes.elements_per_cycle("float32")),
            shared_floor(chip, tile.read_bytes, tile.tiles),
            cache_floor(chip, tile.tiles * tile.image_bytes + grid * tile.weight_bytes),
        )
        if tile.resident:
            return FusedCosts(floors, blocks=(grid,))
        return FusedCosts(floors, (1, tile.height, tile.width, shape.filters))

    def launch(self, tile: InvertedTile, constants: Constants) -> Launch:
        del constants
        image = Address(self.first.op.inputs[0])
        convolutions = (self.first, self.depthwise, self.project)  # without an expansion its weights are not read
        _, height, width, _ = self.depthwise.image
        arguments = (
            image,
            *(place for each in convolutions for place in operands(self.work.graph, each.op)),
            Address(self.project.epilogue.source) if self.project.epilogue.source else image,
            Address(self.work.output, written=True),
            *(height, width, *self.project.result[1:3], *self.depthwise.op.ints("pads")[:2], tile.tiles),
        )
        grid, block = (tile.grid(self.work.chip), 1, 1), (tile.threads, 1, 1)
        return Launch(_source(self, tile), "inverted_residual", grid, block, arguments, tile.shared_bytes)


def _block_of(work: KernelWork) -> _Block | None:
    """The layers in the form that the template takes; None for others."""
    chain = chained_convolutions(work)
    if len(chain) not in (2, 3):
        return None
    expand = chain[0] if len(chain) == 3 else None
    depthwise, project = chain[-2:]
    if not (is_depthwise(work.graph, depthwise.op) and is_pointwise(project.op)):
        return None
    if expand and not is_pointwise(expand.op):
        return None
    if chain[0].channels % 8 or project.filters % 8:
        return None
    return _Block(work, expand, depthwise, project)


def _source(block: _Block, tile: InvertedTile) -> Source:
    shape = block.shape
    text = source_text("common.cuh", "primitives.cuh") + filled(
        "inverted_residual.cu",
        IN=shape.channels,
        EXPANDED=shape.expanded,
        OUT=shape.filters,
        BLOCK=tile.channels,
        STRIDE=shape.stride,
        TILE_H=tile.height,
        TILE_W=tile.width,
        EXPAND=shape.expands,
        RESIDENT=tile.resident,
        PROJECT_TILES=tile.project_tiles,
        SHARERS=tile.sharers(block.work.chip),
        OPERATORS=device_functions(
            after_expand=block.expand.epilogue.before if block.expand else (),
            after_depthwise=block.depthwise.epilogue.before,
            before_sum=block.project.epilogue.before,
            after_sum=block.project.epilogue.after,
        ),
        SOURCE=block.project.epilogue.source is not None,
        SHARED=tile.shared_bytes,
    )
    return Source("inverted_residual", text)


INVERTED_RESIDUAL = FusedFamily("inverted_residual", _block_of)
