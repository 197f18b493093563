"""The documents tell the truth: README snippets run, every command is mentioned, links lead somewhere.

`make docs` builds the site from the same pages; here is what can be checked without Sphinx.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from codegen.target_registry import target_members
from dsa_sched.artifact.format import Manifest, ProgramEntry
from dsa_sched.artifact.runner import PLACEHOLDERS
from dsa_sched.cli import cli
from hw_models.chip import Chip
from hw_models.parts import Link, Memory
from partitioner.planners.levels import EFFORTS, LEVEL_CHOICES
from tests.small_models import classifier, save

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
JSON = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "benchmarks" / "results").glob("*.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in page.parts),
]
MAKERS = runpy.run_path(str(ROOT / "docs" / "reference" / "generate.py"))
GENERATED = frozenset(MAKERS["PAGES"])
LONG_LINES = ("neuralscale-isa.md", "results", "architecture.md")
"""Pages whose lines a script writes, and the one that is mostly paths."""
LONGEST_LINE = 130
MOST_LINES = {"README.md": 150, "CHANGELOG.md": 120}


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
    np.savez(folder / "x.npz", x=np.random.default_rng(0).normal(size=(1, 3, 12, 12)).astype(np.float32))
    shutil.copytree(ROOT / "samples", folder / "samples")
    return folder


@pytest.fixture(scope="module")
def followed(workplace: Path) -> dict[str, str]:
    """The README's commands in order, carried out: line -> what it printed."""
    printed = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workplace)
        for line in "".join(snippets("sh")).splitlines():
            words = shlex.split(line)
            assert words[0] == "dsa-sched"
            done = CliRunner().invoke(cli, words[1:])
            assert done.exit_code == 0, (line, done.output)
            printed[line] = done.stdout
    return printed


@pytest.mark.commit
def test_shell_snippets_run(workplace: Path, followed: dict[str, str]) -> None:
    assert len(followed) >= 6
    with np.load(workplace / "y.npz") as outputs:
        assert outputs["y"].shape == (1, 10)


def stored(path: Path) -> dict[str, bytes]:
    """The arrays of an .npz file as bytes."""
    with np.load(path) as arrays:
        return {name: arrays[name].tobytes() for name in arrays}


