"""The machine around the instructions: exit codes, faults, dumps, counts, traps, devices, the iss runner."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen.neuralscale.simulator.iss import run_iss
from codegen.neuralscale.simulator.machine import simulate
from codegen.neuralscale.simulator.memory.faults import SimulationError
from codegen.neuralscale.simulator.options import CodeRange, InitialBytes, SimulationOptions
from codegen.riscv.elf_format import ElfError
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes
from codegen.target import SimulatorRun
from hw_models.errors import TargetError

Program = Callable[..., bytes]

RESULT = 0x40_0000


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump as the command line gives it."""

    address: int
    size_bytes: int
    core: int | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A load as the command line gives it."""

    address: int
    file: Path
    core: int | None = None


def word(value: int) -> bytes:
    return struct.pack("<I", value)


def test_the_exit_code_is_the_guests(program: Program) -> None:
    result = simulate(program("li a0, 77"), SimulationOptions())
    assert (result.exit_code, result.fault) == (77, None)


def test_counts_by_mnemonic_engine_and_core(program: Program) -> None:
    text = """
      li t1, 10
      li a0, 0
    loop:
      addi t1, t1, -1
      bne t1, zero, loop
    """
    counts = simulate(program(text), SimulationOptions()).counts
    assert counts.by_mnemonic["bne"] == 10
    assert counts.by_engine["scalar"] == counts.instructions == counts.by_core[0]
    assert counts.instructions == sum(counts.by_mnemonic.values())


def test_moved_bytes_by_path(program: Program) -> None:
    text = """
      li t0, 0x100010
      csrrw zero, mte_shape, t0
      csrrw zero, mte_stride_llb, zero
      li a0, 0xc0000000
      li a1, 0xf8000000
      mov.l1.llb a0, a1
      mov.llb.l1 a1, a0
      li a0, 0
    """
    result = simulate(program(text), SimulationOptions(loads=(InitialBytes(0xF800_0000, bytes(range(256)) * 2),)))
    assert result.fault is None
    assert dict(result.counts.moved_bytes) == {("LLB", "L1"): 512, ("L1", "LLB"): 512}
    assert result.counts.by_engine["MTE"] == 2


def test_loads_reach_the_private_memory_of_one_core(program: Program) -> None:
    text = """
      csrrs t1, tid, zero
      bne t1, zero, wait
      sync
      li a0, 0
      jal zero, exit
    wait:
      sync
      jal zero, wait
    """
    loads = (
        InitialBytes(0xC000_0000, b"zero", 0),
        InitialBytes(0xC000_0000, b"once", 1),
        InitialBytes(0xC040_0000, b"im", 1),
    )
    result = simulate(program(text), SimulationOptions(cores=2, loads=loads))
    assert result.fault is None
    assert [result.read(0xC000_0000, 4, core) for core in (0, 1)] == [b"zero", b"once"]
    assert result.read(0xC040_0000, 2, 1) == b"im"
    assert result.read(0xC040_0000, 2, 0) == bytes(2)


def test_hart_ids_follow_cluster_and_option(program: Program) -> None:
    text = """
      csrrs a0, tid, zero
      bne t1, zero, exit
    """
    assert simulate(program(text), SimulationOptions(cluster=2)).exit_code == 16
    assert simulate(program(text), SimulationOptions(hartids=(5,))).exit_code == 5


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("li t1, 0xc2000000\nlw t2, 0(t1)", 5),
        ("li t1, 0xc2000000\nsw t2, 0(t1)", 7),
        ("li t1, 0xc2000000\njalr zero, 0(t1)", 1),
        ("li t1, 0xd0080040\nlw t2, 0(t1)", 5),
        (".word 0", 2),
        (".word 0xffffffff", 2),
        ("csrrs t1, 0x4ff, zero", 2),
        ("csrrw zero, mhartid, t1", 2),
        ("csrrw t1, cycle, zero", 2),
        ("li t1, 0xc0000001\n.word 0x02037087", 0x2D),  # vle.v v1, (t1)
        ("li t1, 0x200000\n.word 0x02037087", 0x2F),
        ("li a0, 0xc0000000\npld a0, a0", 0x3E),
        ("li t0, 0x10001\ncsrrw zero, mte_shape, t0\nli a0, 0xc0000000\npld a0, a0", 0x38),
        ("li t0, 40\ncsrrw zero, mte_icdest, t0\nicmov a0, a0, a0", 0x39),
        ("ecall", 11),
        ("ebreak", 3),
        (".word 0x8047057\nveadd.mm a0, a1, a2", 0x29),  # vsetvli with 32-bit elements
    ],
)
def test_trap_causes(program: Program, text: str, cause: int) -> None:
    result = simulate(program(text), SimulationOptions())
    assert (result.fault, result.exit_code) == (None, cause)


@pytest.mark.parametrize(("wanted", "length"), [(0, 0), (7, 7), (64, 64), (65, 33), (128, 64), (200, 64)])
def test_vector_lengths(program: Program, wanted: int, length: int) -> None:
    text = f"li t1, {wanted}\n.word 0x00437557"  # vsetvli a0, t1, 16-bit elements
    assert simulate(program(text), SimulationOptions()).exit_code == length


def test_a_trap_without_handler_is_a_fault(program: Program) -> None:
    result = simulate(program("csrrw zero, mtvec, zero\n.word 0"), SimulationOptions())
    assert result.fault is not None
    assert (result.fault.kind, result.exit_code) == ("trap", 126)
    assert "trap 0x2" in result.fault.message
    assert "no trap handler" in result.fault.message


def test_the_limit_names_the_place(program: Program) -> None:
    result = simulate(
        program("addi t1, t1, 1\nagain:\naddi t1, t1, 1\njal zero, again"), SimulationOptions(max_instructions=5000)
    )
    assert result.fault is not None
    assert (result.fault.kind, result.exit_code) == ("limit", 125)
    assert "(again+" in result.fault.message
    assert result.counts.instructions <= 5001


def test_a_deadlock_names_every_core_and_its_reason(program: Program) -> None:
    text = """
      csrrs t1, tid, zero
      bne t1, zero, other
      sync
    other:
      wfi
      jal zero, other
    """
    result = simulate(program(text), SimulationOptions(cores=2))
    assert result.fault is not None
    assert (result.fault.kind, result.exit_code) == ("deadlock", 125)
    assert "core 0 at" in result.fault.message
    assert "waits in sync (group 0 lacks core 1)" in result.fault.message
    assert "core 1 at" in result.fault.message
    assert "waits in wfi" in result.fault.message


def test_a_jump_to_itself_is_a_deadlock_not_a_long_run(program: Program) -> None:
    result = simulate(program("here:\njal zero, here"), SimulationOptions())
    assert result.fault is not None
    assert result.fault.kind == "deadlock"
    assert "waits in a jump to itself" in result.fault.message


def test_faults_name_the_operator_of_the_source_map(program: Program) -> None:
    ranges = (CodeRange(0x10_0000, 0x20_0000, "conv1/Conv"),)
    text = "li t1, 0x500000\nlw t2, 0(t1)"
    result = simulate(program(text), SimulationOptions(poison=True, source_map=ranges))
    assert result.fault is not None
    assert "(operator conv1/Conv): lw t2, 0(t1): reads DDR 0x500000, which nothing has written" in result.fault.message


def test_code_written_by_the_program_runs_after_fence_i(program: Program) -> None:
    text = """
      la t1, patch
      li t2, 0x02a00513
      jal ra, patch
      sw t2, 0(t1)
      fence.i
      jal ra, patch
      jal zero, exit
    patch:
      li a0, 1
      jalr zero, 0(ra)
    """
    assert simulate(program(text), SimulationOptions()).exit_code == 42


def test_code_that_did_not_exist_when_its_page_was_decoded(program: Program) -> None:
    text = """
      la t1, patch
      li t2, 0x02a00513
      sw t2, 0(t1)
      jal zero, patch
    patch:
      .word 0
    """
    assert simulate(program(text), SimulationOptions()).exit_code == 42


def test_misaligned_accesses_work_byte_by_byte(program: Program) -> None:
    text = f"""
      li t1, 0x200000
      lw t2, 3(t1)
      li t3, {RESULT}
      sw t2, 1(t3)
      li a0, 0
    """
    result = simulate(program(text, bytes(range(1, 17))), SimulationOptions())
    assert result.read(RESULT, 6) == bytes([0, 4, 5, 6, 7, 0])


def test_the_console_collects_lines_by_core(program: Program) -> None:
    text = "li t1, 0xc07f3100\n" + "".join(f"li t2, {ord(c)}\nsb t2, 0(t1)\n" for c in "hi\nx") + "li a0, 0"
    result = simulate(program(text), SimulationOptions())
    assert result.console == ("core 0: hi", "core 0: x")


def test_instret_counts_instructions(program: Program) -> None:
    text = """
      csrrs t1, minstret, zero
      addi t3, t3, 1
      addi t3, t3, 1
      csrrs t2, minstret, zero
      sub a0, t2, t1
    """
    assert simulate(program(text), SimulationOptions()).exit_code == 3


def test_high_memory_is_reached_by_dma_only(program: Program) -> None:
    text = (
        """
      li s1, 0xc9f00000
      li s2, 0xc9f01000
      li t0, 0x80000010
      sw t0, 0(s2)
      li t0, 0xc0800000
      sw t0, 4(s2)
      li t0, 0x400000
      sw t0, 8(s2)
      sw zero, 12(s2)
      sw zero, 16(s2)
      sw zero, 20(s2)
      li t0, 8
      sw t0, 0x1c(s1)
      sw s2, 0x114(s1)
      li t0, 1
      sw t0, 4(s1)
    poll:
      lw t0, 0x10(s1)
      bne t0, zero, poll
      li a0, 0
    """.replace("0x1c", "28")
        .replace("0x114", "276")
        .replace("0x10(", "16(")
    )
    data = bytes(range(16))
    result = simulate(program(text), SimulationOptions(loads=(InitialBytes(0x8_C080_0000, data),), poison=True))
    assert result.fault is None
    assert result.read(RESULT, 16) == data


def test_options_that_do_not_fit_say_what_is_allowed() -> None:
    with pytest.raises(SimulationError, match="1 to 8"):
        SimulationOptions(cores=9)
    with pytest.raises(SimulationError, match="clusters 0 to 3"):
        SimulationOptions(cluster=4)
    with pytest.raises(SimulationError, match="different numbers"):
        SimulationOptions(cores=2, hartids=(1, 1))
    with pytest.raises(SimulationError, match="at least 1"):
        SimulationOptions(max_instructions=0)


def test_a_program_without_tohost_is_refused() -> None:
    elf = elf_bytes(0x1000, [ElfSegment(".text", 0x1000, (bytes(4),), SegmentFlags.READ_EXECUTE)])
    with pytest.raises(SimulationError, match="tohost"):
        simulate(elf, SimulationOptions())


def test_random_bytes_and_damaged_programs_never_break_the_simulator(program: Program) -> None:
    whole = program("li a0, 3")
    random = np.random.default_rng(7)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(int(random.integers(1, 6))):
            damaged[int(random.integers(len(damaged)))] = int(random.integers(256))
        try:
            simulate(bytes(damaged), SimulationOptions(max_instructions=2000, poison=bool(random.integers(2))))
        except (ElfError, SimulationError):
            continue


def test_random_instructions_never_break_the_simulator(program: Program) -> None:
    random = np.random.default_rng(11)
    for _ in range(150):
        words = random.integers(0, 1 << 32, 40, dtype=np.uint64)
        opcodes = random.choice([0x7B, 0x57, 0x07, 0x27, 0x5B, 0x2F, 0x73], 20).astype(np.uint64)
        words[::2] = words[::2] & ~np.uint64(0x7F) | opcodes
        setup = "\n".join(f"csrrw zero, {number:#x}, s{number % 8 + 2}" for number in range(0x400, 0x40F))
        registers = "\n".join(
            f"li {name}, {int(random.choice([0xC0000000, 0xC0400000, 0xF8000000, 0x20, 0x40002])):#x}"
            for name in ("a0", "a1", "a2", "a3", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9")
        )
        text = f"{registers}\n{setup}\n" + "\n".join(f".word {int(value):#x}" for value in words)
        simulate(program(text), SimulationOptions(max_instructions=3000, poison=bool(random.integers(2))))


# The runner behind `dsa-sched iss`


def _file(folder: Path, data: bytes) -> Path:
    path = folder / "program.elf"
    path.write_bytes(data)
    return path


def iss(program: Path, cores: int = 1, **options: Any) -> int:
    return run_iss(program, SimulatorRun(cores, 0, **options))


def test_iss_loads_runs_and_dumps(program: Program, tmp_path: Path) -> None:
    text = f"""
      li t1, 0x200000
      lw t2, 0(t1)
      li t3, {RESULT}
      sw t2, 0(t3)
      li a0, 9
    """
    (tmp_path / "in.bin").write_bytes(b"abcd")
    out = tmp_path / "out"
    code = iss(
        _file(tmp_path, program(text)),
        loads=(File(0x20_0000, tmp_path / "in.bin"), File(0xC000_0000, tmp_path / "in.bin", 0)),
        dumps=(Dump(RESULT, 4), Dump(0xC000_0000, 4, 0)),
        dump_path=out,
    )
    assert code == 9
    assert (out / "0x400000_0x4.bin").read_bytes() == b"abcd"
    assert (out / "0.0xc0000000_0x4.bin").read_bytes() == b"abcd"
    assert len(list(out.iterdir())) == 2


def test_iss_reports_a_fault_and_writes_no_dump(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elf = _file(tmp_path, program("li t1, 0x500000\nlw t2, 0(t1)"))
    out = tmp_path / "out"
    assert iss(elf, dumps=(Dump(RESULT, 4),), dump_path=out, poison=True) == 126
    assert "poison: core 0 at" in capsys.readouterr().err
    assert list(out.iterdir()) == []


def test_iss_keeps_a_failing_exit_code_visible(program: Program, tmp_path: Path) -> None:
    assert iss(_file(tmp_path, program("li a0, 0x200"))) == 255


def test_iss_names_what_cannot_be_used(program: Program, tmp_path: Path) -> None:
    elf = _file(tmp_path, program("li a0, 0"))
    with pytest.raises(TargetError, match=r"program .*nothing\.elf"):
        iss(tmp_path / "nothing.elf")
    with pytest.raises(TargetError, match=r"load .*missing\.bin"):
        iss(elf, loads=(File(0, tmp_path / "missing.bin"),))
    with pytest.raises(TargetError, match="0xc2000000"):
        iss(elf, dumps=(Dump(0xC200_0000, 4),), dump_path=tmp_path)
    with pytest.raises(TargetError, match="no core 3"):
        iss(elf, dumps=(Dump(0xC000_0000, 4, 3),), dump_path=tmp_path)
    with pytest.raises(TargetError, match="cores is 12"):
        iss(elf, cores=12)
    truncated = tmp_path / "short.elf"
    truncated.write_bytes(elf.read_bytes()[:70])
    with pytest.raises(TargetError, match=r"short\.elf"):
        iss(truncated)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TargetError, match="folder"):
        iss(elf, dumps=(Dump(RESULT, 4),), dump_path=tmp_path / "file" / "below")


def test_the_trace_has_one_line_an_instruction(program: Program, tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    elf = program("li a0, 0")
    result = simulate(elf, SimulationOptions(trace=trace))
    lines = trace.read_text().splitlines()
    assert len(lines) == result.counts.instructions
    assert lines[0].startswith("core 0 0x00100000 0x")
    assert lines[-1].endswith("sw a0, 0(t0)")
    assert any("csrrw zero, mtvec, t0" in line for line in lines)
