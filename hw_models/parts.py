"""The parts that describe a chip: memories, engines, links, and those of one kind of chip.

In: fields of a chip file, each checked by itself (rules between them: `hw_models.chip_rules`). Out: immutable records,
each number with its unit in its name; cycles are those of the chip's `clock_hz`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import not_
from types import MappingProxyType
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from hw_models.errors import ChipError

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]*$"
KERNEL_PATTERN = r"^[a-z][a-z0-9_]*(\([a-z0-9_]+=[A-Za-z0-9_.]+(, [a-z0-9_]+=[A-Za-z0-9_.]+)*\))?$"
LINE_PATTERN = r"^[^\x00-\x1f\x7f]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=64)]
Line = Annotated[str, Field(min_length=1, max_length=400, pattern=LINE_PATTERN)]
Count = Annotated[int, Field(ge=1, le=1 << 20)]
Limit = Annotated[int, Field(ge=0, le=1 << 50)]
Bytes = Annotated[int, Field(ge=1, le=1 << 50)]
Times = Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)]
Cycles = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Bandwidth = Annotated[float, Field(ge=1e-3, le=1e12, allow_inf_nan=False)]
"""Bandwidth in bytes per cycle. Below the lower bound, a program of some megabytes takes too long to simulate."""
Proxy = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Kind = Literal["cores", "gpu"]
"""An array of in-order cores whose programs move data by DMA, or a GPU whose blocks of threads the hardware places."""
Scope = Literal["chip", "cluster", "core"]
Dtype = Literal["float16", "float32", "bfloat16", "int8", "uint8", "int16", "int32"]


class Named(Protocol):
    """Anything that is looked up by name."""

    @property
    def name(self) -> str: ...


NamedPart = TypeVar("NamedPart", bound=Named)


class Part(BaseModel):
    """Base of every part of a chip: immutable, no conversion between types, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Buffer(Part):
    """A physical part of a memory, such as the weight buffer of an L1; parts follow each other in the listed order."""

    name: Name
    size_bytes: Bytes


class Memory(Part):
    """One level of memory. `scope` says to what one instance of it belongs: the chip, a cluster or a core.

    `read_by` and `written_by` are names of engines. `buffers_enforced` says that data must lie in the buffer that they
    belong to. `bandwidth_bytes_per_cycle` is that of one instance, where a document gives it. `persists` says whether
    the contents are still there when the next kernel starts; the program of an array of cores is one kernel.
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
    persists: Annotated[bool, Field(exclude_if=bool)] = True

    def buffer(self, name: str) -> Buffer:
        """The physical buffer with that name; ChipError when there is none."""
        return named(self.buffers, name, f"memory {self.name}", "buffer")


class Rate(Part):
    """Operations per cycle of one cell (matrix: multiply-accumulates) or one lane (vector: elements)."""

    dtype: Dtype
    per_unit_per_cycle: Count


def _absent(part: Part | float | None) -> bool:
    return part is None


QueueDepth = Annotated[Count | None, Field(exclude_if=_absent)]
"""Instructions in flight of one engine, the one at work counted, where that is not the chip's `queue_depth`."""


class InstructionCache(Part):
    """The cache through which a scalar core reads its instructions: `size_bytes` in lines of `line_bytes`, `ways` of
    them per set; the least recently used line is replaced. A miss takes `miss_cycles`, and the line is read from
    `memory`; with 0, nobody waits and nothing is read."""

    size_bytes: Annotated[int, Field(ge=64, le=1 << 24)]
    line_bytes: Annotated[int, Field(ge=16, le=1 << 12)]
    ways: Annotated[int, Field(ge=1, le=64)]
    memory: Name
    miss_cycles: Cycles

    @property
    def sets(self) -> int:
        return self.size_bytes // (self.line_bytes * self.ways)


class InstructionCosts(Part):
    """Cycles of a scalar core's instructions that take longer than others: loads, arithmetic in floating point with its
    conversions, and divisions, each until the next instruction may use the result."""

    load_cycles: Cycles
    float_cycles: Cycles
    divide_cycles: Cycles


class ScalarEngine(Part):
    """The processor that issues everything else, in order."""

    kind: Literal["scalar"]
    name: Name
    instruction_cache: Annotated[InstructionCache | None, Field(exclude_if=_absent)] = None
    costs: Annotated[InstructionCosts | None, Field(exclude_if=_absent)] = None


