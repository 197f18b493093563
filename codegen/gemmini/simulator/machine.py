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

from codegen.gemmini.isa.geometry import BASE, DEFAULT, MAIN_BYTES, ArrayGeometry
from codegen.gemmini.isa.operations import FUNCTIONS, decoded
from codegen.gemmini.isa.table import CODEC, ROWS, format_instruction
from codegen.gemmini.simulator import core
from codegen.gemmini.simulator.status import ENDED, LIMIT, MEANINGS
from codegen.riscv.elf import Elf, read_elf
from codegen.riscv.elf_format import ELF64, Buffer

DEFAULT_MOST = 100_000_000_000
FAULT_EXIT, LIMIT_EXIT = 126, 125
_NUMBER = {row.mnemonic: number for number, row in enumerate(ROWS)}
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
    geometry: ArrayGeometry = DEFAULT,
) -> MachineResult:
    """Run an executable. `trace` gets one line per instruction. Raises ElfError and MachineError."""
    elf = read_elf(executable, ELF64)
    memory, known = np.zeros(MAIN_BYTES, np.uint8), np.zeros(MAIN_BYTES, np.uint8)
    for segment in elf.segments:
        require_memory(segment.address, segment.memory_bytes)  # before so many zeros are made
        _place(memory, known, segment.address, bytes(segment.data) + bytes(segment.memory_bytes - len(segment.data)))
    for address, data in loads.items():
        _place(memory, known, address, data)
    code_base, code = _code(elf)
    host = elf.symbol("tohost")
    x, f = np.zeros(32, np.int64), np.zeros(32, np.float32)
    rows, sums, dim = geometry.local_rows, geometry.accumulator_rows, geometry.dim
    counts, about = np.zeros(core.COUNTS, np.int64), np.zeros(1, np.int64)
    state = (
        x, f, memory, known, poison, BASE, host.address if host else -1,
        np.zeros((rows, dim), np.int8), np.zeros((rows, dim), np.uint8),
        np.zeros((sums, dim), np.int32), np.zeros((sums, dim), np.uint8),
        np.zeros((dim, dim), np.int32), np.zeros(core.CONFIG_WORDS, np.int64), np.zeros(4, np.float32), counts, about,
    )  # fmt: skip
    pc, done = elf.entry, 0
    status = LIMIT
    while status == LIMIT and done < most:
        if trace is not None:
            trace(_line(code, code_base, pc, x, elf))
        status, pc, executed = core.run(code, code_base, pc, *state, 1 if trace is not None else most)
        done += executed
    names = {number: name for name, number in _NUMBER.items() if name in FUNCTIONS}
    counted = {name: int(counts[number]) for number, name in names.items() if counts[number]}
    fault, exit_code = "", int(about[0]) >> 1
    if status != ENDED:
        said = MEANINGS[status].format(about=int(about[0]))
        fault = f"pc {pc:#x}, {_text(code, code_base, pc, x, elf)}: {said}"
        exit_code = LIMIT_EXIT if status == LIMIT else FAULT_EXIT
    return MachineResult(
        exit_code,
        fault,
        counted | {"scalar": int(counts[core.SCALAR])},
        int(counts[core.LOADED_BYTES]),
        int(counts[core.STORED_BYTES]),
        pc,
        memory,
    )


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


def _text(code: npt.NDArray[np.int64], code_base: int, pc: int, x: npt.NDArray[np.int64], elf: Elf) -> str:
    """The instruction at an address, with the fields of its operands where the accelerator does it."""
    index = (pc - code_base) // 4
    if not 0 <= index < len(code) or code[index, 0] < 0:
        return "no instruction"
    row = ROWS[code[index, 0]]
    if row.mnemonic in FUNCTIONS:
        first, second = (int(x[code[index, column]]) & (1 << 64) - 1 for column in (2, 3))
        found = decoded(FUNCTIONS[row.mnemonic], first, second)
        return str(found) if found else row.mnemonic
    data = next(segment.data for segment in elf.segments if segment.executable)
    made = CODEC.decode(int.from_bytes(data[4 * index : 4 * index + 4], "little"))
    return format_instruction(made) if made else row.mnemonic


def _line(code: npt.NDArray[np.int64], code_base: int, pc: int, x: npt.NDArray[np.int64], elf: Elf) -> str:
    return f"{pc:#010x}  {_text(code, code_base, pc, x, elf)}"
