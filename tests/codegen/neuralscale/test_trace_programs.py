"""Traces of programs that this compiler did not make: what instructions touch, and loops that wait for the DMA."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from benchmarks.lab.readers.assembly import parse_instruction
from codegen.neuralscale.emit.memory_map import address_of
from codegen.neuralscale.isa.row import Engine, InstructionRow
from codegen.neuralscale.isa.table import encode
from codegen.neuralscale.simulator.cluster import Cluster
from codegen.neuralscale.simulator.core.hart import Hart
from codegen.neuralscale.simulator.core.operands import MatrixOperand, Operands
from codegen.neuralscale.simulator.machine import NpuMachine
from codegen.neuralscale.simulator.memory.faults import Trap
from codegen.neuralscale.simulator.options import SimulationOptions
from codegen.neuralscale.trace.decode import Issued, traced_instr
from codegen.neuralscale.trace.trace import trace_elf
from codegen.riscv.elf import read_elf
from codegen.riscv.elf_format import ElfSymbol
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes
from hw_models.errors import TargetError, UserError
from isched.program.program import Instr, Region
from isched.program.timed_ops import TimedOp
from isched.timing.cycle_model import time_streams
from tests.chip_runs import stcp920
from tests.codegen.neuralscale.test_corpus import CASES, Case

CHIP = stcp920()
ON_ENGINES = (Engine.VME, Engine.MME, Engine.MTE)


# What an instruction touches


def _bytes_of(regions: tuple[Region, ...]) -> set[int]:
    return {
        address_of(region.memory, region.offset_bytes) + row * region.stride_bytes + byte
        for region in regions
        for row in range(region.rows)
        for byte in range(region.row_bytes)
    }


def _bytes_at(matrix: MatrixOperand) -> set[int]:
    return {
        matrix.address + row * matrix.pitch + byte for row in range(matrix.rows) for byte in range(matrix.row_bytes)
    }


class Watched:
    """What the simulator really read and wrote for the instruction at work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.differing: list[str] = []
        self.compared = 0
        check, write, execute, lookup = Operands.check, Operands.write, Cluster.execute, Operands.lookup

        def watched_check(operands: Operands, matrix: MatrixOperand) -> None:
            self.reads |= _bytes_at(matrix)
            check(operands, matrix)

        def watched_write(operands: Operands, matrix: MatrixOperand, *rest: object) -> None:
            self.writes |= _bytes_at(matrix)
            write(operands, matrix, *rest)  # type: ignore[arg-type]

        def watched_lookup(operands: Operands, address: int, indices: object) -> object:
            self.reads |= {address}
            return lookup(operands, address, indices)  # type: ignore[arg-type]

        def watched_execute(cluster: Cluster, hart: Hart, row: InstructionRow, word: int) -> None:
            watch = row.engine in ON_ENGINES and row.family not in ("icmov", "pld")
            self.reads, self.writes = set(), set()
            instr = traced_instr(Issued(hart, row, word, 0), CHIP) if watch else None
            execute(cluster, hart, row, word)
            if instr is not None:
                self.compare(instr, row)

        monkeypatch.setattr(Operands, "check", watched_check)
        monkeypatch.setattr(Operands, "write", watched_write)
        monkeypatch.setattr(Operands, "lookup", watched_lookup)
        monkeypatch.setattr(Cluster, "execute", watched_execute)

    def compare(self, instr: Instr, row: InstructionRow) -> None:
        self.compared += 1
        reads, writes = _bytes_of(instr.reads), _bytes_of(instr.writes)
        if row.family.startswith("memul") and not self.writes:
            return  # shapes that do not fit: the chip does nothing
        # A convolution may leave out pixels that no tap falls on, a look-up entries that nothing names.
        some = row.family.startswith("meconv") or row.family == "velut.m"
        if writes != self.writes or (not self.reads <= reads if some else reads != self.reads):
            self.differing.append(f"{row.mnemonic} {instr}")


def _chosen() -> Iterator[Case]:
    """Programs of one core that end well; those with millions of bytes take too long for sets."""
    for case in CASES:
        if case.cores == 1 and case.exit_code == 0 and not case.name.startswith(("attention", "int8_net", "dw_pw")):
            yield case


