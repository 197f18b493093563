"""Launches that pad feature maps with channels, and matrices with rows and columns, for kernels that read eight at a
time."""

from __future__ import annotations

from codegen.cutlass.kernel.launches import Launch, Place, Source
from codegen.cutlass.sources import filled, source_text

THREADS = 256


def pad_channels(x: Place, y: Place, pixels: int, channels: int, padded: int) -> Launch:
    """Copy `pixels` x `channels` at `x` to `pixels` x `padded`, a multiple of 8, at `y`; the new elements are zero."""
    return _launch("pad_channels", x, y, pixels * padded // 8, channels, padded)


def pad_pixels(x: Place, y: Place, rows: int, width: int, wanted: int, left: int, channels: int, padded: int) -> Launch:
    """Copy `rows` of `width` pixels of `channels` at `x` to rows of `wanted` pixels of `padded` channels, 4 or 8, at
    `y`, behind `left` pixels; all that is new is zero."""
    text = source_text("common.cuh") + filled("pad_pixels.cu", CHANNELS=channels, PADDED=padded)
    pixels = rows * wanted
    arguments = (x, y, pixels, width, wanted, left)
    return Launch(Source("pad_pixels", text), "pad_pixels", (-(-pixels // THREADS), 1, 1), (THREADS, 1, 1), arguments)


def pad_matrices(x: Place, y: Place, matrices: int, given: tuple[int, int], wanted: tuple[int, int]) -> Launch:
    """Copy `matrices` of the `given` rows and columns at `x` to the `wanted` ones at `y`, whose columns are a multiple
    of 8; the new elements are zero."""
    return _launch("pad_matrices", x, y, matrices * wanted[0] * wanted[1] // 8, *given, *wanted)


def _launch(name: str, x: Place, y: Place, vectors: int, *extents: int) -> Launch:
    source = Source(name, source_text("common.cuh", f"{name}.cu"))
    return Launch(source, name, (-(-vectors // THREADS), 1, 1), (THREADS, 1, 1), (x, y, vectors, *extents))
