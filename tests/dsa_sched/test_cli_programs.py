"""`dsa-sched iss` and `dsa-sched disasm` on programs of a few instructions, and on files that are no programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.lab.readers.assembly import parse_instruction
from codegen.neuralscale.isa.table import encode
from codegen.neuralscale.target import TARGET
from codegen.riscv.elf_format import ElfSymbol
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes
from dsa_sched.cli import cli
from tests.small_models import classifier, save

CODE, DATA, TOHOST, RESULT = 0x10_0000, 0x20_0000, 0x30_0000, 0x40_0000

# Adds one to the word at DATA, stores it at RESULT and ends with 3.
ADD_ONE = """
lui t0, 0x200
lw a1, 0(t0)
addi a1, a1, 1
lui t1, 0x400
sw a1, 0(t1)
lui t2, 0x300
addi t3, zero, 7
sw t3, 0(t2)
"""
# Every core adds one to the first word of its own L1; core 0 then ends the run with 0.
ADD_ONE_IN_L1 = """
lui t0, 0xc0000
lw a1, 0(t0)
addi a1, a1, 1
sw a1, 0(t0)
sync
bne a0, zero, .+0
lui t2, 0x300
addi t3, zero, 1
sw t3, 0(t2)
"""
PRINT_HI = """
lui t0, 0xd801a
addi t1, zero, 72
sb t1, 0(t0)
addi t1, zero, 105
sb t1, 0(t0)
addi t1, zero, 10
sb t1, 0(t0)
lui t2, 0x300
addi t3, zero, 1
sw t3, 0(t2)
"""
FOR_EVER = "addi a1, a1, 1\njal zero, .-4"


def program(path: Path, source: str) -> Path:
    """Assemble lines of instructions at CODE, with `tohost` at TOHOST."""
    words = [encode(parse_instruction(line)) for line in source.strip().splitlines()]
    code = b"".join(word.to_bytes(4, "little") for word in words)
    segments = (
        ElfSegment(".text", CODE, (code,), SegmentFlags.READ_EXECUTE),
        ElfSegment(".tohost", TOHOST, (bytes(16),), SegmentFlags.READ_WRITE),
    )
    symbols = (ElfSymbol("_start", CODE), ElfSymbol("tohost", TOHOST, 8), ElfSymbol("fromhost", TOHOST + 8, 8))
    path.write_bytes(elf_bytes(CODE, segments, symbols))
    return path


def invoke(*arguments: object) -> Result:
    """Run `dsa-sched` with these arguments; an exception that would be a traceback fails the test."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def number(tmp_path: Path) -> Path:
    """A file that holds the word 41."""
    path = tmp_path / "in,put.bin"
    path.write_bytes((41).to_bytes(4, "little"))
    return path


def test_a_program_gets_its_loads_writes_its_dumps_and_gives_its_exit_code(tmp_path: Path, number: Path) -> None:
    elf = program(tmp_path / "p.elf", ADD_ONE)
    out = tmp_path / "new" / "folder"
    result = invoke(
        "iss", elf, "--load", f"{DATA:#x}={number},{DATA + 64:#x}={number}", "--dump-path", out,
        "--dump", "0x400000:0x4,0x200040:4", "--dump", "0x00100000:0X10",
    )  # fmt: skip
    assert (result.exit_code, result.stdout, result.stderr) == (3, "", "")
    assert sorted(path.name for path in out.iterdir()) == ["0x100000_0x10.bin", "0x200040_0x4.bin", "0x400000_0x4.bin"]
    assert (out / "0x400000_0x4.bin").read_bytes() == (42).to_bytes(4, "little")
    assert (out / "0x200040_0x4.bin").read_bytes() == number.read_bytes()


