"""Machine code to the input of the cycle model: each core's instructions with work, regions and scalar instructions.

    ELF bytes --scalar code runs, engines only record requests--> TimedStream of each core

Only the executable is read. The scalar code runs on the simulator, so loops, calls and any way of building addresses
are followed. Engines compute nothing, so control flow may not depend on their results. A loop that polls a DMA engine
is recognised by trial: which channels let it end, and how long an iteration is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.isa.row import Engine as Unit
from codegen.neuralscale.isa.row import InstructionRow
from codegen.neuralscale.simulator.core import scalar
from codegen.neuralscale.simulator.core.hart import Hart, WaitReason
from codegen.neuralscale.simulator.devices.bus import Bus, Finished
from codegen.neuralscale.simulator.devices.devices import Devices
from codegen.neuralscale.simulator.devices.dma import DESCRIPTOR_STORE, WINDOW_BYTES
from codegen.neuralscale.simulator.machine import UNCOUNTED, NpuMachine
from codegen.neuralscale.simulator.memory.faults import Fault, SimulationError, SimulationFault, Stopped, Trap
from codegen.neuralscale.simulator.options import SimulationOptions
from codegen.neuralscale.trace.recorder import BUSY, DONE, Channels, Log, Recorder
from codegen.riscv.elf import Elf, read_elf
from codegen.riscv.elf_format import ElfError
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.timed_ops import TimedOp, TimedStream

MOST_INSTRUCTIONS = 200_000_000
"""Largest number of scalar instructions of all cores; a longer program is taken for an endless loop."""

LONGEST_LOOP = 64
"""Largest number of instructions of a loop that polls for the end of a transfer."""

_SLICE = 1 << 16
_OPCODE, _LOAD = 0x7F, 0x03
_FUNCTION, _SW = 0x707F, 0x2023
_SIDE_EFFECTS = frozenset({"sb", "sh", "sw", "fsw", "wfi"})


def trace_elf(
    elf: bytes | memoryview, cores: int, chip: Chip, cluster: int = 0, warm: bool = False
) -> tuple[TimedStream, ...]:
    """The timed stream of each core of the cluster, in program order. Instruction caches are empty at the start; with
    `warm` they hold the lines that a previous run has left.

    Raises TargetError for a file that is not a program for this chip, a program that faults or deadlocks, and an
    instruction with a data path that the chip file does not have.
    """
    try:
        image = read_elf(elf)
        tracer = _Tracer(image, cores, cluster, chip)
        streams = tracer.trace()
        return _Tracer(image, cores, cluster, chip, tracer.caches).trace() if warm else streams
    except (ElfError, SimulationError) as error:
        raise TargetError("program", needs="a static executable for this chip", has=str(error)) from error


class _Tracer(NpuMachine):
    """The simulator with engines that record instead of computing; every core runs to its end or its next wait."""

    def __init__(
        self, image: Elf, cores: int, cluster: int, chip: Chip, caches: tuple[NDArray[np.int64], ...] = ()
    ) -> None:
        super().__init__(image, SimulationOptions(cores=cores, cluster=cluster))
        for hart in self._harts:
            hart.cache = caches[hart.index] if caches else _empty_cache(chip)
            hart.cache[scalar.MISSED], hart.cache[scalar.LINE] = 0, -1 if hart.cache[scalar.SETS] else 0
        self._bind()
        self._log = Log(chip, self._harts, cluster, self._symbols)
        self._recorder = Recorder(cluster, self._memory, self._harts, self._log)
        self._cluster = self._recorder
        devices = Devices(self._recorder.barriers, self._recorder.engines, self._console)
        self._bus = Bus(self._memory, devices, self._bus.tohost)

    @property
    def caches(self) -> tuple[NDArray[np.int64], ...]:
        """The instruction caches of all cores."""
        return tuple(hart.cache for hart in self._harts)

    def trace(self) -> tuple[TimedStream, ...]:
        """Run all cores; exit codes do not count, since they may depend on results that were never computed."""
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
                except Stopped as stop:
                    self._refuse(stop.fault)
            if self._executed > MOST_INSTRUCTIONS:
                self._refuse(Fault("limit", f"no end after {self._executed} instructions"))
        if stuck := [hart for hart in self._harts if hart.waiting in (WaitReason.SYNC, WaitReason.PLD)]:
            reason = self._recorder.reason(stuck[0])
            self._refuse(Fault("deadlock", f"deadlock: core {stuck[0].hart_id} {reason}"))
        return tuple(
            TimedStream(hart.index, tuple(stream.ops), hart.retired - stream.counted, self._log.missed(hart))
            for hart, stream in zip(self._harts, self._log.streams.values(), strict=True)
        )

    @staticmethod
    def _refuse(fault: Fault) -> None:
        raise TargetError("program", needs="to run to its end", has=fault.message)

    def _enter_handler(self, hart: Hart, trap: Trap) -> None:
        del hart
        raise SimulationFault("trap", f"trap {trap.cause:#x}")

    def _slice(self, hart: Hart, length: int, alone: bool) -> None:
        """Run a core as the simulator does, without what only others need: a trace of instructions, an order drawn by a
        seed."""
        del alone
        for other in self._harts:
            if other is not hart:
                other.reservation = None
        remaining, state = length, hart.state
        while remaining > 0 and hart.waiting is None:
            state[scalar.BUDGET] = remaining
            reason = scalar.run(*self._arguments[hart.index])
            executed = state.item(scalar.EXECUTED)
            hart.retired += executed
            if reason == scalar.NEEDS_CODE:
                self._guarded(hart, self._provide_code)
            elif reason == scalar.NEEDS_PYTHON:
                self._guarded(hart, self._one_instruction)
                executed += 1
            remaining -= executed
            self._executed += executed

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
        row = fetched.row
        if row is not None and row.engine is not Unit.SCALAR:  # most of them; the rest costs little
            self._recorder.execute(hart, row, word)
            self._retire(hart, row, hart.pc + fetched.length)
            return
        super()._one_instruction(hart)

    @staticmethod
    def _retire(hart: Hart, row: InstructionRow, following: int) -> None:
        """Retire an instruction as the simulator does, but without counts per instruction, which no trace needs."""
        hart.pc = following
        hart.retired += 1
        hart.counter_offset -= row.engine is Unit.MME or row.family in UNCOUNTED

    def _describes(self, hart: Hart, word: int) -> bool:
        """Carry out a store into an engine's descriptors at once, because most instructions of a program are such
        stores."""
        offset = word >> 25 << 5 | word >> 7 & 31
        address = int(hart.x[word >> 15 & 31]) + ((offset ^ 0x800) - 0x800)
        for engine in self._recorder.channels:
            if engine.base + DESCRIPTOR_STORE <= address < engine.base + WINDOW_BYTES and not address & 3:
                engine.describe(address - engine.base, int(hart.x[word >> 20 & 31]))
                return True
        return False

    def _asked(self, hart: Hart, word: int) -> Channels | None:
        """The DMA engine whose busy or done register a load reads while the engine works."""
        address = int(hart.x[word >> 15 & 31]) + ((word >> 20 ^ 0x800) - 0x800) & 0xFFFF_FFFF
        for engine in self._recorder.channels:
            if engine.base <= address < engine.base + WINDOW_BYTES and address - engine.base in (BUSY, DONE):
                return engine if engine.pending() else None
        return None

    def _await(self, hart: Hart, engine: Channels) -> None:
        """Find the transfers for which the loop around the next instruction waits, and let them land."""
        pending = engine.pending()
        whole = frozenset(pending)
        period = self._iteration(hart, engine, frozenset())
        choices = [frozenset((channel,)) for channel in pending] + [whole]
        landed = next((c for c in choices if not self._iteration(hart, engine, c)), None) if period else whole
        if landed is None:
            self._refuse(Fault("deadlock", f"deadlock: core {hart.hart_id} polls for the end of a transfer"))
            return
        log = self._log
        tokens = tuple(log.open[engine.token(channel)] for channel in sorted(landed))
        log.add(hart, TimedOp("scalar", "dma.wait", log.issue(hart, period), awaits=tokens))
        engine.land(landed)

    def _iteration(self, hart: Hart, engine: Channels, hidden: frozenset[int]) -> int:
        """Number of instructions until the loop polls again with the `hidden` channels done; 0 if never."""
        kept = (hart.x.copy(), hart.f.copy(), hart.counts.copy(), hart.state.copy(), hart.retired, self._executed)
        cache = hart.cache.copy()
        start, engine.hidden, iteration = hart.pc, hidden, 0
        for count in range(1, LONGEST_LOOP + 1):
            row = self._code.fetch(hart).row
            if row is None or row.engine is not Unit.SCALAR or row.mnemonic in _SIDE_EFFECTS:
                break
            self._step(hart)
            if hart.pc == start:
                iteration = count
                break
        engine.hidden = frozenset()
        x, f, counts, state, hart.retired, self._executed = kept
        restored = ((hart.x, x), (hart.f, f), (hart.counts, counts), (hart.state, state), (hart.cache, cache))
        for array, values in restored:
            np.copyto(array, values)
        return iteration

    def _step(self, hart: Hart) -> None:
        """Run one scalar instruction without side effects."""
        hart.state[scalar.BUDGET] = 1
        while (reason := scalar.run(*self._arguments[hart.index])) == scalar.NEEDS_CODE:
            self._provide_code(hart)
        if reason == scalar.NEEDS_PYTHON:
            super()._one_instruction(hart)


def _empty_cache(chip: Chip) -> NDArray[np.int64]:
    """State with which `scalar.run` follows the chip's instruction cache, or the mark that there is none."""
    cache = chip.instruction_cache
    if cache is None:
        found = np.zeros(scalar.CACHE_WORDS, np.int64)
        found[scalar.LINE_BITS] = scalar.NO_CACHE
        return found
    found = np.full(scalar.CACHE_WORDS + cache.sets * cache.ways, -1, np.int64)
    found[scalar.LINE_BITS] = cache.line_bytes.bit_length() - 1
    found[scalar.SETS], found[scalar.WAYS] = cache.sets, cache.ways
    return found
