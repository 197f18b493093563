"""The text form of a chip: one item per line, identical for equal chips. In: Chip. Out: what `chip show` prints."""

from __future__ import annotations

from collections.abc import Iterator

from hw_models.chip import Chip
from hw_models.errors import size_text
from hw_models.parts import (
    Assumed,
    Dma,
    Engine,
    InstructionCache,
    Link,
    MatrixEngine,
    Memory,
    Proxies,
    ScalarEngine,
    Simt,
    SimtEngine,
    SyncEngine,
    TensorEngine,
    VectorEngine,
)

SIDES = {
    "source": "source dense",
    "destination": "destination dense",
    "both": "both sides dense",
    "none": "both sides strided",
}


def chip_text(chip: Chip) -> str:
    """The chip as lines: head, memories, engines, then the parts of its kind: links, DMA and assumed costs, or
    threads."""
    kind = "" if chip.kind == "cores" else f"{chip.kind}, "
    lines = (
        f"chip {chip.name}: {chip.description}",
        f"  {kind}isa {chip.isa}, {chip.clock_hz / 1e6:g} MHz, "
        f"{chip.clusters} clusters x {chip.cores_per_cluster} cores",
        f"  hash {chip.hash}",
        *(f"  memory {_memory(memory)}" for memory in chip.memories),
        *(f"  engine {_engine(engine)}" for engine in chip.engines),
        *(f"  link {_link(link)}" for link in chip.links),
        *(f"  dma {line}" for line in _dma(chip.dma_part)),
        *(f"  assumed {line}" for line in _assumed(chip.assumed_part)),
        *(f"  simt {line}" for line in _simt(chip.simt_part)),
        *(f"  proxy {line}" for line in _proxies(chip.proxies)),
    )
    return "\n".join(lines) + "\n"


def _dma(dma: Dma | None) -> Iterator[str]:
    if dma is not None:
        on = ", ".join(word for word, on in (("gather", dma.gather), ("scatter", dma.scatter)) if on) or "linear only"
        yield (
            f"{dma.engine}: {dma.engines_per_cluster} engines x {dma.channels_per_engine} channels per cluster, "
            f"{dma.max_descriptors} descriptors, up to {size_text(dma.max_linear_bytes)} each, {on}"
        )


def _assumed(assumed: Assumed | None) -> Iterator[str]:
    if assumed is not None:
        yield from (f"{field} {value:g}" for field, value in assumed)


def _simt(simt: Simt | None) -> Iterator[str]:
    if simt is not None:
        yield (
            f"a core: {simt.threads_per_core} threads in warps of {simt.warp_threads}, {simt.blocks_per_core} blocks, "
            f"{simt.registers_per_core} registers"
        )
        yield (
            f"a block: {simt.threads_per_block} threads of {simt.registers_per_thread} registers, "
            f"{size_text(simt.shared_bytes_per_block)} of {simt.shared_memory}, clusters of {simt.blocks_per_cluster}"
        )
        yield f"a launch: {simt.launch_us:g} us; all cores share {simt.cache}"
        if simt.kernels:
            yield f"times of {len(simt.kernels)} kinds of kernels"


def _proxies(proxies: Proxies | None) -> Iterator[str]:
    if proxies is not None:
        yield from (f"{each.name}: {each.mm2_per_mib:g} mm2 per MiB ({each.source})" for each in proxies.memories)
        for engine in proxies.engines:
            area = f"{engine.mm2_per_unit:g} mm2 per unit" if engine.mm2_per_unit is not None else ""
            energy = f"{engine.pj_per_mac:g} pJ per multiply-accumulate" if engine.pj_per_mac is not None else ""
            yield f"{engine.name}: {', '.join(filter(None, (area, energy)))} ({engine.source})"
        yield from (f"{each.name}: {each.pj_per_byte:g} pJ per byte ({each.source})" for each in proxies.links)


def _memory(memory: Memory) -> str:
    buffers = " + ".join(f"{buffer.name} {size_text(buffer.size_bytes)}" for buffer in memory.buffers)
    enforced = "enforced" if memory.buffers_enforced else "not enforced"
    bandwidth = memory.bandwidth_bytes_per_cycle
    return (
        f"{memory.name}: {size_text(memory.size_bytes)} per {memory.scope}, aligned to {memory.alignment_bytes}"
        + (f", {bandwidth:g} B/cycle" if bandwidth is not None else "")
        + (f", buffers {buffers} ({enforced})" if buffers else "")
        + ("" if memory.persists else ", lost between kernels")
        + f", read by {', '.join(memory.read_by)}, written by {', '.join(memory.written_by)}"
    )


def _engine(engine: Engine) -> str:
    match engine:
        case MatrixEngine():
            rates = ", ".join(f"{rate.dtype} {engine.macs_per_cycle(rate.dtype)} MAC/cycle" for rate in engine.rates)
            shape = f"{engine.array_pixels} pixels x {engine.array_channels} channels"
            detail = f", {shape}, {rates}, start {engine.start_latency_cycles:g} cycles"
        case VectorEngine():
            rates = ", ".join(f"{rate.dtype} {engine.elements_per_cycle(rate.dtype)}/cycle" for rate in engine.rates)
            detail = f", {rates}, start {engine.start_latency_cycles:g} cycles"
        case SimtEngine():
            rates = ", ".join(f"{rate.dtype} {engine.elements_per_cycle(rate.dtype)}/cycle" for rate in engine.rates)
            detail = f", {engine.lanes} lanes, {rates}"
        case TensorEngine():
            rates = ", ".join(f"{rate.instruction} {rate.dtype} {rate.macs_per_cycle}" for rate in engine.rates)
            detail = f", {rates} MAC/cycle"
        case ScalarEngine(instruction_cache=InstructionCache() as cache):
            detail = (
                f", instruction cache {size_text(cache.size_bytes)}, lines of {cache.line_bytes} B, {cache.ways} ways, "
                f"a miss {cache.miss_cycles:g} cycles from {cache.memory}"
            )
        case SyncEngine():
            detail = f", {engine.groups} groups"
        case _:
            detail = ""
    return f"{engine.name}: {engine.kind}{detail}"


def _link(link: Link) -> str:
    core = link.core_bandwidth_bytes_per_cycle
    return (
        f"{link.name}: {link.source} -> {link.destination} by {link.engine}, "
        f"{link.bandwidth_bytes_per_cycle:g} B/cycle per {link.shared_by}"
        + (f", at most {core:g} per core" if core is not None else "")
        + f", latency {link.latency_cycles:g} cycles, {SIDES[link.dense_side]}"
        + (", broadcast" if link.broadcast else "")
    )
