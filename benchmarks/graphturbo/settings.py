"""A setting of what no document gives, as a chip; and the limits within which each number is physical.

    chip file + Setting --chip_of--> Chip that still reproduces the vendor's profiler example

The example (one `memul.mm` 1x8x1, `mov.m` of one element, `mov.llb.l1` of two bytes, a DMA of 16 bytes) fixes sums:
what a tile's fill takes is taken from the matrix engine's start, what a descriptor takes from the latency of the DMA's
links. So no setting contradicts it, and a cost a vector instruction (`vector_pass_cycles`) would change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hw_models.chip import Chip, Engine, Link, Memory
from hw_models.cost import dma_cycles, matrix_cycles, transfer_cycles, vector_cycles

__all__ = [
    "EXAMPLE",
    "LAUNCHES",
    "LIMITS",
    "PIN_DDR_BYTES",
    "Limit",
    "Setting",
    "chip_of",
    "documented",
    "example_of",
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
    vector_elements: int
    launch_cycles: float
    sync_cycles: float
    descriptor_cycles: float
    scalar_cycles: float
    llb_way_bytes: float
    ddr_bytes: float
    array_pixels: int

    def changed(self, numbers: Mapping[str, float]) -> Setting:
        """The setting with other numbers, by name."""
        return replace(self, **numbers)  # type: ignore[arg-type]  # extents are given as whole numbers


@dataclass(frozen=True, slots=True)
class Limit:
    """The values that the grid tries for a number, from that of the chip file on, and the reason for their limits."""

    what: str
    values: tuple[float, ...]
    reason: str


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
    "llb_way_bytes": Limit(
        "LLB, bytes a cycle in one direction",
        (256, 192, 128),
        "256 a cluster are two slices of 128 that count both directions, 64 each (CARRV 2021); that one direction may "
        "use both is the favourable reading",
    ),
    "array_pixels": Limit("side of the 64 x 32 array that takes pixels", (64, 32), "not published"),
}
"""Not among them: the depth of the engines' queues, to which runs with every step awaited are blind; the bandwidth of
the DDR, which is published; and the launch of a kernel, which is to be one cost for all networks."""

LAUNCHES = (10_000.0, 20_000.0, 30_000.0, 40_000.0, 60_000.0)
"""Other launch costs, in cycles, under which rows of kernels launched one by one are shown."""

PIN_DDR_BYTES = (29.9, 34.1)
"""256 bit x 3,733 MT/s over four clusters at 1 GHz, the pins of the card as it is sold; and x 4,266 MT/s, the maximum
of the chip, which the paper quotes. The chip file has what the vendor's manual calls the card's bandwidth, 27.0; what
was measured was a card, so that is what the documented setting takes."""


def documented(chip: Chip) -> Setting:
    """The chip file's own numbers."""
    assumed = chip.assumed
    return Setting(
        fill_cycles=assumed.matrix_tile_cycles,
        row_cycles=assumed.matrix_row_cycles,
        vector_elements=chip.vector.lanes,
        launch_cycles=assumed.launch_cycles,
        sync_cycles=assumed.sync_cycles,
        descriptor_cycles=assumed.dma_descriptor_cycles,
        scalar_cycles=assumed.scalar_instruction_cycles,
        llb_way_bytes=chip.link("LLB", "L1").bandwidth_bytes_per_cycle,
        ddr_bytes=chip.link("DDR", "LLB").bandwidth_bytes_per_cycle,
        array_pixels=chip.matrix.array_pixels,
    )


def chip_of(setting: Setting, chip: Chip) -> Chip:
    """The chip with these numbers; `chip` is the one of the file."""
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


def _memory(memory: Memory, setting: Setting) -> Memory:
    return (
        memory.model_copy(update={"bandwidth_bytes_per_cycle": setting.ddr_bytes}) if memory.name == "DDR" else memory
    )


def _engine(engine: Engine, setting: Setting, chip: Chip) -> Engine:
    if engine.kind == "vector":
        return engine.model_copy(update={"lanes": setting.vector_elements})
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
