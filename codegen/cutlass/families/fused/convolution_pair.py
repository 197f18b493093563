"""Two convolutions as one kernel by CUTLASS: its example 13, in both forms, which keep the values between in shared
memory or in registers.

    convolution -> 1x1 convolution (+ r)   -->   one launch; a block computes 32 or 64 pixels, all channels of both

Where values stay in registers, a warp computes all channels of its rows in both products; that is offered where nvcc
has registers for it. A baseline for our own kernels, offered where CUTLASS has it, with fp32 sums and with bias and
operators after both convolutions. Each product's tile is as wide as its layer, and intermediate values are rounded as
if they were stored. Intermediate channels fill their tile, so that no column of zeros goes through an operator that
turns it into infinities; the channels of the result need not. `mma.sync` on every architecture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from operator import add

from codegen.cutlass.families.fused.chained_layers import (
    ChainedConvolution,
    chained_convolutions,
    is_pointwise,
    operands,
)
from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily
from codegen.cutlass.families.matrix.tensor_epilogues import statements
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor, main_floor, shared_floor, window_bytes
from codegen.cutlass.kernel.launches import Address, ComputedLaunch, Source
from codegen.cutlass.sources import filled
from hw_models.chip import Chip
from partitioner.ir.graph import Constants

DEPTH, STAGES = 32, 3
WIDTHS = (64, 128, 256, 512)
"""Columns of a tile."""
MOST_TAPS = 32
"""Largest kernel extent: CUTLASS keeps the taps of a row and of a column in masks of 32 bits."""
MOST_ELEMENTS = (1 << 31) - 1
"""Largest number of elements: steps are int32."""
ADDRESSES = 62
"""Registers for the iterators of both products and their predicates: an upper bound on what nvcc takes."""
MOST_REGISTERS = 255
PARTS: dict[tuple[int, int], dict[int, tuple[int, int]]] = {
    (64, 4): {64: (32, 32), 128: (32, 64), 256: (64, 64)},
    (64, 8): {64: (32, 16), 128: (32, 32), 256: (32, 64), 512: (64, 64)},
    (32, 4): {64: (32, 16), 128: (32, 32), 256: (32, 64), 512: (32, 128)},
}
"""Rows and columns of a warp's part, by (rows, warps) of a block, then by columns of a product."""
RESIDENT: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {
    (64, 4): ((64, 64), (64, 128), (64, 256), (128, 64), (128, 128)),
    (64, 2): ((64, 64), (64, 128)),
}
"""Columns of both products where values between stay in registers, by (rows, warps) of a block: those of CUTLASS's that
nvcc compiles without spills."""
NARROWEST_PART = 32
"""Least number of columns of a warp's part of the second product: CUTLASS's epilogue writes no fewer."""

