"""`dsa-sched suite`: what compiles, verifies and stays fast, and what makes a run fail against the one before."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

import dsa_sched
from dsa_sched.cli import cli
from dsa_sched.suites.case_result import CheckResult
from dsa_sched.suites.suite_file import EXAMPLE, read_suite
from dsa_sched.sweeping.carried_out import POINTS
from hw_models.errors import JobFileError
from tests.pages import browser, opened
from tests.repo.test_docs import documented_keys
from tests.small_models import one_node, save

__all__ = ["browser"]

ROOT = Path(__file__).parents[2]
LABEL = "</script><b>relu"
"""A name of a stranger who wants to become part of the page."""
SUITE = """\
schema_version: 1
name: small
networks:
  - {model: relu.onnx, name: </script><b>relu}
  - softmax.onnx
chips: stcp920
options: {level: O1}
checks: [compile, time]
"""
RELU, SOFTMAX = f"{LABEL} on stcp920, level O1", "softmax on stcp920, level O1"
FILES = ("suite.json", "junit.xml", "suite.html")


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["suite", *map(str, arguments)], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def written(folder: Path, text: str = SUITE) -> Path:
    """A suite file next to its networks."""
    save(one_node("Relu"), folder / "relu.onnx")
    save(one_node("Softmax"), folder / "softmax.onnx")
    save(one_node("Det", (1, 3, 3)), folder / "det.onnx")
    file = folder / "small.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The folder of a suite that was carried out, and what the command said."""
    file = written(tmp_path_factory.mktemp("suite"))
    return file.with_suffix(".out"), invoke(file, "--jobs", 1)


def again(ran: tuple[Path, Result], tmp_path: Path, text: str = SUITE, *arguments: object) -> Result:
    """The suite in another folder, to which the results of the first one are copied."""
    shutil.copytree(ran[0] / POINTS, tmp_path / "small.out" / POINTS)
    return invoke(written(tmp_path, text), "--jobs", 1, *arguments)


def cases(folder: Path) -> dict[str, dict[str, Any]]:
    return {case["title"]: case for case in json.loads((folder / "suite.json").read_text())["cases"]}


def junit(folder: Path) -> dict[tuple[str, str], ElementTree.Element]:
    """Test cases of the XML file by check and title."""
    root = ElementTree.parse(folder / "junit.xml").getroot()
    (suite,) = root
    found = {(each.attrib["classname"].split(".")[-1], each.attrib["name"]): each for each in suite}
    assert suite.attrib["tests"] == str(len(found))
    for tag, key in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert suite.attrib[key] == root.attrib[key] == str(len(suite.findall(f"testcase/{tag}")))
    return found


def earlier(ran: tuple[Path, Result], tmp_path: Path, **changes: Any) -> Path:
    """The results of a run before, in which the last case was something else."""
    whole = json.loads((ran[0] / "suite.json").read_text())
    case = next(case for case in whole["cases"] if case["title"] == SOFTMAX)
    for name, value in changes.items():
        if name == "seconds":
            case["seconds_per_item"] *= value
        else:
            case["checks"][name] = {"status": value}
    path = tmp_path / "before.json"
    path.write_text(json.dumps(whole))
    return path


def test_every_case_is_compiled_and_timed(ran: tuple[Path, Result]) -> None:
    folder, done = ran
    assert done.exit_code == 0, done.output
    found = cases(folder)
    assert {*found} == {RELU, SOFTMAX}
    for case in found.values():
        assert {name: check["status"] for name, check in case["checks"].items()} == dict.fromkeys(
            ("compile", "time"), "passed"
        )
    artifact = dsa_sched.compile(folder.parent / "softmax.onnx", "stcp920", level="O1")
    case = found[SOFTMAX]
    assert (case["artifact"], case["cycles"]) == (artifact.hash, dsa_sched.time(artifact).cycles)
    assert "2 cases; nothing to complain of" in done.stdout
    assert len(junit(folder)) == 2 * 2
    assert all(not len(each) for each in junit(folder).values())
    whole = json.loads((folder / "suite.json").read_text())
    keys = {*whole, *case, *case["checks"], *case["checks"]["time"]}
    assert keys <= documented_keys("suite")


