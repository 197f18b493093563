"""Which memory of a chip file is which memory of the instruction set. Names in the file are free.

    chip --memories_by_role--> {"DDR": Memory, "LLB": Memory, "L1": Memory, "IM": Memory}, from scopes, sizes and links
    chip, its names --renamed--> the chip with other names

DDR is the main memory, the largest that is no core's own; LLB another one that cores share; L1 the memory of a core
that links join to those; IM the other memory of a core.
"""

from __future__ import annotations

from collections.abc import Mapping

from hw_models.chip import Chip
from hw_models.parts import Memory, ScalarEngine

MAIN, STAGING, LOCAL = "DDR", "LLB", "L1"
"""Names of the memories that operands pass, from the outside in."""


def memories_by_role(chip: Chip) -> dict[str, Memory]:
    """The memories that the instruction set knows, by its names; a name is absent where the file has no such memory."""
    shared = sorted((m for m in chip.memories if m.scope != "core"), key=lambda memory: -memory.size_bytes)
    inside = sorted((m for m in chip.memories if m.scope == "core"), key=lambda memory: not _reached(chip, memory))
    roles = (*zip((MAIN, STAGING), shared, strict=False), *zip((LOCAL, "IM"), inside, strict=False))
    return dict(roles)


def _reached(chip: Chip, memory: Memory) -> bool:
    """Whether a link joins a core's memory to one outside the core."""
    shared = {other.name for other in chip.memories if other.scope != "core"}
    ends = ({link.source, link.destination} for link in chip.links)
    return any(memory.name in pair and pair & shared for pair in ends)


def renamed(chip: Chip, names: Mapping[str, str]) -> Chip:
    """The chip with other names of its memories. One that has no other name is set apart from all these."""

    def other(name: str) -> str:
        return names.get(name, f"other-{name}")

    memories = tuple(memory.model_copy(update={"name": other(memory.name)}) for memory in chip.memories)
    links = tuple(
        link.model_copy(update={"source": other(link.source), "destination": other(link.destination)})
        for link in chip.links
    )
    engines = tuple(
        engine.model_copy(
            update={
                "instruction_cache": engine.instruction_cache.model_copy(
                    update={"memory": other(engine.instruction_cache.memory)}
                )
            }
        )
        if isinstance(engine, ScalarEngine) and engine.instruction_cache
        else engine
        for engine in chip.engines
    )
    return chip.model_copy(update={"memories": memories, "links": links, "engines": engines})
