"""Physical parts of a memory: how large they are, where they start, and which of them counts for a buffer.

chip, memory, part ("" for the whole memory) --> bytes, offset, the (memory, part) that a buffer is counted in
"""

from __future__ import annotations

from hw_models.chip import Chip
from hw_models.parts import Memory


def place_of(chip: Chip, memory: str, part: str) -> tuple[str, str]:
    """(memory, part) that a buffer is counted in: where the chip does not enforce its parts, the memory is one pool."""
    return place_in(chip.memory(memory), part)


def place_in(memory: Memory, part: str) -> tuple[str, str]:
    """(memory, part) that a buffer is counted in, for a memory that was looked up already."""
    return (memory.name, part if part and memory.buffers_enforced and memory.buffers else "")


def part_bytes(chip: Chip, memory: str, part: str) -> int:
    """Size of a physical part, or of the whole memory where `part` is empty."""
    return chip.memory(memory).buffer(part).size_bytes if part else chip.memory(memory).size_bytes


def part_start(chip: Chip, memory: str, part: str) -> int:
    """Offset in bytes of a physical part in its memory."""
    start = 0
    for buffer in chip.memory(memory).buffers if part else ():
        if buffer.name == part:
            break
        start += buffer.size_bytes
    return start


def aligned(chip: Chip, memory: str, size_bytes: int) -> int:
    """Bytes rounded up to the memory's alignment."""
    return aligned_in(chip.memory(memory), size_bytes)


def aligned_in(memory: Memory, size_bytes: int) -> int:
    """Bytes rounded up to the alignment of a memory that was looked up already."""
    return -(-size_bytes // memory.alignment_bytes) * memory.alignment_bytes
