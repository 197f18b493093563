"""Launches that pad feature maps with channels, and matrices with rows and columns, for kernels that read eight at a
time."""

from __future__ import annotations

from codegen.cutlass.kernel.launches import Launch, Place, Source
from codegen.cutlass.sources import filled, source_text

THREADS = 256
FEW_CHANNELS, PIXELS = 8, 8
"""Padded channels up to which a thread copies whole pixels, and how many of them."""


def pad_channels(x: Place, y: Place, pixels: int, channels: int, padded: int) -> Launch:
    """Copy `pixels` x `channels` at `x` to `pixels` x `padded` at `y`; the new elements are zero. `padded` is 4, or a
    multiple of 8."""
    if padded > FEW_CHANNELS:
        return _launch("pad_wide_channels", x, y, pixels * padded // 8, channels, padded)
    text = source_text("common.cuh") + filled("pad_channels.cu", CHANNELS=channels, PADDED=padded)
    blocks = -(-pixels // (PIXELS * THREADS))
    return Launch(Source("pad_channels", text), "pad_channels", (blocks, 1, 1), (THREADS, 1, 1), (x, y, pixels))


def pad_matrices(x: Place, y: Place, matrices: int, given: tuple[int, int], wanted: tuple[int, int]) -> Launch:
    """Copy `matrices` of the `given` rows and columns at `x` to the `wanted` ones at `y`, whose columns are a multiple
    of 8; the new elements are zero."""
    return _launch("pad_matrices", x, y, matrices * wanted[0] * wanted[1] // 8, *given, *wanted)


def _launch(name: str, x: Place, y: Place, vectors: int, *extents: int) -> Launch:
    source = Source(name, source_text("common.cuh", f"{name}.cu"))
    return Launch(source, name, (-(-vectors // THREADS), 1, 1), (THREADS, 1, 1), (x, y, vectors, *extents))
