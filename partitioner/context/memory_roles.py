"""The roles of a chip's memories in a compilation; planners ask for a role, never for a memory by name.

    chip, memory and part in which tiles leave their results --> MemoryRoles

To add a role, add a field here; `partitioner/memory/` gives places in it, `partitioner/expansion/` moves data through
it, and `partitioner/ordering/` chooses for level O3 in which role a value waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hw_models.chip import Chip
from hw_models.memory_parts import part_bytes, part_start
from hw_models.routes import main_memory, staging_memory


class Local(NamedTuple):
    """The memory of a core in which values stay, and its physical part; empty names where nothing is computed."""

    memory: str
    part: str


@dataclass(frozen=True, slots=True)
class MemoryRoles:
    """The roles of a chip's memories.

    `main`: inputs, constants and outputs lie there. `staging`: data enter the local memory from there; it is the main
    memory where there is none in between, and where nothing is computed. `local`: values stay there, in `local_bytes`
    of each core from `local_start_bytes` on. `accumulators`: memories of a core that no link joins to memories outside
    the core. They hold buffers of tiles, such as the sums of a matrix engine, and never values.
    """

    main: str
    staging: str
    local: Local
    local_bytes: int
    local_start_bytes: int
    accumulators: tuple[str, ...]

    @property
    def has_staging(self) -> bool:
        """Whether there is a memory between the main one and the local ones."""
        return self.staging != self.main

    def outward(self, memory: str) -> str:
        """The next memory toward the main one, for a value that finds no room; for the main memory, itself."""
        return {self.local.memory: self.staging, self.staging: self.main}.get(memory, memory)


def memory_roles(chip: Chip, local: Local) -> MemoryRoles:
    """The roles. Raises ChipError for a chip without a main memory, and where no links lead to the local one."""
    main = main_memory(chip)
    if not local.memory:
        return MemoryRoles(main, main, local, 0, 0, ())
    size, start = part_bytes(chip, *local), part_start(chip, *local)
    return MemoryRoles(main, staging_memory(chip, local.memory), local, size, start, _accumulators(chip, local.memory))


def _accumulators(chip: Chip, local: str) -> tuple[str, ...]:
    own = {memory.name for memory in chip.memories if memory.scope == "core"}
    ends = [{link.source, link.destination} for link in chip.links]
    reached = set().union(*(pair for pair in ends if not pair <= own))
    return tuple(memory.name for memory in chip.memories if memory.name in own - reached - {local})
