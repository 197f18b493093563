"""The IOS benchmark on its smallest network: its JSON and its tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ios import COUNTS, latency
from benchmarks.lab.ios.schema import FOLDER, load_network

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"network", "operators", "r", "s", "largest_block", "width", "transitions", "schedules", "total_states",
        "total_transitions", "seconds"}  # fmt: skip


def test_counts_and_speed_ups(tmp_path: Path) -> None:
    said, table = tmp_path / "ios.json", tmp_path / "ios.md"
    command = [sys.executable, str(ROOT / "benchmarks/ios.py"), "--network", "squeezenet", "--quick"]
    subprocess.run([*command, "--json", str(said), "--markdown", str(table)], check=True, cwd=tmp_path)
    figures = json.loads(said.read_text())
    unpruned, pruned = figures["rows"]
    assert set(unpruned) >= KEYS
    assert (unpruned["r"], unpruned["s"], unpruned["transitions"], unpruned["schedules"]) == (None, None, 51, 131)
    assert (pruned["r"], pruned["s"]) == (3, 8)
    assert pruned["transitions"] < unpruned["transitions"]
    for row in figures["latencies"]:
        times = row["milliseconds"]
        assert times["ios-both"] <= min(times.values()) * (1 + 1e-9)
        assert row["speed_up"]["greedy"]["modelled"] == pytest.approx(times["greedy"] / times["ios-both"])
    assert "modelled, not measured" in table.read_text()
    assert "| 51 | 131 | equal |" in table.read_text()


def test_committed_counts_are_the_published_ones() -> None:
    figures = json.loads((ROOT / "benchmarks/results/ios.json").read_text())
    rows = [row for row in figures["rows"] if row["r"] is None]
    assert {row["network"]: (row["transitions"], row["schedules"]) for row in rows} == COUNTS


def test_committed_latencies_are_those_of_today() -> None:
    figures = json.loads((ROOT / "benchmarks/results/ios.json").read_text())
    stored = next(row for row in figures["latencies"] if row["network"] == "inception_v3")
    assert latency("inception_v3", load_network("inception_v3"), stored["precision"], stored["batch"]) == stored


def test_what_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks/ios.py"), "--markdown", str(tmp_path / "no" / "ios.md")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no folder" in done.stderr


def test_a_file_of_ones_own_has_no_published_figures(tmp_path: Path) -> None:
    source = FOLDER / "squeezenet.json"
    (tmp_path / "mine.json").write_text(source.read_text())
    command = [sys.executable, str(ROOT / "benchmarks/ios.py"), "--quick", "--file", "mine.json"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "| mine.json: squeezenet | 50 |" in said
    assert "equal" not in said
