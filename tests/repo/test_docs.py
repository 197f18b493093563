"""The documents tell the truth: README snippets run, every command is mentioned, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dsa_sched.artifact.runner import PLACEHOLDERS
from dsa_sched.cli import cli
from tests.small_models import classifier, save

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERIFY = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")


def snippets(language: str) -> list[str]:
    """Fenced blocks of the README that are marked as runnable."""
    found = re.findall(rf"<!-- runnable -->\n```{language}\n(.*?)```", README, re.DOTALL)
    assert found
    return found


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the README's reader has: a model and its input."""
    folder = tmp_path_factory.mktemp("reader")
    save(classifier(), folder / "mine.onnx")
    np.savez(folder / "x.npz", x=np.zeros((1, 3, 12, 12), np.float32))
    shutil.copytree(ROOT / "samples", folder / "samples")
    return folder


def test_shell_snippets_run(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    for line in "".join(snippets("sh")).splitlines():
        words = shlex.split(line)
        assert words[0] == "dsa-sched"
        done = CliRunner().invoke(cli, words[1:])
        assert done.exit_code == 0, (line, done.output, done.exception)
    assert np.load(workplace / "y.npz")["y"].shape == (1, 10)


def test_the_commands_of_the_runners_contract_run(workplace: Path) -> None:
    """With the page's own adapter; the values are those of the built-in simulator."""
    page = (ROOT / "docs" / "runner.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"<!-- runnable -->\n```sh\n(.*?)```", page, re.DOTALL)
    (adapter,) = re.findall(r"<!-- runnable: adapter.py -->\n```python\n(.*?)```", page, re.DOTALL)
    (workplace / "adapter.py").write_text(adapter, encoding="utf-8")
    (workplace / "bin").mkdir()
    for name, words in (("python", ""), ("dsa-sched", " -m dsa_sched")):
        (workplace / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{words} "$@"\n')
        (workplace / "bin" / name).chmod(0o755)
    paths = f"{workplace / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    before = (
        "dsa-sched compile mine.onnx --chip stcp920 -o mine.out\n"
        "dsa-sched run mine.out --input x.npz --output ours.npz\n"
    )
    assert len(commands.splitlines()) == 2
    for line in (before + commands).splitlines():
        done = subprocess.run(
            shlex.split(line), cwd=workplace, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stderr, done.stdout)
    ours, theirs = np.load(workplace / "ours.npz"), np.load(workplace / "y.npz")
    assert {name: ours[name].tobytes() for name in ours} == {name: theirs[name].tobytes() for name in theirs}


def test_every_placeholder_is_in_the_runners_contract() -> None:
    page = (ROOT / "docs" / "runner.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\{[a-z]+\})` \|", page, re.MULTILINE)) == set(PLACEHOLDERS)


def test_python_snippets_run(workplace: Path) -> None:
    for code in snippets("python"):
        done = subprocess.run([sys.executable, "-c", code], cwd=workplace, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def commands() -> Iterator[str]:
    for name, command in cli.commands.items():
        children = getattr(command, "commands", None)
        yield from (f"{name} {child}" for child in children) if children else (name,)


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"`dsa-sched {command}" in README


def test_examples_in_help_use_commands_and_options_that_exist() -> None:
    """Each line of a help text that starts with the program's name parses, up to files that are not there."""
    checked = 0
    for name, command in cli.commands.items():
        for line in (command.help or "").splitlines():
            words = shlex.split(line) if line.strip().startswith("dsa-sched ") else []
            if words:
                result = CliRunner().invoke(cli, [*words[1:], "--help"])
                assert result.exit_code == 0, (name, line)
                known = {option for p in cli.commands[words[1]].params for option in (*p.opts, *p.secondary_opts)}
                assert {word for word in words[2:] if word.startswith("-")} <= known, (name, line)
                checked += 1
    assert checked >= 6


def test_the_example_table_has_the_headings_of_today(workplace: Path) -> None:
    command = [sys.executable, "-m", "dsa_sched", "verify", "mine.onnx", "--chip", "stcp920"]
    lines = subprocess.run(command, cwd=workplace, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[2].split() == next(line for line in README.splitlines() if line.startswith("    layer ")).split()
    assert lines[-1] == "passed"


def test_every_key_of_the_json_report_is_documented(workplace: Path) -> None:
    command = [sys.executable, "-m", "dsa_sched", "verify", "mine.onnx", "--chip", "stcp920", "--json", "r.json"]
    subprocess.run(command, cwd=workplace, capture_output=True, check=True)
    report = json.loads((workplace / "r.json").read_text(encoding="utf-8"))
    keys = {*report, *report["layers"][0], *report["layers"][0]["work"], *report["logits"][0]}
    named = set(re.findall(r"`\.?(?:layers\[\]\.|logits\[\]\.)?([a-z0-9_]+)`", VERIFY))
    assert keys - named == set()


@pytest.mark.parametrize("document", [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))])
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (document.parent / link).exists(), link
