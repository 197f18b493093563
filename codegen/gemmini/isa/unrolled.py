"""What the accelerator does for a loop of its own: the instructions of each part of it.

    MatrixLoop, ConvolutionLoop --unrolled--> moving in what is added, moving in factors, computing, moving out

The accelerator issues parts in turn, as data allow; the order here is that of the generator's functional model. One
function makes what the simulator carries out and what the timing model counts.

Source: the generator's unrollers and its functional model, restated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from codegen.gemmini.isa.convolution_loops import ConvolutionLoop
from codegen.gemmini.isa.geometry import ArrayGeometry
from codegen.gemmini.isa.matrix_loops import Matrix, MatrixLoop
from codegen.gemmini.isa.operations import ACCUMULATE, ACCUMULATOR, FULL_WIDTH, FUNCTIONS, GARBAGE, operands

Part = Literal["added", "load", "compute", "store"]
PARTS: tuple[Part, ...] = ("added", "load", "compute", "store")
"""Parts of a loop, in this order: moving in what is added, moving in the factors, computing, moving out."""

Instructions = npt.NDArray[np.int64]
"""Instructions [N, 3]: the function's number and both operands, of which 64 bits count."""

Numbers = npt.NDArray[np.int64]
AcceleratorLoop = MatrixLoop | ConvolutionLoop


@dataclass(frozen=True, slots=True)
class LoopPlaces:
    """Where a loop finds what the loops before it left to it: which of the unroller's two places it has, which is the
    half of its factors where it names none, and the half of the accumulator for its sums. Each is 0 or 1."""

    place: int = 0
    sums: int = 0


def unrolled(loop: AcceleratorLoop, geometry: ArrayGeometry, places: LoopPlaces) -> Mapping[Part, Instructions]:
    """The instructions of each part of a loop; parts that it does not have are empty."""
    if isinstance(loop, MatrixLoop):
        return _matrix_parts(loop, geometry, places)
    return _convolution_parts(loop, geometry, places)


def _instructions(mnemonic: str, first: Numbers, second: Numbers) -> Instructions:
    return np.stack([np.full(len(first), FUNCTIONS[mnemonic]), first, second], axis=1)


def _once(mnemonic: str, **fields: float) -> Instructions:
    first, second = (np.array([operand], np.uint64).view(np.int64) for operand in operands(mnemonic, **fields))
    return _instructions("config", first, second)


def _block(row: Numbers, columns: Numbers, rows: Numbers) -> Numbers:
    """An operand that names a block of a local memory."""
    return row | columns << 32 | rows << 48


def _steps(*extents: int) -> Iterator[Numbers]:
    """Counters of loops in loops, the last one innermost, each as a flat array."""
    return (axis.reshape(-1) for axis in np.indices(extents, np.int64))


def _joined(*instructions: Instructions) -> Instructions:
    return np.concatenate([np.zeros((0, 3), np.int64), *instructions])


def _alternating(before: Instructions, after: Instructions) -> Instructions:
    return np.stack([before, after], axis=1).reshape(-1, 3)


def _matrix_parts(loop: MatrixLoop, geometry: ArrayGeometry, places: LoopPlaces) -> Mapping[Part, Instructions]:
    dim, half = geometry.dim, geometry.accumulator_rows // 2
    sums, own = ACCUMULATOR + places.sums * half, ACCUMULATOR + places.place * half
    if loop.addition:
        a, b, computed = own, own + ACCUMULATE, _joined()
        added, c = _joined(), own
    else:
        a, b = (loop.first_row(name, geometry, places.place) for name in ("a", "b"))
        computed = _matrix_products(loop, dim, a, b, sums)
        added, c = _matrix_moves(loop, "d", dim, sums), sums
    return {
        "added": added,
        "load": _joined(_matrix_moves(loop, "a", dim, a), _matrix_moves(loop, "b", dim, b)),
        "compute": computed,
        "store": _matrix_moves(loop, "c", dim, c + (FULL_WIDTH if loop.full else 0)),
    }


