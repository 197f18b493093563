"""One convolution, or one product by a constant matrix, by wgmma: for chips that have a rate for it.

    image N x H x W x C, filters K x R x S x C  -->  N x P x Q x K: rows N P Q, columns K, depth R S C
    a [rows, depth] x [depth, columns]          -->  the same, as a convolution 1 x 1 of one row of pixels

The image is gathered by cp.async, 8 channels at a time, zeros where a window leaves the image. Filters are constants,
emitted as the kernel's stages hold them, so that one bulk copy brings those of a step. Blocks compute tile after tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily
from codegen.cutlass.families.matrix.products import product_of
from codegen.cutlass.families.matrix.tensor_epilogues import device_functions, epilogue_of
from codegen.cutlass.families.wgmma.layer_tiles import DEPTH, LayerShape, WgmmaTile, layer_tiles
from codegen.cutlass.kernel.epilogues import dims
from codegen.cutlass.kernel.expressions import literal
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import main_floor, stored_bytes, window_bytes
from codegen.cutlass.kernel.launches import Address, Data, Launch, LayerScratch, Place, Source, bias_of
from codegen.cutlass.sources import filled, source_text
from partitioner.ir.graph import Constants

UNIT = 8
"""Channels that a thread copies at a time, and filters that it stores."""
MOST_TAPS = 15
"""Largest number of taps along an axis: those inside the image are kept in 16 bits, of which one stays free."""
MOST_ELEMENTS = 1 << 31
"""Elements of an image, whose bytes are counted in 32 bits."""
SUMMING_THREADS = 128
"""Threads of a block that adds up parts, each `UNIT` filters."""
FAR = 4.0
"""Largest square of a row's mean, in variances, at which the variance is a difference of both."""


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Pixels of the image and of one image's result, and of the window its taps, strides, dilations and pads."""

    image: tuple[int, int]
    result: tuple[int, int]
    taps: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)

    @property
    def pointwise(self) -> bool:
        """Whether rows of the product lie one after the other in the image."""
        return self.taps == self.strides == (1, 1) and self.image == self.result and self.pads == (0, 0)


@dataclass(frozen=True, slots=True)
class RowNorm:
    """A norm of the rows that a layer multiplies; only a `centred` one takes off their mean."""

    centred: bool
    epsilon: float


@dataclass(frozen=True, slots=True)
class WgmmaLayer:
    """A convolution, or a product as one."""

    work: KernelWork
    shape: LayerShape
    geometry: _Geometry

    def tiles(self) -> tuple[WgmmaTile, ...]:
        return layer_tiles(self.shape, self.work.chip)

    def costs(self, tile: WgmmaTile) -> FusedCosts:
        work, convolution = self.work, self.work.anchor.kind == "conv"
        traffic = window_bytes(work) if convolution else stored_bytes(work)
        floors = (main_floor(work.chip, traffic), *tile.floors(self.shape, work.chip))
        return FusedCosts(floors, blocks=(tile.blocks(self.shape, work.chip),))

    def launch(self, tile: WgmmaTile, constants: Constants) -> Launch:
        x, weights = self.work.anchor.inputs[:2]
        filters = Data(f"{weights} by steps of {tile.name}", packed_filters(self.filters(constants), tile.columns))
        return self.launch_on(x, filters, bias_of(self.work.anchor, self.shape.filters), tile)

    def launch_on(self, x: str, filters: Data, biases: Place, tile: WgmmaTile, norm: RowNorm | None = None) -> Launch:
        """The launch on the value x, after a norm of its rows if there is one: then `biases` are fp32, for each tile
        [3, columns]: scales of the filters, sums of their weights, biases. A tile in parts leaves these in scratch
        memory."""
        work, shape, at = self.work, self.shape, self.geometry
        result: Place = Address(work.output, written=True)
        arguments = (
            Address(x),
            filters,
            biases,
            Address(self.source or x),
            self.parts(tile) if tile.parts > 1 else result,
            dims((*at.image, shape.channels)),
            dims((shape.rows, *at.result, shape.filters)),
            dims((*at.taps, *at.strides, *at.dilations)),
            dims(at.pads),
        )
        grid, block = (tile.blocks(shape, work.chip), 1, 1), (tile.threads, 1, 1)
        return Launch(self._text(tile, norm), "wgmma_layer", grid, block, arguments, tile.shared_bytes)

    def sum_launch(self, tile: WgmmaTile) -> Launch:
        """The launch that adds up the parts of a tile, and computes what follows the layer's anchor."""
        arguments = (
            self.parts(tile),
            Address(self.source or self.work.output),
            Address(self.work.output, written=True),
            self.shape.rows * self.shape.filters // UNIT,
        )
        grid, block = (summing_blocks(self.shape), 1, 1), (SUMMING_THREADS, 1, 1)
        return Launch(self._text(tile, None), "sum_parts", grid, block, arguments)

    def parts(self, tile: WgmmaTile) -> LayerScratch:
        """The memory of the parts, fp32 [parts, rows, filters]."""
        return LayerScratch(0, tile.parts_bytes(self.shape))

    @property
    def source(self) -> str | None:
        """The map that is added, if there is one."""
        return epilogue_of(self.work.graph, self.work.layer).source

    def filters(self, constants: Constants) -> npt.NDArray[np.generic]:
        """(filters, taps, channels)."""
        given = constants[self.work.graph.by_name[self.work.anchor.inputs[1]].constant]
        if self.work.anchor.kind == "matmul":
            given = given.reshape(self.shape.channels, self.shape.filters).T
        return given.reshape(self.shape.filters, self.shape.taps, self.shape.channels)

    def _text(self, tile: WgmmaTile, norm: RowNorm | None) -> Source:
        epilogue = epilogue_of(self.work.graph, self.work.layer)
        shared = source_text("common.cuh", "primitives.cuh", "planes.cuh", "planes_wgmma.cuh", "stages.cuh")
        text = filled(
            "wgmma_layer.cu",
            ROWS=tile.rows,
            COLUMNS=tile.columns,
            STAGES=tile.stages,
            SHARE=tile.share,
            SHARERS=tile.sharers,
            SHARED=tile.shared_bytes,
            PARTS=tile.parts,
            AHEAD=tile.rows_ahead(self.work.chip),
            POINTWISE=self.geometry.pointwise,
            NORMALISED=norm is not None,
            CENTRED=norm is not None and norm.centred,
            EPSILON=literal(norm.epsilon if norm else 0.0),
            FAR=literal(FAR),
            LOADER_REGISTERS=tile.loader_registers,
            MULTIPLIER_REGISTERS=tile.multiplier_registers(self.work.chip),
            OPERATORS=device_functions(before_sum=epilogue.before, after_sum=epilogue.after),
            SOURCE=bool(epilogue.source),
        )
        if tile.parts > 1:
            text += filled("sum_parts.cu", SUMMING=SUMMING_THREADS, SOURCE=bool(epilogue.source))
        template = "norm_product" if norm else "split_layer" if tile.parts > 1 else "wgmma_layer"
        return Source(f"{template}_{tile.name}", shared + text)


