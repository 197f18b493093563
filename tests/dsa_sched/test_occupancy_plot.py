"""Plots, JSON and further options of `dsa-sched timeline`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from subprocess import run as run_process
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from dsa_sched.artifact.format import Artifact
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import CompileOptions, gather_artifact
from partitioner.planners.levels import O3
from tests.small_models import classifier, save


def invoke(*arguments: object) -> Result:
    words = [str(argument) for argument in ("timeline", *arguments, "--chip", "stcp920")]
    result = CliRunner().invoke(cli, words, prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact for two clusters."""
    path = tmp_path_factory.mktemp("model")
    model = save(classifier(batch="n"), path / "classifier.onnx")
    gather_artifact(compile_clusters(str(model), "stcp920", CompileOptions(batch=3, planner=O3(), clusters=2))).save(
        path / "out"
    )
    return path / "out"


@pytest.fixture(scope="module")
def elf(folder: Path) -> Path:
    return folder / "cluster0" / "program.elf"


def test_plots_of_both_formats_are_the_same_every_time(elf: Path, tmp_path: Path) -> None:
    plots = [tmp_path / f"{name}{suffix}" for name in ("one", "two") for suffix in (".png", ".svg")]
    result = invoke(elf, *(word for plot in plots for word in ("--memory", plot)))
    assert result.exit_code == 0
    assert all(f"plot in {plot}" in result.stdout for plot in plots)
    assert plots[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for first, again in zip(plots[:2], plots[2:], strict=True):
        assert first.read_bytes() == again.read_bytes()
    text = plots[1].read_text()
    assert "date" not in text.lower()
    words = " ".join(ElementTree.fromstring(text).itertext())
    for memory in ("DDR", "LLB", "L1", "IM"):
        assert re.search(rf"{memory}\b[^\n]*: at most ", words), memory
    assert "time after the launch (us)" in words
    assert str(elf) in words


def test_each_cluster_has_a_plot(folder: Path, tmp_path: Path) -> None:
    result = invoke(folder, "--memory", tmp_path / "held.svg", "--by", "stage")
    assert result.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["held.cluster0.svg", "held.cluster1.svg"]
    model = Artifact.load(folder).manifest.model
    for cluster, items in ((0, 2), (1, 1)):
        text = (tmp_path / f"held.cluster{cluster}.svg").read_text()
        assert f"Live bytes: {model}, O3, {items} items, on cluster {cluster} of the stcp920" in text
    assert result.stdout.count("live at most") == 2


def test_other_formats_are_refused_before_any_work(folder: Path, tmp_path: Path) -> None:
    result = invoke(folder, "--memory", tmp_path / "held.bmp")
    assert result.exit_code == 1
    assert "needs a name that ends in .png or .svg; has .bmp" in result.stderr
    assert "timing" not in result.stderr
    assert invoke(folder, "--memory", tmp_path / "nowhere" / "held.png").exit_code == 1


def test_matplotlib_is_not_loaded_without_a_plot(elf: Path) -> None:
    code = (
        "import sys\nfrom dsa_sched.cli import cli\n"
        f"cli(['timeline', {str(elf)!r}, '--chip', 'stcp920'], standalone_mode=False)\n"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert run_process([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_json_has_parts_stretches_and_memories(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "timeline.json"
    result = invoke(folder, "--by", "stage", "--by", "group", "--by", "time", "--stretches", "5", "--json", target)
    assert result.exit_code == 0
    found = json.loads(target.read_text())
    assert (found["format"], found["chip"], len(found["programs"])) == ("dsa-sched-timeline/1", "stcp920", 2)
    for program in found["programs"]:
        whole = program["cores"] * (program["cycles"] - program["launch_cycles"])
        assert set(program["parts"]) == {"stage", "group"}
        for usages in (*program["parts"].values(), program["stretches"]):
            assert sum(usage["core_cycles"] for usage in usages) == pytest.approx(whole)
            matrix = sum(usage["busy_core_cycles"]["matrix"] for usage in usages)
            assert matrix == pytest.approx(program["whole"]["busy_core_cycles"]["matrix"])
        assert program["parts"]["stage"][0]["part"] == "12x12"
        assert len(program["stretches"]) == 5
        for memory in program["memories"]:
            assert len(memory["least_bytes"]) == len(memory["most_bytes"]) == 5
            assert max(memory["most_bytes"]) == memory["peak_bytes"] <= memory["size_bytes"]
            assert 0 <= memory["peak_cycle"] <= program["cycles"]
            assert (memory["core"] is None) == (memory["memory"] in ("DDR", "LLB"))


def test_what_is_shown_when_nobody_says(folder: Path, elf: Path) -> None:
    parts = invoke(folder).stdout
    assert re.search(r"^group +from cycle", parts, re.MULTILINE), "the plan has a group of several layers"
    alone = invoke(elf).stdout
    assert re.search(r"^from cycle +to +matrix", alone, re.MULTILINE)
    assert re.search(r"^operator +\|a", alone, re.MULTILINE), "symbols name operators"
    cores = invoke(elf, "--each-core", "--operators", "--by", "operator").stdout
    rows = re.findall(r"^core (\d) (\w+) +\|", cores, re.MULTILINE)
    assert rows == sorted(rows, key=lambda row: row[0])
    assert {unit for _, unit in rows} == {"matrix", "vector", "transfer"}
    assert len({core for core, _ in rows}) > 1
    assert re.search(r"^operator +from cycle +to +instr\.", cores, re.MULTILINE)


def test_a_program_alone_has_no_stages(elf: Path) -> None:
    result = invoke(elf, "--by", "stage")
    assert result.exit_code == 1
    assert "needs an artifact folder, to know the stage of an operator; has a program" in result.stderr
