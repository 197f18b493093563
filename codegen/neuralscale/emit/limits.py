"""What NPU v1 asks of a chip file: the parts and limits that its templates use, and sizes that its address map holds.

    chip --lacking--> what the templates need and the file does not give: no instruction can be chosen
         --unsuited--> this, and what makes the chip larger than the address map: no machine code can be made

Each answer is a sentence that names the field. Chip files may describe smaller chips of the family; larger ones would
need addresses or registers that do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.neuralscale.emit.memory_map import (
    CLUSTERS,
    DATA_BASE,
    DMA_ENGINE_BASES,
    HARTS_PER_CLUSTER,
    MEMORY_BYTES,
)
from codegen.neuralscale.emit.memory_names import memories_by_role
from hw_models.chip import Chip
from hw_models.parts import MatrixEngine, Memory, TransferEngine, VectorEngine
from hw_models.plausibility import COMPUTES

ENGINES = {"vector": "vector", "matrix": "matrix", "transfer": "transfer", "dma": "dma", "sync": "sync"}
"""Kind of each engine that machine code drives, by its name."""

ROLES = {
    "DDR": "main memory of scope cluster",
    "LLB": "second memory of scope cluster, through which data pass: the DMA addresses no memory of a core",
    "L1": "memory of scope core",
    "IM": "second memory of scope core, for sums",
}
"""The memories that machine code needs, in words."""

BUFFERS = ("data", "weights")
"""Parts of the L1 between which tiles are divided, where the chip file keeps parts apart."""

LINKS = (("DDR", "LLB", "dma"), ("LLB", "DDR", "dma"), ("LLB", "L1", "transfer"), ("L1", "LLB", "transfer"))
"""Ways on which data enter and leave a core: source, destination, engine."""

ACCESSES = {"vector": (("L1", "IM"), ("L1", "IM")), "matrix": (("L1", "IM"), ("IM",))}
"""Memories that the templates read and write by each computing engine."""

DMA_CHANNELS = 2
"""Channels of each DMA engine: one carries data in, the other one out."""

DMA_MOST = {
    "max_descriptors": 170,
    "max_linear_bytes": 1 << 22,
    "max_row_bytes": (1 << 22) - 1,
    "max_rows": (1 << 16) - 1,
    "max_stride_bytes": (1 << 24) - 1,
}
"""Largest values of the limits of the DMA: the fields of a descriptor, and the store of descriptors."""

ELEMENT_BYTES = 2
"""Alignment in bytes of operands in the LLB and in the memories of a core."""

EXTENT, STRIDE_BYTES = 65_535, 65_534
"""Rows, columns and strides for which the templates make one instruction."""


def lacking(chip: Chip) -> tuple[str, ...]:
    """One sentence for each part or limit that the templates need and the chip file does not give."""
    return (*_absent_parts(chip), *_memories(chip), *_dma(chip), *_extents(chip))


def unsuited(chip: Chip) -> tuple[str, ...]:
    """One sentence for each requirement of the chip file that the instruction set cannot meet."""
    return (*_too_many(chip), *lacking(chip))


def _absent_parts(chip: Chip) -> Iterator[str]:
    memories = memories_by_role(chip)
    engines = {engine.name: engine for engine in chip.engines}
    for role, words in ROLES.items():
        if role not in memories:
            yield f"there is no {words}"
    for name, kind in ENGINES.items():
        engine = engines.get(name)
        if engine is None or engine.kind != kind:
            yield f"there is no {kind} engine named {name}"
        elif isinstance(engine, MatrixEngine | VectorEngine) and all(rate.dtype != COMPUTES for rate in engine.rates):
            yield f"engine {name} has no rate for {COMPUTES}"
    ways = {(link.source, link.destination, link.engine) for link in chip.links}
    for start, end, engine_name in LINKS:
        if start in memories and end in memories and engine_name in engines:
            source, destination = memories[start].name, memories[end].name
            if (source, destination, engine_name) not in ways:
                yield f"links: there is none from {source} to {destination} by {engine_name}"
    if local := memories.get("L1"):
        yield from _absent_buffers(local)


def _absent_buffers(local: Memory) -> Iterator[str]:
    names = [buffer.name for buffer in local.buffers]
    if local.buffers_enforced:
        for name in BUFFERS:
            if name not in names:
                yield f"{local.name} has no buffer named {name}, and buffers_enforced is true"


def _too_many(chip: Chip) -> Iterator[str]:
    """Sentences about a chip that is larger than the address map."""
    if chip.clusters > CLUSTERS:
        yield f"clusters is {chip.clusters}; at most {CLUSTERS}: the address map has no DMA engines of further clusters"
    if chip.cores_per_cluster > HARTS_PER_CLUSTER:
        yield (
            f"cores_per_cluster is {chip.cores_per_cluster}; at most {HARTS_PER_CLUSTER}: "
            f"core i of cluster k is hart {HARTS_PER_CLUSTER} k + i"
        )
    for role, memory in memories_by_role(chip).items():
        if memory.size_bytes > (most := MEMORY_BYTES[role]):
            yield f"{memory.name} has {memory.size_bytes} bytes; its address space holds {most}"


def _memories(chip: Chip) -> Iterator[str]:
    memories = memories_by_role(chip)
    for role, memory in memories.items():
        name, unit_bytes = memory.name, memory.alignment_bytes
        if memory.scope == "chip" and chip.clusters > 1:
            yield f"{name} has scope chip; each of the {chip.clusters} clusters has its own"
        if unit_bytes > ELEMENT_BYTES:
            why = "rows of elements follow each other without gaps"
            yield f"alignment_bytes of {name} is {unit_bytes}; at most {ELEMENT_BYTES}: {why}"
        elif unit_bytes < ELEMENT_BYTES and role != "DDR":
            yield f"alignment_bytes of {name} is {unit_bytes}; {ELEMENT_BYTES}: odd addresses trap"
        if role == "DDR" and memory.size_bytes <= DATA_BASE:
            yield f"{name} has {memory.size_bytes} bytes; more than {DATA_BASE}, which programs keep for their code"
    yield from _accesses(memories)


def _accesses(memories: dict[str, Memory]) -> Iterator[str]:
    for engine, (reads, writes) in ACCESSES.items():
        for memory in (memories[role] for role in reads if role in memories):
            if engine not in memory.read_by:
                yield f"read_by of {memory.name} does not name {engine}, which reads its operands there"
        for memory in (memories[role] for role in writes if role in memories):
            if engine not in memory.written_by:
                yield f"written_by of {memory.name} does not name {engine}, which leaves its results there"


def _dma(chip: Chip) -> Iterator[str]:
    engines, channels = chip.dma.engines_per_cluster, chip.dma.channels_per_engine
    if engines > (most := len(DMA_ENGINE_BASES[0])):
        yield f"dma.engines_per_cluster is {engines}; at most {most}"
    if channels != DMA_CHANNELS:
        yield f"dma.channels_per_engine is {channels}; {DMA_CHANNELS}: one carries data in, the other one out"
    for field, limit in DMA_MOST.items():
        if (value := getattr(chip.dma, field)) > limit:
            yield f"dma.{field} is {value}; at most {limit}"
    if not chip.dma.gather:
        yield "dma.gather is false; true: rows that lie apart are fetched by one descriptor"


def _extents(chip: Chip) -> Iterator[str]:
    for engine in chip.engines:
        if engine.name in ENGINES and isinstance(engine, MatrixEngine | VectorEngine | TransferEngine):
            for field, needed in (("max_extent", EXTENT), ("max_stride_bytes", STRIDE_BYTES)):
                if (value := getattr(engine, field)) < needed:
                    yield f"{field} of engine {engine.name} is {value}; {needed}, which instructions are cut to"
    roles = {memory.name: role for role, memory in memories_by_role(chip).items()}
    for link in chip.links:
        way = (roles.get(link.source), roles.get(link.destination), link.engine)
        if link.engine == "transfer" and way in LINKS and link.max_stride_bytes < STRIDE_BYTES:
            yield (
                f"max_stride_bytes of link {link.name} is {link.max_stride_bytes}; "
                f"{STRIDE_BYTES}, which instructions are cut to"
            )
