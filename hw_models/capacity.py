"""How large and how fast a chip, or a part of its clusters, is: figures by which chips are set side by side.

chip, number of clusters --> bytes on the chip, bytes per second of the main memory, area; work --> energy

Area and energy stand for the real ones: they are sums of coefficients that the chip file gives (`proxies`), and are
absent where it gives none.
"""

from __future__ import annotations

from collections.abc import Mapping

from hw_models.chip import Chip
from hw_models.parts import MatrixEngine, Scope, SimtEngine, VectorEngine
from hw_models.routes import main_memory

MIB = 1 << 20


def instances(chip: Chip, scope: Scope, clusters: int) -> int:
    """The number of parts of a scope in this many clusters of a chip."""
    return {"chip": 1, "cluster": clusters, "core": clusters * chip.cores_per_cluster}[scope]


def on_chip_bytes(chip: Chip, clusters: int) -> int:
    """Bytes of all memories but the main one, in this many clusters. Raises ChipError as `main_memory` does."""
    main = main_memory(chip)
    return sum(m.size_bytes * instances(chip, m.scope, clusters) for m in chip.memories if m.name != main)


def main_bytes_per_second(chip: Chip, clusters: int) -> float | None:
    """Largest rate at which this many clusters read the main memory: that of the fastest link from it, or of the memory
    itself where that is less; None where the chip file gives neither. Raises ChipError as `main_memory` does."""
    memory = chip.memory(main_memory(chip))
    links = [
        link.bandwidth_bytes_per_cycle * instances(chip, link.shared_by, clusters)
        for link in chip.links
        if link.source == memory.name
    ]
    own = memory.bandwidth_bytes_per_cycle
    rates = ([max(links)] if links else []) + ([own * instances(chip, memory.scope, clusters)] if own else [])
    return min(rates) * chip.clock_hz if rates else None


def area_mm2(chip: Chip, clusters: int) -> float | None:
    """Square millimetres of the memories and engines that the chip file gives coefficients for, in this many clusters;
    None where it gives none. Every core has one engine of each kind, but those of DMA and barriers are one per
    cluster."""
    if chip.proxies is None:
        return None
    parts = []
    for of_memory in chip.proxies.memories:
        memory = chip.memory(of_memory.name)
        parts.append(of_memory.mm2_per_mib * memory.size_bytes / MIB * instances(chip, memory.scope, clusters))
    for of_engine in chip.proxies.engines:
        if of_engine.mm2_per_unit is not None:
            scope: Scope = "cluster" if chip.engine(of_engine.name).kind in ("dma", "sync") else "core"
            parts.append(of_engine.mm2_per_unit * _units(chip, of_engine.name) * instances(chip, scope, clusters))
    return sum(parts) if parts else None


def energy_pj(chip: Chip, macs: float, moved_bytes: Mapping[str, float]) -> float | None:
    """Picojoules of this many multiply-accumulates and of the bytes that move, by way (`DDR->LLB`), as far as the chip
    file gives coefficients; None where it gives none."""
    if chip.proxies is None:
        return None
    parts = [each.pj_per_mac * macs for each in chip.proxies.engines if each.pj_per_mac is not None]
    ways = {link.name: f"{link.source}->{link.destination}" for link in chip.links}
    parts += [each.pj_per_byte * moved_bytes.get(ways[each.name], 0.0) for each in chip.proxies.links]
    return sum(parts) if parts else None


def _units(chip: Chip, name: str) -> int:
    match chip.engine(name):
        case MatrixEngine() as engine:
            return engine.array_pixels * engine.array_channels
        case VectorEngine() | SimtEngine() as engine:
            return engine.lanes
        case _:
            return 1
