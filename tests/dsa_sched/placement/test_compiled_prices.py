"""Prices of chips are times of what `compile` makes: of layers, of large parts, of the whole network, with one launch
each; they are kept, and the output says where they come from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx import helper

from benchmarks.lab.readers.schedules import parse_schedule
from dsa_sched.cli import cli
from dsa_sched.devices.chip_device import ChipCluster
from dsa_sched.placement.model.from_onnx import task_model_of
from tests.placement_models import draw, model_of
from tests.small_models import save

SCENARIO = """
schema_version: 1
name: host_and_chip
description: A host that computes nothing or little, and a chip
devices:
  - {host}
  - {{kind: chip, name: npu, chip: {chip}, level: {level}{launch}}}
links:
  - {{between: [host, npu], latency_us: 1, gigabytes_per_second: 10}}
"""

HOST = "{kind: host, name: host}"
CPU = "{kind: onnxruntime, name: host, roofline: {flops_per_second: 1e9, bytes_per_second: 1e9}}"
LAYERS = ("first", "second", "third")
WEIGHT = draw(8, 4, 1, 1)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Three convolutions, of which two differ in the values of their weights alone."""
    nodes = [
        helper.make_node("Conv", [source, f"w{number}"], [f"v{number}"], name)
        for number, (source, name) in enumerate(zip(("x", "v0", "v1"), LAYERS, strict=True))
    ]
    weights = {"w0": draw(8, 4, 1, 1), "w1": draw(8, 8, 1, 1), "w2": draw(8, 8, 1, 1) + 1}
    return str(save(model_of(nodes, {"x": (1, 4, 8, 8)}, ["v2"], **weights), tmp_path / "three.onnx"))


def scenario(
    folder: Path, host: str = HOST, chip: str = "stcp920", level: str = "O1", launch_us: float | None = None
) -> str:
    file, launch = folder / "scenario.yaml", "" if launch_us is None else f", launch_us: {launch_us}"
    file.write_text(SCENARIO.format(host=host, chip=chip, level=level, launch=launch).lstrip())
    return str(file)


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, arguments, prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def placed(model: str, described: str, *arguments: str) -> Mapping[str, Any]:
    """The JSON of a placement."""
    table = Path(described).with_suffix(".json")
    result = invoke("place", model, "--scenario", described, "--json", str(table), *arguments)
    assert result.exit_code == 0, result.output
    figures: Mapping[str, Any] = json.loads(table.read_text())
    return figures


def task_ns(figures: Mapping[str, Any]) -> dict[str, float]:
    runs = parse_schedule("\n".join(figures["schedule"])).runs
    return {run.task: run.end_ns - run.start_ns for run in runs if not run.task.startswith("%")}


def test_the_whole_network_takes_what_compile_and_time_say(model: str, tmp_path: Path) -> None:
    """The launch of the chip file is in the time of the program; another takes its place."""
    figures = placed(model, scenario(tmp_path))
    artifact, table = tmp_path / "artifact", tmp_path / "time.json"
    invoke("compile", model, "--chip", "stcp920", "--level", "O1", "-o", str(artifact))
    timed = invoke("time", str(artifact), "--chip", "stcp920", "--json", str(table))
    assert timed.exit_code == 0, timed.output
    seconds = json.loads(table.read_text())["seconds"]
    assert task_ns(figures) == {"first (+2)": pytest.approx(1e9 * seconds, abs=1)}
    assert figures["methods"][0]["tasks"] == 1
    other = task_ns(placed(model, scenario(tmp_path, launch_us=5)))
    assert other == {"first (+2)": pytest.approx(1e9 * seconds - 20_000 + 5000, abs=1)}


