"""Routes between memories over a chip's links: which memory feeds which."""

from __future__ import annotations

from hw_models.chip import Chip
from hw_models.errors import ChipError


def route(chip: Chip, source: str, destination: str) -> tuple[str, ...]:
    """Memories from `source` to `destination` over the fewest links. Raises ChipError when there is no route."""
    ways: list[tuple[str, ...]] = [(source,)]
    seen = {source}
    for way in ways:
        if way[-1] == destination:
            return way
        for link in chip.links:
            if link.source == way[-1] and link.destination not in seen:
                seen.add(link.destination)
                ways.append((*way, link.destination))
    raise ChipError(f"chip {chip.name}", needs=f"links from {source} to {destination}", has="none")


def main_memory(chip: Chip) -> str:
    """The largest memory that is not private to a core: where inputs, weights and outputs live. Raises ChipError
    where every memory is."""
    shared = [memory for memory in chip.memories if memory.scope != "core"]
    if not shared:
        raise ChipError(f"chip {chip.name}", needs="a memory of scope cluster or chip", has="core memories only")
    return max(shared, key=lambda memory: memory.size_bytes).name


def floor_names(chip: Chip) -> dict[str, str]:
    """The memory or unit of a GPU for each floor that a `KernelRate` names. Raises ChipError for another chip."""
    return {
        "main": main_memory(chip),
        "cache": chip.simt.cache,
        "shared": chip.simt.shared_memory,
        "tensor": chip.tensor.name,
        "lanes": chip.lanes.name,
    }


def staging_memory(chip: Chip, local: str) -> str:
    """The memory from which data enter `local` on their way from the main memory (the main memory itself on a chip
    without a level in between)."""
    return route(chip, main_memory(chip), local)[-2]