class MatrixEngine(Part):
    """An array of multiply-accumulate cells: `array_pixels` output pixels by `array_channels` output channels at once.

    It walks the reduction, one step per cycle. `start_latency_cycles` is paid once per instruction.
    """

    kind: Literal["matrix"]
    name: Name
    array_pixels: Count
    array_channels: Count
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]
    start_latency_cycles: Cycles
    max_stride_bytes: Limit
    max_extent: Limit
    queue_depth: QueueDepth = None

    def macs_per_cycle(self, dtype: str) -> int:
        """Peak multiply-accumulates per cycle; ChipError when the engine does not have this type."""
        return self.array_pixels * self.array_channels * _rate(self.rates, dtype, self.name)


class VectorEngine(Part):
    """An element-wise engine of `lanes` elements per cycle; `start_latency_cycles` is paid once per instruction."""

    kind: Literal["vector"]
    name: Name
    lanes: Count
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]
    start_latency_cycles: Cycles
    max_stride_bytes: Limit
    max_extent: Limit
    queue_depth: QueueDepth = None

    def elements_per_cycle(self, dtype: str) -> int:
        """Peak elements per cycle; ChipError when the engine does not have this type."""
        return self.lanes * _rate(self.rates, dtype, self.name)


class TransferEngine(Part):
    """The engine of a core that moves data between its own memory, other cores and the shared buffer."""

    kind: Literal["transfer"]
    name: Name
    max_stride_bytes: Limit
    max_extent: Limit
    queue_depth: QueueDepth = None


class DmaEngine(Part):
    """The engine of a cluster that moves data to and from the main memory; its limits are in the field `dma`."""

    kind: Literal["dma"]
    name: Name


class SyncEngine(Part):
    """Barriers among cores in hardware; each of the `groups` can be waited for independently."""

    kind: Literal["sync"]
    name: Name
    groups: Count


class SimtEngine(Part):
    """The arithmetic of a GPU's core outside its matrix units, for element-wise work and sums: `lanes` threads per
    cycle.

    Rates are fused multiply-adds per lane and cycle.
    """

    kind: Literal["simt"]
    name: Name
    lanes: Count
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]

    def elements_per_cycle(self, dtype: str) -> int:
        """Peak fused multiply-adds of one core per cycle; ChipError when the engine does not have this type."""
        return self.lanes * _rate(self.rates, dtype, self.name)


class TensorRate(Part):
    """Peak multiply-accumulates per core and cycle of one matrix instruction, from operands of type `dtype`."""

    instruction: Name
    dtype: Dtype
    macs_per_cycle: Count


class TensorEngine(Part):
    """The matrix units of a GPU's core; how fast they are depends on the instruction that drives them."""

    kind: Literal["tensor"]
    name: Name
    rates: Annotated[tuple[TensorRate, ...], Field(min_length=1)]

    def macs_per_cycle(self, instruction: str, dtype: str) -> int:
        """Peak multiply-accumulates of one core per cycle; ChipError when the engine does not have this rate."""
        for rate in self.rates:
            if (rate.instruction, rate.dtype) == (instruction, dtype):
                return rate.macs_per_cycle
        known = ", ".join(f"{rate.instruction} of {rate.dtype}" for rate in self.rates)
        raise ChipError(f"engine {self.name}", needs=f"a rate for {instruction} of {dtype}", has=known)


Engine = Annotated[
    ScalarEngine | MatrixEngine | VectorEngine | TransferEngine | DmaEngine | SyncEngine | SimtEngine | TensorEngine,
    Field(discriminator="kind"),
]

ENGINE_KINDS: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {"cores": ("scalar", "matrix", "vector", "transfer", "dma", "sync"), "gpu": ("simt", "tensor")}
)
"""Engines that each kind of chip may have."""


