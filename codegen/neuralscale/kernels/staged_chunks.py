"""Chunks of rows on their way through the staging memory, for the core that prepares and concludes.

    chunk 0 in, chunk 1 in, chunk 0 out, chunk 2 in, chunk 1 out, ...      engines by turns

DMA engines take chunks in turn: while one chunk arrives, the chain of the next is written for the other engine, and the
chunk before leaves by the second channel. A lone engine is awaited before the next chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from codegen.neuralscale.emit.memory_names import STAGING
from hw_models.chip import Chip
from isched.program.program import Instr

INWARD, OUTWARD = 0, 1
"""Channels of an engine: into the staging memory, and out of it."""
BUFFERS_PER_ENGINE = 2


def buffer_bytes(chip: Chip) -> int:
    """Bytes of the staging memory for one chunk, a multiple of the alignment of its addresses; a row is at most
    this."""
    memory = chip.memory(STAGING)
    share = memory.size_bytes // (chip.dma.engines_per_cluster * BUFFERS_PER_ENGINE)
    return share // memory.alignment_bytes * memory.alignment_bytes


def in_turn(
    source: str,
    count: int,
    bring: Callable[[int, int, int], Instr],
    leave: Callable[[int, int, int], Instr],
    chip: Chip,
    one_by_one: bool = False,
) -> Iterator[Instr]:
    """Instructions that bring each chunk and let it leave; both are given its number, its engine and its offset in the
    staging memory. With `one_by_one`, a chunk leaves when the one before has landed. Everything has landed after the
    last one."""
    engines, leaving = chip.dma.engines_per_cluster, set[int]()  # engines whose outward channel works

    def where(number: int) -> tuple[int, int, int]:
        return number, number % engines, number % (engines * BUFFERS_PER_ENGINE) * buffer_bytes(chip)

    for number in range(count + 1):
        engine = (number - 1) % engines
        landed = leaving if one_by_one else leaving & {engine}
        waits = [await_transfer(source, other, OUTWARD) for other in sorted(landed)]
        waits = [await_transfer(source, engine, INWARD), *waits] if number else []
        arriving = [bring(*where(number))] if number < count else []
        yield from (*waits, *arriving) if engines == 1 else (*arriving, *waits)
        if number:
            yield leave(*where(number - 1))
            leaving = leaving - landed | {engine}
    for engine in sorted(leaving):
        yield await_transfer(source, engine, OUTWARD)


def await_transfer(source: str, engine: int, channel: int) -> Instr:
    """A wait of the core for the end of a transfer."""
    operands = (("engine", engine), ("channel", channel))
    return Instr("scalar", "dma.wait", operands, source=source, awaits=f"dma{engine}.{channel}")
