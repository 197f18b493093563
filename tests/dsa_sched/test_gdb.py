"""`dsa-sched iss --gdb PORT`: a debugger stops cores, steps them, and reads and changes registers and memory."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.codegen.gemmini.quantised_networks import product
from tests.dsa_sched.test_cli_programs import (
    ADD_ONE,
    ADD_ONE_IN_L1,
    CODE,
    DATA,
    FOR_EVER,
    RESULT,
    invoke,
    program,
)
from tests.small_models import classifier, save

GDB = shutil.which("gdb-multiarch") or ""
PC, A1 = 32, 11
SECONDS = 60


class Client:
    """A debugger of a few lines: packets with checksums, acknowledged."""

    def __init__(self, port: int) -> None:
        self._stream = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._rest = b""

    def send(self, text: str) -> None:
        self.raw(b"$%b#%02x" % (text.encode(), sum(text.encode()) & 0xFF))

    def raw(self, data: bytes) -> None:
        self._stream.sendall(data)

    def answer(self) -> str:
        while (found := re.search(rb"\$([^#]*)#..", self._rest)) is None:
            data = self._stream.recv(1 << 16)
            assert data, "the server has gone"
            self._rest += data
        self._rest = self._rest[found.end() :]
        self.raw(b"+")
        return found[1].decode()

    def ask(self, text: str) -> str:
        self.send(text)
        return self.answer()

    def number(self, register: int) -> int:
        return int.from_bytes(bytes.fromhex(self.ask(f"p{register:x}")), "little")

    def close(self) -> None:
        self._stream.close()


@contextmanager
def debugged(*words: object) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    """A run that waits for a debugger, and that debugger."""
    command = [sys.executable, "-m", "dsa_sched", "iss", *map(str, words), "--gdb", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", said)
        assert found, said
        client = Client(int(found[1]))
        try:
            yield client, process
        finally:
            client.close()
            process.wait(SECONDS)


def test_a_core_is_stopped_stepped_and_looked_into(tmp_path: Path) -> None:
    (tmp_path / "in.bin").write_bytes((41).to_bytes(4, "little"))
    elf = program(tmp_path / "p.elf", ADD_ONE)
    loads = ("--load", f"{DATA:#x}={tmp_path / 'in.bin'}", "--dump", f"{RESULT:#x}:4", "--dump-path", tmp_path)
    with debugged(elf, *loads) as (gdb, process):
        assert "QStartNoAckMode+" in gdb.ask("qSupported:multiprocess+;swbreak+")
        assert gdb.ask("?") == "T05thread:1;"
        assert gdb.number(PC) == CODE
        assert gdb.ask(f"Z0,{CODE + 8:x},4") == "OK"
        assert gdb.ask("vCont;c") == "T05thread:1;"
        assert (gdb.number(PC), gdb.number(A1)) == (CODE + 8, 41)
        assert gdb.ask(f"m{DATA:x},4") == "29000000"
        assert gdb.ask("vCont;s:1") == "T05thread:1;"
        assert gdb.number(A1) == 42
        assert gdb.ask(f"P{A1:x}=e8030000") == "OK"
        assert gdb.ask("g")[8 * A1 : 8 * A1 + 8] == "e8030000"
        assert gdb.ask(f"z0,{CODE + 8:x},4") == "OK"
        assert gdb.ask("c") == "W03"
        assert process.wait(SECONDS) == 3
    assert (tmp_path / f"{RESULT:#x}_0x4.bin").read_bytes() == (1000).to_bytes(4, "little")


def test_cores_are_threads_with_memories_of_their_own(tmp_path: Path) -> None:
    with debugged(program(tmp_path / "p.elf", ADD_ONE_IN_L1), "--cores", 2) as (gdb, process):
        assert (gdb.ask("qfThreadInfo"), gdb.ask("qsThreadInfo")) == ("m1,2", "l")
        assert bytes.fromhex(gdb.ask("qThreadExtraInfo,2")).decode() == "core 1 at 0x100000 (_start+0x0) runs"
        assert gdb.ask("Hg2") == "OK"
        assert gdb.ask("Mc0000000,4:05000000") == "OK"
        for _ in range(5):
            assert gdb.ask("vCont;s:2") == "T05thread:2;"
        about = bytes.fromhex(gdb.ask("qThreadExtraInfo,2")).decode()
        assert about.startswith("core 1 at 0x100014 (_start+0x14) waits in sync")
        assert gdb.ask("mc0000000,4") == "06000000"
        assert gdb.ask("Hg1") == "OK"
        assert gdb.ask("mc0000000,4") == "00000000"
        assert gdb.ask("vCont;s:2") == "T05thread:2;"
        assert gdb.ask("T3") == "E01"
        assert gdb.ask("D") == "OK"
        assert process.wait(SECONDS) == 0


def test_every_core_stops_at_a_breakpoint_and_one_core_goes_on_alone(tmp_path: Path) -> None:
    """GDB steps a core of RISC-V by a breakpoint behind the instruction and `vCont;c` of that core alone."""
    sync, behind = CODE + 16, CODE + 20
    with debugged(program(tmp_path / "p.elf", ADD_ONE_IN_L1), "--cores", 2) as (gdb, process):
        assert gdb.ask(f"Z0,{sync:x},4") == "OK"
        assert sorted(gdb.ask("vCont;c") for _ in range(2)) == ["T05thread:1;", "T05thread:2;"]
        assert gdb.ask(f"Z0,{behind:x},4") == "OK"
        assert gdb.ask("vCont;c:2") == "T05thread:2;"
        places = {}
        for thread in (1, 2):
            assert gdb.ask(f"Hg{thread}") == "OK"
            places[thread] = gdb.number(PC)
        assert places == {1: behind, 2: behind}
        assert gdb.ask("vCont;c:9") == "E01"
        gdb.send("k")
        assert process.wait(SECONDS) == 125


def test_registers_are_described_with_those_of_the_npu(tmp_path: Path) -> None:
    with debugged(program(tmp_path / "p.elf", ADD_ONE)) as (gdb, process):
        text, more = "", "m"
        while more == "m":
            answer = gdb.ask(f"qXfer:features:read:target.xml:{len(text):x},800")
            more, text = answer[0], text + answer[1:]
        registers = {each.get("name"): each for each in ElementTree.fromstring(text).iter("reg")}
        assert {"zero", "pc", "ft0", "fcsr", "mstatus", "shape_s1"} <= {*registers}
        assert all(len(gdb.ask(f"p{int(each.attrib['regnum']):x}")) == 8 for each in registers.values())
        number = int(registers["shape_s1"].attrib["regnum"])
        assert gdb.ask(f"P{number:x}=04000200") == "OK"
        assert gdb.number(number) == 0x0002_0004
        gdb.send("k")
        assert process.wait(SECONDS) == 125


def test_a_run_without_end_is_interrupted(tmp_path: Path) -> None:
    with debugged(program(tmp_path / "p.elf", FOR_EVER)) as (gdb, process):
        gdb.send("c")
        gdb.raw(b"\x03")
        assert gdb.answer() == "T02thread:1;"
        assert gdb.number(A1) > 0
        gdb.send("k")
        assert process.wait(SECONDS) == 125


def test_a_fault_can_be_looked_into_before_it_ends_the_run(tmp_path: Path) -> None:
    with debugged(program(tmp_path / "p.elf", ADD_ONE), "--poison") as (gdb, process):
        gdb.send("c")
        assert "poison: core 0 at 0x100004" in bytes.fromhex(gdb.answer()[1:]).decode()
        assert gdb.answer() == "T0bthread:1;"
        assert gdb.number(PC) == CODE + 4
        assert gdb.ask("c") == "W7e"
        assert process.wait(SECONDS) == 126


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        ("", ""), ("vMustReplyEmpty", ""), ("qCRC:0,4", ""), ("m99999999999999999,4", ""), ("mc2000000,4", "E01"),
        ("Mc2000000,4:00000000", "E01"), ("M200000,4:00", "E01"), ("pffff", "E01"), ("P0=00", "E01"), ("G00", "E01"),
        ("vCont;s:p1.1", "E01"), ("vCont;s:-2", "E01"), ("mffffffffffffffff,4", "E01"), ("mfffffffe,4", "E01"),
        ("Pffffff=00000000", "E01"), ("P1064=00000000", "E01"), ("Z2,100000,4", ""),
        ("vCont;s:9", "E01"), ("Hg9", "E01"), ("qThreadExtraInfo,0", "E01"),
    ],
)  # fmt: skip
@pytest.mark.commit
def test_what_makes_no_sense_is_answered(packet: str, answer: str, served: Client) -> None:
    assert served.ask(packet) == answer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with debugged(program(tmp_path_factory.mktemp("gdb") / "p.elf", ADD_ONE)) as (gdb, _):
        yield gdb


def test_broken_packets_are_asked_for_again_and_long_ones_end_the_run(tmp_path: Path) -> None:
    with debugged(program(tmp_path / "p.elf", ADD_ONE)) as (gdb, process):
        gdb.raw(b"noise$g#00")
        assert gdb.ask("?") == "T05thread:1;"
        gdb.raw(b"$" + b"m" * (1 << 16))
        assert process.wait(SECONDS) == 125


def test_a_port_that_is_taken_and_another_instruction_set_are_refused(tmp_path: Path) -> None:
    elf = program(tmp_path / "p.elf", ADD_ONE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = invoke("iss", elf, "--gdb", taken.getsockname()[1])
    assert (done.exit_code, "cannot wait for a debugger on port" in done.stderr) == (1, True)
    model = save(product(8, 24, 8), tmp_path / "net.onnx")
    assert invoke("compile", model, "--chip", "gemmini", "-o", tmp_path / "out").exit_code == 0
    done = invoke("iss", tmp_path / "out" / "cluster0" / "program.elf", "--gdb", 0)
    assert done.exit_code == 1
    assert "--gdb: needs a program for neuralscale-v1; has one for gemmini-v3" in done.stderr


@pytest.mark.skipif(not GDB, reason="needs gdb-multiarch")
def test_gdb_itself_breaks_and_steps(tmp_path: Path) -> None:
    elf = program(tmp_path / "p.elf", ADD_ONE)
    command = [sys.executable, "-m", "dsa_sched", "iss", str(elf), "--gdb", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = process.stderr.readline().split(":")[-1].strip()
        asked = (f"target remote 127.0.0.1:{port}", f"break *{CODE + 8:#x}", "continue", "stepi", "print $a1",
                 "info threads", "kill")  # fmt: skip
        words = [word for line in asked for word in ("-ex", line)]
        done = subprocess.run([GDB, "-batch", *words, str(elf)], capture_output=True, text=True, timeout=SECONDS)
        assert "$1 = 1" in done.stdout, done.stderr
        process.wait(SECONDS)


@pytest.mark.skipif(not GDB, reason="needs gdb-multiarch")
def test_gdb_itself_stops_at_operators_and_steps_through_lines(tmp_path: Path) -> None:
    made = invoke("compile", save(classifier(), tmp_path / "net.onnx"), "--chip", "stcp920", "--level", "O0",
                  "-o", tmp_path / "out")  # fmt: skip
    assert made.exit_code == 0, made.stderr
    folder = tmp_path / "out" / "cluster0"
    text = (folder / "program.s").read_text().splitlines()
    begins = [number for number, line in enumerate(text, 2) if line == "    # conv2"]
    command = [sys.executable, "-m", "dsa_sched", "iss", str(folder / "program.elf"), "--cores", "8", "--gdb", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = process.stderr.readline().split(":")[-1].strip()
        asked = (f"target remote 127.0.0.1:{port}", "break conv2", "continue", "continue", "step", "step",
                 "kill")  # fmt: skip
        words = [word for line in asked for word in ("-ex", line)]
        command = [GDB, "-nx", "-batch", "-cd", str(folder), *words, "program.elf"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        process.wait(SECONDS)
    hits = re.findall(
        r"^Thread \d hit Breakpoint 1(?:\.\d)?, conv2 \(\) at program\.s:(\d+)$", done.stdout, re.MULTILINE
    )
    assert [int(line) for line in hits] == begins, done.stdout + done.stderr
    shown = [f"{line}\t{text[line - 1]}" for line in range(begins[-1], begins[-1] + 3)]
    assert "\n".join(shown) in done.stdout
