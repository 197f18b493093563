"""A setting of what no document gives, as a chip; and the limits within which each number is physical.

    chip file + Setting --chip_of--> Chip that still reproduces the vendor's profiler example
    program + Setting --at_setting--> its instructions at the costs of that chip

Two settings need no fit: `favourable`, the chip file's own, in which each number has the most favourable value that the
documents allow; and `mid_range`, in which each has the middle of its limits.

The example (one `memul.mm` 1x8x1, `mov.m` of one element, `mov.llb.l1` of two bytes, a DMA of 16 bytes) fixes sums:
what a tile's fill takes is taken from the matrix engine's start, what a descriptor takes from the latency of the DMA's
links. So no setting contradicts it, and a cost a vector instruction (`vector_pass_cycles`) would change nothing.

Sums in order and special functions are vector instructions that may have rates of their own, and a miss of the
instruction cache takes its time and loads the DDR: code is taken as straight and cold (`fetching`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.lab.recost import work_cycles
from hw_models.chip import Chip
from hw_models.cost import dma_cycles, matrix_cycles, transfer_cycles, vector_cycles
from hw_models.parts import Engine, Link, Memory, ScalarEngine
from isched.program.program import Instr, Program

__all__ = [
    "ACCUMULATING",
    "EXAMPLE",
    "INFERRED",
    "LAUNCHES",
    "LIMITS",
    "PIN_DDR_BYTES",
    "SPECIAL",
    "Limit",
    "Setting",
    "at_setting",
    "chip_of",
    "costs_at",
    "example_of",
    "favourable",
    "mid_range",
]

EXAMPLE: Mapping[str, float] = {
    "memul.mm 1x8x1": 28,
    "mov.m of one element": 11,
    "mov.llb.l1 of 2 bytes": 66,
    "DMA of 16 bytes": 67,
}
"""Cycles at 1 GHz in the vendor's HPE user guide; the third is a mean over eight cores (51 to 84)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Numbers of a chip; units are cycles, elements a cycle and bytes a cycle and cluster."""

    fill_cycles: float
    row_cycles: float
    vector_elements: float
    accumulate_elements: float
    special_elements: float
    launch_cycles: float
    sync_cycles: float
    descriptor_cycles: float
    scalar_cycles: float
    miss_cycles: float
    llb_way_bytes: float
    ddr_bytes: float
    array_pixels: int

    def changed(self, numbers: Mapping[str, float]) -> Setting:
        """The setting with other numbers, by name."""
        return replace(self, **numbers)  # type: ignore[arg-type]  # extents are given as whole numbers


@dataclass(frozen=True, slots=True)
class Limit:
    """The values that the grid tries for a number, from that of the chip file on, and the reason for their limits.
    Where a number is one of two readings, there is none between, and the middle is that of the chip file."""

    what: str
    values: tuple[float, ...]
    reason: str
    reading: bool = False

    @property
    def middle(self) -> float:
        """Of the limits."""
        return self.values[0] if self.reading else (min(self.values) + max(self.values)) / 2


