"""`dsa-sched iss --trace-format commit`: what each instruction wrote, as Spike's commit log has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from codegen.neuralscale.isa.table import decode
from codegen.riscv.codec import Instruction
from dsa_sched.cli import cli
from tests.codegen.gemmini.quantised_networks import product
from tests.dsa_sched.test_cli_programs import ADD_ONE, DATA, program
from tests.small_models import classifier, save

LINE = re.compile(
    r"core +(?P<core>\d+): 3 (?P<pc>0x[0-9a-f]+) \((?P<word>0x[0-9a-f]+)\)"
    r"(?P<registers>( (x|f|c)\d+(_\w+)? +0x[0-9a-f]+)*)(?P<memory>( mem 0x[0-9a-f]+( 0x[0-9a-f]+)?)*)"
)
"""A line of Spike's log, by its own format strings."""

FLOATS = """
lui t0, 0x2
csrrs zero, 0x300, t0
lui t1, 0x3f800
fmv.w.x ft1, t1
fadd.s ft2, ft1, ft1, rne
lui t2, 0x400
fsw ft2, 4(t2)
flw fa0, 4(t2)
amoadd.w a3, t1, (t2)
fsqrt.s ft3, ft2, rne
lui t2, 0x300
addi t3, zero, 1
sw t3, 0(t2)
"""
TRAPS = """
lui t0, 0x100
addi t0, t0, 0x10
csrrw zero, 0x305, t0
ecall
csrrs a1, 0x342, zero
lui t2, 0x300
addi t3, zero, 1
sw t3, 0(t2)
"""


@dataclass(frozen=True)
class Entry:
    """A line of the log."""

    core: int
    pc: int
    word: int
    registers: dict[str, int]
    memory: tuple[tuple[int, ...], ...]


def invoke(*words: object) -> Result:
    done = CliRunner().invoke(cli, [str(word) for word in words], prog_name="dsa-sched")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def logged(elf: Path, *words: object) -> list[str]:
    """The lines of the log of a run."""
    log = elf.with_suffix(".log")
    invoke("iss", elf, "--trace", log, "--trace-format", "commit", *words)
    return log.read_text(encoding="utf-8").splitlines()


def entries(lines: list[str]) -> Iterator[Entry]:
    for line in lines:
        found = LINE.fullmatch(line)
        assert found, line
        words = found["registers"].split()
        registers = {name: int(value, 16) for name, value in zip(words[::2], words[1::2], strict=True)}
        memory = tuple(tuple(int(n, 16) for n in part.split()) for part in found["memory"].split(" mem ") if part)
        yield Entry(int(found["core"]), int(found["pc"], 16), int(found["word"], 16), registers, memory)


def test_every_line_has_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "in.bin").write_bytes((41).to_bytes(4, "little"))
    lines = logged(program(tmp_path / "p.elf", ADD_ONE), "--load", f"{DATA:#x}={tmp_path / 'in.bin'}")
    assert lines == [
        "core   0: 3 0x00100000 (0x002002b7) x5  0x00200000",
        "core   0: 3 0x00100004 (0x0002a583) x11 0x00000029 mem 0x00200000",
        "core   0: 3 0x00100008 (0x00158593) x11 0x0000002a",
        "core   0: 3 0x0010000c (0x00400337) x6  0x00400000",
        "core   0: 3 0x00100010 (0x00b32023) mem 0x00400000 0x0000002a",
        "core   0: 3 0x00100014 (0x003003b7) x7  0x00300000",
        "core   0: 3 0x00100018 (0x00700e13) x28 0x00000007",
        "core   0: 3 0x0010001c (0x01c3a023) mem 0x00300000 0x00000007",
    ]


