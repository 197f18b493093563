"""Loops in machine code, `--unroll` and `time --warm` as a user meets them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from codegen.riscv.elf import read_elf
from dsa_sched.cli import cli
from tests.small_models import classifier, save


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier(), tmp_path_factory.mktemp("model") / "classifier.onnx")


@pytest.fixture(scope="module")
def rolled(model: Path) -> Path:
    folder = model.parent / "rolled"
    done = invoke("compile", model, "--chip", "stcp920", "--level", "O2", "-o", folder)
    assert done.exit_code == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def straight(model: Path) -> Path:
    folder = model.parent / "straight"
    done = invoke("compile", model, "--chip", "stcp920", "--level", "O2", "--unroll", "-o", folder)
    assert done.exit_code == 0, done.stderr
    return folder


def code_bytes(folder: Path) -> int:
    segments = read_elf((folder / "cluster0" / "program.elf").read_bytes()).segments
    return sum(len(segment.data) for segment in segments if segment.executable)


def test_code_has_loops_unless_told_not_to(model: Path, rolled: Path, straight: Path) -> None:
    asked_for = ("compile", model, "--chip", "stcp920", "--level", "O2", "--roll", "-o", model.parent / "asked")
    assert invoke(*asked_for).exit_code == 0
    elf = (model.parent / "asked" / "cluster0" / "program.elf").read_bytes()
    assert elf == (rolled / "cluster0" / "program.elf").read_bytes()
    assert 2 * code_bytes(rolled) < code_bytes(straight)


def test_operators_are_named_in_timelines_and_listings(rolled: Path, straight: Path) -> None:
    listings = [invoke("disasm", folder / "cluster0" / "program.elf").stdout for folder in (rolled, straight)]
    names = [set(re.findall(r"<cores?\d*\.\d+\.([^>]+)>:", listing)) for listing in listings]
    assert len(names[0]) > 3
    assert names[0] == names[1]
    shown = [
        invoke("timeline", folder, "--chip", "stcp920", "--by", "operator").stdout for folder in (rolled, straight)
    ]
    parts = [{line.split()[0] for line in text.splitlines() if line.strip()} for text in shown]
    assert names[0] <= parts[0]
    assert names[1] <= parts[1]


def test_a_rolled_program_verifies(model: Path) -> None:
    done = invoke("verify", model, "--chip", "stcp920", "--level", "O0", "--roll")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_a_target_without_instructions_refuses_loops(model: Path) -> None:
    refused = invoke("compile", model, "--chip", "a100", "--roll", "-o", model.parent / "gpu")
    assert refused.exit_code == 1
    assert "--roll: needs a target that lowers plans to instructions" in refused.stderr


def test_time_says_what_was_fetched_and_a_warm_run_fetches_nothing(rolled: Path, tmp_path: Path) -> None:
    cold = invoke("time", rolled, "--chip", "stcp920", "--json", tmp_path / "cold.json")
    assert "lines were not in the instruction caches; fetching them took 0 cycles, 0.0% of" in cold.stdout
    warm = invoke("time", rolled, "--chip", "stcp920", "--warm", "--json", tmp_path / "warm.json")
    assert "instruction caches" not in warm.stdout
    lines = [json.loads((tmp_path / f"{name}.json").read_text())["programs"][0]["fetched_lines"] for name in
             ("cold", "warm")]  # fmt: skip
    assert min(lines[0]) > 0
    assert set(lines[1]) == {0}


def test_misses_of_a_chip_file_cost_time(rolled: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    (tmp_path / "cold.yaml").write_text(text.replace("miss_cycles: 0 ", "miss_cycles: 140 "), encoding="utf-8")
    times = []
    for chip in ("stcp920", tmp_path / "cold.yaml"):
        assert invoke("time", rolled, "--chip", chip, "--json", tmp_path / "time.json").exit_code == 0
        times.append(json.loads((tmp_path / "time.json").read_text()))
    (free,), (paid,) = (time["programs"] for time in times)
    assert paid["cycles"] > free["cycles"]
    assert paid["fetched_lines"] == free["fetched_lines"]
    assert all(cycles >= 140 * lines for cycles, lines in zip(paid["fetch_cycles"], paid["fetched_lines"], strict=True))


def test_a_chip_without_a_cache_is_never_warm(rolled: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    begin, end = text.index("    instruction_cache:"), text.index("  - kind: vector")
    (tmp_path / "bare.yaml").write_text(text[:begin] + text[end:], encoding="utf-8")
    refused = invoke("time", rolled, "--chip", tmp_path / "bare.yaml", "--warm")
    assert refused.exit_code == 1
    assert "needs cores with an instruction cache; has stcp920 without; leave --warm out" in refused.stderr