WIDEST_PART = 64
"""Largest number of columns of such a part that CUTLASS's epilogue writes eight at a time; with more, it mixes them
up."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """A block's work: `rows` pixels, `between` columns of the first product, `columns` of the second; values between
    stay in registers if `resident`."""

    rows: int
    warps: int
    between: int
    columns: int
    resident: bool = False

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        values = (("values", "registers"),) if self.resident else ()
        return (("rows", self.rows), ("warps", self.warps), *values)

    @property
    def parts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows and columns of a warp in either product."""
        if self.resident:
            rows = self.rows // self.warps
            return (rows, self.between), (rows, self.columns)
        parts = PARTS[self.rows, self.warps]
        return parts[self.between], parts[self.columns]

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory as CUTLASS lays it out, in fp16: operands of the first product in flight, or those of
        the second, which include room for a left one that it does not copy, next to the intermediate values that are
        not in registers, whose rows are 8 longer; the epilogue needs less."""
        in_flight = self.rows + max(self.between, self.columns)
        stored = 0 if self.resident else self.rows * (self.between + 8)
        return 2 * (STAGES * DEPTH * in_flight + stored)

    def registers(self, chip: Chip) -> int:
        """Largest number of registers of a thread: sums of a warp's part, of both products where the first ones stay
        there, two steps of both operands, and addresses."""
        del chip
        sums = [rows * columns // 32 for rows, columns in self.parts]
        operands = [(rows + columns) // 2 for rows, columns in self.parts]
        needed = sum(sums) + max(operands) if self.resident else max(map(add, sums, operands))
        return min(needed + ADDRESSES, MOST_REGISTERS)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both convolutions."""

    work: KernelWork
    first: ChainedConvolution
    second: ChainedConvolution

    def tiles(self) -> Iterator[_Tile]:
        """One tile for each shape of a block whose warps have registers for their parts, in either form."""
        between, filters = self.first.filters, self.second.filters
        for (rows, warps), parts in PARTS.items():
            wide = [width for width, part in parts.items() if width >= filters and part[1] >= NARROWEST_PART]
            if between in parts and wide:
                yield _Tile(rows, warps, between, wide[0])
        for (rows, warps), pairs in RESIDENT.items():
            wide = [columns for width, columns in pairs if width == between and columns >= filters]
            if wide:
                yield _Tile(rows, warps, between, wide[0], resident=True)

    def costs(self, tile: _Tile) -> FusedCosts:
        first, second, chip = self.first, self.second, self.work.chip
        depth = first.channels * prod(first.op.ints("kernel"))
        pixels = prod(second.result[:3])
        blocks = -(-pixels // tile.rows)
        deep = -(-depth // DEPTH) * DEPTH
        macs = tile.rows * tile.between * (deep + tile.columns)
        before, after = tile.parts
        copied = after[1] if tile.resident else sum(after)
        read = 2 * tile.warps * (sum(before) * deep + copied * tile.between)
        weights = depth * first.filters + first.filters * second.filters
        floors = (
            main_floor(chip, window_bytes(self.work)),
            arithmetic_floor(chip, "tensor", macs, (blocks,), chip.tensor.macs_per_cycle("mma", "float16")),
            shared_floor(chip, read, blocks),
            cache_floor(chip, 2 * (pixels * depth + blocks * weights)),
        )
        return FusedCosts(floors, blocks=(blocks,))

    def launch(self, tile: _Tile, constants: Constants) -> ComputedLaunch:
        del constants
        first, second, work = self.first, self.second, self.work
        numbers = (
            *first.image, first.filters, *first.op.ints("kernel"), *first.result[1:3], *first.op.ints("pads")[:2],
            *first.op.ints("strides"), *first.op.ints("dilations"), second.filters,
        )  # fmt: skip
        places = (
            Address(first.op.inputs[0]),
            *operands(work.graph, first.op),
            *operands(work.graph, second.op),
            Address(second.epilogue.source) if second.epilogue.source else Address(work.output, written=True),
            Address(work.output, written=True),
        )
        return ComputedLaunch(_source(self, tile), "convolution_pair", numbers, places)


def _pair_of(work: KernelWork) -> _Pair | None:
    """Both convolutions in the form that the template takes; None for others."""
    chain = chained_convolutions(work)
    if len(chain) != 2 or chain[0].op.number("groups") != 1 or not is_pointwise(chain[1].op):
        return None
    first, second = chain
    if first.channels % 8 or second.filters % 8 or first.filters not in WIDTHS or second.filters > max(WIDTHS):
        return None
    largest = max(prod(shape) for shape in (first.image, first.result, second.result))
    if max(first.op.ints("kernel")) > MOST_TAPS or largest > MOST_ELEMENTS:
        return None
    return _Pair(work, first, second)


def _source(pair: _Pair, tile: _Tile) -> Source:
    before, after = tile.parts
    text = filled(
        "convolution_pair.cu",
        EPILOGUE=pair.second.epilogue.text(),
        BETWEEN=statements(pair.first.epilogue.before),
        STAGES=STAGES,
        WIDTH=8 if after[1] <= WIDEST_PART else 4,
        ROWS=tile.rows,
        HIDDEN=tile.between,
        COLUMNS=tile.columns,
        WARP=f"{before[0]}, {before[1]}, {DEPTH}",
        WARP_AFTER=f"{after[0]}, {after[1]}, {DEPTH}",
        FORM="default_b2b_conv2d_fprop_sm80" if tile.resident else "default_b2b_conv2d_fprop_smem_accumulator_sm80",
        STORED=not tile.resident,
    )
    return Source(f"cutlass_pair_{tile.between}_{tile.columns}", text, cutlass=True)


CONVOLUTION_PAIR = FusedFamily("cutlass_pair", _pair_of)
