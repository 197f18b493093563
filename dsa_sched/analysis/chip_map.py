"""A chip as a drawing: its parts as rows, from the outside in, and next to them a column for each link and for each
engine that reaches a memory.

    Chip --chip_map--> ChipMap --report.chip_map_text, report.chip_map_plot--> text, SVG

A column has marks in the rows that it joins, so every chip can be drawn, whatever its links join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from hw_models.chip import Chip
from hw_models.errors import size_text
from hw_models.parts import (
    Engine,
    Link,
    MatrixEngine,
    Memory,
    Scope,
    SimtEngine,
    SyncEngine,
    TensorEngine,
    VectorEngine,
)

SCOPES: tuple[Scope, ...] = ("chip", "cluster", "core")
"""From the outside in."""

CLUSTER_ENGINES = ("dma", "sync")
"""Kinds of engines that the cores of a cluster share."""


class Mark(Enum):
    """What a column is about in a row."""

    SOURCE = "from"
    DESTINATION = "to"
    WITHIN = "from and to"
    ENGINE = "driven by"
    READS = "reads"
    WRITES = "writes"
    READS_AND_WRITES = "reads and writes"


@dataclass(frozen=True, slots=True)
class MapRow:
    """A memory or an engine, in the chip, in each of its clusters or in each core."""

    name: str
    detail: str
    scope: Scope
    is_memory: bool


@dataclass(frozen=True, slots=True)
class MapColumn:
    """A link, or an engine with the memories that it reaches; `marks` by number of the row, from the top."""

    name: str
    detail: str
    is_link: bool
    marks: tuple[tuple[int, Mark], ...]

    @property
    def rows(self) -> tuple[int, int]:
        """The first and the last row."""
        return self.marks[0][0], self.marks[-1][0]


@dataclass(frozen=True, slots=True)
class ChipMap:
    """The drawing of a chip; `titles` say how many there are of what each scope has."""

    chip: str
    titles: dict[Scope, str]
    rows: tuple[MapRow, ...]
    columns: tuple[MapColumn, ...]


def chip_map(chip: Chip) -> ChipMap:
    """The drawing of a chip."""
    rows = tuple(chain.from_iterable(_rows(chip, scope) for scope in SCOPES))
    numbers = {(row.is_memory, row.name): number for number, row in enumerate(rows)}
    links = (_link_column(link, numbers) for link in chip.links)
    engines = (_engine_column(chip, engine, numbers) for engine in chip.engines)
    per_cluster = " per cluster" if chip.clusters > 1 else ""
    titles: dict[Scope, str] = {
        "chip": f"chip {chip.name}",
        "cluster": f"{chip.clusters} clusters, each" if chip.clusters > 1 else "1 cluster",
        "core": f"{chip.cores_per_cluster} cores{per_cluster}, each" if chip.cores_per_cluster > 1 else "1 core",
    }
    return ChipMap(chip.name, titles, rows, (*links, *(column for column in engines if len(column.marks) > 1)))


def _rows(chip: Chip, scope: Scope) -> Iterator[MapRow]:
    for memory in chip.memories:
        if memory.scope == scope:
            yield MapRow(memory.name, _memory(memory), scope, True)
    for engine in chip.engines:
        if scope == ("cluster" if engine.kind in CLUSTER_ENGINES else "core"):
            yield MapRow(engine.name, _engine(chip, engine), scope, False)


def _memory(memory: Memory) -> str:
    bandwidth = memory.bandwidth_bytes_per_cycle
    return size_text(memory.size_bytes) + (f", {bandwidth:g} B/cycle" if bandwidth is not None else "")


def _engine(chip: Chip, engine: Engine) -> str:
    match engine:
        case MatrixEngine():
            return f"matrix, {engine.array_pixels} x {engine.array_channels}"
        case VectorEngine() | SimtEngine():
            return f"{engine.kind}, {engine.lanes} lanes"
        case TensorEngine():
            return f"tensor, up to {max(rate.macs_per_cycle for rate in engine.rates)} MAC/cycle"
        case SyncEngine():
            return f"sync, {engine.groups} groups"
        case _ if chip.dma_part is not None and engine.name == chip.dma_part.engine:
            dma = chip.dma_part
            return f"{engine.kind}, {dma.engines_per_cluster} x {dma.channels_per_engine} channels"
        case _:
            return engine.kind


def _link_column(link: Link, numbers: dict[tuple[bool, str], int]) -> MapColumn:
    source, destination = numbers[True, link.source], numbers[True, link.destination]
    ends = {source: Mark.SOURCE, destination: Mark.DESTINATION} if source != destination else {source: Mark.WITHIN}
    core = link.core_bandwidth_bytes_per_cycle
    detail = (
        f"{link.bandwidth_bytes_per_cycle:g} B/cycle per {link.shared_by}"
        + (f", {core:g} per core" if core is not None else "")
        + f", {link.latency_cycles:g} cycles"
    )
    marks = ends | {numbers[False, link.engine]: Mark.ENGINE}
    return MapColumn(link.name, detail, True, tuple(sorted(marks.items(), key=lambda each: each[0])))


def _engine_column(chip: Chip, engine: Engine, numbers: dict[tuple[bool, str], int]) -> MapColumn:
    marks = {numbers[False, engine.name]: Mark.ENGINE}
    for memory in chip.memories:
        match (engine.name in memory.read_by, engine.name in memory.written_by):
            case (True, True):
                marks[numbers[True, memory.name]] = Mark.READS_AND_WRITES
            case (True, False):
                marks[numbers[True, memory.name]] = Mark.READS
            case (False, True):
                marks[numbers[True, memory.name]] = Mark.WRITES
            case _:
                pass
    return MapColumn(engine.name, "", False, tuple(sorted(marks.items(), key=lambda each: each[0])))
