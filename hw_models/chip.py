"""What a chip is: memories, engines, links, DMA, and how many of each. No knowledge of networks or instructions.

In: the fields of a chip file (`hw_models.loading` reads and checks one). Out: one immutable `Chip` that the later
stages ask by name. Every number carries its unit in its name; cycles are those of `clock_hz`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from hw_models.errors import ChipError

__all__ = [
    "SCHEMA_VERSION",
    "Assumed",
    "Buffer",
    "Chip",
    "Dma",
    "DmaEngine",
    "Engine",
    "Link",
    "MatrixEngine",
    "Memory",
    "Rate",
    "ScalarEngine",
    "SyncEngine",
    "TransferEngine",
    "VectorEngine",
]

SCHEMA_VERSION = 1

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=64)]
Line = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f]*$")]
Count = Annotated[int, Field(ge=1, le=1 << 20)]
Limit = Annotated[int, Field(ge=0, le=1 << 50)]
Bytes = Annotated[int, Field(ge=1, le=1 << 50)]
Cycles = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Bandwidth = Annotated[float, Field(ge=1e-3, le=1e12, allow_inf_nan=False)]
"""Below, a program of some megabytes takes longer to simulate than anyone waits."""
Scope = Literal["chip", "cluster", "core"]
Dtype = Literal["float16", "float32", "bfloat16", "int8", "uint8", "int16", "int32"]


class Named(Protocol):
    """Whatever is asked for by name."""

    @property
    def name(self) -> str: ...


NamedPart = TypeVar("NamedPart", bound=Named)


class Part(BaseModel):
    """Rules of every part of a chip: immutable, no conversion between types, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Buffer(Part):
    """A physical part of a memory, such as the weight buffer of an L1; parts follow each other in the listed order."""

    name: Name
    size_bytes: Bytes


class Memory(Part):
    """One level of memory. `scope` says what one instance of it belongs to: the chip, each cluster or each core.

    `read_by` and `written_by` are engine names. `buffers_enforced` says whether data of one buffer may not lie in
    another. `bandwidth_bytes_per_cycle` is that of one instance, where a document gives it.
    """

    name: Name
    scope: Scope
    size_bytes: Bytes
    alignment_bytes: Bytes
    buffers: tuple[Buffer, ...] = ()
    buffers_enforced: bool = False
    read_by: tuple[Name, ...]
    written_by: tuple[Name, ...]
    bandwidth_bytes_per_cycle: Bandwidth | None = None

    def buffer(self, name: str) -> Buffer:
        """The physical buffer of that name; ChipError when there is none."""
        return _named(self.buffers, name, f"memory {self.name}", "buffer")


class Rate(Part):
    """Operations of one cell (matrix: multiply-accumulates) or one lane (vector: elements) in a cycle."""

    dtype: Dtype
    per_unit_per_cycle: Count


class ScalarEngine(Part):
    """The processor that issues everything else, in order."""

    kind: Literal["scalar"]
    name: Name


class MatrixEngine(Part):
    """An array of multiply-accumulate cells: `array_pixels` output pixels by `array_channels` output channels at once.

    It walks the reduction, one step a cycle. `start_latency_cycles` is paid once an instruction.
    """

    kind: Literal["matrix"]
    name: Name
    array_pixels: Count
    array_channels: Count
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]
    start_latency_cycles: Cycles
    max_stride_bytes: Limit
    max_extent: Limit

    def macs_per_cycle(self, dtype: str) -> int:
        """Peak multiply-accumulates in a cycle; ChipError when the engine has no such type."""
        return self.array_pixels * self.array_channels * _rate(self.rates, dtype, self.name)


class VectorEngine(Part):
    """An element-wise engine of `lanes` elements a cycle; `start_latency_cycles` is paid once an instruction."""

    kind: Literal["vector"]
    name: Name
    lanes: Count
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]
    start_latency_cycles: Cycles
    max_stride_bytes: Limit
    max_extent: Limit

    def elements_per_cycle(self, dtype: str) -> int:
        """Peak elements in a cycle; ChipError when the engine has no such type."""
        return self.lanes * _rate(self.rates, dtype, self.name)


class TransferEngine(Part):
    """The engine of a core that moves data between its own memory, other cores and the shared buffer."""

    kind: Literal["transfer"]
    name: Name
    max_stride_bytes: Limit
    max_extent: Limit


class DmaEngine(Part):
    """The engine of a cluster that moves data to and from the large memory; its limits are in `Chip.dma`."""

    kind: Literal["dma"]
    name: Name


class SyncEngine(Part):
    """Barriers among cores in hardware; `groups` may be waited for independently."""

    kind: Literal["sync"]
    name: Name
    groups: Count


Engine = Annotated[
    ScalarEngine | MatrixEngine | VectorEngine | TransferEngine | DmaEngine | SyncEngine, Field(discriminator="kind")
]


AnyEngine = TypeVar("AnyEngine", bound=MatrixEngine | VectorEngine)


