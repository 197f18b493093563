"""Traces of a run: a line per instruction, as text before it runs, or as a log of what it wrote after it has run.

before(hart) --the core runs one instruction--> issued() or not, retired(hart)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from codegen.neuralscale.isa.csr import csr_by_number
from codegen.neuralscale.isa.row import Engine as Unit
from codegen.neuralscale.isa.row import InstructionRow
from codegen.neuralscale.isa.table import decode
from codegen.neuralscale.simulator.core import csr
from codegen.neuralscale.simulator.core.code import DecodedCode, Fetched
from codegen.neuralscale.simulator.core.hart import MASK, Hart
from codegen.neuralscale.simulator.memory.faults import SimulationError, Trap
from codegen.neuralscale.simulator.memory.memory import SimulatedMemory
from codegen.neuralscale.simulator.options import TraceFormat
from codegen.riscv.commit_log import Fetch, Touched, commit_line, csr_name, touched

XLEN = 32
NOTHING = Touched()


class Tracer(Protocol):
    """Gets to know each instruction of a run; cores take turns, so it is always the last one that was announced."""

    def before(self, hart: Hart) -> None:
        """The core is about to run the instruction at its pc."""

    def issued(self) -> None:
        """The instruction was fetched, and begins to run."""

    def after(self, hart: Hart) -> None:
        """The instruction has run, or trapped, or ends the run."""


class TextTracer:
    """Core, pc, word and text of each instruction that begins."""

    def __init__(self, code: DecodedCode, write: Callable[[str], None]) -> None:
        self._code, self._write, self._line = code, write, ""

    def before(self, hart: Hart) -> None:
        self._line = self._code.trace_line(hart)

    def issued(self) -> None:
        if self._line:
            self._write(self._line)

    def after(self, hart: Hart) -> None:
        """All was said before."""


class CommitTracer:
    """The registers, CSRs and bytes of memory that each instruction of the scalar core has written; instructions that
    trap are not in the log."""

    def __init__(self, code: DecodedCode, memory: SimulatedMemory, write: Callable[[str], None]) -> None:
        self._code, self._memory, self._write = code, memory, write
        self._pending: tuple[Fetch, Touched, Hart] | None = None
        self._retired = 0
        self._csrs = b""

    def before(self, hart: Hart) -> None:
        try:
            fetched = self._code.fetch(hart)
            half = self._code.word(hart, fetched.length)
        except Trap:
            self._pending = None
            return
        fetch = Fetch(hart.hart_id, hart.pc, half, fetched.length, XLEN, XLEN)
        self._pending = fetch, _touched(fetched, hart), hart
        self._retired, self._csrs = hart.retired, hart.csr.tobytes()

    def issued(self) -> None:
        """What it writes is known afterwards."""

    def after(self, hart: Hart) -> None:
        if self._pending is None or self._pending[2] is not hart or hart.retired == self._retired:
            return
        fetch, found, _ = self._pending
        self._pending = None
        registers: list[tuple[str, int, int]] = []
        if found.register is not None:
            kind, number = found.register
            value = int(hart.x[number]) if kind == "x" else int(hart.f[number]) & MASK
            registers.append((f"{kind}{number}", value, XLEN))
        registers += [(_csr_text(number), csr.read(hart, number), XLEN) for number in self._written(hart, found)]
        self._write(commit_line(fetch, found, registers, lambda address, size: self._read(hart, address, size)))

    def _written(self, hart: Hart, found: Touched) -> list[int]:
        """Numbers of the CSRs that changed, and of the one that the instruction names."""
        changed = {found.csr} if found.csr is not None else set[int]()
        if hart.csr.tobytes() != self._csrs:
            words = memoryview(self._csrs).cast("I")
            changed |= {number for number, value in enumerate(hart.csr.tolist()) if value != words[number]}
        return sorted(changed)

    def _read(self, hart: Hart, address: int, size_bytes: int) -> int:
        """Bytes of memory as a number; 0 for registers of devices, which may not be read twice."""
        try:
            return int.from_bytes(self._memory.read(hart.index, address, size_bytes), "little")
        except SimulationError:
            return 0


def _touched(fetched: Fetched, hart: Hart) -> Touched:
    """Of instructions of the engines, whose registers are all read, and of the vector unit nothing is told."""
    made = decode(fetched.word)
    if made is None or not isinstance(fetched.row, InstructionRow) or fetched.row.engine is not Unit.SCALAR:
        return NOTHING
    return touched(fetched.row, made, hart.x.tolist(), hart.f.tolist(), XLEN)


def _csr_text(number: int) -> str:
    known = csr_by_number(number)
    return csr_name(number, known.name if known is not None else "")


def tracer(kind: TraceFormat, code: DecodedCode, memory: SimulatedMemory, write: Callable[[str], None]) -> Tracer:
    """The tracer of a format."""
    return CommitTracer(code, memory, write) if kind == "commit" else TextTracer(code, write)
