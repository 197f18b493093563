"""`dsa-sched place` as a user meets it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx import helper

from benchmarks.lab.readers.schedules import parse_schedule, parse_task_graph
from dsa_sched.cli import cli
from dsa_sched.placement.methods.registry import METHODS
from dsa_sched.placement.mlir.convert import parse_module, problem_of, schedule_of
from dsa_sched.placement.schedule.schedule import verify_schedule
from tests.placement_models import draw, model_of
from tests.small_models import classifier, save

SCENARIO = """
schema_version: 1
name: two
description: Two devices in numbers only
devices:
  - {kind: roofline, name: slow, roofline: {flops_per_second: 1e9, bytes_per_second: 1e9}}
  - {kind: roofline, name: fast, streams: 2, roofline: {flops_per_second: 1e10, bytes_per_second: 1e10}}
links:
  - {between: [slow, fast], latency_us: 1, gigabytes_per_second: 1}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A model and a scenario."""
    (tmp_path / "two.yaml").write_text(SCENARIO)
    return str(save(classifier(), tmp_path / "mine.onnx")), str(tmp_path / "two.yaml")


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["place", *arguments], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_model_is_placed(files: tuple[str, str], tmp_path: Path) -> None:
    model, scenario = files
    trace, table = tmp_path / "trace.json", tmp_path / "table.json"
    result = invoke(model, "--scenario", scenario, "--method", "heft", "-o", str(trace), "--json", str(table))
    assert result.exit_code == 0, result.output
    assert re.search(r"heft: (optimal for|no schedule of) th", result.stdout)
    assert "slow" in result.stdout
    assert "fast" in result.stdout
    assert json.loads(trace.read_text())["traceEvents"]
    figures = json.loads(table.read_text())
    assert [row["method"] for row in figures["methods"]] == ["heft"]
    assert figures["methods"][0]["makespan_ns"] >= figures["methods"][0]["bound_ns"] > 0


def test_what_is_emitted_can_be_read_back(files: tuple[str, str]) -> None:
    model, scenario = files
    texts = {
        form: invoke(model, "--scenario", scenario, "--method", "heft", "--emit", form).stdout
        for form in ("schedule", "tasks", "mlir", "mlir-generic")
    }
    schedule, graph = parse_schedule(texts["schedule"]), parse_task_graph(texts["tasks"])
    for form in ("mlir", "mlir-generic"):
        module = parse_module(texts[form])
        assert schedule_of(module) == schedule
        assert problem_of(module).graph == graph
        verify_schedule(schedule, problem_of(module))


def test_stages_are_emitted(files: tuple[str, str]) -> None:
    model, scenario = files
    tasks = parse_task_graph(invoke(model, "--scenario", scenario, "--method", "heft", "--emit", "tasks").stdout).tasks
    text = invoke(model, "--scenario", scenario, "--method", "ios", "--emit", "stages").stdout
    assert text.splitlines()[0].split() == ["stage", "start", "us", "us", "tasks"]
    assert all(text.count(task.name) == 1 for task in tasks if not task.is_end)
    result = invoke(model, "--scenario", scenario, "--method", "heft", "--emit", "stages")
    assert result.exit_code == 1
    assert "needs stages; has none; try --method ios" in result.stderr


def test_methods_are_compared(files: tuple[str, str]) -> None:
    model, scenario = files
    result = invoke(model, "--scenario", scenario, "--compare", "--evaluations", "50")
    assert result.exit_code == 0, result.output
    for name in METHODS:
        assert f"\n{name} " in result.stdout or f"\n{name}: " in result.stdout


def test_a_placement_is_measured_and_run(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sessions of onnxruntime as devices: outputs are those of one session on the whole model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    real = tmp_path / "real.yaml"
    devices = "\n".join(f"  - {{kind: onnxruntime, name: {name}, threads: 1}}" for name in ("one", "two"))
    link = "  - {between: [one, two], latency_us: 1, gigabytes_per_second: 1, measured: true}"
    real.write_text(f"schema_version: 1\nname: real\ndescription: Twice\ndevices:\n{devices}\nlinks:\n{link}\n")
    table = tmp_path / "table.json"
    arguments = ("--scenario", str(real), "--method", "duet", "--measure", "--run", "--json", str(table))
    result = invoke(files[0], *arguments)
    assert result.exit_code == 0, result.output
    assert "prices: one, two by runs on this machine" in result.stdout
    assert "outputs: " in result.stdout
    run = json.loads(table.read_text())["run"]
    assert run["makespans_ns"] == sorted(run["makespans_ns"])
    assert run["output_difference"] < 1e-5


def test_options_may_have_exponents(files: tuple[str, str]) -> None:
    """As messages about their ranges write them."""
    arguments = ("--method", "exact", "--option", "effort=1e-9", "--evaluations", "1")
    assert invoke(files[0], "--scenario", files[1], *arguments).exit_code == 0


def test_a_run_is_told_beside_what_is_emitted(files: tuple[str, str]) -> None:
    result = invoke(files[0], "--scenario", files[1], "--method", "heft", "--emit", "schedule", "--run")
    parse_schedule(result.stdout)
    assert "outputs: " in result.stderr


CHIPPED = """
schema_version: 1
name: chipped
description: A processor beside a chip that seems faster
devices:
  - {kind: onnxruntime, name: cpu, roofline: {flops_per_second: 1e6, bytes_per_second: 1e6}}
  - {kind: chip, name: npu, chip: stcp920}
