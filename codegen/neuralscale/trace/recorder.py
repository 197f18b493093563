"""Requests of a traced program to the engines: recorded, not computed. Only barriers and the rendezvous of `pld`
happen.

Part of `trace`: a `Recorder` replaces the simulator's cluster, `Channels` a DMA engine; both write into the `Log`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from codegen.neuralscale.isa.csr import csr
from codegen.neuralscale.isa.row import Engine as Unit
from codegen.neuralscale.isa.row import InstructionRow
from codegen.neuralscale.simulator.cluster import Cluster
from codegen.neuralscale.simulator.core import scalar
from codegen.neuralscale.simulator.core.hart import Hart, WaitReason
from codegen.neuralscale.simulator.devices.dma import DESCRIPTOR_STORE, ENGINE_BASES, DmaBus, SysDmaEngine
from codegen.neuralscale.simulator.memory.memory import SimulatedMemory
from codegen.neuralscale.simulator.memory.transfer import MemoryTransfer
from codegen.neuralscale.trace.decode import CSR_NUMBERS, Issued, region_at, traced_instr
from codegen.target import served_by
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.program import Instr, Region
from isched.program.timed_ops import IssueCost, TimedOp, timed_op

MOST_OPS = 10_000_000
"""Largest number of operations: a program with more is refused, because its timeline would fill the memory."""

_COREMAP = csr("mte_coremap").number
_READ = np.array(sorted(CSR_NUMBERS.values()))

BUSY, DONE = 0x010, 0x014
"""Registers of a DMA engine: whether a channel works, and whether it has ended."""


@dataclass(slots=True)
class CoreTrace:
    """State of one core so far. `counted` is the number of its instructions retired up to the last op; `missed` holds
    the lines that its instruction cache did not have."""

    counted: int = 0
    missed: int = 0
    ops: list[TimedOp] = field(default_factory=list)


class Log:
    """Log of the ops of all cores. Each op belongs to the operator in the symbol before its code
    (`core0.0003.conv1`)."""

    def __init__(self, chip: Chip, harts: tuple[Hart, ...], cluster: int, symbols: list[tuple[int, str]]) -> None:
        self.chip, self.cluster = chip, cluster
        self._addresses = [address for address, _ in symbols]
        self._names = [served_by(name) for _, name in symbols]
        self.streams = {hart.hart_id: CoreTrace() for hart in harts}
        self._piece = (0, 0, "")  # the range of the last op: usually the next op is in it, too
        self.barriers = 0
        self.transfers = 0
        self.count = 0
        self.open: dict[str, str] = {}  # channel -> its transfer
        self.current: Hart | None = None

    def issue(self, hart: Hart, period: int = 0) -> IssueCost:
        """Cost for the scalar core to reach its current op."""
        return IssueCost(self.since(hart), 0, period, self.missed(hart))

    def since(self, hart: Hart) -> int:
        """Number of scalar instructions since the last op, including the current one."""
        stream = self.streams[hart.hart_id]
        before = hart.retired + 1 - stream.counted
        stream.counted = hart.retired + 1
        return before

    def missed(self, hart: Hart) -> int:
        """The lines fetched since the last op."""
        stream, missed = self.streams[hart.hart_id], hart.cache.item(scalar.MISSED)
        before, stream.missed = missed - stream.missed, missed
        return before

    def source(self, hart: Hart) -> str:
        """The operator for which the core works; empty where no symbol names it."""
        pc = hart.state.item(scalar.PC)
        start, end, name = self._piece
        if not start <= pc < end:
            at = bisect_right(self._addresses, pc)
            start = self._addresses[at - 1] if at else -1
            end = self._addresses[at] if at < len(self._addresses) else 1 << 32
            name = self._names[at - 1] if at else ""
            self._piece = (start, end, name)
        return name

    def add(self, hart: Hart, op: TimedOp) -> None:
        """Add an op under the name of its operator."""
        source = self.source(hart)
        self.append(hart, replace(op, source=source) if source else op)

    def append(self, hart: Hart, op: TimedOp) -> None:
        """Append an op that has its name. Raises TargetError for too many."""
        self.count += 1
        if self.count > MOST_OPS:
            raise TargetError("program", needs=f"at most {MOST_OPS:,} instructions for engines", has="more")
        self.streams[hart.hart_id].ops.append(op)

    def meet(self, harts: list[Hart], kind: str) -> None:
        """Mark the ops that these cores issued last as met."""
        self.barriers += 1
        name = f"{kind}{self.barriers}"
        for hart in harts:
            ops = self.streams[hart.hart_id].ops
            ops[-1] = _met(ops[-1], name)


def _met(op: TimedOp, rendezvous: str) -> TimedOp:
    """The op with its rendezvous; written out, because `replace` takes several times as long and most ops meet."""
    return TimedOp(
        op.engine, op.opcode, op.issue, op.unit, op.cycles, op.flows, op.reads, op.writes, rendezvous, op.starts,
        op.awaits, op.source, op.moved_bytes,
    )  # fmt: skip


class Channels(SysDmaEngine):
    """A DMA engine that only records its transfers; they are under way until `land`."""

    def __init__(self, base: int, number: int, line: DmaBus, log: Log, memory: SimulatedMemory) -> None:
        super().__init__(base, line)
        self.number, self._log, self._memory = number, log, memory
        self.hidden: frozenset[int] = frozenset()
        """Channels that report "not busy" although their transfer is under way."""

    def pending(self) -> tuple[int, ...]:
        return tuple(n for n, channel in enumerate(self._channels) if channel.transfer is not None)

    def token(self, channel: int) -> str:
        return f"dma{self.number}.{channel}"

    def land(self, channels: frozenset[int]) -> None:
        for channel in channels:
            self._channels[channel].transfer, self._channels[channel].done = None, True

    def describe(self, offset: int, value: int) -> None:
        """Store a word into the descriptors."""
        place = offset - DESCRIPTOR_STORE
        self._store[place : place + 4] = value.to_bytes(4, "little")

    def load(self, offset: int) -> int:
        if offset == BUSY:
            return sum(1 << channel for channel in self.pending() if channel not in self.hidden)
        if offset == DONE:
            return super().load(offset) | sum(1 << 2 * channel for channel in self.hidden)
        return super().load(offset)

    def _observe(self) -> None:
        """Do nothing: observing lands no transfer."""

    def finish(self) -> None:
        """Do nothing: no transfer is in flight here."""

    def _start(self, number: int) -> None:
        super()._start(number)
        transfer, hart, log = self._channels[number].transfer, self._log.current, self._log
        assert transfer is not None  # just started
        assert hart is not None  # the core that stored it
        reads, writes = [], []
        for piece in transfer.pieces:
            source = self._region(piece.source.data, piece.source_start)
            target = self._region(piece.destination.data, piece.destination_start)
            dense = piece.rows == 1 or piece.source_stride == piece.row_bytes
            rows = (piece.size_bytes,) if dense else (piece.row_bytes, piece.rows, piece.source_stride)
            reads.append(Region(*source, *rows))
            writes.append(Region(*target, piece.size_bytes))
        log.transfers += 1
        token = self.token(number)
        log.open[token] = f"{token}#{log.transfers}"
        if not reads:
            self.land(frozenset((number,)))
            return
        instr = Instr(log.chip.dma.engine, "dma.start", (), tuple(reads), tuple(writes))
        log.add(hart, timed_op(instr, log.chip, log.issue(hart), starts=log.open[token]))

    def _region(self, data: object, start: int) -> tuple[str, int]:
        if data is not self._memory.bytes:
            return "DDR", start
        name, address, _ = self._memory.describe(start)
        return region_at(name, address, self._log.cluster)


class Recorder(Cluster):
    """A cluster that records requests to engines; only barriers and the rendezvous of `pld` take effect."""

    def __init__(self, number: int, memory: SimulatedMemory, harts: tuple[Hart, ...], log: Log) -> None:
        super().__init__(number, memory, harts, Random(0))
        self.log = log
        self.channels = tuple(
            Channels(base, n, DmaBus(memory, Random(0), _ignore, _ignore), log, memory)
            for n, base in enumerate(ENGINE_BASES[number])
        )
        self.engines = self.channels
        self._known: dict[object, TimedOp] = {}
        """Ops by their full contents: most instructions occur again, on other cores and in other tiles."""

    def execute(self, hart: Hart, row: InstructionRow, word: int) -> None:
        log = self.log
        if row.engine is Unit.SYNC:
            log.add(hart, TimedOp("sync", "sync", log.issue(hart)))
            self._rendezvous(hart, WaitReason.SYNC)
            return
        op = self._op(hart, row, word)
        log.append(hart, op)
        if row.family == "pld":
            self._rendezvous(hart, WaitReason.PLD)
        if row.fields and row.engine is Unit.VME and not op.writes:
            hart.set_f32(word >> 7 & 31, 0)

    def _op(self, hart: Hart, row: InstructionRow, word: int) -> TimedOp:
        """The instruction for the cycle model, with the name of its operator."""
        log, x = self.log, hart.x
        before, missed, source = log.since(hart), log.missed(hart), log.source(hart)
        registers = (x.item(word >> 7 & 31), x.item(word >> 15 & 31), x.item(word >> 20 & 31))
        # A core's transfer to itself stays local, so the core number matters for an icmov.
        core = hart.hart_id if row.family == "icmov" else -1
        key = (word, registers, hart.csr[_READ].tobytes(), before, missed, source, core)
        op = self._known.get(key)
        if op is None:
            issued = Issued(hart, row, word, log.cluster)
            instr = replace(traced_instr(issued, log.chip), source=source)
            op = timed_op(instr, log.chip, IssueCost(before, missed=missed))
            if row.family == "icmov" and not issued.own:
                op = replace(op, writes=())  # in the memory of another core
            self._known[key] = op
        return op

    def _rendezvous(self, hart: Hart, kind: WaitReason) -> None:
        hart.waiting = kind
        if kind is WaitReason.SYNC:
            released = self.barriers.enter_sync(hart.hart_id)
        else:
            released = self.barriers.enter_pld(hart.hart_id, int(hart.csr[_COREMAP]))
        if not released:  # most cores arrive and wait
            return
        met = [other for other in self._harts if released >> other.hart_id & 1 and other.waiting is kind]
        for other in met:
            other.waiting = None
        if met:
            self.log.meet(met, kind.value)


def _ignore(_transfer: MemoryTransfer) -> None:
    """Do nothing: a transfer needs no data here."""