def test_equal_suites_give_equal_files(ran: tuple[Path, Result], tmp_path: Path) -> None:
    done = invoke(written(tmp_path), "--jobs", 1)
    assert [(tmp_path / "small.out" / name).read_bytes() for name in FILES] == [
        (ran[0] / name).read_bytes() for name in FILES
    ]
    assert done.stdout.splitlines()[:-1] == ran[1].stdout.splitlines()[:-1]


@pytest.mark.parametrize(
    ("before", "tolerance", "code", "said"),
    [
        ({}, 0, 0, "nothing to complain of"),
        ({"seconds": 0.97}, 2, 5, "1 x time slower"),
        ({"seconds": 0.97}, 4, 0, "nothing to complain of"),
        ({"seconds": 1.5}, 0, 0, "nothing to complain of"),
        ({"compile": "fault"}, 0, 0, "nothing to complain of"),
    ],
    ids=str,
)
def test_a_run_is_set_against_the_one_before(
    ran: tuple[Path, Result], tmp_path: Path, before: dict[str, Any], tolerance: float, code: int, said: str
) -> None:
    done = again(ran, tmp_path, SUITE, "--against", earlier(ran, tmp_path, **before), "--tolerance", tolerance)
    assert done.exit_code == code
    assert said in done.stdout
    assert "2 of them from before" in done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(SOFTMAX))
    assert line.endswith("same artifact")
    assert f"{1 / before.get('seconds', 1.0) - 1:+.1%}" in line
    outcome = [(each.tag, each.attrib["type"]) for each in junit(tmp_path / "small.out")["time", SOFTMAX]]
    assert outcome == ([("failure", "slower")] if code else [])


def test_what_does_not_compile_fails_once_and_is_known_then(ran: tuple[Path, Result], tmp_path: Path) -> None:
    text = SUITE.replace("softmax.onnx", "softmax.onnx\n  - det.onnx")
    done = again(ran, tmp_path, text)
    assert done.exit_code == 1
    assert "1 x compile failed" in done.stdout
    title = "det on stcp920, level O1"
    assert {name: check["status"] for name, check in cases(tmp_path / "small.out")[title]["checks"].items()} == {
        "compile": "failed", "time": "skipped",
    }  # fmt: skip
    (failure,) = junit(tmp_path / "small.out")["compile", title]
    assert failure.tag == "failure"
    assert "Det" in failure.attrib["message"]
    done = invoke(tmp_path / "small.yaml", "--jobs", 1, "--against", tmp_path / "small.out")
    assert done.exit_code == 0
    assert "3 cases; nothing to complain of; 1 known failure" in done.stdout
    (skipped,) = junit(tmp_path / "small.out")["compile", title]
    assert skipped.tag == "skipped"
    assert skipped.attrib["message"].startswith("known: failed: ")
    (tmp_path / "small.yaml").write_text(text.replace("  - softmax.onnx\n", ""))
    done = invoke(tmp_path / "small.yaml", "--jobs", 1, "--against", ran[0])
    assert done.exit_code == 1
    assert f"no longer in the suite: {SOFTMAX}" in done.stdout