class Link(Part):
    """A way from one memory to another, driven by one engine.

    All users within one `shared_by` (chip, cluster or core) share `bandwidth_bytes_per_cycle`; one core alone gets at
    most `core_bandwidth_bytes_per_cycle` where that is less. `dense_side` is the side that cannot be strided. A row is
    moved in whole units of `burst_bytes`. `broadcast` says that one read can serve several cores.
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
        """Bandwidth for one of `sharers` users that work at the same time."""
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


def _one(value: object) -> bool:
    return value == 1


class Assumed(Part):
    """Costs that no document gives, kept apart from the documented ones; a fit may replace this part alone.

    `lookup_cycles` is the time that a lane of the vector engine takes to look one element up in a table; at 1, the
    default, it is not part of the chip's hash and JSON.
    """

    launch_cycles: Cycles
    matrix_tile_cycles: Cycles
    matrix_row_cycles: Cycles = 0.0
    vector_pass_cycles: Cycles
    lookup_cycles: Annotated[Cycles, Field(exclude_if=_one)] = 1.0
    dma_descriptor_cycles: Cycles
    sync_cycles: Cycles
    scalar_instruction_cycles: Cycles
    queue_depth: Count


class KernelRate(Part):
    """What a kind of kernel takes on the chip, as it was measured: a start, and its floors, some of them many times.

    `kernel` is its template, with the parameters that it must have in brackets: `conv2d(tile=64x64)`; of several
    records that fit a kernel the one with the most parameters counts. Each launch takes `start_us` beyond
    `Simt.launch_us`. Then the floors are added up: that of the `main` memory, of the `cache` that all cores share, of
    the memory that threads share (`shared`), of the `tensor` units and of the `lanes`, each times its number. Half of
    the kernels that were measured took a time within `error`, a share, of that.
    """

    kernel: Annotated[str, Field(pattern=KERNEL_PATTERN, max_length=200)]
    start_us: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    main: Times = 0.0
    cache: Times = 0.0
    shared: Times = 0.0
    tensor: Times = 0.0
    lanes: Times = 0.0
    error: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]

    @cached_property
    def template(self) -> str:
        return self.kernel.partition("(")[0]

    @cached_property
    def named(self) -> frozenset[tuple[str, str]]:
        """Names and values of the parameters that a kernel must have."""
        pairs = self.kernel.rstrip(")").partition("(")[2].split(", ")
        return frozenset((name, value) for name, _, value in (pair.partition("=") for pair in pairs if pair))


class Simt(Part):
    """Limits within which a GPU runs blocks of threads, per core, block, thread and launch.

    Registers have 32 bits. `shared_memory` and `cache` are names of memories: the one that the threads of a block
    share, of which one block may take `shared_bytes_per_block`, and the one that all cores share in front of the main
    memory. `blocks_per_cluster` blocks may reach each other's shared memory; 1 where none may. `launch_us` is the time
    from one kernel to the next when both are empty. `kernels` are measured rates of kinds of kernels; where there are
    none, times of kernels are floors.
    """

    warp_threads: Count
    threads_per_core: Count
    threads_per_block: Count
    blocks_per_core: Count
    blocks_per_cluster: Count
    registers_per_core: Count
    registers_per_thread: Count
    shared_memory: Name
    shared_bytes_per_block: Bytes
    cache: Name
    launch_us: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
    kernels: tuple[KernelRate, ...] = Field(default=(), max_length=1000, strict=False, exclude_if=not_)


class MemoryProxy(Part):
    """Area of one MiB of a memory, in square millimetres."""

    name: Name
    mm2_per_mib: Proxy
    source: Line


class EngineProxy(Part):
    """Area of one unit of an engine (a cell of a matrix engine, a lane of a vector or SIMT engine, a whole engine of
    any other kind) in square millimetres, and energy of one of its multiply-accumulates in picojoules."""

    name: Name
    mm2_per_unit: Proxy | None = None
    pj_per_mac: Proxy | None = None
    source: Line


class LinkProxy(Part):
    """Energy of one byte that moves over a link, in picojoules."""

    name: Name
    pj_per_byte: Proxy
    source: Line


class Proxies(Part):
    """Coefficients from which a sweep works out figures that stand for area and energy; each has its source.

    Nothing but what they name is counted, and no plan and no time depends on them.
    """

    memories: tuple[MemoryProxy, ...] = Field(default=(), max_length=1000, strict=False)
    engines: tuple[EngineProxy, ...] = Field(default=(), max_length=1000, strict=False)
    links: tuple[LinkProxy, ...] = Field(default=(), max_length=1000, strict=False)


def names_of(parts: Sequence[Named]) -> str:
    """Names of parts, for a message."""
    return ", ".join(part.name for part in parts) or "none"


def named(parts: Sequence[NamedPart], name: str, who: str, what: str) -> NamedPart:
    """The part with that name; when there is none, ChipError about `who`, which has no such `what`."""
    for part in parts:
        if part.name == name:
            return part
    article = "an" if what[0] in "aeiou" else "a"
    raise ChipError(who, needs=f"{article} {what} named {name!r}", has=names_of(parts))


def _rate(rates: tuple[Rate, ...], dtype: str, engine: str) -> int:
    for rate in rates:
        if rate.dtype == dtype:
            return rate.per_unit_per_cycle
    raise ChipError(f"engine {engine}", needs=f"the type {dtype}", has=", ".join(rate.dtype for rate in rates))