links:
  - {between: [cpu, npu], latency_us: 1, gigabytes_per_second: 1}
"""


NO_LOG = "log needs a table of 128 KiB, for which the weights part of L1 must have 256 KiB and has 64 KiB"


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A model of which the chip takes the first operator alone, and a scenario with it. It has no room for the table
    of the logarithm, a task of its own as what it reads and makes are outputs, too; there is no rule for the last."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    described = (resources.files("hw_models") / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    small = described.replace("1_310_720", "1_114_112").replace("262_144     # 0.25", "65_536     # 64 KiB, not")
    (tmp_path / "small.yaml").write_text(small, encoding="utf-8")
    (tmp_path / "chipped.yaml").write_text(CHIPPED.replace("chip: stcp920", f"chip: {tmp_path / 'small.yaml'}"))
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["p"], "flat"),
        helper.make_node("Sigmoid", ["p"], ["a"], "positive"),
        helper.make_node("Log", ["a"], ["c"], "log"),
        helper.make_node("Reshape", ["c", "line"], ["d"], "view"),
        helper.make_node("Det", ["d"], ["y"], "volume"),
    ]
    shapes = {"line": np.array([4, 8, 8])}
    model = model_of(nodes, {"x": (1, 3, 8, 8)}, ["y", "a", "c"], v=draw(4, 3, 1, 1), **shapes)
    return str(save(model, tmp_path / "mine.onnx")), str(tmp_path / "chipped.yaml")


def device_of(figures: Any, task: str) -> str:
    return parse_schedule("\n".join(figures["schedule"])).run_of[task].machine


def test_tasks_do_not_go_where_they_are_refused(refused: tuple[str, str], tmp_path: Path) -> None:
    """By rooflines, what the frontend and the chip's target say counts, and is said."""
    table = tmp_path / "table.json"
    result = invoke(refused[0], "--scenario", refused[1], "--method", "exact", "--estimate", "--json", str(table))
    figures = json.loads(table.read_text())
    tasks = {item["task"]: item["nodes"] for item in figures["tasks"]}
    assert tasks == {"flat": ["flat", "positive"], "log (+1)": ["log", "view", "volume"]}
    assert [device_of(figures, task) for task in tasks] == ["npu", "cpu"]
    reasons = {(item["device"], item["task"]): item["reason"] for item in figures["refusals"]}
    assert reasons == {
        ("npu", "log"): f"Log log (1x4x8x8): {NO_LOG}",
        ("npu", "volume"): "Det volume (4x8x8): this operator is not supported",
    }
    assert f"npu refuses 2 tasks: log ({reasons['npu', 'log']})" in result.stdout


def test_what_is_placed_can_be_run(refused: tuple[str, str]) -> None:
    """The search does not end in a refusal that could have been heard before it."""
    result = invoke(refused[0], "--scenario", refused[1], "--method", "exact", "--run")
    assert result.exit_code == 0, result.stderr
    assert "npu refuses 2 tasks" in result.stdout