def _matrix_moves(loop: MatrixLoop, name: Matrix, dim: int, first_row: int) -> Instructions:
    """Moving one of the matrices, in rows of blocks."""
    mnemonics = {"a": "mvin", "b": "mvin2", "d": "mvin3", "c": "mvout"}
    start, step = getattr(loop, name), getattr(loop, f"{name}_step")
    if start == 0:
        return _joined()
    moved = loop.matrix(name, dim)
    in_a_row, at_once = -(-moved.columns // dim), moved.columns_at_once
    row, column = _steps(-(-moved.rows // dim), -(-moved.columns // at_once))
    row, column = row * dim, column * at_once
    dram = start + (row * step + column) * loop.item_bytes(name)
    local = first_row + row * in_a_row + column
    block = _block(local, np.minimum(at_once, moved.columns - column), np.minimum(dim, moved.rows - row))
    return _instructions(mnemonics[name], dram, block)


def _matrix_products(loop: MatrixLoop, dim: int, a_row: int, b_row: int, sums: int) -> Instructions:
    """Blocks of the weights in turn, each with all rows of the left factor."""
    blocks_i, blocks_j, blocks_k = loop.blocks(dim)
    k, j, i = _steps(blocks_k, blocks_j, blocks_i)
    high, wide, deep = (
        np.minimum(dim, extent - dim * number)
        for extent, number in ((loop.rows, i), (loop.columns, j), (loop.depth, k))
    )
    a = a_row + dim * (k * blocks_i + i if loop.turned_a else i * blocks_k + k)
    b = b_row + dim * (j * blocks_k + k if loop.turned_b else k * blocks_j + j)
    adds = np.where(k > 0, ACCUMULATE, ACCUMULATE if loop.accumulates else 0)
    to = sums + dim * (i * blocks_j + j) + adds
    return _products(i == 0, _block(b, wide, deep), _block(to, wide, high), _block(a, deep, high), dim, dim)


def _products(
    fills: npt.NDArray[np.bool_], b: Numbers, to: Numbers, a: Numbers, d_columns: Numbers | int, d_rows: Numbers | int
) -> Instructions:
    """Products of blocks; where the array is not filled anew, no block of weights is named."""
    held = b >> 32 << 32
    nothing = _block(np.full(len(a), GARBAGE), np.asarray(d_columns, np.int64), np.asarray(d_rows, np.int64))
    preloads = _instructions("preload", np.where(fills, b, held | GARBAGE), to)
    computes = _instructions("compute_accumulated", a, nothing)
    computes[fills, 0] = FUNCTIONS["compute_preloaded"]
    return _alternating(preloads, computes)


def _convolution_parts(
    loop: ConvolutionLoop, geometry: ArrayGeometry, places: LoopPlaces
) -> Mapping[Part, Instructions]:
    sums = ACCUMULATOR + places.sums * (geometry.accumulator_rows // 2)
    return {
        "added": _added(loop, geometry.dim, sums) if loop.bias else _joined(),
        "load": _joined(
            _input(loop, geometry) if loop.input else _joined(), _weights(loop, geometry) if loop.weights else _joined()
        ),
        "compute": _convolution_products(loop, geometry, sums),
        "store": _result(loop, geometry.dim, sums) if loop.output else _joined(),
    }


def _sums_rows(loop: ConvolutionLoop, dim: int, sums: int, row: Numbers, column: Numbers, channel: Numbers) -> Numbers:
    """Rows of the accumulator; `row` counts those of all images."""
    return sums + channel // dim * (loop.part_images * loop.rows * loop.columns) + row * loop.columns + column


def _added(loop: ConvolutionLoop, dim: int, sums: int) -> Instructions:
    """One row of what is added in all rows of sums, or zeros."""
    at_once = loop.channels_at_once(dim, 4, loop.part_channels)
    settings = _once("config_ld", state=2, pixels_per_row=1, block_rows=loop.part_images * loop.rows * loop.columns,
                     scale=1.0)  # fmt: skip
    row, column, channel = _steps(
        loop.part_images * loop.rows, -(-loop.columns // dim), -(-loop.part_channels // at_once)
    )
    column, channel = column * dim, channel * at_once
    dram = channel * 0 if loop.no_bias else loop.bias + 4 * channel
    wide, high = np.minimum(at_once, loop.part_channels - channel), np.minimum(dim, loop.columns - column)
    block = _block(_sums_rows(loop, dim, sums, row, column, channel), wide, high)
    return _joined(settings, _instructions("mvin3", dram, block))


def _input(loop: ConvolutionLoop, geometry: ArrayGeometry) -> Instructions:
    """The patch, padding included, which is zeros; every other pixel where it is thinned out."""
    dim, thin = geometry.dim, loop.thinning
    at_once = loop.channels_at_once(dim, 1, loop.kernel_channels)
    patch_rows, patch_columns = loop.patch
    own_rows, own_columns = loop.own_pixels
    settings = _once("config_ld", state=0, pixels_per_row=loop.pixels, scale=1.0,
                     block_rows=loop.part_images * loop.patch_rows_held, stride=loop.in_stride * thin)  # fmt: skip
    starts, widths = _column_runs(loop, dim)
    image, row, run, channel = _steps(
        loop.part_images, -(-patch_rows // thin), len(starts), -(-loop.kernel_channels // at_once)
    )
    row, column, channel = row * thin - loop.top, starts[run], channel * at_once
    held = (row + loop.top) // thin * (patch_columns // thin) + (column + loop.left) // thin
    local = loop.input_row(geometry) + channel // dim * loop.part_images * loop.patch_rows_held
    local += image * loop.patch_rows_held + held
    inside = (row >= 0) & (row < own_rows) & (column >= 0) & (column < own_columns)
    pixel = (image * loop.in_rows + row) * loop.in_columns + column
    dram = np.where(inside, loop.input + pixel * loop.in_stride + channel, 0)
    block = _block(local, np.minimum(at_once, loop.kernel_channels - channel), widths[run] // thin)
    return _joined(settings, _instructions("mvin", dram, block))


def _column_runs(loop: ConvolutionLoop, dim: int) -> tuple[Numbers, Numbers]:
    """First column and length of each run of pixels that is moved at once: padding before, pixels, padding after."""
    _, own = loop.own_pixels
    thin, starts, widths = loop.thinning, [], []
    column = -loop.left
    while column < own + loop.right:
        if column < 0:
            width = min(dim, -column)
        elif column >= own:
            width = min(dim, own + loop.right - column)
        else:
            width = min(dim * thin, own - column)
        starts.append(column)
        widths.append(width)
        column += width
    return np.array(starts, np.int64), np.array(widths, np.int64)


def _weights(loop: ConvolutionLoop, geometry: ArrayGeometry) -> Instructions:
    """Blocks of output channels, of each tap and its input channels."""
    dim = geometry.dim
    at_once = loop.channels_at_once(dim, 1, loop.part_channels)
    settings = _once("config_ld", state=1, pixels_per_row=1, block_rows=loop.weight_block_rows, scale=1.0,
                     stride=1 if loop.depthwise else loop.weight_stride)  # fmt: skip
    to, row, column, channel = _steps(
        -(-loop.part_channels // at_once), loop.kernel_rows, loop.kernel_columns, -(-loop.kernel_channels // dim)
    )
    to, channel = to * at_once, channel * dim
    tap = row * loop.kernel + column
    offset = tap if loop.depthwise else (tap * loop.in_channels + channel) * loop.weight_stride + to
    local = loop.weight_row(geometry) + _tap_rows(loop, dim, to, row, column, channel)
    block = _block(local, np.minimum(at_once, loop.part_channels - to), np.minimum(dim, loop.kernel_channels - channel))
    return _joined(settings, _instructions("mvin2", loop.weights + offset, block))


def _tap_rows(loop: ConvolutionLoop, dim: int, to: Numbers, row: Numbers, column: Numbers, channel: Numbers) -> Numbers:
    """Rows from the first one of the weights to those of a tap."""
    return to // dim * loop.weight_block_rows + (row * loop.kernel_columns + column) * loop.kernel_channels + channel


def _convolution_products(loop: ConvolutionLoop, geometry: ArrayGeometry, sums: int) -> Instructions:
    """Blocks of the weights in turn, each with all rows of pixels."""
    dim, thin = geometry.dim, loop.thinning
    to, row, column, channel, image, out_row, out_column = _steps(
        -(-loop.part_channels // dim),
        loop.kernel_rows,
        -(-loop.kernel_columns // loop.pixels),
        -(-loop.kernel_channels // dim),
        loop.part_images,
        loop.rows,
        -(-loop.columns // dim),
    )
    to, column, channel, out_column = to * dim, column * loop.pixels, channel * dim, out_column * dim
    high = np.minimum(dim, loop.columns - out_column)
    wide = np.minimum(dim, loop.part_channels - to)
    deep = np.minimum(loop.pixels, loop.kernel_columns - column) * np.minimum(dim, loop.kernel_channels - channel)
    patch_row = (out_row * loop.stride + row * loop.dilation) // thin
    patch_column = (out_column * loop.stride + column * loop.dilation) // thin
    a = loop.input_row(geometry) + (channel // dim * loop.part_images + image) * loop.patch_rows_held
    a += patch_row * (loop.patch[1] // thin) + patch_column
    b = loop.weight_row(geometry) + _tap_rows(loop, dim, to, row, column, channel)
    out = ACCUMULATE + _sums_rows(loop, dim, sums, image * loop.rows + out_row, out_column, to)
    fills = (image == 0) & (out_row == 0) & (out_column == 0)
    return _products(fills, _block(b, wide, deep), _block(out, wide, high), _block(a, deep, high), wide, high)


def _result(loop: ConvolutionLoop, dim: int, sums: int) -> Instructions:
    """Rows of pixels, or, with a pool, maxima of an image's part at once."""
    if not loop.no_pool:
        return _pooled_result(loop, dim, sums)
    row, column, channel = _steps(loop.part_images * loop.rows, -(-loop.columns // dim), -(-loop.part_channels // dim))
    column, channel = column * dim, channel * dim
    image, own_row = row // loop.rows, row % loop.rows
    pixel = (image * loop.out_rows + own_row) * loop.out_columns + column
    block = _block(_sums_rows(loop, dim, sums, row, column, channel), np.minimum(dim, loop.part_channels - channel),
                   np.minimum(dim, loop.columns - column))  # fmt: skip
    return _instructions("mvout", loop.output + pixel * loop.out_stride + channel, block)


def _pooled_result(loop: ConvolutionLoop, dim: int, sums: int) -> Instructions:
    fields = {"activation": loop.activation, "stride": loop.out_stride, "scale": loop.out_scale}
    pool = _once("config_st", pool_stride=loop.pool_stride, pool_size=loop.pool_size, pool_top=loop.pool_top,
                 pool_left=loop.pool_left, pool_width=loop.pool_out_columns, pool_out_rows=loop.part_rows,
                 pool_out_columns=loop.part_columns, pool_in_rows=loop.rows, pool_in_columns=loop.columns,
                 **fields)  # fmt: skip
    image, channel = _steps(loop.part_images, -(-loop.part_channels // dim))
    channel = channel * dim
    pixel = image * loop.pool_out_rows * loop.pool_out_columns
    block = _block(_sums_rows(loop, dim, sums, image * loop.rows, channel * 0, channel),
                   np.minimum(dim, loop.part_channels - channel), channel * 0)  # fmt: skip
    moves = _instructions("mvout", loop.output + pixel * loop.out_stride + channel, block)
    return _joined(pool, moves, _once("config_st", **fields))