@pytest.mark.parametrize(
    ("status", "before", "code"),
    [
        ("failed", None, 3),
        ("failed", "inconclusive", 3),
        ("failed", "failed", 0),
        ("inconclusive", "passed", 4),
        ("inconclusive", "failed", 0),
        ("fault", "failed", 1),
    ],
)
def test_results_that_are_wrong_or_in_doubt_have_the_codes_of_verify(
    ran: tuple[Path, Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    before: str | None,
    code: int,
) -> None:
    reason = CheckResult(status, "for a \x07 test")
    monkeypatch.setattr("dsa_sched.suites.case_result._verified", lambda *_arguments: reason)
    text = SUITE.replace(f"  - {{model: relu.onnx, name: {LABEL}}}\n", "").replace("compile, time", "compile, verify")
    against = ("--against", earlier(ran, tmp_path, verify=before)) if before is not None else ()
    done = invoke(written(tmp_path, text), "--jobs", 1, *against)
    assert done.exit_code == code
    assert "for a" in done.stdout
    (outcome,) = junit(tmp_path / "small.out")["verify", SOFTMAX]
    assert outcome.tag == ("error" if status == "fault" else "failure" if code else "skipped")
    assert outcome.attrib["message"].endswith("for a ? test")
    kept = list((tmp_path / "small.out" / POINTS).glob("*.json"))
    assert len(kept) == (0 if status == "fault" else 1)


def test_python_gives_the_same(ran: tuple[Path, Result], tmp_path: Path) -> None:
    against = earlier(ran, tmp_path, seconds=0.9)
    report = dsa_sched.suite(ran[0].parent / "small.yaml", ran[0], against=against, tolerance=5, jobs=1)
    assert (report.exit_code, report.regressions) == (5, {SOFTMAX: {"time": "slower"}})
    assert report.cases[-1].times == pytest.approx(1 / 0.9)
    report.save(tmp_path)
    assert json.loads((tmp_path / "suite.json").read_text()) == report.to_dict()
    assert "1 x time slower" in str(report)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file or directory"),
        ("", "EOF while parsing"),
        ("[]", "should be an object"),
        ('{"format": "dsa-sched-sweep/1", "cases": []}', "format: Input should be 'dsa-sched-suite/1'"),
        ('{"format": "dsa-sched-suite/1", "cases": [{"title": "a"}]}', "cases.0.checks: Field required"),
    ],
)
def test_what_is_no_run_before_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    (tmp_path / "before").mkdir()
    if text is not None:
        (tmp_path / "before" / "suite.json").write_text(text)
    done = invoke(written(tmp_path), "--against", tmp_path / "before")
    assert done.exit_code == 1
    assert "needs a file suite.json that `dsa-sched suite` wrote, or its folder; has " in done.stderr
    assert said in done.stderr
    assert not (tmp_path / "small.out").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[compile, time]", "[compile, verfy]", "'verfy' should be 'compile', 'verify' or 'time'; did you"),
        ("[compile, time]", "[]", "should have at least 1 item"),
        ("options:", "input: 2\noptions:", "input: unknown field; did you mean 'inputs'?"),
        ("options:", "inputs: 1\noptions:", "inputs: 1 should be greater than or equal to 2"),
        ("softmax.onnx", "&a softmax.onnx", "anchors and aliases (&name, *name) are not used in suite files"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(JobFileError) as raised:
        read_suite(written(tmp_path, SUITE.replace(old, new, 1)))
    assert said in str(raised.value)
    assert re.search(r"small\.yaml:\d+: ", str(raised.value))


def test_the_example_is_a_suite_file(tmp_path: Path) -> None:
    done = invoke("--example")
    assert done.stdout == EXAMPLE
    (tmp_path / "suite.yaml").write_text(done.stdout)
    assert read_suite(tmp_path / "suite.yaml").size == 2
    assert invoke().exit_code == 2


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    ((name, text),) = re.findall(r"<!-- runnable: (suite.yaml) -->\n```yaml\n(.*?)```", page, re.DOTALL)
    (commands,) = re.findall(r"<!-- runnable -->\n```sh\n(dsa-sched suite .*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    save(one_node("Relu"), Path("mine.onnx"))
    Path(name).write_text(text)
    for line in commands.splitlines():
        done = CliRunner().invoke(cli, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output)
    assert "same artifact" in done.stdout
    (case,) = cases(Path("tuesday")).values()
    assert {name: check["status"] for name, check in case["checks"].items()} == dict.fromkeys(
        ("compile", "verify", "time"), "passed"
    )


# In a browser.


@pytest.mark.commit
def test_the_page_shows_changes_and_checks(ran: tuple[Path, Result], tmp_path: Path, browser: Any) -> None:
    again(ran, tmp_path, SUITE, "--against", earlier(ran, tmp_path, seconds=0.8))
    file = tmp_path / "small.out" / "suite.html"
    assert LABEL not in file.read_text(encoding="utf-8")
    shown, errors = opened(browser, file, "light", 1280)
    assert shown.locator("#rows tbody tr").count() == 2
    shown.fill("#search", "slower")
    assert shown.locator("#rows tbody tr").count() == 1
    shown.click("#rows tbody tr >> nth=0")
    assert "+25.0%" in shown.inner_text("#detail")
    for name in ("change", "times"):
        shown.click(f"button[data-tab={name}]")
        shown.wait_for_selector(f"#{name} .main-svg", state="visible", timeout=10_000)
    assert errors == []
    shown.close()
