"""The text form of programs, and that compiling is a function: equal input, equal bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.lab.readers.programs import parse_program
from isched.program.program import Program
from partitioner.ir.graph_text import parse_graph
from partitioner.ir.plan import parse_plan
from partitioner.ir.text import TextError
from tests.chip_runs import Compiled, compile_graph, small_chip
from tests.small_graphs import GraphBuilder

ROOT = Path(__file__).resolve().parents[2]


def network() -> Compiled:
    builder = GraphBuilder('a "quoted" name, é')
    x = builder.input("x", 2, 20, 20, 16)
    first = builder.elementwise("relu", builder.conv(x, 32))
    grouped = builder.conv(first, 32, groups=4)
    joined = builder.concat(3, builder.elementwise("add", grouped, first), builder.pool("max_pool", first, (1, 1)))
    mean = builder.view(builder.pool("average_pool", joined, (20, 20)), 2, 64)
    out = builder.softmax(builder.matmul(mean, builder.normal(64, 10)))
    return compile_graph(*builder.build(out), small_chip(4, 64 << 10, 16 << 10, 16 << 10, 128 << 10))


def digest() -> str:
    """Of everything that compiling makes."""
    compiled = network()
    parts = (str(compiled.graph), str(compiled.plan), str(compiled.program))
    sha = hashlib.sha256("".join(parts).encode())
    for name, data in sorted(compiled.files.files.items()):
        sha.update(name.encode() + data)
    return sha.hexdigest()


def test_graph_plan_and_program_read_back_from_their_text() -> None:
    compiled = network()
    assert parse_graph(str(compiled.graph)) == compiled.graph
    assert parse_plan(str(compiled.plan)) == compiled.plan
    parsed = parse_program(str(compiled.program))
    assert parsed == compiled.program
    assert str(parsed) == str(compiled.program)


def test_an_empty_program() -> None:
    program = Program("nothing", "chip", 0, "sync", (), ())
    assert parse_program(str(program)) == program


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("  instr opcode=3", "line 2.*complete instr line"),
        ("  jump to=1", "line 2.*program, place, core or instr.*jump"),
        ("  core id=0\n    instr engine=", "line 3.*JSON value for engine"),
        ('  place tensor="x" kind="input" memory="DDR" offset_bytes="no" size_bytes=1 of=""', "line 2.*an integer"),
    ],
)
def test_damaged_text_names_the_line(line: str, message: str) -> None:
    header = 'program name="p" chip="c" cluster=0 barrier="sync"\n'
    with pytest.raises(TextError, match=message):
        parse_program(header + line)


def test_text_without_a_header() -> None:
    with pytest.raises(TextError, match="program line first"):
        parse_program("")


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
@pytest.mark.commit
def test_the_same_bytes_under_another_hash_seed(hash_seed: str, tmp_path: Path) -> None:
    code = "from tests.isched.test_program import digest; print(digest())"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest()