@pytest.mark.commit
def test_what_the_trace_says_is_touched_is_what_the_simulator_touches(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    for case in _chosen():
        try:
            NpuMachine(read_elf(case.elf), SimulationOptions(max_instructions=2_000_000)).run()
        except Trap:
            continue
    assert watched.compared > 200
    assert not watched.differing, watched.differing[:5]


# Loops that wait for the DMA

CODE, TOHOST, DDR = 0x10_0000, 0x30_0000, 0x40_0000
SET_UP = """
lui s10, 0xc9f00
lui s11, 0xc9f01
addi t1, zero, 1
lui t2, 0x80000
"""
END = """
lui t2, 0x300
addi t3, zero, 1
sw t3, 0(t2)
"""


def started(channel: int, size_bytes: int) -> str:
    """DDR to LLB by a channel of engine 0; the descriptor is in slot `channel`."""
    slot = 32 * channel
    low = (size_bytes & 0xFFF ^ 0x800) - 0x800
    return f"""
lui t3, {0x80000 + (size_bytes - low >> 12)}
addi t3, t3, {low}
sw t3, {slot}(s11)
lui t3, 0x400
sw t3, {slot + 4}(s11)
lui t3, {0xF8000 + 16 * channel}
sw t3, {slot + 8}(s11)
sw zero, {slot + 12}(s11)
sw zero, {slot + 16}(s11)
sw zero, {slot + 20}(s11)
sw t2, {0x100 * (channel + 1)}(s10)
addi t4, s11, {slot}
sw t4, {0x114 + 0x100 * channel}(s10)
addi t3, zero, {1 << channel}
sw t3, 4(s10)
"""


def assembled(*parts: str) -> bytes:
    lines = [line for part in parts for line in part.strip().splitlines() if line]
    code = b"".join(encode(parse_instruction(line)).to_bytes(4, "little") for line in lines)
    segments = (
        ElfSegment(".text", CODE, (code,), SegmentFlags.READ_EXECUTE),
        ElfSegment(".tohost", TOHOST, (), SegmentFlags.READ_WRITE, 16),
    )
    return elf_bytes(CODE, segments, (ElfSymbol("tohost", TOHOST, 8), ElfSymbol("fromhost", TOHOST + 8, 8)))


def traced(*parts: str) -> tuple[TimedOp, ...]:
    (stream,) = trace_elf(assembled(SET_UP, *parts, END), 1, CHIP)
    return stream.ops


BUSY_BIT = """
lw t0, 16(s10)
andi t0, t0, 1
bne t0, zero, .-8
"""
SECOND_BIT = """
lw t0, 16(s10)
andi t0, t0, 2
bne t0, zero, .-8
"""
ANY_BUSY = """
lw t0, 16(s10)
bne t0, zero, .-4
"""
FORWARD = """
lw t0, 16(s10)
andi t0, t0, 1
beq t0, zero, .+12
addi a5, a5, 1
jal zero, .-16
"""
DONE_FLAG = """
addi a4, a4, 1
lw t0, 20(s10)
andi t0, t0, 4
beq t0, zero, .-12
"""
ONE_LOOK = """
lw t0, 16(s10)
addi t0, t0, 1
"""


@pytest.mark.parametrize(
    ("loop", "awaited", "period"),
    [
        (BUSY_BIT, (0,), 3),
        (SECOND_BIT, (1,), 3),
        (ANY_BUSY, (0, 1), 2),
        (FORWARD, (0,), 5),
        (DONE_FLAG, (1,), 4),
        (ONE_LOOK, (0, 1), 0),
    ],
    ids=["busy bit", "second busy bit", "any busy", "forward branch", "done flag", "one look"],
)
def test_loops_are_known_by_what_lets_them_end(loop: str, awaited: tuple[int, ...], period: int) -> None:
    first, second, wait = traced(started(0, 2700), started(1, 27000), loop)
    tokens = (first.starts, second.starts)
    assert (first.unit, second.unit) == ("dma0.0", "dma0.1")
    assert wait.awaits == tuple(tokens[channel] for channel in awaited)
    assert wait.issue.period == period


def test_scalar_instructions_are_counted_up_to_each_op() -> None:
    first, wait = traced(started(0, 2700), BUSY_BIT)
    assert first.issue.before == 4 + 15
    assert wait.issue.before == 1
    (stream,) = trace_elf(assembled(SET_UP, started(0, 2700), BUSY_BIT, END), 1, CHIP)
    assert stream.end == 2 + 3
    # The transfer is over at 19 + 66 + 100 = 185; asked at 20, 23, ..., 185; five instructions follow.
    assert time_streams((stream,), CHIP).cycles == 20_000 + 185 + 5


def test_a_transfer_is_read_from_its_descriptors() -> None:
    (first, _) = traced(started(0, 0x1234), BUSY_BIT)
    assert first.reads == (Region("DDR", DDR, 0x1234),)
    assert first.writes == (Region("LLB", 0, 0x1234),)
    assert first.moved_bytes == 0x1234


def test_a_loop_that_no_transfer_ends_is_an_error() -> None:
    with pytest.raises(TargetError, match="deadlock: core 0 polls for the end of a transfer"):
        traced(started(0, 2700), SECOND_BIT.replace("bne", "beq"))


def damaged(case: Case, seed: int) -> bytes:
    """A program with some bits of its code changed, words replaced, or words copied over others."""
    rng, elf = random.Random(seed), bytearray(case.elf)
    text = next(segment.data for segment in read_elf(case.elf).segments if segment.executable)
    start, words = case.elf.find(bytes(text)), len(text) // 4
    for _ in range(rng.choice([1, 1, 2, 5])):
        at, other = (start + 4 * rng.randrange(words) for _ in range(2))
        match rng.randrange(3):
            case 0:
                elf[at + rng.randrange(4)] ^= 1 << rng.randrange(8)
            case 1:
                elf[at : at + 4] = rng.randbytes(4)
            case _:
                elf[at : at + 4] = elf[other : other + 4]
    return bytes(elf)


def test_damaged_programs_are_timed_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegen.neuralscale.trace.trace.MOST_INSTRUCTIONS", 100_000)
    refused = 0
    for seed in range(150):
        case = CASES[seed * 7 % len(CASES)]
        try:
            time_streams(trace_elf(damaged(case, seed), case.cores, CHIP), CHIP)
        except UserError:
            refused += 1
    assert 10 < refused < 140


def test_too_many_instructions_for_engines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegen.neuralscale.trace.recorder.MOST_OPS", 2)
    with pytest.raises(TargetError, match="at most 2 instructions for engines"):
        traced(started(0, 64), BUSY_BIT, started(0, 64), BUSY_BIT)


def test_an_empty_matrix_is_a_trap_as_on_the_chip() -> None:
    with pytest.raises(TargetError, match=r"mov\.m .*: trap 0x33"):
        traced("lui a0, 0xc0000\nmov.m a0, a0")


def test_a_program_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegen.neuralscale.trace.trace.MOST_INSTRUCTIONS", 100_000)
    with pytest.raises(TargetError, match="no end after"):
        traced("addi a1, a1, 1\njal zero, .-4")


AGAIN = """
lui a0, 0xc0000
lui a1, 0xc0010
lui t0, 0x40
addi t0, t0, 8
csrrw zero, shape_s1, t0
addi t1, zero, 2
addi t2, zero, 64
"""
TURN = """
mov.m a1, a0
addi t1, t1, -1
{changed}
bne t1, zero, {back}
"""


@pytest.mark.parametrize(
    ("changed", "differ"),
    [("addi zero, zero, 0", False), ("add a0, a0, t2", True), ("csrrw zero, stride_s, t2", True)],
    ids=["nothing", "register", "CSR"],
)
def test_one_instruction_that_comes_again_is_what_registers_and_csrs_say_then(changed: str, differ: bool) -> None:
    """The same word at the same address, twice: with what it was given before, and with something else."""
    first, second = traced(AGAIN, TURN.format(changed=changed, back=".-12"))
    assert first.reads == (Region("L1", 0, 8 * 4 * 2),)
    assert (first.reads != second.reads) == differ
    assert first.writes == second.writes


def test_a_core_sends_to_itself_and_to_others_by_the_same_instruction() -> None:
    """Only core 0 keeps what is sent to core 0."""
    text = "addi t0, zero, 0\ncsrrw zero, mte_icdest, t0\nlui a0, 0xc0000\nlui a1, 0xc0010\naddi a2, zero, 64\n"
    own, other = trace_elf(assembled(text, "icmov a1, a0, a2\nsync\n", END), 2, CHIP)
    assert own.ops[0].writes == (Region("L1", 0x10000, 64),)
    assert (other.ops[0].opcode, other.ops[0].writes) == ("icmov", ())


NOWHERE = """
lui a0, 0xd0000
lui a1, 0xc0000
lui t0, 0x10
addi t0, t0, 1
csrrw zero, shape_s1, t0
mov.m a0, a1
"""


def test_operands_outside_all_memories_are_named() -> None:
    with pytest.raises(TargetError, match=r"core 0 at 0x\w+: needs operands of mov\.m in a memory; has 0xd0000000"):
        traced(NOWHERE)