LIMITS: Mapping[str, Limit] = {
    "fill_cycles": Limit(
        "fill of the matrix array, cycles a tile",
        (0, 5, 10, 15, 20),
        "the example's 28 cycles less its 8 products leave 20 for start and fill together",
    ),
    "row_cycles": Limit(
        "results leaving the matrix array, cycles a row of pixels",
        (0, 0.25, 0.5, 0.75, 1),
        "0 if a tile's results leave behind the products of the next, 1 if they do not and 32 results leave in a cycle",
    ),
    "vector_elements": Limit(
        "vector engine, elements a cycle",
        (64, 48, 32, 24, 16),
        "64 lanes are published (CARRV 2021); the bandwidth of IM and the cost of a second operand are not. A quarter "
        "of the peak is taken as the least",
    ),
    "accumulate_elements": Limit(
        "sums in order (veacc), elements a cycle",
        (64, 16, 1),
        "64 lanes at most; 1 if each sum waits for the one before and only one is made at a time",
    ),
    "special_elements": Limit(
        "exponential, root, reciprocal, lookup, elements a cycle",
        (64, 16, 4),
        "64 lanes at most; that their unit is as wide as the products is not said. A sixteenth is taken as the least",
    ),
    "sync_cycles": Limit(
        "barrier, cycles",
        (0, 130, 500, 1_000),
        "there and back over the mesh is 2 x 51 to 84 cycles in the example; 1,000 would be a barrier in software",
    ),
    "descriptor_cycles": Limit(
        "DMA descriptor, cycles", (0, 22, 44, 66), "the example's one descriptor takes 67 with its data"
    ),
    "scalar_cycles": Limit(
        "scalar instruction, cycles", (1, 2, 4, 8), "1 is in-order hot code, the example's cold code takes 18 to 19"
    ),
    "miss_cycles": Limit(
        "miss of the instruction cache, cycles a line of 32 bytes",
        (0, 140, 484),
        "140 makes cold straight code 18 to 19 cycles an instruction, as in the example; 484 if all that its cores "
        "wait for is for misses",
    ),
    "llb_way_bytes": Limit(
        "LLB, bytes a cycle in one direction",
        (256, 192, 128),
        "256 a cluster are two slices of 128 that count both directions, 64 each (CARRV 2021); that one direction may "
        "use both is the favourable reading",
    ),
    "array_pixels": Limit(
        "side of the 64 x 32 array that takes pixels",
        (64, 32),
        "not published; 64 is inferred from published results (figure 17)",
        reading=True,
    ),
}
"""Not among them: the depth of the engines' queues, to which runs with every step awaited are blind; the bandwidth of
the DDR, which is published; and the launch of a kernel, which is to be one cost for all networks."""

INFERRED: Mapping[str, str] = {
    "launch of a kernel, 20 us": "published TVM rows want 20 to 60 us, that of Conformer allows at most 20.6 us",
    "side of the array that takes pixels, 64": "figure 17: shares of time in which matrix engines work",
}
"""What the chip file has from published results, not from documents of the chip -> which results. Rows of the same
evaluation are no independent test of these."""

LAUNCHES = (10_000.0, 20_000.0, 30_000.0, 40_000.0, 60_000.0)
"""Other launch costs, in cycles, under which rows of kernels launched one by one are shown."""

PIN_DDR_BYTES = (29.9, 34.1)
"""256 bit x 3,733 MT/s over four clusters at 1 GHz, the pins of the card as it is sold; and x 4,266 MT/s, the maximum
of the chip, which the paper quotes. The chip file has what the vendor's manual calls the card's bandwidth, 27.0; what
was measured was a card, so that is what the favourable setting takes."""

ACCUMULATING = ("veacc.m",)
SPECIAL = ("veexp.m", "vesqrt.m", "verecip.m", "velut.m")
"""Instructions by the rate that they may have of their own."""


def favourable(chip: Chip) -> Setting:
    """The chip file's own numbers: the most favourable values that documents allow."""
    assumed, cache = chip.assumed, chip.instruction_cache
    return Setting(
        fill_cycles=assumed.matrix_tile_cycles,
        row_cycles=assumed.matrix_row_cycles,
        vector_elements=chip.vector.lanes,
        accumulate_elements=chip.vector.lanes,
        special_elements=chip.vector.lanes,
        launch_cycles=assumed.launch_cycles,
        sync_cycles=assumed.sync_cycles,
        descriptor_cycles=assumed.dma_descriptor_cycles,
        scalar_cycles=assumed.scalar_instruction_cycles,
        miss_cycles=cache.miss_cycles if cache else 0.0,
        llb_way_bytes=chip.link("LLB", "L1").bandwidth_bytes_per_cycle,
        ddr_bytes=chip.link("DDR", "LLB").bandwidth_bytes_per_cycle,
        array_pixels=chip.matrix.array_pixels,
    )


def mid_range(chip: Chip) -> Setting:
    """Every number in the middle of its limits; the inferred ones as they are."""
    return favourable(chip).changed({name: limit.middle for name, limit in LIMITS.items()})