@pytest.mark.parametrize("arguments", [(), ("--estimate",)])
def test_a_task_of_several_layers_is_launched_once(model: str, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    took = [task_ns(placed(model, scenario(tmp_path, launch_us=us), *arguments)) for us in (0, 100)]
    assert [list(each) for each in took] == [["first (+2)"], ["first (+2)"]]
    assert took[1]["first (+2)"] - took[0]["first (+2)"] == pytest.approx(100_000, abs=3)


def test_the_output_says_where_prices_come_from_and_what_is_optimal(model: str, tmp_path: Path) -> None:
    described = scenario(tmp_path, CPU)
    shown = invoke("place", model, "--scenario", described).stdout
    compiled = "npu by programs compiled for stcp920 (level O1), by the cycle model"
    assert f"prices: host by roofline; {compiled}" in shown
    assert "sphinx: optimal for this 1 task at its price" in shown
    assert re.search(r"as 3 tasks of one layer each, the network takes at least [0-9.]+ us at these prices", shown)
    assert all("optimal for" in line for line in shown.splitlines() if "optimal" in line)
    assert "prices: host, npu by roofline" in invoke("place", model, "--scenario", described, "--estimate").stdout


@pytest.mark.parametrize("works", [True, False])
def test_rooflines_next_to_compiled_prices_are_cautioned_about(model: str, tmp_path: Path, works: bool) -> None:
    """Where a device that has one works in the best schedule."""
    described = scenario(tmp_path, CPU if works else CPU.replace("1e9", "1e3"))
    shown = invoke("place", model, "--scenario", described).stdout
    assert ("caution: the roofline of host is optimistic next to compiled programs" in shown) == works
    assert "caution" not in invoke("place", model, "--scenario", described, "--estimate").stdout


def test_methods_that_need_rooflines_say_so(model: str, tmp_path: Path) -> None:
    shown = invoke("place", model, "--scenario", scenario(tmp_path), "--compare", "--evaluations", "10").stdout
    for name in ("ios-merge", "ios-both"):
        assert f"\n{name}: needs a device that its roofline prices, also with layers merged; choose ios\n" in shown


def test_compiled_times_are_kept(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another launch needs no compiler either."""
    first = placed(model, scenario(tmp_path))
    monkeypatch.setattr(ChipCluster, "compile", lambda *_: pytest.fail("compiled again"))
    assert placed(model, scenario(tmp_path))["schedule"] == first["schedule"]
    assert task_ns(placed(model, scenario(tmp_path, launch_us=30)))["first (+2)"] > task_ns(first)["first (+2)"]


def test_layers_that_differ_in_values_alone_are_compiled_once(model: str, tmp_path: Path) -> None:
    steps = invoke("place", model, "--scenario", scenario(tmp_path)).stderr
    assert "compiling second for npu (task 2 of 3)" in steps
    assert "compiling third" not in steps


def test_large_networks_are_priced_in_fewer_tasks(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two different layers among three: more than may be compiled one by one."""
    monkeypatch.setattr("dsa_sched.placing.place.MOST_COMPILED", 1)
    result = invoke("place", model, "--scenario", scenario(tmp_path))
    assert "compiling first (+2) for npu (task 1 of 1)" in result.stderr
    assert result.stderr.count("compiling") == 1
    assert (figures := placed(model, scenario(tmp_path)))["layers_per_task"] == 3
    assert figures["smallest_tasks"] == 1


def test_an_estimate_compiles_nothing(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChipCluster, "compile", lambda *_: pytest.fail("compiled"))
    placed(model, scenario(tmp_path), "--estimate", "--compare", "--evaluations", "10")


def test_an_operator_that_the_chip_refuses_parts_the_network(tmp_path: Path) -> None:
    """What is before it and what is behind it are one task each on the chip."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "a"),
        helper.make_node("Conv", ["a", "w"], ["b"], "b"),
        helper.make_node("Det", ["b"], ["c"], "det"),
        helper.make_node("Reshape", ["c", "shape"], ["d"], "view"),
        helper.make_node("Conv", ["d", "u"], ["e"], "e"),
        helper.make_node("Conv", ["e", "w"], ["f"], "f"),
    ]
    weights: dict[str, Any] = {"w": draw(64, 64, 1, 1), "u": draw(64, 1, 1, 1), "shape": np.array([1, 1, 8, 8])}
    file = str(save(model_of(nodes, {"x": (1, 64, 8, 8)}, ["f"], **weights), tmp_path / "det.onnx"))
    slow = CPU.replace("1e9", "1e6", 1)
    figures = placed(file, scenario(tmp_path, slow))
    assert list(task_ns(figures)) == ["a (+1)", "det", "e (+1)"]
    runs = parse_schedule("\n".join(figures["schedule"])).run_of
    assert [runs[name].machine for name in task_ns(figures)] == ["npu", "host", "npu"]
    assert ("npu", "det") in {(item["device"], item["task"]) for item in figures["refusals"]}


@pytest.mark.commit
def test_gpus_are_priced_by_the_kernels_of_their_plans(model: str, tmp_path: Path) -> None:
    """No kernel is compiled for that."""
    figures = placed(model, scenario(tmp_path, chip="a100", level="auto"))
    assert figures["costs"] == "npu by kernels planned for a100 (level auto), by their least times"
    table = tmp_path / "explained.json"
    explained = invoke("explain", model, "--chip", "a100", "--json", str(table))
    assert explained.exit_code == 0, explained.output
    assert task_ns(figures) == {"first (+2)": pytest.approx(1e9 * json.loads(table.read_text())["seconds"], abs=1)}


def test_a_chip_without_a_code_generator_is_priced_by_its_plans(model: str, tmp_path: Path) -> None:
    described = (resources.files("hw_models") / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    paper = tmp_path / "paper.yaml"
    paper.write_text(described.replace("isa: neuralscale-v1", "isa: abacus-v2"), encoding="utf-8")
    shown = invoke("place", model, "--scenario", scenario(tmp_path, chip=str(paper)))
    assert "npu by plans for stcp920 (level O1), by the cost model" in shown.stdout


def test_structures_tell_layers_apart() -> None:
    """Values of large weights and names do not count; shapes, settings and small constants do."""

    def structure(name: str = "n", weight: Any = WEIGHT, scale: float = 2.0, stride: int = 1) -> str:
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["a"], name, strides=[stride, stride]),
            helper.make_node("Mul", ["a", "s"], ["y"], "scaled"),
        ]
        return task_model_of(model_of(nodes, {"x": (1, 4, 8, 8)}, ["y"], w=weight, s=draw(1) * scale)).whole.structure

    assert structure() == structure("other") == structure(weight=WEIGHT + 1)
    others = structure(scale=3.0), structure(weight=draw(16, 4, 1, 1)), structure(stride=2)
    assert len({structure(), *others}) == 4


def test_estimates_are_not_measured(model: str, tmp_path: Path) -> None:
    result = invoke("place", model, "--scenario", scenario(tmp_path), "--estimate", "--measure")
    assert result.exit_code == 2
    assert "choose --estimate or --measure" in result.stderr
