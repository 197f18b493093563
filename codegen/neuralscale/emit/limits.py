"""Limits that the instruction set and address map of NPU v1 set to a chip file.

Chip files may describe smaller chips of the family; larger ones would need addresses or registers that do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.neuralscale.emit.memory_map import CLUSTERS, DMA_ENGINE_BASES, HARTS_PER_CLUSTER, MEMORY_BYTES
from hw_models.chip import Chip

ENGINES = {"vector": "vector", "matrix": "matrix", "transfer": "transfer", "dma": "dma", "sync": "sync"}
DMA_CHANNELS = 2


def unsuited(chip: Chip) -> tuple[str, ...]:
    """One sentence for each requirement of the chip file that the instruction set cannot meet."""
    return tuple(_problems(chip))


def _problems(chip: Chip) -> Iterator[str]:
    for what, has, most in (
        ("clusters", chip.clusters, CLUSTERS),
        ("cores_per_cluster", chip.cores_per_cluster, HARTS_PER_CLUSTER),
        ("dma.engines_per_cluster", chip.dma.engines_per_cluster, len(DMA_ENGINE_BASES[0])),
        ("dma.channels_per_engine", chip.dma.channels_per_engine, DMA_CHANNELS),
    ):
        if has > most:
            yield f"{what} is {has}; at most {most}"
    memories = {memory.name: memory for memory in chip.memories}
    for name, most in MEMORY_BYTES.items():
        if name not in memories:
            yield f"there is no memory {name}"
        elif memories[name].size_bytes > most:
            yield f"{name} has {memories[name].size_bytes} bytes; its address space holds {most}"
    engines = {engine.name: engine.kind for engine in chip.engines}
    for name, kind in ENGINES.items():
        if engines.get(name) != kind:
            yield f"there is no {kind} engine named {name}"