def summing_blocks(shape: LayerShape) -> int:
    """Blocks that add up the parts of a result."""
    return -(-shape.rows * shape.filters // (UNIT * SUMMING_THREADS))


def in_eights(count: int) -> npt.NDArray[np.intp]:
    """The filter that is multiplied as each of `count` columns, a multiple of 32. Of eight columns a thread of four has
    the sums of two: so each has those of eight neighbouring filters in every 32, and stores them at once."""
    return np.arange(count).reshape(-1, 4, 4, 2).transpose(0, 2, 1, 3).reshape(-1)


def packed_filters(filters: npt.NDArray[np.generic], columns: int) -> bytes:
    """Filters (filters, taps, channels) as the kernel's stages hold them, one after the other: by tiles of `columns`
    filters, parts of 64 channels, taps. A row of a stage is a filter's 64 channels, in units of 8, which are exchanged
    by the three lowest bits of the row's number. Of 32 filters each thread gets sums of eight neighbours (`in_eights`).
    Filters and channels that there are not are zeros."""
    count, taps, channels = filters.shape
    tiles, chunks = -(-count // columns), -(-channels // DEPTH)
    room = ((0, tiles * columns - count), (0, 0), (0, chunks * DEPTH - channels))
    placed = np.pad(filters, room)[in_eights(tiles * columns)]
    parts = placed.reshape(tiles, columns, taps, chunks, DEPTH // UNIT, UNIT).transpose(0, 3, 2, 1, 4, 5)
    row = np.arange(columns)[:, None]
    exchanged = np.arange(DEPTH // UNIT)[None, :] ^ row % (DEPTH // UNIT)
    return parts[:, :, :, row, exchanged].tobytes()


def wgmma_layer_of(work: KernelWork) -> WgmmaLayer | None:
    """The layer in the form that the template takes; None for others."""
    rates = {rate.instruction for rate in work.chip.tensor.rates if rate.dtype == "float16"}
    if "wgmma" not in rates or len(work.layers) > 1 or work.anchor.kind not in ("conv", "matmul"):
        return None
    if not work.graph.by_name[work.anchor.inputs[1]].constant:
        return None
    layer = _convolution(work) if work.anchor.kind == "conv" else _product(work)
    if layer is None or layer.shape.channels % UNIT or layer.shape.filters % UNIT:
        return None
    return layer if prod(work.shape(work.anchor.inputs[0])) < MOST_ELEMENTS else None


def _convolution(work: KernelWork) -> WgmmaLayer | None:
    op = work.anchor
    image, result = work.shape(op.inputs[0]), work.shape(op.outputs[0])
    if len(result) != 4 or op.number("groups") != 1 or max(op.ints("kernel")) > MOST_TAPS:
        return None
    taps, strides, dilations = ((v[0], v[1]) for v in (op.ints(k) for k in ("kernel", "strides", "dilations")))
    pads = op.ints("pads")
    geometry = _Geometry((image[1], image[2]), (result[1], result[2]), taps, strides, dilations, (pads[0], pads[1]))
    shape = LayerShape(prod(result[:3]), prod(taps), image[3], result[3])
    return WgmmaLayer(work, shape, geometry)


def _product(work: KernelWork) -> WgmmaLayer | None:
    product = product_of(work)
    if product.batch or product.constant_a or not product.constant_b:
        return None
    row = (1, product.rows)
    return WgmmaLayer(work, LayerShape(product.rows, 1, product.depth, product.columns), _Geometry(row, row))


WGMMA_LAYER = FusedFamily("wgmma_layer", wgmma_layer_of)