def test_floats_registers_of_status_and_atomics_are_logged(tmp_path: Path) -> None:
    found = list(entries(logged(program(tmp_path / "p.elf", FLOATS))))
    assert len(found) == len(FLOATS.strip().splitlines())
    written = [entry.registers for entry in found]
    assert written[1] == {"c768_mstatus": 0x3800}
    assert written[3] == {"f1": 0x3F80_0000, "c768_mstatus": 0x8000_7800}
    assert written[4] == {"f2": 0x4000_0000}
    assert (found[6].registers, found[6].memory) == ({}, ((0x40_0004, 0x4000_0000),))
    assert (found[7].registers, found[7].memory) == ({"f10": 0x4000_0000}, ((0x40_0004,),))
    assert (found[8].registers, found[8].memory) == ({"x13": 0}, ((0x40_0000,), (0x40_0000, 0x3F80_0000)))
    assert {*written[9]} == {"f3", "c1_fflags"}


def test_an_instruction_that_traps_is_not_in_the_log(tmp_path: Path) -> None:
    found = list(entries(logged(program(tmp_path / "p.elf", TRAPS))))
    assert [entry.pc & 0xFF for entry in found] == [0x00, 0x04, 0x08, 0x10, 0x14, 0x18, 0x1C]
    assert found[2].registers == {"c773_mtvec": 0x10_0010}
    assert found[3].registers == {"x11": 11}


def result(made: Instruction, x: dict[int, int]) -> int | None:
    """What an instruction writes, by registers as the log told them; None where it did not tell one."""
    if made.mnemonic == "lui":
        return made["imm"] << 12
    parts = x.get(made["rs1"]), made["imm"] if made.mnemonic == "addi" else x.get(made["rs2"])
    return parts[0] + parts[1] if parts[0] is not None and parts[1] is not None else None


def test_the_log_of_a_compiled_program_tells_all_its_registers(tmp_path: Path) -> None:
    """Registers and memory as the log tells them are enough to follow the scalar code of all cores."""
    model = save(classifier(), tmp_path / "m.onnx")
    words = ("compile", model, "--chip", "stcp920", "--level", "O0", "-o", tmp_path / "out")
    assert invoke(*words).exit_code == 0
    lines = logged(tmp_path / "out" / "cluster0" / "program.elf")
    registers: dict[int, dict[int, int]] = {}
    followed = 0
    for entry in entries(lines):
        x = registers.setdefault(entry.core, {0: 0})
        made = decode(entry.word)
        if made is not None and made.mnemonic in ("addi", "add", "lui") and made["rd"]:
            value = result(made, x)
            if value is not None:
                assert entry.registers == {f"x{made['rd']}": value & 0xFFFF_FFFF}
                followed += 1
        x |= {int(name[1:]): value for name, value in entry.registers.items() if name[0] == "x"}
    assert {*registers} == set(range(8))
    assert followed > len(lines) / 4


def test_the_other_instruction_set_has_the_log_too(tmp_path: Path) -> None:
    model = save(product(8, 24, 8), tmp_path / "net.onnx")
    assert invoke("compile", model, "--chip", "gemmini", "-o", tmp_path / "out").exit_code == 0
    program_file = tmp_path / "out" / "cluster0" / "program.elf"
    lines = logged(program_file)
    invoke("iss", program_file, "--trace", tmp_path / "text")
    texts = (tmp_path / "text").read_text(encoding="utf-8").splitlines()
    found = list(entries(lines))
    assert [entry.pc for entry in found] == [int(text.split()[0], 16) for text in texts]
    assert all(len(line.split()[3]) == 18 for line in lines)
    assert found[-1].memory
    status = [entry.registers["c768_mstatus"] for entry in found if "c768_mstatus" in entry.registers]
    assert status
    assert all(value >> 13 & 3 for value in status)


def test_a_form_without_a_file_is_a_matter_of_usage(tmp_path: Path) -> None:
    done = invoke("iss", program(tmp_path / "p.elf", ADD_ONE), "--trace-format", "commit")
    assert done.exit_code == 2
    assert "--trace-format says what a line of --trace has" in " ".join(done.stderr.split())


@pytest.mark.parametrize("words", [(), ("--trace-format", "text")])
def test_the_text_form_stays(words: tuple[str, ...], tmp_path: Path) -> None:
    elf = program(tmp_path / "p.elf", ADD_ONE)
    invoke("iss", elf, "--trace", tmp_path / "trace", *words)
    assert (tmp_path / "trace").read_text(encoding="utf-8").splitlines()[0].endswith("lui t0, 0x200")
