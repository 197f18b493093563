"""The first convolution of a network of images, 1 to 4 channels, by wgmma, without a kernel that pads the image.

    rows of the image, as they lie in memory --> shared memory;  a window's row is contiguous: taps x channels halves
    pixels x (rows of a window x slots)  times  (rows of a window x slots) x filters  -->  pixels x filters

A window's row takes up an even number of slots of the depth, so that pairs of them are words of shared memory. A window
that begins at an odd half has an empty slot before it. Empty slots are made zero in registers. A block computes some
rows of an image's result, or parts of them; filters are constants, emitted as planes of 8 slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily
from codegen.cutlass.families.fused.occupancy import RESERVED_BYTES, rounded_up, sharing_blocks, thread_registers
from codegen.cutlass.families.matrix.tensor_epilogues import TensorEpilogue, device_functions, epilogue_of
from codegen.cutlass.families.wgmma.wgmma_layer import in_eights
from codegen.cutlass.kernel.epilogues import dims
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import (
    arithmetic_floor,
    cache_floor,
    main_floor,
    shared_floor,
    window_bytes,
)
from codegen.cutlass.kernel.launches import Address, Data, Launch, Source, bias_of
from codegen.cutlass.sources import filled, source_text
from hw_models.chip import Chip
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import KernelFloor

THREADS, GROUP_ROWS = 128, 64
"""Of the four warps of a block, which multiply 64 pixels at a time."""
STEP = 16
"""Depth of a product."""
UNIT = 8
"""Halves of the widest copy, and filters that a thread stores."""
MOST_CHANNELS, MOST_TAPS, MOST_FILTERS = 4, 11, 256
COLUMNS = (128, 64, 32)
"""Filters of a block."""
ROWS = (16, 8, 4, 2, 1)
"""Rows of the result of a block."""
MOST_PARTS = 64
"""Of a row of the result."""
MOST_CHUNK = 10
"""Products whose left operands are in registers at a time."""
OTHER_REGISTERS = 44
"""Registers of a thread beside sums and left operands."""
MOST_ELEMENTS = 1 << 31
"""Elements of an image or a result."""
MOST_OFFERED = 8


@dataclass(frozen=True, slots=True)
class _Window:
    """A convolution: `image` batch, rows, pixels, channels; `result` as many, of filters; taps, strides and pads before
    the first pixel along both axes."""

    image: tuple[int, int, int, int]
    result: tuple[int, int, int, int]
    taps: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]

    @property
    def channels(self) -> int:
        return self.image[3]

    @property
    def length(self) -> int:
        """Halves of a row of the image."""
        return self.image[2] * self.channels

    @property
    def unit(self) -> int:
        """Halves that are copied at a time: rows of the image begin at multiples of it."""
        common = gcd(self.length, UNIT)
        return common if common == UNIT else min(common, 2)

    @property
    def lead(self) -> int:
        """Halves of zeros in shared memory before those of the image: no fewer than windows begin before it."""
        return rounded_up(self.pads[1] * self.channels, UNIT)

    @property
    def shift(self) -> int:
        """Slots before the first pixel's, so that a window begins at an even place."""
        return self.pads[1] * self.channels % 2

    @property
    def begin(self) -> int:
        """Where the first pixel's window begins, in halves from the begin of its rows in shared memory."""
        return self.lead - self.pads[1] * self.channels - self.shift

    @property
    def slots(self) -> int:
        """Of a row of a window."""
        return rounded_up(self.shift + self.taps[1] * self.channels, 2)

    @property
    def steps(self) -> int:
        """Products of depth 16 that a window takes."""
        return -(-self.taps[0] * self.slots // STEP)

    @property
    def pixel(self) -> int:
        """Halves from a window to the next of its row."""
        return self.strides[1] * self.channels

    def packed(self, filters: npt.NDArray[np.generic], columns: int) -> bytes:
        """Filters (filters, rows, taps, channels) as a block holds them, by tiles of `columns` filters: planes of 8
        slots, in each the filters one after the other, by fours of eight for the threads that store them (`in_eights`).
        Filters and slots that there are not are zeros."""
        count = filters.shape[0]
        by_row = filters.reshape(count, self.taps[0], -1)
        room = (0, -count % columns), (0, 0), (self.shift, self.slots - self.shift - by_row.shape[2])
        flat = np.pad(by_row, room).reshape(-1, self.taps[0] * self.slots)
        deep = np.pad(flat, ((0, 0), (0, STEP * self.steps - flat.shape[1])))
        return deep[in_eights(len(deep))].reshape(-1, columns, 2 * self.steps, UNIT).transpose(0, 2, 1, 3).tobytes()


@dataclass(frozen=True, slots=True)
class FirstTile:
    """`rows` of the result of `pixels` each, and `columns` filters, by four warps."""

    window: _Window
    rows: int
    pixels: int
    columns: int

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        return (("rows", self.rows), ("pixels", self.pixels), ("filters", self.columns))

    @property
    def threads(self) -> int:
        return THREADS

    @property
    def image_rows(self) -> int:
        """Rows of the image that a block reads."""
        return (self.rows - 1) * self.window.strides[0] + self.window.taps[0]

    @property
    def pitch(self) -> int:
        """Halves from one of them to the next in shared memory. The last pairs of a window's last eight slots are none
        of its own, and read nevertheless."""
        window = self.window
        behind = -window.taps[0] * window.slots % UNIT
        return rounded_up(window.begin + (self.pixels - 1) * window.pixel + window.slots + behind, UNIT)

    @property
    def filter_halves(self) -> int:
        return STEP * self.window.steps * self.columns

    @property
    def shared_bytes(self) -> int:
        """Filters and rows."""
        return 2 * (self.filter_halves + self.image_rows * self.pitch)

    @property
    def chunk(self) -> int:
        """Products whose left operands are in registers at a time: as many in each of as few parts as can be."""
        steps = self.window.steps
        return -(-steps // -(-steps // MOST_CHUNK))

    def sharers(self, chip: Chip) -> int:
        """Blocks that share a core."""
        needed = self.columns // 2 + 4 * self.chunk + OTHER_REGISTERS
        by_memory = chip.memory(chip.simt.shared_memory).size_bytes // (self.shared_bytes + RESERVED_BYTES)
        return max(1, min(sharing_blocks(chip, needed, THREADS), by_memory))

    def registers(self, chip: Chip) -> int:
        return thread_registers(chip, self.sharers(chip), THREADS)

    @property
    def bands(self) -> int:
        """Of as many rows of an image's result."""
        return -(-self.window.result[1] // self.rows)

    @property
    def parts(self) -> int:
        """Of a row of the result."""
        return -(-self.window.result[2] // self.pixels)

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.window.result[0] * self.bands * self.parts, -(-self.window.result[3] // self.columns), 1

    def floors(self, chip: Chip) -> tuple[KernelFloor, ...]:
        """Floors of the tensor cores, shared memory and the L2, with whole tiles and whole waves of blocks."""
        steps, blocks = self.window.steps, prod(self.grid)
        groups = -(-self.rows * self.pixels // GROUP_ROWS)
        depth = STEP * steps
        reached = min(self.image_rows * self.pitch, self.image_rows * self.window.length)
        operands = groups * depth * (GROUP_ROWS + self.columns)
        copied = self.filter_halves + self.image_rows * self.pitch
        rate = chip.tensor.macs_per_cycle("wgmma", "float16")
        return (
            arithmetic_floor(chip, "tensor", groups * GROUP_ROWS * depth * self.columns, (blocks,), rate),
            shared_floor(chip, 2 * (operands + copied), blocks),
            cache_floor(chip, 2 * blocks * (self.filter_halves + reached)),
        )


@dataclass(frozen=True, slots=True)
class _FirstConvolution:
    """The layer."""

    work: KernelWork
    window: _Window

    def tiles(self) -> Iterator[FirstTile]:
        """Those that a block of the chip can hold, large ones first; of several that hold all rows, all pixels or all
        filters only the smallest."""
        _, high, wide, filters = self.window.result
        parts = {rounded_up(-(-wide // count), UNIT) for count in range(2, MOST_PARTS + 1)}
        widths = (wide, *sorted((part for part in parts if part < wide), reverse=True))
        for columns, rows, pixels in product(_up_to(COLUMNS, filters), _up_to(ROWS, high), widths):
            tile = FirstTile(self.window, rows, pixels, columns)
            if tile.shared_bytes <= self.work.chip.simt.shared_bytes_per_block:
                yield tile

    def costs(self, tile: FirstTile) -> FusedCosts:
        chip = self.work.chip
        return FusedCosts((main_floor(chip, window_bytes(self.work)), *tile.floors(chip)), blocks=tile.grid[:2])

    def launch(self, tile: FirstTile, constants: Constants) -> Launch:
        window, op = self.window, self.work.anchor
        x, weights = op.inputs[:2]
        given = constants[self.work.graph.by_name[weights].constant]
        filters = window.packed(given.reshape(window.result[3], *window.taps, window.channels), tile.columns)
        epilogue = epilogue_of(self.work.graph, self.work.layer)
        arguments = (
            Address(x),
            Data(f"{weights} in planes of {tile.columns}", filters),
            bias_of(op, self.window.result[3]),
            Address(epilogue.source or x),
            Address(self.work.output, written=True),
            dims((window.image[1], window.length, window.pads[0], window.lead, window.begin)),
            dims(window.result[1:]),
            dims((tile.rows, tile.pixels, tile.pitch, tile.bands, tile.parts)),
        )
        source, block = self._source(tile, epilogue), (THREADS, 1, 1)
        return Launch(source, "first_convolution", tile.grid, block, arguments, tile.shared_bytes)

    def _source(self, tile: FirstTile, epilogue: TensorEpilogue) -> Source:
        window = self.window
        shared = source_text("common.cuh", "primitives.cuh", "planes.cuh", "planes_wgmma.cuh", "stages.cuh")
        text = filled(
            "first_convolution.cu",
            CHANNELS=window.channels,
            DOWN=window.taps[0],
            ACROSS=window.taps[1],
            STRIDE_Y=window.strides[0],
            STRIDE_X=window.strides[1],
            SHIFT=window.shift,
            COLUMNS=tile.columns,
            CHUNK=tile.chunk,
            UNIT=window.unit,
            SHARERS=tile.sharers(self.work.chip),
            OPERATORS=device_functions(before_sum=epilogue.before, after_sum=epilogue.after),
            SOURCE=bool(epilogue.source),
        )
        return Source(f"first_convolution_{tile.columns}", shared + text)


def _up_to(sizes: tuple[int, ...], extent: int) -> tuple[int, ...]:
    """Sizes that the extent fills, and the smallest that holds it all; in descending order, as they are given."""
    larger = [size for size in sizes if size >= extent]
    return tuple(size for size in sizes if size <= min(larger, default=sizes[0]))


def _first_convolution_of(work: KernelWork) -> _FirstConvolution | None:
    """The layer in the form that the template takes; None for others."""
    rates = {rate.instruction for rate in work.chip.tensor.rates if rate.dtype == "float16"}
    if "wgmma" not in rates or len(work.layers) > 1 or work.anchor.kind != "conv":
        return None
    op = work.anchor
    image, result = work.shape(op.inputs[0]), work.shape(op.outputs[0])
    if len(result) != 4 or op.number("groups") != 1 or not work.graph.by_name[op.inputs[1]].constant:
        return None
    taps, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    window = _Window(
        (image[0], image[1], image[2], image[3]),
        (result[0], result[1], result[2], result[3]),
        (taps[0], taps[1]),
        (strides[0], strides[1]),
        (pads[0], pads[1]),
    )
    dilated = any(dilation > 1 and extent > 1 for dilation, extent in zip(dilations, taps, strict=True))
    if dilated or max(taps) > MOST_TAPS or window.channels > MOST_CHANNELS or window.pixel % 2:
        return None
    if result[3] % UNIT or result[3] > MOST_FILTERS or max(prod(image), prod(result)) >= MOST_ELEMENTS:
        return None
    return _FirstConvolution(work, window)


FIRST_CONVOLUTION = FusedFamily("first_convolution", _first_convolution_of, MOST_OFFERED, like=("wgmma_layer",))
