"""The simulator: one cluster executing one program, from ELF bytes to exit code, memory and statistics.

    simulate(elf, SimulationOptions(cores=8, poison=True)) -> SimulationResult

Functional and untimed. Cores take turns in slices whose order and length come from a seed, DMA and icmov data land as
late as the rules of the chip allow, and with `poison` every read of a byte that nothing wrote, or that a transfer in
flight owns, ends the run with a message that names core, pc, instruction and operator.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import numpy as np

from codegen.neuralscale.elf import Elf, read_elf
from codegen.neuralscale.isa import ROWS, decode
from codegen.neuralscale.isa_row import Engine as Unit
from codegen.neuralscale.isa_row import Row
from codegen.neuralscale.simulator import csr, move_engine, scalar
from codegen.neuralscale.simulator.bus import Bus, Finished
from codegen.neuralscale.simulator.compressed import expand
from codegen.neuralscale.simulator.decode import DecodeTable, decode_page, make_table
from codegen.neuralscale.simulator.devices import Console, Devices
from codegen.neuralscale.simulator.dma import ENGINE_BASES, Engine, Line
from codegen.neuralscale.simulator.faults import Fault, SimulationError, SimulationFault, Trap
from codegen.neuralscale.simulator.hart import MSTATUS, Hart, Waiting
from codegen.neuralscale.simulator.matrix_engine import execute_matrix
from codegen.neuralscale.simulator.memory import LLB, SRAM_BASE, Memory
from codegen.neuralscale.simulator.operands import Operands, check_vtype
from codegen.neuralscale.simulator.options import CORES_PER_CLUSTER, Counts, SimulationOptions, SimulationResult
from codegen.neuralscale.simulator.single import SINGLE, Step
from codegen.neuralscale.simulator.sync import Barriers
from codegen.neuralscale.simulator.transfer import Flight, Transfer
from codegen.neuralscale.simulator.vector_engine import Issue, execute_vector
from codegen.neuralscale.simulator.vector_rows import VECTOR_ROWS
from codegen.neuralscale.simulator.vector_unit import VECTOR_UNIT
from codegen.neuralscale.syntax import format_instruction

_FETCH_FAULT: Final = 1
_LONG_SLICE: Final = 1 << 20
_SLICES: Final = (1, 3, 17, 120, 500, 2000)
_SCALAR: Final = SINGLE | VECTOR_UNIT
_VALID_CORES: Final = SRAM_BASE + 0x4400


@cache
def _table() -> DecodeTable:
    return make_table((*ROWS, *VECTOR_ROWS))


@dataclass(frozen=True, slots=True)
class _Word:
    """A fetched instruction: its 32-bit word, its length in bytes, and its row, None when illegal."""

    word: int
    length: int
    row: Row | None


@cache
def _decoded(word: int, length: int) -> _Word:
    instruction = decode(word)
    if instruction is None:
        return _Word(word, length, next((row for row in VECTOR_ROWS if word & row.mask == row.match), None))
    return _Word(word, length, _table().rows[_table().number[instruction.mnemonic]])


def simulate(elf: bytes | memoryview, options: SimulationOptions) -> SimulationResult:
    """Runs a program to its store to `tohost`, or to a fault.

    Raises `ElfError` for a file that is not a program for this chip, `SimulationError` for options that do not fit it.
    """
    return Machine(read_elf(elf), options).run()


class Machine:
    """One run. Use `simulate`."""

    def __init__(self, image: Elf, options: SimulationOptions) -> None:
        self._options = options
        self._symbols = sorted((symbol.address, symbol.name) for symbol in image.symbols)
        tohost = image.symbol("tohost")
        if tohost is None:
            raise SimulationError("the program has no symbol tohost, so its run would never end")
        self._random = random.Random(options.seed)
        self._memory = Memory(options.cores, tracked=options.poison)
        ids = options.hartids or tuple(CORES_PER_CLUSTER * options.cluster + i for i in range(options.cores))
        rows = len(_table().rows)
        self._harts = tuple(Hart(index, hart, rows, image.entry) for index, hart in enumerate(ids))
        self._by_id = {hart.hart_id: hart for hart in self._harts}
        self._barriers = Barriers(ids)
        self._moved: Counter[tuple[str, str]] = Counter()
        self._flight = Flight(self._memory, self._count_transfer)
        self._icmovs: list[Transfer] = []
        line = Line(self._memory, self._random, self._flight.depart, self._flight.land)
        self._engines = tuple(Engine(base, line) for base in ENGINE_BASES[options.cluster])
        self._console = Console()
        devices = Devices(self._barriers, self._engines, self._console)
        self._bus = Bus(self._memory, devices, tohost.address & ~7)
        self._operands = tuple(Operands(self._memory, hart) for hart in self._harts)
        self._plain = csr.plain_mask()
        self._pool = np.zeros(8 * scalar.CODE_PAGE_HALVES, np.int64)
        self._halves = self._memory.bytes.view(np.uint16)
        self._decoded_pages: dict[int, int] = {}
        self._code_pages = [np.zeros(1 << (32 - scalar.CODE_PAGE_BITS), np.int32) for _ in self._harts]
        self._arguments: list[tuple[Any, ...]] = []
        self._executed = 0
        self._trace: Callable[[str], None] | None = None
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
        memory = self._memory
        self._arguments = [
            (
                memory.words, memory.shadow_words, memory.pages[hart.index], self._code_pages[hart.index], self._pool,
                hart.x, hart.xs, hart.f, hart.csr, self._plain, hart.counts, hart.state,
            )
            for hart in self._harts
        ]  # fmt: skip

    # Running

    def run(self) -> SimulationResult:
        """Runs to the end."""
        with ExitStack() as stack:
            trace = self._options.trace
            if trace is not None and not callable(trace):
                try:
                    file = stack.enter_context(trace.open("w"))
                except OSError as error:
                    raise SimulationError(f"cannot write the trace {trace}: {error.strerror}") from None
                trace = partial(print, file=file)
            self._trace = trace
            try:
                code, fault = self._loop(), None
            except Finished as finished:
                code, fault = finished.code, None
            except _Stop as stop:
                code, fault = stop.fault.exit_code, stop.fault
        if fault is None:
            self._settle()
        self._console.close()
        return SimulationResult(code, fault, self._counts(), tuple(self._console.lines), self._read)

    def _loop(self) -> int:
        while True:
            ready = [hart for hart in self._harts if hart.waiting is None]
            if not ready:
                raise _Stop(Fault("deadlock", self._deadlock()))
            alone = len(ready) == 1
            hart = ready[0] if alone else self._random.choice(ready)
            self._slice(hart, _LONG_SLICE if alone else self._random.choice(_SLICES), alone)
            if self._executed >= self._options.max_instructions:
                where = "; ".join(f"core {h.hart_id} at {self._place(h.pc)}" for h in self._harts)
                raise _Stop(Fault("limit", f"no end after {self._executed} instructions: {where}"))

    def _slice(self, hart: Hart, length: int, alone: bool) -> None:
        """Lets one core run for about `length` instructions, or until it waits."""
        remaining = min(length, self._options.max_instructions - self._executed)
        for other in self._harts:
            if other is not hart:
                other.reservation = None
        while remaining > 0 and hart.waiting is None:
            line = self._trace_line(hart) if self._trace is not None else ""
            hart.state[scalar.BUDGET] = remaining if self._trace is None else 1
            reason = scalar.run(*self._arguments[hart.index])
            executed = int(hart.state[scalar.EXECUTED])
            hart.retired += executed
            if self._trace is not None and reason != scalar.NEEDS_CODE and line:
                self._trace(line)
            if reason == scalar.NEEDS_CODE:
                self._guarded(hart, self._provide_code)
            elif reason == scalar.NEEDS_PYTHON:
                self._guarded(hart, self._one_instruction)
                executed += 1
                if not alone and not self._random.randrange(4):
                    remaining = executed
            remaining -= executed
            self._executed += executed

    def _guarded(self, hart: Hart, action: Callable[[Hart], None]) -> None:
        """Runs `action`; a guest trap enters the handler, a fault gets its place and ends the run."""
        try:
            try:
                action(hart)
            except Trap as trap:
                self._enter_handler(hart, trap)
        except SimulationFault as fault:
            text = self._disassembly(hart)
            message = f"core {hart.hart_id} at {self._place(hart.pc)}: {text}: {fault.message}"
            raise _Stop(Fault(fault.kind, message)) from None

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

    # Code

    def _provide_code(self, hart: Hart) -> None:
        """Decodes the page at pc. Raises `Trap` when there is no memory."""
        page = hart.pc >> scalar.CODE_PAGE_BITS
        start = self._memory.offset(hart.index, page << scalar.CODE_PAGE_BITS)
        if start < 0:
            raise Trap(_FETCH_FAULT, hart.pc)
        slot = self._decoded_pages.setdefault(start, len(self._decoded_pages))
        halves = scalar.CODE_PAGE_HALVES
        if (slot + 1) * halves > len(self._pool):
            self._pool = np.concatenate([self._pool, np.zeros_like(self._pool)])
            self._bind()
        source = self._halves[start >> 1 : (start >> 1) + halves + 1]
        decode_page(_table(), source, self._pool[slot * halves : (slot + 1) * halves])
        self._code_pages[hart.index][page] = slot + 1

    def _forget_code(self) -> None:
        """Everything is decoded again: fence.i, or code that changed under the decoder."""
        self._decoded_pages.clear()
        for pages in self._code_pages:
            pages.fill(0)

    def _fetch(self, hart: Hart) -> _Word:
        start = self._memory.offset(hart.index, hart.pc)
        if start < 0:
            raise Trap(_FETCH_FAULT, hart.pc)
        half = int(self._halves[start >> 1])
        if half & 3 != 3:
            return _decoded(expand(half) or 0, 2)
        return _decoded(int(self._halves[(start >> 1) + 1]) << 16 | half, 4)

    def _one_instruction(self, hart: Hart) -> None:
        fetched = self._fetch(hart)
        row = fetched.row
        if row is not None and row.family in scalar.OPERATIONS and row.family not in _SCALAR:
            self._forget_code()  # the page was decoded before this instruction was stored
            return
        if self._options.poison:
            self._check_fetch(hart, fetched.length)
        if row is None:
            raise Trap(csr.ILLEGAL_INSTRUCTION)
        step = Step(hart, self._bus, fetched.word, hart.pc + fetched.length, self._forget_code)
        try:
            if row.engine is Unit.SCALAR:
                _SCALAR[row.family](step)
            else:
                self._npu(hart, row, fetched.word)
        except Finished:
            self._retire(hart, row, step.following)
            raise
        self._retire(hart, row, step.following)

    def _retire(self, hart: Hart, row: Row, following: int) -> None:
        hart.pc = following
        hart.retired += 1
        hart.counts[_table().number[row.mnemonic]] += 1

    def _check_fetch(self, hart: Hart, length: int) -> None:
        start = self._memory.offset(hart.index, hart.pc)
        marks = self._memory.shadow
        if not all(int(marks[at]) & 1 for at in (start, start + length - 1)):
            raise SimulationFault("poison", "executes bytes that nothing has written")

    def _npu(self, hart: Hart, row: Row, word: int) -> None:
        operands = self._operands[hart.index]
        rd, rs1, rs2 = word >> 7 & 31, word >> 15 & 31, word >> 20 & 31
        if row.engine in (Unit.VME, Unit.MME):
            issue = Issue(hart, operands, rd, rs1, rs2, word >> 14 & 1, word >> 25 & 1)
            (execute_vector if row.engine is Unit.VME else execute_matrix)(row.family, issue)
            return
        target, source, length = (int(hart.x[number]) for number in (rd, rs1, rs2))
        match row.family:
            case "sync":
                check_vtype(hart)
                self._sync(hart)
            case "icmov":
                transfer = move_engine.icmov(self._memory, hart, self._by_id, target, source, length)
                self._flight.depart(transfer)
                self._icmovs.append(transfer)
            case "pld":
                shape = move_engine.shape_of(hart)
                move_engine.check_pld(target, source, shape)
                check_vtype(hart)
                self._pld(hart, target, source)
            case "mov.l1.llb":
                shape = move_engine.shape_of(hart)
                move_engine.check_mov_l1_llb(target, source, shape)
                check_vtype(hart)
                move_engine.gather(operands, target, source, shape)
                self._moved["LLB", "L1"] += shape.l1_bytes
            case "mov.llb.l1":
                shape = move_engine.shape_of(hart)
                move_engine.check_mov_llb_l1(target, source, shape)
                check_vtype(hart)
                move_engine.scatter(operands, target, source, shape)
                self._moved["L1", "LLB"] += shape.l1_bytes
            case _:
                raise SimulationFault("unsupported", "not modelled")

    # Cores together

    def _sync(self, hart: Hart) -> None:
        hart.waiting = Waiting.SYNC
        released = self._barriers.enter_sync(hart.hart_id)
        for other in self._harts:
            if released >> other.hart_id & 1 and other.waiting is Waiting.SYNC:
                other.waiting = None
        for transfer in [t for t in self._icmovs if released >> t.hart & 1]:
            self._icmovs.remove(transfer)
            self._flight.land(transfer)

    def _pld(self, hart: Hart, target: int, source: int) -> None:
        hart.waiting, hart.pending = Waiting.PLD, (target, source)
        released = self._barriers.enter_pld(hart.hart_id, int(hart.csr[csr.MTE_COREMAP]))
        for other in self._harts:
            if not released >> other.hart_id & 1 or other.pending is None:
                continue
            (target, source), other.pending, other.waiting = other.pending, None, None
            if int(other.csr[csr.MTE_COREMAP]) >> other.hart_id & 1:
                shape = move_engine.shape_of(other)
                move_engine.gather(self._operands[other.index], target, source, shape)
                self._moved[LLB.name, "L1"] += shape.l1_bytes

    def _settle(self) -> None:
        """The run has ended: what is in flight lands, so that dumps show it."""
        for engine in self._engines:
            engine.finish()
        for transfer in self._icmovs:
            self._flight.land(transfer)
        self._icmovs.clear()

    def _count_transfer(self, transfer: Transfer) -> None:
        for piece in transfer.pieces:
            names = []
            for bank, start in ((piece.source, piece.source_start), (piece.destination, piece.destination_start)):
                names.append(self._memory.describe(start)[0] if bank.data is self._memory.bytes else "DDR")
            self._moved[names[0], names[1]] += piece.size_bytes

    # Reports

    def _deadlock(self) -> str:
        lines = []
        for hart in self._harts:
            assert hart.waiting is not None
            line = f"core {hart.hart_id} at {self._place(hart.pc)} waits in {hart.waiting.value}"
            if hart.waiting is Waiting.SYNC:
                line += f" ({'; '.join(self._barriers.missing(hart.hart_id))})"
            elif hart.waiting is Waiting.PLD:
                line += f" for the cores of map {int(hart.csr[csr.MTE_COREMAP]):#x}"
            lines.append(line)
        return "no core can go on: " + "; ".join(lines)

    def _place(self, pc: int) -> str:
        """pc with the operator or symbol that it belongs to."""
        ranges = self._options.source_map
        at = bisect_right(ranges, pc, key=lambda entry: entry.start) - 1
        if at >= 0 and ranges[at].start <= pc < ranges[at].end:
            return f"{pc:#x} (operator {ranges[at].name})"
        at = bisect_right(self._symbols, pc, key=lambda entry: entry[0]) - 1
        if at >= 0:
            address, name = self._symbols[at]
            return f"{pc:#x} ({name}+{pc - address:#x})"
        return f"{pc:#x}"

    def _disassembly(self, hart: Hart) -> str:
        try:
            word = self._fetch(hart).word
        except Trap:
            return "no instruction"
        instruction = decode(word)
        return f"word {word:#010x}" if instruction is None else format_instruction(instruction)

    def _trace_line(self, hart: Hart) -> str:
        """Core, pc, word and text of the next instruction; empty where there is none."""
        try:
            fetched = self._fetch(hart)
        except Trap:
            return ""
        width = 2 * fetched.length
        text = self._disassembly(hart)
        return f"core {hart.hart_id} {hart.pc:#010x} {fetched.word & (1 << 4 * width) - 1:#0{width + 2}x} {text}"

    def _counts(self) -> Counts:
        totals = np.sum([hart.counts for hart in self._harts], axis=0)
        rows = _table().rows
        by_mnemonic = {row.mnemonic: int(n) for row, n in zip(rows, totals, strict=False) if n}
        by_engine: Counter[str] = Counter()
        for row, number in zip(rows, totals, strict=False):
            by_engine[row.engine.value] += int(number)
        retired = tuple(hart.retired for hart in self._harts)
        return Counts(by_mnemonic, dict(by_engine), retired, dict(self._moved))

    def _read(self, address: int, size_bytes: int, core: int | None) -> bytes:
        if core is not None and not 0 <= core < self._options.cores:
            raise SimulationError(f"dump at {address:#x}: there is no core {core}")
        return self._memory.read(core or 0, address, size_bytes)


class _Stop(Exception):
    """Ends the run with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault
