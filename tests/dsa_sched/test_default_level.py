"""What a user gets who names no level: the same from every command and from Python, scheduled, and interruptible."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import dsa_sched
from dsa_sched.api.options import compile_options
from dsa_sched.artifact.format import Artifact
from dsa_sched.cli import cli
from dsa_sched.commands.compile import compile_command
from dsa_sched.commands.explain import explain
from dsa_sched.commands.verify import verify
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.placement.model.scenario import ChipDevice
from dsa_sched.stages.compilation import CompileOptions
from partitioner.ir.plan import parse_plan
from partitioner.planners.levels import AUTO, DEFAULT_LEVEL, PLANNERS, Auto, Images, Segments
from tests.interrupts import heed_interrupts
from tests.small_models import classifier, save
from tests.small_networks import save_small_network


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier("n"), tmp_path_factory.mktemp("model") / "classifier.onnx")


def invoke(*words: object) -> Result:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done


def level_option(command: click.Command) -> object:
    return next(param.default for param in command.params if param.name == "level")


def test_there_is_one_default() -> None:
    assert DEFAULT_LEVEL == AUTO
    assert {level_option(command) for command in (compile_command, verify, explain)} == {DEFAULT_LEVEL}
    assert compile_options({}).planner.name == DEFAULT_LEVEL
    assert CompileOptions().planner.name == DEFAULT_LEVEL
    assert ChipDevice(kind="chip", name="npu", chip="stcp920").level == DEFAULT_LEVEL


def test_the_options_of_planners_are_those_of_their_classes_alone() -> None:
    of_planners = {field.name for kind in (*PLANNERS.values(), Images, Segments) for field in fields(kind)}
    assert of_planners == {"spill", "chunks", "groups", "parts"}
    assert not of_planners & {field.name for field in fields(CompileOptions)}


@pytest.mark.commit
def test_it_is_what_the_level_by_its_name_makes(model: Path, tmp_path: Path) -> None:
    said = compile_model(model, "stcp920", CompileOptions(Auto(), batch=2))
    taken = compile_model(model, "stcp920", CompileOptions(batch=2))
    assert taken.artifact.manifest == said.artifact.manifest
    assert taken.options.schedule is True
    assert compile_model(model, "stcp920", CompileOptions(batch=2, schedule=False)).options.schedule is False
    invoke("compile", model, "--chip", "stcp920", "--batch", 1, "-o", tmp_path / "out")
    assert dsa_sched.compile(model, "stcp920", batch=1).manifest == Artifact.load(tmp_path / "out").manifest


@pytest.mark.commit
def test_commands_choose_and_say_what(model: Path) -> None:
    plan = parse_plan(invoke("compile", model, "--chip", "stcp920", "--batch", 1, "--print", "plan").stdout)
    chosen = next(decision for decision in plan.decisions if decision.subject == "level")
    assert chosen.verdict == f"{plan.level}, by auto"
    explained = invoke("explain", model, "--chip", "stcp920", "--batch", 1, "--full").stdout
    assert f"{chosen.verdict}: {chosen.reason}" in explained
    report = invoke("verify", model, "--chip", "stcp920", "--batch", 1).stdout
    assert report.startswith(f"classifier on stcp920, {plan.level}, batch 1, ")
    assert f"program {plan.level}, scheduled" in report


@pytest.mark.parametrize("command", ["compile", "explain", "verify"])
def test_help_teaches_it(command: str) -> None:
    shown = " ".join(invoke(command, "--help").stdout.split())
    assert f"[default: {DEFAULT_LEVEL}]" in shown
    assert "--level O0" in shown


@pytest.mark.parametrize("command", ["explain", "verify"])
def test_other_commands_take_levels_by_name(model: Path, command: str) -> None:
    said = invoke(command, model, "--chip", "stcp920", "--batch", 1, "--level", "O0").stdout
    assert said.startswith("classifier on stcp920, O0, ")


@pytest.mark.commit
def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    """The whole command, by the signal that a terminal sends."""
    network = save_small_network("squeezenet", 32, tmp_path, "r9")
    command = (sys.executable, "-m", "dsa_sched", "compile", network, "--chip", "stcp920", "-o", tmp_path / "out")
    run = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    assert run.stderr is not None
    line = next(line for line in run.stderr if "best so far" in line)
    run.send_signal(signal.SIGINT)
    stdout, stderr = run.communicate(timeout=300)
    assert run.returncode == 0, stderr
    said = re.search(r"best so far .+: ([\d,]+) cycles\n", line)
    warned = re.search(
        r"warning: the search of level auto was interrupted: level: .+, by auto: ([\d,]+) cycles", stderr
    )
    assert said is not None
    assert warned is not None
    kept, known = (int(found.group(1).replace(",", "")) for found in (warned, said))
    assert kept <= known
    artifact = Artifact.load(tmp_path / "out")
    assert f", {artifact.manifest.level}, batch 1: " in stdout
