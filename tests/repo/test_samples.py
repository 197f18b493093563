"""Every sample runs as it is, and leaves nothing where it is called."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("[0-9]*.py"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_sample_runs(sample: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(sample)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not [*tmp_path.iterdir()]


def test_first_sample_agrees_with_onnxruntime(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SAMPLES[0])], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = re.search(r"relative error against onnxruntime: (\S+)", done.stdout)
    assert found
    assert float(found[1]) < 5e-3


def test_all_levels_leave_the_same_bits(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SAMPLES[1])], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["O0", "O1", "O2", "O3"]
    assert all(line.endswith("the bits of O0: True") for line in lines)


def test_the_exact_method_places_no_worse_than_others(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SAMPLES[2])], cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()[1:6]]
    assert {row[0] for row in rows} == {"single", "heft", "duet", "sphinx", "exact"}
    times = {row[0]: float(row[2]) for row in rows}  # method, tasks, makespan
    assert times["exact"] == min(times.values()) > 0
