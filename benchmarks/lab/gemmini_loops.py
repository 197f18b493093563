"""Bytes that the loops of Gemmini's published library move for a product layer, from the main memory and to it.

    extents of a convolution --largest tile of which two halves fit--> loops --> bytes

The library cuts a convolution along seven axes. It begins with all of it and makes the largest extent smaller until
patch and weights fill at most half of the scratchpad and the sums half of the accumulator, since all of them have two
places; then extents grow as long as they fit. Outputs are the outer loops, so weights come again for each part of the
rows and columns, and the patch for each part of the channels, unless their parts are at most two and both stay. Its
results go to the main memory after every layer. Restated from tiled_conv of gemmini-rocc-tests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from codegen.gemmini.isa.geometry import ArrayGeometry
from codegen.gemmini.kernels.product_shape import ProductShape, Window

BIAS_ROW_BYTES = 4


@dataclass(frozen=True, slots=True)
class LoopTile:
    """Extents of a part of a convolution; `depth` are input channels."""

    images: int
    rows: int
    columns: int
    channels: int
    taps_down: int
    taps_along: int
    depth: int


AXES = ("images", "rows", "columns", "channels", "taps_down", "taps_along", "depth")


def whole_tile(shape: ProductShape) -> LoopTile:
    """All of a layer."""
    return LoopTile(
        shape.image_count, shape.out_rows, shape.out_columns, shape.out_channels, shape.down.taps, shape.along.taps,
        shape.depth,
    )  # fmt: skip


def chosen_tile(shape: ProductShape, geometry: ArrayGeometry) -> LoopTile:
    """The part of a layer that the library does at a time."""
    whole = tile = whole_tile(shape)
    while not _fits(tile, shape, geometry):
        tile = _smaller(tile, geometry.dim)
    while (wider := replace(tile, columns=tile.columns + 1)).columns <= whole.columns and _fits(wider, shape, geometry):
        tile = wider
    growing = True
    while growing:
        growing = False
        for axis in AXES:
            larger = replace(tile, **{axis: getattr(tile, axis) + 1})
            if getattr(larger, axis) <= getattr(whole, axis) and _fits(larger, shape, geometry):
                tile, growing = larger, True
    return tile


def _smaller(tile: LoopTile, dim: int) -> LoopTile:
    """The largest extent made smaller, channels by whole blocks; columns stay at a block while there are rows."""
    keeps = tile.columns <= dim and tile.rows > 1
    axis = max((each for each in AXES if not (each == "columns" and keeps)), key=lambda each: getattr(tile, each))
    extent = getattr(tile, axis)
    if axis in ("channels", "depth"):
        extent = max(1, extent // dim * dim if extent % dim else extent - dim)
    else:
        extent -= 1
    return replace(tile, **{axis: extent})


def _fits(tile: LoopTile, shape: ProductShape, geometry: ArrayGeometry) -> bool:
    dim = geometry.dim
    patch = _reach(tile.rows, tile.taps_down, shape.down) * _reach(tile.columns, tile.taps_along, shape.along)
    inputs = -(-tile.depth // dim) * tile.images * patch
    weights = -(-tile.channels // dim) * tile.taps_down * tile.taps_along * tile.depth
    sums = -(-tile.channels // dim) * tile.images * tile.rows * tile.columns
    return inputs + weights <= geometry.local_rows // 2 and sums <= geometry.accumulator_rows // 2


def _reach(outputs: int, taps: int, window: Window) -> int:
    skips = window.step == 2 and window.taps == 1 and not window.pad
    return outputs if skips else outputs * window.step + (taps - 1) * window.dilation


def published_bytes(shape: ProductShape, geometry: ArrayGeometry) -> int:
    """Bytes that the library moves for a layer: patches, weights, biases, results in int8. Products of several matrices
    by several others are as many products."""
    if shape.matrix_count > 1:
        one = replace(shape, images=((0, 1),) * len(shape.images), matrices=())
        return shape.image_count * published_bytes(one, geometry)
    whole, tile = whole_tile(shape), chosen_tile(shape, geometry)
    parts = {axis: -(-getattr(whole, axis) // getattr(tile, axis)) for axis in AXES}
    inner = parts["taps_down"] * parts["taps_along"] * parts["depth"]
    places = parts["images"] * parts["rows"] * parts["columns"]
    weights = shape.taps * shape.depth * shape.out_channels * (1 if inner * parts["channels"] <= 2 else places)
    inputs = _patches(shape, tile) * (1 if inner * places <= 2 else parts["channels"])
    blocks = -(-tile.columns // geometry.dim) * -(-whole.columns // tile.columns)
    bias = BIAS_ROW_BYTES * shape.out_channels * shape.image_count * shape.out_rows * blocks
    return weights + inputs + bias + shape.pixels * shape.out_channels


def _patches(shape: ProductShape, tile: LoopTile) -> int:
    """Bytes of the input in all patches, padding not counted; parts of the taps have patches of their own."""
    rows = _real(shape.out_rows, tile.rows, tile.taps_down, shape.down, shape.input_rows)
    columns = _real(shape.out_columns, tile.columns, tile.taps_along, shape.along, shape.input_columns)
    return prod((shape.image_count, rows, columns, shape.depth))


def _real(outputs: int, at_once: int, taps_at_once: int, window: Window, inputs: int) -> int:
    total = 0
    for first in range(0, outputs, at_once):
        count = min(at_once, outputs - first)
        for tap in range(0, window.taps, taps_at_once):
            taps = min(taps_at_once, window.taps - tap)
            if window.taps == 1:
                total += count
                continue
            low = first * window.step + tap * window.dilation - window.pad
            high = low + (count - 1) * window.step + (taps - 1) * window.dilation + 1
            total += max(0, min(inputs, high) - max(0, low))
    return total
