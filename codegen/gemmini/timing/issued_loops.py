"""Issued loops: loops of instructions for one controller, and how long its work takes.

    128 mvin of 16 rows of 64 bytes  -->  IssuedLoop(requests 2,048, moved 131,072 bytes)  -->  12,900 cycles of `load`

A loop takes as long as the slowest of what it needs: the core that issues it, the bus, the requests that may be in
flight, rows of the local memories, blocks of the array. Numbers of the chip file, and what each rests on:

* A row of the main memory is read or written by requests of at most `dma.max_linear_bytes`, of which
  `dma.max_descriptors` may be in flight; each takes a link's latency, and a beat of the bus its bandwidth.
* Rows of zeros and repeated rows are written to local memory one per cycle. A stride of 0 reads its row once.
* A block of the array takes as many cycles as the left factor or the weights have rows, at least four.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.gemmini.isa.geometry import ACCUMULATOR, MAIN, SCRATCHPAD
from codegen.gemmini.isa.table import CODEC, ROWS
from codegen.gemmini.isa.unrolled import PARTS, Part
from hw_models.chip import Chip
from isched.program.timed_ops import LinkFlow, OpWork

CORE = "core"
COMPUTE = "compute"
LOOP_DOES: Mapping[Part, str] = {part: f"loop.{part}" for part in PARTS}
"""What a part of a loop of the accelerator's own does, whatever the loop is over."""

UNITS: Mapping[str, str] = {"mvin": "load", "mvin2": "load", "mvin3": "load", "config_ld": "load", COMPUTE: "array",
                            "config_ex": "array", "mvout": "store", "loop.added": "load", "loop.load": "load",
                            "loop.compute": "array", "loop.store": "store"}  # fmt: skip
"""The engine that works on a loop, by what it does."""

LEAST_BLOCK_CYCLES = 4
"""Cycles of the array between two blocks, at least: sums of one row may not follow each other faster."""

LOADS = frozenset({"lb", "lbu", "lh", "lhu", "lw", "lwu", "ld", "flw"})
DIVISIONS = frozenset({"fdiv.s", "fsqrt.s", "div", "rem"})
FLOATS = frozenset(row.mnemonic for row in ROWS if row.extension == "F") - {"flw", "fsw"} - DIVISIONS


@dataclass(frozen=True, slots=True)
class IssuedLoop:
    """A loop of `instructions` of the accelerator, between which the core has `issued_cycles` of its own ones. `beats`
    are those of the bus; `rows` are local ones that no byte of the main memory is for."""

    does: str
    instructions: int
    issued_cycles: float
    requests: int = 0
    moved_bytes: int = 0
    beats: int = 0
    rows: int = 0
    array_cycles: int = 0
    sums: bool = False
    """Whether it moves to or from the accumulator."""


def loop_work(segment: IssuedLoop, chip: Chip) -> OpWork:
    """The work of a loop: cycles by itself, and the bytes of beats that pass a link."""
    unit = UNITS[segment.does]
    tick = chip.assumed.scalar_instruction_cycles
    issued = segment.issued_cycles + tick * (segment.instructions - 1)
    if unit == "array":
        start = chip.matrix.start_latency_cycles if segment.array_cycles else 0.0
        return OpWork(unit, start + max(1.0, float(segment.array_cycles), issued))
    if not segment.requests:
        return OpWork(unit, max(1.0, float(segment.rows), issued))
    local = ACCUMULATOR if segment.sums else SCRATCHPAD
    link = chip.link(local, MAIN) if unit == "store" else chip.link(MAIN, local)
    flight = segment.requests * link.latency_cycles / chip.dma.max_descriptors
    slowest = max(flight, issued, float(segment.beats + segment.rows))
    bytes_of_beats = int(segment.beats * link.bandwidth_bytes_per_cycle)
    flows = (LinkFlow(link.name, bytes_of_beats),)
    return OpWork(unit, link.latency_cycles + slowest - segment.beats, flows, segment.moved_bytes)


def extra_cycles(mnemonic: str, chip: Chip) -> int:
    """Cycles of one of the core's instructions beyond those of an ordinary one."""
    costs = chip.instruction_costs
    if costs is None:
        return 0
    kinds = ((LOADS, costs.load_cycles), (FLOATS, costs.float_cycles), (DIVISIONS, costs.divide_cycles))
    own = next((cycles for names, cycles in kinds if mnemonic in names), None)
    return 0 if own is None else max(0, round(own - chip.assumed.scalar_instruction_cycles))


def core_work(count: int, extra: int, chip: Chip) -> OpWork:
    """The work of this many of the core's own instructions, some of which take longer."""
    return OpWork(CORE, count * chip.assumed.scalar_instruction_cycles + extra)


def is_accelerated(mnemonic: str) -> bool:
    """Whether an instruction is for the accelerator."""
    return CODEC.row(mnemonic).extension == "Gemmini"