class Link(Part):
    """A way from one memory to another, driven by one engine.

    `bandwidth_bytes_per_cycle` is shared by everything inside one `shared_by`; one core alone gets at most
    `core_bandwidth_bytes_per_cycle` where that is less. `dense_side` is the side that cannot be strided. A row is moved
    in whole units of `burst_bytes`. `broadcast` says that one read can serve several cores.
    """

    name: Name
    source: Name
    destination: Name
    engine: Name
    bandwidth_bytes_per_cycle: Bandwidth
    core_bandwidth_bytes_per_cycle: Bandwidth | None = None
    latency_cycles: Cycles
    shared_by: Scope
    max_stride_bytes: Limit
    dense_side: Literal["source", "destination", "both", "none"]
    burst_bytes: Bytes = 1
    broadcast: bool = False

    def available_bytes_per_cycle(self, sharers: int = 1) -> float:
        """Bandwidth of one of `sharers` users that work at the same time."""
        share = self.bandwidth_bytes_per_cycle / sharers
        return share if self.core_bandwidth_bytes_per_cycle is None else min(share, self.core_bandwidth_bytes_per_cycle)


class Dma(Part):
    """Limits of the DMA engines of a cluster. `gather`: source rows may lie apart; `scatter`: destination rows may."""

    engine: Name
    engines_per_cluster: Count
    channels_per_engine: Count
    max_descriptors: Count
    max_linear_bytes: Bytes
    max_row_bytes: Bytes
    max_rows: Count
    max_stride_bytes: Limit
    gather: bool
    scatter: bool


class Assumed(Part):
    """Costs that no document gives, kept apart from those that one does; a fit may replace this part alone."""

    launch_cycles: Cycles
    matrix_tile_cycles: Cycles
    matrix_row_cycles: Cycles = 0.0
    vector_pass_cycles: Cycles
    dma_descriptor_cycles: Cycles
    sync_cycles: Cycles
    scalar_instruction_cycles: Cycles
    queue_depth: Count


class Chip(Part):
    """One accelerator. Memories, engines and links are asked for by name; equal content means equal `hash`."""

    schema_version: Literal[1]
    name: Name
    description: Line
    isa: Name
    clock_hz: Annotated[int, Field(ge=1, le=10**12)]
    clusters: Count
    cores_per_cluster: Count
    memories: Annotated[tuple[Memory, ...], Field(min_length=1)]
    engines: Annotated[tuple[Engine, ...], Field(min_length=1)]
    links: tuple[Link, ...]
    dma: Dma
    assumed: Assumed

    @property
    def cores(self) -> int:
        """Cores of the whole chip."""
        return self.clusters * self.cores_per_cluster

    @property
    def hash(self) -> str:
        """SHA-256 of the content, in hexadecimal; comments and layout of the file do not count."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def memory(self, name: str) -> Memory:
        """The memory of that name; ChipError when there is none."""
        return _named(self.memories, name, f"chip {self.name}", "memory")

    def engine(self, name: str) -> ScalarEngine | MatrixEngine | VectorEngine | TransferEngine | DmaEngine | SyncEngine:
        """The engine of that name; ChipError when there is none."""
        return _named(self.engines, name, f"chip {self.name}", "engine")

    @property
    def matrix(self) -> MatrixEngine:
        """The first matrix engine of a core; ChipError when there is none."""
        return self._engine_of(MatrixEngine, "matrix")

    @property
    def vector(self) -> VectorEngine:
        """The first vector engine of a core; ChipError when there is none."""
        return self._engine_of(VectorEngine, "vector")

    def link(self, source: str, destination: str, engine: str | None = None) -> Link:
        """The way between two memories (with `engine`, the one it drives; else the first); ChipError without one."""
        for link in self.links:
            if (link.source, link.destination) == (source, destination) and engine in (None, link.engine):
                return link
        by = f" by engine {engine}" if engine else ""
        known = ", ".join(dict.fromkeys(f"{link.source} -> {link.destination}" for link in self.links))
        raise ChipError(f"chip {self.name}", needs=f"a link {source} -> {destination}{by}", has=known or "no links")

    def __str__(self) -> str:
        from hw_models.text import chip_text  # the text form reads these types

        return chip_text(self)

    def _engine_of(self, kind: type[AnyEngine], word: str) -> AnyEngine:
        for engine in self.engines:
            if isinstance(engine, kind):
                return engine
        raise ChipError(f"chip {self.name}", needs=f"an engine of kind {word}", has=_names(self.engines))


def _names(parts: Sequence[Named]) -> str:
    return ", ".join(part.name for part in parts) or "none"


def _named(parts: Sequence[NamedPart], name: str, who: str, what: str) -> NamedPart:
    for part in parts:
        if part.name == name:
            return part
    article = "an" if what[0] in "aeiou" else "a"
    raise ChipError(who, needs=f"{article} {what} named {name!r}", has=_names(parts))


def _rate(rates: tuple[Rate, ...], dtype: str, engine: str) -> int:
    for rate in rates:
        if rate.dtype == dtype:
            return rate.per_unit_per_cycle
    raise ChipError(f"engine {engine}", needs=f"the type {dtype}", has=", ".join(rate.dtype for rate in rates))
