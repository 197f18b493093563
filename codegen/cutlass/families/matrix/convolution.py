"""Convolutions by CUTLASS's implicit GEMM (2.x, mma.sync, fp32 sums), one launch per group of channels.

    image N x H x W x C, filters K x R x S x C  -->  N x P x Q x K: rows N P Q, columns K, depth R S C

Channels are read 8, 4 or 2 at a time, a step of the depth takes those of one tap. An odd number of channels is padded
to a multiple of 8: the image by a preceding kernel, into scratch memory, the filters when they are emitted.

A step of few channels would be nearly empty. Then all taps of a row are read as one tap of more channels, which
neighbouring pixels are in memory: S taps of C channels are one of S C, from one pixel to the next are C elements. The
preceding kernel pads the pixels to 4 or 8 channels, and rows by the pixels beyond the edges, of which the convolution
then knows nothing.

Filters are stored in the layout in which they are read (`Wants.weights`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from codegen.cutlass.families.matrix.padding import pad_channels, pad_pixels
from codegen.cutlass.families.matrix.tensor_epilogues import TensorEpilogue, epilogue_of
from codegen.cutlass.families.matrix.tiles import KNOWN_TILES, TILES, WIDE_TILES, MatrixTile, tile_floors, tile_named
from codegen.cutlass.kernel.family import KernelWork, Parameters
from codegen.cutlass.kernel.floors import MOST_BLOCKS, launch_seconds, main_floor, window_bytes
from codegen.cutlass.kernel.launches import Address, ComputedLaunch, Data, Launch, LayerScratch, Place, Source, moved
from codegen.cutlass.sources import filled
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel

WIDEST, FEWEST = 8, 4
SWIZZLE = 8
"""Neighbouring blocks of threads take so many tiles of columns of the same rows, which they find in the L2."""
MOST_TAPS = 32


def conv_alignment(channels: int, groups: int) -> int:
    """Channels of a group that are read at a time: 8, 4 or 2; 8 where an odd number is padded; 0 where neither
    works."""
    at_once = gcd(channels, WIDEST)
    if at_once > 1:
        return at_once
    return WIDEST if groups == 1 else 0


def _as_image(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Batch, rows, columns and channels."""
    return shape if len(shape) == 4 else (shape[0], 1, *shape[1:])


