"""DWARF in the executables that `dsa-sched compile` writes: line of the assembly text and operator of each address."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from struct import unpack_from

import pytest

from tests.codegen.gemmini.quantised_networks import product
from tests.dsa_sched.test_cli_programs import invoke
from tests.small_models import classifier, save

ADDR2LINE = shutil.which("riscv64-unknown-elf-addr2line") or shutil.which("addr2line") or ""
OBJDUMP = shutil.which("riscv64-unknown-elf-objdump") or ""
GNU_AS = shutil.which("riscv64-unknown-elf-as") or ""
NAMES = {"conv1": "/block.0/conv1:0", "conv2": "größe 2", "sub": "a\nb\0c"}
"""Names of operators as exporters, and nobody, write them; what cannot be printed is shown escaped."""
SHOWN = {"a\nb\0c": r"a\nb\x00c"}


STCP920 = ("stcp920", "stcp920 --unroll")


@dataclass(frozen=True)
class ProgramWithLines:
    """A program's file, its assembly text, its (start, end, operator) by the source map, and its sections as readelf
    would list them: name to (flags, content)."""

    elf: Path
    text: tuple[str, ...]
    ranges: tuple[tuple[int, int, str], ...]
    sections: dict[str, tuple[int, bytes]]


@pytest.fixture(scope="module", params=[*STCP920, "gemmini"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ProgramWithLines:
    folder = tmp_path_factory.mktemp("lines")
    chip, *options = request.param.split()
    model = product(8, 24, 8) if chip == "gemmini" else classifier()
    for node in model.graph.node:
        node.name = NAMES.get(node.name, node.name)
    done = invoke("compile", save(model, folder / "net.onnx"), "--chip", chip, "--level", "O0", "--no-cache", *options,
                  "-o", folder / "out")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    cluster = folder / "out" / "cluster0"
    ranges = json.loads((cluster / "source_map.json").read_text())["ranges"]
    text = (cluster / "program.s").read_text(encoding="utf-8").split("\n")
    elf = cluster / "program.elf"
    found = tuple((start, end, SHOWN.get(name, name)) for start, end, _, name in ranges)
    return ProgramWithLines(elf, tuple(text), found, sections(elf.read_bytes()))


def sections(elf: bytes) -> dict[str, tuple[int, bytes]]:
    """Flags and content of each section that has a name."""
    wide = elf[4] == 2
    (table,) = unpack_from("<Q" if wide else "<I", elf, 40 if wide else 32)
    _, count, names = unpack_from("<HHH", elf, 58 if wide else 46)
    form, size = ("<IIQQQQ", 64) if wide else ("<IIIIII", 40)
    headers = [unpack_from(form, elf, table + size * number) for number in range(count)]
    start = headers[names][4]
    found = {}
    for name, kind, flags, _, offset, length in headers[1:]:
        text = elf[start + name :].split(b"\0", 1)[0].decode()
        found[text] = flags, b"" if kind == 8 else elf[offset : offset + length]
    return found


def told_lines(table: bytes, address_bytes: int) -> dict[int, int]:
    """Address to line by a line table of version 4 in the few opcodes that ours has; the end of the code has line 0."""
    length, version, header_bytes = unpack_from("<IHI", table)
    assert (length, version) == (len(table) - 4, 4)
    word_bytes, _, _, base, line_range, first_special = unpack_from("<BBBbBB", table, 10)
    place: int = 10 + header_bytes
    address, line = 0, 1
    told: dict[int, int] = {}

    def number(signed: bool) -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = table[place]
            place, value, shift = place + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value

    while place < len(table):
        opcode = table[place]
        place += 1
        if opcode >= first_special:
            address += word_bytes * ((opcode - first_special) // line_range)
            line += base + (opcode - first_special) % line_range
            told[address] = line
        elif opcode == 0:
            size, kind = table[place : place + 2]
            if kind == 1:
                told[address] = 0
                assert place + 2 == len(table)
            else:
                assert (kind, size) == (2, 1 + address_bytes)
                address = int.from_bytes(table[place + 2 : place + 1 + size], "little")
            place += 1 + size
        elif opcode == 1:
            told[address] = line
        elif opcode == 2:
            address += word_bytes * number(signed=False)
        else:
            assert opcode == 3
            line += number(signed=True)
    return told


def test_each_word_has_its_line_under_the_comment_of_its_operator(compiled: ProgramWithLines) -> None:
    told = told_lines(compiled.sections[".debug_line"][1], 8 if compiled.elf.read_bytes()[4] == 2 else 4)
    start, code = min(told), compiled.sections[".text"][1]
    assert list(told) == list(range(start, start + len(code) + 4, 4))
    assert told.popitem() == (start + len(code), 0)
    numbers = list(told.values())
    assert numbers == sorted(set(numbers))
    written = [number for number, line in enumerate(compiled.text, 1) if re.match(r"    [a-z.]", line)]
    options = [number for number in written if re.match(r"    \.(option|text)", compiled.text[number - 1])]
    assert numbers == sorted({*written} - {*options})
    for first, end, name in compiled.ranges:
        if name:
            (comment,) = {last_comment(compiled.text, told[address]) for address in range(first, end, 4)}
            assert comment == name


def last_comment(text: tuple[str, ...], line: int) -> str:
    """The comment that stands by itself next before a line, without those that stand for far jumps."""
    own = (text[number - 1] for number in range(line, 0, -1))
    return next(found.removeprefix("    # ") for found in own if found.startswith("    # "))


@pytest.mark.skipif(not ADDR2LINE, reason="needs addr2line")
def test_addr2line_names_operator_and_line(compiled: ProgramWithLines) -> None:
    wanted = [(place, name) for start, end, name in compiled.ranges if name for place in (start, end - 4)]
    asked = [ADDR2LINE, "-f", "-e", str(compiled.elf), *(f"{place:#x}" for place, _ in wanted)]
    said = subprocess.run(asked, capture_output=True, encoding="utf-8", check=True).stdout.splitlines()
    assert said[::2] == [name for _, name in wanted]
    for place, (_, name) in zip(said[1::2], wanted, strict=True):
        file, _, line = place.partition(":")
        assert (file, last_comment(compiled.text, int(line))) == ("./program.s", name)


@pytest.mark.skipif(not (GNU_AS and OBJDUMP), reason="needs binutils-riscv64-unknown-elf")
@pytest.mark.parametrize("compiled", STCP920, indirect=True)
def test_lines_are_those_that_gnu_as_writes(compiled: ProgramWithLines, tmp_path: Path) -> None:
    made = tmp_path / "program.o"
    options = ["-g", "-march=rv32imaf_zicsr", "-mabi=ilp32f"]
    subprocess.run([GNU_AS, *options, str(compiled.elf.with_name("program.s")), "-o", str(made)], check=True)
    ours, theirs = decoded(compiled.elf), decoded(made)
    base = min(ours)
    assert len(theirs) > 100
    assert {address: ours[base + address] for address in theirs} == theirs
    missed = [compiled.text[ours[address] - 1] for address in ours if address - base not in theirs]
    assert all(line.startswith("    .4byte") for line in missed)


def decoded(elf: Path) -> dict[int, int]:
    """Address to line, without the end of the code, as objdump reads it."""
    said = subprocess.run([OBJDUMP, "--dwarf=decodedline", str(elf)], capture_output=True, encoding="utf-8", check=True)
    assert "warning" not in said.stderr.lower(), said.stderr
    rows = re.findall(r"^program\.s +(\d+) +(0x[0-9a-f]+|0) ", said.stdout, re.MULTILINE)
    return {int(address, 16): int(line) for line, address in rows}


def test_debug_sections_take_no_memory_and_little_of_the_file(compiled: ProgramWithLines) -> None:
    debug = {name: flags for name, (flags, _) in compiled.sections.items() if name.startswith(".debug")}
    assert debug == dict.fromkeys((".debug_abbrev", ".debug_info", ".debug_line", ".debug_str"), 0)
    code, lines = (len(compiled.sections[name][1]) for name in (".text", ".debug_line"))
    assert lines < code / 4 + 100