def test_a_chip_that_is_being_designed_takes_what_can_be_read(refused: tuple[str, str], tmp_path: Path) -> None:
    """Nobody has said what a chip without a code generator cannot do."""
    described = (resources.files("hw_models") / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    (tmp_path / "paper.yaml").write_text(described.replace("isa: neuralscale-v1", "isa: abacus-v2"), encoding="utf-8")
    designed = tmp_path / "designed.yaml"
    designed.write_text(CHIPPED.replace("chip: stcp920", f"chip: {tmp_path / 'paper.yaml'}"))
    result = invoke(refused[0], "--scenario", str(designed), "--method", "heft")
    assert "npu refuses 1 task: volume (Det volume" in result.stdout


def test_what_compilers_refuse_is_said(refused: tuple[str, str], tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    result = invoke(refused[0], "--scenario", refused[1], "--method", "heft", "--measure", "--json", str(table))
    figures = json.loads(table.read_text())
    refusing = [item["task"] for item in figures["tasks"] if {"log", "volume"} & {*item["nodes"]}]
    assert {device_of(figures, task) for task in refusing} == {"cpu"}
    reasons = {(item["device"], item["task"]): item["reason"] for item in figures["refusals"]}
    assert reasons.keys() == {("npu", "log"), ("npu", "volume")}
    assert NO_LOG in reasons["npu", "log"]
    assert "npu refuses 2 tasks: log (" in result.stdout


def test_tasks_that_no_device_takes_are_named_with_reasons(refused: tuple[str, str], tmp_path: Path) -> None:
    only = tmp_path / "only.yaml"
    cpu = next(line for line in CHIPPED.splitlines() if "name: cpu" in line)
    only.write_text(Path(refused[1]).read_text().replace(cpu, "  - {kind: host, name: cpu}").lstrip())
    result = invoke(refused[0], "--scenario", str(only), "--method", "heft")
    assert result.exit_code == 1
    needs = "tasks log, volume: needs a device that accepts them; has for log npu: Log log (1x4x8x8)"
    assert needs in result.stderr


@pytest.mark.parametrize(
    ("chip", "loaded"),
    [pytest.param("stcp920", {"tvm", "dsa_sched.stages.targets"}, marks=pytest.mark.nightly), ("", set())],
)
def test_rooflines_load_only_what_chips_are_asked_with(refused: tuple[str, str], chip: str, loaded: set[str]) -> None:
    if not chip:
        other = "{kind: roofline, name: npu, roofline: {flops_per_second: 1e6, bytes_per_second: 1e6}}"
        Path(refused[1]).write_text(CHIPPED.replace("{kind: chip, name: npu, chip: stcp920}", other))
    program = (
        "import sys; from dsa_sched.cli import cli\n"
        "cli(sys.argv[1:], standalone_mode=False)\n"
        "asked = {'tvm', 'dsa_sched.stages.targets'}\n"
        "asked |= {'dsa_sched.devices.cuda_device', 'dsa_sched.devices.tvm_device'}\n"
        "print('loaded', *asked & {*sys.modules}, file=sys.stderr)"
    )
    arguments = ("place", refused[0], "--scenario", refused[1], "--method", "heft")
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert set(run.stderr.splitlines()[-1].split()) == {"loaded", *loaded}


def test_methods_are_listed() -> None:
    lines = invoke("--methods").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(METHODS)
    assert all(len(line.split()) > 3 for line in lines[1:])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("{model}",), 2, "A MODEL and a --scenario are needed."),
        (("{model}", "--scenario", "{scenario}", "--method", "heftt"), 1, "did you mean heft?"),
        (("{model}", "--scenario", "{scenario}", "--method", "heft", "--method", "duet"), 2, "--compare"),
        (("{model}", "--scenario", "{scenario}", "--option", "r"), 2, "NAME=NUMBER"),
        (("{model}", "--scenario", "{scenario}", "--option", "r=3", "--option", "r=4"), 2, "r is given twice"),
        (("{model}", "--scenario", "{scenario}", "--option", "enough_ns=-1"), 1, "from 0 to 1e+18; has -1"),
        (("{model}", "--scenario", "{scenario}", "--seconds", "nan"), 2, "a finite number"),
        (
            ("{model}", "--scenario", "{scenario}", "-o", "{folder}/one.json", "--json", "{folder}/./one.json"),
            2,
            "one.json is named twice",
        ),
        (
            ("{model}", "--scenario", "{scenario}", "--method", "ios", "--option", "rs=3"),
            1,
            "option rs: needs one of r, s",
        ),
        (("{model}", "--scenario", "{scenario}", "--method", "heft", "--option", "r=3"), 1, "heft takes no options"),
        (
            ("{model}", "--scenario", "{scenario}", "--method", "ios", "--option", "r=1000000000"),
            1,
            "needs a whole number from 0 to 62; has 1e+09",
        ),
        (("{model}", "--scenario", "nowhere.yaml", "--method", "heft"), 1, "nowhere.yaml"),
        (("nowhere.onnx", "--scenario", "{scenario}", "--method", "heft"), 1, "nowhere.onnx"),
        (("{model}", "--scenario", "{scenario}", "--json", "no/folder.json", "--method", "heft"), 1, "folder"),
        (("{model}", "--scenario", "{scenario}", "--json", "{folder}", "--method", "heft"), 1, "needs a file to write"),
        (("{model}", "--scenario", "{broken}", "--method", "heft"), 1, "broken.yaml:5"),
    ],
)
def test_mistakes_are_told(
    files: tuple[str, str], tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(SCENARIO.replace("flops_per_second: 1e9", "flops: 1e9").lstrip())
    names = {"model": files[0], "scenario": files[1], "broken": str(broken), "folder": str(tmp_path)}
    result = invoke(*(argument.format(**names) for argument in arguments))
    assert result.exit_code == code
    assert said in result.stderr
