"""Matrix products by CUTLASS's GEMM (2.x, mma.sync, fp32 sums), one launch per batch of equally spaced matrices.

    A rows x depth, B depth x columns, row-major as the graph has them; the matrices of a batch are the grid's z

Elements are read 8, 4 or 2 at a time. An odd depth of A and odd columns of B are padded with zeros to a multiple of 8:
constants when they are emitted, values by a preceding kernel, into scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from codegen.cutlass.families.matrix.padding import pad_matrices
from codegen.cutlass.families.matrix.products import WIDEST, BatchAxis, Product, product_of
from codegen.cutlass.families.matrix.tensor_epilogues import TensorEpilogue, epilogue_of
from codegen.cutlass.families.matrix.tiles import (
    KNOWN_TILES,
    PRODUCT_TILES,
    WIDE_TILES,
    MatrixTile,
    fewest_idle_first,
    tile_floors,
    tile_named,
)
from codegen.cutlass.kernel.family import KernelWork, Parameters
from codegen.cutlass.kernel.floors import MOST_BLOCKS, launch_seconds, main_floor, stored_bytes
from codegen.cutlass.kernel.launches import Address, Argument, Data, Launch, LayerScratch, Place, Source, moved
from codegen.cutlass.sources import filled
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel

MOST_LAUNCHES = 8
"""Largest number of launches: for more batches with different spacing, the kernel of any strides is used."""
MOST_ELEMENTS = (1 << 31) - 1
"""Largest number of elements of a padded factor: steps are int32."""


@dataclass(frozen=True, slots=True)
class GemmFamily:
    """A family of CUTLASS's parts, composed in `gemm.cu`, with the tiles of `PRODUCT_TILES`."""

    name: str = "gemm"

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        if len(work.layers) > 1 or work.anchor.kind != "matmul":
            return ()
        product = product_of(work)
        if not _fits(product):
            return ()
        tiles = (*PRODUCT_TILES, *WIDE_TILES) if _aligned(product) == WIDEST else PRODUCT_TILES
        ordered = fewest_idle_first(work.chip, tiles, product.rows, product.columns, product.batches)
        return tuple(_candidate(work, product, tile) for tile in ordered)

    def launches(self, work: KernelWork, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        """The launches, padding first. Raises TargetError for a tile that is not in `KNOWN_TILES`."""
        product, tile = product_of(work), tile_named(parameters.get("tile"))
        if tile is None or not _fits(product):
            raise TargetError(f"kernel {self.name}", needs=f"a tile of {', '.join(t.name for t in KNOWN_TILES)}",
                              has=str(parameters.get("tile")))  # fmt: skip
        name_a, name_b = work.anchor.inputs[:2]
        a = _Factor(name_a, product.matrices_a, product.rows, product.depth, product.rows, product.read_depth)
        b = _Factor(name_b, product.matrices_b, product.depth, product.columns, product.read_depth, product.pitch_b)
        place_a, before_a = a.read(work, constants, 0)
        place_b, before_b = b.read(work, constants, 1)
        source = _source(product, epilogue_of(work.graph, work.layer), tile)
        *outer, inner = product.batch or (BatchAxis(1, 0, 0),)
        launches = [*before_a, *before_b]
        for number, (matrix_a, matrix_b) in enumerate(_starts(outer)):
            start = 2 * number * inner.extent * product.rows * product.columns
            launches.append(
                Launch(
                    source,
                    "gemm",
                    (*_tiles(product, tile), inner.extent),
                    (tile.threads, 1, 1),
                    (
                        moved(place_a, 2 * matrix_a * a.wanted_elements),
                        moved(place_b, 2 * matrix_b * b.wanted_elements),
                        *_ends(work, start),
                        product.rows,
                        product.columns,
                        product.read_depth,
                        product.read_depth,
                        product.pitch_b,
                        inner.step_a * a.wanted_elements,
                        inner.step_b * b.wanted_elements,
                    ),
                    tile.shared_bytes,
                )
            )
        return tuple(launches)


@dataclass(frozen=True, slots=True)
class _Factor:
    """Matrices of a tensor, and the rows and columns of each that a kernel reads."""

    tensor: str
    matrices: int
    rows: int
    columns: int
    wanted_rows: int
    wanted_columns: int

    @property
    def wanted_elements(self) -> int:
        return self.wanted_rows * self.wanted_columns

    def read(self, work: KernelWork, constants: Constants, number: int) -> tuple[Place, tuple[Launch, ...]]:
        """The place where the kernel reads, and the launches before it; `number` identifies the scratch memory."""
        if (self.rows, self.columns) == (self.wanted_rows, self.wanted_columns):
            return Address(self.tensor), ()
        if constant := work.graph.by_name[self.tensor].constant:
            matrices = constants[constant].reshape(self.matrices, self.rows, self.columns)
            room = ((0, 0), (0, self.wanted_rows - self.rows), (0, self.wanted_columns - self.columns))
            return Data(f"{self.tensor} padded", np.pad(matrices, room).tobytes()), ()
        place = LayerScratch(number, 2 * self.matrices * self.wanted_elements)
        given, wanted = (self.rows, self.columns), (self.wanted_rows, self.wanted_columns)
        return place, (pad_matrices(Address(self.tensor), place, self.matrices, given, wanted),)


def _fits(product: Product) -> bool:
    """Whether grids and steps are small enough, and all that is padded is read from its start."""
    padded = (
        product.matrices_a * product.rows * product.read_depth,
        product.matrices_b * product.read_depth * product.pitch_b,
    )
    outer, inner = product.batch[:-1], product.batch[-1:]
    apart = bool(outer) and ((product.pads_a and product.constant_a) or (product.pads_b and product.constant_b))
    return (
        max(padded) <= MOST_ELEMENTS
        and -(-product.columns // min(tile.columns for tile in PRODUCT_TILES)) <= MOST_BLOCKS
        and all(axis.extent <= MOST_BLOCKS for axis in inner)
        and prod(axis.extent for axis in outer) <= MOST_LAUNCHES
        and not apart
    )


def _aligned(product: Product) -> int:
    """Elements that are read at a time of both factors."""
    return min(product.aligned_a, product.aligned_b)


def _candidate(work: KernelWork, product: Product, tile: MatrixTile) -> Kernel:
    traffic, padding = stored_bytes(work), 0
    for pads, constant, elements in (
        (product.pads_a, product.constant_a, product.matrices_a * product.rows * product.read_depth),
        (product.pads_b, product.constant_b, product.matrices_b * product.read_depth * product.pitch_b),
    ):
        if pads and not constant:
            traffic, padding = traffic + 4 * elements, padding + 1  # written and read once more
    floors = tile_floors(work.chip, tile, product.rows, product.columns, product.read_depth, product.batches)
    return Kernel(
        GEMM.name,
        (("tile", tile.name), ("aligned", _aligned(product))),
        (),
        (("shared_bytes", tile.shared_bytes), ("threads", tile.threads)),
        prod(axis.extent for axis in product.batch[:-1]) + padding,
        launch_seconds(work.chip),
        (main_floor(work.chip, traffic), *floors),
        (*_tiles(product, tile), product.batches),
    )


def _source(product: Product, epilogue: TensorEpilogue, tile: MatrixTile) -> Source:
    text = filled(
        "gemm.cu",
        EPILOGUE=epilogue.text(),
        TILE=tile.block,
        WARP=tile.warp,
        STAGES=tile.stages,
        THREADS=tile.threads,
        SHARED=tile.shared_bytes,
        WIDTH=gcd(product.columns, WIDEST),
        ALIGNED_A=product.aligned_a,
        ALIGNED_B=product.aligned_b,
    )
    return Source(f"gemm_{tile.name}", text, cutlass=True)


def _tiles(product: Product, tile: MatrixTile) -> tuple[int, int]:
    return -(-product.rows // tile.rows), -(-product.columns // tile.columns)


def _ends(work: KernelWork, start_bytes: int) -> tuple[Argument, Argument, Argument]:
    """Bias, the addend, and the result; null for those that are absent."""
    inputs, added = work.anchor.inputs, epilogue_of(work.graph, work.layer).source
    return (
        Address(inputs[2]) if len(inputs) > 2 else 0,
        Address(added, plus_bytes=start_bytes) if added else 0,
        Address(work.output, written=True, plus_bytes=start_bytes),
    )


def _starts(outer: Sequence[BatchAxis]) -> Iterator[tuple[int, int]]:
    """The first matrices of both factors for each position of these axes."""
    if not outer:
        yield 0, 0
        return
    first, *rest = outer
    for position in range(first.extent):
        for matrix_a, matrix_b in _starts(rest):
            yield position * first.step_a + matrix_a, position * first.step_b + matrix_b


GEMM = GemmFamily()
