"""The program: one instruction stream per core of a cluster, with engines, regions and addresses, but not yet bits.

    instr engine="MTE" opcode="mov.l1.llb" operands={...} reads=[LLB region] writes=[L1 region] source="conv1"

The meaning of opcodes and operands belongs to the target. The parts that every target shares, and that allocation
checks, ordering and timing use, are the engine, the regions read and written, the work in cycles and the operator
served.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from partitioner.ir.decisions import Decision
from partitioner.ir.text import format_line


@dataclass(frozen=True, slots=True)
class Region:
    """`rows` runs of `row_bytes` bytes, `stride_bytes` apart, from `offset_bytes` in `memory`.

    In a memory that is private to cores, the region lies on the core that runs the instruction.
    """

    memory: str
    offset_bytes: int
    row_bytes: int
    rows: int = 1
    stride_bytes: int = 0

    @property
    def end_bytes(self) -> int:
        """One past the last byte."""
        return self.offset_bytes + (self.rows - 1) * self.stride_bytes + self.row_bytes

    @property
    def size_bytes(self) -> int:
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction. `operands` are the target's own, `cycles` the cost model's, `source` is an operator's name.

    With `starts` the work goes on in the background under that token, until an instruction of the core `awaits` it.
    `meets` has one bit for each core whose engine does the instruction together with the others; it begins when it is
    first in all their queues. It is 0 where no cores meet.
    """

    engine: str
    opcode: str
    operands: tuple[tuple[str, int], ...] = ()
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    cycles: float = 0.0
    source: str = ""
    starts: str = ""
    awaits: str = ""
    meets: int = 0


@dataclass(frozen=True, slots=True)
class TensorPlacement:
    """Position of a tensor: `kind` is input, output, constant, value, alias (a view of `of`) or state (the next value
    of the input `of`, in its place)."""

    tensor: str
    kind: str
    memory: str
    offset_bytes: int
    size_bytes: int
    of: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """The instructions of one core, in program order."""

    core: int
    instrs: tuple[Instr, ...]


@dataclass(frozen=True)
class Program:
    """The work of one cluster. `barrier` is the opcode that all cores execute together."""

    name: str
    chip: str
    cluster: int
    barrier: str
    placements: tuple[TensorPlacement, ...]
    streams: tuple[Stream, ...]
    decisions: tuple[Decision, ...] = ()

    @cached_property
    def cores(self) -> int:
        """One bit per core, as in `Instr.meets`."""
        return sum(1 << stream.core for stream in self.streams)

    def is_barrier(self, instr: Instr) -> bool:
        return instr.opcode == self.barrier

    def is_rendezvous(self, instr: Instr) -> bool:
        """Whether cores do the instruction together: as a barrier, or with their engines."""
        return instr.meets != 0 or instr.opcode == self.barrier

    def is_full_rendezvous(self, instr: Instr) -> bool:
        """Whether all cores do the instruction together."""
        return instr.opcode == self.barrier or instr.meets & self.cores == self.cores

    def who(self, number: int, position: int) -> str:
        """Name in messages of the instruction at a position of stream `number`."""
        stream = self.streams[number]
        instr = stream.instrs[position]
        served = instr.source or "no operator"
        return f"program {self.name}, core {stream.core}, instruction {position} ({instr.opcode} of {served})"

    @cached_property
    def placement(self) -> dict[str, TensorPlacement]:
        return {placement.tensor: placement for placement in self.placements}

    def __str__(self) -> str:
        return format_program(self)


def format_program(program: Program) -> str:
    """The text form, with one placement or instruction per line."""
    lines = [
        format_line(
            "program",
            ("name", program.name),
            ("chip", program.chip),
            ("cluster", program.cluster),
            ("barrier", program.barrier),
        )
    ]
    for p in program.placements:
        place = (("memory", p.memory), ("offset_bytes", p.offset_bytes), ("size_bytes", p.size_bytes), ("of", p.of))
        lines.append("  " + format_line("place", ("tensor", p.tensor), ("kind", p.kind), *place))
    for stream in program.streams:
        lines.append("  " + format_line("core", ("id", stream.core)))
        for instr in stream.instrs:
            regions = (("reads", [_region(r) for r in instr.reads]), ("writes", [_region(r) for r in instr.writes]))
            what = (("engine", instr.engine), ("opcode", instr.opcode), ("operands", dict(instr.operands)))
            tokens = [(key, token) for key, token in (("starts", instr.starts), ("awaits", instr.awaits)) if token]
            meets = (("meets", instr.meets),) if instr.meets else ()
            rest = (("cycles", instr.cycles), ("source", instr.source), *tokens, *meets)
            lines.append("    " + format_line("instr", *what, *regions, *rest))
    return "\n".join(lines) + "\n"


def _region(region: Region) -> list[str | int]:
    return [region.memory, region.offset_bytes, region.row_bytes, region.rows, region.stride_bytes]
