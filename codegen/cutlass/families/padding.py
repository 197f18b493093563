"""Feature maps with more channels than they have, for kernels that read eight at a time."""

from __future__ import annotations

from codegen.cutlass.launches import Launch, Place, Source
from codegen.cutlass.sources import source_text

__all__ = ["pad_channels"]

THREADS = 256


def pad_channels(x: Place, y: Place, pixels: int, channels: int, padded: int) -> Launch:
    """`pixels` x `channels` at `x` to `pixels` x `padded`, a multiple of 8, at `y`; what is new is zero."""
    vectors = pixels * padded // 8
    source = Source("pad_channels", source_text("common.cuh") + source_text("pad_channels.cu"))
    grid = (-(-vectors // THREADS), 1, 1)
    return Launch(source, "pad_channels", grid, (THREADS, 1, 1), (x, y, vectors, channels, padded))
