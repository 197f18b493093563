"""A machine: a RISC-V core with its accelerator, which runs an executable to its end.

    program.elf, bytes in memory --simulate--> exit code or fault, memory afterwards, counts

The main memory begins at `BASE`. With poison, a read of bytes, rows or sums that nothing wrote is a fault, as are reads
and writes outside of all memories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from codegen.gemmini.isa.geometry import BASE, MAIN_BYTES, named_geometry
from codegen.gemmini.isa.operations import FUNCTIONS, decoded
from codegen.gemmini.isa.table import CODEC, ROWS, format_instruction
from codegen.gemmini.simulator import core
from codegen.gemmini.simulator.loops import LoopUnroller
from codegen.gemmini.simulator.status import ENDED, LIMIT, MEANINGS, RUNNING, UNROLL
from codegen.riscv.commit_log import Fetch, Touched, commit_line, csr_name, touched
from codegen.riscv.elf import Elf, read_elf
from codegen.riscv.elf_format import ELF64, Buffer

DEFAULT_MOST = 100_000_000_000
"""Largest number of instructions of a run."""

FAULT_EXIT, LIMIT_EXIT = 126, 125
_NUMBER = {row.mnemonic: number for number, row in enumerate(ROWS)}
XLEN = 64
_BOX = 0xFFFFFFFF << 32
"""Upper half of a floating-point register of 64 bits that holds a float32."""

_CSR_NAMES = {core.MSTATUS: "mstatus", core.MTVEC: "mtvec", core.FCSR: "fcsr"}
_COLUMNS = {"rd": 1, "rs1": 2, "rs2": 3, "imm": 4, "shamt": 4, "target": 4, "csr": 4, "rm": 5}


class MachineError(ValueError):
    """A request that no run can answer: bytes outside of memory."""


def require_memory(address: int, size_bytes: int) -> None:
    """Check that bytes lie in the main memory. Raises MachineError."""
    if not BASE <= address <= BASE + MAIN_BYTES - size_bytes:
        raise MachineError(f"{size_bytes} bytes at {address:#x} are not memory")


@dataclass(frozen=True, slots=True)
class MachineResult:
    """End of a run. `fault` is empty where the program ended by itself with `exit_code`."""

    exit_code: int
    fault: str
    counts: Mapping[str, int]
    """Executed instructions: by function of the accelerator, and `scalar`."""

    loaded_bytes: int
    stored_bytes: int
    pc: int
    """Address of the last instruction."""

    memory: npt.NDArray[np.uint8] = field(repr=False)

    def read(self, address: int, size_bytes: int) -> bytes:
        """Memory after the run. Raises MachineError."""
        require_memory(address, size_bytes)
        return self.memory[address - BASE : address - BASE + size_bytes].tobytes()


def simulate(
    executable: Buffer,
    loads: Mapping[int, bytes],
    poison: bool = True,
    most: int = DEFAULT_MOST,
    trace: Callable[[str], None] | None = None,
    commits: bool = False,
) -> MachineResult:
    """Run an executable, at most `most` instructions, with `loads` in memory, by address. `trace` gets one line per
    instruction: its text, or, with `commits`, what it has written. Raises ElfError and MachineError."""
    machine = GemminiMachine(executable, loads, poison)
    pc, done = machine.elf.entry, 0
    status = LIMIT
    while status == LIMIT and done < most:
        if trace is not None and not commits:
            trace(machine.line(pc))
        begun = machine.begun(pc) if trace is not None and commits else None
        status, pc, executed = machine.run(pc, 1 if trace is not None else most)
        if trace is not None and begun is not None and (executed or status == ENDED):
            trace(machine.committed(*begun))
        done += executed
    return machine.result(status, pc)


@dataclass(frozen=True, slots=True)
class Noting:
    """Room for notes of what the accelerator is asked to do, in place of doing it, for `codegen.gemmini.timing.trace`.

    `notes` has one note per row, in the columns of `codegen.gemmini.simulator.core`; `state` counts notes and holds
    what the core did since the last one. `widths` are the array's width, the bytes of a beat and the longest request;
    `extra` are cycles of each row of the instruction table beyond one tick."""

    notes: npt.NDArray[np.int64]
    state: npt.NDArray[np.int64]
    widths: tuple[int, int, int]
    extra: npt.NDArray[np.int64]


NO_NOTES = Noting(
    np.zeros((0, core.NOTE_WORDS), np.int64),
    np.zeros(core.NOTING_WORDS, np.int64),
    (1, 1, 1),
    np.zeros(0, np.int64),
)


class GemminiMachine:
    """A core, its accelerator of the geometry that the executable names, and the main memory with the executable.
    Raises ElfError and MachineError."""

    def __init__(
        self,
        executable: Buffer,
        loads: Mapping[int, bytes],
        poison: bool = True,
    ) -> None:
        elf = self.elf = read_elf(executable, ELF64)
        try:
            geometry = named_geometry(symbol.name for symbol in elf.symbols)
        except ValueError as error:
            raise MachineError(str(error)) from error
        memory, known = np.zeros(MAIN_BYTES, np.uint8), np.zeros(MAIN_BYTES, np.uint8)
        for segment in elf.segments:
            require_memory(segment.address, segment.memory_bytes)  # before so many zeros are made
            data = bytes(segment.data) + bytes(segment.memory_bytes - len(segment.data))
            _place(memory, known, segment.address, data)
        for address, data in loads.items():
            _place(memory, known, address, data)
        self.code_base, self._code = _code(elf)
        host = elf.symbol("tohost")
        rows, sums, dim = geometry.local_rows, geometry.accumulator_rows, geometry.dim
        self._x, self._f, self._memory = np.zeros(32, np.int64), np.zeros(32, np.float32), memory
        self._config, self._scales = np.zeros(core.CONFIG_WORDS, np.int64), np.zeros(core.EX_SCALE + 1, np.float32)
        self._counts, self._about = np.zeros(core.COUNTS, np.int64), np.zeros(1, np.int64)
        self._loops, self._poison = LoopUnroller(geometry), poison
        local = (
            np.zeros((rows, dim), np.int8), np.zeros((rows, dim), np.uint8),
            np.zeros((sums, dim), np.int32), np.zeros((sums, dim), np.uint8),
            np.zeros((dim, dim), np.int32), self._config, self._scales, self._counts, self._about,
        )  # fmt: skip
        self._accelerator = (memory, known, poison, BASE, *local)
        self._state = (self._x, self._f, memory, known, poison, BASE, host.address if host else -1, *local)

    def run(self, pc: int, most: int, noting: Noting = NO_NOTES) -> tuple[int, int, int]:
        """Run at most this many instructions from `pc` on: the status at the end, the pc, and how many ran."""
        arrays = noting.notes, noting.state, noting.widths, noting.extra
        done, status = 0, UNROLL
        while status == UNROLL:
            status, pc, executed = map(
                int, core.run(self._code, self.code_base, pc, *self._state, most - done, *arrays)
            )
            done += executed
            if status == UNROLL and (refused := self._unroll(pc, noting)) != RUNNING:
                return refused, pc, done
            if status == UNROLL:
                pc, done = pc + 4, done + 1
        return status, pc, done

    def _unroll(self, pc: int, noting: Noting) -> int:
        """Do, or note, what the loop at an address asks for. The status after that."""
        number = int(self._code[(pc - self.code_base) // 4, 0])
        parts = self._loops.parts(number, self._config, float(self._scales[core.OUT_SCALE]), self._poison)
        if isinstance(parts, int):
            return parts
        if not len(noting.notes):
            return int(core.carry_out(np.concatenate([*parts.values()]), *self._accelerator))
        begun = noting.state[core.NOTED]
        for part, instructions in parts.items():
            if len(instructions):
                core.note_part(core.LOOP_KEYS[part], bool(noting.state[core.NOTED] > begun), instructions, pc,
                               self._config, self._scales, noting.notes, noting.state, noting.widths)  # fmt: skip
        return RUNNING

    def line(self, pc: int) -> str:
        """The instruction at an address, with the address."""
        return f"{pc:#010x}  {self._text(pc)}"

    def begun(self, pc: int) -> tuple[Fetch, Touched] | None:
        """The instruction at an address and what it is about to read and write; None where there is none."""
        index = (pc - self.code_base) // 4
        if not 0 <= index < len(self._code) or self._code[index, 0] < 0:
            return None
        row = ROWS[self._code[index, 0]]
        fetch = Fetch(0, pc, self._word(index), 4, XLEN, XLEN)
        made = CODEC.decode(fetch.word)
        x, f = self._x.tolist(), self._f.view(np.uint32).tolist()
        return fetch, touched(row, made, x, f, XLEN) if made is not None else Touched()

    def committed(self, fetch: Fetch, found: Touched) -> str:
        """The line of an instruction that has run, in a log of what was written."""
        registers = []
        if found.register is not None:
            kind, number = found.register
            value = int(self._x[number]) if kind == "x" else _BOX | int(self._f.view(np.uint32)[number])
            registers.append((f"{kind}{number}", value, XLEN))
        if found.csr is not None:
            value = int(self._config[core.STATUS]) if found.csr == core.MSTATUS else self._operand(fetch.word)
            registers.append((csr_name(found.csr, _CSR_NAMES.get(found.csr, "")), value, XLEN))
        return commit_line(fetch, found, registers, self._stored)

    def _operand(self, word: int) -> int:
        return int(self._x[word >> 15 & 31])

    def _stored(self, address: int, size_bytes: int) -> int:
        start = address - BASE
        return int.from_bytes(self._memory[start : start + size_bytes].tobytes(), "little")

    def _word(self, index: int) -> int:
        """The instruction with that number in the code."""
        data = next(segment.data for segment in self.elf.segments if segment.executable)
        return int.from_bytes(data[4 * index : 4 * index + 4], "little")

    def fault(self, status: int, pc: int) -> str:
        """What went wrong at an address, in words."""
        return f"pc {pc:#x}, {self._text(pc)}: {MEANINGS[status].format(about=int(self._about[0]))}"

    def result(self, status: int, pc: int) -> MachineResult:
        """The end of a run."""
        names = {number: name for name, number in _NUMBER.items() if name in FUNCTIONS}
        counted = {name: int(self._counts[number]) for number, name in names.items() if self._counts[number]}
        fault, exit_code = "", int(self._about[0]) >> 1
        if status != ENDED:
            fault = self.fault(status, pc)
            exit_code = LIMIT_EXIT if status == LIMIT else FAULT_EXIT
        return MachineResult(
            exit_code,
            fault,
            counted | {"scalar": int(self._counts[core.SCALAR])},
            int(self._counts[core.LOADED_BYTES]),
            int(self._counts[core.STORED_BYTES]),
            pc,
            self._memory,
        )

    def _text(self, pc: int) -> str:
        """The instruction at an address, with the fields of its operands where the accelerator does it."""
        index = (pc - self.code_base) // 4
        if not 0 <= index < len(self._code) or self._code[index, 0] < 0:
            return "no instruction"
        row = ROWS[self._code[index, 0]]
        if row.mnemonic in FUNCTIONS:
            first, second = (int(self._x[self._code[index, column]]) & (1 << 64) - 1 for column in (2, 3))
            found = decoded(FUNCTIONS[row.mnemonic], first, second)
            return str(found) if found else row.mnemonic
        made = CODEC.decode(self._word(index))
        return format_instruction(made) if made else row.mnemonic


def _place(memory: npt.NDArray[np.uint8], known: npt.NDArray[np.uint8], address: int, data: bytes) -> None:
    require_memory(address, len(data))
    start = address - BASE
    memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
    known[start : start + len(data)] = 1


def _code(elf: Elf) -> tuple[int, npt.NDArray[np.int64]]:
    """Address and decoded words [N, 6] of the executable segment."""
    segments = [segment for segment in elf.segments if segment.executable]
    if len(segments) != 1:
        raise MachineError(f"the program has {len(segments)} segments of code, one is simulated")
    words = np.frombuffer(segments[0].data[: len(segments[0].data) // 4 * 4], "<u4")
    distinct, places = np.unique(words, return_inverse=True)
    return segments[0].address, np.array([_decoded(int(word)) for word in distinct], np.int64).reshape(-1, 6)[places]


def _decoded(word: int) -> list[int]:
    found = CODEC.decode(word)
    if found is None:
        return [-1, 0, 0, 0, 0, 0]
    values = [_NUMBER[found.mnemonic], 0, 0, 0, 0, 0]
    for name, value in found.operands:
        if name in _COLUMNS:
            values[_COLUMNS[name]] = value
    return values
