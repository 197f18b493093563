"""The tutorial is true: its commands run, its figures are those that they print, and its pictures are current."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsa_sched.cli import cli
from tests.repo.test_docs import ROOT, documented_keys

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
CHIP = "samples/tutorial/two_cores.yaml"
SCENARIO = ROOT / "samples" / "scenarios" / "big_little.yaml"
REPORTS = {"explain": "explain", "kernels": "explain", "time": "time", "timeline": "timeline", "place": "place"}
"""Name of a JSON file -> the command that wrote it."""
NAMED_BY_THE_DATA = frozenset({
    "accumulator_bytes", "busiest_cycles", "busy_core_cycles", "capacity_bytes", "causes", "critical_cycles",
    "moved_bytes", "overlaps", "parts", "peak_bytes", "resources", "scopes", "stall_cycles", "tensors", "utilisation",
})  # fmt: skip
"""Objects whose keys are names of memories, engines, ways or parts."""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of someone who has followed the tutorial, and all that was printed on the way."""
    folder = tmp_path_factory.mktemp("tutorial")
    shutil.copytree(ROOT / "samples" / "tutorial", folder / "samples" / "tutorial")
    (folder / "blocks.onnx").write_bytes(runpy.run_path(str(folder / "samples/tutorial/network.py"))["network"]())
    commands = "".join(re.findall(r"<!-- runnable -->\n```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines()
    more = (
        f"dsa-sched explain blocks.onnx --chip {CHIP} --level O3 --json explain.json",
        f"dsa-sched time best.out --chip {CHIP} --bounds --json time.json",
        f"dsa-sched timeline best.out --chip {CHIP} --json timeline.json",
        "dsa-sched explain blocks.onnx --chip a100 --level O3 --json kernels.json",
        f"dsa-sched place blocks.onnx --scenario {SCENARIO} --compare --json place.json",
    )
    assert len(commands) >= 10
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        text = ""
        for line in (*commands, *more):
            done = CliRunner().invoke(cli, shlex.split(line)[1:])
            assert done.exit_code == 0, (line, done.output)
            text += done.stdout
        yield folder, text


def figures(line: str) -> tuple[str, ...]:
    """The numbers of a line, by which it is known whatever its words are."""
    return tuple(re.findall(r"[0-9][0-9.,e+-]*", line))


@pytest.mark.commit
def test_what_the_tutorial_quotes_is_printed(printed: tuple[Path, str]) -> None:
    lines = {figures(line) for line in printed[1].splitlines()}
    quoted = "".join(re.findall(r"<!-- output -->\n```text\n(.*?)```", PAGE, re.DOTALL)).splitlines()
    assert len(quoted) >= 15
    assert [line for line in quoted if figures(line) not in lines] == []


@pytest.mark.parametrize(("name", "command"), REPORTS.items())
@pytest.mark.commit
def test_every_key_of_a_report_is_documented(name: str, command: str, printed: tuple[Path, str]) -> None:
    def keys(value: object, free: bool = False) -> Iterator[str]:
        match value:
            case dict():
                for key, inner in value.items():
                    yield from () if free else (key,)
                    yield from keys(inner, key in NAMED_BY_THE_DATA)
            case list():
                for inner in value:
                    yield from keys(inner, free)

    report = json.loads((printed[0] / f"{name}.json").read_text(encoding="utf-8"))
    assert set(keys(report)) - documented_keys(command) == set()


def test_the_pictures_are_current() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "pictures" / "make.py"))["pictures"]()
    folder = ROOT / "docs" / "pictures"
    assert {path.name for path in folder.glob("*.svg")} == set(made)
    for name, text in made.items():
        assert (folder / name).read_text(encoding="utf-8") == text, "renew: python docs/pictures/make.py"
