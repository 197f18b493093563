"""Entries that are possible but unlikely: numbers far from those of any accelerator, and parts that nothing can use.

In: a `Chip` without contradictions. Out: findings as in `chip_rules`, each with a path, what the file says and what is
usual. The bounds are wide: every chip ever built, from an FPGA to a wafer, lies inside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from hw_models.chip import Chip
from hw_models.chip_rules import Finding
from hw_models.errors import ChipError, size_text
from hw_models.parts import (
    Assumed,
    Link,
    MatrixEngine,
    Memory,
    Scope,
    Simt,
    SimtEngine,
    TensorEngine,
    TransferEngine,
    VectorEngine,
)
from hw_models.routes import main_memory, route
from hw_models.yaml_nodes import Path

SLOWEST_HZ, FASTEST_HZ = 1_000_000, 10_000_000_000
MOST_BYTES_PER_CYCLE, LEAST_BYTES_PER_CYCLE = 1 << 16, 0.05
LONGEST_CYCLES, LONGEST_LAUNCH_SECONDS = 1_000_000, 1.0
LEAST_MEMORY_BYTES, MOST_CORE_MEMORY_BYTES, MOST_MEMORY_BYTES = 256, 1 << 30, 1 << 42
MOST_CORES, MOST_LANES, MOST_CELLS = 1 << 20, 1 << 16, 1 << 20
MOST_MACS, MOST_WARP_THREADS, LEAST_REGISTERS = 1 << 17, 1 << 10, 8
COMPUTING = MatrixEngine | VectorEngine | SimtEngine | TensorEngine
COSTS = (
    "matrix_tile_cycles",
    "matrix_row_cycles",
    "vector_pass_cycles",
    "lookup_cycles",
    "dma_descriptor_cycles",
    "sync_cycles",
    "scalar_instruction_cycles",
)
COMPUTES = "float16"
"""Data type in which networks are computed."""


def implausible(chip: Chip) -> Iterator[Finding]:
    """Everything worth a second look, in the order of the fields."""
    yield from _clock(chip)
    for index, memory in enumerate(chip.memories):
        yield from _size(("memories", index), memory)
        yield from _bandwidth(("memories", index, "bandwidth_bytes_per_cycle"), memory.bandwidth_bytes_per_cycle)
        yield from _hidden(("memories", index, "bandwidth_bytes_per_cycle"), memory, chip)
    yield from _fetch(chip)
    yield from _main(chip)
    yield from _engines(chip)
    for index, link in enumerate(chip.links):
        yield from _link(("links", index), link, chip)
    if chip.assumed_part is not None:
        yield from _costs(chip.assumed_part, chip)
    if chip.simt_part is not None:
        yield from _threads(chip.simt_part, chip)


def _clock(chip: Chip) -> Iterator[Finding]:
    if not SLOWEST_HZ <= chip.clock_hz <= FASTEST_HZ:
        yield (("clock_hz",), f"{chip.clock_hz:,} cycles per second", "50 MHz (an FPGA) to 3 GHz are usual")
    if chip.cores > MOST_CORES:
        yield (("clusters",), f"{chip.cores:,} cores in all", "1 to some thousands are usual")


def _size(path: Path, memory: Memory) -> Iterator[Finding]:
    most = MOST_CORE_MEMORY_BYTES if memory.scope == "core" else MOST_MEMORY_BYTES
    usual = "16 KiB to some MiB per core" if memory.scope == "core" else "1 MiB to some hundred GiB"
    if not LEAST_MEMORY_BYTES <= memory.size_bytes <= most:
        yield ((*path, "size_bytes"), f"{memory.name} holds {size_text(memory.size_bytes)}", f"{usual} are usual")
    for index, buffer in enumerate(memory.buffers):
        if buffer.size_bytes < LEAST_MEMORY_BYTES:
            said = f"buffer {buffer.name} of {memory.name} holds {size_text(buffer.size_bytes)}"
            yield ((*path, "buffers", index, "size_bytes"), said, "less than one tile; some KiB and more are usual")
    if not memory.read_by or not memory.written_by:
        field = "written_by" if memory.read_by else "read_by"
        yield ((*path, field), f"no engine {'writes' if memory.read_by else 'reads'} {memory.name}", "list its engines")


def _bandwidth(path: Path, bytes_per_cycle: float | None) -> Iterator[Finding]:
    if bytes_per_cycle is not None and not LEAST_BYTES_PER_CYCLE <= bytes_per_cycle <= MOST_BYTES_PER_CYCLE:
        usual = "1 to 4,096 are usual; GB/s divided by the clock in GHz gives bytes per cycle"
        yield (path, f"{bytes_per_cycle:,g} bytes per cycle", usual)


def _hidden(path: Path, memory: Memory, chip: Chip) -> Iterator[Finding]:
    """A memory bandwidth of which the links carry only a part. Engines that compute read some memories without any
    link."""
    has = memory.bandwidth_bytes_per_cycle
    computing = {engine.name for engine in chip.engines if isinstance(engine, COMPUTING)}
    if has is None or computing.intersection((*memory.read_by, *memory.written_by)):
        return
    out = sum(_share(link, memory, chip) for link in chip.links if link.source == memory.name)
    into = sum(_share(link, memory, chip) for link in chip.links if link.destination == memory.name)
    narrow = min((way for way in (out, into) if way), default=0.0)
    if 0 < narrow < has:
        way = "out of" if narrow == out else "into"
        said = f"{memory.name} moves {has:g} bytes per cycle, its links only {narrow:g} {way} it"
        yield (path, said, "raise the links' bandwidths; otherwise the rest of the memory's bandwidth is never used")


def _share(link: Link, memory: Memory, chip: Chip) -> float:
    """Bytes per cycle that the instances of a link move together, per instance of a memory."""
    count = _instances(link.shared_by, chip) / _instances(memory.scope, chip)
    return link.bandwidth_bytes_per_cycle * max(1.0, count)


def _instances(scope: Scope, chip: Chip) -> int:
    return prod({"chip": (), "cluster": (chip.clusters,), "core": (chip.clusters, chip.cores_per_cluster)}[scope])


def _main(chip: Chip) -> Iterator[Finding]:
    """A main memory that is too small for any network and, on an array of cores, memories that no link joins to it."""
    try:
        main = main_memory(chip)
    except ChipError:
        yield (
            ("memories",),
            "all memories belong to cores",
            "one of scope chip or cluster is usual, for whole networks",
        )
        return
    if not (memory := chip.memory(main)).persists:
        said = f"{main} is the main memory, and its contents are lost between kernels"
        yield (
            ("memories", chip.memories.index(memory), "persists"),
            said,
            "weights and results must stay in it",
        )
    if chip.kind == "cores":
        yield from _ways(chip, main)
    if not any(memory.scope == "core" for memory in chip.memories):
        yield (("memories",), "no memory belongs to a core", "layers are computed in a memory of scope core")


def _ways(chip: Chip, main: str) -> Iterator[Finding]:
    """Memories that data cannot reach from the main memory, or from which results cannot return."""
    for index, memory in enumerate(chip.memories):
        lacking = [f"{a} to {b}" for a, b in ((main, memory.name), (memory.name, main)) if not _leads(chip, a, b)]
        if lacking:
            said = f"no links lead from {', nor from '.join(lacking)}"
            yield (
                ("memories", index, "name"),
                said,
                "data come from the main memory and results return to it",
            )


def _leads(chip: Chip, source: str, destination: str) -> bool:
    try:
        return bool(route(chip, source, destination))
    except ChipError:
        return False


def _engines(chip: Chip) -> Iterator[Finding]:
    kind, needed = ("vector", VectorEngine) if chip.kind == "cores" else ("simt", SimtEngine)
    if not any(isinstance(engine, needed) for engine in chip.engines):
        yield (
            ("engines",),
            f"no engine of kind {kind}",
            "it computes everything that is not a product",
        )
    for index, engine in enumerate(chip.engines):
        path: Path = ("engines", index)
        if isinstance(engine, COMPUTING) and all(rate.dtype != COMPUTES for rate in engine.rates):
            yield ((*path, "rates"), f"{engine.name} has no rate for {COMPUTES}", "networks are computed in this type")
        if isinstance(engine, MatrixEngine | VectorEngine):
            yield from _long((*path, "start_latency_cycles"), engine.start_latency_cycles)
        if isinstance(engine, VectorEngine | SimtEngine) and engine.lanes > MOST_LANES:
            yield ((*path, "lanes"), f"{engine.lanes:,} lanes in a core", "8 to 2,048 are usual")
        if isinstance(engine, MatrixEngine) and engine.array_pixels * engine.array_channels > MOST_CELLS:
            cells = f"{engine.array_pixels:,} x {engine.array_channels:,} cells in a core"
            yield ((*path, "array_pixels"), cells, "4 x 4 to 256 x 256 are usual")
        if isinstance(engine, TensorEngine):
            yield from _products(path, engine)
        if isinstance(engine, MatrixEngine | VectorEngine | TransferEngine) and not engine.max_extent:
            yield (
                (*path, "max_extent"),
                f"{engine.name} moves no elements at a time",
                "255 and more are usual",
            )


def _products(path: Path, engine: TensorEngine) -> Iterator[Finding]:
    for number, rate in enumerate(engine.rates):
        if rate.macs_per_cycle > MOST_MACS:
            said = f"{rate.macs_per_cycle:,} MACs per cycle in a core"
            yield (
                (*path, "rates", number, "macs_per_cycle"),
                said,
                "64 to 8,192 are usual; give those of one core",
            )


def _link(path: Path, link: Link, chip: Chip) -> Iterator[Finding]:
    yield from _bandwidth((*path, "bandwidth_bytes_per_cycle"), link.bandwidth_bytes_per_cycle)
    yield from _bandwidth((*path, "core_bandwidth_bytes_per_cycle"), link.core_bandwidth_bytes_per_cycle)
    if (link.core_bandwidth_bytes_per_cycle or 0.0) > link.bandwidth_bytes_per_cycle:
        said = (
            f"a core gets {link.core_bandwidth_bytes_per_cycle:g} bytes per cycle of {link.bandwidth_bytes_per_cycle:g}"
        )
        yield ((*path, "core_bandwidth_bytes_per_cycle"), said, "leave it out, or give less than the shared bandwidth")
    for memory in (chip.memory(name) for name in dict.fromkeys((link.source, link.destination))):
        has = memory.bandwidth_bytes_per_cycle
        if has is not None and link.bandwidth_bytes_per_cycle > has:
            said = f"{link.bandwidth_bytes_per_cycle:g} bytes per cycle, and {memory.name} has {has:g}"
            yield ((*path, "bandwidth_bytes_per_cycle"), said, "a link cannot be faster than the memories at its ends")
    yield from _long((*path, "latency_cycles"), link.latency_cycles)


def _costs(assumed: Assumed, chip: Chip) -> Iterator[Finding]:
    yield from _launch(("assumed", "launch_cycles"), assumed.launch_cycles / chip.clock_hz)
    for field in COSTS:
        yield from _long(("assumed", field), getattr(assumed, field))


def _fetch(chip: Chip) -> Iterator[Finding]:
    """An instruction cache whose misses take longer than any existing memory needs."""
    for index, engine in enumerate(chip.engines):
        if engine.kind == "scalar" and engine.instruction_cache is not None:
            cycles = engine.instruction_cache.miss_cycles
            yield from _long(("engines", index, "instruction_cache", "miss_cycles"), cycles)


def _threads(simt: Simt, chip: Chip) -> Iterator[Finding]:
    """Limits of a GPU that nothing can reach, or that leave almost nothing to a thread."""
    if simt.warp_threads > MOST_WARP_THREADS:
        yield (("simt", "warp_threads"), f"{simt.warp_threads:,} threads in a warp", "8 to 64 are usual")
    if (registers := simt.registers_per_core // simt.threads_per_core) < LEAST_REGISTERS:
        said = f"{registers} for each of {simt.threads_per_core:,} threads"
        yield (("simt", "registers_per_core"), said, "32 and more are usual when a core is full")
    if simt.blocks_per_core > simt.threads_per_core:
        said = f"{simt.blocks_per_core:,} blocks of {simt.threads_per_core:,} threads in all"
        yield (("simt", "blocks_per_core"), said, "a block has at least one thread")
    if chip.memory(simt.cache).name == main_memory(chip):
        said = f"{simt.cache} is the main memory, the largest of all"
        yield (("simt", "cache"), said, "a memory of some MiB between it and the cores is usual")
    yield from _launch(("simt", "launch_us"), simt.launch_us / 1e6)


def _launch(path: Path, seconds: float) -> Iterator[Finding]:
    if seconds > LONGEST_LAUNCH_SECONDS:
        yield (path, f"a launch takes {seconds:,.3g} s", "1 us to some ms are usual")


def _long(path: Path, cycles: float) -> Iterator[Finding]:
    if cycles > LONGEST_CYCLES:
        yield (path, f"{cycles:,g} cycles", "0 to some thousands are usual")