def test_private_memory_is_named_by_its_core(tmp_path: Path, number: Path) -> None:
    elf = program(tmp_path / "p.elf", ADD_ONE_IN_L1)
    result = invoke(
        "iss", elf, "--cores", 2, "--load", f"1:0xc0000000={number}", "--dump-path", tmp_path,
        "--dump", "0:0xc0000000:4,1:0xc0000000:4",
    )  # fmt: skip
    assert result.exit_code == 0
    assert (tmp_path / "0.0xc0000000_0x4.bin").read_bytes() == bytes([1, 0, 0, 0])
    assert (tmp_path / "1.0xc0000000_0x4.bin").read_bytes() == bytes([42, 0, 0, 0])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program for all cores of cluster 1."""
    folder = tmp_path_factory.mktemp("compiled")
    model = save(classifier(batch="n"), folder / "m.onnx")
    words = ("compile", model, "--chip", "stcp920", "--batch", 2, "--clusters", 2, "-o", folder / "out")
    assert invoke(*map(str, words)).exit_code == 0
    return folder / "out" / "cluster1" / "program.elf"


def test_a_compiled_program_runs_on_the_cores_that_it_was_compiled_for(compiled: Path) -> None:
    result = invoke("iss", compiled)
    assert (result.exit_code, result.output) == (0, "")
    few = invoke("iss", compiled, "--cores", "4", "--max-instructions", "1000000")
    said = f"dsa-sched: warning: {compiled}: compiled for 8 cores of cluster 1, runs on 4 of cluster 1\n"
    assert few.stderr.startswith(said)
    other = invoke("iss", compiled, "--cluster", "0", "--max-instructions", "1000000")
    assert other.stderr.startswith(f"dsa-sched: warning: {compiled}: compiled for 8 cores of cluster 1, runs on 8 of ")


def test_a_program_for_another_instruction_set_is_refused(compiled: Path, tmp_path: Path) -> None:
    assert TARGET.name == "neuralscale-v1"
    changed = compiled.read_bytes().replace(b'"neuralscale-v1"', b'"another-isa-v1"')
    (tmp_path / "p.elf").write_bytes(changed)
    result = invoke("iss", tmp_path / "p.elf")
    assert result.exit_code == 1
    assert "p.elf: needs machine code for gemmini-v3 or neuralscale-v1; has another-isa-v1 for stcp920" in result.stderr


def test_what_a_program_prints_goes_to_standard_error(tmp_path: Path) -> None:
    result = invoke("iss", program(tmp_path / "p.elf", PRINT_HI))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "uart: Hi\n")


def test_the_trace_has_a_line_for_every_instruction(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    assert invoke("iss", program(tmp_path / "p.elf", ADD_ONE), "--trace", trace).exit_code == 3
    lines = trace.read_text().splitlines()
    assert len(lines) == len(ADD_ONE.strip().splitlines())
    assert lines[0].startswith("core 0 0x00100000 ")
    assert lines[0].endswith("lui t0, 0x200")


def test_a_run_without_end_is_125_and_an_unwritten_read_is_126(tmp_path: Path) -> None:
    endless = invoke("iss", program(tmp_path / "e.elf", FOR_EVER), "--max-instructions", 1000)
    assert endless.exit_code == 125
    assert endless.stderr.startswith("limit: no end after 1000 instructions: core 0 at 0x100000 (_start+0")
    poisoned = invoke("iss", program(tmp_path / "p.elf", ADD_ONE), "--poison")
    assert poisoned.exit_code == 126
    assert "poison: core 0 at 0x100004 (_start+0x4): lw a1, 0(t0): " in poisoned.stderr


def test_an_exit_code_that_the_system_would_cut_to_success_is_255(tmp_path: Path) -> None:
    source = ADD_ONE.replace("addi t3, zero, 7", "addi t3, zero, 0x201")
    assert invoke("iss", program(tmp_path / "p.elf", source)).exit_code == 255


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--load", "0x200000"], "'0x200000' is not [CORE:]ADDRESS=FILE, for example 0x200000=input.bin"),
        (["--load", "0x20zz=a.bin"], "'0x20zz' is not a number (hexadecimal numbers start with 0x)"),
        (["--dump", "0x400000"], "'0x400000' is not [CORE:]ADDRESS:BYTES, for example 0x400000:0x100"),
        (["--dump", "0x400000:0"], "'0x400000:0' is not [CORE:]ADDRESS:BYTES"),
        (["--dump", "0x400000:-4"], "'-4' is not a number"),
        (["--dump", "1:2:3:4"], "'1:2:3:4' is not [CORE:]ADDRESS:BYTES"),
        (["--cores", "9"], "9 is not in the range 1<=x<=8"),
        (["--max-instructions", "0"], "0 is not in the range x>=1"),
    ],
)
def test_a_wrong_option_of_iss_is_usage(arguments: list[str], said: str, tmp_path: Path) -> None:
    result = invoke("iss", program(tmp_path / "p.elf", ADD_ONE), *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--load", "0x200000=none.bin"], "cannot read the load none.bin: No such file or directory"),
        (["--load", "0xc2000000=p.elf"], "bytes at 0xc2000000 do not lie in one memory"),
        (["--load", "1:0xc0000000=p.elf"], "load at 0xc0000000: there is no core 1"),
        (["--dump", "0xc2000000:4"], "dump 0xc2000000_0x4.bin: 4 bytes at 0xc2000000 do not lie in one memory"),
        (["--dump", "0xbffffffc:8"], "8 bytes at 0xbffffffc do not lie in one memory"),
        (["--dump", "1:0xc0000000:4"], "dump 1.0xc0000000_0x4.bin: there is no core 1, the run has 1"),
        (
            ["--dump", "0x400000:4", "--dump-path", "p.elf"],
            "p.elf: needs a folder that can be written; has not a directory; choose another folder with --dump",
        ),
        (["--trace", "none/trace.txt"], "none/trace.txt: needs a folder that exists; has none; create it first"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_exit_1(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("iss", program(Path("p.elf"), ADD_ONE), *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("dsa-sched: error: ")
    assert said in result.stderr


ELF32_HEADER = b"\x7fELF\1\1\1" + bytes(9) + b"\2\0\x28\0" + bytes(32)
"""A program of 32 bits for another processor: no target's, but what is wrong is not that it has no 64 bits."""


@pytest.mark.parametrize("command", ["iss", "disasm"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file or directory"),
        (b"", "not an ELF file: 0 bytes, the header alone has 52"),
        (ELF32_HEADER, "ELF machine 40, needed is 243 (RISC-V)"),
        (b"#!/bin/sh\n" * 20, "not an ELF file: it does not start with 7f 45 4c 46"),
    ],
)
def test_a_file_that_is_no_program_is_said(command: str, content: bytes | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "x.elf"
    if content is not None:
        file.write_bytes(content)
    result = invoke(command, file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("dsa-sched: error: ")
    assert str(file) in result.stderr
    assert said.lower() in result.stderr.lower()


def test_a_truncated_program_is_said_at_every_length(tmp_path: Path) -> None:
    whole = program(tmp_path / "p.elf", ADD_ONE).read_bytes()
    cut = tmp_path / "cut.elf"
    for length in range(0, len(whole) - 1, 41):
        cut.write_bytes(whole[:length])
        assert invoke("disasm", cut).exit_code == 1


def test_a_listing_has_address_word_instruction_and_labels(tmp_path: Path) -> None:
    lines = invoke("disasm", program(tmp_path / "p.elf", ADD_ONE)).stdout.splitlines()
    assert lines[:3] == ["00100000 <_start>:", "00100000: 002002b7  lui t0, 0x200", "00100004: 0002a583  lw a1, 0(t0)"]
    assert len(lines) == 1 + len(ADD_ONE.strip().splitlines())
