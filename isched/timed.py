"""Instructions as the clock sees them: what issuing costs, which unit works how long, what must be over first.

    Program + how many scalar instructions each Instr takes --timed_streams--> one TimedStream a core
    machine code alone --the target's trace--> the same

The timing model (`isched.timing`) takes nothing else, so that a program and its machine code have one clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from hw_models.chip import Chip, MatrixEngine, VectorEngine
from hw_models.cost import link_bytes
from hw_models.errors import PlanError
from isched.program import Instr, Program, Region

__all__ = [
    "CoreIssue",
    "Flow",
    "Issue",
    "TimedOp",
    "TimedStream",
    "issued_once",
    "link_flow",
    "timed_op",
    "timed_streams",
]


@dataclass(frozen=True, slots=True)
class Issue:
    """Scalar instructions of one instruction: `before` counts those up to and including the one that issues it (or
    that first asks whether a transfer is over), `after` those behind it. Asking is repeated every `period` of them."""

    before: int
    after: int = 0
    period: int = 0


@dataclass(frozen=True, slots=True)
class CoreIssue:
    """Scalar instructions of one core: before its first instruction, of each, and behind its last."""

    start: int
    issues: tuple[Issue, ...]
    end: int


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes that move over a link, whole bursts counted."""

    link: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TimedOp:
    """One instruction under the clock.

    `unit` works on it: an engine of the core, or a DMA channel of the cluster (its token without number); empty when
    only the scalar core has to do with it. Work is `cycles` by itself, then the `flows` one after the other. Ops of
    one `rendezvous` wait for each other: on `unit`, or, without one, as a barrier of the cores. `awaits` are transfers
    that are over before the scalar core goes on.
    """

    engine: str
    opcode: str
    issue: Issue
    unit: str = ""
    cycles: float = 0.0
    flows: tuple[Flow, ...] = ()
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    rendezvous: str = ""
    starts: str = ""
    awaits: tuple[str, ...] = ()
    source: str = ""
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TimedStream:
    """What one core does; `end` scalar instructions follow its last op."""

    core: int
    ops: tuple[TimedOp, ...]
    end: int = 0


def issued_once(program: Program) -> tuple[CoreIssue, ...]:
    """One scalar instruction for each instruction: what a target is compared with that says nothing."""
    return tuple(CoreIssue(0, (Issue(1),) * len(stream.instrs), 0) for stream in program.streams)


def timed_streams(program: Program, chip: Chip, issues: tuple[CoreIssue, ...]) -> tuple[TimedStream, ...]:
    """The program's instructions under the clock; it must have been lowered for this chip.

    Raises PlanError for an instruction that awaits a transfer which nothing started.
    """
    streams = []
    for stream, issue in zip(program.streams, issues, strict=True):
        ops: list[TimedOp] = []
        numbers: dict[str, int] = {}
        barriers, lead = 0, issue.start
        for instr, cost in zip(stream.instrs, issue.issues, strict=True):
            cost = Issue(cost.before + lead, cost.after, cost.period) if lead else cost
            lead, rendezvous, starts = 0, "", ""
            awaits: tuple[str, ...] = ()
            if instr.opcode == program.barrier:
                rendezvous, barriers = f"{program.barrier}{barriers}", barriers + 1
            if instr.awaits:
                if instr.awaits not in numbers:
                    who = (
                        f"program {program.name}, core {stream.core}, {instr.opcode} of {instr.source or 'no operator'}"
                    )
                    raise PlanError(who, needs=f"a transfer {instr.awaits} that was started", has="none")
                awaits = (f"{instr.awaits}#{stream.core}.{numbers[instr.awaits]}",)
            if instr.starts:
                numbers[instr.starts] = numbers.get(instr.starts, 0) + 1
                starts = f"{instr.starts}#{stream.core}.{numbers[instr.starts]}"
            ops.append(timed_op(instr, chip, cost, rendezvous, starts, awaits))
        streams.append(TimedStream(stream.core, tuple(ops), issue.end + lead))
    return tuple(streams)


def timed_op(
    instr: Instr, chip: Chip, issue: Issue, rendezvous: str = "", starts: str = "", awaits: tuple[str, ...] = ()
) -> TimedOp:
    """One instruction; `starts` and `awaits` are tokens made unique by a number behind `#`."""
    if instr.engine == chip.dma.engine or starts:
        rows = max(1, len(instr.reads))
        cycles = max((chip.link(a.memory, b.memory, instr.engine).latency_cycles for a, b in _ends(instr)), default=0.0)
        cycles += rows * chip.assumed.dma_descriptor_cycles
        flows, unit = _flows(instr, chip), starts.partition("#")[0] or instr.engine
    elif rendezvous or awaits:
        cycles, flows, unit = 0.0, (), ""
    elif isinstance(chip.engine(instr.engine), MatrixEngine | VectorEngine):
        cycles, flows, unit = instr.cycles, (), instr.engine
    elif instr.reads and instr.writes:
        flows, unit = _flows(instr, chip), instr.engine
        cycles = max(chip.link(a.memory, b.memory, instr.engine).latency_cycles for a, b in _ends(instr))
    else:
        cycles, flows, unit = instr.cycles, (), ""
    moved = sum(region.size_bytes for region in instr.writes) if flows else 0
    return TimedOp(
        instr.engine, instr.opcode, issue, unit, cycles, flows, instr.reads, instr.writes, rendezvous, starts, awaits,
        instr.source, moved,
    )  # fmt: skip


def link_flow(chip: Chip, engine: str, source: Region, destination: Region) -> Flow:
    """The bytes of one copy, in whole bursts a row; rows are those of the side that has gaps."""
    link = chip.link(source.memory, destination.memory, engine)
    rows = max(_rows(source), _rows(destination))
    return Flow(link.name, link_bytes(link, source.size_bytes, rows))


def _ends(instr: Instr) -> list[tuple[Region, Region]]:
    return list(zip(instr.reads, instr.writes, strict=True))


def _rows(region: Region) -> int:
    return 1 if region.stride_bytes in (0, region.row_bytes) else region.rows


def _flows(instr: Instr, chip: Chip) -> tuple[Flow, ...]:
    """Flows in the order of the copies; neighbours over one link become one."""
    flows: list[Flow] = []
    for source, destination in _ends(instr):
        flow = link_flow(chip, instr.engine, source, destination)
        if flows and flows[-1].link == flow.link:
            flow = Flow(flow.link, flows.pop().size_bytes + flow.size_bytes)
        flows.append(flow)
    return tuple(flows)
