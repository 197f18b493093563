"""The simulator: one cluster executing one program, from ELF bytes to exit code, memory and statistics.

    simulate(elf, SimulationOptions(cores=8, poison=True)) -> SimulationResult

The simulator is functional and untimed. Cores take turns in slices whose order and length come from a seed, and DMA and
icmov data land as late as the rules of the chip allow. With `poison`, every read of an unwritten byte, or of one that a
transfer in flight owns, ends the run with a message that names core, pc, instruction and operator.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import numpy as np

from codegen.neuralscale.isa.row import Engine as Unit
from codegen.neuralscale.isa.row import InstructionRow
from codegen.neuralscale.simulator.cluster import Cluster
from codegen.neuralscale.simulator.core import csr, scalar
from codegen.neuralscale.simulator.core.code import DecodedCode, table
from codegen.neuralscale.simulator.core.hart import MSTATUS, Hart
from codegen.neuralscale.simulator.devices.bus import Bus, Finished
from codegen.neuralscale.simulator.devices.devices import Console, Devices
from codegen.neuralscale.simulator.instructions.single import SINGLE, ExecutionStep
from codegen.neuralscale.simulator.instructions.single_float import FLOAT
from codegen.neuralscale.simulator.instructions.vector_masks import VECTOR_MASKS
from codegen.neuralscale.simulator.instructions.vector_memory import VECTOR_MEMORY
from codegen.neuralscale.simulator.instructions.vector_unit import VECTOR_UNIT
from codegen.neuralscale.simulator.memory.faults import Fault, SimulationError, SimulationFault, Stopped, Trap
from codegen.neuralscale.simulator.memory.memory import SRAM_BASE, SimulatedMemory
from codegen.neuralscale.simulator.options import CORES_PER_CLUSTER, Counts, SimulationOptions, SimulationResult
from codegen.neuralscale.simulator.tracing import Tracer, tracer
from codegen.riscv.elf import Elf, read_elf

# Instructions per slice: long while one core runs alone, else drawn from `_SLICES`, so that cores meet in many orders.
_LONG_SLICE: Final = 1 << 20
# These instructions and those of the matrix engine leave mcycle and minstret as they are.
UNCOUNTED: Final = frozenset({"wfi", "sync", "pld"})
_SLICES: Final = (1, 3, 17, 120, 500, 2000)
_SCALAR: Final = SINGLE | FLOAT | VECTOR_UNIT | VECTOR_MEMORY | VECTOR_MASKS
_VALID_CORES: Final = SRAM_BASE + 0x4400


def simulate(
    elf: bytes | memoryview, options: SimulationOptions, drive: Callable[[NpuMachine], int] | None = None
) -> SimulationResult:
    """Run a program to its store to `tohost`, or to a fault; with `drive`, as a debugger drives the machine.

    Raises `ElfError` for a file that is not a program for this chip, `SimulationError` for options that do not fit the
    program.
    """
    machine = NpuMachine(read_elf(elf), options)
    return machine.run(partial(drive, machine) if drive is not None else None)


class NpuMachine:
    """State of one run. Use `simulate`."""

    def __init__(self, image: Elf, options: SimulationOptions) -> None:
        self._options = options
        self._source_map = sorted(options.source_map)
        self._symbols = sorted((symbol.address, symbol.name) for symbol in image.symbols)
        tohost = image.symbol("tohost")
        if tohost is None:
            raise SimulationError("the program has no symbol tohost, so its run would never end")
        self._random = random.Random(options.seed)
        self._memory = SimulatedMemory(options.cores, tracked=options.poison)
        ids = options.hartids or tuple(CORES_PER_CLUSTER * options.cluster + i for i in range(options.cores))
        self._harts = tuple(Hart(index, hart, len(table().rows), image.entry) for index, hart in enumerate(ids))
        self.last = self._harts[0]
        self._cluster = Cluster(options.cluster, self._memory, self._harts, self._random)
        self._console = Console()
        devices = Devices(self._cluster.barriers, self._cluster.engines, self._console)
        self._bus = Bus(self._memory, devices, tohost.address & ~7)
        self._code = DecodedCode(self._memory)
        self._plain = csr.plain_mask()
        self._arguments: list[tuple[Any, ...]] = []
        self._executed = 0
        self._tracer: Tracer | None = None
        self._load(image)
        for hart in self._harts:
            csr.reset(hart)
            hart.state[scalar.TRACKED] = options.poison
            hart.state[scalar.TOHOST] = self._bus.tohost
        self._bind()

    def _load(self, image: Elf) -> None:
        self._memory.write(0, _VALID_CORES + 4 * self._options.cluster, b"\xff\0\0\0", "core mask")
        for segment in image.segments:
            what = f"segment at {segment.address:#x}"
            if segment.data:
                self._memory.write(0, segment.address, segment.data, what)
            if segment.memory_bytes > len(segment.data):
                rest = segment.address + len(segment.data)
                self._memory.zero(0, rest, segment.memory_bytes - len(segment.data), what)
        for load in self._options.loads:
            if load.core is not None and not 0 <= load.core < self._options.cores:
                raise SimulationError(f"load at {load.address:#x}: there is no core {load.core}")
            self._memory.write(load.core or 0, load.address, load.data, "load")

    def _bind(self) -> None:
        """The arguments of the compiled loop for each core; they change only when the pool of decoded code grows."""
        memory, code = self._memory, self._code
        self._arguments = [
            (
                memory.words, memory.shadow_words, memory.pages[hart.index], code.pages[hart.index], code.pool,
                hart.x, hart.xs, hart.f, hart.csr, self._plain, hart.counts, hart.state,
                hart.cache,
            )
            for hart in self._harts
        ]  # fmt: skip

    @property
    def harts(self) -> tuple[Hart, ...]:
        return self._harts

    @property
    def memory(self) -> SimulatedMemory:
        return self._memory

    def run(self, drive: Callable[[], int] | None = None) -> SimulationResult:
        """Run to the end, or as `drive` does, by `one` instruction after the other; it returns the exit code."""
        fault = None
        with ExitStack() as stack:
            write = self._open_trace(stack)
            if write is not None:
                self._tracer = tracer(self._options.trace_format, self._code, self._memory, write)
            try:
                code = (drive or self._loop)()
            except Finished as finished:
                code = finished.code
            except Stopped as stop:
                code, fault = stop.fault.exit_code, stop.fault
        if fault is None:
            self._cluster.settle()
        self._console.close()
        return SimulationResult(code, fault, self._counts(), tuple(self._console.lines), self._read)

    def _open_trace(self, stack: ExitStack) -> Callable[[str], None] | None:
        trace = self._options.trace
        if trace is None or callable(trace):
            return trace
        try:
            return partial(print, file=stack.enter_context(trace.open("w")))
        except OSError as error:
            raise SimulationError(f"cannot write the trace {trace}: {error.strerror}") from None

    def turn(self) -> Hart:
        """A core whose turn it is. Raises Stopped where all wait."""
        ready = self._ready()
        turn_ends = self.last not in ready or self._random.randrange(_SLICES[-1]) == 0
        return self._random.choice(ready) if turn_ends else self.last

    def one(self, hart: Hart) -> None:
        """Run one instruction of this core. Raises Finished and Stopped."""
        if hart is not self.last:
            for other in self._harts:
                other.reservation = None
        self.last = hart
        while self._run(hart, 1) == scalar.NEEDS_CODE:
            pass
        self._executed += 1
        self._check_limit()

    def doing(self, hart: Hart) -> str:
        """What a core does, in words."""
        return f"at {self._place(hart.pc)} {self._cluster.reason(hart)}"

    def forget_code(self) -> None:
        """Let code be read again, after somebody has changed memory."""
        self._code.forget()

    def _ready(self) -> list[Hart]:
        """The cores that do not wait. Raises Stopped where all do."""
        ready = [hart for hart in self._harts if hart.waiting is None]
        if not ready:
            raise Stopped(Fault("deadlock", f"no core can go on: {self._everyone()}"))
        return ready

    def _check_limit(self) -> None:
        if self._executed >= self._options.max_instructions:
            raise Stopped(Fault("limit", f"no end after {self._executed} instructions: {self._everyone()}"))

    def _loop(self) -> int:
        while True:
            ready = self._ready()
            alone = len(ready) == 1
            hart = ready[0] if alone else self._random.choice(ready)
            self._slice(hart, _LONG_SLICE if alone else self._random.choice(_SLICES), alone)
            self._check_limit()

    def _slice(self, hart: Hart, length: int, alone: bool) -> None:
        """Let one core run for about `length` instructions, or until it waits."""
        remaining = min(length, self._options.max_instructions - self._executed)
        for other in self._harts:
            if other is not hart:
                other.reservation = None
        while remaining > 0 and hart.waiting is None:
            reason = self._run(hart, remaining)
            executed = int(hart.state[scalar.EXECUTED])
            if reason == scalar.NEEDS_PYTHON:
                executed += 1
                if not alone and not self._random.randrange(4):
                    remaining = executed
            remaining -= executed
            self._executed += executed

    def _run(self, hart: Hart, most: int) -> int:
        """Run at most this many instructions of a core, one where they are traced; why the compiled loop stopped."""
        if self._tracer is None:
            return self._advance(hart, most)
        self._tracer.before(hart)
        try:
            return self._advance(hart, 1)
        finally:
            self._tracer.after(hart)

    def _advance(self, hart: Hart, most: int) -> int:
        hart.state[scalar.BUDGET] = most
        reason = scalar.run(*self._arguments[hart.index])
        hart.retired += int(hart.state[scalar.EXECUTED])
        if self._tracer is not None and reason != scalar.NEEDS_CODE:
            self._tracer.issued()
        if reason == scalar.NEEDS_CODE:
            self._guarded(hart, self._provide_code)
        elif reason == scalar.NEEDS_PYTHON:
            self._guarded(hart, self._one_instruction)
        return int(reason)

    def _guarded(self, hart: Hart, action: Callable[[Hart], None]) -> None:
        """Run `action`; a guest trap enters the handler, a fault gets its place and ends the run."""
        try:
            try:
                action(hart)
            except Trap as trap:
                self._enter_handler(hart, trap)
        except SimulationFault as fault:
            message = f"core {hart.hart_id} at {self._place(hart.pc)}: {self._text(hart)}: {fault.message}"
            raise Stopped(Fault(fault.kind, message)) from None

    def _enter_handler(self, hart: Hart, trap: Trap) -> None:
        handler = int(hart.csr[csr.MTVEC]) & ~1
        if handler == 0 or self._memory.offset(hart.index, handler) < 0:
            why = "no trap handler is installed" if handler == 0 else f"the trap handler {handler:#x} is not in memory"
            value = f", value {trap.value:#x}" if trap.value else ""
            raise SimulationFault("trap", f"trap {trap.cause:#x}{value}, and {why}")
        hart.csr[csr.MEPC], hart.csr[csr.MCAUSE], hart.csr[csr.MTVAL] = hart.pc, trap.cause, trap.value
        status = int(hart.csr[MSTATUS])
        hart.csr[MSTATUS] = status & ~0x88 | (status & 8) << 4
        hart.pc = handler

    def _provide_code(self, hart: Hart) -> None:
        pool = self._code.pool
        self._code.provide(hart)
        if self._code.pool is not pool:
            self._bind()

    def _one_instruction(self, hart: Hart) -> None:
        fetched = self._code.fetch(hart)
        row = fetched.row
        if row is not None and row.family in scalar.OPERATIONS and row.family not in _SCALAR:
            self._code.forget()  # the page was decoded before this instruction was stored
            return
        self._code.check_written(hart, fetched.length)
        if row is None:
            raise Trap(csr.ILLEGAL_INSTRUCTION)
        step = ExecutionStep(hart, self._bus, fetched.word, hart.pc + fetched.length, self._code.forget)
        try:
            if row.engine is Unit.SCALAR:
                _SCALAR[row.family](step)
            else:
                self._cluster.execute(hart, row, fetched.word)
        except Finished:
            self._retire(hart, row, step.following)
            raise
        self._retire(hart, row, step.following)

    @staticmethod
    def _retire(hart: Hart, row: InstructionRow, following: int) -> None:
        hart.pc = following
        hart.retired += 1
        if row.family in UNCOUNTED or row.engine is Unit.MME:
            hart.counter_offset -= 1
        hart.counts[table().number[row.mnemonic]] += 1

    def _everyone(self) -> str:
        """Place and wait of each core, in words."""
        return "; ".join(f"core {hart.hart_id} {self.doing(hart)}" for hart in self._harts)

    def _place(self, pc: int) -> str:
        """pc with the operator or symbol to which it belongs."""
        ranges = self._source_map
        at = bisect_right(ranges, pc, key=lambda entry: entry.start) - 1
        if at >= 0 and ranges[at].start <= pc < ranges[at].end:
            return f"{pc:#x} (operator {ranges[at].name})"
        at = bisect_right(self._symbols, pc, key=lambda entry: entry[0]) - 1
        if at >= 0:
            address, name = self._symbols[at]
            return f"{pc:#x} ({name}+{pc - address:#x})"
        return f"{pc:#x}"

    def _text(self, hart: Hart) -> str:
        try:
            return self._code.fetch(hart).text
        except Trap:
            return "no instruction"

    def _counts(self) -> Counts:
        totals = np.sum([hart.counts for hart in self._harts], axis=0)
        by_mnemonic = {row.mnemonic: int(n) for row, n in zip(table().rows, totals, strict=False) if n}
        by_engine: Counter[str] = Counter({unit.value: 0 for unit in Unit})
        for row, number in zip(table().rows, totals, strict=False):
            by_engine[row.engine.value] += int(number)
        retired = tuple(hart.retired for hart in self._harts)
        return Counts(by_mnemonic, dict(by_engine), retired, dict(self._cluster.moved_bytes))

    def _read(self, address: int, size_bytes: int, core: int | None) -> bytes:
        if core is not None and not 0 <= core < self._options.cores:
            raise SimulationError(f"dump at {address:#x}: there is no core {core}")
        return self._memory.read(core or 0, address, size_bytes)
