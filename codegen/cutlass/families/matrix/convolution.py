"""Convolutions by CUTLASS's implicit GEMM (2.x, mma.sync, fp32 sums), one launch per group of channels.

    image N x H x W x C, filters K x R x S x C  -->  N x P x Q x K: rows N P Q, columns K, depth R S C

Channels are read 8, 4 or 2 at a time. An odd number of channels is padded to 4 or a multiple of 8: the image by a
preceding kernel, into scratch memory, the filters when they are emitted. Where all channels are read at once, a step
of the depth takes those of several taps (CUTLASS's fixed channels), else those of one tap. Filters are stored in the
layout in which they are read (`Wants.weights`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from codegen.cutlass.families.matrix.padding import pad_channels
from codegen.cutlass.families.matrix.tensor_epilogues import TensorEpilogue, epilogue_of
from codegen.cutlass.families.matrix.tiles import TILES, WIDE_TILES, MatrixTile, tile_floors, tile_named
from codegen.cutlass.kernel.family import KernelWork, Parameters
from codegen.cutlass.kernel.floors import MOST_BLOCKS, launch_seconds, main_floor, window_bytes
from codegen.cutlass.kernel.launches import Address, ComputedLaunch, Data, Launch, LayerScratch, Place, Source, moved
from codegen.cutlass.sources import filled, source_text
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel

WIDEST, FEWEST = 8, 4
SWIZZLE = 8
"""Neighbouring blocks of threads take so many tiles of columns of the same rows, which they find in the L2."""
MOST_TAPS = 32


def conv_alignment(channels: int, groups: int) -> int:
    """Channels of a group that are read at a time: 8, 4 or 2; those of the padded image where there is an odd number; 0
    where neither works."""
    if channels % 2 and groups > 1:
        return 0
    return gcd(_padded_channels(channels), WIDEST)


def _padded_channels(channels: int) -> int:
    """An even number as it is, an odd one padded to 4 or a multiple of 8."""
    if channels % 2 == 0:
        return channels
    return FEWEST if channels < FEWEST else -(-channels // WIDEST) * WIDEST


@dataclass(frozen=True, slots=True)
class _Problem:
    """One convolution; channels and filters are those of one group."""

    work: KernelWork

    @property
    def groups(self) -> int:
        return int(self.work.anchor.number("groups"))

    @property
    def image(self) -> tuple[int, ...]:
        return self.work.shape(self.work.anchor.inputs[0])

    @property
    def result(self) -> tuple[int, ...]:
        return self.work.shape(self.work.anchor.outputs[0])

    @property
    def channels(self) -> int:
        return self.image[3] // self.groups

    @property
    def filters(self) -> int:
        return self.result[3] // self.groups

    @property
    def taps(self) -> tuple[int, int]:
        rows, columns = self.work.anchor.ints("kernel")
        return rows, columns

    @property
    def alignment(self) -> int:
        return conv_alignment(self.channels, self.groups)

    @property
    def padded_channels(self) -> int:
        """Channels of the image as the kernel reads it."""
        return _padded_channels(self.channels)

    @property
    def fixed(self) -> bool:
        """Whether all channels are read at once."""
        return self.groups == 1 and self.padded_channels == self.alignment

    @property
    def depth(self) -> int:
        """Channels of all taps, as they are read."""
        return self.padded_channels * prod(self.taps)

    def steps(self, tile: MatrixTile) -> int:
        """Steps of the tile's depth: each has channels of one tap, or of as many as there is room for."""
        if self.fixed:
            return -(-self.depth // tile.depth)
        return prod(self.taps) * -(-self.padded_channels // tile.depth)

    @property
    def fits(self) -> bool:
        """Whether CUTLASS's limits hold: the taps of a row and of a column are kept in masks of 32 bits, and strides in
        int32."""
        largest = prod(self.image[:3]) * self.padded_channels * self.groups
        return max(self.taps) <= MOST_TAPS and largest < 1 << 31

    @property
    def epilogue(self) -> TensorEpilogue:
        return epilogue_of(self.work.graph, self.work.layer)


@dataclass(frozen=True, slots=True)
class ConvolutionFamily:
    """DefaultConv2dFpropWithBroadcast with the tiles of `TILES`."""

    name: str = "conv2d"

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        if len(work.layers) > 1 or work.anchor.kind != "conv" or len(work.shape(work.output)) != 4:
            return ()
        problem = _Problem(work)
        if not problem.alignment or problem.filters == 1 or not problem.fits:
            return ()
        tiles = (*TILES, *WIDE_TILES) if problem.alignment == WIDEST else TILES
        tiles = tuple(tile for tile in tiles if -(-problem.filters // tile.columns) <= MOST_BLOCKS)
        return tuple(self._candidate(problem, tile) for tile in tiles)

    def _candidate(self, problem: _Problem, tile: MatrixTile) -> Kernel:
        chip, pads = problem.work.chip, problem.padded_channels != problem.channels
        rows, groups = prod(problem.result[:3]), problem.groups
        traffic = window_bytes(problem.work)
        if pads:
            traffic += 4 * prod(problem.image[:3]) * problem.padded_channels  # written and read once more
        return Kernel(
            self.name,
            (("tile", tile.name), ("aligned", problem.alignment)),
            (),
            (("shared_bytes", tile.shared_bytes), ("threads", tile.threads)),
            groups + pads,
            launch_seconds(chip),
            (main_floor(chip, traffic),
             *tile_floors(chip, tile, rows, problem.filters, problem.depth, groups, steps=problem.steps(tile))),
            (-(-rows // tile.rows), -(-problem.filters // tile.columns), groups),
        )  # fmt: skip

    def launches(
        self, work: KernelWork, parameters: Parameters, constants: Constants
    ) -> tuple[Launch | ComputedLaunch, ...]:
        """The launches, one per group. Raises TargetError for a tile that is not in `TILES`."""
        problem, tile = _Problem(work), tile_named(parameters.get("tile"))
        if tile is None:
            raise TargetError(f"kernel {self.name}", needs=f"a tile of {', '.join(t.name for t in TILES)}",
                              has=str(parameters.get("tile")))  # fmt: skip
        source = _source(problem, tile)
        image, filters = work.anchor.inputs[:2]
        if problem.padded_channels == problem.channels:
            return tuple(_launch(problem, source, Address(image), Address(filters), g) for g in range(problem.groups))
        padded = LayerScratch(0, 2 * prod(problem.image[:3]) * problem.padded_channels)
        weights = Data(f"{filters} padded", _padded(problem, constants))
        return (
            pad_channels(Address(image), padded, prod(problem.image[:3]), problem.channels, problem.padded_channels),
            _launch(problem, source, padded, weights, 0),
        )


def _source(problem: _Problem, tile: MatrixTile) -> Source:
    text = filled(
        "convolution.cu",
        EPILOGUE=problem.epilogue.text(),
        TILE=tile.block,
        WARP=tile.warp,
        WIDTH=gcd(problem.filters, WIDEST),
        SWIZZLE=SWIZZLE,
        ITERATOR="kFixedChannels" if problem.fixed else "kOptimized",
        STAGES=tile.stages,
        ALIGNMENT=problem.alignment,
    )
    text = text.replace('#include "parameters.cuh"', source_text("parameters.cuh"))
    return Source(f"conv2d_{tile.name}", text, cutlass=True)


def _launch(problem: _Problem, source: Source, image: Place, filters: Place, group: int) -> ComputedLaunch:
    op, result = problem.work.anchor, problem.result
    rows, columns = problem.taps
    n, h, w, _ = problem.image
    skipped, written = 2 * group * problem.channels, 2 * group * problem.filters
    pitch = problem.padded_channels if problem.groups == 1 else problem.image[3]
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    numbers = (
        n, h, w, problem.padded_channels, problem.filters, rows, columns, result[1], result[2],
        *op.ints("pads")[:2], *op.ints("strides"), *op.ints("dilations"), pitch, result[3], int(bias is not None),
    )  # fmt: skip
    read = problem.epilogue.source
    places = (
        moved(image, skipped),
        moved(filters, 2 * group * problem.filters * rows * columns * problem.padded_channels),
        Address(read, plus_bytes=written) if read else Address(problem.work.output, True, written),
        Address(problem.work.output, True, written),
        *((Address(bias, plus_bytes=written),) if bias else ()),
    )
    return ComputedLaunch(source, "convolution", numbers, places)


def _padded(problem: _Problem, constants: Constants) -> bytes:
    """Filters with zeros for the channels that the image does not have."""
    tensor = problem.work.graph.by_name[problem.work.anchor.inputs[1]]
    weights = constants[tensor.constant].reshape(tensor.shape)
    room = ((0, 0),) * (weights.ndim - 1) + ((0, problem.padded_channels - problem.channels),)
    return np.pad(weights, room).tobytes()


CONVOLUTION = ConvolutionFamily()
