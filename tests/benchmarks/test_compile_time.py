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


def test_every_stage_is_timed(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 16, 8, 8)) for name in ("x", "y"))
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y]))
    onnx.save(model, tmp_path / "tiny.onnx")
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
