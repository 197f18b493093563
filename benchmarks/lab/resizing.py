"""A chip with memories of other sizes, for studies of what capacity is worth.

chip, bytes by memory, bytes by physical part  -->  chip
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hw_models.chip import Chip

__all__ = ["resized"]

UNCHANGED: Mapping[tuple[str, str], int] = MappingProxyType({})


def resized(
    chip: Chip, name: str, memory_bytes: Mapping[str, int], part_bytes: Mapping[tuple[str, str], int] = UNCHANGED
) -> Chip:
    """`chip` under another name with the given sizes; a memory that has parts is as large as they are together.

    `memory_bytes` goes by memory, `part_bytes` by memory and part; what is not named stays.
    """
    memories = []
    for memory in chip.memories:
        parts = tuple(
            part.model_copy(update={"size_bytes": part_bytes.get((memory.name, part.name), part.size_bytes)})
            for part in memory.buffers
        )
        size = sum(part.size_bytes for part in parts) or memory_bytes.get(memory.name, memory.size_bytes)
        memories.append(memory.model_copy(update={"size_bytes": size, "buffers": parts}))
    return chip.model_copy(update={"name": name, "memories": tuple(memories)})
