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
from codegen.cutlass.families.fused.inverted_residual_tiles import BlockShape, InvertedTile, inverted_tiles
from codegen.cutlass.families.matrix.tensor_epilogues import statements
from codegen.cutlass.kernel.family import KernelWork, Parameters, offered_with
from codegen.cutlass.kernel.floors import (
    arithmetic_floor,
    cache_floor,
    launch_seconds,
    main_floor,
    shared_floor,
    stored_bytes,
)
from codegen.cutlass.kernel.launches import Address, Launch, Source
from codegen.cutlass.sources import filled, source_text
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel

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


@dataclass(frozen=True, slots=True)
class InvertedResidualFamily:
    """inverted_residual.cu."""

    name: str = "inverted_residual"

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        block = _block_of(work)
        if block is None:
            return ()
        return tuple(_candidate(self.name, block, tile) for tile in inverted_tiles(block.shape, work.chip))

    def launches(self, work: KernelWork, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        """Raises TargetError for parameters that were not offered."""
        del constants
        block = _block_of(work)
        tiles = inverted_tiles(block.shape, work.chip) if block else ()
        tile = offered_with(parameters, self.name, tiles, _parameters)
        assert block is not None  # it has tiles
        image = Address(block.first.op.inputs[0])
        convolutions = (block.first, block.depthwise, block.project)  # without an expansion its weights are not read
        _, height, width, _ = block.depthwise.image
        arguments = (
            image,
            *(place for each in convolutions for place in operands(work.graph, each.op)),
            Address(block.project.epilogue.source) if block.project.epilogue.source else image,
            Address(work.output, written=True),
            *(height, width, *block.project.result[1:3], *block.depthwise.op.ints("pads")[:2], tile.tiles),
        )
        grid = (tile.grid(work.chip), 1, 1)
        return (
            Launch(_source(block, tile, work), self.name, grid, (tile.threads, 1, 1), arguments, tile.shared_bytes),
        )


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


def _parameters(tile: InvertedTile) -> tuple[tuple[str, int | str], ...]:
    return (
        ("rows", tile.height),
        ("columns", tile.width),
        ("channels", tile.channels),
        ("weights", "resident" if tile.resident else "streamed"),
    )


def _candidate(name: str, block: _Block, tile: InvertedTile) -> Kernel:
    chip, shape = block.work.chip, block.shape
    macs = tile.expand_macs + shape.expanded * tile.pixels * shape.filters
    filtered = shape.expanded * tile.pixels * TAPS
    tiles, grid = (tile.tiles,), tile.grid(chip)
    resident = tile.resident
    return Kernel(
        name,
        _parameters(tile),
        () if resident else (1, tile.height, tile.width, shape.filters),
        (("shared_bytes", tile.shared_bytes), ("threads", tile.threads), ("registers", tile.registers(chip))),
        1,
        launch_seconds(chip),
        (
            main_floor(chip, stored_bytes(block.work)),
            arithmetic_floor(chip, "tensor", macs, tiles, chip.tensor.macs_per_cycle("mma", "float16")),
            arithmetic_floor(chip, chip.lanes.name, filtered, tiles, chip.lanes.elements_per_cycle("float32")),
            shared_floor(chip, tile.read_bytes, tile.tiles),
            cache_floor(chip, tile.tiles * tile.image_bytes + grid * tile.weight_bytes),
        ),
        (grid,) if resident else (),
    )


def _source(block: _Block, tile: InvertedTile, work: KernelWork) -> Source:
    shape = block.shape
    text = (
        source_text("common.cuh")
        + source_text("primitives.cuh")
        + filled(
            "inverted_residual.cu",
            IN=shape.channels,
            EXPANDED=shape.expanded,
            OUT=shape.filters,
            BLOCK=tile.channels,
            STRIDE=shape.stride,
            TILE_H=tile.height,
            TILE_W=tile.width,
            EXPAND=_word(shape.expands),
            RESIDENT=_word(tile.resident),
            PROJECT_TILES=tile.project_tiles,
            SHARERS=tile.sharers(work.chip),
            AFTER_EXPAND=statements(block.expand.epilogue.before) if block.expand else "",
            AFTER_DEPTHWISE=statements(block.depthwise.epilogue.before),
            BEFORE_SUM=statements(block.project.epilogue.before),
            AFTER_SUM=statements(block.project.epilogue.after),
            SOURCE=_word(block.project.epilogue.source is not None),
            SHARED=tile.shared_bytes,
        )
    )
    return Source("inverted_residual", text)


def _word(value: bool) -> str:
    return "true" if value else "false"


INVERTED_RESIDUAL = InvertedResidualFamily()
