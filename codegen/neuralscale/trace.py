"""From machine code to what the clock needs: each core's instructions with work, regions and scalar instructions.

    ELF bytes --scalar code runs, engines only note what they were asked--> TimedStream of each core

Nothing but the executable is read. The scalar code runs on the simulator's machinery, so loops, calls and any way of
building addresses are followed; engines compute nothing, so control flow may not depend on what they would compute.
A loop that asks a DMA engine whether it is done is found by trying it: which channels let it end, how long a turn is.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from codegen.neuralscale.elf import Elf, ElfError, read_elf
from codegen.neuralscale.isa_row import Engine as Unit
from codegen.neuralscale.isa_row import Row
from codegen.neuralscale.simulator import scalar
from codegen.neuralscale.simulator.bus import Bus, Finished
from codegen.neuralscale.simulator.cluster import Cluster
from codegen.neuralscale.simulator.devices import Devices
from codegen.neuralscale.simulator.dma import DESCRIPTOR_STORE, ENGINE_BASES, WINDOW_BYTES, Engine, Line
from codegen.neuralscale.simulator.faults import Fault, SimulationError, SimulationFault, Trap
from codegen.neuralscale.simulator.hart import Hart, Waiting
from codegen.neuralscale.simulator.machine import Machine
from codegen.neuralscale.simulator.memory import Memory
from codegen.neuralscale.simulator.options import SimulationOptions
from codegen.neuralscale.simulator.transfer import Transfer
from codegen.neuralscale.traced import Issued, region_at, traced_instr
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program import Instr, Region
from isched.timed import Issue, TimedOp, TimedStream, timed_op

__all__ = ["MOST_INSTRUCTIONS", "trace_elf"]

MOST_INSTRUCTIONS = 200_000_000
"""Scalar instructions of all cores; a program of more is taken for an endless loop."""

LONGEST_LOOP = 64
"""A loop that asks for the end of a transfer has at most this many instructions."""

_SLICE = 1 << 16
_BUSY, _DONE = 0x010, 0x014
_OPCODE, _LOAD = 0x7F, 0x03
_FUNCTION, _SW = 0x707F, 0x2023
_SIDE_EFFECTS = frozenset({"sb", "sh", "sw", "fsw", "wfi"})


def trace_elf(elf: bytes | memoryview, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
    """What each core of the cluster does, in program order.

    Raises TargetError for a file that is no program for this chip, a program that faults or waits for ever, an
    instruction whose way the chip file does not have.
    """
    try:
        return _Tracer(read_elf(elf), cores, cluster, chip).trace()
    except (ElfError, SimulationError) as error:
        raise TargetError("program", needs="a static executable for this chip", has=str(error)) from error


@dataclass(slots=True)
class _Stream:
    """What is known of one core so far; `counted`: its retired instructions up to the last op."""

    counted: int = 0
    ops: list[TimedOp] = field(default_factory=list)


class _Log:
    """Collects the ops of all cores. Each belongs to what the symbol before its code names (`core0.0003.conv1`)."""

    def __init__(self, chip: Chip, harts: tuple[Hart, ...], cluster: int, symbols: list[tuple[int, str]]) -> None:
        self.chip, self.cluster = chip, cluster
        self._addresses = [address for address, _ in symbols]
        self._names = [_operator(name) for _, name in symbols]
        self.streams = {hart.hart_id: _Stream() for hart in harts}
        self.barriers = 0
        self.transfers = 0
        self.open: dict[str, str] = {}  # channel -> its transfer
        self.current: Hart | None = None

    def issue(self, hart: Hart, period: int = 0) -> Issue:
        """The scalar instructions since the last op, this one counted."""
        stream = self.streams[hart.hart_id]
        before = hart.retired + 1 - stream.counted
        stream.counted = hart.retired + 1
        return Issue(before, 0, period)

    def add(self, hart: Hart, op: TimedOp) -> None:
        at = bisect_right(self._addresses, hart.pc) - 1
        named = replace(op, source=self._names[at]) if at >= 0 and self._names[at] else op
        self.streams[hart.hart_id].ops.append(named)

    def meet(self, harts: list[Hart], kind: str) -> None:
        """The ops that these cores issued last have met."""
        self.barriers += 1
        for hart in harts:
            ops = self.streams[hart.hart_id].ops
            ops[-1] = replace(ops[-1], rendezvous=f"{kind}{self.barriers}")


def _operator(symbol: str) -> str:
    """The operator in the name of a piece of code that this compiler emitted; empty for other symbols."""
    core, _, rest = symbol.partition(".")
    number, _, name = rest.partition(".")
    return name if core.startswith("core") and number.isdigit() else ""


class _Channels(Engine):
    """A DMA engine that only notes its transfers; they are under way until `land`."""

    def __init__(self, base: int, number: int, line: Line, log: _Log, memory: Memory) -> None:
        super().__init__(base, line)
        self.number, self._log, self._memory = number, log, memory
        self.hidden: frozenset[int] = frozenset()
        """Channels that say "not busy" although their transfer is under way."""

    def pending(self) -> tuple[int, ...]:
        return tuple(n for n, channel in enumerate(self._channels) if channel.transfer is not None)

    def token(self, channel: int) -> str:
        return f"dma{self.number}.{channel}"

    def land(self, channels: frozenset[int]) -> None:
        for channel in channels:
            self._channels[channel].transfer, self._channels[channel].done = None, True

    def describe(self, offset: int, value: int) -> None:
        """A store of a word into the descriptors."""
        place = offset - DESCRIPTOR_STORE
        self._store[place : place + 4] = value.to_bytes(4, "little")

    def load(self, offset: int) -> int:
        if offset == _BUSY:
            return sum(1 << channel for channel in self.pending() if channel not in self.hidden)
        if offset == _DONE:
            return super().load(offset) | sum(1 << 2 * channel for channel in self.hidden)
        return super().load(offset)

    def _observe(self) -> None:
        """Nothing lands by being looked at."""

    def finish(self) -> None:
        """Nothing is in flight here."""

    def _start(self, number: int) -> None:
        super()._start(number)
        transfer, hart, log = self._channels[number].transfer, self._log.current, self._log
        assert transfer is not None  # just started
        assert hart is not None  # whose store it was
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


class _Recorder(Cluster):
    """Notes what engines are asked; only barriers and the rendezvous of `pld` do what they say."""

    def __init__(self, number: int, memory: Memory, harts: tuple[Hart, ...], log: _Log) -> None:
        super().__init__(number, memory, harts, Random(0))
        self.log = log
        self.channels = tuple(
            _Channels(base, n, Line(memory, Random(0), _ignore, _ignore), log, memory)
            for n, base in enumerate(ENGINE_BASES[number])
        )
        self.engines = self.channels

    def execute(self, hart: Hart, row: Row, word: int) -> None:
        log = self.log
        issued = Issued(hart, row, word, log.cluster)
        if row.engine is Unit.SYNC:
            log.add(hart, TimedOp("sync", "sync", log.issue(hart)))
            self._rendezvous(hart, Waiting.SYNC)
            return
        instr = traced_instr(issued, log.chip)
        log.add(hart, timed_op(instr, log.chip, log.issue(hart)))
        if row.family == "icmov" and not issued.own:
            own = log.streams[hart.hart_id].ops
            own[-1] = replace(own[-1], writes=())  # in the memory of another core
        if row.family == "pld":
            self._rendezvous(hart, Waiting.PLD)
        if row.fields and row.engine is Unit.VME and not instr.writes:
            hart.set_f32(word >> 7 & 31, 0)

    def _rendezvous(self, hart: Hart, kind: Waiting) -> None:
        hart.waiting = kind
        if kind is Waiting.SYNC:
            released = self.barriers.enter_sync(hart.hart_id)
        else:
            released = self.barriers.enter_pld(hart.hart_id, int(hart.csr[0x420]))
        met = [other for other in self._harts if released >> other.hart_id & 1 and other.waiting is kind]
        for other in met:
            other.waiting = None
        if met:
            self.log.meet(met, kind.value)


def _ignore(_transfer: Transfer) -> None:
    """A transfer needs no data here."""


class _Tracer(Machine):
    """The simulator with engines that note instead of computing; every core runs to its end or its next wait."""

    def __init__(self, image: Elf, cores: int, cluster: int, chip: Chip) -> None:
        super().__init__(image, SimulationOptions(cores=cores, cluster=cluster))
        self._log = _Log(chip, self._harts, cluster, self._symbols)
        self._recorder = _Recorder(cluster, self._memory, self._harts, self._log)
        self._cluster = self._recorder
        devices = Devices(self._recorder.barriers, self._recorder.engines, self._console)
        self._bus = Bus(self._memory, devices, self._bus.tohost)

    def trace(self) -> tuple[TimedStream, ...]:
        """Runs all cores; the first that reports a fault or a wrong exit code ends it."""
        finished: set[int] = set()
        while True:
            ready = [hart for hart in self._harts if hart.waiting is None and hart.index not in finished]
            if not ready:
                break
            for hart in ready:
                try:
                    self._slice(hart, _SLICE, True)
                except Finished:
                    finished.add(hart.index)
                except Exception as stop:
                    fault = getattr(stop, "fault", None)
                    if not isinstance(fault, Fault):
                        raise
                    self._refuse(fault)
            if self._executed > MOST_INSTRUCTIONS:
                self._refuse(Fault("limit", f"no end after {self._executed} instructions"))
        if stuck := [hart for hart in self._harts if hart.waiting in (Waiting.SYNC, Waiting.PLD)]:
            reason = self._recorder.reason(stuck[0])
            self._refuse(Fault("deadlock", f"core {stuck[0].hart_id} {reason} for ever"))
        return tuple(
            TimedStream(hart.index, tuple(stream.ops), hart.retired - stream.counted)
            for hart, stream in zip(self._harts, self._log.streams.values(), strict=True)
        )

    @staticmethod
    def _refuse(fault: Fault) -> None:
        raise TargetError("program", needs="to run to its end", has=fault.message)

    def _enter_handler(self, hart: Hart, trap: Trap) -> None:
        del hart
        raise SimulationFault("trap", f"trap {trap.cause:#x}")

    def _one_instruction(self, hart: Hart) -> None:
        fetched = self._code.fetch(hart)
        word = fetched.word
        if word & _FUNCTION == _SW:
            if self._describes(hart, word):
                hart.pc += fetched.length
                hart.retired += 1
                return
        elif word & _OPCODE == _LOAD and (engine := self._asked(hart, word)) is not None:
            self._await(hart, engine)
        self._log.current = hart
        super()._one_instruction(hart)

    def _describes(self, hart: Hart, word: int) -> bool:
        """A store into an engine's descriptors, done here at once: most instructions of a program are such."""
        offset = word >> 25 << 5 | word >> 7 & 31
        address = int(hart.x[word >> 15 & 31]) + ((offset ^ 0x800) - 0x800)
        for engine in self._recorder.channels:
            if engine.base + DESCRIPTOR_STORE <= address < engine.base + WINDOW_BYTES and not address & 3:
                engine.describe(address - engine.base, int(hart.x[word >> 20 & 31]))
                return True
        return False

    def _asked(self, hart: Hart, word: int) -> _Channels | None:
        """The DMA engine whose busy or done register a load reads while it works."""
        address = int(hart.x[word >> 15 & 31]) + ((word >> 20 ^ 0x800) - 0x800) & 0xFFFF_FFFF
        for engine in self._recorder.channels:
            if engine.base <= address < engine.base + WINDOW_BYTES and address - engine.base in (_BUSY, _DONE):
                return engine if engine.pending() else None
        return None

    def _await(self, hart: Hart, engine: _Channels) -> None:
        """Find which transfers the loop around the next instruction waits for, and let them land."""
        pending = engine.pending()
        whole = frozenset(pending)
        period = self._turn(hart, engine, frozenset())
        choices = [frozenset((channel,)) for channel in pending] + [whole]
        landed = next((c for c in choices if not self._turn(hart, engine, c)), None) if period else whole
        if landed is None:
            self._refuse(Fault("deadlock", f"core {hart.hart_id} asks for the end of a transfer for ever"))
            return
        log = self._log
        tokens = tuple(log.open[engine.token(channel)] for channel in sorted(landed))
        log.add(hart, TimedOp("scalar", "dma.wait", log.issue(hart, period), awaits=tokens))
        engine.land(landed)

    def _turn(self, hart: Hart, engine: _Channels, hidden: frozenset[int]) -> int:
        """Instructions until the same question is asked again when the `hidden` channels are done; 0 if never."""
        kept = (hart.x.copy(), hart.f.copy(), hart.counts.copy(), hart.state.copy(), hart.retired, self._executed)
        start, engine.hidden, turn = hart.pc, hidden, 0
        for count in range(1, LONGEST_LOOP + 1):
            row = self._code.fetch(hart).row
            if row is None or row.engine is not Unit.SCALAR or row.mnemonic in _SIDE_EFFECTS:
                break
            self._step(hart)
            if hart.pc == start:
                turn = count
                break
        engine.hidden = frozenset()
        x, f, counts, state, hart.retired, self._executed = kept
        for array, values in ((hart.x, x), (hart.f, f), (hart.counts, counts), (hart.state, state)):
            np.copyto(array, values)
        return turn

    def _step(self, hart: Hart) -> None:
        """One scalar instruction without side effects."""
        hart.state[scalar.BUDGET] = 1
        while (reason := scalar.run(*self._arguments[hart.index])) == scalar.NEEDS_CODE:
            self._provide_code(hart)
        if reason == scalar.NEEDS_PYTHON:
            super()._one_instruction(hart)
