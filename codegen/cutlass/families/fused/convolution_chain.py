"""Two or three convolutions in a row, 1x1 or 3x3, as one kernel: values between them stay in shared memory.

    1x1 -> 3x3 -> 1x1 (+ r)     3x3 -> 1x1 (+ r)     3x3 -> 3x3 (+ r)     -->   one launch

Each block of threads computes a tile of pixels and all channels. The halo is computed again by each neighbour, and
every block reads the weights of all layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.cutlass.families.fused.chain_tiles import LOADERS, ChainTile, chain_tiles
from codegen.cutlass.families.fused.chained_layers import ChainedConvolution, chained_convolutions, is_dense, operands
from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily
from codegen.cutlass.families.fused.layer_tile import LayerTile, steps_of_weights
from codegen.cutlass.families.matrix.tensor_epilogues import statements
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import (
    MOST_BLOCKS,
    arithmetic_floor,
    cache_floor,
    main_floor,
    shared_floor,
    stored_bytes,
)
from codegen.cutlass.kernel.launches import Address, Data, Launch, Place, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.chip import Chip
from partitioner.ir.graph import Constants, Op

MOST_LAYERS = 3
MOST_OFFERED = 4


@dataclass(frozen=True, slots=True)
class _Chain:
    """Two or three convolutions, each of which reads the result of the one before it."""

    work: KernelWork
    convolutions: tuple[ChainedConvolution, ...]

    def tiles(self) -> Iterator[ChainTile]:
        tiles = chain_tiles(self.convolutions, self.work.chip)
        known = all(self.work.graph.by_name[conv.op.inputs[1]].constant for conv in self.convolutions)
        return (tile for tile in tiles if max(_grid(tile)[1:]) <= MOST_BLOCKS and (known or not tile.grouped))

    def costs(self, tile: ChainTile) -> FusedCosts:
        chip, grid = self.work.chip, _grid(tile)
        macs = sum(layer.macs for layer in tile.layers)
        floors = (
            main_floor(chip, stored_bytes(self.work)),
            arithmetic_floor(chip, "tensor", macs, grid, chip.tensor.macs_per_cycle(tile.instruction, "float16")),
            shared_floor(chip, tile.moved_bytes, grid[0] * grid[1] * grid[2]),
            cache_floor(chip, _read_bytes(tile, grid)),
        )
        return FusedCosts(floors, (1, *tile.pixels, tile.layers[-1].conv.filters))

    def launch(self, tile: ChainTile, constants: Constants) -> Launch:
        first, last = self.convolutions[0], self.convolutions[-1]
        arguments = (
            Address(first.op.inputs[0]),
            *self._weights_and_biases(tile, constants),
            Address(last.epilogue.source or first.op.inputs[0]),
            Address(self.work.output, written=True),
            *_extents(self.convolutions),
        )
        source, block = _source(tile, self.work.chip), (tile.threads, 1, 1)
        return Launch(source, "convolution_chain", _grid(tile), block, arguments, tile.shared_bytes)

    def _weights_and_biases(self, tile: ChainTile, constants: Constants) -> Iterator[Place]:
        """Weights and bias of each layer; where weights are streamed, those of all layers in the order of their steps,
        then the biases."""
        graph = self.work.graph
        pairs = [operands(graph, conv.op) for conv in self.convolutions]
        if not tile.grouped:
            return (place for pair in pairs for place in pair)
        names = [conv.op.inputs[1] for conv in self.convolutions]
        steps = b"".join(
            steps_of_weights(layer, constants[graph.by_name[name].constant])
            for layer, name in zip(tile.layers, names, strict=True)
        )
        return iter((Data(f"{', '.join(names)} by steps", steps), *(bias for _, bias in pairs)))


def _chain_of(work: KernelWork) -> _Chain | None:
    """The convolutions in the form that the template takes; None for others."""
    if len(work.layers) > MOST_LAYERS:
        return None
    chain = chained_convolutions(work)
    if any(
        conv.channels % 8 or conv.filters % 8 or not (_is_pointwise(conv.op) or is_dense(conv.op)) for conv in chain
    ):
        return None
    return _Chain(work, chain) if chain else None


def _is_pointwise(op: Op) -> bool:
    """Whether the convolution is 1 x 1 without padding, over every pixel or every second one."""
    steps = op.ints("strides") in ((1, 1), (2, 2))
    return op.ints("kernel") == (1, 1) and steps and not any(op.ints("pads")) and op.number("groups") == 1


def _grid(tile: ChainTile) -> tuple[int, int, int]:
    images, rows, columns, _ = tile.layers[-1].conv.result
    height, width = tile.pixels
    return -(-columns // width), -(-rows // height), images


def _extents(chain: tuple[ChainedConvolution, ...]) -> tuple[tuple[int, ...], ...]:
    """Height and width of the image and after each layer, and the pads of each layer."""
    shapes = (chain[0].image, *(conv.result for conv in chain))
    heights, widths = (tuple(shape[axis] for shape in shapes) for axis in (1, 2))
    pads_y, pads_x = (tuple(conv.op.ints("pads")[axis] for conv in chain) for axis in (0, 1))
    return tuple((*values, *(0,) * (6 - len(values))) for values in (heights, widths, pads_y, pads_x))


def _read_bytes(tile: ChainTile, grid: tuple[int, int, int]) -> int:
    """Bytes that blocks read from outside: the image with its halos once per block of the first layer's channels, all
    weights in every block, and the feature map that is added."""
    first, last = tile.layers[0], tile.layers[-1]
    pixels = grid[2] * _covered(tile, 0) * _covered(tile, 1)
    weights = sum(_weights(layer) + layer.conv.filters for layer in tile.layers)
    images, rows, columns, channels = last.conv.result
    added = images * rows * columns * channels if last.conv.epilogue.source else 0
    return 2 * (pixels * first.conv.channels * first.blocks + grid[0] * grid[1] * grid[2] * weights + added)


def _weights(layer: LayerTile) -> int:
    """Weights that a block reads; whole steps where they are streamed."""
    if layer.grouped:
        return layer.copied_bytes // 2
    return layer.conv.filters * layer.taps * layer.conv.channels


def _covered(tile: ChainTile, axis: int) -> int:
    """Pixels of the image along an axis that all blocks read; halos count for each block."""
    total = 0
    for start in range(0, tile.layers[-1].conv.result[1 + axis], tile.pixels[axis]):
        for layer in reversed(tile.layers):
            start = start * layer.conv.stride - layer.conv.op.ints("pads")[axis]
        first = tile.layers[0]
        every = first.conv.stride if first.taps == 1 else 1
        reach = (first.in_height, first.in_width)[axis]
        places = range(start, start + reach * every, every)
        total += sum(0 <= place < first.conv.image[1 + axis] for place in places)
    return total


def _source(tile: ChainTile, chip: Chip) -> Source:
    layers = tile.layers
    numbers = range(len(layers))
    epilogues = [layer.conv.epilogue for layer in layers]
    befores = [statements(epilogue.before) for epilogue in epilogues] + [""] * (MOST_LAYERS - len(layers))

    def listed(values: list[int] | list[str]) -> str:
        return ", ".join(map(str, values))

    words: dict[str, str | int] = {
        "LAYERS": len(layers),
        "TILE_H": tile.pixels[0],
        "TILE_W": tile.pixels[1],
        "WARPS": tile.warps,
        "DEPTH": tile.depth,
        "STAGES": tile.stages,
        "CHANNELS": listed([layers[0].conv.channels, *(layer.conv.filters for layer in layers)]),
        "KERNELS": listed([layer.conv.op.ints("kernel")[0] for layer in layers]),
        "STRIDES": listed([layer.conv.stride for layer in layers]),
        "COLUMNS": listed([layer.block for layer in layers]),
        "DOWN": listed([layer.down for layer in layers]),
        "SHARED": tile.shared_bytes,
        "SHARERS": tile.blocks_by_registers(chip),
        "AFTER_FIRST": befores[0],
        "AFTER_SECOND": befores[1],
        "AFTER_THIRD": befores[2],
        "AFTER_SUM": statements(epilogues[-1].after),
        "SOURCE": bool(epilogues[-1].source),
        "BIASES": listed([f"b{i}" for i in numbers]),
    }
    planes = ("common.cuh", "primitives.cuh", "planes.cuh")
    if tile.grouped:
        biases = listed([f"const half* __restrict__ b{i}" for i in numbers])
        words |= {"IMAGES": tile.image_buffers, "LOADERS": LOADERS, "PARAMETERS": biases}
        shared = source_text(*planes, "planes_wgmma.cuh", "stages.cuh")
        return Source("convolution_chain", shared + filled("convolution_chain_streamed.cu", **words))
    pairs = listed([f"const half* __restrict__ w{i}, const half* __restrict__ b{i}" for i in numbers])
    words |= {"PARAMETERS": pairs, "WEIGHTS": listed([f"w{i}" for i in numbers])}
    return Source("convolution_chain", source_text(*planes) + filled("convolution_chain.cu", **words))


CONVOLUTION_CHAIN = FusedFamily("convolution_chain", _chain_of, MOST_OFFERED)
