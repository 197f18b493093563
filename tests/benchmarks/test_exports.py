"""The benchmark of exports on tiny models: one that compiles, one that is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks/exports.py"


def write(folder: Path, name: str, operator: str) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 16, 8, 8)) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], name, [x], [y])
    (folder / name).mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / name / f"{name}.onnx")
    for number in range(2):
        draw = np.random.default_rng(number).standard_normal((1, 16, 8, 8), np.float32)
        np.savez(folder / name / f"input{number}.npz", x=draw)


@pytest.mark.nightly
def test_what_compiles_is_timed_and_judged_and_what_is_refused_is_named(tmp_path: Path) -> None:
    write(tmp_path / "models", "good", "Relu")
    write(tmp_path / "models", "odd", "NonZero")
    said, page = tmp_path / "said.json", tmp_path / "said.md"
    command = [sys.executable, str(SCRIPT), str(tmp_path / "models"), "--level", "O0", "--level", "O3"]
    done = subprocess.run([*command, "--json", str(said), "--markdown", str(page)], check=False, cwd=tmp_path)
    assert done.returncode == 1, "one is refused"
    good, odd = json.loads(said.read_text())["rows"]
    assert (good["model"], good["nodes"], good["refused"], good["failures"]) == ("good", 1, None, [])
    assert list(good["levels"]) == ["O0", "O3"]
    assert [cell["limit_seconds"] for cell in good["levels"].values()] == [None, 60]
    for cell in good["levels"].values():
        assert cell["kernels"] == 1
        assert cell["seconds"] > 0
        assert cell["cycles"] > 0
    assert 0 <= good["network_error"] < 1e-3
    assert odd["refused"]
    assert "1 of 2 compile, 1 are right" in page.read_text()


def test_without_a_folder_pytorch_writes_the_models(tmp_path: Path) -> None:
    """And says so where it is not installed; here a module stands for it that cannot be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(SCRIPT)], check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert done.stderr.endswith("error: exports are written by PyTorch: pip install '.[exports]', or name a FOLDER\n")


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
