"""Instructions as the cycle model sees them: the cost of issuing, the unit and cycles of the work, and what must be
over.

    Program + how many scalar instructions each Instr takes --timed_streams--> one TimedStream per core
    machine code alone --the target's trace--> the same

The timing model (`isched.timing.cycle_model`) has no other input, so that a program and its machine code have one
clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from hw_models.chip import Chip
from hw_models.cost import link_bytes
from hw_models.errors import PlanError
from hw_models.parts import Link, ScalarEngine, TransferEngine
from isched.program.program import Instr, Program, Region


@dataclass(frozen=True, slots=True)
class LinkFlow:
    """Bytes that move over a link, with whole bursts counted."""

    link: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OpWork:
    """Work of an instruction as its target knows it: the engine, the cycles that it takes by itself, then the flows, of
    which `moved_bytes` are data."""

    unit: str
    cycles: float
    flows: tuple[LinkFlow, ...] = ()
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class IssueCost:
    """Scalar instructions of one instruction: `before` counts those up to and including the one that issues it (or that
    first asks whether a transfer is over), `after` those that follow. Asking is repeated every `period` scalar
    instructions. `missed` lines of the instruction cache are fetched on the way; this is known only from machine code.

    An instruction of a program that is a loop of machine instructions takes `entries` places in its engine's queue.
    Where these are more than the queue has, the scalar core is held until it is over: it issues them meanwhile. `work`
    is given where the regions that an instruction touches do not tell its work. With `stationed` the instruction waits
    in its queue for what it touches, not before it is issued.
    """

    before: int
    after: int = 0
    period: int = 0
    missed: int = 0
    entries: int = 1
    work: OpWork | None = None
    stationed: bool = False


@dataclass(frozen=True, slots=True)
class CoreIssue:
    """Scalar instructions of one core: before its first instruction, for each instruction, and after its last."""

    start: int
    issues: tuple[IssueCost, ...]
    end: int


_Work: TypeAlias = tuple[str, float, tuple[LinkFlow, ...]]
"""Result of `timed_work`."""


@dataclass(frozen=True, slots=True)
class TimedOp:
    """One instruction as the cycle model sees it.

    `unit` works on it: an engine of the core, or a DMA channel of the cluster (its token without number); it is empty
    when only the scalar core is involved. Work is `cycles` by itself, then the `flows` one after the other. Ops of one
    `rendezvous` wait for each other: on `unit`, or, without one, as a barrier of the cores. `awaits` are transfers that
    must be over before the scalar core goes on.
    """

    engine: str
    opcode: str
    issue: IssueCost
    unit: str = ""
    cycles: float = 0.0
    flows: tuple[LinkFlow, ...] = ()
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    rendezvous: str = ""
    starts: str = ""
    awaits: tuple[str, ...] = ()
    source: str = ""
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TimedStream:
    """The ops of one core; `end` scalar instructions follow its last op, and `end_missed` lines are fetched for
    them."""

    core: int
    ops: tuple[TimedOp, ...]
    end: int = 0
    end_missed: int = 0


def busiest_engine_cycles(streams: tuple[TimedStream, ...]) -> float:
    """Cycles of work on the busiest engine, without the bytes that it moves."""
    worked: dict[tuple[int, str], float] = {}
    for stream in streams:
        for op in stream.ops:
            worked[stream.core, op.unit] = worked.get((stream.core, op.unit), 0.0) + op.cycles
    return max(worked.values(), default=0.0)


def same_streams(first: tuple[TimedStream, ...], second: tuple[TimedStream, ...]) -> bool:
    """Whether the streams are equal. Most ops are the same few objects, so each pair is compared once."""
    if [(s.core, s.end, s.end_missed, len(s.ops)) for s in first] != [
        (s.core, s.end, s.end_missed, len(s.ops)) for s in second
    ]:
        return False
    pairs = {(id(one), id(other)): (one, other) for a, b in zip(first, second, strict=True)
             for one, other in zip(a.ops, b.ops, strict=True)}  # fmt: skip
    return all(one == other for one, other in pairs.values())


def timed_streams(program: Program, chip: Chip, issues: tuple[CoreIssue, ...]) -> tuple[TimedStream, ...]:
    """The program's instructions for the cycle model; it must have been lowered for this chip.

    Raises PlanError for an instruction that awaits a transfer which nothing started.
    """
    streams = []
    # By identity: cores mostly share their instructions and costs.
    known: dict[tuple[int, int], TimedOp] = {}
    works: dict[tuple[int, bool], _Work] = {}
    for number, (stream, issue) in enumerate(zip(program.streams, issues, strict=True)):
        ops: list[TimedOp] = []
        numbers: dict[str, int] = {}
        met: dict[str, int] = {}
        lead = issue.start
        for instr, cost in zip(stream.instrs, issue.issues, strict=True):
            together = program.is_rendezvous(instr)
            if not (lead or together or instr.awaits or instr.starts):
                key = (id(instr), id(cost))
                op = known.get(key)
                if op is None:
                    op = known[key] = timed_op(instr, chip, cost)
                ops.append(op)
                continue
            cost = replace(cost, before=cost.before + lead) if lead else cost
            lead, rendezvous, starts = 0, "", ""
            awaits: tuple[str, ...] = ()
            if together:
                kind = program.barrier if program.is_barrier(instr) else f"{instr.meets:#x}."
                met[kind] = met.get(kind, 0) + 1
                rendezvous = f"{kind}{met[kind]}"
            if instr.awaits:
                if instr.awaits not in numbers:
                    needs = f"a transfer {instr.awaits} that was started"
                    raise PlanError(program.who(number, len(ops)), needs=needs, has="none")
                awaits = (f"{instr.awaits}#{stream.core}.{numbers[instr.awaits]}",)
            if instr.starts:
                numbers[instr.starts] = numbers.get(instr.starts, 0) + 1
                starts = f"{instr.starts}#{stream.core}.{numbers[instr.starts]}"
            idle = bool(awaits or (rendezvous and not instr.meets))
            work = works.get((id(instr), idle))
            if work is None:
                work = works[id(instr), idle] = timed_work(instr, chip, bool(starts), idle)
            ops.append(_op(instr, cost, work, rendezvous, starts, awaits))
        streams.append(TimedStream(stream.core, tuple(ops), issue.end + lead))
    return tuple(streams)


def timed_op(instr: Instr, chip: Chip, issue: IssueCost, starts: str = "") -> TimedOp:
    """One instruction that waits for nothing; `starts` is a token made unique by a number after `#`.

    A transfer pays its link's latency once, however many copies it is; each copy of a DMA chain is one descriptor.
    """
    known = issue.work
    work = timed_work(instr, chip, bool(starts)) if known is None else (known.unit, known.cycles, known.flows)
    return _op(instr, issue, work, "", starts, ())


def _op(instr: Instr, issue: IssueCost, work: _Work, rendezvous: str, starts: str, awaits: tuple[str, ...]) -> TimedOp:
    """One instruction of which the work is known."""
    unit, cycles, flows = work
    unit = starts.partition("#")[0] or unit
    if issue.work is not None:
        unit, cycles, flows, moved = issue.work.unit, issue.work.cycles, issue.work.flows, issue.work.moved_bytes
    else:
        moved = sum(destination.size_bytes for _, destination in _moves(instr)) if flows else 0
    return TimedOp(
        instr.engine, instr.opcode, issue, unit, cycles, flows, instr.reads, instr.writes, rendezvous, starts, awaits,
        instr.source, moved,
    )  # fmt: skip


def timed_work(
    instr: Instr, chip: Chip, background: bool = False, idle: bool = False
) -> tuple[str, float, tuple[LinkFlow, ...]]:
    """The unit that works on an instruction (empty for none and for a transfer in the `background`), the cycles that it
    takes by itself, and the flows after them. With `idle`, it is only a wait of the scalar core."""
    if background:
        cycles, flows = _transfer(instr, chip)
        paired = len(instr.reads) == len(instr.writes)
        descriptors = len(instr.reads) if paired else sum(destination.rows for _, destination in _moves(instr))
        return "", cycles + descriptors * chip.assumed.dma_descriptor_cycles, flows
    if idle:
        return "", 0.0, ()
    worker = chip.engine(instr.engine)
    unit = "" if isinstance(worker, ScalarEngine) else instr.engine
    if isinstance(worker, TransferEngine) and instr.writes:
        return unit, *_transfer(instr, chip)
    return unit, instr.cycles, ()


def _transfer(instr: Instr, chip: Chip) -> tuple[float, tuple[LinkFlow, ...]]:
    """Latency and flows, in the order of the copies; neighbours over one link become one flow.

    A row takes whole bursts; rows are those of the side that has gaps between them.
    """
    links: dict[tuple[str, str], Link] = {}
    flows: list[LinkFlow] = []
    for source, destination in _moves(instr):
        way = (source.memory, destination.memory)
        if way not in links:
            links[way] = chip.link(*way, instr.engine)
        link = links[way]
        size = link_bytes(link, source.size_bytes, max(_rows(source), _rows(destination)))
        if flows and flows[-1].link == link.name:
            size += flows.pop().size_bytes
        flows.append(LinkFlow(link.name, size))
    return max(link.latency_cycles for link in links.values()), tuple(flows)


def _moves(instr: Instr) -> Iterator[tuple[Region, Region]]:
    """What is read and where it is stored. As many reads as writes: each write stores what one read brings. Otherwise
    integers, which are read too, choose rows: one write stores any rows of the first read, and of several the first
    one stores the first read anywhere."""
    first, *_ = instr.reads
    if len(instr.reads) == len(instr.writes):
        yield from zip(instr.reads, instr.writes, strict=True)
    elif len(instr.writes) == 1:
        yield replace(instr.writes[0], memory=first.memory), instr.writes[0]
    else:
        yield first, replace(first, memory=instr.writes[0].memory)


def _rows(region: Region) -> int:
    return 1 if region.stride_bytes in (0, region.row_bytes) else region.rows
