"""The page of `dsa-sched report` with what verifying found, next to another artifact, with the instances of layers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dsa_sched
from dsa_sched.cli import cli
from tests.pages import browser, opened
from tests.small_models import classifier, save

__all__ = ["browser"]

HOSTILE = "</script><img src=x onerror=alert(1)>"


def invoke(*words: object) -> Result:
    done = CliRunner().invoke(cli, [str(word) for word in words], prog_name="dsa-sched")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def data_of(file: Path) -> Any:
    """What the page draws."""
    text = file.read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two artifacts of one network, the report of a verification of the second, and the page of all that."""
    folder = tmp_path_factory.mktemp("desk")
    network = classifier(batch="n")
    network.graph.node[2].name = HOSTILE
    model = save(network, folder / "classifier.onnx")
    for level in ("O0", "O3"):
        dsa_sched.compile(model, "stcp920", level=level, batch=2).save(folder / level)
    assert invoke("verify", folder / "O3", "--model", model, "--json", folder / "report.json").exit_code == 0
    words = ("--against", folder / "O0", "--verified", folder / "report.json", "-o", folder / "page.html")
    done = invoke("report", folder / "O3", *words)
    assert done.exit_code == 0, done.output
    return folder


def test_the_errors_of_all_layers_are_those_of_the_report(folder: Path) -> None:
    data = data_of(folder / "page.html")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    alone, whole, bounds, _ = data["figures"]["accuracy"]["data"]
    assert alone["customdata"] == [layer["name"] for layer in report["layers"]]
    for drawn, key in ((alone, "isolated_error"), (whole, "whole_error"), (bounds, "bound")):
        assert drawn["y"] == [layer[key] or None for layer in report["layers"]]
    told = {layer["name"]: layer["facts"] for layer in data["layers"]}
    (first,) = (layer for layer in report["layers"] if layer["name"] == "conv1")
    assert told["conv1"]["error alone"] == f"{first['isolated_error']:.2e}"
    assert told["conv1"]["right samples"] == f"{first['samples']:,} of {first['samples']:,}"


def test_the_summary_has_the_verdict_and_the_chip(folder: Path) -> None:
    text = (folder / "page.html").read_text(encoding="utf-8")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert f"<tr><th>verified</th><td>{report['verdict']}: {report['reason']}</td></tr>" in text
    assert "<tr><th>chip</th><td>stcp920, 4 clusters of 8 cores at 1,000 MHz: STCP920 card" in text


def test_the_difference_is_that_of_diff(folder: Path) -> None:
    printed = invoke("diff", folder / "O0", folder / "O3", "--full").stdout.splitlines()
    text = (folder / "page.html").read_text(encoding="utf-8")
    assert f"<h2>{printed[0]}</h2>" in text
    assert "<p>option level: O0 -&gt; O3</p>" in text
    for row in ("time per item", "instructions", "groups"):
        (line,) = (line for line in printed if line.startswith(row))
        cells = [cell for cell in re.split(r"\s{2,}", line) if cell]
        assert "".join(f'<td title="{cell}">{cell}</td>' for cell in cells) in text
    (bars,) = data_of(folder / "page.html")["figures"]["difference"]["data"]
    found = dsa_sched.diff(folder / "O0", folder / "O3").found
    changed = [part for part in found.parts if part.more]
    assert bars["customdata"] == [part.layers[0] for part in changed]
    assert bars["x"] == pytest.approx([part.more * 1e9 for part in changed])


def test_instances_cover_the_output_of_every_layer(folder: Path) -> None:
    artifact = dsa_sched.load(folder / "O3")
    shapes = {layer.name: artifact.graph.by_name[layer.output].shape
              for group in artifact.plan.groups for layer in group.layers}  # fmt: skip
    for layer in data_of(folder / "page.html")["layers"]:
        told = layer["instances"]
        assert told["title"].startswith(str(len(told["rows"])))
        ends = [[tuple(map(int, end.split(":"))) for end in row[2].strip("[]").split(", ")] for row in told["rows"]]
        whole = [(min(low), max(high)) for low, high in (zip(*axis, strict=True) for axis in zip(*ends, strict=True))]
        assert whole == [(0, extent) for extent in shapes[layer["name"]]]
        assert int(told["rows"][0][4]) == len(told["boxes"])
        assert all(row[3] in ("DDR", "LLB", "L1") for row in told["rows"])


def test_names_stay_names_in_tables(folder: Path) -> None:
    assert HOSTILE not in (folder / "page.html").read_text(encoding="utf-8")


def test_python_writes_the_same_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    dsa_sched.write_report(folder / "O3", page, against=folder / "O0", verified=folder / "report.json")
    (ours, theirs) = (file.read_text(encoding="utf-8").replace(str(folder) + "/", "") for file in
                      (page, folder / "page.html"))  # fmt: skip
    assert ours == theirs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "needs a report of one size in the format dsa-sched-verify/2; has the file: invalid JSON"),
        ("[1]", "has the file: input should be an object"),
        ('{"format": "dsa-sched-verify-sizes/1"}', "has format: input should be 'dsa-sched-verify/2'"),
        ('{"format": "dsa-sched-verify/2", "layers": [{"name": 3}]}', "needs a report of one size"),
    ],
)
def test_a_report_that_is_none_is_refused(text: str, said: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(text, encoding="utf-8")
    done = invoke("report", folder / "O3", "--verified", tmp_path / "report.json", "-o", tmp_path / "page.html")
    assert done.exit_code == 1
    assert said in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_report_about_something_else_is_refused(folder: Path, tmp_path: Path) -> None:
    done = invoke("report", folder / "O0", "--verified", folder / "report.json", "-o", tmp_path / "page.html")
    assert done.exit_code == 1
    assert (
        "needs a report about classifier on stcp920, O0, batch 2 per cluster; has one about classifier" in done.stderr
    )
    other = json.loads((folder / "report.json").read_text(encoding="utf-8")) | {"artifact": "0" * 64}
    (tmp_path / "other.json").write_text(json.dumps(other), encoding="utf-8")
    done = invoke("report", folder / "O3", "--verified", tmp_path / "other.json", "-o", tmp_path / "page.html")
    assert "needs a report about this artifact; has one about another with the same names" in done.stderr
    none = invoke("report", folder / "O0", "--verified", tmp_path / "none.json", "-o", tmp_path / "page.html")
    assert "has no such file" in none.stderr
    assert invoke("report", folder / "O0", "--against", tmp_path / "none").exit_code == 2


# In a browser.


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_accuracy_and_difference_are_drawn(folder: Path, browser: Any, scheme: str, width: int) -> None:
    shown, errors = opened(browser, folder / "page.html", scheme, width)
    for name in ("accuracy", "difference"):
        shown.click(f"button[data-tab={name}]")
        shown.wait_for_selector(f"#{name} .main-svg", state="visible", timeout=10_000)
        assert shown.locator(f"#{name} tbody tr").count() > 3
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    shown.fill("#search", "conv1")
    shown.click("button[data-tab=accuracy]")
    assert shown.locator("#accuracy tbody tr:visible").count() == 1
    shown.click("#accuracy tbody tr:visible")
    shown.wait_for_selector("#detail", state="visible")
    assert shown.inner_text("#detail h2 >> nth=0") == "conv1"
    rows = next(layer for layer in data_of(folder / "page.html")["layers"] if layer["name"] == "conv1")["instances"]
    assert shown.locator("#detail .instances tr").count() == 1 + len(rows["rows"])
    assert rows["boxes"][0] in shown.inner_text("#detail")
    assert errors == []
    shown.close()
