"""Launches that pad feature maps with channels, and matrices with rows and columns, for kernels that read eight at a
time."""

from __future__ import annotations

from codegen.cutlass.kernel.launches import Launch, Place, Source
from codegen.cutlass.sources import source_text

THREADS = 256


def pad_channels(x: Place, y: Place, pixels: int, channels: int, padded: int) -> Launch:
    """Copy `pixels` x `channels` at `x` to `pixels` x `padded`, a multiple of 8, at `y`; the new elements are zero."""
    vectors = pixels * padded // 8
    source = Source("pad_channels", source_text("common.cuh") + source_text("pad_channels.cu"))
    grid = (-(-vectors // THREADS), 1, 1)
    return Launch(source, "pad_channels", grid, (THREADS, 1, 1), (x, y, vectors, channels, padded))


def pad_matrices(x: Place, y: Place, matrices: int, given: tuple[int, int], wanted: tuple[int, int]) -> Launch:
    """Copy `matrices` of the `given` rows and columns at `x` to the `wanted` ones at `y`, whose columns are a multiple
    of 8; the new elements are zero."""
    vectors = matrices * wanted[0] * wanted[1] // 8
    source = Source("pad_matrices", source_text("common.cuh") + source_text("pad_matrices.cu"))
    grid = (-(-vectors // THREADS), 1, 1)
    return Launch(source, "pad_matrices", grid, (THREADS, 1, 1), (x, y, vectors, *given, *wanted))
