"""The compile-time benchmark on a tiny model: its JSON and its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]


def tiny(path: Path) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 16, 8, 8)) for name in ("x", "y"))
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y]))
    onnx.save(model, path)
    return path


@pytest.mark.nightly
def test_for_a_gpu_the_cache_is_empty_and_then_full(tmp_path: Path) -> None:
    said = tmp_path / "time.json"
    command = [sys.executable, str(ROOT / "benchmarks/compile_time.py"), "--model", str(tiny(tmp_path / "tiny.onnx"))]
    done = subprocess.run(
        [*command, "--chip", "a100", "--json", str(said)], check=True, cwd=tmp_path, capture_output=True, text=True
    )
    cold, warm = json.loads(said.read_text())["rows"]
    assert (cold["cache"], warm["cache"]) == ("cold", "warm")
    for row in (cold, warm):
        assert row["kernels"] == row["launches"] == 1
        assert row["limit_seconds"] is None
        assert row["wall_seconds"] == pytest.approx(sum(row["seconds"].values()))
        assert 50 < row["peak_mib"] < 4000
    assert cold["peak_mib_of_a_child"] > 50
    assert cold["seconds"]["emit"] > warm["seconds"]["emit"]
    assert done.stdout.count("| tiny |") == 2


def test_an_unknown_chip_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks/compile_time.py"), "--chip", "b300"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")


@pytest.mark.nightly
def test_every_stage_is_timed(tmp_path: Path) -> None:
    tiny(tmp_path / "tiny.onnx")
    said, table = tmp_path / "time.json", tmp_path / "time.md"
    command = [sys.executable, str(ROOT / "benchmarks/compile_time.py"), "--model", str(tmp_path / "tiny.onnx")]
    wanted = ["--batch", "1", "--batch", "64", "--json", str(said), "--markdown", str(table)]
    subprocess.run([*command, *wanted], check=True, cwd=tmp_path)
    figures = json.loads(said.read_text())
    rows = figures["rows"]
    assert [(row["model"], row["batch"]) for row in rows] == [("tiny", 1), ("tiny", 64)]
    for row in rows:
        *stages, whole = row["seconds"].values()
        assert whole == pytest.approx(sum(stages))
        assert all(row["seconds"][name] > 0 for name in ("start", "read", "partition", "lower", "verify", "emit"))
        late = sum(row["seconds"][name] for name in ("lower", "schedule", "verify", "emit", "write"))
        assert row["seconds_per_1000_instructions"] * row["instructions"] / 1000 == pytest.approx(late)
        assert row["instructions"] > 0
    assert [row["model"] for row in figures["growth"]] == ["tiny"] * (
        rows[0]["instructions"] != rows[1]["instructions"]
    )
    assert table.read_text().count("| tiny |") == len(rows)
