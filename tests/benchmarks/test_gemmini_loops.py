"""Bytes of the published loops, by hand where a layer is one part and where it is several."""

from __future__ import annotations

from benchmarks.lab.gemmini_loops import chosen_tile, published_bytes, whole_tile
from codegen.gemmini.isa.geometry import DEFAULT, ArrayGeometry
from codegen.gemmini.kernels.product_shape import ProductShape, Window

POINT = Window()
THREE = Window(taps=3, pad=1)


def layer(rows: int, columns: int, depth: int, channels: int, window: Window = POINT) -> ProductShape:
    box = ((0, 1),), (0, rows), (0, columns), (0, channels)
    return ProductShape(*box, (1,), rows, columns, depth, channels, window, window, False)


def test_a_small_layer_moves_everything_once() -> None:
    shape = layer(8, 8, 32, 16, THREE)
    assert chosen_tile(shape, DEFAULT) == whole_tile(shape)
    weights, values, bias = 9 * 32 * 16, 8 * 8 * 32 + 8 * 8 * 16, 4 * 16 * 8
    assert published_bytes(shape, DEFAULT) == weights + values + bias


def test_parts_fit_half_of_the_memories_and_halos_come_again() -> None:
    shape = layer(56, 56, 64, 64, THREE)
    tile = chosen_tile(shape, DEFAULT)
    assert tile.channels // 16 * tile.rows * tile.columns <= 512
    once = 9 * 64 * 64 + 2 * 56 * 56 * 64
    assert published_bytes(shape, DEFAULT) > 1.3 * once


def test_weights_come_again_for_each_part_of_the_rows() -> None:
    """A scratchpad of 64 rows: half of it holds two blocks of weights at most, and the parts do not stay."""
    small = ArrayGeometry(16, 128, 64)
    shape = layer(16, 16, 16, 64)
    tile = chosen_tile(shape, small)
    places = -(-16 // tile.rows) * -(-16 // tile.columns)
    parts = -(-64 // tile.channels)
    bias = 4 * 64 * 16 * -(-16 // tile.columns)
    weights = 16 * 64 * (1 if parts <= 2 else places)
    assert published_bytes(shape, small) == weights + 16 * 16 * 16 * parts + bias + 16 * 16 * 64
