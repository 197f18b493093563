"""The benchmark on a small network: its row and its table; and its own networks, cut and put together again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from benchmarks.branching_networks import NETWORKS
from dsa_sched.placement.methods.duet import phases
from dsa_sched.placement.model.from_onnx import task_model_of
from tests.placement_models import two_towers

ROOT = Path(__file__).resolve().parents[2]


def test_a_row_says_what_was_predicted_and_what_was_run(tmp_path: Path) -> None:
    onnx.save(two_towers(), tmp_path / "towers.onnx")
    said, table = tmp_path / "duet.json", tmp_path / "duet.md"
    command = [sys.executable, str(ROOT / "benchmarks/duet.py"), "--network", str(tmp_path / "towers.onnx")]
    wanted = ["--rounds", "3", "--scenario", "two cores", "--json", str(said), "--markdown", str(table)]
    subprocess.run([*command, *wanted], check=True, cwd=tmp_path)
    (row,) = json.loads(said.read_text())["rows"]
    assert row["alone_ms"].keys() == row["devices"].keys() == {"core0", "core1"}
    assert sum(row["devices"].values()) == row["sub_graphs"]
    assert 0 < row["measured_ms"] <= row["median_ms"]
    assert row["error"] == pytest.approx(row["measured_ms"] / row["predicted_ms"] - 1)
    assert row["speedup"] == pytest.approx(min(row["alone_ms"].values()) / row["measured_ms"])
    assert row["one_runtime_ms"].keys() == {"two threads", "parallel mode"}
    assert row["over_one_runtime"] == pytest.approx(min(row["one_runtime_ms"].values()) / row["measured_ms"])
    assert row["largest_difference"] < 1e-5
    assert table.read_text().count("| two cores |") == 1
    lost = row["over_one_runtime"] < 1
    assert f"DUET loses in {int(lost)} of 1 rows" in table.read_text()


@pytest.mark.parametrize(
    ("network", "paths"), [("wide_and_deep", [4, 1]), ("siamese", [2, 1]), ("mt_dnn", [2, 1, 2, 1, 2, 1, 4])]
)
def test_networks_have_the_structure_that_they_are_known_for(network: str, paths: list[int]) -> None:
    graph = task_model_of(NETWORKS[network]()).graph
    assert [len(phase.paths) for phase in phases(graph)] == paths
