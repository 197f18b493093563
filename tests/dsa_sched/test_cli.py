"""The command line as a user meets it: help, listings, messages and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa_sched.cli import cli
from hw_models.loading import load_chip

STCP920 = (resources.files("hw_models") / "chips" / "stcp920.yaml").read_text(encoding="utf-8")


def invoke(*arguments: str) -> Result:
    """Run `dsa-sched` with these arguments; an exception that would be a traceback fails the test."""
    result = CliRunner().invoke(cli, arguments, prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_help_is_the_manual() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    said = (
        "model.onnx -> graph -> plan",
        "There is no default chip.",
        "0 done",
        "1 compile error",
        "2 usage",
        "3 mismatch",
        "4 inconclusive",
    )
    assert [part for part in said if part not in text] == []
    for name, command in cli.commands.items():
        assert f"  {name} " in result.stdout
        assert not command.get_short_help_str(60).endswith("..."), f"{name}: cut off in the list of commands"
        assert command.help


def test_every_command_and_every_option_explains_itself() -> None:
    def check(command: object, *names: str) -> None:
        assert command.help, names  # type: ignore[attr-defined]
        for parameter in command.params:  # type: ignore[attr-defined]
            if parameter.param_type_name == "option":
                assert parameter.help, (*names, parameter.name)
        for name, child in getattr(command, "commands", {}).items():
            check(child, *names, name)
        assert invoke(*names, "--help").exit_code == 0

    check(cli)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from dsa_sched.cli import cli; "
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0; "
        "heavy = {'numpy', 'numba', 'tvm', 'onnx', 'onnxruntime', 'pydantic', 'rich', 'sympy'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_module_runs_as_the_script_does() -> None:
    run = subprocess.run([sys.executable, "-m", "dsa_sched", "chips"], capture_output=True, text=True, check=True)
    assert run.stdout == invoke("chips").stdout


def test_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert invoke("--version").stdout == f"dsa-sched, version {version('dsa-sched')}\n"


@pytest.mark.parametrize(
    "arguments",
    [["frobnicate"], ["chip"], ["chip", "show"], ["chip", "show", "a", "b"], ["chip", "check"], ["chips", "--frob"]],
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Usage: dsa-sched" in result.stderr


def test_chips_lists_each_built_in_chip_on_a_line() -> None:
    result = invoke("chips")
    assert result.exit_code == 0
    assert re.search(r"^stcp920 +STCP920 card \(P920 chip\), 4 clusters of 8 NeuralScale", result.stdout, re.MULTILINE)


def test_chip_show_prints_the_text_form_of_a_name_and_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STCP920, encoding="utf-8")
    shown = invoke("chip", "show", "stcp920").stdout
    assert shown.startswith(str(load_chip("stcp920")))
    assert invoke("chip", "show", str(file)).stdout == shown


def test_chip_show_as_json_has_every_field() -> None:
    shown = json.loads(invoke("chip", "show", "stcp920", "--json").stdout)
    assert shown == load_chip("stcp920").model_dump(mode="json")


def test_chip_check_says_good_or_every_problem_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STCP920, encoding="utf-8")
    good = invoke("chip", "check", str(file))
    assert (good.exit_code, good.stderr) == (0, "")
    assert good.stdout.startswith(f"{file}: good; chip stcp920, isa neuralscale-v1, 32 cores, hash ")

    file.write_text("name: 3\n" + STCP920.replace("clusters: 4", "cluster: 4"), encoding="utf-8")
    bad = invoke("chip", "check", str(file))
    assert (bad.exit_code, bad.stdout) == (1, "")
    assert f"dsa-sched: error: {file}:40: name: given twice, first in line 1" in bad.stderr


@pytest.mark.parametrize("batch", [10**9, 2**63 - 1, 2**63])
@pytest.mark.parametrize("command", ["compile", "explain", "place", "verify"])
def test_a_batch_is_of_nine_digits_at_most(command: str, batch: int) -> None:
    result = invoke(command, "squeezenet", "--batch", str(batch))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "1<=x<=999999999" in result.stderr


@pytest.mark.parametrize(
    ("field", "changed", "said"),
    [
        (
            "isa: neuralscale-v1",
            "isa: neuralscale-v2",
            "needs a code generator for neuralscale-v2; has gemmini-v3, neuralscale-v1, sm_80, sm_90a; did you mean "
            "'neuralscale-v1'? Otherwise install",
        ),
        ("clusters: 4", "clusters: 9", "no machine code for neuralscale-v1 can be made: clusters is 9; at most 4"),
    ],
)
def test_chip_check_says_what_no_code_can_be_made_for(tmp_path: Path, field: str, changed: str, said: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STCP920.replace(field, changed), encoding="utf-8")
    checked = invoke("chip", "check", str(file))
    assert checked.exit_code == 0
    first, note = checked.stdout.splitlines()
    assert first.startswith(f"{file}: good; ")
    assert note.startswith(f"{file}: note: plans only, no machine code: chip stcp920: {said}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chip", "show", "stcp90"], "chip 'stcp90': needs the name of a built-in chip or the path of a chip file"),
        (["chip", "show", "./none.yaml"], "none.yaml: needs a chip file; has no such file; check the path"),
        (["chip", "check", "."], ".: needs a chip file; has a folder; check the path"),
    ],
)
def test_a_users_error_is_one_message_on_standard_error_and_exit_1(arguments: list[str], said: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"dsa-sched: error: {said}")
    assert "Traceback" not in result.stderr