@pytest.mark.usefixtures("followed")
@pytest.mark.commit
def test_the_commands_of_the_runners_contract_run(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the page's own adapter, on the README's artifact; the values are those of the built-in simulator."""
    page = (ROOT / "docs" / "runner.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"<!-- runnable -->\n```sh\n(.*?)```", page, re.DOTALL)
    (adapter,) = re.findall(r"<!-- runnable: adapter.py -->\n```python\n(.*?)```", page, re.DOTALL)
    shutil.copy(workplace / "y.npz", workplace / "ours.npz")
    (workplace / "adapter.py").write_text(adapter, encoding="utf-8")
    (workplace / "bin").mkdir()
    for name, words in (("python", ""), ("dsa-sched", " -m dsa_sched")):
        (workplace / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{words} "$@"\n')
        (workplace / "bin" / name).chmod(0o755)
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("PATH", f"{workplace / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert len(commands.splitlines()) == 2
    for line in commands.splitlines():
        done = CliRunner().invoke(cli, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output)
    assert stored(workplace / "ours.npz") == stored(workplace / "y.npz")


def test_the_commands_of_the_calibration_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the page's own table of counters."""
    page = (ROOT / "docs" / "how-to" / "calibrate.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"<!-- runnable: .* -->\n```sh\n(.*?)```", page, re.DOTALL)
    (counters,) = re.findall(r"<!-- runnable: counters.csv -->\n```text\n(.*?)```", page, re.DOTALL)
    (tmp_path / "counters.csv").write_text(counters, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert len(commands.splitlines()) == 4
    for line in commands.splitlines():
        done = CliRunner().invoke(cli, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output)


def test_every_placeholder_is_in_the_runners_contract() -> None:
    page = (ROOT / "docs" / "runner.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\{[a-z]+\})` \|", page, re.MULTILINE)) == set(PLACEHOLDERS)


@pytest.mark.commit
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


def test_nothing_promises_a_package_index() -> None:
    """dsa-sched is installed from a checkout: `pip install .`."""
    sources = (path for top in ("codegen", "dsa_sched", "hw_models") for path in (ROOT / top).rglob("*.py"))
    promise = re.compile(r"pip install (-\S+ )*['\"]?dsa-sched")
    assert [path.name for path in (*DOCUMENTS, *sources) if promise.search(path.read_text(encoding="utf-8"))] == []
    assert ".venv/bin/dsa-sched" in README
    assert "pip install ." in README


def test_the_readme_names_levels_and_efforts() -> None:
    assert [name for name in (*LEVEL_CHOICES, *EFFORTS) if f"`{name}`" not in README and f"{name}`" not in README] == []


def test_examples_in_help_use_commands_and_options_that_exist() -> None:
    """Each line of a help text that starts with the program's name parses, up to files that are not there."""
    checked = 0
    several = {name: getattr(command, "commands", {}) for name, command in cli.commands.items()}
    children = ((name, child) for name, of in several.items() for child in of.values())
    for name, command in (*cli.commands.items(), *children):
        for line in (command.help or "").splitlines():
            words = shlex.split(line) if line.strip().startswith("dsa-sched ") else []
            if words:
                result = CliRunner().invoke(cli, [*words[1:], "--help"])
                assert result.exit_code == 0, (name, line)
                shown = several[words[1]].get("".join(words[2:3]), cli.commands[words[1]])
                known = {option for p in shown.params for option in (*p.opts, *p.secondary_opts)}
                assert {word for word in words[2:] if word.startswith("-")} <= known, (name, line)
                checked += 1
    assert checked >= 6


@pytest.mark.commit
def test_the_example_table_has_the_headings_of_today(followed: dict[str, str]) -> None:
    (printed,) = (text for line, text in followed.items() if "verify" in line and "stcp920" in line)
    lines = printed.splitlines()
    assert lines[2].split() == next(line for line in README.splitlines() if line.startswith("    layer ")).split()
    assert lines[-1] == "passed"


@pytest.mark.usefixtures("followed")
@pytest.mark.commit
def test_every_key_of_the_json_report_is_documented(workplace: Path) -> None:
    report = json.loads((workplace / "report.json").read_text(encoding="utf-8"))
    keys = {*report, *report["layers"][0], *report["layers"][0]["work"], *report["logits"][0]}
    assert keys - documented_keys("verify") == set()


def documented_keys(command: str) -> set[str]:
    """Keys that the page of JSON reports names in a command's section."""
    (section,) = re.findall(rf"^## dsa-sched {command}\n(.*?)(?=^## |\Z)", JSON, re.MULTILINE | re.DOTALL)
    return {word for name in re.findall(r"`([a-z0-9_.\[\]]+)`", section) for word in re.split(r"[.\[\]]+", name)}


def anchors(document: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(document: Path) -> Iterator[tuple[str, str]]:
    """File and anchor of every link to another page or to a part of this one."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for file, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        if not file.startswith("https://"):
            yield file, anchor


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for file, anchor in links(document):
        target = (document.parent / file).resolve() if file else document
        if target.parent.name == "generated":  # made when the site is built, which checks these links
            assert target.name in GENERATED, file
        else:
            assert target.exists(), file
            assert not anchor or anchor in anchors(target), f"{file}#{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_pages_are_short_outside_of_tables(document: Path) -> None:
    if not set(LONG_LINES) & {document.name, document.parent.name}:
        text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        lines = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
        assert [line for line in lines if len(line) > LONGEST_LINE] == []
    lines = document.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES.get(document.name, len(lines))


def test_the_guide_to_tile_targets_names_every_member() -> None:
    guide = (ROOT / "docs" / "how-to" / "tile-target.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", guide, re.MULTILINE)
    assert set(target_members()) <= {name for row in rows for name in re.findall(r"\w+", row)}


def test_every_page_is_in_a_table_of_contents() -> None:
    """Sphinx says so, too, but only where it is installed."""
    listed: set[Path] = set()
    for page in DOCUMENTS:
        for block in re.findall(
            r"^```{toctree}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            for name in (line for line in block.splitlines() if line and not line.startswith(":")):
                listed |= {found.resolve() for found in page.parent.glob(f"{name}.md")}
    assert set(DOCUMENTS) - listed == {ROOT / "docs" / "index.md"}


def test_generated_pages_name_every_command_option_and_field() -> None:
    pages = {name: make() for name, make in MAKERS["QUICK"].items()}
    for name, command in cli.commands.items():
        assert f"## dsa-sched {name}\n" in pages["command-line.md"]
        for option in (option for param in command.params for option in param.opts if option.startswith("--")):
            assert re.search(rf"{option}\b", pages["command-line.md"]), option
    for field in (*Chip.model_json_schema(by_alias=True)["properties"], *Memory.model_fields, *Link.model_fields):
        assert f"| `{field}` |" in pages["chip-fields.md"]
    for field in (*Manifest.model_fields, *ProgramEntry.model_fields):
        assert f"| `{field}` |" in pages["manifest.md"]
    assert "## dsa_sched.compile\n" in pages["python.md"]