@dataclass(frozen=True, slots=True)
class _Problem:
    """One convolution; channels and filters are those of one group. `by_row`: the taps of a row are read as one. One
    along a line is one of images that are one pixel high."""

    work: KernelWork
    by_row: bool = False

    @property
    def groups(self) -> int:
        return int(self.work.anchor.number("groups"))

    @property
    def image(self) -> tuple[int, ...]:
        return _as_image(self.work.shape(self.work.anchor.inputs[0]))

    @property
    def result(self) -> tuple[int, ...]:
        return _as_image(self.work.shape(self.work.anchor.outputs[0]))

    @property
    def channels(self) -> int:
        return self.image[3] // self.groups

    @property
    def filters(self) -> int:
        return self.result[3] // self.groups

    @property
    def taps(self) -> tuple[int, int]:
        return self._of_axes("kernel")

    @property
    def dilations(self) -> tuple[int, int]:
        return self._of_axes("dilations")

    @property
    def pads(self) -> tuple[int, int]:
        """Pixels of zeros above, and to the left."""
        pads = self.work.anchor.ints("pads")
        *above, left = pads[: len(pads) // 2]
        return (above[0] if above else 0), left

    def _of_axes(self, name: str) -> tuple[int, int]:
        """An attribute of rows and columns, which is 1 for rows that there are not."""
        *above, across = self.work.anchor.ints(name)
        return (above[0] if above else 1), across

    @property
    def has_rows(self) -> bool:
        """Whether the taps of a row can be read as one, and fewer steps come of it."""
        dense = self.groups == 1 and self.dilations[1] == 1
        return dense and self.taps[1] > 1 and self.channels < WIDEST

    @property
    def padded_channels(self) -> int:
        """Channels of a pixel as the kernel reads it."""
        if self.by_row:
            return FEWEST if self.channels <= FEWEST else WIDEST
        return self.channels if self.channels % 2 == 0 else -(-self.channels // WIDEST) * WIDEST

    @property
    def padded_width(self) -> int:
        """Pixels of a row as the kernel reads it: by rows, all that a window reaches."""
        return (self.result[2] - 1) * self.strides[1] + self.taps[1] if self.by_row else self.image[2]

    @property
    def is_padded(self) -> bool:
        """Whether a kernel before it pads the image."""
        return self.by_row or self.padded_channels != self.channels

    @property
    def strides(self) -> tuple[int, int]:
        return self._of_axes("strides")

    @property
    def seen(self) -> tuple[tuple[int, int], int, int]:
        """What CUTLASS is told: taps of a column and a row, channels of a tap, pixels of a row."""
        (rows, columns), channels = self.taps, self.padded_channels
        if self.by_row:
            return (rows, 1), columns * channels, (self.result[2] - 1) * self.strides[1] + 1
        return (rows, columns), channels, self.image[2]

    @property
    def alignment(self) -> int:
        """Channels that are read at a time; 0 where there are none."""
        if not self.by_row:
            return conv_alignment(self.channels, self.groups)
        pixel = self.padded_channels
        return gcd(self.taps[1] * pixel, self.strides[1] * pixel, self.padded_width * pixel, WIDEST)

    def steps(self, tile: MatrixTile) -> int:
        """Steps of the tile's depth."""
        taps, channels, _ = self.seen
        return prod(taps) * -(-channels // tile.depth)

    @property
    def fits(self) -> bool:
        """Whether CUTLASS's limits hold: the taps of a row and of a column are kept in masks of 32 bits, and strides in
        int32."""
        return max(self.seen[0]) <= MOST_TAPS and self.padded_elements * self.groups < 1 << 31

    @property
    def padded_elements(self) -> int:
        return prod(self.image[:2]) * self.padded_width * self.padded_channels

    @property
    def epilogue(self) -> TensorEpilogue:
        return epilogue_of(self.work.graph, self.work.layer)


@dataclass(frozen=True, slots=True)
class ConvolutionFamily:
    """DefaultConv2dFpropWithBroadcast with the tiles of `TILES`."""

    name: str = "conv2d"

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        if len(work.layers) > 1 or work.anchor.kind != "conv" or len(work.shape(work.output)) not in (3, 4):
            return ()
        return tuple(
            self._candidate(problem, tile)
            for problem in (_Problem(work, by_row=True), _Problem(work))
            if (problem.has_rows or not problem.by_row) and problem.alignment and problem.filters > 1 and problem.fits
            for tile in ((*TILES, *WIDE_TILES) if problem.alignment == WIDEST else TILES)
            if -(-problem.filters // tile.columns) <= MOST_BLOCKS
        )

    def _candidate(self, problem: _Problem, tile: MatrixTile) -> Kernel:
        chip, groups, rows = problem.work.chip, problem.groups, prod(problem.result[:3])
        scratch = 2 * problem.padded_elements * problem.is_padded
        traffic = window_bytes(problem.work) + 2 * scratch  # written and read once more
        taps, channels, _ = problem.seen
        floors = tile_floors(
            chip, tile, rows, problem.filters, prod(taps) * channels, groups, steps=problem.steps(tile)
        )
        return Kernel(
            self.name,
            (("tile", tile.name), ("aligned", problem.alignment), *((("taps", "rows"),) if problem.by_row else ())),
            (),
            (("shared_bytes", tile.shared_bytes), ("threads", tile.threads)),
            groups + problem.is_padded,
            launch_seconds(chip),
            (main_floor(chip, traffic), *floors),
            (-(-rows // tile.rows), -(-problem.filters // tile.columns), groups),
        )

    def launches(
        self, work: KernelWork, parameters: Parameters, constants: Constants
    ) -> tuple[Launch | ComputedLaunch, ...]:
        """The launches, one per group. Raises TargetError for a tile that is not in `KNOWN_TILES`."""
        problem, tile = _Problem(work, parameters.get("taps") == "rows"), tile_named(parameters.get("tile"))
        if tile is None:
            raise TargetError(f"kernel {self.name}", needs=f"a tile of {', '.join(t.name for t in KNOWN_TILES)}",
                              has=str(parameters.get("tile")))  # fmt: skip
        source = _source(problem, tile)
        image, filters = work.anchor.inputs[:2]
        if not problem.is_padded:
            return tuple(_launch(problem, source, Address(image), Address(filters), g) for g in range(problem.groups))
        padded = LayerScratch(0, 2 * problem.padded_elements)
        weights = Data(f"{filters} padded", _padded(problem, constants))
        return _padding(problem, Address(image), padded), _launch(problem, source, padded, weights, 0)


def _padding(problem: _Problem, image: Address, padded: LayerScratch) -> Launch:
    channels, wanted = problem.channels, problem.padded_channels
    if not problem.by_row:
        return pad_channels(image, padded, prod(problem.image[:3]), channels, wanted)
    left, rows = problem.pads[1], prod(problem.image[:2])
    return pad_pixels(image, padded, rows, problem.image[2], problem.padded_width, left, channels, wanted)


def _source(problem: _Problem, tile: MatrixTile) -> Source:
    text = filled(
        "convolution.cu",
        EPILOGUE=problem.epilogue.text(),
        TILE=tile.block,
        WARP=tile.warp,
        WIDTH=gcd(problem.filters, WIDEST),
        SWIZZLE=SWIZZLE,
        STAGES=tile.stages,
        ALIGNMENT=problem.alignment,
    )
    return Source(f"conv2d_{tile.name}", text, cutlass=True)


def _launch(problem: _Problem, source: Source, image: Place, filters: Place, group: int) -> ComputedLaunch:
    op, result = problem.work.anchor, problem.result
    taps, channels, width = problem.seen
    n, h, _, _ = problem.image
    skipped, written = 2 * group * problem.channels, 2 * group * problem.filters
    pitch = problem.padded_channels if problem.groups == 1 else problem.image[3]
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    top, left = problem.pads
    numbers = (
        n, h, width, channels, problem.filters, *taps, *result[1:3], top, 0 if problem.by_row else left,
        *problem.strides, *problem.dilations, pitch, result[3], pitch * problem.padded_width, int(bias is not None),
    )  # fmt: skip
    read = problem.epilogue.source
    places = (
        moved(image, skipped),
        moved(filters, 2 * group * problem.filters * prod(taps) * channels),
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