def chip_of(setting: Setting, chip: Chip) -> Chip:
    """The chip with these numbers; `chip` is the one of the file. Rates of single instructions are no chip's: see
    `at_setting`."""
    assumed = chip.assumed.model_copy(
        update={
            "matrix_tile_cycles": setting.fill_cycles,
            "matrix_row_cycles": setting.row_cycles,
            "launch_cycles": setting.launch_cycles,
            "sync_cycles": setting.sync_cycles,
            "dma_descriptor_cycles": setting.descriptor_cycles,
            "scalar_instruction_cycles": setting.scalar_cycles,
        }
    )
    return chip.model_copy(
        update={
            "memories": tuple(_memory(memory, setting) for memory in chip.memories),
            "engines": tuple(_engine(engine, setting, chip) for engine in chip.engines),
            "links": tuple(_link(link, setting, chip) for link in chip.links),
            "assumed": assumed,
        }
    )


def costs_at(setting: Setting, chip: Chip) -> Callable[[str, Mapping[str, int]], float]:
    """Opcode, operands -> work of a matrix or vector instruction; `chip` is that of the file."""

    @cache
    def at_lanes(lanes: float) -> Chip:
        return chip_of(replace(setting, vector_elements=lanes), chip)

    def cycles(opcode: str, operands: Mapping[str, int]) -> float:
        lanes = setting.vector_elements
        if opcode in ACCUMULATING:
            lanes = min(lanes, setting.accumulate_elements)
        elif opcode in SPECIAL:
            lanes = min(lanes, setting.special_elements)
        return work_cycles(opcode, operands, at_lanes(lanes))

    return cycles


def at_setting(program: Program, setting: Setting, chip: Chip) -> Program:
    """The same instructions in the same order at the same addresses, at what they cost there."""
    known: dict[tuple[str, tuple[tuple[str, int], ...]], float] = {}
    cycles_of = costs_at(setting, chip)

    def costed(instr: Instr) -> Instr:
        if not instr.cycles or instr.engine not in ("matrix", "vector"):
            return instr
        key = (instr.opcode, instr.operands)
        if key not in known:
            known[key] = cycles_of(instr.opcode, dict(instr.operands))
        return instr if known[key] == instr.cycles else replace(instr, cycles=known[key])

    streams = (replace(stream, instrs=tuple(map(costed, stream.instrs))) for stream in program.streams)
    return replace(program, streams=tuple(streams))


def _memory(memory: Memory, setting: Setting) -> Memory:
    return (
        memory.model_copy(update={"bandwidth_bytes_per_cycle": setting.ddr_bytes}) if memory.name == "DDR" else memory
    )


def _engine(engine: Engine, setting: Setting, chip: Chip) -> Engine:
    if engine.kind == "vector":
        return engine.model_copy(update={"lanes": setting.vector_elements})
    if isinstance(engine, ScalarEngine) and engine.instruction_cache is not None:
        cache = engine.instruction_cache.model_copy(update={"miss_cycles": setting.miss_cycles})
        return engine.model_copy(update={"instruction_cache": cache})
    if engine.kind == "matrix":
        cells = engine.array_pixels * engine.array_channels
        assumed = chip.assumed
        start = engine.start_latency_cycles + assumed.matrix_tile_cycles - setting.fill_cycles
        start += assumed.matrix_row_cycles - setting.row_cycles
        sides = {"array_pixels": setting.array_pixels, "array_channels": cells // setting.array_pixels}
        return engine.model_copy(update={**sides, "start_latency_cycles": start})
    return engine


def _link(link: Link, setting: Setting, chip: Chip) -> Link:
    ends = {link.source, link.destination}
    if ends == {"DDR", "LLB"}:
        latency = link.latency_cycles + chip.assumed.dma_descriptor_cycles - setting.descriptor_cycles
        return link.model_copy(update={"bandwidth_bytes_per_cycle": setting.ddr_bytes, "latency_cycles": latency})
    if ends == {"LLB", "L1"}:
        return link.model_copy(update={"bandwidth_bytes_per_cycle": setting.llb_way_bytes})
    return link


def example_of(chip: Chip) -> Mapping[str, float]:
    """What the vendor's profiler example takes on a chip, in the order of `EXAMPLE`."""
    found = (
        matrix_cycles(chip, 1, 1, 8, "float16"),
        vector_cycles(chip, 1, "float16"),
        transfer_cycles(chip, "L1", "LLB", 2),
        dma_cycles(chip, "LLB", "DDR", 16),
    )
    return dict(zip(EXAMPLE, found, strict=True))
