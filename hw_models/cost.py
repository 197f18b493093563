"""Cycles that a piece of work takes on one engine or link of a chip, alone and without waiting.

In: a chip and the size of the work. Out: cycles of the chip's clock, as float (latencies may be fractions). Contention,
issue and stalls belong to the timing model, which is built on these functions. Work of size zero takes no time.
"""

from __future__ import annotations

from math import ceil

from hw_models.chip import Chip
from hw_models.parts import Link, VectorEngine


def matrix_tiles(chip: Chip, pixels: int, channels: int) -> int:
    """Number of array tiles for `pixels` x `channels` outputs; ragged tiles cost as much as full ones."""
    return ceil(pixels / chip.matrix.array_pixels) * ceil(channels / chip.matrix.array_channels)


def matrix_cycles(chip: Chip, pixels: int, channels: int, reduction: int, dtype: str) -> float:
    """Cycles of one matrix instruction: `pixels` x `channels` outputs, each a sum of `reduction` products of `dtype`.

    Each array tile walks the reduction with `per_unit_per_cycle` products per cell and cycle. It also takes
    `matrix_tile_cycles` to fill and `matrix_row_cycles` for each of its rows of pixels to leave the array. With the
    published start latency, `memul.mm` 1x8x1 of the stcp920 takes its published 28 cycles. ChipError when the engine
    does not have this type.
    """
    if min(pixels, channels, reduction) <= 0:
        return 0.0
    engine = chip.matrix
    per_cell = engine.macs_per_cycle(dtype) // (engine.array_pixels * engine.array_channels)
    tile_cycles = ceil(reduction / per_cell) + chip.assumed.matrix_tile_cycles
    rows_cycles = pixels * ceil(channels / engine.array_channels) * chip.assumed.matrix_row_cycles
    return engine.start_latency_cycles + matrix_tiles(chip, pixels, channels) * tile_cycles + rows_cycles


def vector_cycles(chip: Chip, elements: int, dtype: str, passes: int = 1) -> float:
    """Cycles of `passes` vector instructions over `elements` of `dtype` each; one fp16 element on the stcp920 takes the
    11 cycles of `mov.m`.

    ChipError when the engine does not have this type.
    """
    if elements <= 0:
        return 0.0
    engine = chip.vector
    work = ceil(elements / engine.elements_per_cycle(dtype))
    return passes * (engine.start_latency_cycles + chip.assumed.vector_pass_cycles + work)


def lookup_cycles(chip: Chip, elements: int, dtype: str) -> float:
    """Cycles of one vector instruction that looks up `elements` of `dtype` in a table: each lane takes `lookup_cycles`
    per element.

    ChipError when the engine does not have this type.
    """
    if elements <= 0:
        return 0.0
    engine = chip.vector
    work = ceil(elements / engine.elements_per_cycle(dtype)) * chip.assumed.lookup_cycles
    return engine.start_latency_cycles + chip.assumed.vector_pass_cycles + work


def _inner_link(chip: Chip, memory: str) -> Link | None:
    """The link from a memory to itself, by which data are copied inside of it where there is no vector engine; None
    where that copies."""
    if any(isinstance(engine, VectorEngine) for engine in chip.engines):
        return None
    return next((link for link in chip.links if link.source == link.destination == memory), None)


def copy_engine(chip: Chip, memory: str) -> str:
    """The engine that copies inside a memory of a core. ChipError where there is none."""
    link = _inner_link(chip, memory)
    return chip.vector.name if link is None else link.engine


def copy_cycles(chip: Chip, memory: str, elements: int, dtype: str, item_bytes: int) -> float:
    """Cycles to copy `elements` inside a memory of a core: by the vector engine or, where there is none, by the link
    from the memory to itself. The engine copies each as one of `dtype` or, where it does not compute in that type, as
    one of the type with the most elements per cycle."""
    link = _inner_link(chip, memory)
    if link is not None:
        return _link_cycles(link, elements * item_bytes, 1, 1)
    engine = chip.vector
    types = [rate.dtype for rate in engine.rates]
    return vector_cycles(chip, elements, dtype if dtype in types else max(types, key=engine.elements_per_cycle))


def transfer_cycles(
    chip: Chip,
    source: str,
    destination: str,
    size_bytes: int,
    rows: int = 1,
    *,
    sharers: int = 1,
    engine: str | None = None,
) -> float:
    """Cycles of one move of `size_bytes` in `rows` equal rows between two memories, with `sharers` users of the link at
    a time.

    Dense data is one row. ChipError when the chip has no such link.
    """
    link = chip.link(source, destination, engine)
    return _link_cycles(link, size_bytes, rows, sharers)


def dma_cycles(
    chip: Chip, source: str, destination: str, size_bytes: int, rows: int = 1, *, descriptors: int = 1, sharers: int = 1
) -> float:
    """Cycles of one chain of `descriptors` that the DMA moves; 16 bytes from LLB to DDR take the published 67 on the
    stcp920."""
    link = chip.link(source, destination, chip.dma.engine)
    if size_bytes <= 0:
        return 0.0
    return _link_cycles(link, size_bytes, rows, sharers) + descriptors * chip.assumed.dma_descriptor_cycles


def link_bytes(link: Link, size_bytes: int, rows: int = 1) -> int:
    """Bytes that a link carries for `size_bytes` in `rows` equal rows: each row takes whole bursts."""
    row_bytes = ceil(size_bytes / rows)
    return rows * ceil(row_bytes / link.burst_bytes) * link.burst_bytes


def _link_cycles(link: Link, size_bytes: int, rows: int, sharers: int) -> float:
    if size_bytes <= 0:
        return 0.0
    return link.latency_cycles + ceil(link_bytes(link, size_bytes, rows) / link.available_bytes_per_cycle(sharers))
